"""The connections of one process. What comes in: asyncpg's pool. What goes out: connections, which may lie ready
between two requests.

To take a connection from asyncpg's pool and to bring it back costs 17 microseconds, as much as a short query.
So one that was left clean stays here for the next request, or goes to who has waited longest. Nothing here knows a
statement or an error of ours.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import suppress
from typing import Any

import asyncpg

from server.connection import Connection

UNUSED_CONNECTION_SECONDS = 300
"""How long a connection lies ready at least that nobody needs, and then in asyncpg's pool."""

LOOKED_AFTER = 1000
"""How often a connection is kept before asyncpg sees it, which replaces one that has had 50,000 queries."""


class Pool:
    """places: how many connections more may be asked of asyncpg. turns: those who wait for one, or for a place."""

    def __init__(self, pool: asyncpg.Pool[Any]) -> None:
        self._pool = pool
        self._places = pool.get_max_size()
        self._ready: list[Connection] = []
        self._fewest_ready = 0
        self._turns: deque[asyncio.Future[Connection | None]] = deque()
        self._kept = 0
        self._is_closing = False
        self._trimming: asyncio.Task[None] | None = None

    async def acquire(self, timeout_seconds: float) -> Connection:
        """Raises TimeoutError, and what asyncpg raises where there is none to be had."""
        while self._ready:
            connection = self._ready.pop()
            self._fewest_ready = min(self._fewest_ready, len(self._ready))
            if is_open(connection):
                return connection
            await self.release(connection)
        end = time.monotonic() + timeout_seconds
        if self._places:
            self._places -= 1
        elif (given := await self._turn(timeout_seconds)) is not None:
            if is_open(given):
                return given
            # Its place is whose turn it was.
            await self._release(given)
        return await self._open(max(0.001, end - time.monotonic()))

    async def _open(self, timeout_seconds: float) -> Connection:
        try:
            return await self._pool.acquire(timeout=timeout_seconds)  # type: ignore[return-value]  # the pool makes our class
        except BaseException:
            self._give_place()
            raise

    async def _turn(self, timeout_seconds: float) -> Connection | None:
        """A connection, or None for a place."""
        turn = asyncio.get_running_loop().create_future()
        self._turns.append(turn)
        try:
            async with asyncio.timeout(timeout_seconds):
                given: Connection | None = await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                # It came in the moment in which nobody waited any more.
                if turn.result() is None:
                    self._give_place()
                else:
                    await self.keep(turn.result())
            raise
        return given

    def _next_turn(self) -> asyncio.Future[Connection | None] | None:
        while self._turns:
            turn = self._turns.popleft()
            if not turn.done():
                return turn
        return None

    def _give_place(self) -> None:
        turn = self._next_turn()
        if turn is None:
            self._places += 1
        else:
            turn.set_result(None)

    async def keep(self, connection: Connection) -> None:
        """Takes back a connection whose work came to its end: there is nothing to reset."""
        self._kept += 1
        if self._is_closing or self._kept % LOOKED_AFTER == 0:
            await self.release(connection)
        elif (turn := self._next_turn()) is not None:
            turn.set_result(connection)
        else:
            self._ready.append(connection)
            if self._trimming is None:
                self._trimming = asyncio.create_task(self._trim())

    async def release(self, connection: Connection) -> None:
        """Takes back a connection in whatever state: asyncpg awaits what is cancelled, and resets what was begun."""
        try:
            await self._release(connection)
        finally:
            self._give_place()

    async def _release(self, connection: Connection) -> None:
        with suppress(asyncpg.InternalClientError):
            # PostgreSQL has closed it just now.
            await self._pool.release(connection)  # type: ignore[arg-type]  # it is the proxy that acquire gave

    async def close(self) -> None:
        """Waits for the connections that are in use."""
        self._is_closing = True
        self._stop_trimming()
        ready, self._ready = self._ready, []
        for connection in ready:
            await self.release(connection)
        await self._pool.close()

    def terminate(self) -> None:
        self._stop_trimming()
        self._pool.terminate()

    def _stop_trimming(self) -> None:
        if self._trimming is not None:
            self._trimming.cancel()

    async def _trim(self) -> None:
        """Gives back, time and again, as many as were ready all the time since: the pool closes them in its turn."""
        while True:
            self._fewest_ready = len(self._ready)
            await asyncio.sleep(UNUSED_CONNECTION_SECONDS)
            for _ in range(min(self._fewest_ready, len(self._ready))):
                # One by one: a stop in the middle finds the others where they were.
                if self._ready:
                    await self.release(self._ready.pop(0))


def is_open(connection: Connection) -> bool:
    """asyncpg detaches the proxy of a connection that broke: then it answers nothing."""
    with suppress(asyncpg.InterfaceError):
        return not connection.is_closed()
    return False
