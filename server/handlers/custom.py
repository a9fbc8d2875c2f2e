"""Defines the base of custom routes: handlers of the user for the patterns in `ROUTES`. An exception that such a
handler raises becomes an error document, as elsewhere.
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
    """The base of handlers for custom routes. `get`, `post` and the other methods get the groups of the pattern as
    arguments. They may be coroutines.

    body: the bytes of the body. database: its methods `read` and `write` run work on a connection. engine: it has the
    catalog and the settings. finish_document: sends bytes as a JSON:API document.
    """

    body_methods = frozenset(METHODS[1:])
    database: Any

    def initialize(self, engine: Engine, database: Database, route: Route | None, running: Running) -> None:
        super().initialize(engine, database, route, running)
        self.database = CustomCodeDatabase(database, self.cancel_scope)

    def client_gone(self) -> None:
        """Do nothing: custom code is not cancelled, because it may do more than answer."""

    def allowed(self) -> tuple[str, ...]:
        """Return the methods that the class defines."""
        own = [method for method in METHODS if getattr(type(self), method.lower()) is not _inherited(method)]
        return tuple(own)

    def check_media_type(self) -> None:
        """Accept any media type."""

    def finish(self, chunk: str | bytes | dict[str, Any] | None = None) -> asyncio.Future[None]:
        """Finish the answer. A large one may be compressed while other requests are answered."""
        if self.engine.settings.compression == "off" or self._headers_written:
            return super().finish(chunk)
        if chunk is not None:
            self.write(chunk)
        body = b"".join(self._write_buffer)
        if len(body) <= INLINE_BYTES or not self.should_compress():
            return super().finish()
        self._write_buffer = []
        return self.compress_and_finish(body)


def _inherited(method: str) -> object:
    return getattr(RequestHandler, method.lower())
