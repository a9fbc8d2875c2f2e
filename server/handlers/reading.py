"""Answers reads on all routes. What comes in: a shape and the id of the path. What goes out: a document, whole or as a
stream."""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar
from urllib.parse import unquote

import msgspec
from tornado.iostream import StreamClosedError

from querybuild.errors import SHOWN_CHARACTERS, ApiError, resource_not_found
from querybuild.planning.context import refused_action
from querybuild.planning.reads.labels import label_of
from querybuild.planning.rows import Row
from querybuild.query import Page
from serializers.encode import Document, DocumentEncoder
from serializers.errors import AnswerTooLarge
from serializers.groups import encode_groups
from serializers.links import cursor_links, page_count, page_links, quote_segment, with_query
from serializers.objects import Meta
from serializers.steps import ALONE, SHARED, Pace, Steps, release_rows
from serializers.tags import entity_tag, tag_of_pieces
from server.errors import StatementTimeout, TooManyStreams
from server.execution.arguments import Arguments, arguments_of
from server.execution.execute import ReadResult, cursors, execute_read, raise_impossible, read_first
from server.execution.pacing import run_steps
from server.execution.streams import Stream
from server.execution.versions import is_whole, read_linkage_version, shown_version
from server.execution.writes.reply import Reply
from server.handlers.base import Handler
from server.handlers.conditional import ends_with_tag
from server.handlers.pages.answering import asked_of, finish_page
from server.handlers.pages.reads import list_page, resource_page
from server.handlers.pipeline import run_stages
from server.handlers.received_body import exchange_of
from server.http import compression
from server.http.negotiation import HTML, JSON_API, add_vary, asked_type
from server.http.preferences import COST, PREFER, PREFERENCE_APPLIED, wants_cost
from server.limits.running import ClientGone
from server.observing.logs import one_line
from server.postgres.connection import PostgresConnection
from server.postgres.database import Door
from server.postgres.driver_errors import OF_ROWS
from server.postgres.sharing.stream_slots import StreamReader
from server.postgres.sharing.stream_turn import StreamTurn
from server.preparing.reads import PreparedRead, ReadShape
from server.routes import ON_ONE, QUERY, WRITES, route_not_found

log = logging.getLogger("server")

Result = TypeVar("Result")

PAUSE_SECONDS = 0.005
"""How long a stream pauses after each piece if other requests are in progress. A piece takes less than half of this
time."""


class Reading(msgspec.Struct, frozen=True, eq=False):
    """A read of this request. sent: the values for its statements. links: returns the links of the document besides
    `self` and the pages."""

    shape: ReadShape
    prepared: PreparedRead
    sent: Arguments
    links: Callable[[], dict[str, str]] = dict


class ReadingHandler(Handler):
    """The base of handlers that read."""

    _gzip_stream: compression.GzipStream | None = None
    _reader: StreamReader

    async def query(self, *arguments: Any) -> None:
        """Answer like GET, with the parameters of the body."""
        # As those of a URL arrive.
        self.request.query = self.received.take().decode("latin-1")
        answered = self.get(*arguments)
        if inspect.isawaitable(answered):
            await answered

    async def answer_read(self, shape: ReadShape, links: Callable[[], dict[str, str]] = dict) -> None:
        """Answer a GET with a document or a stream. links: as for `Reading`."""
        if self.context.access.refused:
            self.engine.reads.check(shape, self.context)
        if (form := self.answer_type.form) != shape.form:
            shape = msgspec.structs.replace(shape, form=form)
        await run_stages(
            self,
            lambda _: None if shape.kind == "collection" else self.path_id(shape.resource),
            lambda path_id, _: self._plan_read(shape, path_id, links),
            self._execute_read,
            self._encode_read,
        )

    def _plan_read(self, shape: ReadShape, path_id: Any, links: Callable[[], dict[str, str]]) -> Reading:
        prepared = self.engine.reads.prepare(shape, self.request.query, self.context)
        return Reading(shape, prepared, arguments_of(prepared, self.context, path_id), links)

    async def _execute_read(self, reading: Reading) -> ReadResult | None:
        """Return the rows. None: they are many, and have been sent in a stream."""
        prepared = reading.prepared
        if prepared.is_long:
            self._running.expect_long(self.sender)
        if prepared.may_be_streamed:
            return await self._read_all(reading)
        try:
            result = await self.cancel_scope.run(execute_read(self.database, prepared, reading.sent, self.engine))
            if prepared.plan.is_linkage and not is_whole(prepared, result):
                result = await self.cancel_scope.run(self._read_with_version(reading))
        except AnswerTooLarge as error:
            error.parameter = _parameter_to_reduce(prepared)
            raise
        return result

    async def _read_with_version(self, reading: Reading) -> ReadResult:
        """Read linkage with the version of all of it. The version is read first: a tag may be older than the rows, but
        a newer one would let a client replace links that it has not seen."""
        path_id, linkage = reading.sent.path, self.engine.reads.prepare_linkage(reading.shape, self.context)
        version = await self.database.read(
            lambda connection: read_linkage_version(connection, linkage, self.context, path_id), is_snapshot=False
        )
        result = await execute_read(self.database, reading.prepared, reading.sent, self.engine)
        return msgspec.structs.replace(result, linkage_version=version)

    async def _encode_read(self, reading: Reading, result: ReadResult | None, *, parent: str | None = None) -> None:
        """Send the document of a read. parent: as for `document`."""
        prepared = reading.prepared
        if result is None:
            await self._end_stream()
            return
        if reading.shape.kind == "resource" and not result.rows[0]:
            assert self.route is not None
            raise resource_not_found(reading.shape.resource.type, self.route.id)
        if self.answer_type is HTML:
            await self._finish_read_page(reading, result, parent)
            return
        try:
            pace = ALONE if result.count <= SHARED.short_rows else await self._long_pace()
            # The rows of a list without pages are limited already.
            most = sys.maxsize if prepared.may_be_streamed else self.engine.settings.max_answer_bytes
            document = self.document(prepared, result, reading.links(), None, parent, most, pace)
            pieces = None if isinstance(document, bytes) else await self._run_steps(document)
        except AnswerTooLarge as error:
            error.parameter = _parameter_to_reduce(prepared)
            raise
        self._tell_of_answer()
        version = shown_version(prepared, result)
        has_tag = version is not None or not prepared.plan.is_linkage
        if pieces is not None:
            etag = await self._run_steps(tag_of_pieces(version, pieces)) if has_tag else ""
            if not (etag and ends_with_tag(self, etag, version, sum(map(len, pieces)))):
                await self.finish_pieces(pieces)
            await run_steps(release_rows(result.rows, pace.step_rows), self._is_waited_for)
        elif isinstance(document, bytes):
            etag = entity_tag(version, document) if has_tag else ""
            if not (etag and ends_with_tag(self, etag, version, len(document))):
                self.finish_document(document)

    async def _finish_read_page(self, reading: Reading, result: ReadResult, parent: str | None) -> None:
        """Send the page of a read."""
        prepared, shape = reading.prepared, reading.shape
        _, links, meta = self._described(prepared, result, reading.links(), None, parent)
        resource = shape.resource if shape.relationship is None else self.catalog.target(shape.relationship)
        asked, view = asked_of(self, resource, await self._owner_label()), prepared.ready.encoders.view
        if prepared.plan.is_collection:
            finish_page(self, list_page(asked, view, prepared, result, links, meta or Meta()))
        else:
            finish_page(self, resource_page(asked, view, result.rows))

    async def _owner_label(self) -> str:
        """Return the label of the resource in the path of related resources and linkage. Empty on other routes, without
        a label, and if the principal may not read that resource itself."""
        if self.route is None or self.route.relationship is None:
            return ""
        owner = self.resource
        may_read = "detail" in owner.methods and refused_action(owner, "read", self.context) is None
        if not may_read or label_of(owner) is None:
            return ""
        shape = ReadShape("resource", owner, accepts=ON_ONE, form="page")
        prepared, result = await self.read_besides(shape, f"fields[{quote_segment(owner.type)}]=")
        return prepared.ready.encoders.view.heading(result.rows[0][0]) if result.rows[0] else ""

    async def read_besides(
        self, shape: ReadShape, query: str, *, door: Door = "read"
    ) -> tuple[PreparedRead, ReadResult]:
        """Read for a page, as the principal, what the request itself does not ask for. query: of the read."""
        prepared = self.engine.reads.prepare(shape, query, self.context)
        path_id = None if shape.kind == "collection" else self.path_id(shape.resource)
        sent = arguments_of(prepared, self.context, path_id)
        database = self.database.acting_for(self.context.principal, door)
        return prepared, await self.cancel_scope.run(execute_read(database, prepared, sent, self.engine))

    def _tell_of_answer(self) -> None:
        """Set the headers that say how the document is represented, and for whom it may be kept."""
        self.tell_caches()
        if self.answer_type is not JSON_API:
            self._tell_of_lines()
        if self._shows_cost():
            add_vary(self._headers, PREFER)
            self.set_header(PREFERENCE_APPLIED, COST)

    def _tell_of_lines(self) -> None:
        """Set the media type of an answer with lines, and the name of its file if a link has asked for it."""
        self.set_header("Content-Type", self.answer_type.content_type or self.answer_type.name)
        if asked_type(self.request.query, self.method.answers) is not None:
            name = unquote(self.self_path()).rpartition("/")[2]
            safe = "".join(
                [letter if letter.isascii() and (letter.isalnum() or letter in "-_.") else "_" for letter in name]
            )
            self.set_header("Content-Disposition", f'attachment; filename="{safe}.{self.answer_type.ending}"')

    async def _long_pace(self) -> Pace:
        """Return how long the steps of a long answer may take. If other requests have short answers, those that have
        arrived meanwhile are counted first. Among long answers only, this turn of the loop costs 5 % of the time."""
        self._running.expect_long(self.sender)
        if self._running.had_short():
            await self.cancel_scope.run(asyncio.sleep(0))
        return SHARED if self._running.has_short else ALONE

    async def _run_steps(self, steps: Steps[Result]) -> Result:
        """Run steps that end if the client goes."""
        return await self.cancel_scope.run(run_steps(steps, self._is_waited_for))

    def _is_waited_for(self) -> bool:
        return self._running.has_short

    async def _read_all(self, reading: Reading) -> ReadResult | None:
        """Read a list without pages. If it is long, read and send it in pieces, and return None."""
        prepared, sent, engine = reading.prepared, reading.sent, self.engine

        async def work(connection: PostgresConnection, turn: StreamTurn) -> ReadResult | None:
            try:
                rows: Sequence[Row] = ()
                if not turn.is_long:
                    parts = await read_first(connection, prepared, sent, engine)
                    if isinstance(parts, ReadResult):
                        return parts
                    rows = parts
                await turn.begin(connection)
                self._running.streams += not self.is_stream
                self.is_stream = True
                stream = engine.reads.prepare_stream(prepared, self.answer_type.representation)
                await self._send_stream(Stream(connection, stream, sent, engine, rows), reading)
            except OF_ROWS as error:
                raise_impossible(error, prepared)
            return None

        self._reader = StreamReader(self.sender.client, partial(self.cancel_scope.cancel_with, _reader_too_slow))
        try:
            done = self.database.read_all(
                work,
                self._reader,
                is_begun=lambda: self._headers_written,
                # The resource of the path of an empty list is looked for by another statement.
                is_single_statement=prepared.ready.is_single_statement and prepared.plan.scope is None,
                timeout_seconds=engine.reads.timeout_of(prepared),
            )
            return await self.cancel_scope.run(self._with_timeout(done))
        except ClientGone:
            raise
        except Exception as error:
            if self._headers_written:
                self._abort_stream(error)
            raise
        finally:
            self._running.streams -= self.is_stream

    async def _with_timeout(self, work: Awaitable[Result]) -> Result:
        try:
            async with asyncio.timeout(self.engine.settings.stream_seconds):
                return await work
        except TimeoutError as error:
            raise StatementTimeout("The answer took too long: request pages.") from error

    async def _send_stream(self, stream: Stream, reading: Reading) -> None:
        first = await stream.begin()
        self._begin_stream()
        await self._send(first)
        if self.request.method != "HEAD":
            await stream.send_rest(self._send)
            await self._send(self._stream_tail(stream, reading))

    def _begin_stream(self) -> None:
        self.set_status(200)
        self.set_server_timing()
        self._tell_of_answer()
        self._gzip_stream = compression.GzipStream() if self.should_compress() else None

    async def _send(self, piece: bytes) -> None:
        """Send a piece and wait until the client or the buffers on the way have accepted it (backpressure)."""
        if not piece:
            return
        self.write(piece if self._gzip_stream is None else await self._gzip_stream.pack(piece))
        self._reader.since = time.monotonic()
        try:
            await self.flush()
        except StreamClosedError:
            raise ClientGone from None
        finally:
            self._reader.since = None
        if self._running.has_short:
            await self._pause()

    async def _pause(self) -> None:
        await asyncio.sleep(PAUSE_SECONDS)

    async def _end_stream(self) -> None:
        with suppress(StreamClosedError):
            await self.finish(None if self._gzip_stream is None else self._gzip_stream.end())

    def _abort_stream(self, error: Exception) -> None:
        """Reset the connection, so that the client notices the end. Without a reset HTTP/1.0 has no sign of it."""
        exchange_of(self.request).reset()
        path, is_answer = self.request.path, isinstance(error, ApiError)
        log.log(
            logging.WARNING if is_answer else logging.ERROR,
            "request %s: the stream of %s ended halfway: %s",
            *(self.request_id, path[:SHOWN_CHARACTERS], one_line(error)),
            exc_info=None if is_answer else error,
        )

    def _stream_tail(self, stream: Stream, reading: Reading) -> bytes:
        prepared = reading.prepared
        page, count = prepared.page, stream.count
        total = None if page.total == "none" else count
        pages: dict[str, str] = {}
        if self.is_readable():
            pages = page_links(self.self_path(), prepared.queries, page, total=total, has_next=False)
            if self.request.method == QUERY:
                pages = self._links_of_query(pages)
        counted = page_meta(page, count, total)
        counted.cost = self._shown_cost(prepared)
        return stream.tail(pages | reading.links(), counted)

    def document(
        self,
        prepared: PreparedRead,
        result: ReadResult,
        links: dict[str, str],
        meta: Meta | None = None,
        parent: str | None = None,
        max_bytes: int = sys.maxsize,
        pace: Pace = ALONE,
    ) -> Document:
        """Return the document of a read. links, meta: those that the document has besides `self` and the pages. parent:
        what cursors belong to. None: the id of the path."""
        rows, links, meta = self._described(prepared, result, links, meta, parent)
        encode = self.encoder_of(prepared).document
        return encode(rows, links, meta, result.received_bytes, max_bytes, pace)

    def _described(
        self,
        prepared: PreparedRead,
        result: ReadResult,
        links: dict[str, str],
        meta: Meta | None,
        parent: str | None,
    ) -> tuple[Sequence[Sequence[Row]], dict[str, str], Meta | None]:
        """Return the rows, links and `meta` of the document of a read. The arguments are those of `document`."""
        assert self.route is not None
        path = self.self_path()
        if not prepared.plan.is_collection:
            links = self.own_links(prepared) | links
            if (cost := self._shown_cost(prepared)) is not None:
                meta = msgspec.structs.replace(meta or Meta(), cost=cost)
            return result.rows, links, meta
        page, total = prepared.page, result.total
        exact = None if result.is_estimated or result.is_capped else total
        pages: dict[str, str] = {}
        if self.is_readable() and page.family == "cursor":
            first, last = cursors(prepared, result, self.route.id if parent is None else parent)
            pages = cursor_links(path, prepared.queries, page, first, last, has_more=result.has_more)
        elif self.is_readable():
            has_next = result.has_more and prepared.plan.rows.nearest is None
            pages = page_links(path, prepared.queries, page, total=exact, has_next=has_next)
        counted = page_meta(page, len(result.rows[0]), total)
        if self.request.method == QUERY:
            if (onward := pages.get("next")) and not self._fits(onward) and page.family == "cursor":
                counted.page = {"after": last}
            pages = self._links_of_query(pages)
        counted.message = None if meta is None else meta.message
        counted.cost = self._shown_cost(prepared)
        counted.totalEstimated, counted.totalCapped = result.is_estimated, result.is_capped
        if result.is_capped:
            counted.totalPages = None
        counted.partial = prepared.plan.is_linkage and bool(prepared.plan.rows.conditions)
        rows = result.rows
        if prepared.plan.data == "groups" and self.answer_type.form == "document":
            counted.groups, rows = encode_groups(prepared.plan, rows[0]), [()]
        return rows, pages | links, counted

    def own_links(self, prepared: PreparedRead) -> dict[str, str]:
        """Return the links that the document of one resource has because of its path."""
        if not self.is_readable():
            return {}
        path = self.self_path()
        return {"self": path if self.request.method == QUERY else with_query(path, prepared.queries.own)}

    def _shows_cost(self) -> bool:
        """Return whether the answer has the cost of the read: the client prefers it."""
        headers = self.request.headers
        return PREFER in headers.by_name and self.method.name not in WRITES and wants_cost(headers)

    def _shown_cost(self, prepared: PreparedRead) -> int | None:
        return prepared.planned.cost if self._shows_cost() else None

    def _links_of_query(self, pages: dict[str, str]) -> dict[str, str]:
        """Return the links of the answer to a QUERY: its own path, and those to pages that a GET can have."""
        links = {name: link for name, link in pages.items() if self._fits(link)}
        return links | {"self": self.self_path()} if pages else links

    def _fits(self, link: str) -> bool:
        return len(link) <= self.engine.settings.max_url_bytes

    def encoder_of(self, prepared: PreparedRead) -> DocumentEncoder:
        """Return the encoder of the documents of a read, in the representation that the client accepts."""
        return prepared.ready.encoders.of(self.answer_type.representation)

    async def finish_written(self, reply: Reply) -> None:
        """Send the document of the answer to a write that has been committed."""
        document = reply.document
        if isinstance(document, bytes):
            if etag := reply.etag or (entity_tag(reply.version, document) if reply.has_tag else ""):
                self._headers.put("Etag", etag)
            self.finish_document(document, reply.status)
            return
        assert document is not None
        self._running.expect_long(self.sender)
        pieces = await run_steps(document, self._is_waited_for)
        if not self._finished:
            if reply.has_tag:
                self.set_header("ETag", await run_steps(tag_of_pieces(reply.version, pieces), self._is_waited_for))
            await self.finish_pieces(pieces, reply.status)

    def _no_route(self) -> ApiError:
        # The relationship is hidden from the principal.
        return route_not_found(self.request.sent_path, self.engine.catalog, self.engine.settings)

    def is_readable(self) -> bool:
        """Return whether the path has a GET, so that links to it are useful."""
        assert self.route is not None
        return "GET" in self.route.methods

    def self_path(self) -> str:
        """Return the URL of the request without its query."""
        assert self.route is not None
        return self.engine.base_url + self.route.path


def _parameter_to_reduce(prepared: PreparedRead) -> str | None:
    """The parameter that a client can change to get a smaller answer."""
    if prepared.plan.is_collection:
        return "page[limit]" if prepared.page.family == "offset" else "page[size]"
    return "include" if any(branch.is_included for branch in prepared.plan.node.branches) else None


def page_meta(page: Page, count: int, total: int | None) -> Meta:
    """Return the `meta` of a list."""
    return Meta(count=count, total=total, totalPages=None if total is None else page_count(total, page.size))


def _reader_too_slow() -> TooManyStreams:
    return TooManyStreams("The client did not read the answer, and other requests wait for a stream.")
