"""The connections of one process. What comes in: asyncpg's pool. What goes out: connections, which may lie ready
between two requests.

To take a connection from asyncpg's pool and to bring it back costs 17 microseconds, as much as a short query.
So one that was left clean stays here for the next request, or goes to who has waited longest. When one of them broke,
all that were opened before are suspected: those that lie ready go, the others when they come back. Nothing here knows a
statement or an error of ours.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import suppress
from typing import Any

import asyncpg
import msgspec
from asyncpg import exceptions as pg

from server.observing.supervision import Supervised
from server.observing.watch import Watch
from server.postgres.connection import Connection, give_up, is_open

UNUSED_CONNECTION_SECONDS = 300
"""How long a connection lies ready at least that nobody needs, and then in asyncpg's pool."""

LOOKED_AFTER = 1000
"""How often a connection is kept before asyncpg sees it, which replaces one that has had 50,000 queries."""

GROW_AGAIN_SECONDS = 1.0
"""After PostgreSQL would not take another connection, how long the pool makes do with those that it has."""


BROKEN = (OSError, pg.PostgresError, pg.InterfaceError, pg.InternalClientError)
"""What asyncpg raises of a connection."""


class NotOpened(TimeoutError):
    """There was room for a connection, and none could be opened in time."""


class PoolFigures(msgspec.Struct, frozen=True):
    """used, idle: connections that are open. waiting: those who wait for one."""

    most: int
    used: int
    idle: int
    waiting: int

    @property
    def is_open(self) -> bool:
        """Whether there is any connection."""
        return self.used + self.idle > 0

    @property
    def is_busy(self) -> bool:
        """Whether all are in use and requests wait."""
        return self.waiting > 0 and self.idle == 0


class Pool:
    """places: how many connections more may be asked of asyncpg. turns: those who wait for one, or for a place.
    trusted: the connections that are open and not given up. opening: how many are being opened."""

    def __init__(self, pool: asyncpg.Pool[Any], watch: Watch) -> None:
        self._pool = pool
        self._watch = watch
        self._places = pool.get_max_size()
        self._ready: list[Connection] = []
        self._fewest_ready = 0
        self._trusted: set[Connection] = set()
        self._opening = 0
        self._grows_at = 0.0
        self._renewed_at = 0.0
        self._turns: deque[asyncio.Future[Connection | None]] = deque()
        self._kept = 0
        self._is_closing = False
        self._trimming: Supervised | None = None

    def figures(self) -> PoolFigures:
        pool = self._pool
        idle = pool.get_idle_size() + sum([is_open(connection) for connection in self._ready])
        waiting = sum([not turn.done() for turn in self._turns])
        return PoolFigures(pool.get_max_size(), pool.get_size() - idle, idle, waiting)

    async def acquire(self, timeout_seconds: float) -> Connection:
        """Raises TimeoutError, and what asyncpg raises where there is none to be had."""
        while self._ready:
            connection = self._ready.pop()
            self._fewest_ready = min(self._fewest_ready, len(self._ready))
            if is_open(connection):
                return connection
            await self.release(connection)
        return await self._acquire(time.monotonic() + timeout_seconds)

    async def _acquire(self, end: float) -> Connection:
        while True:
            if self._places and self._may_grow():
                self._places -= 1
            elif (given := await self._turn(end - time.monotonic())) is not None:
                if is_open(given):
                    return given
                # Its place is whose turn it was.
                try:
                    await self._release(given)
                except BaseException:
                    self._give_place()
                    raise
            try:
                return await self._open(end - time.monotonic())
            except BROKEN:
                if not (self._trusted or self._opening) or time.monotonic() >= end:
                    raise
            # The others serve on, or are about to.

    def _may_grow(self) -> bool:
        return not (self._trusted or self._opening) or time.monotonic() >= self._grows_at

    async def _open(self, timeout_seconds: float) -> Connection:
        self._opening += 1
        try:
            made: Any = await self._pool.acquire(timeout=max(0.001, timeout_seconds))
        except BaseException as error:
            self._opening -= 1
            if isinstance(error, BROKEN) and not isinstance(error, TimeoutError):
                self._grows_at = time.monotonic() + GROW_AGAIN_SECONDS
                asyncio.get_running_loop().call_later(GROW_AGAIN_SECONDS, self._grow)
            self._give_place()
            if isinstance(error, TimeoutError):
                raise NotOpened from error
            raise
        self._opening -= 1
        self._trusted.add(made)
        # PostgreSQL takes more: so may the next of those who wait, each of whom lets another one in.
        self._grow()
        connection: Connection = made
        return connection

    def _grow(self) -> None:
        """One of those who wait tries again."""
        turn = self._next_turn() if self._places and self._may_grow() else None
        if turn is not None:
            self._places -= 1
            turn.set_result(None)

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
        turn = self._next_turn() if self._may_grow() else None
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
                self._trimming = self._watch.supervise("pool", self._trim)

    async def release(self, connection: Connection) -> None:
        """Takes back a connection in whatever state: asyncpg awaits what is cancelled, and resets what was begun."""
        try:
            await self._release(connection)
        finally:
            self._give_place()

    async def _release(self, connection: Connection) -> None:
        self._trusted.discard(connection)
        # asyncpg detaches the proxy of a connection that broke.
        if getattr(connection, "is_spoilt", False):
            with suppress(asyncpg.InterfaceError):
                connection.terminate()
        # One that cannot be reset, or was closed just now, is asyncpg's to close; what was done with it stands.
        with suppress(*BROKEN):
            await self._pool.release(connection)  # type: ignore[arg-type]  # it is the proxy that acquire gave

    async def renew(self, broken: Connection, pause_seconds: float = 0.0) -> bool:
        """One has broken that is in use: gives up all that are open, unless that one had been given up before.
        pause_seconds: does nothing so soon after the last time."""
        now = time.monotonic()
        if broken not in self._trusted or now - self._renewed_at < pause_seconds:
            return False
        self._renewed_at = now
        for connection in self._trusted:
            give_up(connection)
        self._trusted.clear()
        # Those that are asyncpg's at the moment.
        await self._pool.expire_connections()
        ready, self._ready = self._ready, []
        for connection in ready:
            await self.release(connection)
        return True

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
            self._trimming.stop()

    async def _trim(self) -> None:
        """Gives back, time and again, as many as were ready all the time since: the pool closes them in its turn."""
        while True:
            self._fewest_ready = len(self._ready)
            await asyncio.sleep(UNUSED_CONNECTION_SECONDS)
            for _ in range(min(self._fewest_ready, len(self._ready))):
                # One by one: a stop in the middle finds the others where they were.
                if self._ready:
                    await self.release(self._ready.pop(0))
