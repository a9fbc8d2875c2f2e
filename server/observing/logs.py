"""Logs: answers at info, faults at error, each line with the request's id. What comes in: log records and
finished requests. What goes out: lines on standard error, as text, as JSON objects or as journald takes them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, ContextVar
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Literal

import msgspec
from tornado.web import RequestHandler

from querybuild.errors import CONTROLS, SHOWN_CHARACTERS
from server.observing.output import Output
from server.settings import Settings

Format = Literal["text", "json", "journald"]

access = logging.getLogger("server.access")


class CurrentRequest(msgspec.Struct, frozen=True):
    """The request that the code at work answers. It holds no handler: connections and timers that begin in a request
    keep its context, some of them for hours."""

    request_id: str
    route: str


current: ContextVar[CurrentRequest | None] = ContextVar("current", default=None)

_UNSHOWN = re.compile(f"(?!\n)[{CONTROLS}]")
"""What a terminal would act on, and ends of lines but the one that parts the lines of a message."""

_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
_DEBUG_PRIORITY = 7
"""Of syslog, as sd-daemon(3) has them."""


class TextFormatter(logging.Formatter):
    """Time, level and process, then the message; a traceback follows on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{_text_head(record.created, record.levelname, os.getpid())} {_message(self, record)}"


class JsonFormatter(logging.Formatter):
    """One JSON object a line; what a record has as its `fields` is part of it."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": _iso_time(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": os.getpid(),
            "message": record.getMessage(),
        }
        if request := current.get():
            fields["request_id"] = request.request_id
        fields.update(getattr(record, "fields", {}))
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(fields, enc_hook=str).decode()


class JournalFormatter(logging.Formatter):
    """The priority in front of each line, and neither time nor process, which journald knows by itself."""

    def format(self, record: logging.LogRecord) -> str:
        priority = next((one for level, one in _PRIORITIES if record.levelno >= level), _DEBUG_PRIORITY)
        return "\n".join(f"<{priority}>{line}" for line in _message(self, record).splitlines())


def _message(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    message, request = record.getMessage(), current.get()
    if request is not None and request.request_id not in message:
        message = f"{message} (request {request.request_id})"
    if record.exc_info:
        message = f"{message}\n{formatter.formatException(record.exc_info)}"
    return _UNSHOWN.sub(_escape, message)


def one_line(text: object) -> str:
    """A text that a client may have had a part in, for a message: a line of its own would look like another message."""
    return str(text).replace("\n", "\\n")


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


_FORMATTERS: dict[Format, type[logging.Formatter]] = {
    "text": TextFormatter,
    "json": JsonFormatter,
    "journald": JournalFormatter,
}


def log_format(settings: Settings) -> Format:
    """What was chosen, else what whoever reads standard error takes."""
    return settings.log_format or ("journald" if is_read_by_journald() else "text")


def is_read_by_journald() -> bool:
    """Whether standard error is the socket of which systemd says so. Source: systemd.exec(5), JOURNAL_STREAM."""
    with suppress(OSError, ValueError, AttributeError):
        found = os.fstat(sys.stderr.fileno())
        return os.environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"
    return False


def configure_logging(settings: Settings) -> None:
    handler, formatter = logging.StreamHandler(sys.stderr), _FORMATTERS[log_format(settings)]()
    handler.setFormatter(formatter)
    if isinstance(sys.stderr, Output):
        sys.stderr.describe = partial(_dropped, formatter)
    # They have the form of all other lines.
    logging.captureWarnings(True)
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)
    # What no line shows is not looked up: nearly a tenth of a small request went there ("Logging HOWTO", Optimization).
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    # Broken HTTP is the client's doing; tornado tells of it at info in words of its own.
    logging.getLogger("tornado.general").setLevel(logging.WARNING)


def _dropped(formatter: logging.Formatter, count: int) -> str:
    """The line about lines that were not written."""
    message = f"{count} lines of the log were dropped because nobody read them"
    record = logging.LogRecord("server", logging.WARNING, "", 0, message, (), None)
    # It is about no request, whoever is the reason for the next line.
    return Context().run(formatter.format, record) + "\n"


GATHERED_SECONDS = 0.05
"""How long the lines of requests are gathered: to write those of each turn of the loop takes 2 microseconds more."""


class AccessLog:
    """A line for each request, never with the query, which may hold what nobody should read.

    Lines are gathered, and written together and by no logger, which takes 15 microseconds a line, a tenth of a small
    request. Whether there are any is the logger's word. To be made in the process that logs.
    """

    def __init__(self, chosen: Format) -> None:
        self._line = _LINES[chosen]
        self._pid = os.getpid()
        self._lines: list[str] = []

    def __call__(self, handler: RequestHandler, *, is_quiet: bool = False) -> None:
        """is_quiet: a line for who wants to see everything."""
        if not access.isEnabledFor(logging.DEBUG if is_quiet else logging.INFO):
            return
        if not self._lines:
            asyncio.get_running_loop().call_later(GATHERED_SECONDS, self.write)
        self._lines.append(self._line(handler, time.time(), self._pid))

    def write(self) -> None:
        """Writes what was gathered. What cannot be written is lost, and no request with it."""
        lines, self._lines = self._lines, []
        with suppress(OSError, ValueError):
            sys.stderr.write("".join(lines))


def _text_line(handler: RequestHandler, now: float, pid: int) -> str:
    return f"{_text_head(now, 'INFO', pid)} {_summary(handler, _milliseconds(handler))}\n"


def _journal_line(handler: RequestHandler, now: float, pid: int) -> str:
    return f"<6>{_summary(handler, _milliseconds(handler))}\n"


def _json_line(handler: RequestHandler, now: float, pid: int) -> str:
    request, milliseconds = handler.request, _milliseconds(handler)
    fields = {
        "time": _iso_time(now),
        "level": "info",
        "logger": access.name,
        "pid": pid,
        "message": _summary(handler, milliseconds),
        "request_id": _request_id(handler),
        "method": request.method,
        "path": request.path[:SHOWN_CHARACTERS],
        "status": handler.get_status(),
        "milliseconds": round(milliseconds, 3),
        "bytes": getattr(handler, "sent_bytes", 0),
        "remote": request.remote_ip,
    }
    return msgspec.json.encode(fields).decode() + "\n"


_LINES: dict[Format, Callable[[RequestHandler, float, int], str]] = {
    "text": _text_line,
    "json": _json_line,
    "journald": _journal_line,
}


def _summary(handler: RequestHandler, milliseconds: float) -> str:
    request = handler.request
    path = request.path[:SHOWN_CHARACTERS]
    return f"{request.method} {path} {handler.get_status()} {milliseconds:.1f}ms {_request_id(handler)}"


def _milliseconds(handler: RequestHandler) -> float:
    return 1000 * handler.request.request_time()


def _request_id(handler: RequestHandler) -> str:
    return getattr(handler, "request_id", "")


def _text_head(now: float, level: str, pid: int) -> str:
    second = int(now)
    return f"{_local_time(second)},{int((now - second) * 1000):03} {level} [{pid}]"


@lru_cache(maxsize=1)
def _local_time(second: int) -> str:
    """As logging writes it."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))


def _iso_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
