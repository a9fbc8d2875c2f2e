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
from typing import Any

from tornado.web import HTTPError, stream_request_body

from querybuild.errors import SHOWN_CHARACTERS, ApiError, nearest, quoted, release_frames, resource_not_found
from querybuild.resource import Relationship, Resource
from querybuild.values import ValueFault
from server.engine import Engine
from server.errors import (
    BodyTimeout,
    ErrorAnswer,
    MethodNotAllowed,
    Overloaded,
    PreconditionUnsupported,
    ReadOnlyServer,
    RouteNotFound,
    UnsupportedMediaType,
    UrlTooLong,
    answer,
    too_many_requests,
)
from server.handlers.receiving import Receiving
from server.http import compression
from server.http.answering import Exchange, http_date
from server.http.headers import Headers
from server.http.negotiation import MEDIA_TYPE, check_accept, check_content_type
from server.http.request import Request
from server.limits.clients import client_key, current_client
from server.limits.running import CancelScope, ClientGone, Running
from server.postgres.database import Database
from server.routes import Route

HALF_BODY_SECONDS = 2.0
"""How long the rest of a body may take once the server stops."""

GRACE_SECONDS = 2.0
"""How long what is given up for lack of time may take to come to an end before it is left alone."""

CLIENT_GONE = 499
"""What logs and figures have for a client that did not wait, after the example of nginx."""

WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

log = logging.getLogger("server")


def _timing(stages: list[tuple[str, float]]) -> str:
    """Milliseconds a stage, as W3C Server Timing has it. stages: each with its begin."""
    text, end = "", time.perf_counter()
    for name, begin in reversed(stages):
        text, end = ", %s;dur=%.3f%s" % (name, (end - begin) * 1000, text), begin  # noqa: UP031 - it is faster
    return text[2:]


@stream_request_body
class Handler(Receiving):
    """methods: what the route has, in the order in which Allow names them; HEAD and OPTIONS are of the house.
    extensions: URIs of `ext`."""

    methods: tuple[str, ...] = ("GET",)
    extensions: frozenset[str] = frozenset()
    applied_extensions: frozenset[str] = frozenset()
    request: Request
    resource: Resource
    is_at_work = False
    client = ""
    is_stream = False
    """Whether the answer has a time of its own."""
    _waits_for_body = False
    _is_given_up = False

    def initialize(self, engine: Engine, database: Database, route: Route | None, running: Running) -> None:
        self.engine = engine
        self.database = database
        self.telemetry = database.telemetry
        self.route = route
        if route is not None and route.resource is not None:
            self.resource = route.resource
        self._running = running
        running.add(self, self.request.began_at)
        self.stages = []
        self.cancel_scope = CancelScope()

    def prepare(self) -> None:
        """Whatever can be said against a request without its body is said here, before the body arrives."""
        self.telemetry.begin(self)
        self._begin_work()
        headers, method = self.request.headers, self.request.method or ""
        settings = self.engine.settings
        if len(self.request.uri or "") > settings.max_url_bytes:
            raise UrlTooLong(f"A URL has at most {settings.max_url_bytes} bytes.")
        if self.request.head_bytes > settings.max_header_bytes:
            self._refuse_headers()
            return
        if self.route is None:
            raise self._no_route()
        self.check_method()
        if method == "OPTIONS":
            return
        check_accept(", ".join(headers.by_name.get("Accept", ())), self.extensions)
        if method in WRITES:
            self._prepare_write(method)

    def _begin_work(self) -> None:
        """A request is at work from the moment on at which it has all arrived. Raises Overloaded, TooManyRequests."""
        self.client = client = client_key(self.request)
        current_client.set(client)
        running = self._running
        if running.is_full:
            raise Overloaded("The server has too much to do; try again.")
        if running.is_at_client_limit(client):
            raise too_many_requests()
        # An empty body is there before the handler begins.
        if self.request._body_future.done():
            running.begin(self)
        else:
            self._waits_for_body = True

    def body_arrived(self) -> None:
        """All of the body is there, of a request that announced one."""
        if self._waits_for_body and not self._finished:
            self._running.begin(self)

    def check_method(self) -> None:
        """Raises MethodNotAllowed."""
        method, allowed = self.request.method, self.allowed()
        if method not in (*allowed, "HEAD", "OPTIONS") or (method == "HEAD" and "GET" not in allowed):
            raise self._not_allowed()

    def _refuse_headers(self) -> None:
        """What is not yet a request has a bare status and a closed connection for its answer."""
        self.set_status(431)
        self.clear_header("Content-Type")
        self.exchange.end_after_answer()
        self.finish()

    def _prepare_write(self, method: str) -> None:
        headers, settings = self.request.headers, self.engine.settings
        if settings.read_only:
            raise ReadOnlyServer("This server answers reads alone.")
        for name in ("If-Match", "If-Unmodified-Since"):
            if name in headers.by_name:
                raise PreconditionUnsupported(f"{name} has no meaning here yet: send the write without.", header=name)
        if method in self.body_methods:
            self.check_media_type()
            self.check_length()

    def check_media_type(self) -> None:
        headers = self.request.headers
        if self.content_length() or "Transfer-Encoding" in headers.by_name or "Content-Type" in headers.by_name:
            self.applied_extensions = check_content_type(headers.get("Content-Type"), self.extensions)
        if "Content-Encoding" in headers.by_name and headers["Content-Encoding"].lower() != "identity":
            raise UnsupportedMediaType("A body must not be compressed.", header="Content-Encoding")

    def allowed(self) -> tuple[str, ...]:
        """The methods of this route, as the declarations leave them."""
        return self.methods

    def _not_allowed(self) -> MethodNotAllowed:
        allow = self.allow()
        detail = f"{quoted(self.request.method or '')} is not for this route; there are {', '.join(allow)}."
        return MethodNotAllowed(detail, allow)

    def _no_route(self) -> ApiError:
        """Why there is no route."""
        return RouteNotFound(f"There is nothing at {quoted(self.request.sent_path)}.")

    def allow(self) -> tuple[str, ...]:
        """What Allow names: a server that answers reads alone has no writes to offer."""
        methods = [one for one in self.allowed() if not (self.engine.settings.read_only and one in WRITES)]
        return (*methods, *(["HEAD"] if "GET" in methods else []), "OPTIONS")

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
            given = self.request.headers.by_name.get("X-Request-Id", [""])
            is_usable = len(given) == 1 and _REQUEST_ID.fullmatch(given[0])
            self.request_id = given[0] if is_usable else os.urandom(16).hex()
        date = http_date(int(time.time()))
        self._headers = Headers(
            {"Date": [date], "Content-Type": [MEDIA_TYPE], "Vary": ["Accept"], "X-Request-Id": [self.request_id]}
        )
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
        self.stages.append((name, time.perf_counter()))

    def tell_timing(self) -> None:
        is_told = self.engine.settings.server_timing
        if is_told is None:
            is_told = self.request.server_connection.is_loopback
        if is_told and self.stages:
            self._headers["Server-Timing"] = _timing(self.stages)

    def finish_document(self, body: bytes, status: int = 200) -> None:
        if status != 200:
            self.set_status(status)
        self.tell_timing()
        if len(body) > compression.INLINE_BYTES and self.should_compress():
            self.pack_and_finish(body)
        else:
            self._finish_whole(body)

    def _finish_whole(self, body: bytes) -> None:
        self._headers["Content-Length"] = str(len(body))
        # As `write` does with bytes, which looks at first what they are.
        self._write_buffer.append(body)
        self.finish()

    async def finish_pieces(self, pieces: list[bytes], status: int = 200) -> None:
        """As finish_document. A large one is never joined: to copy it would hold up others."""
        if len(pieces) == 1:
            self.finish_document(pieces[0], status)
            return
        self.set_status(status)
        self.tell_timing()
        if self.should_compress():
            pieces = await self.cancel_scope.run(compression.compress_pieces(pieces))
        if self._finished:
            return
        self._headers["Content-Length"] = str(sum(map(len, pieces)))
        for piece in pieces:
            self.write(piece)
            self.flush()
            await asyncio.sleep(0)
        if not self._finished:
            self.finish()

    def should_compress(self) -> bool:
        """Whether a large answer is to be compressed, and says so in its headers."""
        if self.engine.settings.compression == "off" or not compression.should_compress(self.request, self._headers):
            return False
        self._headers["Content-Encoding"] = "gzip"
        return True

    def pack_and_finish(self, body: bytes) -> asyncio.Future[None]:
        """While others are answered."""
        self._auto_finish = False
        self._packing = asyncio.ensure_future(self._finish_packed(body))
        return self._packing

    async def _finish_packed(self, body: bytes) -> None:
        try:
            packed = await self.cancel_scope.run(compression.compress_body(body))
            if not self._finished:
                self._finish_whole(packed)
        except Exception as error:
            self.answer_error(error)

    def tell_caches(self) -> None:
        """Of an answer that is a resource as it is now."""
        if self.engine.settings.cache_control:
            self._headers["Cache-Control"] = self.engine.settings.cache_control

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
        """Waited for, when the server stops, until the answer has been sent, not only handed over to be."""
        sent = super().finish(chunk)
        if self.body_bytes:
            self._running.bodies.release(self)
        if sent.done():
            self._running.discard(self)
        else:
            self._running.end(self)
            sent.add_done_callback(lambda _: self._running.discard(self))
        return sent

    def flush(self, include_footers: bool = False) -> asyncio.Future[None]:
        if self.request.method != "HEAD":
            self.sent_bytes += sum(map(len, self._write_buffer))
        return super().flush(include_footers)

    def on_connection_close(self) -> None:
        super().on_connection_close()
        self.client_gone()
        self._running.discard(self)

    def client_gone(self) -> None:
        self.cancel_scope.cancel()

    def send_error(self, status_code: int = 500, **kwargs: Any) -> None:
        """Where tornado brings whatever was raised."""
        error = kwargs["exc_info"][1] if "exc_info" in kwargs else HTTPError(status_code)
        if isinstance(error, HTTPError) and error.status_code == 405:
            # A method that tornado itself does not know never reaches prepare.
            error = self._not_allowed() if self.route is not None else self._no_route()
        self.answer_error(error)

    def answer_error(self, error: BaseException) -> None:
        try:
            self._answer_error(error)
        finally:
            release_frames(error)

    def _answer_error(self, error: BaseException) -> None:
        if isinstance(error, ClientGone):
            self._end_unsent(CLIENT_GONE)
            return
        if self._headers_written:
            # Too late for an error document: what was sent must not be taken for whole.
            self._end_unsent(answer(error, self.request_id).status)
            self._running.discard(self)
            self._finished = True
            self.exchange.reset()
            return
        self.drop_body()
        try:
            made = self.error_answer(error)
            self._log_fault(made, error)
        except Exception as fault:
            # An error that cannot be shown, such as one of custom code, must not leave the client without an answer.
            made = answer(fault, self.request_id)
            self._log_fault(made, fault)
            release_frames(fault)
        self.clear()
        self.set_status(made.status)
        if self.engine.settings.cache_control:
            self._headers["Cache-Control"] = "no-store"
        for name, value in made.headers:
            self.set_header(name, value)
        if self._is_given_up:
            self.exchange.end_after_answer()
        self.finish(made.body)

    def _log_fault(self, made: ErrorAnswer, error: BaseException) -> None:
        if made.is_fault:
            path = self.request.path[:SHOWN_CHARACTERS]
            log.error("request %s failed: %s %s", self.request_id, self.request.method, path, exc_info=error)

    def _end_unsent(self, status: int) -> None:
        """There will be no answer, or no end of one: for logs and figures it had this status."""
        if not self._finished:
            self.set_status(status, "")
            self.telemetry.end(self)

    def error_answer(self, error: BaseException) -> ErrorAnswer:
        return answer(error, self.request_id)

    def log_exception(self, *_: Any) -> None:
        """Faults are logged in answer_error, with the request's id; answers are in the access log."""

    def check_timeouts(self, now: float, began_at: float) -> None:
        settings = self.engine.settings
        if self._finished or self.is_stream or self._is_refused:
            return
        if self.is_arriving:
            if now - began_at > settings.body_timeout_seconds:
                self._is_given_up = True
                self.answer_error(BodyTimeout("The body of the request took too long to arrive."))
            return
        late_seconds = now - began_at - settings.request_timeout_seconds
        if late_seconds > GRACE_SECONDS:
            self._answer_late()
        elif late_seconds > 0 and not self._is_given_up:
            self._is_given_up = True
            self.cancel_scope.time_out()

    def _answer_late(self) -> None:
        """What is under way does not come to an end: it is left alone. Nothing else is answered on the connection,
        where it might yet write."""
        self.exchange.end_after_answer()
        self.answer_error(self.cancel_scope.timeout_error())

    def evict(self, why: str) -> None:
        log.warning("request %s: closed, %s", self.request_id, why)
        if self.is_arriving:
            self.drop_body()
        self._close()

    def shutdown(self) -> None:
        self.exchange.end_after_answer()
        asyncio.get_running_loop().call_later(HALF_BODY_SECONDS, self._close_half_body)

    def _close_half_body(self) -> None:
        """A request that was refused has a limit of its own."""
        if self.is_arriving:
            self._close()

    def _close(self) -> None:
        self.exchange.close()

    @property
    def exchange(self) -> Exchange:
        connection = self.request.connection
        assert isinstance(connection, Exchange)
        return connection


class NotFoundHandler(Handler):
    """A path that no route has."""

    methods = ()

    def _no_route(self) -> RouteNotFound:
        path, settings = self.request.sent_path, self.engine.settings
        listed = [resource.path for resource in self.engine.catalog if "list" in resource.methods]
        found = [settings.path_prefix + one for one in (*listed, settings.operations_path) if one]
        known = [one for one in found if one.count("/") >= path.rstrip("/").count("/")]
        return RouteNotFound(f"There is nothing at {quoted(path)}.{nearest(path, known)}")
