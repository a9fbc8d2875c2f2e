"""The locks of writes: which rows a write locks, how strongly, and in which order.

Writes run READ COMMITTED. Each keeps its locks until it ends, so what two writes leave is what one order of the two
would leave, if every row that a write decides by is locked before it is read. A lock keeps a row as it is. It does not
keep a new row from joining a relationship, so the row that others join, the owner, is locked as well:

1.  Who may take links away (a replacement, a removal, a delete of the owner) locks the owner FOR UPDATE, in a statement
    of its own. Then it reads the members and locks them. That statement has a snapshot that is younger than the lock.
2.  Who makes a row join an owner, from whichever side, locks the owner FOR KEY SHARE. A foreign key does that by
    itself, for other programs too. The two modes exclude each other; two who join do not.
3.  Who leaves an owner locks nothing but the row that leaves: the replacement waits for that row and reads it again.
4.  A write that decides by what a to-one names locks both ends, and looks again at the key under the lock.
5.  The order is: rows that others refer to before the rows that refer to them (`Catalog.lock_rank`), and rows of one
    type by their ids. Two tables that a link table connects have such an order too.

A ring of references has no such order. There, and where a cascade or a trigger locks, PostgreSQL may find a deadlock;
the loser is rolled back and tried again.
"""

from __future__ import annotations

from collections.abc import Sequence

from pypika import PostgreSQLQuery

from querybuild.binds import Binds
from querybuild.clauses import one_of, table
from querybuild.plan import LockStrength, Rows, Slot, Statement
from querybuild.terms import Template, equals_any


def compile_locks(
    rows: Rows, columns: Sequence[str], strength: LockStrength | None, shown: Sequence[str] = ()
) -> Statement:
    """The rows that have one of some values in one of the columns, locked in the order of their ids. An array is bound
    for each column, by its place: Slot("keys", 0), Slot("keys", 1), ... strength: None reads without a lock. shown:
    columns that come after the id.

    `SELECT "id" FROM "computers" WHERE "id"=ANY($1) OR "owner_id"=ANY($2) ORDER BY "id" FOR NO KEY UPDATE`
    """
    binds, found = Binds(), table(rows.resource)
    id_column = found.field(rows.resource.id.column)
    meets = [equals_any(found.field(name), binds(Slot("keys", place))) for place, name in enumerate(columns)]
    query = PostgreSQLQuery.from_(found).select(id_column, *[found.field(name) for name in shown])
    query = query.where(one_of(rows, Template(" OR ".join(["{}"] * len(meets)), *meets), binds)).orderby(id_column)
    return Statement(query.get_sql() + ("" if strength is None else strength.clause), binds.slots)
