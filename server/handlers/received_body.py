"""Receives the body of a request, within its limit and within the memory of the worker for all bodies. What comes in:
chunks. What goes out: the body, or an error.

It must not know: documents, the database, handlers.
"""

from __future__ import annotations

import logging

from querybuild.errors import ApiError, release_frames
from server.errors import BodyTooLarge, Overloaded
from server.http.request import Request
from server.http.transport.answering import Exchange
from server.limits.bodies import Bodies

log = logging.getLogger("server")

MAX_CHUNKS = 1024
"""How many chunks of a body are kept before they are joined. A chunk takes 33 bytes more than its content, which may be
a single byte."""


class ReceivedBody:
    """The body of one request. body_bytes: see `server.limits.bodies`. is_refused: whether the rest of it is
    ignored."""

    # A request without a body never sets the following.
    body_bytes = 0
    is_refused = False
    _chunks: list[bytes] = []  # noqa: RUF012 - it is replaced, and never changed while it is empty
    _received_bytes = 0

    def __init__(self, request: Request, request_id: str, max_bytes: int, bodies: Bodies) -> None:
        self._request = request
        self._request_id = request_id
        self._max_bytes = max_bytes
        self._bodies = bodies

    def check_length(self) -> None:
        """Check the announced length before the body arrives. Raises BodyTooLarge, Overloaded."""
        length = self.content_length()
        if length > self._max_bytes:
            raise self._too_large()
        if not self._bodies.has_room(length):
            raise _no_room()

    def add(self, chunk: bytes) -> ApiError | None:
        """Keep a chunk. Returns the error if the body becomes too large."""
        if self.is_refused:
            return None
        self._received_bytes += len(chunk)
        if self._received_bytes > self._max_bytes:
            return self._too_large()
        if not self._bodies.hold(self, len(chunk)):
            return _no_room()
        if self._chunks:
            self._chunks.append(chunk)
            if len(self._chunks) == MAX_CHUNKS:
                self._join_chunks()
        else:
            self._chunks = [chunk]
        return None

    def whole(self) -> bytes:
        """Return the whole body."""
        self._join_chunks()
        return self._chunks[0]

    def take(self) -> bytes:
        """Return the body and forget it, because the decoded document needs memory, too."""
        body, self._chunks = self.whole(), []
        return body

    def refuse(self) -> None:
        """Forget the body, and ignore the rest of it."""
        self.is_refused = True
        self._chunks = []
        self._bodies.release(self)

    @property
    def is_arriving(self) -> bool:
        """Whether the rest of the body is still expected."""
        return not (self._request.has_arrived or self.is_refused)

    def release(self) -> None:
        """Release the memory: the request has ended, or its client has gone."""
        if self.body_bytes:
            self._bodies.release(self)

    def abandon(self) -> None:
        """Release the memory of a request whose client has gone, after its work has ended."""
        if (error := self._request.arrival_error()) is not None:
            release_frames(error)
        self.release()

    def content_length(self) -> int:
        """Return Content-Length in bytes. The connection has refused an invalid one already."""
        lengths = self._request.headers.by_name.get("Content-Length")
        return int(lengths[0]) if lengths else 0

    def evict(self, why: str) -> None:
        """Close the connection at once, and log the reason."""
        log.warning("request %s: closed, %s", self._request_id, why)
        if self.is_arriving:
            self.refuse()
        exchange_of(self._request).close()

    def _too_large(self) -> ApiError:
        return BodyTooLarge(f"A body has at most {self._max_bytes} bytes.")

    def _join_chunks(self) -> None:
        if len(self._chunks) != 1:
            self._chunks = [b"".join(self._chunks)]


def _no_room() -> ApiError:
    return Overloaded("The server has no memory left for the bodies of requests; try again.")


def exchange_of(request: Request) -> Exchange:
    """Return the exchange of a request on its connection."""
    connection = request.connection
    assert isinstance(connection, Exchange)
    return connection
