"""The connections of one worker's clients: which are taken, which are ended because they take too long or too much.
What comes in: listening sockets, limits. What goes out: connections at work, each request with its handler.

It must not know: how requests and answers look, the database. One look at all connections every now and then costs less
than a timer for each wait, which is a twentieth of a small request.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from tornado.httputil import HTTPHeaders, HTTPMessageDelegate, HTTPServerRequest, RequestStartLine

from server.http.answering import Exchange
from server.http.balance import Balance
from server.http.http1 import Connection, Peer
from server.http.request import UNIX, MakeRequest, Request
from server.limits import ConnectionLimits

HEAD_BYTES = 65_536
ACCEPTED_AT_ONCE = 128
"""Connections that are taken in one turn of the loop."""

YIELD_SECONDS, TAKEN_AFTERWARDS = 0.001, 1
"""How long a worker that has more connections than another leaves new ones to that one, and how many it takes then."""

SPARED = 4
"""Of so many connections beyond its share a worker gives one away between two looks."""

LOOKED_AT_ONCE = 500
"""Connections that are looked at in one turn of the loop, which takes less than 0.2 ms."""

SETTLED_SECONDS = 1.0
"""What is younger is not closed to make room: its request may be on its way, or its client reading."""

LEAST_TAKEN_BYTES = 16_384
"""Of an answer a client has to take as much in the time that it has to take anything."""

CLOSING_SECONDS = 2.0
"""How long the last bytes of answers are waited for when all connections are closed."""

log = logging.getLogger("server")


FindHandler = Callable[[HTTPServerRequest], HTTPMessageDelegate]


class Server:
    """Answers with the handlers that `find_handler` gives. Where it holds as many connections as it may, it closes one
    that waits for a request, or takes no more until one has ended: then they wait with the system, and other workers
    may take them.

    head_bytes: the longest request line with headers. waiting, heads, is_ending, spare: as
    `server.http.http1.Host` has them.
    """

    def __init__(
        self,
        find_handler: FindHandler,
        make_request: MakeRequest = Request,
        limits: ConnectionLimits = ConnectionLimits(),  # noqa: B008 - it is frozen
        head_bytes: int = HEAD_BYTES,
        balance: Balance | None = None,
    ) -> None:
        self._balance = balance
        self.head_bytes = head_bytes
        self.is_ending = False
        self.spare = 0
        self._excess = 0
        self.waiting: dict[Connection, float] = {}
        self.heads: dict[Connection, float] = {}
        self._find_handler = find_handler
        self._make_request = make_request
        self._limits = limits
        self._connections: set[Connection] = set()
        # Of clients that have not read all: what they had read when, at the last look.
        self._readers: dict[Connection, tuple[int, float]] = {}
        self._joining = 0
        self._sockets: list[socket.socket] = []
        self._tasks: set[asyncio.Task[object]] = set()
        self._is_full = False
        self._closed = asyncio.Event()

    # connections come

    def add_sockets(self, sockets: Iterable[socket.socket]) -> None:
        """Takes connections of listening sockets, which are closed by `stop`. To be called in the loop."""
        self._sockets += sockets
        self._listen()

    def stop(self) -> None:
        """Takes no more connections but those that wait, which nobody else may come to take; what was taken is left as
        it is."""
        was_full = self._is_full
        self._listen_no_more()
        for one in self._sockets:
            if not was_full:
                self._accept_some(one, ACCEPTED_AT_ONCE)
            one.close()
        self._sockets.clear()

    def _listen(self) -> None:
        self._is_full = False
        loop = asyncio.get_running_loop()
        for one in self._sockets:
            one.setblocking(False)
            loop.add_reader(one, self._accept, one)

    def _listen_no_more(self) -> None:
        self._is_full = True
        for one in self._sockets:
            asyncio.get_running_loop().remove_reader(one)

    def _accept(self, listening: socket.socket) -> None:
        if self._balance is None:
            self._accept_some(listening, ACCEPTED_AT_ONCE)
        elif self._balance.is_ahead:
            loop = asyncio.get_running_loop()
            loop.remove_reader(listening)
            loop.call_later(YIELD_SECONDS, self._accept_afterwards, listening)
        else:
            self._accept_some(listening, 1)

    def _accept_afterwards(self, listening: socket.socket) -> None:
        """What others have left. They may be busy, or not there."""
        if listening in self._sockets and not self._is_full:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)
            self._accept_some(listening, TAKEN_AFTERWARDS)

    def _accept_some(self, listening: socket.socket, most: int) -> None:
        for _ in range(most):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                log.error("no more connections for now: %s", error.strerror)
                self._listen_no_more()
                return
            self._take(accepted, address)
            if self._count >= self._limits.connections and not self._make_room():
                self._listen_no_more()
                return

    def _take(self, accepted: socket.socket, address: Any) -> None:
        accepted.setblocking(False)
        is_unix = accepted.family == socket.AF_UNIX
        peer = Peer(UNIX if is_unix else address[0], address, accepted.family)
        loop = asyncio.get_running_loop()
        self._joining += 1
        self._tell_count()
        task = loop.create_task(loop.connect_accepted_socket(partial(Connection, self, peer), accepted))
        self._tasks.add(task)
        task.add_done_callback(partial(self._taken, accepted))

    def _taken(self, accepted: socket.socket, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        self._joining -= 1
        self._tell_count()
        self._closed.set()
        if task.cancelled() or task.exception() is not None:
            accepted.close()

    @property
    def _count(self) -> int:
        return len(self._connections) + self._joining

    # what connections ask

    def _tell_count(self) -> None:
        if self._balance is not None:
            self._balance.put(self._count)

    def joins(self, connection: Connection) -> None:
        self._connections.add(connection)

    def leaves(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self.waiting.pop(connection, None)
        self.heads.pop(connection, None)
        self._readers.pop(connection, None)
        self._tell_count()
        self._closed.set()
        if self._is_full and self._count < self._limits.connections:
            self._listen()

    def route(self, exchange: Exchange, line: RequestStartLine, headers: HTTPHeaders) -> HTTPMessageDelegate:
        """Raises HTTPInputError."""
        request = self._make_request(exchange, self, line, headers)
        request.began_at, request.has_body = exchange.began_at, exchange.has_body
        return self._find_handler(request)

    # connections go

    @property
    def connections(self) -> int:
        return len(self._connections)

    def end_after_answers(self) -> None:
        """The next answer of each connection is its last, and says so."""
        self.is_ending = True

    async def last_connection(self) -> None:
        """Waits until there is none left."""
        while self._count:
            self._closed.clear()
            await self._closed.wait()

    async def close_all_connections(self) -> None:
        """Returns when they are; what was written has been sent, or was not read in `CLOSING_SECONDS`."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        for one in list(self._connections):
            one.close()
        try:
            async with asyncio.timeout(CLOSING_SECONDS):
                await self.last_connection()
        except TimeoutError:
            for one in list(self._connections):
                one.reset()
            await self.last_connection()

    async def look(self) -> None:
        """To be called every now and then: ends the connections that are over a limit."""
        self._spare_some()
        unread = 0
        for number, one in enumerate(list(self._connections), 1):
            unread += self._look_at(one, time.monotonic())
            if number % LOOKED_AT_ONCE == 0:
                await asyncio.sleep(0)
        if unread > self._limits.unread_bytes:
            self._free(unread - self._limits.unread_bytes, time.monotonic() - SETTLED_SECONDS)
        if self._is_full and (self._count < self._limits.connections or self._make_room()):
            self._listen()

    def _spare_some(self) -> None:
        """A worker that has just come has none of the clients that stay connected. Where this one has had more than its
        share for two looks, some of its next answers are the last of their connections, and their clients connect anew:
        that costs them a millisecond, and loses nothing."""
        before, self._excess = self._excess, 0 if self._balance is None else self._balance.excess
        self.spare = -(-min(before, self._excess) // SPARED)

    def _look_at(self, one: Connection, now: float) -> int:
        """Gives the bytes that its client has not taken."""
        unread = one.unread_bytes
        if unread:
            return self._look_at_reader(one, unread, now)
        self._readers.pop(one, None)
        since, head_since = self.waiting.get(one, now), self.heads.get(one, now)
        if now - head_since > self._limits.head_seconds:
            one.refuse_late_head()
        elif head_since == now and now - since > self._limits.idle_seconds:
            one.close()
        return 0

    def _look_at_reader(self, one: Connection, unread: int, now: float) -> int:
        taken = one.written_bytes - unread
        before, at = self._readers.setdefault(one, (taken, now))
        if taken - before >= LEAST_TAKEN_BYTES:
            self._readers[one] = taken, now
        elif now - at > self._limits.write_seconds:
            log.info("a connection is closed whose client does not read")
            one.reset()
            return 0
        return unread

    def _make_room(self) -> bool:
        """Closes the connection that has waited longest; False where none has waited long."""
        one, since = next(iter(self.waiting.items()), (None, 0.0))
        if one is None or time.monotonic() - since < SETTLED_SECONDS:
            return False
        del self.waiting[one]
        one.close()
        return True

    def _free(self, excess: int, before: float) -> None:
        """Ends the connections whose clients have not read for longest, and not since that moment."""
        for one, (_, at) in sorted(self._readers.items(), key=lambda entry: entry[1][1]):
            if at > before or excess <= 0:
                return
            unread = one.unread_bytes
            if unread >= LEAST_TAKEN_BYTES:
                excess -= unread
                log.warning("a connection is closed to have the memory of its answer back")
                one.reset()
