"""What a worker notices of its requests and of its statements, each in one place. What comes in: requests that begin
and end, statements that ran, what became of connections. What goes out: figures, log lines, traces.

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
from tornado.web import RequestHandler

from server.errors import causes
from server.observing import metrics
from server.observing.board import Board
from server.observing.logs import AccessLog, CurrentRequest, access, current, log_format
from server.observing.metrics import Meter, Metric
from server.observing.slow import shape_of
from server.observing.supervision import OTHER, Supervised, Work, tell_of_others
from server.routes import Route
from server.settings import Settings, StartError

if TYPE_CHECKING:
    from server.observing.tracing import Tracer

UNMATCHED = "unmatched"
"""The route of a path that has none."""

TRACES_SECONDS = 3.0
"""How long a worker that ends waits for its last spans to be sent."""

_FROM_THE_DATABASE = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)

log = logging.getLogger("server")


class Watched(RequestHandler):
    """What a handler tells of its request. stages: each with its begin, by time.perf_counter. sent_bytes: of the body.
    is_quiet: whether only who logs everything wants to read of it."""

    is_quiet = False
    route: Route | None
    request_id: str
    stages: list[tuple[str, float]]
    sent_bytes = 0
    span: Any = None


class Watch:
    """One worker's. To be made when it does not fork any more. generation: of the settings and declarations."""

    def __init__(self, settings: Settings, board: Board | None = None, generation: int = 1) -> None:
        """Raises StartError."""
        self.board = Board() if board is None else board
        self.meter = Meter(self.board.sheet())
        self.tracer = _tracer() if settings.tracing else None
        self._access = AccessLog(log_format(settings))
        slow = settings.slow_statement_seconds
        self._slow_seconds = float("inf") if slow == "off" else slow
        self.meter.put(metrics.WORKERS_ENDED, 1.0)
        self.meter.put(metrics.GENERATION, generation)
        self.meter.put(metrics.START_TIME, time.time())
        self.meter.put(metrics.BUILD, 1.0, version("waterspout"), platform.python_version())

    def close(self) -> None:
        """The worker ends in order."""
        self.meter.put(metrics.WORKERS_ENDED, 0.0)
        self._access.write()
        if self.tracer is not None:
            self.tracer.close()

    def begin(self, handler: Watched) -> None:
        """To be called in the task that answers."""
        route = UNMATCHED if handler.route is None else handler.route.shape
        current.set(CurrentRequest(handler.request_id, route))
        if self.tracer is not None:
            self.tracer.begin(handler, route)

    def end(self, handler: RequestHandler) -> None:
        """All that is written down of a request, when its answer has been handed over."""
        assert isinstance(handler, Watched)
        route = UNMATCHED if handler.route is None else handler.route.shape
        now, request, meter = time.perf_counter(), handler.request, self.meter
        meter.request(route, request.method or "", handler.get_status(), request.request_time(), handler.sent_bytes)
        meter.stages(route, handler.stages, now)
        if self.tracer is not None:
            self.tracer.end(handler, now)
        self._access(handler, is_quiet=handler.is_quiet)

    def refused(self, status: HTTPStatus, client: str, seconds: float) -> None:
        """What was no request, and had a bare status for its answer. seconds: since it began to arrive."""
        self.meter.request(UNMATCHED, "", int(status), seconds, 0)
        fields = {"status": int(status), "remote": client, "milliseconds": round(1000 * seconds, 3)}
        # The request before it on the connection is another one.
        Context().run(
            access.info, "no request: a bare %d %s for %s", status, status.phrase, client, extra={"fields": fields}
        )

    def ran(self, sql: str, begin: float) -> None:
        """A statement, whether it failed or not. begin: by time.perf_counter."""
        seconds = time.perf_counter() - begin
        self.meter.statement(seconds)
        if seconds >= self._slow_seconds:
            self._tell_slow(sql, seconds)
        if self.tracer is not None:
            self.tracer.statement(sql, begin, seconds)

    def _tell_slow(self, sql: str, seconds: float) -> None:
        self.meter.add(metrics.SLOW_STATEMENTS)
        shape, request = shape_of(sql), current.get()
        route = "" if request is None else request.route
        fields = {"seconds": round(seconds, 3), "route": route, "sql": shape}
        log.warning("a statement took %.3f s: %s: %s", seconds, route or "no request", shape, extra={"fields": fields})

    def acquired(self, begin: float) -> None:
        """A connection is there, or will not be. begin: by time.perf_counter."""
        self.meter.acquired(time.perf_counter() - begin)

    def failed(self, error: BaseException) -> None:
        """Counts what the database, or the way there, had to say in what was raised."""
        found = next((one for one in causes(error) if isinstance(one, _FROM_THE_DATABASE)), None)
        if found is not None:
            state = str(getattr(found, "sqlstate", None) or "")
            self.meter.add(metrics.DATABASE_ERRORS, state[:2], type(found).__name__)

    def count(self, metric: Metric) -> None:
        self.meter.add(metric)

    def supervise(self, name: str, work: Work) -> Supervised:
        """Work without an end, which is started again when it ends."""
        self.meter.add(metrics.TASKS_ENDED, name, amount=0.0)
        return Supervised(name, work, self._task_ended)

    def tell_of_other_tasks(self) -> None:
        """Those that nobody waits for, of custom code among others."""
        self.meter.add(metrics.TASKS_ENDED, OTHER, amount=0.0)
        tell_of_others(self._task_ended)

    def _task_ended(self, name: str) -> None:
        self.meter.add(metrics.TASKS_ENDED, name)


def _tracer() -> Tracer:
    try:
        from server.observing.tracing import open_tracer
    except ImportError as error:
        raise StartError(f"tracing needs OpenTelemetry: install waterspout[tracing] ({error})") from error
    return open_tracer()
