"""How long work is divided into steps."""

from __future__ import annotations

import pytest

from serializers.steps import (
    ALL,
    ALONE,
    HEAVY_BYTES,
    ONE_STEP,
    SHARED,
    SLICE_BYTES,
    Pace,
    Steps,
    needs_steps,
    piece_slices,
    release_rows,
    row_slices,
    run_steps,
    slices,
)


def test_items_in_chunks() -> None:
    assert [len(some) for some in slices(range(3), 3)] == [3]
    assert [len(some) for some in slices(range(7), 3)] == [3, 3, 1]
    assert [len(some) for some in slices(range(7), ONE_STEP)] == [7]


@pytest.mark.parametrize("pace", [ALONE, SHARED])
def test_a_document_with_many_rows_or_large_rows_needs_steps(pace: Pace) -> None:
    rows = [(1,)] * pace.short_rows
    assert not needs_steps([rows, []], HEAVY_BYTES, pace)
    assert needs_steps([rows, [(2,)]], 0, pace)
    assert needs_steps([[(1,)]], HEAVY_BYTES + 1, pace)


def test_small_rows_are_divided_by_number() -> None:
    rows = [(1, "x")] * 4
    assert list(row_slices(rows[:2], 0, 3)) == [ALL]
    assert list(row_slices([], 0, 3)) == []
    assert [len(rows[part]) for part in row_slices(rows, HEAVY_BYTES, 3)] == [3, 1]
    assert list(row_slices(rows, HEAVY_BYTES, ONE_STEP)) == [ALL]


def test_large_rows_are_divided_by_size() -> None:
    """A few rows may have most of the bytes of an answer."""
    wide = (1, "x" * (SLICE_BYTES // 2 + 1))
    rows = [(1, "x")] * 10 + [wide] * 5 + [(1, "x")] * 10
    assert [len(rows[part]) for part in row_slices(rows, HEAVY_BYTES + 1, 1000)] == [12, 2, 11]


def test_rows_are_freed_in_steps() -> None:
    first, second = [(1,)] * 5, [(2,)]
    steps = release_rows([first, second, ((3,),)], 2)
    next(steps)
    assert (len(first), len(second)) == (3, 1)
    run_steps(steps)
    assert (first, second) == ([], [])


def test_pieces_have_a_limited_size() -> None:
    text = b"x" * (SLICE_BYTES // 2 + 1)
    assert list(piece_slices([text] * 5)) == [slice(0, 2), slice(2, 4), slice(4, 5)]
    assert list(piece_slices([])) == []


def test_the_result_of_steps() -> None:
    def steps() -> Steps[int]:
        yield
        yield
        return 3

    assert run_steps(steps()) == 3
