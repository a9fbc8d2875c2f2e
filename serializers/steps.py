"""Splits long work into steps, so that other requests can run between them. A step function is a generator that yields
after each step and returns its result.

    def doubled(numbers, step_rows):
        doubled = []
        for chunk in slices(numbers, step_rows):
            doubled += [2 * number for number in chunk]
            if step_rows:
                yield
        return doubled

`run_steps` runs a generator without pauses. The server runs long ones with pauses. Short work is one step, because
pauses would cost a document of up to 4,000 rows a tenth of its time.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec


class Pace(msgspec.Struct, frozen=True):
    """How long work is divided. short_rows: a document of at most this many rows is encoded in one step, if they have
    few bytes. step_rows: how many rows of a longer document one step encodes."""

    short_rows: int
    step_rows: int


ALONE = Pace(5000, 1000)
"""If no short answer waits. One step takes 1 to 4 ms, and a short document 5 to 15 ms."""

SHARED = Pace(600, 250)
"""If short answers wait. One step takes 0.2 to 0.5 ms."""

ONE_STEP = 0
"""The rows of a step if there is only one step."""

SLICE_BYTES = 1_048_576
"""About how many bytes one step encodes if the rows are large."""

HEAVY_BYTES = 4_194_304
"""A document with more bytes of rows is long. Then the size of each row is measured, because a few rows may have most
of the bytes."""

ALL = slice(None)
"""All rows: most answers are encoded in one step."""

Item = TypeVar("Item")
Result = TypeVar("Result")

Steps = Generator[None, None, Result]


def run_steps(steps: Steps[Result]) -> Result:
    """Run all steps without a pause and return the result."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: Result = end.value
        return result


def needs_steps(rows: Sequence[Sequence[Any]], received_bytes: int, pace: Pace) -> bool:
    """Whether a document is encoded in more than one step. rows: the rows of each node. received_bytes: how much
    PostgreSQL sent for them."""
    return received_bytes > HEAVY_BYTES or sum(map(len, rows)) > pace.short_rows


def slices(items: Sequence[Item], step_rows: int) -> Iterable[Sequence[Item]]:
    """Return the items in chunks, one for each step."""
    if not step_rows or len(items) <= step_rows:
        return (items,)
    return (items[begin : begin + step_rows] for begin in range(0, len(items), step_rows))


def row_slices(rows: Sequence[Any], received_bytes: int, step_rows: int) -> Iterable[slice]:
    """Return the slice of the rows of each step. received_bytes: how much PostgreSQL sent for all rows of the
    answer."""
    if received_bytes > HEAVY_BYTES:
        return _slices_by_size(rows, step_rows or ALONE.step_rows)
    if not step_rows or len(rows) <= step_rows:
        return (ALL,) if rows else ()
    return (slice(begin, begin + step_rows) for begin in range(0, len(rows), step_rows))


def release_rows(parts: Sequence[Sequence[Any]], step_rows: int) -> Steps[None]:
    """Free rows that nothing else refers to. Freeing 40,000 at once takes 4 ms."""
    for rows in parts:
        while isinstance(rows, list) and rows:
            del rows[-step_rows:]
            yield


def _slices_by_size(rows: Sequence[Any], step_rows: int) -> Iterator[slice]:
    begin = size = 0
    for end, row in enumerate(rows):
        if size > SLICE_BYTES or end - begin == step_rows:
            yield slice(begin, end)
            begin, size = end, 0
        size += _row_size(row)
    if begin < len(rows):
        yield slice(begin, len(rows))


def piece_slices(texts: Sequence[bytes]) -> Iterator[slice]:
    """Return the slices of the texts that are joined to one piece."""
    begin = size = 0
    for end, text in enumerate(texts):
        if size > SLICE_BYTES:
            yield slice(begin, end)
            begin, size = end, 0
        size += len(text)
    if begin < len(texts):
        yield slice(begin, len(texts))


def _row_size(row: Any) -> int:
    return sum([len(value) for value in row if isinstance(value, (str, bytes))])
