"""Receives the body of a request, within its limit and within the memory of the worker for all bodies. What comes in:
chunks. What goes out: the body, or an error.

It must not know: documents, the database.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from querybuild.errors import ApiError, release_frames
from server.engine import Engine
from server.errors import BodyTooLarge, Overloaded
from server.http.request import Request
from server.http.transport.answering import Exchange
from server.limits.running import Running
from server.observing.observed import ObservedHandler
from server.routes import Method

log = logging.getLogger("server")

MAX_CHUNKS = 1024
"""How many chunks of a body are kept before they are joined. A chunk takes 33 bytes more than its content, which may be
a single byte."""


class Receiving(ObservedHandler):
    """The base of handlers that read a body. body_bytes: see `server.limits.bodies`."""

    request: Request
    engine: Engine
    answer_error: Callable[[BaseException], None]
    """Sends an exception as an error document."""
    method: Method
    """The row of the route table for the method of the request."""
    # A request without a body never sets the following.
    body_bytes = 0
    _running: Running
    _chunks: list[bytes] = []  # noqa: RUF012 - it is replaced, and never changed while it is empty
    _received_bytes = 0
    _is_refused = False

    def check_length(self) -> None:
        """Check the announced length before the body arrives. Raises BodyTooLarge, Overloaded."""
        length = self.content_length()
        if length > self.engine.settings.max_body_bytes:
            raise self._too_large()
        if not self._running.bodies.has_room(length):
            raise _no_room()

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        """Keep a chunk, or refuse the request if the body becomes too large."""
        self._received_bytes = received = self._received_bytes + len(chunk)
        if self._is_refused or self.method.body is None:
            return None
        if received > self.engine.settings.max_body_bytes:
            self.answer_error(self._too_large())
        elif not self._running.bodies.hold(self, len(chunk)):
            self.answer_error(_no_room())
        elif self._chunks:
            self._chunks.append(chunk)
            if len(self._chunks) == MAX_CHUNKS:
                self._join_chunks()
        else:
            self._chunks = [chunk]
        return None

    @property
    def body(self) -> bytes:
        """The whole body."""
        self._join_chunks()
        return self._chunks[0]

    def take_body(self) -> bytes:
        """Return the body and forget it, because the decoded document needs memory, too."""
        body, self._chunks = self.body, []
        return body

    def drop_body(self) -> None:
        """Forget the body, and ignore the rest of it."""
        self._is_refused = True
        self._chunks = []
        self._running.bodies.release(self)

    @property
    def is_arriving(self) -> bool:
        """Whether the rest of the body is still expected."""
        return not (self.request._body_future.done() or self._is_refused)

    def release(self) -> None:
        """Release the memory of a request whose client has gone, after its work has ended."""
        self.ui: Any = None  # as tornado does when it sends an answer
        arrived = self.request._body_future
        if arrived.done() and not arrived.cancelled() and (error := arrived.exception()) is not None:
            release_frames(error)
        self._running.bodies.release(self)

    def content_length(self) -> int:
        """Return Content-Length in bytes. The connection has refused an invalid one already."""
        lengths = self.request.headers.by_name.get("Content-Length")
        return int(lengths[0]) if lengths else 0

    def evict(self, why: str) -> None:
        """Close the connection at once, and log the reason."""
        log.warning("request %s: closed, %s", self.request_id, why)
        if self.is_arriving:
            self.drop_body()
        self.exchange.close()

    @property
    def exchange(self) -> Exchange:
        """The exchange of this request on its connection."""
        connection = self.request.connection
        assert isinstance(connection, Exchange)
        return connection

    def _too_large(self) -> ApiError:
        return BodyTooLarge(f"A body has at most {self.engine.settings.max_body_bytes} bytes.")

    def _join_chunks(self) -> None:
        if len(self._chunks) != 1:
            self._chunks = [b"".join(self._chunks)]


def _no_room() -> ApiError:
    return Overloaded("The server has no memory left for the bodies of requests; try again.")
