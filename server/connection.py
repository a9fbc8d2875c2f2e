"""One connection to PostgreSQL. What comes in: what asyncpg opens. What goes out: the same, and what the pool has to
know before it lends a connection again. Nothing here knows the pool, or a statement of ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg

RESET = (
    "DO $$ DECLARE own text; BEGIN FOR own IN SELECT name FROM pg_prepared_statements WHERE from_sql LOOP "
    "EXECUTE format('DEALLOCATE %I', own); END LOOP; END $$; "
    "SET SESSION AUTHORIZATION DEFAULT; RESET ALL; CLOSE ALL; UNLISTEN *; SELECT pg_advisory_unlock_all(); "
    "DISCARD PLANS; DISCARD TEMP; DISCARD SEQUENCES"
)
"""DISCARD ALL, but for the prepared statements that the driver keeps count of."""


class Connection(asyncpg.Connection):
    """A pooled connection. None of our own statements leaves session state behind, so releasing it costs no round trip;
    one that custom code has held is reset in full."""

    _is_held = False
    is_spoilt = False
    """Whether it must not serve another request: it has codecs that are not ours, which cannot all be taken back, or is
    about to end."""

    def hold(self) -> None:
        """Custom code is given the connection."""
        self._is_held = True

    @property
    def must_be_reset(self) -> bool:
        return self._is_held or self.is_spoilt

    def get_reset_query(self) -> str:
        is_held, self._is_held = self._is_held, False
        return RESET if is_held else ""

    async def execute(self, query: str, *args: Any, **options: Any) -> str:
        status = await super().execute(query, *args, **options)
        if query == "COMMIT;" and status == "ROLLBACK":
            # What is sent by asyncpg's transactions. PostgreSQL says it in the tag alone.
            raise RuntimeError("a statement had failed, and custom code went on: nothing was written")
        return status

    def give_up(self) -> None:
        self.is_spoilt = True

    async def set_type_codec(self, *args: Any, **options: Any) -> None:
        self.give_up()
        await super().set_type_codec(*args, **options)

    async def set_builtin_type_codec(self, *args: Any, **options: Any) -> None:
        self.give_up()
        await super().set_builtin_type_codec(*args, **options)

    async def reset_type_codec(self, *args: Any, **options: Any) -> None:
        self.give_up()
        await super().reset_type_codec(*args, **options)

    async def fetch_at_most(self, sql: str, values: Sequence[Any], limit: int) -> list[asyncpg.Record]:
        """The first `limit` rows, 0 for all. The bound is the protocol's and not a LIMIT, which would have the
        planner hope to stop early and walk an index for it. asyncpg has this in `fetchrow` alone; `_execute`
        is what that calls."""
        rows: list[asyncpg.Record] = await self._execute(sql, values, limit, None)  # type: ignore[attr-defined]
        return rows
