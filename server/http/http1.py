"""HTTP/1.1 on one connection (RFC 9112). What comes in: bytes. What goes out: requests for tornado's handlers, one at a
time, and the bytes of their answers.

llhttp, by way of httptools, reads headers and chunks, with all its strictness. Request lines are read here: it takes
neither methods that it does not know, to which a handler answers 405, nor targets with bytes beyond ASCII. It never
sees more than one request at a time: what comes behind one is kept as it is until that one is answered.

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

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from tornado.httputil import HTTPHeaders, HTTPInputError, HTTPMessageDelegate, RequestStartLine

from server.http.answering import Exchange, bare_answer, fail, failed
from server.http.host import Host, Peer
from server.http.request_line import EMPTY_LINES, REQUEST_LINE, Refused, fault_of, without_empty_lines

KEPT_BYTES = 65_536
"""What may come behind a request that is at work before the connection is read no further."""

PAUSED_SECONDS = 1.0
"""How long a connection is read no further while one request is at work. Its end is not seen while nothing is read: it
comes behind all that the client has sent."""

DISCARDED_BYTES = 2**24
"""More than the buffers of both systems hold. Who sends more behind one request has not left."""

SHORT_BODY_BYTES = 65_536
"""As much of a body that nobody wants is read, to keep its connection."""

FED_BYTES, FED_TIMES = 16_384, 2000
"""Of chunks: what the parser is fed at once, and how often it is fed or gives content in one turn of the loop. Chunks
of a byte, or content of empty lines, make millions of steps of a body of megabytes: then others have their turn."""

LINGER_SECONDS = 2.0
"""How long is read and thrown away what a client sends that has had its last answer: a connection that is closed over
unread bytes is reset, and the answer lost."""

END = b"\r\n\r\n"
SEAM = bytes(len(END) - 1)
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_PREFACES = {"HTTP/1.0": b"POST / HTTP/1.0", "HTTP/1.1": b"POST / HTTP/1.1"}
RESET_ON_CLOSE = struct.pack("ii", 1, 0)

JOINING, HEAD, BODY, ANSWER, LAST = "joining", "head", "body", "answer", "last"
"""What a connection waits for: its transport, a request, the rest of a body, an answer, its end."""

log = logging.getLogger("server")


class Connection(asyncio.Protocol):
    """received_bytes, written_bytes: since it began. waits_since: when it began to wait for a request, or the rest of
    its head; None where it does not. head_since: when a head began that is not all there. full_at: when
    its client last began to take less than was written. All by the monotonic clock."""

    transport: asyncio.Transport

    def __init__(self, host: Host, peer: Peer) -> None:
        self.host = host
        self.peer = peer
        self.received_bytes = 0
        self.written_bytes = 0
        self.waits_since: float | None = None
        self.head_since: float | None = None
        self._phase = JOINING
        # What came and was not looked at yet, or is half a head.
        self._kept = b""
        # That came before the request.
        self._empty_lines = 0
        self._is_paused = False
        self._watching: asyncio.TimerHandle | None = None
        # Of what comes behind the last request; None before there is one.
        self._discarded: int | None = None
        self._exchange: Exchange | None = None
        self._delegate: HTTPMessageDelegate | None = None
        self._is_held = False
        # Of a body: bytes that have not come; -1 where its end is its last chunk.
        self._left = 0
        self._expects = False
        self._parser: HttpRequestParser | None = None
        self._headers: HTTPHeaders | None = None
        self._seam = SEAM
        self._pieces: list[bytes] = []
        self._bare_bytes = 0
        self._is_full = False
        self.full_at = float("-inf")
        self._drained: list[asyncio.Future[None]] = []

    # the loop's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # uvloop's are no asyncio.Transport, but for their methods
        # uvloop's; asyncio's own has no flow control in some versions of Python (CPython's gh-127655).
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
        self._is_full, self._parser = False, None
        self._watch_no_more()
        self.host.leaves(self)
        for future in self._drained:
            if not future.done():
                fail(future)
        self._drained.clear()
        if exchange is not None:
            exchange.is_gone(delegate)

    def pause_writing(self) -> None:
        self._is_full = True
        self.full_at = time.monotonic()

    def resume_writing(self) -> None:
        self._is_full = False
        drained, self._drained = self._drained, []
        for future in drained:
            if not future.done():
                future.set_result(None)

    # reading

    def _read(self, data: bytes) -> None:
        self._kept = b""
        try:
            while data and not self._is_held:
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
            self._watch()

    def _watch(self) -> None:
        self._watching = asyncio.get_running_loop().call_later(PAUSED_SECONDS, self._read_on, self._exchange)

    def _watch_no_more(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None

    def _resume(self) -> None:
        self._is_paused = False
        self._watch_no_more()
        self.transport.resume_reading()

    def _read_on(self, watched: Exchange | None) -> None:
        """One request has been at work all the time: what comes behind it is thrown away, to see the connection's end.
        Its answer says that it is the last: the client sends what is behind it again (RFC 9112, 9.6)."""
        exchange = self._exchange
        if self._phase is not ANSWER or exchange is None or exchange is not watched or exchange.is_begun:
            self._watch()
            return
        exchange.end_after_answer()
        self._kept, self._discarded = b"", 0
        self._resume()

    def _discard(self, data: bytes) -> None:
        self._discarded = (self._discarded or 0) + len(data)
        if self._discarded > DISCARDED_BYTES and self._phase is not LAST:
            self.reset()

    def _go_on(self) -> None:
        """With what was kept."""
        if self.transport.is_closing():
            return
        if self._kept:
            self._read(self._kept)
        # Of a head that is not all there the rest is needed, however long it is by now.
        if self._is_paused and (len(self._kept) <= KEPT_BYTES or self._phase is HEAD):
            self._resume()

    def _read_head(self, data: bytes) -> bytes:
        """Gives what comes behind it. Raises Refused, HttpParserError."""
        if data[0] in END:
            data, count = without_empty_lines(data)
            self._empty_lines += count
            if self._empty_lines > EMPTY_LINES or (data[:1] in (b"\r", b"\n") and data != b"\r"):
                raise Refused(HTTPStatus.BAD_REQUEST)
        end = data.find(END) + len(END)
        if max(end, 0 if end >= len(END) else len(data)) > self.host.head_bytes:
            raise Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        if end < len(END):
            self._kept = data
            if data and self.head_since is None:
                self.head_since = time.monotonic()
            return b""
        # An answer that is made at once has to know of it.
        self._kept = rest = data[end:]
        self._begin(data[:end])
        return rest

    def _begin(self, head: bytes) -> None:
        """Raises Refused, HttpParserError."""
        line = REQUEST_LINE.match(head)
        if line is None:
            raise Refused(fault_of(head))
        self._empty_lines = 0
        method, target, minor = line.groups()
        version = "HTTP/1.0" if minor == b"0" else "HTTP/1.1"
        headers = self._headers = HTTPHeaders()
        parser = HttpRequestParser(self)
        try:
            parser.feed_data(_PREFACES[version] + head[line.end(3) :])
        except HttpParserUpgrade:
            # Nobody here speaks anything else: it is a request like another.
            pass
        finally:
            self._headers = None
        has_body = self._frame(headers, version, parser)
        started = RequestStartLine(method.decode("ascii"), target.decode("latin-1"), version)
        self._start(started, headers, len(head), has_body=has_body)

    def on_header(self, name: bytes, value: bytes) -> None:
        """By the parser; after the head those of trailers, which nobody asks for."""
        headers = self._headers
        if headers is not None:
            text = name.decode("ascii")
            if text in headers:
                headers.add(text, value.decode("latin-1").strip(" \t"))
            else:
                headers[text] = value.decode("latin-1").strip(" \t")

    def _frame(self, headers: HTTPHeaders, version: str, parser: HttpRequestParser) -> bool:
        """How long the body is; gives whether one is announced. llhttp has refused two lengths, and a length beside
        chunks. parser: for the chunks. Raises Refused. Source: RFC 9112, 6.1, 6.3."""
        self._left = 0
        if "Transfer-Encoding" in headers:
            is_clear = headers["Transfer-Encoding"].lower() == "chunked" and version == "HTTP/1.1"
            if not is_clear or parser.should_upgrade():
                raise Refused(HTTPStatus.BAD_REQUEST)
            self._parser, self._left, self._seam, self._bare_bytes = parser, -1, SEAM, 0
            return True
        if "Content-Length" in headers:
            self._left = int(headers["Content-Length"])
            return True
        return False

    def _start(self, line: RequestStartLine, headers: HTTPHeaders, head_bytes: int, *, has_body: bool) -> None:
        began_at = time.monotonic() if self.head_since is None else self.head_since
        self.waits_since = self.head_since = None
        self._exchange = exchange = Exchange(self, line, headers, began_at, head_bytes, has_body=has_body)
        try:
            delegate = self._delegate = self.host.route(exchange, line, headers)
        except HTTPInputError:
            self._exchange = None
            raise Refused(HTTPStatus.BAD_REQUEST) from None
        if self._left == 0:
            self._phase = ANSWER
            delegate.headers_received(line, headers)
            delegate.finish()
            return
        self._phase = BODY
        expects = "Expect" in headers and line.version == "HTTP/1.1"
        self._expects = expects and headers["Expect"].lower() == "100-continue"
        self._hold(delegate.headers_received(line, headers))

    def _read_body(self, data: bytes) -> bytes:
        """Gives what comes behind it. Raises Refused, HttpParserError."""
        if self._left > 0:
            piece, data = data[: self._left], data[self._left :]
            self._left -= len(piece)
        else:
            piece, data = self._read_chunks(data)
        self._kept = data
        ready: Awaitable[None] | None = None
        if piece and self._exchange is not None:
            assert self._delegate is not None
            ready = self._delegate.data_received(piece)
        if ready is None and data and self._left:
            ready = asyncio.sleep(0)
        self._hold(ready)
        if self._left == 0 and not self._is_held:
            self._end_body()
        return data

    def _read_chunks(self, data: bytes) -> tuple[bytes, bytes]:
        """The content of the chunks, and what was not read: what comes behind them, or is left for the next turn. They
        end in an empty line: the parser is fed up to the next one, so that it does not see another request. Raises
        Refused, HttpParserError."""
        assert self._parser is not None
        # Looked through in place: a body may be made of empty lines, and a copy of the rest at each of them would take
        # seconds.
        seam, pieces = len(SEAM), self._pieces
        text, at, fed = self._seam + data, seam, 0
        view = memoryview(text)
        while at < len(text) and self._left and fed + len(pieces) < FED_TIMES:
            found = text.find(END, at - seam, at + FED_BYTES)
            end = min(at + FED_BYTES, len(text)) if found < 0 else found + len(END)
            self._parser.feed_data(view[at:end])
            at, fed = end, fed + 1
        self._seam, rest = text[at - seam : at], text[at:]
        piece = b"".join(pieces)
        pieces.clear()
        # What is no content is trailers, which the parser keeps.
        self._bare_bytes = 0 if piece else self._bare_bytes + len(data) - len(rest)
        if self._bare_bytes > self.host.head_bytes:
            raise Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        return piece, rest

    def on_body(self, piece: bytes) -> None:
        """By the parser."""
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        """By the parser."""
        self._left = 0

    def _end_body(self) -> None:
        if self._exchange is None:
            self._await_request()
            return
        assert self._delegate is not None
        self._phase, self._parser = ANSWER, None
        self._delegate.finish()

    def _hold(self, ready: Awaitable[None] | None) -> None:
        """Reads no further before the handler is ready."""
        if ready is None:
            return
        self._is_held = True
        asyncio.ensure_future(ready).add_done_callback(self._release)

    def _release(self, ready: asyncio.Future[None]) -> None:
        self._is_held = False
        if ready.cancelled() or ready.exception() is not None:
            log.error("a handler failed over a body", exc_info=None if ready.cancelled() else ready.exception())
            self.reset()
            return
        exchange = self._exchange
        if self._expects and exchange is not None and not (exchange.is_begun or self._kept):
            self._expects = False
            self.transport.write(CONTINUE)
        if self._phase is BODY and self._left == 0:
            self._end_body()
        self._go_on()

    # the answer's side

    def is_to_end(self) -> bool:
        """To be asked once an answer."""
        host = self.host
        # What has come behind the request would be lost.
        if host.spare and not self._kept:
            host.spare -= 1
            return True
        return host.is_ending

    @property
    def is_rest_short(self) -> bool:
        """Whether what has not come of a body may be read to its end."""
        return self._phase is not BODY or (0 <= self._left <= SHORT_BODY_BYTES and not self._expects)

    @property
    def unread_bytes(self) -> int:
        """Of answers, that the client has not taken."""
        return 0 if self._phase is JOINING else self.transport.get_write_buffer_size()

    @property
    def head_bytes(self) -> int:
        """Of a head that is not all there."""
        return len(self._kept) if self._phase is HEAD else 0

    @property
    def moved_bytes(self) -> int:
        """That came, or that the client took, since it began."""
        return self.received_bytes + self.written_bytes - self.unread_bytes

    @property
    def is_at_work(self) -> bool:
        """Whether the client waits for the server, and not the server for the client."""
        return (self._phase is ANSWER or self._is_held) and not self.unread_bytes

    def send(self, *pieces: bytes) -> asyncio.Future[None]:
        """Gives what is done when there is room for more."""
        if self.transport.is_closing():
            return failed()
        if self._has_writev and len(pieces) > 1:
            self.transport.writelines(pieces)
        else:
            self.transport.write(b"".join(pieces))
        size = sum(map(len, pieces))
        self.written_bytes += size
        if not self._is_full:
            return self._sent
        self.host.writes_late(size)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._drained.append(future)
        return future

    def answered(self, exchange: Exchange) -> None:
        """All of the answer was handed over."""
        delegate, self._exchange, self._delegate = self._delegate, None, None
        if self._phase is BODY and delegate is not None:
            # Its handler may still wait for the body, and has no more use for it.
            asyncio.get_running_loop().call_soon(delegate.on_connection_close)
        if exchange.is_last:
            self._end(is_clean=self._phase is ANSWER and not self._kept and self._discarded is None)
        elif self._phase is ANSWER:
            self._await_request()
            if self._kept or self._is_paused:
                asyncio.get_running_loop().call_soon(self._go_on)
        else:
            # The rest of a body that nobody wants has as much time as a request.
            self.waits_since = time.monotonic()

    def _await_request(self) -> None:
        self._phase = HEAD
        self._parser = None
        self.waits_since = time.monotonic()

    # its end

    def _refuse(self, status: HTTPStatus) -> None:
        """A bare status, unless another answer has begun, and the end."""
        exchange, delegate = self._exchange, self._delegate
        self._exchange = self._delegate = None
        is_begun = exchange is not None and exchange.is_begun
        if not is_begun:
            now = time.monotonic()
            self.host.refused(self, status, now - (self.head_since or now))
            self.transport.write(bare_answer(status))
            self._end(is_clean=False)
        else:
            self.reset()
        if exchange is not None:
            exchange.is_gone(delegate)

    def _end(self, *, is_clean: bool) -> None:
        """is_clean: whether nothing more can come that would reset the connection."""
        self._phase, self._kept = LAST, b""
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
        """What of a request has come in its time is not all of it."""
        self._refuse(HTTPStatus.REQUEST_TIMEOUT)

    def close(self) -> None:
        """When what was written has been sent."""
        if self._phase is JOINING:
            self._phase = LAST
        else:
            self.transport.close()

    def reset(self) -> None:
        """At once, and so that the client does not take what came for whole."""
        raw: socket.socket | None = self.transport.get_extra_info("socket")
        if raw is not None and not self.transport.is_closing():
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self.transport.abort()
