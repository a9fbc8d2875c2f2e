"""The memory that workers count in: sums over processes that live, that ended, and that were killed."""

from __future__ import annotations

import os
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from server.observing.board import SHEET_BYTES, Board, Lasting

ANSWERS = ("answers", "GET")
OPEN = ("open",)


@contextmanager
def worker(work: Callable[[], None]) -> Iterator[int]:
    """A process that works, says so, and then does nothing until it is killed. Gives its pid."""
    done, tell = os.pipe()
    with warnings.catch_warnings():
        # Of threads that this process has: the other one uses none.
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


def counting(board: Board, answers: float, is_open: float) -> Callable[[], None]:
    def work() -> None:
        sheet = board.sheet()
        sheet.cells[sheet.row(ANSWERS, 2, Lasting.KEPT)] += answers
        sheet.cells[sheet.row(OPEN, 1, Lasting.PRESENT)] = is_open

    return work


def test_the_living_and_the_dead() -> None:
    """What was counted stays; what was so at the moment goes with the process. The place is free for another one."""
    board = Board()
    with worker(counting(board, 1, 10)):
        with worker(counting(board, 2, 20)):
            both = board.read()
        one = board.read()
        with worker(counting(board, 4, 40)):
            other = board.read()
    none = board.read()
    assert [both.kept, one.kept, other.kept, none.kept] == [
        {ANSWERS: [3.0, 0.0]},
        {ANSWERS: [3.0, 0.0]},
        {ANSWERS: [7.0, 0.0]},
        {ANSWERS: [7.0, 0.0]},
    ]
    assert [both.present, one.present, other.present, none.present] == [
        {OPEN: {1: [10.0], 2: [20.0]}},
        {OPEN: {1: [10.0]}},
        {OPEN: {1: [10.0], 2: [40.0]}},
        {},
    ]
    assert [both.workers, one.workers, other.workers, none.workers] == [2, 1, 2, 0]


def test_a_legacy() -> None:
    """It counts when its worker has ended, which may have taken it back before."""
    board, ended = Board(), ("ended",)

    def work(legacy: float) -> None:
        sheet = board.sheet()
        sheet.cells[sheet.row(ended, 1, Lasting.LEGACY)] = legacy

    seen = []
    for legacy in (1.0, 0.0, 1.0):
        with worker(partial(work, legacy)):
            seen.append(board.read().kept.get(ended))
        seen.append(board.read().kept.get(ended))
    assert seen == [None, [1.0], [1.0], [1.0], [1.0], [2.0]]


def test_another_worker_sees_the_same() -> None:
    """Whoever reads: also a process with a sheet of its own."""
    board = Board()

    def work() -> None:
        counting(board, 2, 20)()
        figures = board.read()
        assert (figures.kept, figures.present) == ({ANSWERS: [3.0, 0.0]}, {OPEN: {1: [10.0], 2: [20.0]}})

    with worker(counting(board, 1, 10)), worker(work):
        assert board.read().workers == 2


def test_many_come_and_go() -> None:
    """While others count on, no sum ever falls, and nothing of what was counted is lost."""
    board, seen = Board(), 0.0
    with worker(counting(board, 1000, 0)):
        for number in range(1, 21):
            with worker(counting(board, 1, 0)):
                [count, _] = board.read().kept[ANSWERS]
            [again, _] = board.read().kept[ANSWERS]
            assert seen < count == again == 1000.0 + number
            seen = count
        assert board._count() == 3


def test_a_process_has_one_sheet() -> None:
    board = Board()
    board.sheet()
    with pytest.raises(AssertionError):
        board.sheet()


def test_names_of_any_length() -> None:
    board = Board()
    sheet = board.sheet()
    keys = [("x" * length, "é" * length) for length in range(1, 20)]
    for number, key in enumerate(keys):
        sheet.cells[sheet.row(key, 1, Lasting.KEPT)] = number
    assert board.read().kept == {key: [float(number)] for number, key in enumerate(keys)}


def test_a_full_sheet() -> None:
    """What there is no room for is counted where nobody reads; the rest is as it was."""
    board = Board()
    sheet = board.sheet()
    rows = [sheet.row((str(number),), 60, Lasting.KEPT) for number in range(SHEET_BYTES // (60 * 8))]
    for row in rows:
        sheet.cells[row] += 1.0
        sheet.cells[row + 59] += 1.0
    kept = board.read().kept
    assert 1000 < len(kept) < len(rows)
    assert set(map(tuple, kept.values())) == {(1.0, *[0.0] * 58, 1.0)}


def test_the_end_of_all() -> None:
    """Told by one process, and known in the others."""
    board = Board()
    assert not board.is_ending
    with worker(board.end):
        assert board.is_ending
        assert board.read().kept == {}
