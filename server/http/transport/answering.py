"""Writes the answer to one request on its connection. What comes in: a status, headers, pieces of a body, from
tornado's handlers. What goes out: bytes, framed so that the client knows where they end (RFC 9112, 6).

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

from server.http.headers import Headers

JOINED_BYTES = 32_768
"""A smaller body is joined to its headers and sent with them. A larger one is sent by itself, to save the copy."""

BODILESS = frozenset({204, 304})

NOSNIFF = "X-Content-Type-Options: nosniff\r\n"
"""A header of every answer: browsers must not guess the media type (Fetch Standard, 3.6)."""


class Wire(Protocol):
    """The interface of the connection that an answer is written to."""

    @property
    def peer(self) -> Any:
        """The client's end of the connection."""

    def should_close(self) -> bool:
        """Return whether the server ends the connection with this answer. Call it once for each answer."""

    @property
    def can_drain_body(self) -> bool:
        """Whether the rest of the request's body is short enough to be read and discarded."""

    def send(self, *pieces: bytes) -> asyncio.Future[None]:
        """Write to the client."""

    def answer_finished(self, exchange: Exchange) -> None:
        """Called when the whole answer was written."""

    def close(self) -> None:
        """Close the connection when all written bytes have been sent."""

    def reset(self) -> None:
        """Reset the connection at once."""


def closed_future() -> asyncio.Future[None]:
    """Return a future that has failed with StreamClosedError: the result of a write after the client has gone."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    fail(future)
    return future


def fail(future: asyncio.Future[None]) -> None:
    """Fail the future with StreamClosedError."""
    future.set_exception(StreamClosedError())
    # Marks the exception as retrieved, so that asyncio does not log it when nobody awaits the future.
    future.exception()


@lru_cache(maxsize=256)
def _status_line(status: int, reason: str) -> str:
    """Return the status line, with the header that is the same in all answers."""
    return f"HTTP/1.1 {status} {reason or responses.get(status, 'Unknown')}\r\n{NOSNIFF}"


@lru_cache(maxsize=1)
def http_date(second: int) -> str:
    """Return a Unix timestamp in the form of the Date header."""
    return format_timestamp(second)


def bare_answer(status: HTTPStatus) -> bytes:
    """Return the answer to bytes that are not a valid request: a status without a body. The connection ends with it."""
    lines = (f"Date: {http_date(int(time.time()))}", "Connection: close", "Content-Length: 0", "\r\n")
    return (_status_line(status, "") + "\r\n".join(lines)).encode("ascii")


class Exchange(HTTPConnection):
    """One request and its answer on a connection.

    began_at: when the request began to arrive, by the monotonic clock. head_bytes: the size of its first line and
    headers. has_body: whether a body is announced, even an empty one. is_begun: whether a part of the answer was
    written. is_last: whether the connection ends with this answer, as far as is known.

    _bytes_left: how many bytes of the announced Content-Length were not sent yet."""

    is_begun = _is_chunked = False
    _bytes_left: int | None = None
    _close_callback: Callable[[], None] | None = None

    def __init__(
        self,
        wire: Wire,
        line: RequestStartLine,
        headers: Headers,
        began_at: float,
        head_bytes: int,
        *,
        has_body: bool,
    ) -> None:
        self.context = wire.peer
        self.began_at = began_at
        self.head_bytes = head_bytes
        self.has_body = has_body
        self.is_last = not _is_kept(line, headers)
        self._wire: Wire | None = wire
        self._is_head = line.method == "HEAD"
        self._is_http_1_0 = line.version == "HTTP/1.0"

    def set_close_callback(self, callback: Callable[[], None] | None) -> None:
        """Set the function that is called when the client goes before its answer is finished."""
        self._close_callback = callback

    def write_headers(
        self, start_line: RequestStartLine | ResponseStartLine, headers: HTTPHeaders, chunk: bytes | None = None
    ) -> asyncio.Future[None]:
        """Write the head of the answer, and the chunk.

        Returns a future that is done when the write buffer has room again. It fails with StreamClosedError when the
        client has gone. Raises ValueError for a header with a line break in it, HTTPOutputError for more bytes than
        were announced.
        """
        assert isinstance(start_line, ResponseStartLine)
        if not isinstance(headers, Headers):
            headers = Headers.of(headers)
        if self._wire is None:
            return closed_future()
        head = self._head(start_line, headers)
        self.is_begun = True
        if not chunk:
            return self._wire.send(head)
        if len(chunk) < JOINED_BYTES and not self._is_chunked:
            self._count_sent(chunk)
            return self._wire.send(head + chunk)
        return self._wire.send(head, *self._framed(chunk))

    def write(self, chunk: bytes) -> asyncio.Future[None]:
        """Write a piece of the body. Returns and raises what `write_headers` does."""
        if self._wire is None:
            return closed_future()
        return self._wire.send(*self._framed(chunk))

    def finish(self) -> None:
        """End the answer. Raises HTTPOutputError if it has fewer bytes than were announced."""
        wire, self._wire = self._wire, None
        if wire is None:
            return
        self._close_callback = None
        if self._bytes_left or not self.is_begun:
            wire.reset()
            raise HTTPOutputError(f"the answer is {self._bytes_left} bytes shorter than its Content-Length")
        if self._is_chunked:
            wire.send(b"0\r\n\r\n")
        wire.answer_finished(self)

    def end_after_answer(self) -> None:
        """End the connection with this answer. If the answer has not begun, its head says so."""
        self.is_last = True

    def close(self) -> None:
        """Close the connection when all written bytes have been sent. The rest of the request is not read."""
        if self._wire is not None:
            self._wire.close()

    def reset(self) -> None:
        """Reset the connection, so that the client cannot mistake a partial answer for a whole one."""
        if self._wire is not None:
            self._wire.reset()

    def on_client_gone(self, delegate: HTTPMessageDelegate | None) -> None:
        """Notify the handler that the client has closed the connection. delegate: the handler's, if there is one
        already."""
        closed, self._wire, self._close_callback = self._close_callback, None, None
        if delegate is not None:
            delegate.on_connection_close()
        elif closed is not None:
            closed()

    def _head(self, line: ResponseStartLine, headers: Headers) -> bytes:
        assert self._wire is not None
        status, by_name = line.code, headers.by_name
        if "Connection" in by_name:
            self.is_last = self.is_last or "close" in headers.pop("Connection").lower()
        lines = [f"{name}: {value}\r\n" for name, values in by_name.items() for value in values]
        lines.insert(0, _status_line(status, line.reason))
        length = int(",".join(by_name["Content-Length"])) if "Content-Length" in by_name else None
        if self._is_head or status in BODILESS:
            length = 0
        elif length is None:
            self._is_chunked = not self._is_http_1_0
            self.is_last = self.is_last or self._is_http_1_0
            if self._is_chunked:
                lines.append("Transfer-Encoding: chunked\r\n")
        self._bytes_left = length
        self.is_last = self.is_last or not self._wire.can_drain_body or self._wire.should_close()
        if self.is_last:
            lines.append("Connection: close\r\n")
        elif self._is_http_1_0:
            lines.append("Connection: keep-alive\r\n")
        return _checked(lines)

    def _count_sent(self, chunk: bytes) -> None:
        if self._bytes_left is not None:
            self._bytes_left -= len(chunk)
            if self._bytes_left < 0:
                self.reset()
                raise HTTPOutputError("the answer is longer than its Content-Length")

    def _framed(self, chunk: bytes) -> tuple[bytes, ...]:
        if self._is_chunked:
            # An empty chunk would end the body.
            return (b"%x\r\n" % len(chunk), chunk, b"\r\n") if chunk else ()
        self._count_sent(chunk)
        return (chunk,)


def _is_kept(line: RequestStartLine, headers: Headers) -> bool:
    """Return whether the client asks for a persistent connection."""
    if "Connection" not in headers.by_name:
        return line.version != "HTTP/1.0"
    wish = headers["Connection"].lower()
    return "close" not in wish and (line.version != "HTTP/1.0" or "keep-alive" in wish)


def _checked(lines: list[str]) -> bytes:
    """Return the head as bytes. Raises ValueError for a value with a line break in it, which would inject a header or
    an answer."""
    text = "".join(lines)
    limit = len(lines) + 1
    if text.count("\n") > limit or text.count("\r") > limit or "\0" in text:
        raise ValueError("a header of the answer has a line break in it")
    return f"{text}\r\n".encode("latin-1")
