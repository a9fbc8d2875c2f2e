"""Refuses requests without a route, an unknown host, and writes with a foreign origin."""

from __future__ import annotations

from querybuild.errors import quoted
from server.engine import Engine
from server.errors import ForeignOrigin, RouteNotFound, UnknownHost
from server.handlers.base import Handler
from server.limits.running import Running
from server.postgres.database import Database
from server.routes import PAGES, Route, below_prefix, route_not_found


class NotFoundHandler(Handler):
    """Answers paths without a route."""

    def _no_route(self) -> RouteNotFound:
        return route_not_found(self.request.sent_path, self.engine.catalog, self.engine.settings)


class UnknownHostHandler(Handler):
    """Refuses requests whose host is not a name of this server."""

    def _no_route(self) -> UnknownHost:
        name = quoted(str(self.request.host_name))
        detail = f"{name} is not a name of this server. Add it to the setting allowed_hosts if it should be one."
        return UnknownHost(detail, header="Host")


class ForeignOriginHandler(Handler):
    """Refuses writes from pages of another origin. Whoever has sent a form gets a page."""

    def initialize(self, engine: Engine, database: Database, route: Route | None, running: Running) -> None:
        super().initialize(engine, database, route, running)
        path = below_prefix(self.request.path, engine.settings.path_prefix)
        self.answers_pages = engine.settings.pages and path is not None and path.startswith(PAGES)

    def _no_route(self) -> ForeignOrigin:
        origin = self.request.headers["Origin"]
        detail = (
            f"Pages of {quoted(origin)} may not write here. Add it to the setting cors_origins if they should; "
            "if it is this server's own origin, set public_url."
        )
        if origin == "null":
            detail = "Pages without an origin, such as files, may not write here, unless the setting cors_origins is *."
        return ForeignOrigin(detail, header="Origin")
