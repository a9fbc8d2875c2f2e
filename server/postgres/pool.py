"""The connections of one process. What comes in: asyncpg's pool. What goes out: connections, which may lie ready
between two requests.

To take a connection from asyncpg's pool and to bring it back costs 17 microseconds, as much as a short query.
So one that was left clean stays here for the next request, or goes to the request whose turn it is. When one of them
broke, all that were opened before are suspected: those that lie ready go, the others when they come back. Nothing here
knows a statement or an error of ours.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

import asyncpg
import msgspec
from asyncpg import exceptions as pg

from server.observing.supervision import Supervised
from server.observing.watch import Watch
from server.postgres.connection import Connection, give_up, is_open
from server.postgres.shares import Shares

UNUSED_CONNECTION_SECONDS = 300
"""How long a connection lies ready at least that nobody needs, and then in asyncpg's pool."""

LOOKED_AFTER = 1000
"""How often a connection is kept before asyncpg sees it, which replaces one that has had 50,000 queries."""

GROW_AGAIN_SECONDS = 1.0
"""After PostgreSQL would not take another connection, how long the pool makes do with those that it has."""

BROKEN = (OSError, pg.PostgresError, pg.InterfaceError, pg.InternalClientError)
"""What asyncpg raises of a connection."""


def _give_up_waiting(turn: asyncio.Future[Any]) -> None:
    if not turn.done():
        turn.set_exception(TimeoutError())


class NotOpened(TimeoutError):
    """There was room for a connection, and none could be opened in time."""


class ShareHeld(TimeoutError):
    """The client held as many connections as it may for all the time that it waited."""


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
    """The connections of one process, of which each client may hold its share.

    Where `lends`, a client whose requests are all short may hold all but one.

    places: how many connections more may be asked of asyncpg. turns: the requests that wait for one, or for a place.
    trusted: the connections that are open and not given up. opening: how many are being opened.

    What is free is never kept from a request that may have it: each that is given back is handed on at once.
    """

    def __init__(
        self, pool: asyncpg.Pool[Any], watch: Watch, most_of_client: int | None = None, *, lends: bool = False
    ) -> None:
        """most_of_client: how many connections one client may hold; None for all."""
        self._pool = pool
        self._watch = watch
        self._places = pool.get_max_size()
        self._ready: list[Connection] = []
        self._fewest_ready = 0
        self._trusted: set[Connection] = set()
        self._opening = 0
        self._grows_at = 0.0
        self._renewed_at = 0.0
        self._turns = Shares(most_of_client or pool.get_max_size(), pool.get_max_size() - 1 if lends else 0)
        # Where one client may have all, a client that waits is told that all are in use.
        self._has_shares = most_of_client is not None and most_of_client < pool.get_max_size()
        self._kept = 0
        self._is_closing = False
        self._trimming: Supervised | None = None

    def figures(self) -> PoolFigures:
        pool = self._pool
        idle = pool.get_idle_size() + sum([is_open(connection) for connection in self._ready])
        return PoolFigures(pool.get_max_size(), pool.get_size() - idle, idle, len(self._turns))

    async def acquire(self, timeout_seconds: float, client: str | None = None) -> Connection:
        """A connection, which counts for the client until `keep` or `release`.

        Raises ShareHeld, TimeoutError, and what asyncpg raises where there is none to be had.
        """
        if self._ready and self._turns.take(client):
            try:
                while self._ready:
                    connection = self._ready.pop()
                    if len(self._ready) < self._fewest_ready:
                        self._fewest_ready = len(self._ready)
                    if is_open(connection):
                        self._turns.use(client, connection)
                        return connection
                    await self.release(connection)
            except BaseException:
                self._give_back(client)
                raise
            self._give_back(client)
        connection = await self._acquire(time.monotonic() + timeout_seconds, client)
        self._turns.use(client, connection)
        return connection

    async def _acquire(self, end: float, client: str | None) -> Connection:
        while True:
            if self._places and self._may_grow() and self._turns.take(client):
                self._places -= 1
            elif (given := await self._turn(end - time.monotonic(), client)) is not None:
                if is_open(given):
                    return given
                # It leaves its place to this request.
                try:
                    await self._release(given)
                except BaseException:
                    self._give_place(client)
                    raise
            try:
                return await self._open(end - time.monotonic(), client)
            except BROKEN:
                if not (self._trusted or self._opening) or time.monotonic() >= end:
                    raise
            # The others serve on, or are about to.

    def _may_grow(self) -> bool:
        return not (self._trusted or self._opening) or time.monotonic() >= self._grows_at

    async def _open(self, timeout_seconds: float, client: str | None) -> Connection:
        self._opening += 1
        try:
            made: Any = await self._pool.acquire(timeout=max(0.001, timeout_seconds))
        except BaseException as error:
            self._opening -= 1
            if isinstance(error, BROKEN) and not isinstance(error, TimeoutError):
                self._grows_at = time.monotonic() + GROW_AGAIN_SECONDS
                asyncio.get_running_loop().call_later(GROW_AGAIN_SECONDS, self._hand_on)
            self._give_place(client)
            if isinstance(error, TimeoutError):
                raise NotOpened from error
            raise
        self._opening -= 1
        self._trusted.add(made)
        # PostgreSQL takes more: so may the next of those who wait, each of whom lets another one in.
        self._hand_on()
        connection: Connection = made
        return connection

    def _hand_on(self) -> None:
        """Gives a connection that is ready, or a place, to the next request that may have it."""
        is_ready = bool(self._ready)
        if not is_ready and not (self._places and self._may_grow()):
            return
        turn = self._turns.next()
        if turn is None:
            return
        if is_ready:
            turn.set_result(self._ready.pop())
        else:
            self._places -= 1
            turn.set_result(None)

    async def _turn(self, timeout_seconds: float, client: str | None) -> Connection | None:
        """A connection, or None for a place; the client holds it."""
        turn = self._turns.wait(client)
        # asyncio.timeout costs several times as much.
        timer = asyncio.get_running_loop().call_later(max(0.0, timeout_seconds), _give_up_waiting, turn)
        try:
            given: Connection | None = await turn
        except BaseException as error:
            self._turns.leave(client, turn)
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                # It came in the moment in which nobody waited any more.
                if turn.result() is None:
                    self._give_place(client)
                else:
                    await self.keep(turn.result(), client)
            if isinstance(error, TimeoutError) and self._has_shares and not self._turns.may_take(client):
                raise ShareHeld from error
            raise
        finally:
            timer.cancel()
        return given

    def _give_place(self, client: str | None, connection: Connection | None = None) -> None:
        self._places += 1
        self._give_back(client, connection)

    def _give_back(self, client: str | None, connection: Connection | None = None) -> None:
        self._turns.give_back(client, connection)
        if self._turns.waiting:
            self._hand_on()

    async def keep(self, connection: Connection, client: str | None = None) -> None:
        """Takes back a connection whose work came to its end: there is nothing to reset."""
        self._kept += 1
        if self._is_closing or self._kept % LOOKED_AFTER == 0:
            await self.release(connection, client)
            return
        self._ready.append(connection)
        self._turns.give_back(client, connection)
        if self._turns.waiting:
            self._hand_on()
        if self._trimming is None:
            self._trimming = self._watch.supervise("pool", self._trim)

    async def release(self, connection: Connection, client: str | None = None) -> None:
        """Takes back a connection in whatever state: asyncpg awaits what is cancelled, and resets what was begun."""
        try:
            await self._release(connection)
        finally:
            self._give_place(client, connection)

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
