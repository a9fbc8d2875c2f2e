"""What the handlers of the floor have in common. In: the connections. Out: answers with the media type."""

from __future__ import annotations

from tornado.web import HTTPError, RequestHandler

from bench.floor.connections import Connections, Pooled, Row
from bench.floor.documents import document


class Handler(RequestHandler):
    def initialize(self, connections: Connections | Pooled) -> None:
        self.connections = connections

    def set_default_headers(self) -> None:
        self.set_header("Content-Type", "application/vnd.api+json")

    def compute_etag(self) -> None:
        """A hash of every answer would only cost time."""

    def check_etag_header(self) -> bool:
        """There is none to look for."""
        return False


class BareHandler(Handler):
    """Tornado alone: a small answer without a database."""

    def get(self) -> None:
        self.finish(document(b"null", b"/bare"))


def found(row: Row | None) -> Row:
    """Raises HTTPError, 404, where there is no such row."""
    if row is None:
        raise HTTPError(404)
    return row
