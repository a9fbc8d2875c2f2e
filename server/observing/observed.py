"""Defines what is recorded of a request: the facts that its handler has.

It must not know: where they are recorded.
"""

from __future__ import annotations

from typing import Any

from tornado.web import RequestHandler

from server.routes import Route

UNMATCHED = "unmatched"
"""The route label of a path that matches no route."""


class ObservedHandler(RequestHandler):
    """A handler with the facts that are recorded. stages: each with its begin, by time.perf_counter. sent_bytes: of the
    body. is_quiet: whether the access log has this request only at level debug."""

    is_quiet = False
    route: Route | None
    request_id: str
    stages: list[tuple[str, float]]
    sent_bytes = 0
    span: Any = None
