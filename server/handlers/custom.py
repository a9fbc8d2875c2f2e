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
from server.routes import TABLE, Route, Shape


class CustomHandler(Handler):
    """The base of handlers for custom routes. `get`, `post` and the other methods get the groups of the pattern as
    arguments. They may be coroutines.

    body: the bytes of the body. database: its methods `read` and `write` run work on a connection, as the owner: rules
    do not apply, and with `row_security` statements run with the server's own role. engine: it has the catalog and the
    settings. finish_document: sends bytes as a JSON:API document.
    """

    database: Any

    def initialize(self, engine: Engine, database: Database, route: Route | None, running: Running) -> None:
        super().initialize(engine, database, route, running)
        self.database = CustomCodeDatabase(database, self.cancel_scope)

    def client_gone(self) -> None:
        """Do nothing: custom code is not cancelled, because it may do more than answer."""

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


def defined_methods(handler: type[Handler]) -> frozenset[str]:
    """Return the methods that a handler class defines, of those that a custom route may have."""
    return frozenset([row.name for row in TABLE[Shape.CUSTOM] if _is_defined(handler, row.name.lower())])


def _is_defined(handler: type[Handler], name: str) -> bool:
    return getattr(handler, name) is not getattr(RequestHandler, name)
