"""Logs: answers at info, faults at error, each line with the request's id. What comes in: log records and
finished requests. What goes out: lines on standard error, as text or as JSON objects.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache

import msgspec
from tornado.web import RequestHandler

from server.settings import Settings

access = logging.getLogger("server.access")


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": _iso_time(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
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


class AccessLog:
    """A line for each request, never with the query, which may hold what nobody should read.

    The lines of one turn of the loop are written together and by no logger, which takes 15 microseconds a line, a tenth
    of a small request. Whether there are any is the logger's word.
    """

    def __init__(self, log_format: str) -> None:
        self._line = _json_line if log_format == "json" else _text_line
        self._lines: list[str] = []

    def __call__(self, handler: RequestHandler) -> None:
        if not access.isEnabledFor(logging.INFO):
            return
        if not self._lines:
            asyncio.get_running_loop().call_soon(self.write)
        self._lines.append(self._line(handler, time.time()))

    def write(self) -> None:
        """What cannot be written is lost, and no request with it."""
        lines, self._lines = self._lines, []
        with suppress(OSError, ValueError):
            sys.stderr.write("".join(lines))
            sys.stderr.flush()


def _text_line(handler: RequestHandler, now: float) -> str:
    request, milliseconds = handler.request, 1000 * handler.request.request_time()
    second = int(now)
    return (
        f"{_local_time(second)},{int((now - second) * 1000):03} INFO {request.method} {request.path}"
        f" {handler.get_status()} {milliseconds:.1f}ms {_request_id(handler)}\n"
    )


def _json_line(handler: RequestHandler, now: float) -> str:
    request, milliseconds = handler.request, 1000 * handler.request.request_time()
    status, request_id = handler.get_status(), _request_id(handler)
    fields = {
        "time": _iso_time(now),
        "level": "info",
        "logger": access.name,
        "message": f"{request.method} {request.path} {status} {milliseconds:.1f}ms {request_id}",
        "request_id": request_id,
        "method": request.method,
        "path": request.path,
        "status": status,
        "milliseconds": round(milliseconds, 3),
        "remote": request.remote_ip,
    }
    return msgspec.json.encode(fields).decode() + "\n"


def _request_id(handler: RequestHandler) -> str:
    return getattr(handler, "request_id", "")


@lru_cache(maxsize=1)
def _local_time(second: int) -> str:
    """As logging writes it."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))


def _iso_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
