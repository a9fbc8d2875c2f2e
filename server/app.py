"""make_app and make_server. What comes in: settings, declarations, a database. What goes out: what answers a request,
and the server that asks it. Nothing here knows where sockets come from, or when it all ends.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any
from urllib.parse import unquote_to_bytes

from tornado.httputil import HTTPMessageDelegate, HTTPServerRequest
from tornado.web import Application

from querybuild.catalog import Catalog
from server.engine import Engine
from server.gauges import Gauges
from server.handlers import HANDLERS, AdminHandler, CustomHandler, NotFoundHandler, PreflightHandler
from server.handlers.base import Handler
from server.health import Health
from server.http import compression, cors
from server.http.balance import Balance
from server.http.closings import Closings, Reason
from server.http.connections import FindHandler, Server
from server.http.proxies import request_maker, trust_in
from server.http.request import Handling, Request
from server.limits import connection_limits, share
from server.live_schema import LiveSchema
from server.observing.metrics import CLOSED
from server.postgres.database import Database
from server.routes import ADMIN, Route, Shape, below_prefix, match_route, plain_path
from server.running import Running
from server.settings import Settings

CustomRoutes = Sequence[tuple[re.Pattern[str], type[CustomHandler]]]


class Routes:
    """Path -> handler, by the engine's catalogue. The engine is taken once a request, so a new one is a
    swapped reference."""

    def __init__(self, engine: Engine, database: Database, routes: CustomRoutes) -> None:
        self.engine = engine
        self.routes = routes
        self.database = database
        settings = engine.settings
        self.running = Running(
            share(settings.max_requests, settings.workers), share(settings.max_buffered_bytes, settings.workers)
        )
        self.health = Health(database)
        self.gauges = Gauges(engine, database, self.running)
        # What makes a transform will do for its class.
        transforms: list[Any] = [*cors.transforms(settings.cors_origins), *compression.transforms(settings.compression)]
        self.application = Application(transforms=transforms, log_function=database.watch.end)

    def find_handler(self, request: HTTPServerRequest) -> HTTPMessageDelegate:
        settings = self.engine.settings
        if settings.cors_origins and cors.is_preflight(request, settings.cors_origins):
            return self._delegate(request, PreflightHandler, None)
        path = below_prefix(request.path, settings.path_prefix) if settings.path_prefix else request.path
        if path is None:
            return self._delegate(request, NotFoundHandler, None)
        for pattern, handler in self.routes:
            found = pattern.fullmatch(path)
            if found is not None:
                arguments = [unquote_to_bytes(group or "") for group in found.groups()]
                return self._delegate(request, handler, Route(Shape.CUSTOM, path), arguments)
        route = match_route(path, self.engine.catalog, self.engine.fixed_paths)
        return self._delegate(request, NotFoundHandler if route is None else HANDLERS[route.shape], route)

    def find_admin_handler(self, request: HTTPServerRequest) -> HTTPMessageDelegate:
        """On the port that has health and metrics alone."""
        path = plain_path(request.path)
        shape = None if path is None else ADMIN.get(path)
        if path is None or shape is None:
            return self._delegate(request, Handler, None)
        return self._delegate(request, HANDLERS[shape], Route(shape, path))

    def _delegate(
        self,
        request: HTTPServerRequest,
        handler: type[Handler],
        route: Route | None,
        arguments: list[bytes] | None = None,
    ) -> HTTPMessageDelegate:
        context = {"engine": self.engine, "database": self.database, "route": route, "running": self.running}
        if issubclass(handler, AdminHandler):
            context |= {"health": self.health, "gauges": self.gauges}
        assert isinstance(request, Request)
        return Handling(self.application, request, handler, context, arguments or [])


def make_app(
    settings: Settings, catalog: Catalog, schema: LiveSchema, database: Database, routes: CustomRoutes = ()
) -> Routes:
    """What a server answers with."""
    return Routes(Engine(settings, catalog, schema), database, routes)


def make_server(app: Routes, settings: Settings, balance: Balance | None = None) -> Server:
    """balance: with the other workers."""
    server = _server(app, app.find_handler, settings, balance)
    app.gauges.clients = server
    return server


def make_admin_server(app: Routes, settings: Settings) -> Server:
    """On the port that has health and metrics alone."""
    return _server(app, app.find_admin_handler, settings)


def _server(app: Routes, find_handler: FindHandler, settings: Settings, balance: Balance | None = None) -> Server:
    """Bodies are measured by the handlers, which answer with a document."""
    meter = app.database.watch.meter
    for reason in Reason:
        # A graph of what has not happened yet is a line at zero.
        meter.add(CLOSED, reason, amount=0.0)
    return Server(
        find_handler,
        make_request=request_maker(settings.trusted_proxies),
        limits=connection_limits(settings),
        # Twice ours, and room for a URL: what is over this limit has a bare 431 for its answer.
        head_bytes=2 * settings.max_header_bytes + settings.max_url_bytes,
        balance=balance,
        is_trusted=trust_in(settings.trusted_proxies),
        closings=Closings(partial(meter.add, CLOSED)),
    )
