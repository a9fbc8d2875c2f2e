"""What is the server's own under /-/, for who runs it: liveness, readiness, metrics. What comes in: a probe, or a
scrape. What goes out: a short document, or the figures of all workers.

They answer whatever Accept says, take no part in what is limited, and leave no line in the access log.
"""

from __future__ import annotations

from typing import Any

import msgspec

from serializers.objects import MetaDocument
from server.gauges import Gauges
from server.handlers.base import Handler
from server.health import Health
from server.observing.exposition import expose


class AdminHandler(Handler):
    is_quiet = True

    def initialize(self, health: Health, gauges: Gauges, **context: Any) -> None:  # type: ignore[override]  # more of it
        super().initialize(**context)
        self.health = health
        self.gauges = gauges

    def prepare(self) -> None:
        self.check_method()
        self.set_header("Cache-Control", "no-store")

    def finish_status(self, status: str) -> None:
        self.finish_document(msgspec.json.encode(MetaDocument({"status": status})))


class LiveHandler(AdminHandler):
    """The loop turns."""

    async def get(self) -> None:
        self.finish_status("live")


class ReadyHandler(AdminHandler):
    """Requests are welcome; why they are not is an error document, by way of the root handler."""

    async def get(self) -> None:
        self.finish_status(await self.health.check())


class MetricsHandler(AdminHandler):
    """The figures of all workers, as they are now in this one, and were within a second in the others."""

    async def get(self) -> None:
        self.gauges.update()
        shown = expose(self.database.telemetry.counters.read(), self.request.headers.get("Accept", ""))
        self.set_header("Content-Type", shown.media_type)
        self.finish_document(shown.text)
