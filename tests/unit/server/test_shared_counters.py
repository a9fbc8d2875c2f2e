"""The counters that workers share: totals over processes that run, have ended or were killed."""

from __future__ import annotations

import os
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from server.observing.shared_counters import SEGMENT_BYTES, Retention, SharedCounters

ANSWERS = ("answers", "GET")
OPEN = ("open",)


@contextmanager
def worker(work: Callable[[], None]) -> Iterator[int]:
    """Start a process that does the work and then waits until it is killed. Yields its pid."""
    done, tell = os.pipe()
    with warnings.catch_warnings():
        # The warning is about threads of this process. The child uses none of them.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        try:
            work()
            os.write(tell, b".")
            signal.pause()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(tell)
    try:
        assert os.read(done, 1) == b"."
        yield pid
    finally:
        os.close(done)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def counting(counters: SharedCounters, answers: float, is_open: float) -> Callable[[], None]:
    def work() -> None:
        segment = counters.segment()
        segment.cells[segment.row(ANSWERS, 2, Retention.KEPT)] += answers
        segment.cells[segment.row(OPEN, 1, Retention.RUNNING)] = is_open

    return work


def test_running_and_ended_workers() -> None:
    """Counts stay when a process ends, gauges go, and another process takes its segment."""
    counters = SharedCounters()
    with worker(counting(counters, 1, 10)):
        with worker(counting(counters, 2, 20)):
            both = counters.read()
        one = counters.read()
        with worker(counting(counters, 4, 40)):
            other = counters.read()
    none = counters.read()
    assert [both.totals, one.totals, other.totals, none.totals] == [
        {ANSWERS: [3.0, 0.0]},
        {ANSWERS: [3.0, 0.0]},
        {ANSWERS: [7.0, 0.0]},
        {ANSWERS: [7.0, 0.0]},
    ]
    assert [both.per_worker, one.per_worker, other.per_worker, none.per_worker] == [
        {OPEN: {1: [10.0], 2: [20.0]}},
        {OPEN: {1: [10.0]}},
        {OPEN: {1: [10.0], 2: [40.0]}},
        {},
    ]
    assert [both.workers, one.workers, other.workers, none.workers] == [2, 1, 2, 0]


def test_a_row_that_counts_after_exit() -> None:
    """It counts when its worker has ended, unless the worker has set it back to 0."""
    counters, ended = SharedCounters(), ("ended",)

    def work(amount: float) -> None:
        segment = counters.segment()
        segment.cells[segment.row(ended, 1, Retention.AFTER_EXIT)] = amount

    seen = []
    for amount in (1.0, 0.0, 1.0):
        with worker(partial(work, amount)):
            seen.append(counters.read().totals.get(ended))
        seen.append(counters.read().totals.get(ended))
    assert seen == [None, [1.0], [1.0], [1.0], [1.0], [2.0]]


def test_a_worker_reads_the_same_figures() -> None:
    """A process with a segment of its own may read, too."""
    counters = SharedCounters()

    def work() -> None:
        counting(counters, 2, 20)()
        figures = counters.read()
        assert (figures.totals, figures.per_worker) == ({ANSWERS: [3.0, 0.0]}, {OPEN: {1: [10.0], 2: [20.0]}})

    with worker(counting(counters, 1, 10)), worker(work):
        assert counters.read().workers == 2


def test_totals_never_fall_while_workers_end() -> None:
    """Other workers go on counting, and no count is lost."""
    counters, seen = SharedCounters(), 0.0
    with worker(counting(counters, 1000, 0)):
        for number in range(1, 21):
            with worker(counting(counters, 1, 0)):
                [count, _] = counters.read().totals[ANSWERS]
            [again, _] = counters.read().totals[ANSWERS]
            assert seen < count == again == 1000.0 + number
            seen = count
        assert counters._count() == 3


def test_a_process_has_one_segment() -> None:
    counters = SharedCounters()
    counters.segment()
    with pytest.raises(AssertionError):
        counters.segment()


def test_row_names_of_any_length() -> None:
    counters = SharedCounters()
    segment = counters.segment()
    keys = [("x" * length, "é" * length) for length in range(1, 20)]
    for number, key in enumerate(keys):
        segment.cells[segment.row(key, 1, Retention.KEPT)] = number
    assert counters.read().totals == {key: [float(number)] for number, key in enumerate(keys)}


def test_a_full_segment() -> None:
    """Rows that have no room are counted in cells that nobody reads. The other rows are unchanged."""
    counters = SharedCounters()
    segment = counters.segment()
    rows = [segment.row((str(number),), 60, Retention.KEPT) for number in range(SEGMENT_BYTES // (60 * 8))]
    for row in rows:
        segment.cells[row] += 1.0
        segment.cells[row + 59] += 1.0
    kept = counters.read().totals
    assert 1000 < len(kept) < len(rows)
    assert set(map(tuple, kept.values())) == {(1.0, *[0.0] * 58, 1.0)}


def test_the_stop_of_the_server_is_shared() -> None:
    """One process sets it, and the others see it."""
    counters = SharedCounters()
    assert not counters.is_stopping
    with worker(counters.mark_stopping):
        assert counters.is_stopping
        assert counters.read().totals == {}
