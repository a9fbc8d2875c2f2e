"""Compiles the locks of writes. This text says which rows a write locks, how strongly, and in which order.

Writes run at READ COMMITTED and keep their locks until they end. If a write locks every row before it makes a decision
based on this row, the result of two concurrent writes is the result of one after the other. A row lock prevents changes
of this row. It does not prevent that another row is linked to it. So the owner, the row that others are linked to, is
locked as well:

1.  A write that may remove links (a replacement, a removal, a delete of the owner) locks the owner FOR UPDATE in a
    separate statement. The next statement reads and locks the linked rows. Its snapshot is newer than the lock.
2.  A write that links a row to an owner, from either side, locks the owner FOR KEY SHARE. A foreign key does the same,
    also for other programs. The two locks exclude each other, but two locks FOR KEY SHARE do not.
3.  A write that removes a row from its owner, from the side of this row, only locks this row. A concurrent replacement
    waits for the row and reads it again.
4.  A write whose decision depends on the key of a to-one locks both rows, and reads the key again under the lock.
5.  A statement that waited for a lock tests its criteria again, with the new values of the locked row. But it sees
    other rows as they were before: it may mix two states, such as the new team of a row with the old members of this
    team. So if criteria or rights read other rows, the statement is run twice (`Statement.decides_again`). The second
    run sees the state after the wait, and the locked rows cannot change any more.
6.  The order of locks: a row is locked before the rows that refer to it (`Catalog.lock_rank`). Rows of one type are
    locked in the order of their ids. Two tables that a link table connects also have such an order.

PostgreSQL cannot lock the rows of some relations: of materialized views, and of views that group, for example. Writes
read such rows without a lock (`TableAbilities.locks_rows`).

A cycle of references has no such order. There, and where a cascade or a trigger locks, PostgreSQL may detect a
deadlock. Then one write is rolled back and repeated.
"""

from __future__ import annotations

from collections.abc import Sequence

from pypika import PostgreSQLQuery

from querybuild.declarations.keys import Key
from querybuild.declarations.resource import Resource
from querybuild.declarations.terms import Template
from querybuild.planning.row_plan import Rows, Slot
from querybuild.planning.writes.write_plan import LockStrength
from querybuild.sql.binds import Binds
from querybuild.sql.clauses import decides_again, is_writable, one_of, table
from querybuild.sql.keys import is_any_key, shown_key
from querybuild.sql.statement import Statement


def lock_clause(strength: LockStrength, resource: Resource) -> str:
    """Return ` FOR NO KEY UPDATE`, with the blank. Empty if PostgreSQL cannot lock the rows of the resource. PyPika
    only has FOR UPDATE."""
    return " FOR " + strength.name.replace("_", " ") if resource.abilities.locks_rows else ""


def compile_check(checked: Rows) -> Statement:
    """Return a statement that finds rows which must not be as they are now.

    `SELECT "id" FROM "posts" WHERE "id"=ANY($1) AND NOT ("user_id"=$2) IS TRUE`
    """
    binds, checked_table = Binds(), table(checked.resource)
    of, key = checked_table.field, checked.resource.id.key
    query = (
        PostgreSQLQuery.from_(checked_table).select(shown_key(of, key)).where(is_any_key(of, key, binds(Slot("keys"))))
    )
    for is_right in is_writable(checked, binds):
        query = query.where(Template("NOT {}", is_right))
    return Statement(query.get_sql(), binds.slots)


def compile_locks(
    rows: Rows, keys: Sequence[Key], strength: LockStrength | None, shown: Sequence[Key] = ()
) -> Statement:
    """Return a statement that locks rows in the order of their ids: those that have one of the given values in one of
    the keys. Each key has a slot for its array of values: Slot("keys", 0), Slot("keys", 1), ... strength: None for no
    lock. shown: keys to select after the id.

    `SELECT "id" FROM "computers" WHERE "id"=ANY($1) OR "owner_id"=ANY($2) ORDER BY "id" FOR NO KEY UPDATE`
    """
    binds, locked_table = Binds(), table(rows.resource)
    of, id_key = locked_table.field, rows.resource.id.key
    tests = [is_any_key(of, key, binds(Slot("keys", index))) for index, key in enumerate(keys)]
    query = PostgreSQLQuery.from_(locked_table).select(*[shown_key(of, key) for key in (id_key, *shown)])
    query = query.where(one_of(rows, Template(" OR ".join(["{}"] * len(tests)), *tests), binds))
    query = query.orderby(*map(of, id_key.columns))
    sql = query.get_sql() + ("" if strength is None else lock_clause(strength, rows.resource))
    return Statement(sql, binds.slots, strength is not None and decides_again(rows))
