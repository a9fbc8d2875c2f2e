"""Builds the application and the HTTP server. What comes in: settings, declarations, a database. What goes out: the
routes with their handlers, and a server that calls them. It must not know: sockets, the end of the process.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
from tornado.httputil import HTTPMessageDelegate, HTTPServerRequest
from tornado.web import Application

from querybuild.declarations.catalog import Catalog
from server.authentication.authenticator import Authenticator
from server.describing.descriptions import Descriptions
from server.engine import Engine
from server.gauges import Gauges
from server.handlers import (
    HANDLERS,
    AdminHandler,
    CustomHandler,
    DescribingHandler,
    ForeignOriginHandler,
    LiveHandler,
    NotFoundHandler,
    PreflightHandler,
    ProtectedResourceHandler,
    ReadyHandler,
    ServerHandler,
    UnknownHostHandler,
)
from server.handlers.base import Handler
from server.handlers.custom import defined_methods
from server.health import Health
from server.http import compression, cors
from server.http.allowed_hosts import AllowedHosts
from server.http.proxies import request_factory, trusted_peer_check
from server.http.request import HandlerDelegate, Request
from server.http.target import ASTERISK, canonical_path, is_too_long, path_text, pattern_text, shown_path
from server.http.transport.closings import Closings, Reason
from server.http.transport.connections import FindHandler, Server
from server.limits.balance import Balance
from server.limits.per_worker import ConnectionLimits, admin_limits, connection_limits, share
from server.limits.running import Running
from server.observing.metrics import CLOSED
from server.postgres.database import Database
from server.routes import ADMIN, QUERY, Methods, Route, Shape, below_prefix, match_route, methods_of
from server.schema.live_schema import LiveSchema
from server.settings import Settings

CustomRoutes = Sequence[tuple[re.Pattern[str], type[CustomHandler]]]


class RouteMatch(msgspec.Struct, frozen=True):
    """The handler that answers a request. arguments: those of its method."""

    handler: type[Handler]
    route: Route | None = None
    arguments: Sequence[bytes] = ()


PREFLIGHT, NOT_FOUND = RouteMatch(PreflightHandler), RouteMatch(NotFoundHandler)
UNKNOWN_HOST, FOREIGN_ORIGIN = RouteMatch(UnknownHostHandler), RouteMatch(ForeignOriginHandler)
PROBES = (LiveHandler, ReadyHandler)
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", QUERY})
PROTECTED_RESOURCE = RouteMatch(
    ProtectedResourceHandler,
    Route(Shape.PROTECTED_RESOURCE, str(Shape.PROTECTED_RESOURCE), methods=methods_of(Shape.PROTECTED_RESOURCE)),
)
SERVER = RouteMatch(ServerHandler, Route(Shape.SERVER, ASTERISK, methods=methods_of(Shape.SERVER)))


class Routes:
    """Finds the handler of a request, by the catalog of the engine. A request keeps the engine that it began with, so
    a reload only replaces the reference."""

    def __init__(self, engine: Engine, database: Database, routes: CustomRoutes) -> None:
        self.engine = engine
        self.routes = [_custom_route(pattern, handler) for pattern, handler in routes]
        self.database = database
        settings = engine.settings
        self.running = Running(
            share(settings.max_requests, settings.workers), share(settings.max_buffered_bytes, settings.workers)
        )
        self.descriptions = Descriptions(engine, [handler.openapi for _, handler in routes])
        self._hosts, self._admin_hosts = AllowedHosts(settings), AllowedHosts(settings, is_admin=True)
        self.health = Health(database, engine.authenticator)
        self.gauges = Gauges(engine, database, self.running)
        # tornado expects classes, but any function that returns a transform works.
        transforms: list[Any] = [*cors.transforms(settings.cors_origins), *compression.transforms(settings.compression)]
        self.application = Application(transforms=transforms, log_function=database.telemetry.end)

    def find_handler(self, request: HTTPServerRequest) -> HTTPMessageDelegate:
        """Return the delegate that answers a request."""
        match = self._match(request, self._read_path(request))
        return self._delegate(request, self._admitted(request, match, self._hosts))

    def _match(self, request: HTTPServerRequest, path: str | None) -> RouteMatch:
        settings = self.engine.settings
        if settings.cors_origins and cors.is_preflight(request, settings.cors_origins):
            return PREFLIGHT
        metadata = self.engine.resource_metadata
        if metadata is not None and path == metadata.path:
            return PROTECTED_RESOURCE
        if path is not None and settings.path_prefix:
            path = below_prefix(path, settings.path_prefix)
        if path is None:
            return SERVER if request.path == ASTERISK else NOT_FOUND
        if self.routes and (match := self._match_custom(path)) is not None:
            return match
        route = match_route(path, self.engine.catalog, self.engine.fixed_paths)
        return NOT_FOUND if route is None else RouteMatch(HANDLERS[route.shape], route)

    def _match_custom(self, path: str) -> RouteMatch | None:
        text = path_text(path)
        for pattern, handler, methods in self.routes:
            match = pattern.fullmatch(text)
            if match is not None:
                arguments = tuple([unquote_to_bytes(group or "") for group in match.groups()])
                return RouteMatch(handler, Route(Shape.CUSTOM, path, methods=methods), arguments)
        return None

    def find_admin_handler(self, request: HTTPServerRequest) -> HTTPMessageDelegate:
        """Return the delegate for a request on the admin port, which only has health and metrics."""
        path = self._read_path(request)
        shape = None if path is None else ADMIN.get(path)
        match = RouteMatch(Handler)
        if path is not None and shape is not None:
            match = RouteMatch(HANDLERS[shape], Route(shape, path, methods=methods_of(shape)))
        return self._delegate(request, self._admitted(request, match, self._admin_hosts))

    def _admitted(self, request: HTTPServerRequest, match: RouteMatch, hosts: AllowedHosts) -> RouteMatch:
        """Return the match, or a handler that refuses the request. Health probes may use any host name, and their
        answers contain nothing secret."""
        assert isinstance(request, Request)
        if not hosts.knows(request) and match.handler not in PROBES:
            return UNKNOWN_HOST
        if request.method not in SAFE_METHODS and hosts.is_foreign(request):
            return FOREIGN_ORIGIN
        return match

    def _read_path(self, request: HTTPServerRequest) -> str | None:
        """Replace the path of the request by its canonical form and return it. Returns None if it has none."""
        assert request.uri is not None
        is_long = is_too_long(request.uri, self.engine.settings.max_url_bytes)
        path = None if is_long else canonical_path(request.path)
        request.path = shown_path(request.path) if path is None else path
        return path

    def _delegate(self, request: HTTPServerRequest, match: RouteMatch) -> HTTPMessageDelegate:
        context = {"engine": self.engine, "database": self.database, "route": match.route, "running": self.running}
        if issubclass(match.handler, AdminHandler):
            context |= {"health": self.health, "gauges": self.gauges}
        if issubclass(match.handler, DescribingHandler):
            context |= {"descriptions": self.descriptions}
        assert isinstance(request, Request)
        return HandlerDelegate(self.application, request, match.handler, context, match.arguments)


def _custom_route(
    pattern: re.Pattern[str], handler: type[CustomHandler]
) -> tuple[re.Pattern[str], type[CustomHandler], Methods]:
    methods = methods_of(Shape.CUSTOM, defined_methods(handler))
    return re.compile(pattern_text(pattern.pattern), pattern.flags), handler, methods


def make_app(
    settings: Settings,
    catalog: Catalog,
    schema: LiveSchema,
    database: Database,
    routes: CustomRoutes = (),
    authenticator: Authenticator | None = None,
) -> Routes:
    """Return the routes of a server. authenticator: None to make one from the settings."""
    return Routes(Engine(settings, catalog, schema, authenticator), database, routes)


def make_server(app: Routes, settings: Settings, balance: Balance | None = None) -> Server:
    """Return the server of the main port. balance: shares connections with the other workers."""
    server = _server(app, app.find_handler, settings, connection_limits(settings), balance)
    app.gauges.clients = server
    return server


def make_admin_server(app: Routes, settings: Settings) -> Server:
    """Return the server of the admin port, which only has health and metrics."""
    return _server(app, app.find_admin_handler, settings, admin_limits(settings))


def _server(
    app: Routes,
    find_handler: FindHandler,
    settings: Settings,
    limits: ConnectionLimits,
    balance: Balance | None = None,
) -> Server:
    """Create a server. It does not limit bodies. Handlers do, because they answer with a document."""
    meter = app.database.telemetry.meter
    for reason in Reason:
        # A counter exists from the start, so that a graph begins at zero.
        meter.add(CLOSED, reason, amount=0.0)
    return Server(
        find_handler,
        make_request=request_factory(settings.trusted_proxies),
        limits=limits,
        # Twice the limit of the handlers, and a URL. A head over this limit gets a 431 without a document.
        head_bytes=2 * settings.max_header_bytes + settings.max_url_bytes,
        balance=balance,
        is_trusted=trusted_peer_check(settings.trusted_proxies),
        closings=Closings(partial(meter.add, CLOSED)),
        on_refused=app.database.telemetry.record_refusal,
    )
