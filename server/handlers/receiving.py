"""A request's body as it arrives: within its own limit, and within the memory that the worker has for all bodies. What
comes in: pieces. What goes out: the body, or an answer that refuses it.

It must not know: routes, documents, the database.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from querybuild.errors import ApiError, release_frames
from server.engine import Engine
from server.errors import BodyTooLarge, Overloaded
from server.http.request import Request
from server.limits.running import Running
from server.observing.telemetry import ObservedHandler

MOST_CHUNKS = 1024
"""Pieces of a body before they are joined: each takes 33 bytes more than it holds, and may hold a single one."""


class Receiving(ObservedHandler):
    """A handler that reads a body. body_methods: the methods that have one. body_bytes: see `server.limits.bodies`."""

    body_methods: frozenset[str] = frozenset({"POST", "PATCH"})
    request: Request
    engine: Engine
    # What a request without a body never sets.
    body_bytes = 0
    _running: Running
    _chunks: list[bytes] = []  # noqa: RUF012 - it is replaced, and never changed while it is empty
    _received_bytes = 0
    _is_refused = False

    def check_length(self) -> None:
        """Before the body arrives. Raises BodyTooLarge, Overloaded."""
        length = self.content_length()
        if length > self.engine.settings.max_body_bytes:
            raise self._too_large()
        if not self._running.bodies.has_room(length):
            raise _no_room()

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        self._received_bytes = received = self._received_bytes + len(chunk)
        if self._is_refused or self.request.method not in self.body_methods:
            return None
        if received > self.engine.settings.max_body_bytes:
            self.answer_error(self._too_large())
        elif not self._running.bodies.hold(self, len(chunk)):
            self.answer_error(_no_room())
        elif self._chunks:
            self._chunks.append(chunk)
            if len(self._chunks) == MOST_CHUNKS:
                self._join_chunks()
        else:
            self._chunks = [chunk]
        return None

    @property
    def body(self) -> bytes:
        self._join_chunks()
        return self._chunks[0]

    def take_body(self) -> bytes:
        """The body, which is not kept any more: what is made of it needs memory of its own."""
        body, self._chunks = self.body, []
        return body

    def drop_body(self) -> None:
        """What has come is needed no more, and neither is the rest."""
        self._is_refused = True
        self._chunks = []
        self._running.bodies.release(self)

    @property
    def is_arriving(self) -> bool:
        """Whether a body is still awaited, of a request that is not refused."""
        return not (self.request._body_future.done() or self._is_refused)

    def release(self) -> None:
        """Lets go of what a handler holds whose client has gone, once its work has come to an end."""
        self.ui: Any = None  # which tornado itself does with an answer
        arrived = self.request._body_future
        if arrived.done() and not arrived.cancelled() and (error := arrived.exception()) is not None:
            release_frames(error)
        self._running.bodies.release(self)

    def content_length(self) -> int:
        """Bytes, as the header has it: what is no number was refused with a bare 400, before there was a handler."""
        lengths = self.request.headers.by_name.get("Content-Length")
        return int(lengths[0]) if lengths else 0

    def answer_error(self, error: BaseException) -> None:
        raise NotImplementedError

    def evict(self, why: str) -> None:
        raise NotImplementedError

    def _too_large(self) -> ApiError:
        return BodyTooLarge(f"A body has at most {self.engine.settings.max_body_bytes} bytes.")

    def _join_chunks(self) -> None:
        if len(self._chunks) != 1:
            self._chunks = [b"".join(self._chunks)]


def _no_room() -> ApiError:
    return Overloaded("The server holds as much of other requests' bodies as it may; try again.")
