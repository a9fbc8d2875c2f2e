"""Routes of a user's own. What comes in: a request that one of the patterns in `ROUTES` matches. What goes out: what
the user's handler answers; what it raises is an error document like any other.
"""

from __future__ import annotations

import asyncio
from typing import Any

from tornado.web import RequestHandler

from server.engine import Engine
from server.handlers.base import Handler
from server.http.compression import INLINE_BYTES
from server.limits.running import Running
from server.postgres.custom_code import CustomCodeDatabase
from server.postgres.database import Database
from server.routes import Route

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


class CustomHandler(Handler):
    """The base of a user's own handlers. Groups of the pattern are the arguments of `get`, `post` and the rest, which
    may be coroutines.

    body: the bytes of the request's body. database: its `read` and `write` run work on a connection. engine: the
    catalogue and the settings. finish_document: sends bytes as a JSON:API document.
    """

    body_methods = frozenset(METHODS[1:])
    database: Any

    def initialize(self, engine: Engine, database: Database, route: Route | None, running: Running) -> None:
        super().initialize(engine, database, route, running)
        self.database = CustomCodeDatabase(database, self.cancel_scope)

    def client_gone(self) -> None:
        """Custom code is not ended in the middle: it may have more to do than to answer."""

    def allowed(self) -> tuple[str, ...]:
        """The methods that the class defines."""
        own = [method for method in METHODS if getattr(type(self), method.lower()) is not _none_of(method)]
        return tuple(own)

    def check_media_type(self) -> None:
        """A body may be of any media type."""

    def finish(self, chunk: str | bytes | dict[str, Any] | None = None) -> asyncio.Future[None]:
        """tornado's, for which nobody waits where the answer is large and compressed."""
        if self.engine.settings.compression == "off" or self._headers_written:
            return super().finish(chunk)
        if chunk is not None:
            self.write(chunk)
        body = b"".join(self._write_buffer)
        if len(body) <= INLINE_BYTES or not self.should_compress():
            return super().finish()
        self._write_buffer = []
        return self.pack_and_finish(body)


def _none_of(method: str) -> object:
    return getattr(RequestHandler, method.lower())
