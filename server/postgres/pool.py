"""Implements the connection pool of one process, on top of asyncpg's pool.

To acquire a connection from asyncpg's pool and release it takes 17 microseconds, as much as a short query. So a clean
connection is kept here for the next request, or handed to the request whose turn it is. When a connection breaks, all
connections opened before are retired: idle ones at once, the others on their release.

It must not know: statements, the server's errors.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

import asyncpg
import msgspec
from asyncpg import exceptions as pg

from server.limits.per_worker import has_spare_connection, max_connections_per_client
from server.observing.supervision import Supervised
from server.observing.telemetry import Telemetry
from server.postgres.connection import PostgresConnection
from server.postgres.sharing.shares import Shares, Turn
from server.postgres.sharing.turn_timeouts import TurnTimeouts
from server.settings import Settings

UNUSED_CONNECTION_SECONDS = 300
"""How long an unused connection is kept here at least, and then again in asyncpg's pool."""

KEPT_TIMES = 1000
"""After so many `keep` calls, one connection is released to asyncpg, which replaces connections after 50,000
queries."""

GROW_AGAIN_SECONDS = 1.0
"""How long the pool opens no connection after PostgreSQL has refused one."""

BROKEN = (OSError, pg.PostgresError, pg.InterfaceError, pg.InternalClientError)
"""The errors of a broken connection."""


class NotOpened(TimeoutError):
    """The pool was not full, but no connection could be opened in time."""


class ConnectionShareUsed(TimeoutError):
    """The client held its full share of connections for the whole time that it waited."""


class PoolFigures(msgspec.Struct, frozen=True):
    """The state of a pool. size: how many connections it may open. used, idle: open connections. waiting: requests that
    wait for one."""

    size: int
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


def shared_pool(pool: asyncpg.Pool[Any], settings: Settings, telemetry: Telemetry) -> Pool:
    """Return a pool that clients share by the settings."""
    has_spare = has_spare_connection(settings)
    share = max_connections_per_client(settings, pool.get_max_size() - has_spare)
    return Pool(pool, telemetry, share, has_spare=has_spare)


class Pool:
    """The connections of one process. Each client may hold its share of them.

    With a spare connection, a client whose requests are all short borrows the shares of others. When it has all, the
    spare one is opened for another client.

    _places: how many more connections asyncpg may open or hand out. -1 when the spare one is open too.
    _turns: the requests that wait for a connection or a place.
    _current: the open connections that are not retired.
    _proxies: for each open connection, what asyncpg's pool has given and takes back. A call through it takes half a
        microsecond longer, and a read makes five.
    _opening: how many connections are being opened.
    has_handed_on: whether requests waited when the last connection was kept.

    No request waits while there is a connection for it: a released connection is handed to the next request at once.
    """

    def __init__(
        self,
        pool: asyncpg.Pool[Any],
        telemetry: Telemetry,
        max_per_client: int | None = None,
        *,
        has_spare: bool = False,
    ) -> None:
        """max_per_client: how many connections one client may hold; None for all. has_spare: whether one of asyncpg's
        connections is spare."""
        size = pool.get_max_size() - has_spare
        self._pool = pool
        self._telemetry = telemetry
        self._places = size
        self._min_places = -1 if has_spare else 0
        self._ready: list[PostgresConnection] = []
        self._fewest_ready = 0
        self._current: set[PostgresConnection] = set()
        self._proxies: dict[PostgresConnection, Any] = {}
        self._opening = 0
        self._grows_at = 0.0
        self._retired_at = 0.0
        self._turns = Shares(max_per_client or size, size if has_spare else 0)
        # If one client may have all connections, waiting means that all are in use, and not that its share is used.
        self._has_shares = max_per_client is not None and max_per_client < size
        self._timeouts = TurnTimeouts()
        self._kept = 0
        self._is_closing = False
        self.has_handed_on = False
        self._trimming: Supervised | None = None

    def figures(self) -> PoolFigures:
        """Return the present state of the pool."""
        pool = self._pool
        idle = pool.get_idle_size() + sum([not connection.is_closed() for connection in self._ready])
        return PoolFigures(pool.get_max_size(), pool.get_size() - idle, idle, len(self._turns))

    async def acquire(self, timeout_seconds: float, client: str | None = None) -> PostgresConnection:
        """Return a connection, which counts for the client until `keep` or `release`.

        Raises ConnectionShareUsed, TimeoutError, and asyncpg's errors if no connection can be opened.
        """
        if self._ready and self._turns.take(client):
            try:
                while self._ready:
                    connection = self._ready.pop()
                    if len(self._ready) < self._fewest_ready:
                        self._fewest_ready = len(self._ready)
                    if not connection.is_closed():
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

    async def _acquire(self, end: float, client: str | None) -> PostgresConnection:
        while True:
            if self._may_open(client) and self._turns.take(client):
                self._places -= 1
            elif (given := await self._wait_turn(end - time.monotonic(), client)) is not None:
                if not given.is_closed():
                    return given
                # The connection is closed, and this request opens another in its place.
                try:
                    await self._release(given)
                except BaseException:
                    self._give_place(client)
                    raise
            try:
                return await self._open(end - time.monotonic(), client)
            except BROKEN:
                if not (self._current or self._opening) or time.monotonic() >= end:
                    raise
            # Other connections are open or being opened: wait for one of them.

    def _may_open(self, client: str | None) -> bool:
        """Return whether one more connection may be opened for the client. The spare one is for a client that holds
        none, as long as another client has borrowed."""
        if self._places > 0:
            return self._may_grow()
        return self._has_spare_place and self._turns.is_crowded_out(client) and self._may_grow()

    @property
    def _has_spare_place(self) -> bool:
        return self._places == 0 and self._min_places < 0

    def _may_grow(self) -> bool:
        return not (self._current or self._opening) or time.monotonic() >= self._grows_at

    async def _open(self, timeout_seconds: float, client: str | None) -> PostgresConnection:
        self._opening += 1
        try:
            proxy: Any = await self._pool.acquire(timeout=max(0.001, timeout_seconds))
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
        connection: PostgresConnection = proxy._con
        self._proxies[connection] = proxy
        self._current.add(connection)
        # PostgreSQL accepts connections, so the next waiting request may open one too, and so on.
        self._hand_on()
        return connection

    def _hand_on(self) -> None:
        """Hand an idle connection or a place to the next request that may have it, and the spare place to a request
        whose client holds none because others have borrowed."""
        is_ready = bool(self._ready)
        if is_ready or (self._places > 0 and self._may_grow()):
            turn = self._turns.next()
            if turn is not None and is_ready:
                turn.set_result(self._ready.pop())
            elif turn is not None:
                self._hand_place(turn)
        # The client of this turn may have borrowed, so that another client holds none.
        if self._has_spare_place and self._turns.waiting and self._may_grow():
            turn = self._turns.next(of_crowded_out=True)
            if turn is not None:
                self._hand_place(turn)

    def _hand_place(self, turn: Turn) -> None:
        self._places -= 1
        turn.set_result(None)

    async def _wait_turn(self, timeout_seconds: float, client: str | None) -> PostgresConnection | None:
        """Wait for a turn. Returns a connection, or None for a place. The client then holds it."""
        turn = self._turns.wait(client)
        self._timeouts.add(turn, timeout_seconds)
        try:
            given: PostgresConnection | None = await turn
        except BaseException as error:
            self._turns.leave(client, turn)
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                # The turn came at the same moment in which the wait ended.
                if turn.result() is None:
                    self._give_place(client)
                else:
                    await self.keep(turn.result(), client)
            if isinstance(error, TimeoutError) and self._has_shares and not self._turns.may_take(client):
                raise ConnectionShareUsed from error
            raise
        return given

    def _give_place(self, client: str | None, connection: PostgresConnection | None = None) -> None:
        self._places += 1
        self._give_back(client, connection)

    def _give_back(self, client: str | None, connection: PostgresConnection | None = None) -> None:
        self._turns.give_back(client, connection)
        if self._turns.waiting:
            self._hand_on()

    async def keep(self, connection: PostgresConnection, client: str | None = None) -> None:
        """Take back a connection whose work ended normally: there is nothing to reset."""
        self._kept += 1
        if self._is_closing or self._kept % KEPT_TIMES == 0:
            await self.release(connection, client)
            return
        self._ready.append(connection)
        self._turns.give_back(client, connection)
        self.has_handed_on = bool(self._turns.waiting)
        if self.has_handed_on:
            self._hand_on()
        if self._trimming is None:
            self._trimming = self._telemetry.supervise("pool", self._trim)

    async def release(self, connection: PostgresConnection, client: str | None = None) -> None:
        """Take back a connection in any state. asyncpg awaits a cancelled statement, and resets the session."""
        try:
            await self._release(connection)
        finally:
            self._give_place(client, connection)

    async def _release(self, connection: PostgresConnection) -> None:
        self._current.discard(connection)
        if connection.must_close:
            connection.terminate()
        # asyncpg closes a connection that cannot be reset. What was committed on it is not affected.
        with suppress(*BROKEN):
            await self._pool.release(self._proxies.pop(connection))

    async def retire_all(self, broken: PostgresConnection, pause_seconds: float = 0.0) -> bool:
        """Retire all open connections because one in use has broken. Does nothing, and returns false, if that one was
        retired before, or if the last time is less than `pause_seconds` ago."""
        now = time.monotonic()
        if broken not in self._current or now - self._retired_at < pause_seconds:
            return False
        self._retired_at = now
        for connection in self._current:
            connection.retire()
        self._current.clear()
        # Those that are idle in asyncpg's pool.
        await self._pool.expire_connections()
        ready, self._ready = self._ready, []
        for connection in ready:
            await self.release(connection)
        return True

    async def close(self) -> None:
        """Wait for connections in use, and close all."""
        self._is_closing = True
        self._stop_trimming()
        ready, self._ready = self._ready, []
        for connection in ready:
            await self.release(connection)
        await self._pool.close()

    def terminate(self) -> None:
        """Close all connections at once."""
        self._stop_trimming()
        self._pool.terminate()

    def _stop_trimming(self) -> None:
        if self._trimming is not None:
            self._trimming.stop()

    async def _trim(self) -> None:
        """Periodically releases as many connections as were idle for the whole period. asyncpg's pool closes them."""
        while True:
            self._fewest_ready = len(self._ready)
            await asyncio.sleep(UNUSED_CONNECTION_SECONDS)
            for _ in range(min(self._fewest_ready, len(self._ready))):
                # One by one, so that a stop in the middle finds the others in the list.
                if self._ready:
                    await self.release(self._ready.pop(0))
