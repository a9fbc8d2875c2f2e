"""Replaces tornado's request, and the delegate that runs its handler, by faster ones. What comes in: a start line and
headers. What goes out: a request whose arguments are parsed on demand, and a running handler.

It must not know: routes, documents, the database.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Protocol

from tornado.escape import parse_qs_bytes
from tornado.httputil import (
    HTTPConnection,
    HTTPHeaders,
    HTTPInputError,
    HTTPMessageDelegate,
    HTTPServerRequest,
    RequestStartLine,
    ResponseStartLine,
)
from tornado.iostream import StreamClosedError
from tornado.web import Application, Finish, HTTPError, RequestHandler

from server.http.headers import Headers
from server.http.target import ASTERISK, read_target, shown_path

MakeRequest = Callable[[HTTPConnection, "Listener", RequestStartLine, Headers], "Request"]
Arguments = dict[str, list[bytes]]

HOST_CHARACTERS = 300
"""The maximum length of a host: more than a DNS name with a port can have."""

UNIX = "unix"
"""The peer address of connections on a Unix socket."""

NO_HOST = "127.0.0.1"
"""The host of a request without one, which HTTP/1.0 allows."""

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|(?:[a-z0-9._~!$&'()*+;=-]|%[0-9a-f]{2})+)(?::([0-9]{0,5}))?")


class Listener(Protocol):
    """The server that received a request. addresses: those that it listens on, without Unix sockets. is_loopback:
    whether it only listens on loopback addresses. False with a Unix socket, because a proxy may use it."""

    addresses: frozenset[IPv4Address | IPv6Address]
    is_loopback: bool


class Request(HTTPServerRequest):
    """Tornado's request, with every documented attribute. It does not call tornado's constructor, which parses and
    copies the query and parses the host each time. Arguments are parsed when custom code reads them.

    uri: the target in origin-form, or `*`. path: as it was sent, until the server replaces it with the canonical path
    (`server/http/target.py`). began_at: when it began to arrive, by the monotonic clock. head_bytes: the size of its
    first line and headers. has_body: whether a body is announced, even an empty one. arrived: is done when all of it
    is there. is_signed_in: whether it has a session that counts. answer_cookies: the headers Set-Cookie of its answer.
    """

    arrived: asyncio.Future[None]
    headers: Headers
    server_connection: Listener
    began_at = 0.0
    head_bytes = 0
    has_body = False
    is_signed_in = False
    answer_cookies: Sequence[str] = ()

    def __init__(self, connection: HTTPConnection, server: Listener, line: RequestStartLine, headers: Headers) -> None:
        """Raises HTTPInputError."""
        self.method, self.uri, self.version = line
        self.headers = headers
        if "Host" in headers.by_name:
            self.host = headers["Host"]
        else:
            if line.version != "HTTP/1.0":
                raise HTTPInputError("there is no host") from None
            self.host = NO_HOST
        self.host_name = host_name(self.host)
        if not line.path.startswith("/"):
            self._read_target(line)
        self.path, _, self.query = self.uri.partition("?")
        context: Any = connection.context  # type: ignore[attr-defined]  # which every connection of ours has
        self.remote_ip, self.protocol = context.remote_ip, context.protocol
        self.connection = connection
        self.server_connection = server
        self.body = b""
        self.files = {}
        self.body_arguments = {}
        self._start_time = time.monotonic()
        self._finish_time = None

    def _read_target(self, line: RequestStartLine) -> None:
        """Read another target than a path. The authority of an absolute-form replaces Host (RFC 9112, 3.2.2). Raises
        HTTPInputError."""
        try:
            authority, self.uri = read_target(line.path)
        except ValueError as error:
            raise HTTPInputError(str(error)) from None
        if self.uri == ASTERISK and line.method != "OPTIONS":
            raise HTTPInputError("only OPTIONS asks about the whole server")
        if authority is not None:
            self.host = self.headers["Host"] = authority
            self.host_name = host_name(authority)

    @property
    def sent_path(self) -> str:
        """The path as it was sent, in visible ASCII, for logs."""
        return shown_path((self.uri or "").partition("?")[0])

    @property
    def has_arrived(self) -> bool:
        """Whether all of it has arrived, or nothing more will."""
        return self.arrived.done()

    def arrival_error(self) -> BaseException | None:
        """Return why the rest of it will not arrive, if that is known."""
        arrived = self.arrived
        return arrived.exception() if arrived.done() and not arrived.cancelled() else None

    def request_time(self) -> float:
        """Return the seconds since the request was created. Tornado uses the wall clock. If it were set back, a sum of
        durations could decrease."""
        return time.monotonic() - self._start_time

    @cached_property
    def arguments(self) -> Arguments:  # type: ignore[override]  # tornado's is an attribute
        return self._parsed()

    @cached_property
    def query_arguments(self) -> Arguments:  # type: ignore[override]  # as above
        return self._parsed()

    def _parsed(self) -> Arguments:
        return parse_qs_bytes(self.query, keep_blank_values=True)


@lru_cache(maxsize=128)
def host_name(host: str) -> str:
    """Return the host without its port, in one spelling. Raises HTTPInputError.

    >>> host_name("API.example.org.:8080"), host_name("[0::1]"), host_name("[::ffff:127.0.0.1]:80")
    ('api.example.org', '[::1]', '127.0.0.1')
    """
    match = _HOST.fullmatch(host.lower()) if len(host) <= HOST_CHARACTERS else None
    name = "" if match is None else match[1].removesuffix(".")
    if match is None or not name or int(match[2] or 0) > 65_535:
        raise HTTPInputError("an invalid host")
    return _address_name(name[1:-1]) if name.startswith("[") else name


def _address_name(text: str) -> str:
    try:
        address = IPv6Address(text)
    except ValueError:
        raise HTTPInputError("an invalid host") from None
    return f"[{address}]" if address.ipv4_mapped is None else str(address.ipv4_mapped)


class HandlerReady(asyncio.Future[None]):
    """Is done when a handler is ready for the body. It then calls `then` at once, so that a body that has arrived is
    read before the handler waits for it. A callback would take two turns of the loop."""

    then: Callable[[asyncio.Future[None]], None] | None = None

    def set_result(self, result: None) -> None:
        super().set_result(result)
        if self.then is not None:
            self.then(self)


class HandlerDelegate(HTTPMessageDelegate):
    """Runs a handler that reads its body as a stream, for one request. It does what tornado's delegate and its
    `_execute` do, without the parts that other handlers need. It calls the handler's `body_arrived` when all of the
    body is there, and its `release` when the client has gone and the handler has ended.

    A request without a body runs to its first await at once.
    """

    def __init__(
        self,
        application: Application,
        request: Request,
        handler: type[RequestHandler],
        context: dict[str, Any],
        arguments: Sequence[bytes],
    ) -> None:
        """context: for `initialize`. arguments: for the method."""
        self._application = application
        self._request = request
        self._class = handler
        self._context = context
        self._arguments = arguments
        self._handler: Any = None
        self._task: asyncio.Task[None] | None = None

    def headers_received(
        self, start_line: RequestStartLine | ResponseStartLine, headers: HTTPHeaders
    ) -> HandlerReady | None:
        """Start the handler. Returns a future that is done when the handler is ready for the body, if one is
        announced."""
        request, loop = self._request, asyncio.get_running_loop()
        request.arrived = loop.create_future()
        self._handler = handler = self._class(self._application, request, **self._context)
        ready = HandlerReady(loop=loop) if request.has_body else None
        if ready is None:
            request.arrived.set_result(None)
        handler._transforms = [transform(request) for transform in self._application.transforms]
        self._task = loop.create_task(self._run(handler, ready))
        return ready

    async def _run(self, handler: Any, ready: HandlerReady | None) -> None:
        """Run the handler. Every exception is answered, and only the cancellation of the task itself goes on."""
        request = self._request
        try:
            if request.method not in handler.SUPPORTED_METHODS:
                raise HTTPError(405)
            handler.path_args = list(map(handler.decode_argument, self._arguments))
            if (prepared := handler.prepare()) is not None:
                await prepared
            if ready is not None:
                ready.set_result(None)
            if handler._finished or not (ready is None or await self._has_arrived()):
                return
            answered = getattr(handler, request.method.lower())(*handler.path_args)
            if answered is not None:
                await answered
            if handler._auto_finish and not handler._finished:
                handler.finish()
        except (Exception, asyncio.CancelledError) as error:
            _answer_error(handler, error)
            if _is_cancelled(error):
                raise
        finally:
            if ready is not None and not ready.done():
                ready.set_result(None)

    async def _has_arrived(self) -> bool:
        """Wait for the body. Returns whether it has arrived."""
        try:
            await self._request.arrived
        except StreamClosedError:
            return False
        return True

    def data_received(self, chunk: bytes) -> Any:
        return self._handler.data_received(chunk)

    def finish(self) -> None:
        if not self._request.arrived.done():
            self._request.arrived.set_result(None)
            self._handler.body_arrived()

    def on_connection_close(self) -> None:
        arrived = self._request.arrived
        if not arrived.done():
            arrived.set_exception(StreamClosedError())
            # If nobody waits for it any more, asyncio would log it.
            arrived.exception()
        # There is no handler if its constructor failed.
        if self._handler is not None:
            self._handler.on_connection_close()
        if self._task is not None:
            self._task.add_done_callback(self._release)

    def _release(self, _: asyncio.Task[None]) -> None:
        self._handler.release()


def _answer_error(handler: Any, error: BaseException) -> None:
    """Answer what a handler has raised. If it has answered already, there is nothing to say."""
    if handler._finished:
        return
    if isinstance(error, Finish):
        handler.finish(*error.args)
    else:
        status = error.status_code if isinstance(error, HTTPError) else 500
        handler.send_error(status, exc_info=(type(error), error, error.__traceback__))


def _is_cancelled(error: BaseException) -> bool:
    """Return whether the task itself was cancelled, and not what it was waiting for."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
