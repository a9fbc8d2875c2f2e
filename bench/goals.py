"""Defines the goals of the benchmark. It takes `Figures` and returns each goal with its measured value.

Ratios are of requests per second, at 16 connections, with one worker each. The original counts only its page and is
compared without a total. Each floor is compared with an exact total and without one, with the same goal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from bench.results import CONNECTIONS, FLOOR, FLOORS, ORIGINAL, OURS, PLAIN, Figures, Row

Sense = Literal["at least", "at most"]


class Ratio(msgspec.Struct, frozen=True):
    """A goal for some requests, by name. Each must reach both ratios."""

    requests: tuple[str, ...]
    over_original: float
    over_floor: float


RATIOS: tuple[Ratio, ...] = (
    Ratio(("detail",), 2.7, 0.85),
    Ratio(("list-30",), 6.5, 0.85),
    Ratio(("list-30-include",), 10.5, 0.9),
    Ratio(("list-1000-include",), 27, 0.95),
    Ratio(("to-one-sorted",), 15, 0.9),
    Ratio(("dotted-filter", "any-filter", "boolean-filter"), 6, 0.85),
    Ratio(("create",), 3, 0.8),
    Ratio(("update",), 4, 0.8),
    Ratio(("operations-3",), 8, 0.8),
)
TWO_WORKERS = {"list-30-include": 0.5, "list-1000-include": 0.9}
"""The goals for two workers, as shares of pgbench's transactions per second with SQL in which PostgreSQL makes the
JSON."""

DEEP_PAGE_MS = 5.0
"""The goal for page 3,000 of ten, in PostgreSQL."""

TAIL = 3.0
"""The goal for p99 divided by p50 of reads."""

FIRST_BYTE_MS, GROWN_MB = 100.0, 64.0
"""The goals for all 1,000,000 users in one answer."""

CURSOR_PAGES = 3.0
"""The goal for any page by cursor, relative to the first."""

BATCH = 0.1
"""The goal for 1,000 adds in one request, relative to the same number of POSTs."""


COMPARED_WITH = {
    ORIGINAL: "relative to FastAPI-JSONAPI",
    PLAIN: "relative to the plain floor",
    FLOOR: "relative to the sharpest floor",
}


class Line(msgspec.Struct, frozen=True):
    """A goal and its value. measured: None if it was not measured."""

    what: str
    sense: Sense
    goal: float
    measured: float | None
    unit: str = ""

    @property
    def is_met(self) -> bool | None:
        """Whether the goal is met, or None if it was not measured."""
        if self.measured is None:
            return None
        return self.measured >= self.goal if self.sense == "at least" else self.measured <= self.goal


def goal_for(row: Row, other: str) -> float | None:
    """Return the goal of a row's ratio over another server."""
    for ratio in RATIOS:
        if row.request.removesuffix("-exact") in ratio.requests:
            if other in FLOORS:
                return ratio.over_floor
            return ratio.over_original if other == ORIGINAL and row.total != "exact" else None
    return None


def goal_lines(figures: Figures) -> list[Line]:
    """Return all goals with their measured values."""
    return [*_ratios(figures), *_two_workers(figures), *_tails(figures), *_pages(figures), *_streams(figures)]


def _ratios(figures: Figures) -> Iterator[Line]:
    for row in figures.rows:
        for other, label in COMPARED_WITH.items():
            goal, ratio = goal_for(row, other), row.ratio(OURS, other)
            if goal is not None:
                yield Line(f"{row.label}, {label}", "at least", goal, None if ratio is None else ratio.middle, "x")


def _two_workers(figures: Figures) -> Iterator[Line]:
    found = {pair.request: pair for pair in figures.two_workers}
    for name, goal in TWO_WORKERS.items():
        pair = found.get(name)
        label = name if pair is None else pair.label
        what = f"{label}, two workers relative to SQL that makes the JSON"
        yield Line(what, "at least", goal, None if pair is None else pair.ratio.middle, "x")


def _tails(figures: Figures) -> Iterator[Line]:
    tails = [
        (p99 / p50, row.label)
        for row in figures.rows
        if not row.writes and row.connections == CONNECTIONS and OURS in row.cells
        if (p50 := row.cells[OURS].median("p50_us", CONNECTIONS))
        and (p99 := row.cells[OURS].median("p99_us", CONNECTIONS))
    ]
    worst, label = max(tails, default=(None, "none was measured"))
    yield Line(f"p99 relative to p50 of reads, the worst: {label}", "at most", TAIL, worst, "x")


def _pages(figures: Figures) -> Iterator[Line]:
    deep = [each for each in figures.ceilings if each.request == "deep-page" and each.way == "same"]
    alone = min(deep, key=lambda each: each.clients, default=None)
    measured = alone.latency_ms if alone is not None and alone.clients == 1 else None
    yield Line("page 3,000 of ten, in PostgreSQL", "at most", DEEP_PAGE_MS, measured, " ms")
    by_cursor = [page for page in figures.pages if page.by == "cursor" and page.users == 1_000_000]
    firsts = {page.sort: page.milliseconds for page in by_cursor if not page.offset}
    worst = max((page.milliseconds / firsts[page.sort] for page in by_cursor if page.sort in firsts), default=None)
    yield Line("any page of 1,000,000 users by cursor, relative to the first", "at most", CURSOR_PAGES, worst, "x")


def _streams(figures: Figures) -> Iterator[Line]:
    large = next((each for each in figures.streams if each.users == 1_000_000), None)
    what = "1,000,000 users in one answer"
    first, grown = (None, None) if large is None else (large.first_byte_ms, large.grown_mb)
    yield Line(f"{what}: first byte", "at most", FIRST_BYTE_MS, first, " ms")
    yield Line(f"{what}: additional memory", "at most", GROWN_MB, grown, " MB")
    batch = figures.batches[0].ratio.middle if figures.batches else None
    yield Line("1,000 adds in one request, relative to as many POSTs", "at most", BATCH, batch, "x")
