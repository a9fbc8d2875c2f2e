"""Locks rows before they are written. The rules are in `querybuild/locks.py`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import asyncpg
from asyncpg import exceptions as pg

from querybuild.changes import PlannedWrite, rows_to_lock
from querybuild.errors import resource_not_found
from querybuild.plan import LockStrength, Statement
from querybuild.resource import Relationship, Resource, own_key_of
from server.engine import Engine
from server.postgres.connection import Connection


async def lock_rows(connection: Connection, engine: Engine, writes: Iterable[PlannedWrite]) -> None:
    """Locks the rows that several writes of one transaction are going to lock, in the order that all writes keep.

    The rows of one type are locked by one statement, each as strongly as the strongest of them has to be. New rows
    that only refer to others need no lock in advance.
    """
    found: dict[Resource, dict[str, set[Any]]] = {}
    strengths: dict[Resource, LockStrength] = {}
    for write in writes:
        for resource, column, value, strength in rows_to_lock(write):
            found.setdefault(resource, {}).setdefault(column, set()).add(value)
            strengths[resource] = max(strength, strengths.get(resource, strength))
    if all(strength is LockStrength.KEY_SHARE for strength in strengths.values()):
        return
    for resource in sorted(found, key=engine.catalog.lock_rank):
        columns = found[resource]
        statement = engine.locks_statement(resource, tuple(columns), strengths[resource])
        await connection.fetch(
            statement.sql, *_arguments(statement, [list(found) for found in columns.values()], engine)
        )


def _arguments(statement: Statement, keys: Sequence[list[Any]], engine: Engine) -> list[Any]:
    """keys: of each column the values that its rows have."""
    context = engine.context.values
    return [keys[slot.index] if slot.source == "keys" else context[slot.index] for slot in statement.slots]


async def lock_related(
    connection: Connection,
    engine: Engine,
    resource: Resource,
    relationship: Relationship,
    row_id: Any,
    strength: LockStrength,
) -> Any:
    """The id at the other end of a to-one; None where there is none. Both rows are locked, and the relationship cannot
    change any more. strength: of the lock on the related row.

    Raises ResourceNotFound of the row that has the relationship, and SerializationError where the relationship has
    changed before it was locked: then the transaction begins again.
    """

    async def locked(
        of: Resource, column: str, key: Any, strength: LockStrength | None, shown: tuple[str, ...] = ()
    ) -> asyncpg.Record | None:
        statement = engine.locks_statement(of, (column,), strength, shown)
        return await connection.fetchrow(statement.sql, *_arguments(statement, [[key]], engine))

    target, id_column = engine.catalog.target(relationship), resource.id.column
    own = own_key_of(relationship)
    if own is None:
        if await locked(resource, id_column, row_id, LockStrength.UPDATE) is None:
            raise resource_not_found(resource.type, str(row_id))
        related = await locked(target, relationship.foreign_key, row_id, strength)
        return None if related is None else related[0]
    shown = (own.column_name,)
    read = await locked(resource, id_column, row_id, None, shown)
    if read is None:
        raise resource_not_found(resource.type, str(row_id))
    if read[1] is None:
        return None
    related = await locked(target, target.id.column, read[1], strength)
    if await locked(resource, id_column, row_id, LockStrength.NO_KEY_UPDATE, shown) != read:
        raise pg.SerializationError("a to-one has changed before it was locked")
    return None if related is None else related[0]
