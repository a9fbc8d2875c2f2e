"""Defines the base of all handlers: checks before the body arrives, error documents, the end of a request.

What comes in: a tornado request and its Route. What goes out: bytes on the connection. The stages that a subclass
names are timed and sent as `Server-Timing`.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
import re
import time
from collections.abc import Awaitable
from typing import Any

from tornado.web import Application, HTTPError, RequestHandler

from querybuild.declarations.catalog import Catalog
from querybuild.declarations.resource import Relationship, Resource
from querybuild.errors import SHOWN_CHARACTERS, ApiError, quoted, release_frames
from querybuild.parse import ANSWER_AS
from querybuild.planning.context import Context
from querybuild.principal import Principal
from serializers.json_api import MEDIA_TYPE
from server.engine import ANYBODY, Engine
from server.error_answers import ErrorAnswer, answer
from server.errors import BodyTimeout, MethodNotAllowed, RouteNotFound, UrlTooLong
from server.execution.arguments import read_id
from server.handlers import telling
from server.handlers.pages.answering import error_page, wants_page
from server.handlers.received_body import ReceivedBody, exchange_of
from server.handlers.sender import Sender
from server.handlers.write_checks import check_query, check_write, max_body
from server.http import compression
from server.http.headers import Headers
from server.http.negotiation import HTML, JSON_API, preferred_type
from server.http.request import Request
from server.http.target import is_too_long
from server.http.transport.answering import http_date
from server.limits.running import CancelScope, ClientGone, Running
from server.postgres.database import Database
from server.routes import NOT_ALLOWED, OPTIONS, QUERY, WRITES, Route

HALF_BODY_SECONDS = 2.0
"""How long the server waits for the rest of a body when it stops."""

GRACE_SECONDS = 2.0
"""How long a request that was cancelled for its timeout may take to end. After that it is answered anyway."""

CLIENT_GONE = 499
"""The status in logs and metrics if the client disconnected before its answer, as in nginx."""

log = logging.getLogger("server")

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Handler(RequestHandler):
    """The base of all handlers. sender: who sends the request. received: its body. method: the row of the route table
    for its method. stages: each with its begin, by time.perf_counter. sent_bytes: of the answer's body.
    applied_extensions: the URIs that the body has as `ext` of its media type. is_tried: whether a write is rolled back
    in the end. answer_type: which media type the client prefers. is_stream: whether the answer is a stream, which has
    its own timeout. has_pages, answers_pages: whether people get errors as pages, and whether all errors are pages.
    is_quiet: whether the access log has this request only at level debug. is_counted: whether it counts for limits.
    identifies: whether the answer depends on who asks. always_compresses: whether it needs no setting to be
    compressed."""

    applied_extensions: frozenset[str] = frozenset()
    is_tried = _headers_written = _finished = False
    _auto_finish = True
    answer_type = JSON_API
    is_counted = True
    identifies = True
    is_quiet = is_stream = always_compresses = False
    has_pages = True
    answers_pages = False
    is_timed_out = False
    sent_bytes = 0
    span: Any = None
    request: Request
    request_id: str
    resource: Resource
    context: Context
    """What the principal may do. `prepare` sets it."""
    _headers: Headers
    SUPPORTED_METHODS = (*RequestHandler.SUPPORTED_METHODS, QUERY)

    def __init__(self, application: Application, request: Request, **context: Any) -> None:
        """Do what tornado's constructor does, but for its templates, which only `CustomHandler` offers."""
        self.application, self.request = application, request
        self.clear()
        self.initialize(**context)

    def initialize(self, engine: Engine, database: Database, route: Route | None, running: Running) -> None:
        self.engine, self.database, self.route = engine, database, route
        self.telemetry = database.telemetry
        self.method = NOT_ALLOWED if route is None else route.methods.get(self.request.method or "", NOT_ALLOWED)
        if route is not None and route.resource is not None:
            self.resource = route.resource
        self._running = running
        self.sender = Sender(self.request, engine, running, is_counted=self.is_counted)
        self.received = ReceivedBody(self.request, self.request_id, max_body(self.method, engine), running.bodies)
        running.add(self, self.request.began_at)
        self.stages: list[tuple[str, float]] = []
        self.cancel_scope = CancelScope()

    @property
    def catalog(self) -> Catalog:
        """The declarations as the principal sees them."""
        return self.engine.view_of(self.context).catalog

    def prepare(self) -> Awaitable[None] | None:
        """Make all checks that do not need the body, before it arrives. Returns an awaitable only if the issuer of a
        token has to be asked."""
        self.telemetry.begin(self)
        self.sender.begin()
        engine, request = self.engine, self.request
        settings = engine.settings
        if is_too_long(request.uri or "", settings.max_url_bytes):
            raise UrlTooLong(f"A URL has at most {settings.max_url_bytes} bytes.")
        if request.head_bytes > settings.max_header_bytes:
            self._refuse_headers()
            return None
        # Most servers that are open get no credentials. Then nothing has to be found out.
        if self.identifies and (not engine.is_open or "Authorization" in request.headers.by_name):
            # If some relationships are hidden, the principal must be known first: a hidden route must answer like one
            # that does not exist.
            if not engine.hides_relationships:
                if self.method is NOT_ALLOWED:
                    return self.refuse_method()
                if self.method is OPTIONS:
                    return None
            return self.prepare_identified()
        self.context = ANYBODY
        self.check_request()
        return None

    def prepare_identified(self) -> Awaitable[None] | None:
        """Find the principal, and then make the checks that depend on it. Returns an awaitable if the issuer has to be
        asked. Raises Unauthenticated, InvalidToken, AuthUnavailable, TooManyRequests."""
        principal = self.sender.find()
        if not isinstance(principal, Principal):
            return self._prepare_later(self.cancel_scope.run(principal))
        self._take_principal(principal)
        self.check_request()
        return None

    async def _prepare_later(self, principal: Awaitable[Principal]) -> None:
        """Continue when the issuer has answered. Meanwhile the body may have timed out."""
        known = await principal
        if not self._finished:
            self._take_principal(known)
            self.check_request()

    def _take_principal(self, principal: Principal) -> None:
        """Keep the principal, and take the declarations as it sees them. The route exists no more if its relationship
        is hidden. Raises TooManyRequests."""
        self.context = self.sender.take(principal)
        route, view = self.route, self.context.access.view
        if view is not None and route is not None and route.resource is not None:
            self.resource = view.catalog.by_type[route.resource.type]
            if route.relationship is not None and route.relationship not in self.resource.relationships:
                self.route, self.method = None, NOT_ALLOWED
        if self.engine.has_authentication:
            telling.tell_caches_of_principals(self._headers, self.sender)

    def check_request(self) -> None:
        """Check the request against the row of its method in the route table, when the principal is known."""
        method = self.method
        if method is NOT_ALLOWED:
            self.check_method()
        elif method is not OPTIONS:
            headers, query = self.request.headers.by_name, self.request.query
            if "Accept" in headers or ANSWER_AS in query:
                media_type = preferred_type(headers.get("Accept"), query, method.answers)
                self.answer_type = JSON_API if media_type is HTML and not self.engine.settings.pages else media_type
            if method.name in WRITES:
                self.prepare_write()
            elif method.name == QUERY:
                check_query(self.request, self.received)

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        """Keep a chunk of the body, or refuse the request if the body becomes too large."""
        if self.method.body is not None and (error := self.received.add(chunk)) is not None:
            self.answer_error(error)
        return None

    def body_arrived(self) -> None:
        """Count the request, because all of its body has arrived."""
        if not self._finished:
            self.sender.body_arrived()

    def check_method(self) -> None:
        """Check that there is a route, and that it has the method. Raises RouteNotFound, MethodNotAllowed."""
        if self.method is NOT_ALLOWED:
            raise self._no_route() if self.route is None else self._not_allowed()

    def refuse_method(self) -> Awaitable[None] | None:
        """Refuse a method that the route does not have, before it is known who asks. Raises RouteNotFound,
        MethodNotAllowed."""
        self.check_method()
        return None

    def check_parameters(self) -> None:
        """Check the parameters, if no read does. Raises ParameterError."""
        self.engine.reads.check_parameters(self.request.query, self.method.accepts)

    def _refuse_headers(self) -> None:
        """Answer headers that are too large with a status and without a document, as invalid HTTP."""
        self.set_status(431)
        self.clear_header("Content-Type")
        exchange_of(self.request).end_after_answer()
        self.finish()

    def prepare_write(self) -> None:
        """Make the checks of writes. Raises RequestFault, Overloaded."""
        checked = check_write(self.engine, self.request.headers, self.received, self.method)
        self.applied_extensions, self.is_tried = checked

    def _not_allowed(self) -> MethodNotAllowed:
        allow = self.allow()
        detail = f"{quoted(self.request.method or '')} is not allowed here; allowed are {', '.join(allow)}."
        return MethodNotAllowed(detail, allow)

    def _no_route(self) -> ApiError:
        """Return the error for a request without a route."""
        return RouteNotFound(f"There is nothing at {quoted(self.request.sent_path)}.")

    def allow(self) -> tuple[str, ...]:
        """Return the methods for the header Allow: without writes that the declarations do not allow, and for a
        read-only server without any."""
        route = self.route
        assert route is not None
        catalog, is_read_only = self.engine.catalog, self.engine.settings.read_only
        return tuple(
            [name for name in route.methods if route.allows(name, catalog) and not (is_read_only and name in WRITES)]
        )

    async def options(self, *_: Any) -> None:
        self.set_status(204)
        self.clear_header("Content-Type")
        telling.tell_methods(self._headers, self.allow())

    async def head(self, *arguments: Any) -> None:
        """Answer like GET. tornado omits the body and keeps Content-Length."""
        answered = self.get(*arguments)
        if inspect.isawaitable(answered):
            await answered

    @property
    def relationship(self) -> Relationship:
        """The relationship of the route."""
        assert self.route is not None
        assert self.route.relationship is not None
        return self.route.relationship

    def path_id(self, resource: Resource) -> Any:
        """Return the id of the path, converted to the type of its column. Raises ResourceNotFound if it is not a valid
        id."""
        assert self.route is not None
        return read_id(resource, self.route.id)

    def finish(self, chunk: str | bytes | dict[str, Any] | None = None) -> asyncio.Future[None]:
        """Finish the answer. A server that stops waits until it has been sent."""
        sent = super().finish(chunk)
        self.received.release()
        if sent.done():
            self._running.discard(self)
        else:
            self._running.end(self.sender)
            sent.add_done_callback(lambda _: self._running.discard(self))
        return sent

    def on_connection_close(self) -> None:
        self.client_gone()
        self._running.discard(self)

    def release(self) -> None:
        """Release the memory of a request whose client has gone, after its work has ended."""
        self.received.abandon()

    def evict(self, why: str) -> None:
        """Close the connection at once, and log the reason."""
        self.received.evict(why)

    def tell_caches(self) -> None:
        """Set the header Cache-Control of an answer that shows resources."""
        telling.tell_caches(self._headers, self.engine, self.sender)

    def tell_cookies(self) -> None:
        """Set the cookies that keep or end a session, where nobody asks who sends the request."""
        telling.tell_cookies(self._headers, self.sender)

    def client_gone(self) -> None:
        """Cancel the work, because the client has disconnected."""
        self.cancel_scope.cancel()

    def send_error(self, status_code: int = 500, **kwargs: Any) -> None:
        """Answer an exception. The delegate calls this for everything that a handler raises."""
        error = kwargs["exc_info"][1] if "exc_info" in kwargs else HTTPError(status_code)
        if isinstance(error, HTTPError) and error.status_code == 405:
            # A method that tornado does not know does not reach prepare, so the principal is not known.
            exists = self.route is not None and self.route.is_for_everybody
            error = self._not_allowed() if exists else self._no_route()
        self.answer_error(error)

    def answer_error(self, error: BaseException) -> None:
        """Send an exception as an error document. If the answer has begun, reset the connection."""
        try:
            self._answer_error(error)
        finally:
            release_frames(error)

    def _answer_error(self, error: BaseException) -> None:
        if isinstance(error, ClientGone):
            self.record_failure(error)
            self._end_unsent(CLIENT_GONE)
            return
        if self._headers_written:
            # It is too late for an error document. The client must notice that the answer is incomplete.
            self._end_unsent(answer(error, self.request_id).status)
            self._running.discard(self)
            self._finished = True
            exchange_of(self.request).reset()
            return
        self.received.refuse()
        try:
            made = self.error_answer(error)
            self._log_fault(made, error)
            self.record_failure(error)
        except Exception as fault:
            # The client must get an answer even if the error cannot be shown, such as one of custom code.
            made = answer(fault, self.request_id)
            self._log_fault(made, fault)
            release_frames(fault)
        self.clear()
        self.set_status(made.status)
        if self.engine.has_authentication:
            telling.tell_caches_of_principals(self._headers, self.sender)
        if made.status == 401:
            telling.ask_for_credentials(self._headers, self.engine, self.request, error)
        if self.engine.settings.cache_control:
            self._headers["Cache-Control"] = "no-store"
        for name, value in made.headers:
            self.set_header(name, value)
        if self.is_timed_out:
            exchange_of(self.request).end_after_answer()
        if wants_page(self):
            self.finish_document(error_page(self, made), made.status)
        else:
            self.finish(made.body)

    def _log_fault(self, made: ErrorAnswer, error: BaseException) -> None:
        if made.is_fault:
            path = self.request.path[:SHOWN_CHARACTERS]
            log.error("request %s failed: %s %s", self.request_id, self.request.method, path, exc_info=error)

    def _end_unsent(self, status: int) -> None:
        """Record a request without a complete answer in logs and metrics, with this status."""
        if not self._finished:
            self.set_status(status, "")
            self.telemetry.end(self)

    def record_failure(self, error: BaseException) -> None:
        """Record a write that was refused or has failed, if the handler has an audit log."""

    def error_answer(self, error: BaseException) -> ErrorAnswer:
        """Return the answer for an exception."""
        return answer(error, self.request_id)

    def check_timeouts(self, now: float, began_at: float) -> None:
        """End the request if its body or its work takes too long."""
        settings = self.engine.settings
        if self._finished or self.is_stream or self.received.is_refused:
            return
        if self.received.is_arriving:
            if now - began_at > settings.body_timeout_seconds:
                self.is_timed_out = True
                self.answer_error(BodyTimeout("The body of the request took too long to arrive."))
            return
        late_seconds = now - began_at - settings.request_timeout_seconds
        if late_seconds > GRACE_SECONDS:
            self._answer_late()
        elif late_seconds > 0 and not self.is_timed_out:
            self.is_timed_out = True
            self.cancel_scope.time_out()

    def _answer_late(self) -> None:
        """Answer a request whose work does not end after it was cancelled. The connection is closed, because the work
        might still write to it."""
        exchange_of(self.request).end_after_answer()
        self.answer_error(self.cancel_scope.timeout_error())

    def shutdown(self) -> None:
        """Close the connection after this answer. Do not wait long for the rest of a body."""
        exchange_of(self.request).end_after_answer()
        asyncio.get_running_loop().call_later(HALF_BODY_SECONDS, self._close_half_body)

    def _close_half_body(self) -> None:
        """Close the connection if the body is incomplete. The body of a refused request has its own limit."""
        if self.received.is_arriving:
            exchange_of(self.request).close()

    def clear(self) -> None:
        """Set the default headers. tornado calls this at the start, and `Handler` before an error is answered.
        tornado's own method sets other headers, formats the date each time and checks our values: an eighth of the time
        of a small request."""
        if not hasattr(self, "request_id"):
            given = self.request.headers.by_name.get("X-Request-Id", [""])
            is_usable = len(given) == 1 and _REQUEST_ID.fullmatch(given[0])
            self.request_id = given[0] if is_usable else f"{random.getrandbits(128):032x}"
        date = http_date(int(time.time()))
        self._headers = Headers(
            {"Date": [date], "Content-Type": [MEDIA_TYPE], "Vary": ["Accept"], "X-Request-Id": [self.request_id]}
        )
        self._write_buffer = []
        self.set_status(200)
        self.set_default_headers()

    def set_etag_header(self) -> None:
        """Do nothing: `conditional.py` sets and compares the tags of documents."""

    def set_server_timing(self) -> None:
        """Set the header Server-Timing, if the settings allow it."""
        if self.stages and telling.sends_timing(self.engine, self.request):
            self._headers.put("Server-Timing", telling.timing(self.stages))

    def finish_document(self, body: bytes, status: int = 200) -> None:
        """Send this document as the answer."""
        if status != 200:
            self.set_status(status)
        self.set_server_timing()
        is_large = len(body) > compression.INLINE_BYTES
        if (is_large or self.always_compresses) and self.should_compress(len(body)):
            self.compress_and_finish(body)
        else:
            self._finish_whole(body)

    def _finish_whole(self, body: bytes) -> None:
        self._headers.put("Content-Length", str(len(body)))
        # This is what `write` does, without its check of the type.
        self._write_buffer.append(body)
        self.finish()

    async def finish_pieces(self, pieces: list[bytes], status: int = 200) -> None:
        """Send a document in pieces as the answer. A large document is never joined, because copying it would block
        other requests."""
        if len(pieces) == 1:
            self.finish_document(pieces[0], status)
            return
        self.set_status(status)
        self.set_server_timing()
        if self.should_compress():
            pieces = await self.cancel_scope.run(compression.compress_pieces(pieces))
        if self._finished:
            return
        self._headers["Content-Length"] = str(sum(map(len, pieces)))
        for piece in pieces:
            self._write_buffer.append(piece)
            self.flush()
            await asyncio.sleep(0)
        if not self._finished:
            self.finish()

    def should_compress(self, size: int | None = None) -> bool:
        """Return whether an answer is compressed, as `will_compress`. If so, set Content-Encoding."""
        if not self.will_compress(size):
            return False
        compression.tell_compressed(self._headers)
        return True

    def will_compress(self, size: int | None = None) -> bool:
        """Return whether an answer is compressed. size: of its body; None if it is large."""
        is_on = self.always_compresses or self.engine.settings.compression != "off"
        return is_on and compression.should_compress(self.request, self._headers, size)

    def compress_and_finish(self, body: bytes) -> asyncio.Future[None]:
        """Compress the body and send it, while other requests are answered."""
        self._auto_finish = False
        self._compression = asyncio.ensure_future(self._finish_compressed(body))
        return self._compression

    async def _finish_compressed(self, body: bytes) -> None:
        try:
            compressed = await self.cancel_scope.run(compression.compress_body(body))
            if not self._finished:
                self._finish_whole(compressed)
        except Exception as error:
            self.answer_error(error)

    def flush(self, include_footers: bool = False) -> asyncio.Future[None]:
        if self.request.method != "HEAD":
            self.sent_bytes += sum(map(len, self._write_buffer))
        return super().flush(include_footers)
