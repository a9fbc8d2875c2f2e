"""Defines what is recorded of a request: the facts that its handler has.

It must not know: where they are recorded.
"""

from __future__ import annotations

from typing import Any, Protocol

from tornado.httputil import HTTPServerRequest

from server.routes import Route

UNMATCHED = "unmatched"
"""The route label of a path that matches no route."""


class ObservedHandler(Protocol):
    """The facts of a handler that are recorded."""

    is_quiet: bool
    request_id: str
    sent_bytes: int
    span: Any
    stages: list[tuple[str, float]]

    @property
    def request(self) -> HTTPServerRequest: ...

    @property
    def route(self) -> Route | None: ...

    def get_status(self) -> int: ...
