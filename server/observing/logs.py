"""Formats log lines and writes the access log: responses at info, faults at error, each with the id of its request.

What comes in: log records and finished requests. What goes out: lines on standard error, as text, as JSON objects or in
the format of journald.
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
    """The request that the running code answers. It holds no reference to a handler, because connections and timers
    that begin in a request keep its context, some of them for hours."""

    request_id: str
    route: str


current: ContextVar[CurrentRequest | None] = ContextVar("current", default=None)

_UNSHOWN = re.compile(f"(?!\n)[{CONTROLS}]")
"""Control characters, and line breaks except the one that separates the lines of a message."""

_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
_DEBUG_PRIORITY = 7
"""Priorities of syslog. Source: sd-daemon(3)."""


class TextFormatter(logging.Formatter):
    """Time, level and process, then the message; a traceback follows on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{_text_head(record.created, record.levelname, os.getpid())} {_message(self, record)}"


class JsonFormatter(logging.Formatter):
    """One JSON object a line. The `fields` of a record are part of it."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": iso_time(record.created),
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
    """The priority in front of each line. journald itself adds the time and the process."""

    def format(self, record: logging.LogRecord) -> str:
        priority = next((number for level, number in _PRIORITIES if record.levelno >= level), _DEBUG_PRIORITY)
        return "\n".join(f"<{priority}>{line}" for line in _message(self, record).splitlines())


def _message(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    message, request = record.getMessage(), current.get()
    if request is not None and request.request_id not in message:
        message = f"{message} (request {request.request_id})"
    if record.exc_info:
        message = f"{message}\n{formatter.formatException(record.exc_info)}"
    return _UNSHOWN.sub(_escape, message)


def one_line(text: object) -> str:
    """Return a text for a message on one line. A line break from a client could look like another message."""
    return str(text).replace("\n", "\\n")


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


_FORMATTERS: dict[Format, type[logging.Formatter]] = {
    "text": TextFormatter,
    "json": JsonFormatter,
    "journald": JournalFormatter,
}


def log_format(settings: Settings) -> Format:
    """Return the format of the settings, else the one that fits the reader of standard error."""
    return settings.log_format or ("journald" if is_read_by_journald() else "text")


def is_read_by_journald() -> bool:
    """Return whether standard error is a socket of journald. Source: systemd.exec(5), JOURNAL_STREAM."""
    with suppress(OSError, ValueError, AttributeError):
        status = os.fstat(sys.stderr.fileno())
        return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"
    return False


def configure_logging(settings: Settings) -> None:
    """Set the format and the level of all loggers."""
    handler, formatter = logging.StreamHandler(sys.stderr), _FORMATTERS[log_format(settings)]()
    handler.setFormatter(formatter)
    if isinstance(sys.stderr, Output):
        sys.stderr.describe = partial(_format_dropped, formatter)
    # Warnings get the format of the other lines.
    logging.captureWarnings(True)
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)
    # No line shows these, and looking them up took nearly a tenth of a small request ("Logging HOWTO", Optimization).
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    # Broken HTTP is the client's fault, and tornado logs it at info in its own words.
    logging.getLogger("tornado.general").setLevel(logging.WARNING)


def _format_dropped(formatter: logging.Formatter, count: int) -> str:
    """Return the line that reports dropped lines."""
    message = f"{count} lines of the log were dropped because nobody read them"
    record = logging.LogRecord("server", logging.WARNING, "", 0, message, (), None)
    # In an empty context: the line belongs to no request.
    return Context().run(formatter.format, record) + "\n"


GATHER_SECONDS = 0.05
"""How long the lines of requests are gathered. Writing in each iteration of the loop takes 2 microseconds more."""


class Answered(msgspec.Struct, frozen=True, gc=False):
    """An answered request, for its line. time: since the epoch. seconds: its duration. size: the bytes of the body."""

    time: float
    request_id: str
    method: str
    path: str
    status: int
    seconds: float
    size: int
    remote: str | None


class AccessLog:
    """Writes a line for each request, without the query string, which may be confidential.

    Requests are gathered, and their lines are made and written together, without a logger: a logger takes 15
    microseconds for each line, a tenth of the time of a small request, and one line alone takes 5. The level of the
    logger `server.access` still applies. Create it in the process that logs.
    """

    def __init__(self, chosen: Format) -> None:
        self._line = _LINES[chosen]
        self._pid = os.getpid()
        self._answered: list[Answered] = []

    def add(self, handler: RequestHandler, seconds: float, size: int, *, is_quiet: bool = False) -> None:
        """Add a line. seconds: the duration of the request. size: of the body. is_quiet: only at level debug."""
        if not access.isEnabledFor(logging.DEBUG if is_quiet else logging.INFO):
            return
        if not self._answered:
            asyncio.get_running_loop().call_later(GATHER_SECONDS, self.write)
        request, request_id = handler.request, getattr(handler, "request_id", "")
        path = request.path[:SHOWN_CHARACTERS]
        described = (request_id, request.method or "", path, handler.get_status(), seconds, size, request.remote_ip)
        self._answered.append(Answered(time.time(), *described))

    def write(self) -> None:
        """Write the gathered lines. Lines that cannot be written are lost, and no request fails."""
        answered, self._answered = self._answered, []
        with suppress(OSError, ValueError):
            sys.stderr.write("".join([self._line(answer, self._pid) for answer in answered]))


def _milliseconds(answer: Answered) -> float:
    """Return the duration, rounded as the field has it, so that the message is the same number."""
    return round(1000 * answer.seconds, 3)


def _text_line(answer: Answered, pid: int) -> str:
    return f"{_text_head(answer.time, 'INFO', pid)} {_summary(answer)}\n"


def _journal_line(answer: Answered, pid: int) -> str:
    return f"<6>{_summary(answer)}\n"


def _json_line(answer: Answered, pid: int) -> str:
    fields = {
        "time": iso_time(answer.time),
        "level": "info",
        "logger": access.name,
        "pid": pid,
        "message": _summary(answer),
        "request_id": answer.request_id,
        "method": answer.method,
        "path": answer.path,
        "status": answer.status,
        "milliseconds": _milliseconds(answer),
        "bytes": answer.size,
        "remote": answer.remote,
    }
    return msgspec.json.encode(fields).decode() + "\n"


_LINES: dict[Format, Callable[[Answered, int], str]] = {
    "text": _text_line,
    "json": _json_line,
    "journald": _journal_line,
}


def _summary(answer: Answered) -> str:
    return f"{answer.method} {answer.path} {answer.status} {_milliseconds(answer):.1f}ms {answer.request_id}"


def _text_head(now: float, level: str, pid: int) -> str:
    second = int(now)
    return f"{_local_time(second)},{int((now - second) * 1000):03} {level} [{pid}]"


@lru_cache(maxsize=1)
def _local_time(second: int) -> str:
    """Return the time in the format of the logging module."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))


def iso_time(seconds: float) -> str:
    """Return a time since the epoch as in RFC 3339, in UTC and with milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
