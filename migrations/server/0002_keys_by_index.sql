-- A session keeps a plan for the statements of the function after a few calls. If the table is empty then, the plan reads
-- all of it, also when it has grown: until PostgreSQL has analyzed it, each key would take milliseconds.

ALTER FUNCTION waterspout.claim_key(text, integer) SET enable_seqscan = off;
