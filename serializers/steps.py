"""Splits long work into steps, so that other requests can run between them. A step function is a generator that yields
after each step and returns its result.

    def doubled(numbers, in_steps):
        found = []
        for chunk in slices(numbers, in_steps):
            found += [2 * number for number in chunk]
            if in_steps:
                yield
        return found

`run_steps` runs a generator without pauses. The server runs long ones with pauses. Short work is one step, because
pauses would cost a document of up to 4,000 rows a tenth of its time.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, TypeVar

SHORT_ROWS = 5000
"""A document of at most this many rows is encoded in one step, if they have few bytes. This takes 5 to 15 ms."""

SLICE_ROWS = 1000
"""How many rows of a long document one step encodes. This takes 1 to 4 ms."""

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


def needs_steps(rows: Sequence[Sequence[Any]], received_bytes: int) -> bool:
    """Whether a document is encoded in more than one step. rows: the rows of each node. received_bytes: how much
    PostgreSQL sent for them."""
    return received_bytes > HEAVY_BYTES or sum(map(len, rows)) > SHORT_ROWS


def slices(items: Sequence[Item], in_steps: bool) -> Iterable[Sequence[Item]]:
    """Return the items in chunks, one for each step."""
    if not in_steps or len(items) <= SLICE_ROWS:
        return (items,)
    return (items[begin : begin + SLICE_ROWS] for begin in range(0, len(items), SLICE_ROWS))


def row_slices(rows: Sequence[Any], received_bytes: int, in_steps: bool) -> Iterable[slice]:
    """Return the slice of the rows of each step. received_bytes: how much PostgreSQL sent for all rows of the
    answer."""
    if received_bytes > HEAVY_BYTES:
        return _slices_by_size(rows)
    if not in_steps or len(rows) <= SLICE_ROWS:
        return (ALL,) if rows else ()
    return (slice(begin, begin + SLICE_ROWS) for begin in range(0, len(rows), SLICE_ROWS))


def _slices_by_size(rows: Sequence[Any]) -> Iterator[slice]:
    begin = size = 0
    for end, row in enumerate(rows):
        if size > SLICE_BYTES or end - begin == SLICE_ROWS:
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
