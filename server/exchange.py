"""A request as tornado hands it over, with less on the way. What comes in: a start line and headers. What goes out: a
request whose arguments are parsed where somebody asks for them, and its handler at work.

Nothing here knows a route, a document or the database.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import Any

from tornado.escape import parse_qs_bytes
from tornado.httpserver import HTTPServer
from tornado.httputil import (
    HTTPConnection,
    HTTPHeaders,
    HTTPMessageDelegate,
    HTTPServerRequest,
    RequestStartLine,
    ResponseStartLine,
)
from tornado.routing import Router

FindHandler = Callable[[HTTPServerRequest], HTTPMessageDelegate]
Arguments = dict[str, list[bytes]]


class Request(HTTPServerRequest):
    """tornado's request. The server reads the query as it was sent, so its arguments, which cost 12 microseconds and
    more, are there only for custom code that asks for them."""

    def __init__(
        self, connection: HTTPConnection, server: object, line: RequestStartLine, headers: HTTPHeaders
    ) -> None:
        path, _, query = line.path.partition("?")
        bare = RequestStartLine(line.method, path, line.version)
        super().__init__(connection=connection, server_connection=server, start_line=bare, headers=headers)
        self.uri, self.query = line.path, query
        del self.arguments, self.query_arguments

    @cached_property
    def arguments(self) -> Arguments:  # type: ignore[override]  # tornado's is an attribute
        return self._parsed()

    @cached_property
    def query_arguments(self) -> Arguments:  # type: ignore[override]  # as above
        return self._parsed()

    def _parsed(self) -> Arguments:
        return parse_qs_bytes(self.query, keep_blank_values=True)


class Idle:
    """The connections that wait for a request, or for the rest of its headers, the longest first.

    tornado gives each wait a timer of its own, which costs a twentieth of a small request.
    """

    def __init__(self) -> None:
        self._since: dict[object, tuple[float, HTTPConnection]] = {}

    def add(self, server: object, connection: HTTPConnection) -> None:
        self._since[server] = time.monotonic(), connection

    def discard(self, server: object) -> None:
        self._since.pop(server, None)

    async def sweep(self, limit_seconds: float) -> None:
        """Closes, for ever, what waits longer, give or take a tenth."""
        while True:
            await asyncio.sleep(limit_seconds / 10)
            self._close_before(time.monotonic() - limit_seconds)

    def _close_before(self, moment: float) -> None:
        for since, connection in list(self._since.values()):
            if since > moment:
                return
            closing: Any = connection
            closing.close()


class Exchange(HTTPMessageDelegate):
    """One request and its answer. route: the delegate of the handler that answers.

    A handler with a body to come begins before it arrives. One without begins when all is there, and so runs to its
    first await in one go, where tornado's own way takes three turns of the loop.
    """

    def __init__(self, route: FindHandler, server: object, connection: HTTPConnection, idle: Idle) -> None:
        idle.add(server, connection)
        self._idle = idle
        self._route = route
        self._server = server
        self._connection = connection
        self._handler: HTTPMessageDelegate | None = None
        self._waiting: tuple[HTTPMessageDelegate, RequestStartLine, HTTPHeaders] | None = None

    def headers_received(
        self, start_line: RequestStartLine | ResponseStartLine, headers: HTTPHeaders
    ) -> Awaitable[None] | None:
        assert isinstance(start_line, RequestStartLine)
        self._idle.discard(self._server)
        handler = self._route(Request(self._connection, self._server, start_line, headers))
        if "Content-Length" in headers or "Transfer-Encoding" in headers:
            self._handler = handler
            return handler.headers_received(start_line, headers)
        self._waiting = handler, start_line, headers
        return None

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        assert self._handler is not None
        return self._handler.data_received(chunk)

    def finish(self) -> None:
        if self._waiting is not None:
            self._handler, start_line, headers = self._waiting
            self._handler.headers_received(start_line, headers)
        assert self._handler is not None
        self._handler.finish()

    def on_connection_close(self) -> None:
        if self._handler is not None:
            self._handler.on_connection_close()


class Server(HTTPServer):
    """tornado's, for a router."""

    def initialize(self, router: Router, **options: Any) -> None:  # type: ignore[override]  # of what we give it
        super().initialize(router, **options)
        # Connections that wait are `idle`'s to close.
        self.conn_params.header_timeout = None
        self.idle = Idle()
        self._find_handler: FindHandler = router.find_handler  # type: ignore[assignment]  # every path has one

    def start_request(self, server_conn: object, request_conn: HTTPConnection) -> HTTPMessageDelegate:
        return Exchange(self._find_handler, server_conn, request_conn, self.idle)

    def on_close(self, server_conn: object) -> None:
        super().on_close(server_conn)
        self.idle.discard(server_conn)
