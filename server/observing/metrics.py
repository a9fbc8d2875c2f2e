"""Declares the metrics, and counts them for one worker.

What comes in: durations, sizes, errors. What goes out: numbers in the worker's segment of the shared counters
(`server/observing/shared_counters.py`).

It must not know: handlers, the database, how figures are shown.

Names end with a unit, and those of counters with `_total` (https://prometheus.io/docs/practices/naming/).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Literal

import msgspec

from server.observing.shared_counters import Retention, RowKey, Segment

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SUM = len(SECONDS) + 1
"""The index of the sum in a row with these bounds: after the buckets and the count above the last bound."""

LAG_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)

METHODS = frozenset({"GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS", "QUERY"})
"""Other methods are counted together."""

Stages = Sequence[tuple[str, float]]


class Metric(msgspec.Struct, frozen=True):
    """A metric. bounds: of the buckets of a histogram, in seconds. is_per_worker: shown for each worker, with the
    number of its segment, and removed when the worker ends. Other counters are kept, and other gauges are the sum over
    the running workers. is_counted_after_exit: counted when the worker has ended. is_info: a constant, so not
    summed."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    is_per_worker: bool = False
    is_counted_after_exit: bool = False
    is_info: bool = False

    @property
    def count(self) -> int:
        """How many numbers a row has. A histogram has its buckets, the count above the last bound, and the sum."""
        return len(self.bounds) + 2 if self.kind == "histogram" else 1

    @property
    def retention(self) -> Retention:
        """How long the numbers count."""
        if self.is_counted_after_exit:
            return Retention.AFTER_EXIT
        return Retention.RUNNING if self.kind == "gauge" or self.is_per_worker else Retention.KEPT


def _counter(name: str, help: str, *labels: str) -> Metric:
    return Metric(f"waterspout_{name}", "counter", help, labels)


def _gauge(name: str, help: str, *labels: str) -> Metric:
    return Metric(f"waterspout_{name}", "gauge", help, labels)


def _histogram(name: str, help: str, *labels: str, bounds: tuple[float, ...] = SECONDS) -> Metric:
    return Metric(f"waterspout_{name}", "histogram", help, labels, bounds)


def _worker_metric(name: str, help: str, kind: Literal["counter", "gauge"] = "gauge") -> Metric:
    return Metric(f"waterspout_worker_{name}", kind, help, ("worker",), is_per_worker=True)


REQUEST = ("route", "method", "status")
REQUEST_SECONDS = _histogram(
    "http_request_duration_seconds", "Time from the head of a request to its answer.", *REQUEST
)
RESPONSE_BYTES = _counter("http_response_bytes_total", "Bytes of the bodies of answers.", *REQUEST)
CONNECTIONS = _gauge("http_connections", "Connections of clients.")
CLOSED = _counter("http_connections_closed_total", "Connections that the server closed of its own accord.", "reason")
IN_FLIGHT = _gauge("http_requests_in_flight", "Requests that are being answered.")
STAGE_SECONDS = _histogram("stage_duration_seconds", "Time of each stage of a request.", "route", "stage")
KEYED = _counter("keyed_requests_total", "Writes with an Idempotency-Key, by what was done with the key.", "outcome")
KEYS_REMOVED = _counter("idempotency_keys_removed_total", "Kept answers that were removed because they were old.")
STREAMS = _counter("streams_total", "Answers that were begun as a stream.")
STREAMS_RUNNING = _gauge("streams_running", "Answers that are being streamed.")

POOL_MAX = _gauge("pool_max_connections", "Connections to PostgreSQL that there may be.")
POOL_CONNECTIONS = _gauge("pool_connections", "Connections to PostgreSQL that are open.", "state")
POOL_WAITING = _gauge("pool_waiting_requests", "Requests that wait for a connection.")
ACQUIRE_SECONDS = _histogram("pool_acquire_duration_seconds", "Time until a request had a connection, or had none.")
OPENED = _counter("pool_connections_opened_total", "Connections to PostgreSQL that were opened.")
LOST = _counter("pool_connections_lost_total", "Connections to PostgreSQL that broke.")
STATEMENT_SECONDS = _histogram("statement_duration_seconds", "Time of each SQL statement.")
SLOW_STATEMENTS = _counter("slow_statements_total", "Statements that took slow_statement_seconds or longer.")
DATABASE_ERRORS = _counter(
    "database_errors_total",
    "Errors of PostgreSQL and of the way there; sqlstate is the class, the first two characters.",
    *("sqlstate", "error"),
)

CACHE_HITS = _counter("cache_hits_total", "What was found in a cache.", "cache")
CACHE_MISSES = _counter("cache_misses_total", "What was looked for in a cache and not found.", "cache")
CACHE_ENTRIES = _gauge("cache_entries", "What a cache holds.", "cache")
CACHE_BYTES = _gauge("cache_bytes", "What this weighs.", "cache")

LAG = _histogram("event_loop_lag_seconds", "How late the event loop came to a timer.", bounds=LAG_SECONDS)
DROPPED_LINES = _counter("log_lines_dropped_total", "Lines of the log that were dropped because nobody read them.")
TASKS_ENDED = _counter("background_tasks_failed_total", "Background tasks that ended.", "task")
WORKERS = _gauge("workers", "Processes that answer.")
STOPPING = _gauge("workers_stopping", "Processes that finish what they have, and then end.")
WORKERS_ENDED = Metric(
    "waterspout_workers_ended_total",
    "counter",
    "Workers that ended otherwise than in order.",
    is_counted_after_exit=True,
)
RESIDENT = _worker_metric("resident_memory_bytes", "Memory of the worker.")
OPEN_FDS = _worker_metric("open_fds", "Open file descriptors of the worker.")
MAX_FDS = _worker_metric("max_fds", "Open file descriptors that the worker may have.")
CPU_SECONDS = _worker_metric("cpu_seconds_total", "Processor time of the worker.", "counter")
START_TIME = _worker_metric("start_time_seconds", "When the worker started, in Unix time.")
GENERATION = _worker_metric(
    "generation", "How often settings and declarations had been loaded, with those of the worker."
)
BUILD = Metric("waterspout_build_info", "gauge", "What is running; always 1.", ("version", "python"), is_info=True)

METRICS = (
    REQUEST_SECONDS,
    RESPONSE_BYTES,
    CONNECTIONS,
    CLOSED,
    IN_FLIGHT,
    STAGE_SECONDS,
    KEYED,
    KEYS_REMOVED,
    STREAMS,
    STREAMS_RUNNING,
    POOL_MAX,
    POOL_CONNECTIONS,
    POOL_WAITING,
    ACQUIRE_SECONDS,
    OPENED,
    LOST,
    STATEMENT_SECONDS,
    SLOW_STATEMENTS,
    DATABASE_ERRORS,
    CACHE_HITS,
    CACHE_MISSES,
    CACHE_ENTRIES,
    CACHE_BYTES,
    LAG,
    DROPPED_LINES,
    TASKS_ENDED,
    WORKERS,
    STOPPING,
    WORKERS_ENDED,
    RESIDENT,
    OPEN_FDS,
    MAX_FDS,
    CPU_SECONDS,
    START_TIME,
    GENERATION,
    BUILD,
)


class Meter:
    """Counts the metrics of one worker. The methods for each request and each statement repeat code instead of calling
    it, so that all of them take about three microseconds a request."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self._cells = segment.cells
        self._rows: dict[RowKey, int] = {}
        self._requests: dict[tuple[str, str, int], tuple[int, int]] = {}
        self._stages: dict[str, dict[str, int]] = {}
        self._acquire, self._statement = self._row(ACQUIRE_SECONDS), self._row(STATEMENT_SECONDS)

    def _row(self, metric: Metric, *labels: str) -> int:
        key = (metric.name, *labels)
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = self.segment.row(key, metric.count, metric.retention)
        return row

    def add(self, metric: Metric, *labels: str, amount: float = 1.0) -> None:
        """Add to a counter."""
        self._cells[self._row(metric, *labels)] += amount

    def put(self, metric: Metric, value: float, *labels: str) -> None:
        """Set a gauge."""
        self._cells[self._row(metric, *labels)] = value

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """Add a value to a histogram."""
        row = self._row(metric, *labels)
        self._cells[row + bisect_left(metric.bounds, value)] += 1.0
        self._cells[row + len(metric.bounds) + 1] += value

    def request(self, route: str, method: str, status: int, seconds: float, size: int) -> None:
        """Count a request. size: bytes of the body."""
        rows = self._requests.get((route, method, status))
        if rows is None:
            rows = self._request_rows(route, method, status)
        (row, sent), cells = rows, self._cells
        cells[row + bisect_left(SECONDS, seconds)] += 1.0
        cells[row + _SUM] += seconds
        cells[sent] += size

    def _request_rows(self, route: str, method: str, status: int) -> tuple[int, int]:
        labels = (route, method if method in METHODS else "other", str(status))
        rows = self._row(REQUEST_SECONDS, *labels), self._row(RESPONSE_BYTES, *labels)
        if method in METHODS:
            self._requests[route, method, status] = rows
        return rows

    def stages(self, route: str, stages: Stages, end: float) -> None:
        """Count the stages of a request. stages: each with its begin. end: that of the last stage
        (time.perf_counter)."""
        cells, known = self._cells, self._stages.get(route)
        if known is None:
            known = self._stages[route] = {}
        for name, begin in reversed(stages):
            row = known.get(name)
            if row is None:
                row = known[name] = self._row(STAGE_SECONDS, route, name)
            seconds, end = end - begin, begin
            cells[row + bisect_left(SECONDS, seconds)] += 1.0
            cells[row + _SUM] += seconds

    def acquired(self, seconds: float) -> None:
        """Count how long a request waited for a connection."""
        row, cells = self._acquire, self._cells
        cells[row + bisect_left(SECONDS, seconds)] += 1.0
        cells[row + _SUM] += seconds

    def statement(self, seconds: float) -> None:
        """Count how long a statement took."""
        row, cells = self._statement, self._cells
        cells[row + bisect_left(SECONDS, seconds)] += 1.0
        cells[row + _SUM] += seconds
