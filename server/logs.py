"""Logs: answers at info, faults at error, each line with the request's id. What comes in: log records and
finished requests. What goes out: lines on standard error, as text or as JSON objects.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

import msgspec
from tornado.web import RequestHandler

from server.settings import Settings

access = logging.getLogger("server.access")

_FIELDS = ("request_id", "method", "path", "status", "milliseconds", "remote")


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields |= {name: record.__dict__[name] for name in _FIELDS if name in record.__dict__}
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(fields).decode()


def configure_logging(settings: Settings) -> None:
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonFormatter() if settings.log_format == "json" else text)
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)
    # What no line shows is not looked up: nearly a tenth of a small request went there ("Logging HOWTO", Optimization).
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    # Broken HTTP is the client's doing; tornado tells of it at info in words of its own.
    logging.getLogger("tornado.general").setLevel(logging.WARNING)


def log_request(handler: RequestHandler) -> None:
    """The access log: never the query, which may hold what nobody should read."""
    if not access.isEnabledFor(logging.INFO):
        return
    request = handler.request
    fields = {
        "request_id": getattr(handler, "request_id", ""),
        "method": request.method,
        "path": request.path,
        "status": handler.get_status(),
        "milliseconds": round(1000 * request.request_time(), 3),
        "remote": request.remote_ip,
    }
    access.info("%(method)s %(path)s %(status)d %(milliseconds).1fms %(request_id)s", fields, extra=fields)
