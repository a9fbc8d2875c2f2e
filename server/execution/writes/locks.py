"""Locks rows before they are written. The rules are in `querybuild/sql/writes/locks.py`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from asyncpg import exceptions as pg

from querybuild.declarations.keys import Key
from querybuild.declarations.resource import own_key_of, referring_key
from querybuild.errors import resource_not_found
from querybuild.planning.changes import PlannedWrite
from querybuild.planning.page_values import Values
from querybuild.planning.row_plan import Rows
from querybuild.planning.rows import Row
from querybuild.planning.writes.write_locks import RelatedRow, rows_to_lock
from querybuild.planning.writes.write_plan import LockStrength
from querybuild.sql.statement import Statement
from server.engine import Engine
from server.errors import AmbiguousIds, NotWritten
from server.postgres.connection import PostgresConnection

_OF_POLICY = "a policy hides the row from an UPDATE. Nothing was written."


async def fetch_locked(connection: PostgresConnection, statement: Statement, values: Sequence[Any]) -> Sequence[Row]:
    """Run a statement that locks rows, and return them. A first run may wait for a lock and then mix two states of the
    database: if this matters, the second run decides."""
    if statement.decides_again:
        await connection.fetch(statement.sql, *values)
    return await connection.fetch(statement.sql, *values)


async def fetch_locked_row(
    connection: PostgresConnection, statement: Statement, values: Sequence[Any], pointer: str | None = None
) -> Row | None:
    """Lock one row and return it, or None if there is none. pointer: to its id in the document. Raises
    AmbiguousIds."""
    if statement.decides_again:
        await connection.fetchrow(statement.sql, *values)
    return await fetch_only(connection, statement, values, pointer)


async def fetch_only(
    connection: PostgresConnection, statement: Statement, values: Sequence[Any], pointer: str | None = None
) -> Row | None:
    """Return the row that a statement finds or writes by its id, or None if there is none. pointer: to the id in the
    document. Raises AmbiguousIds, so that nothing is written, if there are several."""
    rows = await connection.fetch_at_most(statement.sql, values, 2)
    if len(rows) > 1:
        raise repeated_id(rows[0][0], pointer)
    return rows[0] if rows else None


def repeated_id(id_value: Any, pointer: str | None) -> AmbiguousIds:
    """Return the error for a write of a row whose id several rows have. pointer: to the id in the document."""
    detail = f"Several rows have the id {id_value}, so nothing was written."
    return AmbiguousIds(f"{detail} Whoever runs the server finds them by `waterspout check`.", pointer=pointer)


async def lock_rows(
    connection: PostgresConnection, engine: Engine, context: Values, writes: Iterable[PlannedWrite]
) -> None:
    """Lock all rows that several writes of one transaction need to lock, in the order of the locks of SQL.

    The rows of one type are locked by one statement, with the strongest lock that one of them needs. Writes that only
    need FOR KEY SHARE locks need no lock in advance. context: the values of `Context`.
    """
    to_lock: dict[Rows, dict[Key, set[Any]]] = {}
    strengths: dict[Rows, LockStrength] = {}
    for write in writes:
        for rows, key, value, strength in rows_to_lock(write):
            to_lock.setdefault(rows, {}).setdefault(key, set()).add(value)
            strengths[rows] = max(strength, strengths.get(rows, strength))
    if all(strength is LockStrength.KEY_SHARE for strength in strengths.values()):
        return
    for rows in sorted(to_lock, key=lambda rows: engine.catalog.lock_rank(rows.resource)):
        keys = to_lock[rows]
        statement = engine.statements.of_locks(rows, tuple(keys), strengths[rows])
        values = _values(statement, [list(ids) for ids in keys.values()], context)
        await connection.fetch(statement.sql, *values)


def _values(statement: Statement, keys: Sequence[list[Any]], context: Values) -> list[Any]:
    """Return the values of $1, $2, ... keys: for each key the array of values."""
    return [keys[slot.index] if slot.source == "keys" else context[slot.index] for slot in statement.slots]


async def lock_related(
    connection: PostgresConnection,
    engine: Engine,
    context: Values,
    related: RelatedRow,
    row_id: Any,
    strength: LockStrength,
) -> Any:
    """Lock the related row of a to-one, and return its id. Return None if there is none. The row that the path names is
    locked too, so that the relationship cannot change any more. row_id: the id of this row. strength: of the lock on
    the related row.

    Raises ResourceNotFound if the row that the path names does not exist, and NotWritten if a policy allows that a row
    is read, and not that it is locked. Raises SerializationError if the relationship changed before it was locked. Then
    the transaction is repeated.
    """

    async def fetched(
        rows: Rows, key: Key, value: Any, strength: LockStrength | None, shown: tuple[Key, ...] = ()
    ) -> Row | None:
        statement = engine.statements.of_locks(rows, (key,), strength, shown)
        return await fetch_locked_row(connection, statement, _values(statement, [[value]], context))

    async def locked(
        rows: Rows, key: Key, value: Any, strength: LockStrength, shown: tuple[Key, ...] = ()
    ) -> Row | None:
        row = await fetched(rows, key, value, strength, shown)
        if row is None and await fetched(rows, key, value, None, shown) is not None:
            # A concurrent write may have made the row after the first statement.
            row = await fetched(rows, key, value, strength, shown)
            if row is None:
                raise NotWritten(f"The database does not allow a change of this {rows.resource.type}: {_OF_POLICY}")
        return row

    owners, targets, own = related.owners, related.rows, own_key_of(related.relationship)
    id_key, missing = owners.resource.id.key, resource_not_found(owners.resource.type, str(row_id))
    if own is None:
        if await locked(owners, id_key, row_id, LockStrength.UPDATE) is None:
            raise missing
        key = referring_key(related.relationship, related.relationship.foreign_columns, owners.resource)
        locked_row = await locked(targets, key, row_id, strength)
        return None if locked_row is None else locked_row[0]
    shown = (referring_key(own, own.own_columns, targets.resource),)
    read = await fetched(owners, id_key, row_id, None, shown)
    if read is None:
        raise missing
    if read[1] is None:
        return None
    locked_row = await locked(targets, targets.resource.id.key, read[1], strength)
    if await locked(owners, id_key, row_id, LockStrength.NO_KEY_UPDATE, shown) != read:
        raise pg.SerializationError("a to-one has changed before it was locked")
    return None if locked_row is None else locked_row[0]
