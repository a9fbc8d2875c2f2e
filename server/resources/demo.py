"""Demo rows."""

from __future__ import annotations

import asyncpg


async def load_demo(connection: asyncpg.Connection) -> int:
    return 0
