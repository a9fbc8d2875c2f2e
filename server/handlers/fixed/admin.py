"""Answers the routes below /-/ for operators: liveness, readiness, metrics.

These routes ignore Accept, do not count for limits, and write no line to the access log.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import msgspec

from querybuild.errors import not_allowed
from serializers.objects import MetaDocument
from server.gauges import Gauges
from server.handlers import telling
from server.handlers.base import Handler
from server.health import Health
from server.observing.exposition import expose


class AdminHandler(Handler):
    """The base of the handlers of health and metrics."""

    is_quiet = True
    is_counted = False

    def initialize(self, health: Health, gauges: Gauges, **context: Any) -> None:  # type: ignore[override]  # it takes more
        super().initialize(**context)
        self.health = health
        self.gauges = gauges

    def prepare(self) -> Awaitable[None] | None:
        self.check_method()
        self.set_header("Cache-Control", "no-store")
        return None

    def finish_status(self, status: str) -> None:
        """Answer with this status."""
        self.finish_document(msgspec.json.encode(MetaDocument({"status": status})))


class LiveHandler(AdminHandler):
    """Answers that the event loop runs."""

    async def get(self) -> None:
        self.finish_status("live")


class ReadyHandler(AdminHandler):
    """Answers whether the server accepts requests. If not, an error document says why."""

    async def get(self) -> None:
        self.finish_status(await self.health.check())


class MetricsHandler(AdminHandler):
    """Answers with the metrics of all workers. Those of other workers may be a second old."""

    def prepare(self) -> Awaitable[None] | None:
        """Check that the principal may read metrics. Raises Forbidden, Unauthenticated."""
        self.check_method()
        settings = self.engine.settings
        if self.request.method == "OPTIONS" or not self.engine.has_authentication or settings.admin_port is not None:
            return super().prepare()
        return self.prepare_identified()

    def check_request(self) -> None:
        """Check the principal. Raises Forbidden, Unauthenticated."""
        self.set_header("Cache-Control", "no-store")
        if not telling.is_admin(self.engine, self.sender):
            raise not_allowed(
                self.sender.principal, "Metrics are for the role or scope that the setting auth_admin names."
            )

    async def get(self) -> None:
        self.gauges.update()
        shown = expose(self.database.telemetry.counters.read(), self.request.headers.get("Accept", ""))
        self.set_header("Content-Type", shown.media_type)
        self.finish_document(shown.text)
