"""What a connection is told by the server around it: whose it is, and who has it. It must not know: how requests are
read, routes, documents."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from tornado.httputil import HTTPHeaders, HTTPMessageDelegate, RequestStartLine

from server.http.answering import Exchange

if TYPE_CHECKING:
    from server.http.http1 import Connection


class Peer(msgspec.Struct, frozen=True):
    """Whose connection it is, as tornado's requests ask for it."""

    remote_ip: str
    address: Any
    address_family: int
    protocol: str = "http"


class Host(Protocol):
    """Who has the connections. head_bytes: the longest request line with headers. is_ending: whether an answer that
    begins is the last of its connection. spare: how many of the next ones are, where it is not."""

    head_bytes: int
    is_ending: bool
    spare: int

    def leaves(self, connection: Connection) -> None: ...

    def writes_late(self, size: int) -> None:
        """So many bytes were written to a client that has not taken all that were. It may end connections."""

    def route(self, exchange: Exchange, line: RequestStartLine, headers: HTTPHeaders) -> HTTPMessageDelegate:
        """The handler that answers. Raises HTTPInputError."""

    def refused(self, connection: Connection, status: HTTPStatus, seconds: float) -> None:
        """A bare status was the answer. seconds: since the request began to arrive."""
