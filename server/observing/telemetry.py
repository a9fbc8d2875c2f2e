"""Records the requests and the statements of a worker: metrics, log lines and traces.

What comes in: requests that begin and end, statements that ran, connections that were acquired or failed.

It must not know: handlers, the pool, who asks for the figures.
"""

from __future__ import annotations

import logging
import platform
import time
from contextvars import Context
from http import HTTPStatus
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import asyncpg

from server.errors import causes
from server.observing import metrics
from server.observing.audit import AuditLog
from server.observing.logs import AccessLog, CurrentRequest, access, current, log_format
from server.observing.metrics import Meter, Metric
from server.observing.observed import UNMATCHED, ObservedHandler
from server.observing.shared_counters import SharedCounters
from server.observing.slow import shape_of
from server.observing.supervision import OTHER, Supervised, Work, log_unhandled_errors
from server.settings import Settings, StartError

if TYPE_CHECKING:
    from server.observing.tracing import Tracer

TRACES_SECONDS = 3.0
"""How long a worker that stops waits until its last spans are sent."""

_FROM_THE_DATABASE = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)

log = logging.getLogger("server")


class Telemetry:
    """Records what happens in one worker. Create it when the worker does not fork any more. generation: of the
    settings and declarations. audit: None without the setting `audit_log`."""

    def __init__(self, settings: Settings, counters: SharedCounters | None = None, generation: int = 1) -> None:
        """Raises StartError."""
        self.counters = SharedCounters() if counters is None else counters
        self.meter = Meter(self.counters.segment())
        self.tracer = _tracer() if settings.tracing else None
        self._access = AccessLog(log_format(settings))
        self.audit = None if settings.audit_log is None else AuditLog(settings.audit_log)
        slow = settings.slow_statement_seconds
        self._slow_seconds = float("inf") if slow == "off" else slow
        self.meter.put(metrics.WORKERS_ENDED, 1.0)
        self.meter.put(metrics.GENERATION, generation)
        self.meter.put(metrics.START_TIME, time.time())
        self.meter.put(metrics.BUILD, 1.0, version("waterspout"), platform.python_version())

    def close(self) -> None:
        """Finish, because the worker stops in order."""
        self.meter.put(metrics.WORKERS_ENDED, 0.0)
        self._access.write()
        if self.audit is not None:
            self.audit.close()
        if self.tracer is not None:
            self.tracer.close(TRACES_SECONDS)

    def begin(self, handler: ObservedHandler) -> None:
        """Begin to record a request. Call it in the task that answers it."""
        route = UNMATCHED if handler.route is None else handler.route.shape
        current.set(CurrentRequest(handler.request_id, route))
        if self.tracer is not None:
            self.tracer.begin(handler, route)

    def end(self, handler: Any) -> None:
        """Record a request, when its response has been handed over to the connection. handler: an ObservedHandler."""
        route = UNMATCHED if handler.route is None else handler.route.shape
        now, request, meter = time.perf_counter(), handler.request, self.meter
        seconds, size = request.request_time(), handler.sent_bytes
        meter.request(route, request.method or "", handler.get_status(), seconds, size)
        meter.stages(route, handler.stages, now)
        if self.tracer is not None:
            self.tracer.end(handler, now)
        self._access.add(handler, seconds, size, is_quiet=handler.is_quiet)

    def record_refusal(self, status: HTTPStatus, client: str, seconds: float) -> None:
        """Record input that was no valid request and got only a status. seconds: since it began to arrive."""
        self.meter.request(UNMATCHED, "", int(status), seconds, 0)
        fields = {"status": int(status), "remote": client, "milliseconds": round(1000 * seconds, 3)}
        # In an empty context: the earlier request of the connection is another one.
        Context().run(
            access.info, "no valid request: %d %s for %s", status, status.phrase, client, extra={"fields": fields}
        )

    def record_statement(self, sql: str, begin: float) -> None:
        """Record a statement, whether it failed or not. begin: by time.perf_counter."""
        seconds = time.perf_counter() - begin
        self.meter.statement(seconds)
        if seconds >= self._slow_seconds:
            self._log_slow(sql, seconds)
        if self.tracer is not None:
            self.tracer.statement(sql, begin, seconds)

    def _log_slow(self, sql: str, seconds: float) -> None:
        self.meter.add(metrics.SLOW_STATEMENTS)
        shape, request = shape_of(sql), current.get()
        route = "" if request is None else request.route
        fields = {"seconds": round(seconds, 3), "route": route, "sql": shape}
        log.warning("a statement took %.3f s: %s: %s", seconds, route or "no request", shape, extra={"fields": fields})

    def record_acquire(self, begin: float) -> None:
        """Record the time until a connection was acquired, or could not be. begin: by time.perf_counter."""
        self.meter.acquired(time.perf_counter() - begin)

    def record_failure(self, error: BaseException) -> None:
        """Count an error of the database or of the connection to it, if `error` or one of its causes is one."""
        database_error = next((cause for cause in causes(error) if isinstance(cause, _FROM_THE_DATABASE)), None)
        if database_error is not None:
            state = str(getattr(database_error, "sqlstate", None) or "")
            self.meter.add(metrics.DATABASE_ERRORS, state[:2], type(database_error).__name__)

    def count(self, metric: Metric) -> None:
        """Add 1 to a counter."""
        self.meter.add(metric)

    def supervise(self, name: str, work: Work) -> Supervised:
        """Run a background task, and restart it when it ends."""
        self.meter.add(metrics.TASKS_ENDED, name, amount=0.0)
        return Supervised(name, work, self._task_ended)

    def log_unhandled_errors(self) -> None:
        """Log and count the errors of tasks that nobody awaits, for example of custom code."""
        self.meter.add(metrics.TASKS_ENDED, OTHER, amount=0.0)
        log_unhandled_errors(self._task_ended)

    def _task_ended(self, name: str) -> None:
        self.meter.add(metrics.TASKS_ENDED, name)


def _tracer() -> Tracer:
    try:
        from server.observing.tracing import open_tracer
    except ImportError as error:
        raise StartError(f"tracing needs OpenTelemetry: install waterspout[tracing] ({error})") from error
    return open_tracer()
