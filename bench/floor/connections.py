"""The connections of the floors. It takes a database URL and their number, and gives rows, or a connection for a
transaction.

`Connections` is for the sharpest floor. asyncpg's own pool creates a proxy at each acquire, a task and a timer at each
release, and sends a reset query, which costs more than a short statement. Nothing here changes a session, so a list of
connections is enough. `Pooled` is for the plain floor: asyncpg's pool without the reset query.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, TypeAlias

import asyncpg
from asyncpg.pool import PoolConnectionProxy

# asyncpg's classes have a parameter only in their type hints.
Own: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Connection: TypeAlias = "Own | PoolConnectionProxy[asyncpg.Record]"
Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
Row: TypeAlias = asyncpg.Record


async def connect(url: str) -> Own:
    """Open a connection. Every text is fixed, so its plan is made once: generic, and without JIT."""
    return await asyncpg.connect(
        url,
        statement_cache_size=256,
        max_cached_statement_lifetime=0,
        server_settings={"plan_cache_mode": "force_generic_plan", "jit": "off", "datestyle": "ISO"},
    )


class Connections:
    """A list of open connections; the last used one is used next. A broken one is replaced when it is acquired."""

    def __init__(self, url: str, connections: list[Own]) -> None:
        self._url = url
        self._idle = connections
        self._waiting: deque[asyncio.Future[Own]] = deque()

    async def acquire(self) -> Own:
        """Acquire a connection."""
        connection = self._idle.pop() if self._idle else await self._next()
        if connection.is_closed():
            try:
                connection = await connect(self._url)
            except BaseException:
                self.put_back(connection)
                raise
        return connection

    async def release(self, connection: Connection) -> None:
        """Release an acquired connection."""
        assert isinstance(connection, asyncpg.Connection)
        self.put_back(connection)

    def put_back(self, connection: Own) -> None:
        """Hand the connection to a waiting request, or put it back."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return
        self._idle.append(connection)

    async def _next(self) -> Own:
        waiter: asyncio.Future[Own] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.put_back(waiter.result())
            raise

    async def fetch(self, sql: str, *values: Any) -> list[Row]:
        """Run a statement and return its rows."""
        connection = await self.acquire()
        try:
            return await connection.fetch(sql, *values)
        finally:
            self.put_back(connection)

    async def fetchrow(self, sql: str, *values: Any) -> Row | None:
        """Run a statement and return its first row."""
        connection = await self.acquire()
        try:
            return await connection.fetchrow(sql, *values)
        finally:
            self.put_back(connection)

    async def close(self) -> None:
        """Close the idle connections."""
        for connection in self._idle:
            await connection.close()


async def open_connections(url: str, count: int) -> Connections:
    """Open a number of connections."""
    return Connections(url, [await connect(url) for _ in range(count)])


class Pooled:
    """Connections of asyncpg's own pool, which replaces broken ones itself."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def acquire(self) -> Connection:
        """Acquire a connection."""
        return await self._pool.acquire()

    async def release(self, connection: Connection) -> None:
        """Release an acquired connection."""
        assert isinstance(connection, PoolConnectionProxy)
        await self._pool.release(connection)

    async def fetch(self, sql: str, *values: Any) -> list[Row]:
        """Run a statement and return its rows."""
        async with self._pool.acquire() as connection:
            return await connection.fetch(sql, *values)

    async def fetchrow(self, sql: str, *values: Any) -> Row | None:
        """Run a statement and return its first row."""
        async with self._pool.acquire() as connection:
            return await connection.fetchrow(sql, *values)

    async def close(self) -> None:
        """Close the pool."""
        await self._pool.close()


async def open_pool(url: str, count: int) -> Pooled:
    """Open asyncpg's pool with a number of connections."""
    pool = await asyncpg.create_pool(
        url, min_size=count, max_size=count, reset=_keep_session, server_settings={"jit": "off"}
    )
    return Pooled(pool)


async def _keep_session(_: Connection) -> None:
    """Replace the query that resets a session: nothing here changes one."""
