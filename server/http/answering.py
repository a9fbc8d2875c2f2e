"""One request of a connection and its answer, as tornado's handlers write it. What comes in: a status, headers, pieces
of a body. What goes out: bytes that are framed so that a client knows their end (RFC 9112, 6).

It must not know: routes, documents, how requests are read.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import lru_cache
from http import HTTPStatus
from http.client import responses
from typing import Any, Protocol

from tornado.httputil import (
    HTTPConnection,
    HTTPHeaders,
    HTTPMessageDelegate,
    HTTPOutputError,
    RequestStartLine,
    ResponseStartLine,
    format_timestamp,
)
from tornado.iostream import StreamClosedError

JOINED_BYTES = 32_768
"""Up to here a body is copied behind its headers; a larger one follows them by itself."""

BODILESS = frozenset({204, 304})

NOSNIFF = "X-Content-Type-Options: nosniff\r\n"
"""Of every answer: a browser does not guess what it is (Fetch Standard, 3.6)."""


class Wire(Protocol):
    """A connection, as the answer to a request has it. is_rest_short: whether what has not come of the request may be
    read to its end. is_to_end: whether it ends with this answer, whatever the client would like."""

    @property
    def peer(self) -> Any: ...

    def is_to_end(self) -> bool: ...

    @property
    def is_rest_short(self) -> bool: ...

    def send(self, *pieces: bytes) -> asyncio.Future[None]: ...

    def answered(self, exchange: Exchange) -> None: ...

    def close(self) -> None: ...

    def reset(self) -> None: ...


def failed() -> asyncio.Future[None]:
    """What a handler gets that writes to a client who has gone."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    fail(future)
    return future


def fail(future: asyncio.Future[None]) -> None:
    future.set_exception(StreamClosedError())
    # Who does not wait for it need not hear of it.
    future.exception()


@lru_cache(maxsize=256)
def _status_line(status: int, reason: str) -> str:
    """With the one header that all answers have alike."""
    return f"HTTP/1.1 {status} {reason or responses.get(status, 'Unknown')}\r\n{NOSNIFF}"


@lru_cache(maxsize=1)
def http_date(second: int) -> str:
    return format_timestamp(second)


def bare_answer(status: HTTPStatus) -> bytes:
    """To what is no request that a handler could answer. The connection ends with it."""
    lines = (f"Date: {http_date(int(time.time()))}", "Connection: close", "Content-Length: 0", "\r\n")
    return (_status_line(status, "") + "\r\n".join(lines)).encode("ascii")


class Exchange(HTTPConnection):
    """began_at: when the request began to arrive, by the monotonic clock. head_bytes: of its first line and
    headers. has_body: whether a body is announced, be it empty. is_begun: whether a part of the answer was handed over.
    is_last: whether the connection ends with it, so far as that is known."""

    def __init__(
        self,
        wire: Wire,
        line: RequestStartLine,
        headers: HTTPHeaders,
        began_at: float,
        head_bytes: int,
        *,
        has_body: bool,
    ) -> None:
        self.context = wire.peer
        self.began_at = began_at
        self.head_bytes = head_bytes
        self.has_body = has_body
        self.is_begun = False
        self.is_last = not _is_kept(line, headers)
        self._wire: Wire | None = wire
        self._is_head = line.method == "HEAD"
        self._is_old = line.version == "HTTP/1.0"
        self._is_chunked = False
        # Bytes that the answer announced and has not sent.
        self._left: int | None = None
        self._closed: Callable[[], None] | None = None

    def set_close_callback(self, callback: Callable[[], None] | None) -> None:
        """callback: of who wants to hear when the client goes before its answer is finished."""
        self._closed = callback

    def write_headers(
        self, start_line: RequestStartLine | ResponseStartLine, headers: HTTPHeaders, chunk: bytes | None = None
    ) -> asyncio.Future[None]:
        """Gives what is done when there is room for more, and fails with StreamClosedError when the client has gone.

        Raises ValueError: a header that would be more than one; HTTPOutputError: more bytes than were announced.
        """
        assert isinstance(start_line, ResponseStartLine)
        if self._wire is None:
            return failed()
        head = self._head(start_line, headers)
        self.is_begun = True
        if not chunk:
            return self._wire.send(head)
        if len(chunk) < JOINED_BYTES and not self._is_chunked:
            self._count(chunk)
            return self._wire.send(head + chunk)
        return self._wire.send(head, *self._framed(chunk))

    def write(self, chunk: bytes) -> asyncio.Future[None]:
        """As write_headers."""
        if self._wire is None:
            return failed()
        return self._wire.send(*self._framed(chunk))

    def finish(self) -> None:
        """Raises HTTPOutputError: fewer bytes than were announced."""
        wire, self._wire = self._wire, None
        if wire is None:
            return
        self._closed = None
        if self._left or not self.is_begun:
            wire.reset()
            raise HTTPOutputError(f"the answer is {self._left} bytes shorter than its Content-Length")
        if self._is_chunked:
            wire.send(b"0\r\n\r\n")
        wire.answered(self)

    def end_after_answer(self) -> None:
        """The connection ends with this answer, which says so where it has not begun."""
        self.is_last = True

    def close(self) -> None:
        """When what was written has been sent. What comes of the request is not read any more."""
        if self._wire is not None:
            self._wire.close()

    def reset(self) -> None:
        """Ends the connection so that the client cannot take for whole what it was sent."""
        if self._wire is not None:
            self._wire.reset()

    def is_gone(self, delegate: HTTPMessageDelegate | None) -> None:
        """delegate: the handler's, where there is one already."""
        closed, self._wire, self._closed = self._closed, None, None
        if delegate is not None:
            delegate.on_connection_close()
        elif closed is not None:
            closed()

    def _head(self, line: ResponseStartLine, headers: HTTPHeaders) -> bytes:
        assert self._wire is not None
        status = line.code
        if "Connection" in headers:
            self.is_last = self.is_last or "close" in headers.pop("Connection").lower()
        lines = [_status_line(status, line.reason), *[f"{name}: {value}\r\n" for name, value in headers.get_all()]]
        length = int(headers["Content-Length"]) if "Content-Length" in headers else None
        if self._is_head or status in BODILESS:
            length = 0
        elif length is None:
            self._is_chunked = not self._is_old
            self.is_last = self.is_last or self._is_old
            if self._is_chunked:
                lines.append("Transfer-Encoding: chunked\r\n")
        self._left = length
        self.is_last = self.is_last or not self._wire.is_rest_short or self._wire.is_to_end()
        if self.is_last:
            lines.append("Connection: close\r\n")
        elif self._is_old:
            lines.append("Connection: keep-alive\r\n")
        return _checked(lines)

    def _count(self, chunk: bytes) -> None:
        if self._left is not None:
            self._left -= len(chunk)
            if self._left < 0:
                self.reset()
                raise HTTPOutputError("the answer is longer than its Content-Length")

    def _framed(self, chunk: bytes) -> tuple[bytes, ...]:
        if self._is_chunked:
            # An empty one would be the end.
            return (b"%x\r\n" % len(chunk), chunk, b"\r\n") if chunk else ()
        self._count(chunk)
        return (chunk,)


def _is_kept(line: RequestStartLine, headers: HTTPHeaders) -> bool:
    """Whether the client would keep the connection."""
    if "Connection" not in headers:
        return line.version != "HTTP/1.0"
    wish = headers["Connection"].lower()
    return "close" not in wish and (line.version != "HTTP/1.0" or "keep-alive" in wish)


def _checked(lines: list[str]) -> bytes:
    """Raises ValueError: a value with the end of a line in it would be a header of its own, or an answer."""
    text = "".join(lines)
    most = len(lines) + 1
    if text.count("\n") > most or text.count("\r") > most or "\0" in text:
        raise ValueError("a header of the answer has the end of a line in it")
    return f"{text}\r\n".encode("latin-1")
