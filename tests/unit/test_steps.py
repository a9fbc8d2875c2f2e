"""How long work is divided into steps."""

from __future__ import annotations

from serializers.steps import (
    ALL,
    HEAVY_BYTES,
    SHORT_ROWS,
    SLICE_BYTES,
    SLICE_ROWS,
    Steps,
    needs_steps,
    piece_slices,
    row_slices,
    run_steps,
    slices,
)


def test_items_in_chunks() -> None:
    many = 2 * SLICE_ROWS + 1
    assert [len(some) for some in slices(range(SLICE_ROWS), in_steps=True)] == [SLICE_ROWS]
    assert [len(some) for some in slices(range(many), in_steps=True)] == [SLICE_ROWS, SLICE_ROWS, 1]
    assert [len(some) for some in slices(range(many), in_steps=False)] == [many]


def test_a_document_with_many_rows_or_large_rows_needs_steps() -> None:
    assert not needs_steps([[(1,)] * SHORT_ROWS, []], HEAVY_BYTES)
    assert needs_steps([[(1,)] * SHORT_ROWS, [(2,)]], 0)
    assert needs_steps([[(1,)]], HEAVY_BYTES + 1)


def test_small_rows_are_divided_by_number() -> None:
    rows = [(1, "x")] * (SLICE_ROWS + 1)
    assert list(row_slices(rows[:2], 0, in_steps=True)) == [ALL]
    assert list(row_slices([], 0, in_steps=True)) == []
    assert [len(rows[part]) for part in row_slices(rows, HEAVY_BYTES, in_steps=True)] == [SLICE_ROWS, 1]
    assert list(row_slices(rows, HEAVY_BYTES, in_steps=False)) == [ALL]


def test_large_rows_are_divided_by_size() -> None:
    """A few rows may have most of the bytes of an answer."""
    wide = (1, "x" * (SLICE_BYTES // 2 + 1))
    rows = [(1, "x")] * 10 + [wide] * 5 + [(1, "x")] * 10
    assert [len(rows[part]) for part in row_slices(rows, HEAVY_BYTES + 1, in_steps=True)] == [12, 2, 11]


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
