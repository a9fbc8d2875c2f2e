"""The connection of the readiness check, outside of the pool. In: a way to connect. Out: whether PostgreSQL answers.

Requests may hold every connection of the pool for as long as they like; this one answers still.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from asyncpg import exceptions as pg

from server.postgres.connection import Connection, is_open

FAILURES = (OSError, pg.PostgresError, pg.InterfaceError, pg.InternalClientError)
"""What connecting and asking raise: a TimeoutError is an OSError."""

Connect = Callable[[], Awaitable[Connection]]


class Probe:
    """One connection that is opened with the first question, kept, and opened again when it broke."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._connection: Connection | None = None

    async def ask(self, timeout_seconds: float) -> None:
        """Returns when PostgreSQL has answered. Not to be called twice at once. Raises what FAILURES lists."""
        async with asyncio.timeout(timeout_seconds):
            if self._connection is not None and await self._answers(self._connection):
                return
            # The kept one may have broken long ago; only a new one tells how PostgreSQL is now.
            self.close()
            self._connection = await self._connect()
            await self._question(self._connection)

    async def _answers(self, connection: Connection) -> bool:
        try:
            await self._question(connection)
        except TimeoutError:
            raise
        except FAILURES:
            return False
        return True

    async def _question(self, connection: Connection) -> None:
        try:
            await connection.fetchval("SELECT 1")
        except BaseException:
            # An answer that comes late must not be taken for that to the next question.
            self.close()
            raise

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and is_open(connection):
            connection.terminate()
