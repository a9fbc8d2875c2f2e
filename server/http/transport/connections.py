"""Accepts the connections of one worker, and ends those that exceed a time or memory limit. What comes in: listening
sockets, limits. What goes out: open connections, each request with its handler.

It must not know: how requests and answers look, the database. All connections are checked together periodically: a
timer for each wait would cost a twentieth of a small request."""

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

from tornado.httputil import HTTPMessageDelegate, HTTPServerRequest, RequestStartLine

from server.http.headers import Headers
from server.http.request import UNIX, MakeRequest, Request
from server.http.transport.answering import Exchange
from server.http.transport.closings import Closings, Reason
from server.http.transport.eviction import SETTLED_SECONDS, EvictionGroup, Progress, decay_over
from server.http.transport.http1 import ClientConnection, Peer
from server.limits.balance import Balance
from server.limits.per_worker import ConnectionLimits

HEAD_BYTES = 65_536
ACCEPTED_AT_ONCE = 128
"""How many connections are accepted in one turn of the loop."""

YIELD_SECONDS, ACCEPTED_AFTER_YIELD = 0.001, 1
"""How long a worker that has more connections than another one leaves new connections to the others, and how many it
accepts after that."""

SHED_FRACTION = 4
"""Between two checks, a worker sheds its excess connections divided by this number."""

CHECKED_AT_ONCE = 500
"""How many connections are checked in one turn of the loop, which takes less than 0.2 ms."""

FULL_SECONDS = 0.05
"""How long new connections wait in the listen backlog before the server tries again, when there is no room for them."""

DESCRIPTOR_LOG_SECONDS = 5.0
"""The least time between two log lines about a system that allows no more open files."""

SLOW_WRITE_PARTS = 4
"""The unread bytes of all clients are counted whenever this part of the limit was written to slow clients."""

MIN_READ_BYTES = 16_384
"""How much of an answer a client must read within `write_seconds`."""

CLOSING_SECONDS = 2.0
"""How long the server waits for the last bytes of answers when it closes all connections."""

log = logging.getLogger("server")


FindHandler = Callable[[HTTPServerRequest], HTTPMessageDelegate]
OnRefused = Callable[[HTTPStatus, str, float], None]


class CountedConnection(Progress):
    """A connection with its progress. taken_at: when the client had last read MIN_READ_BYTES more. taken_bytes: how
    much of the answers it had read by then."""

    __slots__ = ("connection", "taken_at", "taken_bytes")

    connection: ClientConnection

    def __init__(self, connection: ClientConnection, now: float) -> None:
        super().__init__(connection, connection.peer.remote_ip, now)
        self.taken_bytes = 0
        self.taken_at = now

    @property
    def idle_at(self) -> float:
        """The time since which the client has not read enough. Not earlier than the time when the write buffer became
        full."""
        return max(self.taken_at, self.connection.blocked_at)


class Server:
    """The HTTP server of one worker. Its requests are answered by the handlers that `find_handler` returns.

    At the limit of connections, a new connection replaces the one with the least progress. If all of them are at work,
    new ones wait in the listen backlog, where other workers may accept them.

    head_bytes, is_ending, shed_next: see `server.http.transport.http1.ConnectionOwner`. addresses, is_loopback: see
    `server.http.request.Listener`.
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
        """is_trusted: whether an address is exempt from the limit for each client. on_refused: called for each bare
        status, with the client's address and the seconds since the request began."""
        self._balance = balance
        self.head_bytes = head_bytes
        self.is_ending = False
        self.shed_next = 0
        self._excess = 0
        self._find_handler = find_handler
        self._make_request = make_request
        self._limits = limits
        self._is_trusted = is_trusted
        self._on_refused = on_refused
        self._closings = Closings() if closings is None else closings
        self._all: EvictionGroup[CountedConnection] = EvictionGroup()
        self._by_client: dict[str, EvictionGroup[CountedConnection]] = {}
        self._checked_at = time.monotonic()
        self._slow_write_bytes = 0
        self._descriptor_logged_at = float("-inf")
        self._sockets: list[socket.socket] = []
        self.addresses: frozenset[IPv4Address | IPv6Address] = frozenset()
        self.is_loopback = False
        self._tasks: set[asyncio.Task[object]] = set()
        self._is_full = False
        self._closed = asyncio.Event()

    # connections come

    def add_sockets(self, sockets: Iterable[socket.socket]) -> None:
        """Start to accept connections on listening sockets. `stop` closes them. Call it in the event loop."""
        self._sockets += sockets
        addresses = [_address(listener) for listener in self._sockets]
        self.addresses = frozenset([address for address in addresses if address is not None])
        self.is_loopback = all(address is not None and address.is_loopback for address in addresses)
        self._listen()

    def stop(self) -> None:
        """Stop listening. Accepts the connections that wait in the backlog first, because there may be nobody else to
        accept them. Open connections are left as they are."""
        was_full = self._is_full
        self._stop_listening()
        for listener in self._sockets:
            if not was_full:
                self._accept_some(listener, ACCEPTED_AT_ONCE)
            listener.close()
        self._sockets.clear()

    def _listen(self) -> None:
        self._is_full = False
        loop = asyncio.get_running_loop()
        for listener in self._sockets:
            listener.setblocking(False)
            loop.add_reader(listener, self._accept, listener)

    def _stop_listening(self) -> None:
        self._is_full = True
        for listener in self._sockets:
            asyncio.get_running_loop().remove_reader(listener)

    def _accept(self, listening: socket.socket) -> None:
        if self._balance is None:
            self._accept_some(listening, ACCEPTED_AT_ONCE)
        elif self._balance.is_ahead:
            loop = asyncio.get_running_loop()
            loop.remove_reader(listening)
            loop.call_later(YIELD_SECONDS, self._accept_after_yield, listening)
        else:
            self._accept_some(listening, 1)

    def _accept_after_yield(self, listening: socket.socket) -> None:
        """Accept a connection if the other workers have left one. They may be busy, or have ended."""
        if listening in self._sockets and not self._is_full:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)
            self._accept_some(listening, ACCEPTED_AFTER_YIELD)

    def _accept_some(self, listening: socket.socket, count: int) -> None:
        for _ in range(count):
            now = time.monotonic()
            is_full = len(self._all) >= self._limits.connections
            # Found before the accept: a connection without room for it must stay in the backlog.
            least = self._all.least(now) if is_full else None
            if is_full and least is None:
                self._pause()
                return
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                self._on_accept_error(error, now)
                return
            if self._take(accepted, address, least, now):
                # The new connections need a turn of the loop to receive their first bytes.
                return

    def _take(self, accepted: socket.socket, address: Any, least: CountedConnection | None, now: float) -> bool:
        """Take over an accepted connection. Returns whether another one was evicted for it. least: the one to evict,
        if the client is not over its own limit."""
        is_unix = accepted.family == socket.AF_UNIX
        peer = Peer(UNIX if is_unix else address[0], address, accepted.family)
        client = peer.remote_ip
        if self._is_over(client):
            own = self._by_client[client].least(now)
            if own is None:
                accepted.close()
                self._closings.record(Reason.CLIENT, client)
                return False
            self._evict(own, Reason.CLIENT)
            least = own
        elif least is not None:
            self._evict(least, Reason.CONNECTIONS)
        accepted.setblocking(False)
        connection = ClientConnection(self, peer)
        self._join(CountedConnection(connection, now))
        loop = asyncio.get_running_loop()
        task = loop.create_task(loop.connect_accepted_socket(lambda: connection, accepted))
        self._tasks.add(task)
        task.add_done_callback(partial(self._taken, accepted, connection))
        return least is not None

    def _taken(self, accepted: socket.socket, connection: ClientConnection, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or task.exception() is not None:
            accepted.close()
            self.on_connection_lost(connection)

    def _is_over(self, client: str) -> bool:
        """Return whether the client has as many connections as it may have."""
        own = self._by_client.get(client)
        return own is not None and len(own) >= self._limits.per_client and not self._is_trusted(client)

    def _on_accept_error(self, error: OSError, now: float) -> None:
        """Handle an error of `accept`: the system has no more descriptors, or no memory for one."""
        least = self._all.least(now)
        if least is not None and now - least.joined_at > SETTLED_SECONDS:
            self._evict(least, Reason.DESCRIPTORS)
        elif now - self._descriptor_logged_at > DESCRIPTOR_LOG_SECONDS:
            self._descriptor_logged_at = now
            log.error("no more connections for now: %s", error.strerror)
        self._pause()

    def _pause(self) -> None:
        self._stop_listening()
        asyncio.get_running_loop().call_later(FULL_SECONDS, self._try_again)

    def _try_again(self) -> None:
        if self._is_full:
            self._listen()

    # called by connections

    def _join(self, counted: CountedConnection) -> None:
        self._all.add(counted)
        self._by_client.setdefault(counted.client, EvictionGroup()).add(counted)
        self._publish_count()

    def _publish_count(self) -> None:
        if self._balance is not None:
            self._balance.set_count(len(self._all))

    def on_connection_lost(self, connection: ClientConnection) -> None:
        """Stop counting a connection that has ended."""
        self._forget(connection)
        self._closed.set()
        if self._is_full and len(self._all) < self._limits.connections:
            self._listen()

    def _forget(self, connection: ClientConnection) -> None:
        client = connection.peer.remote_ip
        own = self._by_client.get(client)
        self._all.discard(connection)
        if own is not None:
            own.discard(connection)
            if not own:
                del self._by_client[client]
        self._publish_count()

    def route(self, exchange: Exchange, line: RequestStartLine, headers: Headers) -> HTTPMessageDelegate:
        """Return the handler for a request. Raises HTTPInputError."""
        request = self._make_request(exchange, self, line, headers)
        request.began_at, request.has_body = exchange.began_at, exchange.has_body
        request.head_bytes = exchange.head_bytes
        return self._find_handler(request)

    def on_slow_write(self, size: int) -> None:
        """Count bytes written to a client that reads too slowly. All unread bytes are summed up as soon as there may
        be too many: before the next periodic check, fast answers could take any amount of memory."""
        self._slow_write_bytes += size
        if self._slow_write_bytes * SLOW_WRITE_PARTS > self._limits.unread_bytes:
            self._slow_write_bytes, now = 0, time.monotonic()
            readers = [(counted, counted.connection.unread_bytes) for counted in self._all]
            unread = sum([self._check_reader(counted, size, now) for counted, size in readers if size])
            self._evict_slow_readers(unread, now)

    def on_refused(self, connection: ClientConnection, status: HTTPStatus, seconds: float) -> None:
        """Report a request that was answered with a bare status. seconds: since it began to arrive."""
        self._on_refused(status, connection.peer.remote_ip, seconds)

    # connections end

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._all)

    def end_after_answers(self) -> None:
        """End each connection with its next answer, which says so."""
        self.is_ending = True

    async def wait_until_empty(self) -> None:
        """Wait until no connection is left."""
        while len(self._all):
            self._closed.clear()
            await self._closed.wait()

    async def close_all_connections(self) -> None:
        """Close all connections, and wait for them. Bytes that a client does not read in `CLOSING_SECONDS` are
        lost."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        for counted in self._all:
            counted.connection.close()
        try:
            async with asyncio.timeout(CLOSING_SECONDS):
                await self.wait_until_empty()
        except TimeoutError:
            for counted in self._all:
                counted.connection.reset()
            await self.wait_until_empty()
        self._closings.log_closings(is_last=True)

    async def check_timeouts(self) -> None:
        """End the connections that exceed a limit. Call it periodically."""
        self._set_shed_next()
        now = time.monotonic()
        before, self._checked_at = self._checked_at, now
        decay, unread, heads = decay_over(now - before), 0, 0
        for number, counted in enumerate(self._all, 1):
            counted.update(decay)
            unread += self._check(counted, time.monotonic())
            heads += counted.connection.head_bytes
            if number % CHECKED_AT_ONCE == 0:
                await asyncio.sleep(0)
        if unread > self._limits.unread_bytes:
            self._evict_slow_readers(unread, time.monotonic())
        if heads > self._limits.unread_bytes:
            self._evict_partial_heads(heads - self._limits.unread_bytes)
        self._closings.log_closings()

    def _set_shed_next(self) -> None:
        """Shed some connections if this worker had more than its share at two checks. Then its next answers end their
        connections, and the clients connect again, to other workers. This takes a millisecond, and no request is lost.
        Otherwise a new worker would get no connections, because clients keep their persistent connections."""
        before, self._excess = self._excess, 0 if self._balance is None else self._balance.excess
        self.shed_next = -(-min(before, self._excess) // SHED_FRACTION)

    def _check(self, counted: CountedConnection, now: float) -> int:
        """End the connection if it is over a time limit. Returns how many bytes its client has not read."""
        connection = counted.connection
        unread = connection.unread_bytes
        if unread:
            return self._check_reader(counted, unread, now)
        counted.taken_bytes, counted.taken_at = connection.written_bytes, now
        if connection.head_since is not None:
            if now - connection.head_since > self._limits.head_seconds:
                self._closings.record(Reason.LATE_HEAD, counted.client)
                connection.refuse_late_head()
        elif connection.waits_since is not None and now - connection.waits_since > self._limits.idle_seconds:
            self._closings.record(Reason.IDLE, counted.client)
            connection.close()
        return 0

    def _check_reader(self, counted: CountedConnection, unread: int, now: float) -> int:
        taken = counted.connection.written_bytes - unread
        if taken - counted.taken_bytes >= MIN_READ_BYTES:
            counted.taken_bytes, counted.taken_at = taken, now
        elif now - counted.taken_at > self._limits.write_seconds:
            self._closings.record(Reason.UNREAD, counted.client)
            counted.connection.reset()
            return 0
        return unread

    def _evict(self, counted: CountedConnection, reason: Reason) -> None:
        """End a connection. It stops counting at once."""
        connection = counted.connection
        self._closings.record(reason, counted.client)
        self._forget(connection)
        if connection.unread_bytes:
            connection.reset()
        else:
            connection.close()

    def _evict_slow_readers(self, unread: int, now: float) -> None:
        """End the connections whose clients have not read for the longest time, until the unread bytes are within the
        limit. Clients that have read recently are kept up to twice the limit."""
        limit = self._limits.unread_bytes
        for counted in sorted(self._all, key=lambda counted: counted.idle_at):
            is_settled = now - counted.idle_at > SETTLED_SECONDS
            if unread <= (limit if is_settled else 2 * limit):
                return
            own = counted.connection.unread_bytes
            if own >= MIN_READ_BYTES:
                unread -= own
                self._evict(counted, Reason.MEMORY)

    def _evict_partial_heads(self, excess: int) -> None:
        """End the connections with the largest incomplete heads."""
        for counted in sorted(self._all, key=lambda counted: counted.connection.head_bytes, reverse=True):
            if excess <= 0:
                return
            excess -= counted.connection.head_bytes
            self._evict(counted, Reason.MEMORY)


def _address(listener: socket.socket) -> IPv4Address | IPv6Address | None:
    """Return the address that a socket listens on, or None for a Unix socket."""
    if listener.family == socket.AF_UNIX:
        return None
    return ip_address(listener.getsockname()[0].partition("%")[0])
