"""The floors: servers written by hand with Tornado and asyncpg for exactly the requests of `bench.requests`.

Run as `python -m bench.floor --database-url URL --pool-size N`, the sharpest floor, and with `--plain`, the plain one.
The difference to the server's figures is the price of being general. Where the server is better, plain handlers waste
time.

The two have the same handlers, the same SQL and the same documents. The plain one uses Tornado and asyncpg as they are
documented: patterns in an Application, Tornado's access log with a line for each request, asyncpg's pool (without its
reset query, which is known to cost a round trip). The sharpest has a table of paths, a list of connections, generic
plans that are made once for each of them, no garbage collection of objects that exist at the start, and no log. Both
run on uvloop and send no ETags.

What it does: each request of the table, also with other ids, values and pages, is answered with the same status,
Location and document as by the server, byte for byte (a test checks this). An answer is one snapshot of the database.
Writes meet the same constraints, take the same locks and are as durable. 1,000,000 rows are streamed. Each request is
answered by a RequestHandler of an Application.

Both are fast because of usual techniques: fixed SQL; everything that an answer needs in one statement, so that there is
no transaction to begin and to end; dates as text from PostgreSQL; the links of a query string made once; the text
around values made once for each form of an object, and a document joined once; Structs that the garbage collector
ignores.

What it does not do: no validation, no negotiation, no HEAD, no settings, no limits, no error documents (a bare 404 for
what does not exist, a bare 500 for everything else); only the filters, sorts, includes and fieldsets of the table; no
total of an empty page. It uses no undocumented part of Tornado. It must not import the server, nor the server's parts.
"""
