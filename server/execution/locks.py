"""Locks rows before they are written. The rules are in `querybuild/locks.py`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from asyncpg import exceptions as pg

from querybuild.changes import PlannedWrite, rows_to_lock
from querybuild.errors import resource_not_found
from querybuild.plan import LockStrength
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
        sql = engine.locks_statement(resource, tuple(columns), strengths[resource])
        await connection.fetch(sql, *map(list, columns.values()))


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
    target, id_column = engine.catalog.target(relationship), (resource.id.column,)
    own = own_key_of(relationship)
    if own is None:
        owner = engine.locks_statement(resource, id_column, LockStrength.UPDATE)
        if await connection.fetchval(owner, [row_id]) is None:
            raise resource_not_found(resource.type, str(row_id))
        return await connection.fetchval(
            engine.locks_statement(target, (relationship.foreign_key,), strength), [row_id]
        )
    shown = (own.column_name,)
    read = await connection.fetchrow(engine.locks_statement(resource, id_column, None, shown), [row_id])
    if read is None:
        raise resource_not_found(resource.type, str(row_id))
    if read[1] is None:
        return None
    related_id = await connection.fetchval(engine.locks_statement(target, (target.id.column,), strength), [read[1]])
    locked = engine.locks_statement(resource, id_column, LockStrength.NO_KEY_UPDATE, shown)
    if await connection.fetchrow(locked, [row_id]) != read:
        raise pg.SerializationError("a to-one has changed before it was locked")
    return related_id
