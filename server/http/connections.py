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
from http import HTTPStatus
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from tornado.httputil import HTTPHeaders, HTTPMessageDelegate, HTTPServerRequest, RequestStartLine

from server.http.answering import Exchange
from server.http.balance import Balance
from server.http.closings import Closings, Reason
from server.http.eviction import SETTLED_SECONDS, Group, Progress, decay_over
from server.http.host import Peer
from server.http.http1 import Connection
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

FULL_SECONDS = 0.05
"""How long new connections wait with the system where there is no room for them, until it is tried again."""

LACK_SECONDS = 5.0
"""There is at most one line in so many seconds about a system that lets no more files be opened."""

LATE_PARTS = 4
"""What clients have not taken is counted whenever they were sent a fourth of the limit."""

LEAST_TAKEN_BYTES = 16_384
"""Of an answer a client has to take as much in the time that it has to take anything."""

CLOSING_SECONDS = 2.0
"""How long the last bytes of answers are waited for when all connections are closed."""

log = logging.getLogger("server")


FindHandler = Callable[[HTTPServerRequest], HTTPMessageDelegate]
OnRefused = Callable[[HTTPStatus, str, float], None]


class Member(Progress):
    """A connection as the server has it. taken_bytes, taken_at: what its client had taken of answers when it had last
    taken enough."""

    __slots__ = ("connection", "taken_at", "taken_bytes")

    connection: Connection

    def __init__(self, connection: Connection, now: float) -> None:
        super().__init__(connection, connection.peer.remote_ip, now)
        self.taken_bytes = 0
        self.taken_at = now

    @property
    def idle_at(self) -> float:
        """Since when its client has taken nothing; not before its answer began."""
        return max(self.taken_at, self.connection.full_at)


class Server:
    """Answers with the handlers that `find_handler` gives. Where it holds as many connections as it may, a new one
    takes the place of the one with the least progress. Where all of them are at work, new ones wait with the system,
    and other workers may take them.

    head_bytes: the longest request line with headers. is_ending, spare: as `server.http.http1.Host` has them.
    addresses, is_loopback: as `server.http.request.Listener` has them.
    """

    def __init__(
        self,
        find_handler: FindHandler,
        make_request: MakeRequest = Request,
        limits: ConnectionLimits = ConnectionLimits(),  # noqa: B008 - it is frozen
        head_bytes: int = HEAD_BYTES,
        balance: Balance | None = None,
        is_trusted: Callable[[str], bool] = lambda address: address == UNIX,
        closings: Closings | None = None,
        on_refused: OnRefused = lambda _, __, ___: None,
    ) -> None:
        """is_trusted: whether the limit for each client does not hold for that address. on_refused: told of each bare
        status, with the client's address and the seconds since the request began."""
        self._balance = balance
        self.head_bytes = head_bytes
        self.is_ending = False
        self.spare = 0
        self._excess = 0
        self._find_handler = find_handler
        self._make_request = make_request
        self._limits = limits
        self._is_trusted = is_trusted
        self._on_refused = on_refused
        self._closings = Closings() if closings is None else closings
        self._all: Group[Member] = Group()
        self._of_clients: dict[str, Group[Member]] = {}
        self._looked_at = time.monotonic()
        self._late_bytes = 0
        self._lacked_at = float("-inf")
        self._sockets: list[socket.socket] = []
        self.addresses: frozenset[IPv4Address | IPv6Address] = frozenset()
        self.is_loopback = False
        self._tasks: set[asyncio.Task[object]] = set()
        self._is_full = False
        self._closed = asyncio.Event()

    # connections come

    def add_sockets(self, sockets: Iterable[socket.socket]) -> None:
        """Takes connections of listening sockets, which are closed by `stop`. To be called in the loop."""
        self._sockets += sockets
        addresses = [_address(one) for one in self._sockets]
        self.addresses = frozenset([one for one in addresses if one is not None])
        self.is_loopback = all(one is not None and one.is_loopback for one in addresses)
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
            now = time.monotonic()
            is_full = len(self._all) >= self._limits.connections
            # Looked for before: a connection is not taken that there is no place for.
            least = self._all.least(now) if is_full else None
            if is_full and least is None:
                self._pause()
                return
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                self._lack(error, now)
                return
            if self._take(accepted, address, least, now):
                # Those that were just taken have to come to their first bytes.
                return

    def _take(self, accepted: socket.socket, address: Any, least: Member | None, now: float) -> bool:
        """Whether another connection went for it. least: the one that goes where its client has none to give."""
        is_unix = accepted.family == socket.AF_UNIX
        peer = Peer(UNIX if is_unix else address[0], address, accepted.family)
        client = peer.remote_ip
        if self._is_over(client):
            own = self._of_clients[client].least(now)
            if own is None:
                accepted.close()
                self._closings.note(Reason.CLIENT, client)
                return False
            self._evict(own, Reason.CLIENT)
            least = own
        elif least is not None:
            self._evict(least, Reason.CONNECTIONS)
        accepted.setblocking(False)
        connection = Connection(self, peer)
        self._join(Member(connection, now))
        loop = asyncio.get_running_loop()
        task = loop.create_task(loop.connect_accepted_socket(lambda: connection, accepted))
        self._tasks.add(task)
        task.add_done_callback(partial(self._taken, accepted, connection))
        return least is not None

    def _taken(self, accepted: socket.socket, connection: Connection, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or task.exception() is not None:
            accepted.close()
            self.leaves(connection)

    def _is_over(self, client: str) -> bool:
        """Whether it has all that one client may have."""
        own = self._of_clients.get(client)
        return own is not None and len(own) >= self._limits.of_client and not self._is_trusted(client)

    def _lack(self, error: OSError, now: float) -> None:
        """The system has no more descriptors, or no memory for one."""
        least = self._all.least(now)
        if least is not None and now - least.joined_at > SETTLED_SECONDS:
            self._evict(least, Reason.DESCRIPTORS)
        elif now - self._lacked_at > LACK_SECONDS:
            self._lacked_at = now
            log.error("no more connections for now: %s", error.strerror)
        self._pause()

    def _pause(self) -> None:
        self._listen_no_more()
        asyncio.get_running_loop().call_later(FULL_SECONDS, self._try_again)

    def _try_again(self) -> None:
        if self._is_full:
            self._listen()

    # what connections ask

    def _join(self, one: Member) -> None:
        self._all.add(one)
        self._of_clients.setdefault(one.client, Group()).add(one)
        self._tell_count()

    def _tell_count(self) -> None:
        if self._balance is not None:
            self._balance.put(len(self._all))

    def leaves(self, connection: Connection) -> None:
        self._forget(connection)
        self._closed.set()
        if self._is_full and len(self._all) < self._limits.connections:
            self._listen()

    def _forget(self, connection: Connection) -> None:
        client = connection.peer.remote_ip
        own = self._of_clients.get(client)
        self._all.discard(connection)
        if own is not None:
            own.discard(connection)
            if not own:
                del self._of_clients[client]
        self._tell_count()

    def route(self, exchange: Exchange, line: RequestStartLine, headers: HTTPHeaders) -> HTTPMessageDelegate:
        """Raises HTTPInputError."""
        request = self._make_request(exchange, self, line, headers)
        request.began_at, request.has_body = exchange.began_at, exchange.has_body
        request.head_bytes = exchange.head_bytes
        return self._find_handler(request)

    def writes_late(self, size: int) -> None:
        """Some of these bytes wait for a client that is slower than they are. All that wait are counted when there may
        be too many: until the next look, fast answers could take any memory."""
        self._late_bytes += size
        if self._late_bytes * LATE_PARTS > self._limits.unread_bytes:
            self._late_bytes, now = 0, time.monotonic()
            readers = [(one, one.connection.unread_bytes) for one in self._all]
            unread = sum([self._look_at_reader(one, size, now) for one, size in readers if size])
            self._free(unread, now)

    def refused(self, connection: Connection, status: HTTPStatus, seconds: float) -> None:
        self._on_refused(status, connection.peer.remote_ip, seconds)

    # connections go

    @property
    def connections(self) -> int:
        return len(self._all)

    def end_after_answers(self) -> None:
        """The next answer of each connection is its last, and says so."""
        self.is_ending = True

    async def last_connection(self) -> None:
        """Waits until there is none left."""
        while len(self._all):
            self._closed.clear()
            await self._closed.wait()

    async def close_all_connections(self) -> None:
        """Returns when they are; what was written has been sent, or was not read in `CLOSING_SECONDS`."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        for one in self._all:
            one.connection.close()
        try:
            async with asyncio.timeout(CLOSING_SECONDS):
                await self.last_connection()
        except TimeoutError:
            for one in self._all:
                one.connection.reset()
            await self.last_connection()
        self._closings.tell(is_last=True)

    async def check_timeouts(self) -> None:
        """To be called every now and then: ends the connections that are over a limit."""
        self._spare_some()
        now = time.monotonic()
        before, self._looked_at = self._looked_at, now
        decay, unread, heads = decay_over(now - before), 0, 0
        for number, one in enumerate(self._all, 1):
            one.look(decay)
            unread += self._look_at(one, time.monotonic())
            heads += one.connection.head_bytes
            if number % LOOKED_AT_ONCE == 0:
                await asyncio.sleep(0)
        if unread > self._limits.unread_bytes:
            self._free(unread, time.monotonic())
        if heads > self._limits.unread_bytes:
            self._free_heads(heads - self._limits.unread_bytes)
        self._closings.tell()

    def _spare_some(self) -> None:
        """A worker that has just come has none of the clients that stay connected. Where this one has had more than its
        share for two looks, some of its next answers are the last of their connections, and their clients connect anew:
        that costs them a millisecond, and loses nothing."""
        before, self._excess = self._excess, 0 if self._balance is None else self._balance.excess
        self.spare = -(-min(before, self._excess) // SPARED)

    def _look_at(self, one: Member, now: float) -> int:
        """Gives the bytes that its client has not taken."""
        connection = one.connection
        unread = connection.unread_bytes
        if unread:
            return self._look_at_reader(one, unread, now)
        one.taken_bytes, one.taken_at = connection.written_bytes, now
        if connection.head_since is not None:
            if now - connection.head_since > self._limits.head_seconds:
                self._closings.note(Reason.LATE_HEAD, one.client)
                connection.refuse_late_head()
        elif connection.waits_since is not None and now - connection.waits_since > self._limits.idle_seconds:
            self._closings.note(Reason.IDLE, one.client)
            connection.close()
        return 0

    def _look_at_reader(self, one: Member, unread: int, now: float) -> int:
        taken = one.connection.written_bytes - unread
        if taken - one.taken_bytes >= LEAST_TAKEN_BYTES:
            one.taken_bytes, one.taken_at = taken, now
        elif now - one.taken_at > self._limits.write_seconds:
            self._closings.note(Reason.UNREAD, one.client)
            one.connection.reset()
            return 0
        return unread

    def _evict(self, one: Member, reason: Reason) -> None:
        """Its place is free at once."""
        connection = one.connection
        self._closings.note(reason, one.client)
        self._forget(connection)
        if connection.unread_bytes:
            connection.reset()
        else:
            connection.close()

    def _free(self, unread: int, now: float) -> None:
        """Ends the connections whose clients have not read for longest, until the others are within the limit. Clients
        that have read lately are spared up to twice the limit."""
        limit = self._limits.unread_bytes
        for one in sorted(self._all, key=lambda one: one.idle_at):
            is_settled = now - one.idle_at > SETTLED_SECONDS
            if unread <= (limit if is_settled else 2 * limit):
                return
            own = one.connection.unread_bytes
            if own >= LEAST_TAKEN_BYTES:
                unread -= own
                self._evict(one, Reason.MEMORY)

    def _free_heads(self, excess: int) -> None:
        """Ends the connections that have sent most of a head that is not all there."""
        for one in sorted(self._all, key=lambda one: one.connection.head_bytes, reverse=True):
            if excess <= 0:
                return
            excess -= one.connection.head_bytes
            self._evict(one, Reason.MEMORY)


def _address(one: socket.socket) -> IPv4Address | IPv6Address | None:
    """That a socket listens on; None of a Unix socket."""
    if one.family == socket.AF_UNIX:
        return None
    return ip_address(one.getsockname()[0].partition("%")[0])
