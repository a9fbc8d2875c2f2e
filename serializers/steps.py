"""Work in steps, between which other requests may have their turn. In: rows, and how much they weigh. Out: generators
that yield after each step and return their result.

    def doubled(numbers, in_steps):
        found = []
        for some in slices(numbers, in_steps):
            found += [2 * number for number in some]
            if in_steps:
                yield
        return found

`at_once` runs them to their end. The server runs long ones with pauses. Work that is not long is one step: pauses would
cost a small document a tenth of its time, and one of 4,000 rows too.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, TypeVar

SHORT_ROWS = 5000
"""A document of so many rows is encoded in one step, if they are not heavy: that takes 5 to 15 ms."""

SLICE_ROWS = 1000
"""Rows of one step of a long document: encoding them takes 1 to 4 ms."""

SLICE_BYTES = 1_048_576
"""About how many bytes of values one step encodes, where rows are heavy."""

HEAVY_BYTES = 4_194_304
"""From so many bytes of rows on, a document is long, and each row is weighed: a few may have most of the bytes."""

ALL = slice(None)
"""The rows of the one step of most answers."""

Item = TypeVar("Item")
Result = TypeVar("Result")

Steps = Generator[None, None, Result]


def at_once(steps: Steps[Result]) -> Result:
    """The result, without a pause."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: Result = end.value
        return result


def needs_steps(rows: Sequence[Sequence[Any]], received_bytes: int) -> bool:
    """Whether a document is encoded in more than one step. rows: of each node. received_bytes: how much PostgreSQL sent
    for them."""
    return received_bytes > HEAVY_BYTES or sum(map(len, rows)) > SHORT_ROWS


def slices(items: Sequence[Item], in_steps: bool) -> Iterable[Sequence[Item]]:
    """The items, some at a time."""
    if not in_steps or len(items) <= SLICE_ROWS:
        return (items,)
    return (items[begin : begin + SLICE_ROWS] for begin in range(0, len(items), SLICE_ROWS))


def row_slices(rows: Sequence[Any], received_bytes: int, in_steps: bool) -> Iterable[slice]:
    """Where the rows of one step are. received_bytes: how much PostgreSQL sent for all rows of the answer."""
    if received_bytes > HEAVY_BYTES:
        return _weighed(rows)
    if not in_steps or len(rows) <= SLICE_ROWS:
        return (ALL,) if rows else ()
    return (slice(begin, begin + SLICE_ROWS) for begin in range(0, len(rows), SLICE_ROWS))


def _weighed(rows: Sequence[Any]) -> Iterator[slice]:
    begin = weight = 0
    for end, row in enumerate(rows):
        if weight > SLICE_BYTES or end - begin == SLICE_ROWS:
            yield slice(begin, end)
            begin, weight = end, 0
        weight += _weight(row)
    if begin < len(rows):
        yield slice(begin, len(rows))


def piece_slices(texts: Sequence[bytes]) -> Iterator[slice]:
    """Which of the texts are joined to one piece."""
    begin = size = 0
    for end, text in enumerate(texts):
        if size > SLICE_BYTES:
            yield slice(begin, end)
            begin, size = end, 0
        size += len(text)
    if begin < len(texts):
        yield slice(begin, len(texts))


def _weight(row: Any) -> int:
    return sum([len(value) for value in row if isinstance(value, (str, bytes))])
