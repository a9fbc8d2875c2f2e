"""Finds a free id for a create without one, when a client has already taken the number that the default gives."""

from __future__ import annotations

from typing import Any

import asyncpg
import msgspec
from asyncpg import exceptions as pg

from querybuild.declarations.resource import Resource
from querybuild.declarations.types import INT, SMALLINT
from querybuild.planning.writes.write_plan import WritePlan
from querybuild.sql.statement import Statement
from querybuild.sql.writes.free_ids import FreeIdStatements
from server.errors import no_free_id
from server.execution.arguments import Arguments
from server.postgres.connection import PostgresConnection

MAX_DRAWN = 50_000
"""How many numbers of a sequence one create skips at most. PostgreSQL takes about 100 ms for them."""

LOWEST_TRIED = 1_000
"""How many of the lowest numbers are tried before random numbers."""

ATTEMPTS = 8
"""How many numbers are tried. A free number may be taken by a client before it is inserted."""

REPEATS = 3
"""How often the INSERT with the default is repeated, if the default is not a sequence."""


class _Source(msgspec.Struct, frozen=True):
    """The source of ids: numbers from `start` by `increment`, within the bounds of the sequence and the column.
    sequence: its oid; None if the role may not use it, or there is none."""

    sequence: int | None
    start: int
    increment: int
    least: int
    greatest: int

    @property
    def first(self) -> int:
        """The first number that the bounds allow, counted back from the start."""
        begin = self.least if self.increment > 0 else self.greatest
        return self.start - self.increment * ((self.start - begin) // self.increment)

    def steps(self, start: int) -> int:
        """Return how many increments the bounds allow after `start`."""
        end = self.greatest if self.increment > 0 else self.least
        return min((end - start) // self.increment, (2**63 - 1) // abs(self.increment))


async def insert_with_free_id(
    connection: PostgresConnection,
    plan: WritePlan,
    sent: Arguments,
    insert_default: Statement,
    statements: FreeIdStatements,
    *,
    is_sequence_exhausted: bool,
) -> asyncpg.Record | None:
    """Insert a row with a free id, and return it. Return None if the database wrote no row although the id is free.
    insert_default: the INSERT that uses the default. is_sequence_exhausted: whether the sequence has no more numbers.

    The number of statements is bounded. Raises NoFreeId.
    """
    read = await _read_source(connection, plan.resource, statements)
    if read is None:
        for _ in range(REPEATS):
            row = await connection.fetchrow(insert_default.sql, *sent.of(insert_default))
            if row is not None:
                return row
    source = read or _Source(None, 1, 1, *_bounds(plan.resource))
    draws, unwritten = source.sequence is not None and not is_sequence_exhausted, 0
    for attempt in range(ATTEMPTS):
        drawn = await _draw(connection, source, statements, 1) if draws else []
        number = drawn[0] if drawn else None
        if number is None:
            draws = False
            number = await _choose(connection, source, statements, 0 if attempt else LOWEST_TRIED)
        if number is None:
            break
        row = await connection.fetchrow(statements.insert.sql, *sent.of(statements.insert, row=number))
        if row is not None:
            return row
        unwritten += await connection.fetchval(statements.is_taken, number) is None
        if unwritten > 1:
            return None
    raise no_free_id(plan.resource.type)


async def _read_source(
    connection: PostgresConnection, resource: Resource, statements: FreeIdStatements
) -> _Source | None:
    row = await connection.fetchrow(statements.sequence, statements.table, statements.column)
    if row is None:
        return None
    oid, start, increment, least, greatest, is_allowed = row
    bounds = _bounds(resource)
    return _Source(oid if is_allowed else None, start, increment, max(least, bounds[0]), min(greatest, bounds[1]))


def _bounds(resource: Resource) -> tuple[int, int]:
    bits = {SMALLINT: 15, INT: 31}.get(resource.id.type, 63)
    return -(2**bits), 2**bits - 1


async def draw_free_ids(
    connection: PostgresConnection, resource: Resource, statements: FreeIdStatements, count: int
) -> list[Any] | None:
    """Return `count` free numbers of the id's sequence. Return None if it has fewer, or if there is no sequence."""
    source = await _read_source(connection, resource, statements)
    if source is None or source.sequence is None:
        return None
    numbers = await _draw(connection, source, statements, count)
    return numbers if len(numbers) == count else None


async def _draw(connection: PostgresConnection, source: _Source, statements: FreeIdStatements, count: int) -> list[Any]:
    """Return free numbers of the sequence. There are fewer than `count` if it is exhausted, or if too many are
    taken."""
    savepoint = connection.transaction()
    await savepoint.start()
    try:
        rows = await connection.fetch(statements.draw, source.sequence, MAX_DRAWN + count, count)
    except pg.SequenceGeneratorLimitExceededError:
        await savepoint.rollback()
        return []
    await savepoint.commit()
    return [row[0] for row in rows if source.least <= row[0] <= source.greatest]


async def _choose(connection: PostgresConnection, source: _Source, statements: FreeIdStatements, lowest: int) -> Any:
    """Return a free number that the sequence can return, or could have returned before. Return None if none is
    found."""
    for start in dict.fromkeys((source.start, source.first)):
        number = await connection.fetchval(statements.choose, start, source.increment, source.steps(start), lowest)
        if number is not None:
            return number
    return None
