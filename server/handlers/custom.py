"""Defines the base of custom routes: handlers of the user for the patterns in `ROUTES`. An exception that such a
handler raises becomes an error document, as elsewhere.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

import msgspec
from tornado.web import RequestHandler

from querybuild.errors import Errors, raise_all, resource_not_found
from querybuild.planning.context import Context, check_method
from querybuild.principal import Principal
from querybuild.query import Change, VersionMatch
from serializers.json_api import JSON_API
from serializers.tags import read_match
from server.engine import Engine
from server.errors import InvalidTag, TooManyRows
from server.execution.arguments import arguments_of, read_id
from server.execution.execute import execute_read, execute_short
from server.execution.writes.answers import Ids
from server.execution.writes.writer import Writer
from server.handlers.auditing import Target, check_audit, record_written, with_ids
from server.handlers.base import Handler
from server.handlers.pipeline import door_of
from server.handlers.reading import page_meta
from server.handlers.write_checks import check_writable
from server.http.compression import INLINE_BYTES
from server.limits.running import Running
from server.postgres.custom_code import CustomCodeDatabase
from server.postgres.database import Database
from server.postgres.row_security.roles import translate_refusals
from server.preparing.reads import ReadShape
from server.preparing.writes import PreparedWrite
from server.routes import ON_MANY, ON_ONE, TABLE, Route, Shape


class CustomHandler(Handler):
    """The base of handlers for custom routes. `get`, `post` and the other methods get the groups of the pattern as
    arguments. They may be coroutines.

    body: the bytes of the body. principal: who sends the request. read, write: read and write resources as the
    principal may. database: its methods `read` and `write` run work on a connection, as the owner: rules do not apply,
    and with `row_security` statements run with the server's own role. engine: it has the catalog and the settings.
    send: adds a part of the answer. finish_document: sends bytes as a JSON:API document.
    openapi: the paths of the route in the OpenAPI document, `{"/reports/{year}": {"get": {...}}}`. Without it the
    document does not contain the route.
    """

    __init__ = RequestHandler.__init__  # it offers tornado's templates, too
    has_pages = False
    database: Any
    openapi: Mapping[str, Any] = {}
    _context: Context | None = None

    @property
    def context(self) -> Context:
        """What the principal may do. If a `prepare` of the user has not found out who asks, this is what everybody may
        do."""
        if self._context is None:
            self._context = self.engine.context_of(self.principal)
        return self._context

    @context.setter
    def context(self, context: Context) -> None:
        self._context = context

    @property
    def principal(self) -> Principal:
        """Who sends the request."""
        return self.sender.principal

    @property
    def body(self) -> bytes:
        """The bytes of the body."""
        return self.received.whole()

    def initialize(self, engine: Engine, database: Database, route: Route | None, running: Running) -> None:
        super().initialize(engine, database, route, running)
        self.database = CustomCodeDatabase(database, self.cancel_scope, door_of(self.request.method))

    async def read(self, type_name: str, query: str = "", *, id: str | None = None) -> dict[str, Any]:
        """Return the document of a collection, or of the resource with this id, as a GET of the principal would have
        it, without links. query: the query string, such as `filter[name]=auk&page[size]=100`.

        Raises what becomes the answer of such a GET: Forbidden, ResourceNotFound, ParameterError and others."""
        resource = self.catalog.by_type[type_name]
        shape = ReadShape(
            "collection" if id is None else "resource", resource, accepts=ON_MANY if id is None else ON_ONE
        )
        self.engine.reads.check(shape, self.context)
        prepared = self.engine.reads.prepare(shape, query, self.context)
        sent = arguments_of(prepared, self.context, None if id is None else read_id(resource, id))
        database = self.database.acting_for(self.context.principal, "read")
        execute = translate_refusals(database.role, execute_short if prepared.may_be_streamed else execute_read)
        result = await self.cancel_scope.run(execute(database, prepared, sent, self.engine))
        if result is None:
            raise TooManyRows("There are too many rows for one read: read pages.")
        if id is not None and not result.rows[0]:
            raise resource_not_found(type_name, id)
        meta = None if id is not None else page_meta(prepared.page, len(result.rows[0]), result.total)
        document: dict[str, Any] = json.loads(prepared.ready.encoders.of(JSON_API).encode(result.rows, {}, meta))
        return document

    def write(  # type: ignore[override]  # see `send`
        self, changes: Change | Sequence[Change], *, match: str | Sequence[str] | None = None
    ) -> Awaitable[list[str]]:
        """Write resources as the principal may, all or none: `ids = await self.write([Change(...)])`. match: what the
        version of each updated or deleted resource must be: the value of a header If-Match, such as `"7"` or `*`, or a
        version.

        Raises what becomes the answer of such a write: Forbidden, ResourceNotFound, AttributeFault, PreconditionFailed
        and others; TypeError for anything but changes."""
        listed = [changes] if isinstance(changes, Change) else list(changes)
        if any(not isinstance(change, Change) for change in listed):
            raise TypeError("`write` takes changes of resources: answer with `finish`, or with `send` in parts")
        if match is not None:
            listed = [_matched(change, match) for change in listed]
        return self._write_resources(listed)

    def send(self, chunk: str | bytes | dict[str, Any]) -> None:
        """Add a part of the answer. In other handlers of Tornado this method is `write`."""
        super().write(chunk)

    async def _write_resources(self, changes: Sequence[Change]) -> list[str]:
        # The method of the request may be that of a read.
        check_writable(self.engine)
        errors, writes = Errors(), list[PreparedWrite]()
        for change in changes:
            resource = self.catalog.by_type[change.type or ""]
            check_method(resource, change.kind)
            writes.append(self.engine.writes.prepare(resource, change, self.context, errors))
        raise_all(errors)
        database, audit = self.database.acting_for(self.context.principal, "write"), self.telemetry.audit
        check_audit(audit)
        targets = [Target(change.kind, change.type, change.id) for change in changes]
        on_commit = None if audit is None else lambda ids: record_written(self, with_ids(targets, ids))
        writer = Writer(database, self.engine, self.context, self.request.headers, self.cancel_scope, on_commit)
        ids = await translate_refusals(database.role, writer.run)(writes, Ids())
        return [str(row_id) for row_id in ids]

    def release(self) -> None:
        self.ui: Any = None  # as tornado does when it sends an answer
        super().release()

    def client_gone(self) -> None:
        """Do nothing: custom code is not cancelled, because it may do more than answer."""

    def finish(self, chunk: str | bytes | dict[str, Any] | None = None) -> asyncio.Future[None]:
        """Finish the answer. A large one may be compressed while other requests are answered."""
        if chunk is not None:
            self.send(chunk)
        if self.engine.settings.compression == "off" or self._headers_written:
            return super().finish()
        body = b"".join(self._write_buffer)
        if len(body) <= INLINE_BYTES or not self.should_compress():
            return super().finish()
        self._write_buffer = []
        return self.compress_and_finish(body)


def _matched(change: Change, match: str | Sequence[str]) -> Change:
    """Return the change with the version that it demands. Raises InvalidTag."""
    try:
        versions = read_match(match).versions
    except ValueError:
        raise InvalidTag('A version, or tags in double quotes, are expected: "7".', header="If-Match") from None
    return change if change.kind == "create" else msgspec.structs.replace(change, match=VersionMatch(versions))


def defined_methods(handler: type[Handler]) -> frozenset[str]:
    """Return the methods that a handler class defines, of those that a custom route may have."""
    return frozenset([row.name for row in TABLE[Shape.CUSTOM] if _is_defined(handler, row.name.lower())])


def _is_defined(handler: type[Handler], name: str) -> bool:
    return getattr(handler, name) is not getattr(RequestHandler, name)
