"""The interface between a connection and the server that owns it, and the address of its client. It must not know: how
requests are read, routes, documents."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from tornado.httputil import HTTPMessageDelegate, RequestStartLine

from server.http.answering import Exchange
from server.http.headers import Headers

if TYPE_CHECKING:
    from server.http.http1 import Connection


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

    def on_connection_lost(self, connection: Connection) -> None:
        """Called when the connection has ended."""

    def on_slow_write(self, size: int) -> None:
        """Called when `size` bytes were written to a client that has not read all bytes before. May end connections."""

    def route(self, exchange: Exchange, line: RequestStartLine, headers: Headers) -> HTTPMessageDelegate:
        """Return the handler for a request. Raises HTTPInputError."""

    def on_refused(self, connection: Connection, status: HTTPStatus, seconds: float) -> None:
        """Called when a request was answered with a bare status. seconds: since the request began to arrive."""
