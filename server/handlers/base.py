"""What every handler does alike: the checks before a body arrives, the body as a stream, the answer, and the
one place where failures become error documents.

What comes in: a tornado request and its Route. What goes out: bytes on the connection. The stages that a
subclass calls, in their order, are timed and offered as `Server-Timing`.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import re
import time
from collections.abc import Awaitable
from contextlib import suppress
from functools import lru_cache
from typing import Any, NoReturn, TypeVar

from tornado.httputil import HTTPHeaders, format_timestamp
from tornado.iostream import StreamClosedError
from tornado.web import HTTPError, RequestHandler, stream_request_body

from querybuild.errors import quoted, resource_not_found
from querybuild.resource import Relationship, Resource
from querybuild.values import ValueFault
from server.database import Database
from server.engine import Engine
from server.errors import (
    BodyTooLarge,
    ErrorAnswer,
    MethodNotAllowed,
    PreconditionUnsupported,
    ReadOnlyServer,
    RouteNotFound,
    UrlTooLong,
    answer,
)
from server.negotiation import MEDIA_TYPE, check_accept, check_content_type
from server.routes import Route

DRAIN_SECONDS = 2.0
"""How long the rest of a body that was refused is read and thrown away: a connection closed over unread bytes
is reset, and the answer lost."""

HALF_BODY_SECONDS = 2.0
"""How long the rest of a body may take once the server stops."""

SHORT_BODY_BYTES = 65536
LARGE_BODY_BYTES = 262_144
WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_LENGTH = re.compile(r"[0-9]+")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

log = logging.getLogger("server")

Result = TypeVar("Result")


class ClientGone(Exception):
    """The client has closed its connection: what was under way for it is given up, and there is nobody to answer."""


class Lifeline:
    """Work that is given up when the client goes, so that no transaction and no lock outlives its request."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = None
        self._is_cut = False

    async def run(self, work: Awaitable[Result]) -> Result:
        """Raises ClientGone."""
        self._task = task = asyncio.current_task()
        assert task is not None
        try:
            return await work
        except asyncio.CancelledError as error:
            if not self._is_cut:
                raise RuntimeError("what the request was waiting for has been cancelled") from error
            task.uncancel()
            raise ClientGone from None
        finally:
            self._task = None

    def let_go(self) -> None:
        """From here on the work is finished, whoever is there to hear of it."""
        self._task = None

    def cut(self) -> None:
        if self._task is not None:
            self._is_cut = True
            self._task.cancel()


class Running:
    """The handlers at work, which a stop waits for. streams: how many of them stream."""

    def __init__(self) -> None:
        self.streams = 0
        self._handlers: set[Handler] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_stopping = False

    def add(self, handler: Handler) -> None:
        self._handlers.add(handler)
        self._idle.clear()
        if self._is_stopping:
            self._hurry(handler)

    def discard(self, handler: Handler) -> None:
        self._handlers.discard(handler)
        if not self._handlers:
            self._idle.set()

    @property
    def has_others(self) -> bool:
        """Whether anything is at work that does not stream."""
        return len(self._handlers) > self.streams

    async def finished(self) -> None:
        """Waits for them. A request whose body is not all there in `HALF_BODY_SECONDS` has its connection closed."""
        self._is_stopping = True
        for handler in self._handlers:
            self._hurry(handler)
        await self._idle.wait()

    def _hurry(self, handler: Handler) -> None:
        asyncio.get_running_loop().call_later(HALF_BODY_SECONDS, handler.close_half_body)


@lru_cache(maxsize=1)
def _http_date(second: int) -> str:
    return format_timestamp(second)


def _timing(stages: list[tuple[str, float]]) -> str:
    """Milliseconds a stage, as W3C Server Timing has it. stages: each with its begin."""
    parts, end = [], time.perf_counter()
    for name, begin in reversed(stages):
        parts.append(f"{name};dur={(end - begin) * 1000:.3f}")
        end = begin
    return ", ".join(reversed(parts))


@stream_request_body
class Handler(RequestHandler):
    """methods: what the route has, in the order in which Allow names them; HEAD and OPTIONS are of the house.
    extensions: URIs of `ext`."""

    methods: tuple[str, ...] = ("GET",)
    body_methods: frozenset[str] = frozenset({"POST", "PATCH"})
    extensions: frozenset[str] = frozenset()

    def initialize(self, engine: Engine, database: Database, route: Route | None, running: Running) -> None:
        self.engine = engine
        self.database = database
        self.route = route
        self._running = running
        running.add(self)
        self._chunks: list[bytes] = []
        self._body_bytes = 0
        self._is_refused = False
        self._stages: list[tuple[str, float]] = []
        self.lifeline = Lifeline()
        self.applied_extensions: frozenset[str] = frozenset()

    def prepare(self) -> None:
        """Whatever can be said against a request without its body is said here, before the body arrives."""
        headers, method = self.request.headers, self.request.method or ""
        settings = self.engine.settings
        if len(self.request.uri or "") > settings.max_url_bytes:
            raise UrlTooLong(f"A URL has at most {settings.max_url_bytes} bytes.")
        if sum([len(name) + len(value) + 4 for name, value in headers.get_all()]) > settings.max_header_bytes:
            self._refuse_headers()
            return
        if self.route is None:
            raise self._no_route()
        if method not in (*self.allowed(), "HEAD", "OPTIONS") or (method == "HEAD" and "GET" not in self.allowed()):
            raise self._not_allowed()
        if method == "OPTIONS":
            return
        check_accept(", ".join(headers.get_list("Accept")), self.extensions)
        if method in WRITES:
            self._prepare_write(method)

    def _refuse_headers(self) -> None:
        """What is not yet a request has a bare status and a closed connection for its answer."""
        connection: Any = self.request.connection
        self.set_status(431)
        self.clear_header("Content-Type")
        self.set_header("Connection", "close")
        self.finish()
        connection.close()

    def _prepare_write(self, method: str) -> None:
        headers, settings = self.request.headers, self.engine.settings
        if settings.read_only:
            raise ReadOnlyServer("This server answers reads alone.")
        for name in ("If-Match", "If-Unmodified-Since"):
            if name in headers:
                raise PreconditionUnsupported(f"{name} has no meaning here yet: send the write without.", header=name)
        if method in self.body_methods:
            self.check_media_type()
            if self._content_length() > settings.max_body_bytes:
                self._refuse_body()

    def check_media_type(self) -> None:
        headers = self.request.headers
        if self._content_length() or "Transfer-Encoding" in headers or "Content-Type" in headers:
            self.applied_extensions = check_content_type(headers.get("Content-Type"), self.extensions)

    def allowed(self) -> tuple[str, ...]:
        """The methods of this route, as the declarations leave them."""
        return self.methods

    def _not_allowed(self) -> MethodNotAllowed:
        allow = self.allow()
        detail = f"{quoted(self.request.method or '')} is not for this route; there are {', '.join(allow)}."
        return MethodNotAllowed(detail, allow)

    def _no_route(self) -> RouteNotFound:
        return RouteNotFound(f"There is nothing at {quoted(self.request.path)}.")

    def allow(self) -> tuple[str, ...]:
        """What Allow names: a server that answers reads alone has no writes to offer."""
        methods = [one for one in self.allowed() if not (self.engine.settings.read_only and one in WRITES)]
        return (*methods, *(["HEAD"] if "GET" in methods else []), "OPTIONS")

    def _refuse_body(self) -> NoReturn:
        raise BodyTooLarge(f"A body has at most {self.engine.settings.max_body_bytes} bytes.")

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        self._body_bytes += len(chunk)
        if self._is_refused or self.request.method not in self.body_methods:
            return None
        self._chunks.append(chunk)
        if self._body_bytes > self.engine.settings.max_body_bytes:
            try:
                self._refuse_body()
            except BodyTooLarge as error:
                self.answer_error(error)
        return None

    @property
    def body(self) -> bytes:
        return b"".join(self._chunks)

    async def options(self, *_: Any) -> None:
        self.set_status(204)
        self.clear_header("Content-Type")
        self.set_header("Allow", ", ".join(self.allow()))

    async def head(self, *arguments: Any) -> None:
        """As GET; tornado leaves the body out and keeps its length."""
        get: Any = self.get
        answered = get(*arguments)
        if inspect.isawaitable(answered):
            await answered

    def clear(self) -> None:
        """Called by tornado at the start, and again when an error clears what was set. tornado's own sets headers that
        are not of ours, formats the date anew and checks what comes from here: an eighth of a small request."""
        if not hasattr(self, "request_id"):
            given = self.request.headers.get("X-Request-Id", "")
            self.request_id = given if _REQUEST_ID.fullmatch(given) else os.urandom(16).hex()
        self._headers = headers = HTTPHeaders()
        headers["Date"] = _http_date(int(time.time()))
        headers["Content-Type"] = MEDIA_TYPE
        headers["Vary"] = "Accept"
        headers["X-Request-Id"] = self.request_id
        self._write_buffer = []
        self.set_status(200)
        self.set_default_headers()

    def set_etag_header(self) -> None:
        """No ETag: the contract has none yet, and tornado's own costs a hash of every answer."""

    def check_etag_header(self) -> bool:
        """As above."""
        return False

    def stage(self, name: str) -> None:
        """Ends the stage before and begins the one of that name."""
        self._stages.append((name, time.perf_counter()))

    def tell_timing(self) -> None:
        if self.engine.settings.server_timing and self._stages:
            self._headers["Server-Timing"] = _timing(self._stages)

    def finish_document(self, body: bytes, status: int = 200) -> None:
        self.set_status(status)
        self.tell_timing()
        self._headers["Content-Length"] = str(len(body))
        if len(body) > LARGE_BODY_BYTES:
            # tornado copies a body behind its headers, unless these are on their way.
            self.flush()
        self.finish(body)

    @property
    def resource(self) -> Resource:
        assert self.route is not None
        assert self.route.resource is not None
        return self.route.resource

    @property
    def relationship(self) -> Relationship:
        assert self.route is not None
        assert self.route.relationship is not None
        return self.route.relationship

    def path_id(self, resource: Resource) -> Any:
        """The id of the path as its column's type. Raises ResourceNotFound: a text that is no id names nothing."""
        assert self.route is not None
        try:
            return resource.id_type.read(self.route.id)
        except ValueFault:
            raise resource_not_found(resource.type, self.route.id) from None

    def finish(self, chunk: str | bytes | dict[str, Any] | None = None) -> asyncio.Future[None]:
        """At work until the answer has been sent, not only handed over to be."""
        sent = super().finish(chunk)
        sent.add_done_callback(lambda _: self._running.discard(self))
        return sent

    def on_connection_close(self) -> None:
        super().on_connection_close()
        self.lifeline.cut()
        self._running.discard(self)

    def send_error(self, status_code: int = 500, **kwargs: Any) -> None:
        """Where tornado brings whatever was raised."""
        error = kwargs["exc_info"][1] if "exc_info" in kwargs else HTTPError(status_code)
        if isinstance(error, HTTPError) and error.status_code == 405:
            # A method that tornado itself does not know never reaches prepare.
            error = self._not_allowed() if self.route is not None else self._no_route()
        self.answer_error(error)

    def answer_error(self, error: BaseException) -> None:
        if isinstance(error, ClientGone):
            log.info("request %s: the client has gone: %s %s", self.request_id, self.request.method, self.request.path)
            return
        if self._headers_written:
            # Too late for an error document: what was sent must not be taken for whole.
            self._running.discard(self)
            stream = self.detach()
            if stream is not None:
                stream.close()
            return
        self._is_refused = True
        self._chunks.clear()
        try:
            made = self.error_answer(error)
        except Exception as fault:
            # An error that cannot be shown, such as one of custom code, must not leave the client without an answer.
            error, made = fault, answer(fault, self.request_id)
        if made.is_fault:
            log.error(
                "request %s failed: %s %s", self.request_id, self.request.method, self.request.path, exc_info=error
            )
        self.clear()
        self.set_status(made.status)
        for name, value in made.headers:
            self.set_header(name, value)
        self._finish_answer(made.body)

    def error_answer(self, error: BaseException) -> ErrorAnswer:
        return answer(error, self.request_id)

    def log_exception(self, *_: Any) -> None:
        """Faults are logged in answer_error, with the request's id; answers are in the access log."""

    def _finish_answer(self, body: bytes) -> None:
        """Sends the answer to a request that may not have been read to its end. tornado closes a connection that is
        answered before that: so the rest is read first where it is short, and where it is long after the answer."""
        future: Any = getattr(self.request, "_body_future", None)
        is_awaited = self.request.headers.get("Expect", "").lower() == "100-continue"
        if future is None or future.done() or is_awaited:
            self.finish(body)
        elif self._rest_is_short():
            self._drain = asyncio.ensure_future(self._finish_after(future, body))
        else:
            self.set_header("Connection", "close")
            self.set_header("Content-Length", str(len(body)))
            self.write(body)
            self.flush()
            self._drain = asyncio.ensure_future(self._finish_and_close_after(future))

    def close_half_body(self) -> None:
        """Closes the connection of a request whose body is still awaited; one that was refused has its own limit."""
        future: Any = getattr(self.request, "_body_future", None)
        if future is not None and not future.done() and not self._is_refused:
            connection: Any = self.request.connection
            connection.close()

    def _rest_is_short(self) -> bool:
        return "Transfer-Encoding" not in self.request.headers and self._content_length() <= SHORT_BODY_BYTES

    def _content_length(self) -> int:
        """Bytes, as the header has it; what is no number is for tornado to refuse, after prepare."""
        text = self.request.headers.get("Content-Length", "")
        return int(text[:18]) if _LENGTH.fullmatch(text) else 0

    async def _finish_after(self, rest: asyncio.Future[None], body: bytes | None = None) -> None:
        with suppress(TimeoutError, StreamClosedError):
            await asyncio.wait_for(asyncio.shield(rest), DRAIN_SECONDS)
        with suppress(StreamClosedError):
            self.finish(body)

    async def _finish_and_close_after(self, rest: asyncio.Future[None]) -> None:
        """tornado heeds the request's Connection header alone, so the close that was announced is ours to do."""
        connection: Any = self.request.connection
        await self._finish_after(rest)
        connection.close()


class NotFoundHandler(Handler):
    """A path that no route has."""

    methods = ()
