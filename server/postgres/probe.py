"""Checks whether PostgreSQL answers, for the readiness check, on a connection outside of the pool. So it works while
requests hold every connection of the pool.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from asyncpg import exceptions as pg

from server.postgres.connection import PostgresConnection

FAILURES = (OSError, pg.PostgresError, pg.InterfaceError, pg.InternalClientError)
"""The errors of connecting and querying. A TimeoutError is an OSError."""

Connect = Callable[[], Awaitable[PostgresConnection]]


class Probe:
    """One connection that is opened on first use, kept, and opened again when it breaks."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._connection: PostgresConnection | None = None

    async def ask(self, timeout_seconds: float) -> None:
        """Wait until PostgreSQL has answered. Do not call it concurrently. Raises the errors in FAILURES."""
        async with asyncio.timeout(timeout_seconds):
            if self._connection is not None and await self._answers(self._connection):
                return
            # The kept connection may have broken long ago: only a new one shows whether PostgreSQL is up.
            self.close()
            self._connection = await self._connect()
            await self._query(self._connection)

    async def _answers(self, connection: PostgresConnection) -> bool:
        try:
            await self._query(connection)
        except TimeoutError:
            raise
        except FAILURES:
            return False
        return True

    async def _query(self, connection: PostgresConnection) -> None:
        try:
            await connection.fetchval("SELECT 1")
        except BaseException:
            # A late answer must not be read as the answer to the next query.
            self.close()
            raise

    def close(self) -> None:
        """Close the connection at once."""
        connection, self._connection = self._connection, None
        if connection is not None and not connection.is_closed():
            connection.terminate()
