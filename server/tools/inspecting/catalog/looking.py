"""Looks at the rows of views and of other tables whose keys no constraint guarantees, within a limit of time in all.

What comes in: a connection, tables and columns. What goes out: what the rows say about a key.
It must not know: resources, names.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import asyncpg

from querybuild.declarations.terms import quote_ident
from server.schema.live_statements import is_gone
from server.tools.inspecting.catalog.model import InspectedTable

Connection: TypeAlias = "asyncpg.Connection[Any]"
Show = Callable[[str], None]

LOOK_SECONDS = 5.0
"""How long one look at the rows of a table may take."""

Found = Literal["unique", "repeated", "empty", "slow", "refused"]
"""What the rows say of columns: whether they are a key, or why that is not known."""


class Looks:
    """Looks at rows. seconds: for all looks together. total: how many tables may be looked at. show: called with what
    is looked at."""

    def __init__(self, connection: Connection, seconds: float, total: int, show: Show) -> None:
        self._connection = connection
        self._ends_at = time.monotonic() + seconds
        self._total = total
        self._show = show
        self._count = 0

    def begin(self, table: InspectedTable) -> None:
        """Show which table is looked at."""
        self._count += 1
        self._show(f"looking for the keys of {table.full_name}, {self._count} of {self._total}")

    async def key(self, table: InspectedTable, columns: tuple[str, ...]) -> Found:
        """Return whether no two rows have the same values in these columns, and none has a null in them."""
        key, name = ", ".join(map(quote_ident, columns)), _name(table)
        nulls = " OR ".join(f"bool_or({quote_ident(column)} IS NULL)" for column in columns)
        repeated = f"SELECT 1 FROM {name} GROUP BY {key} HAVING count(*) > 1 OR {nulls} LIMIT 1"
        sql = f"SELECT CASE WHEN EXISTS ({repeated}) THEN 2 WHEN EXISTS (SELECT FROM {name}) THEN 1 ELSE 0 END"
        count = await self._look(sql)
        results: dict[int, Found] = {0: "empty", 1: "unique", 2: "repeated"}
        return results[count] if isinstance(count, int) else count

    async def has_rows(self, table: InspectedTable) -> bool:
        """Return whether a table has rows. False if this is not known."""
        return await self._look(f"SELECT 1 FROM {_name(table)} LIMIT 1") == 1

    async def _look(self, sql: str) -> int | Found:
        seconds = min(LOOK_SECONDS, self._ends_at - time.monotonic())
        if seconds <= 0:
            return "slow"
        try:
            async with self._connection.transaction(readonly=True):
                await self._connection.execute(f"SET LOCAL statement_timeout = {max(1, round(1000 * seconds))}")
                count: int | None = await self._connection.fetchval(sql)
        except asyncpg.QueryCanceledError:
            return "slow"
        except asyncpg.PostgresError as error:
            if is_gone(error):
                raise
            return "refused"
        return count or 0


def _name(table: InspectedTable) -> str:
    return f"{quote_ident(table.schema)}.{quote_ident(table.name)}"
