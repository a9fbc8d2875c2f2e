"""Speaks HTTP/1.1 on one connection (RFC 9112). What comes in: bytes. What goes out: requests for tornado's handlers,
one at a time, and the bytes of their answers. Bytes behind a request are kept until that request is answered.

It must not know: routes, documents, how long anything may take.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import time
from collections.abc import Awaitable
from http import HTTPStatus
from typing import Any, Protocol

import msgspec
from httptools import HttpParserError
from tornado.httputil import HTTPInputError, HTTPMessageDelegate, RequestStartLine

from server.http.headers import Headers
from server.http.request import HandlerReady
from server.http.transport.answering import Exchange, bare_answer, closed_future, fail
from server.http.transport.message import EMPTY_LINES, END, Message, Refused, without_empty_lines

KEPT_BYTES = 65_536
"""How many bytes behind a request are kept while it is at work. At more, the connection stops reading."""

PAUSED_SECONDS = 1.0
"""How long a connection stops reading while one request is at work. While it does not read, it cannot see that the
client has gone: the end of the stream comes behind all bytes that the client has sent."""

DISCARDED_BYTES = 2**24
"""More than the socket buffers of both systems hold. A client that sends more behind one request has not gone."""

SHORT_BODY_BYTES = 65_536
"""Up to this size an unwanted body is read and discarded, to keep the connection."""

LINGER_SECONDS = 2.0
"""How long bytes are still read and discarded after the last answer. A socket that is closed with unread bytes is
reset, and the client loses the answer."""

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
RESET_ON_CLOSE = struct.pack("ii", 1, 0)

JOINING, HEAD, BODY, ANSWER, LAST = "joining", "head", "body", "answer", "last"
"""What a connection waits for: its transport, a request, the rest of a body, an answer, its end."""

log = logging.getLogger("server")


class Peer(msgspec.Struct, frozen=True):
    """The client's end of a connection, in the form that tornado's requests read."""

    remote_ip: str
    address: Any
    address_family: int
    protocol: str = "http"


class ConnectionOwner(Protocol):
    """The server, as its connections use it.

    head_bytes: the maximum size of a request line with headers. is_ending: whether each connection ends with its next
    answer. shed_next: how many of the next answers end their connections, if is_ending is false."""

    head_bytes: int
    is_ending: bool
    shed_next: int

    def on_connection_lost(self, connection: ClientConnection) -> None:
        """Called when the connection has ended."""

    def on_slow_write(self, size: int) -> None:
        """Called when `size` bytes were written to a client that has not read all bytes before. May end connections."""

    def route(self, exchange: Exchange, line: RequestStartLine, headers: Headers) -> HTTPMessageDelegate:
        """Return the handler for a request. Raises HTTPInputError."""

    def on_refused(self, connection: ClientConnection, status: HTTPStatus, seconds: float) -> None:
        """Called when a request was answered with a bare status. seconds: since the request began to arrive."""


class ClientConnection(asyncio.Protocol):
    """A client's connection.

    received_bytes, written_bytes: since it began. waits_since: when it began to wait for a request or the rest of its
    head; None if it does not wait. head_since: when an incomplete head began. blocked_at: when the write buffer was
    last full because the client reads too slowly. All times are by the monotonic clock."""

    transport: asyncio.Transport

    def __init__(self, owner: ConnectionOwner, peer: Peer) -> None:
        self.owner = owner
        self.peer = peer
        self.received_bytes = 0
        self.written_bytes = 0
        self.waits_since: float | None = None
        self.head_since: float | None = None
        self._phase = JOINING
        # Bytes not parsed yet, or an incomplete head.
        self._kept = b""
        # The number of empty lines before the request.
        self._empty_lines = 0
        self._is_paused = False
        self._pause_timer: asyncio.TimerHandle | None = None
        # Bytes discarded behind the last request; None while nothing is discarded.
        self._discarded: int | None = None
        self._exchange: Exchange | None = None
        self._delegate: HTTPMessageDelegate | None = None
        self._is_handler_busy = False
        # The request whose body is read.
        self._message: Message | None = None
        self._expects = False
        self._is_write_blocked = False
        self.blocked_at = float("-inf")
        self._drained: list[asyncio.Future[None]] = []

    # called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # uvloop's are no asyncio.Transport, but for their methods
        # Only for uvloop: asyncio's writelines has no flow control in some versions of Python (CPython's gh-127655).
        self._has_writev = not isinstance(transport, asyncio.Transport)
        self._sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sent.set_result(None)
        if self._phase is LAST:
            transport.abort()  # type: ignore[attr-defined]  # as above
            return
        self._phase = HEAD
        self.waits_since = time.monotonic()

    def data_received(self, data: bytes) -> None:
        self.received_bytes += len(data)
        if self._discarded is not None:
            self._discard(data)
        elif self._phase is not LAST:
            self._read(self._kept + data if self._kept else data)

    def connection_lost(self, exc: Exception | None) -> None:
        exchange, delegate = self._exchange, self._delegate
        self._phase, self._exchange, self._delegate, self._kept = LAST, None, None, b""
        self._is_write_blocked, self._message = False, None
        self._cancel_pause_timer()
        self.owner.on_connection_lost(self)
        for future in self._drained:
            if not future.done():
                fail(future)
        self._drained.clear()
        if exchange is not None:
            exchange.on_client_gone(delegate)

    def pause_writing(self) -> None:
        self._is_write_blocked = True
        self.blocked_at = time.monotonic()

    def resume_writing(self) -> None:
        self._is_write_blocked = False
        drained, self._drained = self._drained, []
        for future in drained:
            if not future.done():
                future.set_result(None)

    # reading

    def _read(self, data: bytes) -> None:
        self._kept = b""
        try:
            while data and not self._is_handler_busy:
                if self._phase is HEAD:
                    data = self._read_head(data)
                elif self._phase is BODY:
                    data = self._read_body(data)
                else:
                    break
        except Refused as refused:
            self._refuse(refused.status)
        except HttpParserError:
            self._refuse(HTTPStatus.BAD_REQUEST)
        except Exception:
            log.exception("a request could not be handed to its handler")
            self.reset()
        else:
            if data and self._phase is not LAST:
                self._keep(data)

    def _keep(self, data: bytes) -> None:
        self._kept = data
        if len(data) > KEPT_BYTES and self._phase is not HEAD and not self._is_paused:
            self._is_paused = True
            self.transport.pause_reading()
            self._start_pause_timer()

    def _start_pause_timer(self) -> None:
        self._pause_timer = asyncio.get_running_loop().call_later(PAUSED_SECONDS, self._on_pause_end, self._exchange)

    def _cancel_pause_timer(self) -> None:
        if self._pause_timer is not None:
            self._pause_timer.cancel()
            self._pause_timer = None

    def _resume(self) -> None:
        self._is_paused = False
        self._cancel_pause_timer()
        self.transport.resume_reading()

    def _on_pause_end(self, watched: Exchange | None) -> None:
        """If one request was at work for the whole pause, discard the bytes behind it, to notice when the client goes.
        The answer says that the connection ends, so that the client sends the rest again (RFC 9112, 9.6)."""
        exchange = self._exchange
        if self._phase is not ANSWER or exchange is None or exchange is not watched or exchange.is_begun:
            self._start_pause_timer()
            return
        exchange.end_after_answer()
        self._kept, self._discarded = b"", 0
        self._resume()

    def _discard(self, data: bytes) -> None:
        self._discarded = (self._discarded or 0) + len(data)
        if self._discarded > DISCARDED_BYTES and self._phase is not LAST:
            self.reset()

    def _read_kept(self) -> None:
        """Parse the kept bytes."""
        if self.transport.is_closing():
            return
        if self._kept:
            self._read(self._kept)
        # An incomplete head needs its rest, however long it is already.
        if self._is_paused and (len(self._kept) <= KEPT_BYTES or self._phase is HEAD):
            self._resume()

    def _read_head(self, data: bytes) -> bytes:
        """Return the bytes behind the head. Raises Refused, HttpParserError."""
        if data[0] in END:
            data, count = without_empty_lines(data)
            self._empty_lines += count
            if self._empty_lines > EMPTY_LINES or (data[:1] in (b"\r", b"\n") and data != b"\r"):
                raise Refused(HTTPStatus.BAD_REQUEST)
        end = data.find(END)
        head_bytes = len(data) if end < 0 else end + len(END)
        if head_bytes > self.owner.head_bytes:
            raise Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        if end < 0:
            self._kept = data
            if data and self.head_since is None:
                self.head_since = time.monotonic()
            return b""
        # Set before the handler runs: it may answer at once, and the answer depends on what is kept.
        self._kept = rest = data[head_bytes:]
        self._start(Message(data[:head_bytes]), head_bytes)
        return rest

    def _start(self, message: Message, head_bytes: int) -> None:
        """Start the handler of a request whose head is complete. Raises Refused."""
        line, headers = message.line, message.headers
        self._empty_lines = 0
        began_at = time.monotonic() if self.head_since is None else self.head_since
        self.waits_since = self.head_since = None
        self._exchange = exchange = Exchange(self, line, headers, began_at, head_bytes, has_body=message.has_body)
        try:
            delegate = self._delegate = self.owner.route(exchange, line, headers)
        except HTTPInputError:
            self._exchange = None
            raise Refused(HTTPStatus.BAD_REQUEST) from None
        if message.body_bytes_left == 0:
            self._phase = ANSWER
            delegate.headers_received(line, headers)
            delegate.finish()
            return
        self._phase, self._message = BODY, message
        expects = "Expect" in headers.by_name and line.version == "HTTP/1.1"
        self._expects = expects and headers["Expect"].lower() == "100-continue"
        self._wait_for_handler(delegate.headers_received(line, headers))

    def _read_body(self, data: bytes) -> bytes:
        """Return the bytes behind the body. Raises Refused, HttpParserError."""
        message = self._message
        assert message is not None
        piece, data = message.read_body(data, self.owner.head_bytes)
        self._kept = data
        ready: Awaitable[None] | None = None
        if piece and self._exchange is not None:
            assert self._delegate is not None
            ready = self._delegate.data_received(piece)
        if ready is None and data and message.body_bytes_left:
            ready = asyncio.sleep(0)
        self._wait_for_handler(ready)
        if message.body_bytes_left == 0 and not self._is_handler_busy:
            self._end_body()
        return data

    def _end_body(self) -> None:
        if self._exchange is None:
            self._await_request()
            return
        assert self._delegate is not None
        self._phase, self._message = ANSWER, None
        self._delegate.finish()

    def _wait_for_handler(self, ready: Awaitable[None] | None) -> None:
        """Stop parsing until the handler is ready."""
        if ready is None:
            return
        self._is_handler_busy = True
        if isinstance(ready, HandlerReady):
            ready.then = self._on_handler_ready
        else:
            asyncio.ensure_future(ready).add_done_callback(self._on_handler_ready)

    def _on_handler_ready(self, ready: asyncio.Future[None]) -> None:
        self._is_handler_busy = False
        if ready.cancelled() or ready.exception() is not None:
            log.error("a handler failed to receive a body", exc_info=None if ready.cancelled() else ready.exception())
            self.reset()
            return
        exchange = self._exchange
        if self._expects and exchange is not None and not (exchange.is_begun or self._kept):
            self._expects = False
            self.transport.write(CONTINUE)
        if self._message is not None and self._message.body_bytes_left == 0:
            self._end_body()
        self._read_kept()

    # called by the answer

    def should_close(self) -> bool:
        """Return whether the server ends the connection with this answer. Call it once for each answer."""
        owner = self.owner
        # If bytes behind the request are kept, they would be lost.
        if owner.shed_next and not self._kept:
            owner.shed_next -= 1
            return True
        return owner.is_ending

    @property
    def can_drain_body(self) -> bool:
        """Whether the rest of the body is short enough to be read and discarded."""
        message = self._message
        return message is None or (0 <= message.body_bytes_left <= SHORT_BODY_BYTES and not self._expects)

    @property
    def unread_bytes(self) -> int:
        """How many bytes of answers the client has not read."""
        return 0 if self._phase is JOINING else self.transport.get_write_buffer_size()

    @property
    def head_bytes(self) -> int:
        """The size of an incomplete head."""
        return len(self._kept) if self._phase is HEAD else 0

    @property
    def moved_bytes(self) -> int:
        """How many bytes were received or read by the client, since the connection began."""
        return self.received_bytes + self.written_bytes - self.unread_bytes

    @property
    def is_at_work(self) -> bool:
        """Whether the client waits for the server, and not the server for the client."""
        return (self._phase is ANSWER or self._is_handler_busy) and not self.unread_bytes

    def send(self, *pieces: bytes) -> asyncio.Future[None]:
        """Write to the client. Returns a future that is done when the write buffer has room again."""
        if self.transport.is_closing():
            return closed_future()
        if self._has_writev and len(pieces) > 1:
            self.transport.writelines(pieces)
        else:
            self.transport.write(b"".join(pieces))
        size = sum(map(len, pieces))
        self.written_bytes += size
        if not self._is_write_blocked:
            return self._sent
        self.owner.on_slow_write(size)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._drained.append(future)
        return future

    def answer_finished(self, exchange: Exchange) -> None:
        """Begin the next request, or end the connection, because the whole answer was written."""
        delegate, self._exchange, self._delegate = self._delegate, None, None
        if self._phase is BODY and delegate is not None:
            # The handler may still wait for the rest of the body, which is not needed any more.
            asyncio.get_running_loop().call_soon(delegate.on_connection_close)
        if exchange.is_last:
            self._end(is_clean=self._phase is ANSWER and not self._kept and self._discarded is None)
        elif self._phase is ANSWER:
            self._await_request()
            if self._kept or self._is_paused:
                asyncio.get_running_loop().call_soon(self._read_kept)
        else:
            # The rest of an unwanted body has as much time as a request.
            self.waits_since = time.monotonic()

    def _await_request(self) -> None:
        self._phase, self._message = HEAD, None
        self.waits_since = time.monotonic()

    # the end of the connection

    def _refuse(self, status: HTTPStatus) -> None:
        """Answer with a bare status, unless another answer has begun, and end the connection."""
        exchange, delegate = self._exchange, self._delegate
        self._exchange = self._delegate = None
        is_begun = exchange is not None and exchange.is_begun
        if not is_begun:
            now = time.monotonic()
            self.owner.on_refused(self, status, now - (self.head_since or now))
            self.transport.write(bare_answer(status))
            self._end(is_clean=False)
        else:
            self.reset()
        if exchange is not None:
            exchange.on_client_gone(delegate)

    def _end(self, *, is_clean: bool) -> None:
        """End the connection. is_clean: whether no unread bytes can follow. They would reset the connection."""
        self._phase, self._message, self._kept = LAST, None, b""
        self.waits_since = self.head_since = None
        if is_clean or self.transport.is_closing():
            self.transport.close()
            return
        if self._is_paused:
            self._resume()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        asyncio.get_running_loop().call_later(LINGER_SECONDS, self.transport.close)

    def refuse_late_head(self) -> None:
        """Answer 408 to a head that did not arrive in time."""
        self._refuse(HTTPStatus.REQUEST_TIMEOUT)

    def close(self) -> None:
        """Close the connection when all written bytes have been sent."""
        if self._phase is JOINING:
            self._phase = LAST
        else:
            self.transport.close()

    def reset(self) -> None:
        """Reset the connection at once, so that the client cannot mistake a partial answer for a whole one."""
        raw: socket.socket | None = self.transport.get_extra_info("socket")
        if raw is not None and not self.transport.is_closing():
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self.transport.abort()
