"""Defines the base of all handlers: checks before the body arrives, error documents, the end of a request.

What comes in: a tornado request and its Route. What goes out: bytes on the connection. The stages that a subclass
names are timed and sent as `Server-Timing`.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable
from typing import Any

from tornado.web import HTTPError, stream_request_body

from querybuild.declarations.resource import Relationship, Resource
from querybuild.declarations.values import ValueFault
from querybuild.errors import SHOWN_CHARACTERS, ApiError, quoted, release_frames, resource_not_found
from querybuild.principal import Principal
from server.engine import ANYBODY, Engine
from server.errors import (
    BodyTimeout,
    ErrorAnswer,
    MethodNotAllowed,
    PreconditionUnsupported,
    ReadOnlyServer,
    RouteNotFound,
    UnsupportedMediaType,
    UrlTooLong,
    answer,
)
from server.handlers.sending import Sending
from server.http.negotiation import ANY, JSON_API, MediaType, accepted_type, check_content_type
from server.http.request import Request
from server.http.target import is_too_long
from server.limits.running import CancelScope, ClientGone, Running
from server.postgres.database import Database
from server.routes import NOT_ALLOWED, OPTIONS, WRITES, Route, route_not_found

HALF_BODY_SECONDS = 2.0
"""How long the server waits for the rest of a body when it stops."""

GRACE_SECONDS = 2.0
"""How long a request that was cancelled for its timeout may take to end. After that it is answered anyway."""

CLIENT_GONE = 499
"""The status in logs and metrics if the client disconnected before its answer, as in nginx."""

_PRECONDITIONS = frozenset({"If-Match", "If-Unmodified-Since"})

log = logging.getLogger("server")


@stream_request_body
class Handler(Sending):
    """The base of all handlers. applied_extensions: the URIs that the body has as `ext` of its media type. answer_type:
    which media type of the route the client prefers."""

    applied_extensions: frozenset[str] = frozenset()
    answer_type = JSON_API
    request: Request
    resource: Resource
    is_stream = False
    """Whether the answer is a stream, which has its own timeout."""
    _is_timed_out = False

    def initialize(self, engine: Engine, database: Database, route: Route | None, running: Running) -> None:
        self.engine = engine
        self.database = database
        self.telemetry = database.telemetry
        self.route = route
        self.method = NOT_ALLOWED if route is None else route.methods.get(self.request.method or "", NOT_ALLOWED)
        if route is not None and route.resource is not None:
            self.resource = route.resource
        self._running = running
        running.add(self, self.request.began_at)
        self.stages = []
        self.cancel_scope = CancelScope()

    def prepare(self) -> Awaitable[None] | None:
        """Make all checks that do not need the body, before it arrives. Returns an awaitable only if the issuer of a
        token has to be asked."""
        self.telemetry.begin(self)
        self.begin_work()
        engine, request = self.engine, self.request
        settings = engine.settings
        if is_too_long(request.uri or "", settings.max_url_bytes):
            raise UrlTooLong(f"A URL has at most {settings.max_url_bytes} bytes.")
        if request.head_bytes > settings.max_header_bytes:
            self._refuse_headers()
            return None
        # Most servers that are open get no credentials. Then nothing has to be found out.
        if not engine.is_open or "Authorization" in request.headers.by_name:
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
        """Find the principal, and then make the checks that depend on it."""
        principal = self.identify()
        if principal is not None:
            return self._prepare_later(principal)
        self.check_request()
        return None

    async def _prepare_later(self, principal: Awaitable[Principal]) -> None:
        """Continue when the issuer has answered. Meanwhile the body may have timed out."""
        found = await principal
        if not self._finished:
            self.take_principal(found)
            self.check_request()

    def check_request(self) -> None:
        """Check the request against the row of its method in the route table, when the principal is known."""
        method = self.method
        if method is NOT_ALLOWED:
            self.check_method()
        elif method is not OPTIONS:
            headers = self.request.headers.by_name
            if "Accept" in headers:
                self.answer_type = accepted_type(", ".join(headers["Accept"]), method.answers)
            if method.name in WRITES:
                self.prepare_write()

    def body_arrived(self) -> None:
        """Count the request, because all of its body has arrived."""
        if self._waits_for_body and not self._finished:
            self._running.begin(self)

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
        self.exchange.end_after_answer()
        self.finish()

    def prepare_write(self) -> None:
        """Make the checks of writes. Raises RequestFault, Overloaded."""
        self.check_writable()
        headers = self.request.headers.by_name
        if not _PRECONDITIONS.isdisjoint(headers):
            name = next(name for name in headers if name in _PRECONDITIONS)
            raise PreconditionUnsupported(f"{name} is not supported yet: send the write without it.", header=name)
        body = self.method.body
        if body is not None:
            if body is not ANY:
                self._check_media_type(body)
            self.check_length()

    def check_writable(self) -> None:
        """Check that the server accepts writes. Raises ReadOnlyServer."""
        if self.engine.settings.read_only:
            raise ReadOnlyServer("This server only answers reads.")

    def _check_media_type(self, accepted: MediaType) -> None:
        """Check the media type and the encoding of the body. Raises UnsupportedMediaType."""
        headers = self.request.headers
        if self.content_length() or "Transfer-Encoding" in headers.by_name or "Content-Type" in headers.by_name:
            self.applied_extensions = check_content_type(headers.get("Content-Type"), accepted)
        if "Content-Encoding" in headers.by_name and headers["Content-Encoding"].lower() != "identity":
            raise UnsupportedMediaType("A body must not be compressed.", header="Content-Encoding")

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
        self.set_header("Allow", ", ".join(self.allow()))

    async def head(self, *arguments: Any) -> None:
        """Answer like GET. tornado omits the body and keeps Content-Length."""
        get: Any = self.get
        answered = get(*arguments)
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
        if self.body_bytes:
            self._running.bodies.release(self)
        if sent.done():
            self._running.discard(self)
        else:
            self._running.end(self)
            sent.add_done_callback(lambda _: self._running.discard(self))
        return sent

    def on_connection_close(self) -> None:
        super().on_connection_close()
        self.client_gone()
        self._running.discard(self)

    def client_gone(self) -> None:
        """Cancel the work, because the client has disconnected."""
        self.cancel_scope.cancel()

    def send_error(self, status_code: int = 500, **kwargs: Any) -> None:
        """Answer an exception. tornado calls this for everything that a handler raises."""
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
            self.exchange.reset()
            return
        self.drop_body()
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
            self.tell_caches_of_principals()
        if made.status == 401:
            self.ask_for_credentials(error)
        if self.engine.settings.cache_control:
            self._headers["Cache-Control"] = "no-store"
        for name, value in made.headers:
            self.set_header(name, value)
        if self._is_timed_out:
            self.exchange.end_after_answer()
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

    def log_exception(self, *_: Any) -> None:
        """Log nothing: `answer_error` logs faults with the id of the request, and answers are in the access log."""

    def check_timeouts(self, now: float, began_at: float) -> None:
        """End the request if its body or its work takes too long."""
        settings = self.engine.settings
        if self._finished or self.is_stream or self._is_refused:
            return
        if self.is_arriving:
            if now - began_at > settings.body_timeout_seconds:
                self._is_timed_out = True
                self.answer_error(BodyTimeout("The body of the request took too long to arrive."))
            return
        late_seconds = now - began_at - settings.request_timeout_seconds
        if late_seconds > GRACE_SECONDS:
            self._answer_late()
        elif late_seconds > 0 and not self._is_timed_out:
            self._is_timed_out = True
            self.cancel_scope.time_out()

    def _answer_late(self) -> None:
        """Answer a request whose work does not end after it was cancelled. The connection is closed, because the work
        might still write to it."""
        self.exchange.end_after_answer()
        self.answer_error(self.cancel_scope.timeout_error())

    def shutdown(self) -> None:
        """Close the connection after this answer. Do not wait long for the rest of a body."""
        self.exchange.end_after_answer()
        asyncio.get_running_loop().call_later(HALF_BODY_SECONDS, self._close_half_body)

    def _close_half_body(self) -> None:
        """Close the connection if the body is incomplete. The body of a refused request has its own limit."""
        if self.is_arriving:
            self.exchange.close()


class NotFoundHandler(Handler):
    """Answers paths without a route."""

    def _no_route(self) -> RouteNotFound:
        return route_not_found(self.request.sent_path, self.engine.catalog, self.engine.settings)


def read_id(resource: Resource, id_text: str) -> Any:
    """Return an id, converted to the type of its column. Raises ResourceNotFound if it is not a valid id."""
    try:
        return resource.id_type.read(id_text)
    except ValueFault:
        raise resource_not_found(resource.type, id_text) from None
