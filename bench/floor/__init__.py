"""The floors: what a careful person writes by hand in Tornado and asyncpg for exactly the requests of `bench.requests`.

Run as `python -m bench.floor --database-url URL --pool-size N`, the sharpest floor, and with `--plain`, the plain one.
What the server's figures add to these is the price of being general; where they are better, plain handlers waste time.

The two have the same handlers, the same SQL and the same documents. The plain one stands on what Tornado and asyncpg
give and teach: patterns in an Application, Tornado's access log with a line for each request, asyncpg's pool (without
its reset query, which is known to cost a round trip). The sharpest has a table of paths, a list of connections, plans
that are made once for each of them, no collection of what is there from the start, and no log. Both run on uvloop and
send no ETags.

What it does: each request of the table, with other ids, values and pages of it too, is answered with the same status,
Location and document as by the server, byte for byte (a test holds this); an answer is one snapshot of the database;
writes are held to the same constraints, lock what has to be locked and are as durable; 1,000,000 rows are streamed.
Each request is answered by a RequestHandler of an Application.

What makes both fast is what such a person would reach for: fixed SQL; all that an answer needs in one statement, so
that there is no transaction to begin and to end; dates as PostgreSQL writes them; the links of a query string made
once; the text around values made once for each form of an object, and a document joined once; Structs that the
collector passes over.

What it does not do: no validation, no negotiation, no HEAD, no settings, no limits, no errors of its own (a bare 404
for what is not there, a bare 500 for all else); no filter, sort, include or fieldset but those of the table; no total
of a page that is empty. It reaches for nothing of Tornado that is not documented. It must not import the server, nor
what the server is made of.
"""
