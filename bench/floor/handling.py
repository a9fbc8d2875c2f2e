"""The base of the floor's handlers. It takes the connections, and answers with the media type."""

from __future__ import annotations

from tornado.web import HTTPError, RequestHandler

from bench.floor.connections import Connections, Pooled, Row
from bench.floor.documents import document


class Handler(RequestHandler):
    """The base of the handlers."""

    def initialize(self, connections: Connections | Pooled) -> None:
        self.connections = connections

    def set_default_headers(self) -> None:
        """Set the media type."""
        self.set_header("Content-Type", "application/vnd.api+json")

    def compute_etag(self) -> None:
        """Return a hash of every answer would only cost time."""

    def check_etag_header(self) -> bool:
        """Return False, because there is no ETag to check."""
        return False


class BareHandler(Handler):
    """Only Tornado: a small answer without a database."""

    def get(self) -> None:
        self.finish(document(b"null", b"/bare"))


def found(row: Row | None) -> Row:
    """Return the row. Raises HTTPError, 404, if there is none."""
    if row is None:
        raise HTTPError(404)
    return row
