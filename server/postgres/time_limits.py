"""Limits the time of work on a connection in this process.

It must not know: the pool, statements.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

from server.errors import StatementTimeout
from server.postgres.connection import PostgresConnection, Work

Result = TypeVar("Result")


def timed(work: Work[Result], timeout_seconds: float) -> Work[Result]:
    """Return the work with a time limit in this process. Setting a timeout in PostgreSQL would take a round trip for
    each read."""

    async def limited(connection: PostgresConnection) -> Result:
        clock = asyncio.timeout(timeout_seconds)
        try:
            async with clock:
                return await work(connection)
        except TimeoutError as error:
            if not clock.expired():
                raise
            # The statement is cancelled. The connection can be used again after that.
            raise StatementTimeout("The database took too long over this filter.") from error

    return limited
