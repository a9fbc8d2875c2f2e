"""Counters that all workers share in memory.

What comes in: the names of rows, and how many numbers each row has. What goes out: cells to count in, and the totals of
all workers.

The memory is an anonymous file, created before the first fork, so that nothing is left behind. Each worker has a
segment of it, to which no other process writes. It needs no lock: counting adds to a cell, which takes 0.05
microseconds. A worker owns its segment while it holds the lock on one byte of the file. The lock ends with the process,
however the process ends. The counts of ended workers are added to a segment of their own, so no total ever falls.

It must not know: what is counted.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import tempfile
import weakref
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum

import msgspec

SEGMENT_BYTES = 1024 * 1024
"""Room for about 5,000 rows. Pages that are never written take no memory."""

OVERFLOW_CELLS = 64
"""Cells for rows that have no room any more. Nobody reads them."""

_ENDED = 0
_STOPPING = SEGMENT_BYTES - 8
"""The offset of the last word of segment 0: whether the whole server stops."""
_LOCKS = 1 << 40
"""The byte that is locked for segment 0, which stands for all counters. The bytes for the other segments follow. They
are far above the end of the file."""

_USED = struct.Struct("=q")
_ROW = struct.Struct("=III4x")
"""The head of each row: the bytes of its name, padded to a multiple of 8; how many numbers; their retention."""


class Retention(IntEnum):
    """How long the numbers of a row count."""

    RUNNING = 0
    """While the worker runs."""
    KEPT = 1
    """For ever."""
    AFTER_EXIT = 2
    """After the worker has ended."""


RowKey = tuple[str, ...]
"""The name of a metric, and the values of its labels."""

Row = tuple[RowKey, int, list[float]]


class Figures(msgspec.Struct, frozen=True):
    """The figures at one moment. totals: the sums over all workers, also over those that have ended. per_worker: the
    numbers of each running worker, by the number of its segment. workers: how many run."""

    totals: dict[RowKey, list[float]]
    per_worker: dict[RowKey, dict[int, list[float]]]
    workers: int


class Segment:
    """The memory of one worker. cells: all numbers in it."""

    def __init__(self, memory: mmap.mmap, number: int) -> None:
        self.number = number
        self._memory = memory
        self.cells = memoryview(memory).cast("d")

    def row(self, key: RowKey, count: int, retention: Retention) -> int:
        """Add a row of zeros. Return the index of its first cell."""
        name, used = _name(key), int(_USED.unpack_from(self._memory, 0)[0])
        begin = used + _ROW.size + len(name)
        end = begin + 8 * count
        if end > SEGMENT_BYTES - 8 * OVERFLOW_CELLS:
            return len(self.cells) - OVERFLOW_CELLS
        _ROW.pack_into(self._memory, used, len(name), count, retention)
        self._memory[used + _ROW.size : begin] = name
        # Last, so that no reader sees an incomplete row.
        _USED.pack_into(self._memory, 0, end)
        return begin // 8


class SharedCounters:
    """All segments. Create it before the first fork. A process takes one segment, and must not fork afterwards."""

    def __init__(self) -> None:
        self._descriptor = _anonymous_file()
        weakref.finalize(self, os.close, self._descriptor).atexit = False
        self._own: Segment | None = None
        os.ftruncate(self._descriptor, SEGMENT_BYTES)
        self._clear(_ENDED)

    def segment(self) -> Segment:
        """Take a segment for this process: a free one, or a new one."""
        assert self._own is None, "a process has one segment"
        with self._locked():
            self._collect_ended()
            number = next((free for free in self._numbers() if self._lock(free)), None)
            if number is None:
                number = self._count()
                os.ftruncate(self._descriptor, (number + 1) * SEGMENT_BYTES)
                self._clear(number)
                self._lock(number)
        # The mapping has a descriptor of the file. If it were closed, this process would lose its locks, so keep it.
        self._own = Segment(mmap.mmap(self._descriptor, SEGMENT_BYTES, offset=number * SEGMENT_BYTES), number)
        return self._own

    def mark_stopping(self) -> None:
        """Record that the whole server stops: all workers will end, and no new ones start."""
        os.pwrite(self._descriptor, _USED.pack(1), _STOPPING)

    @property
    def is_stopping(self) -> bool:
        """Whether the whole server stops."""
        return os.pread(self._descriptor, _USED.size, _STOPPING) == _USED.pack(1)

    def read(self) -> Figures:
        """Return the figures at this moment. With 8 workers this takes about a millisecond."""
        with self._locked():
            self._collect_ended()
            totals = _add_rows({}, self._rows(_ENDED), (Retention.KEPT,))
            per_worker: dict[RowKey, dict[int, list[float]]] = {}
            living = [number for number in self._numbers() if not self._is_free(number)]
            for number in living:
                rows = list(self._rows(number))
                _add_rows(totals, rows, (Retention.KEPT,))
                for key, retention, numbers in rows:
                    if retention == Retention.RUNNING:
                        per_worker.setdefault(key, {})[number] = numbers
        return Figures(totals, per_worker, len(living))

    def _count(self) -> int:
        return os.fstat(self._descriptor).st_size // SEGMENT_BYTES

    def _numbers(self) -> range:
        return range(_ENDED + 1, self._count())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.lockf(self._descriptor, fcntl.LOCK_EX, 1, _LOCKS)
        try:
            yield
        finally:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, _LOCKS)

    def _lock(self, number: int) -> bool:
        """Lock a segment. Return False if another process has it."""
        with suppress(OSError):
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _LOCKS + number)
            return True
        return False

    def _is_free(self, number: int) -> bool:
        if (self._own is not None and number == self._own.number) or not self._lock(number):
            return False
        fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, _LOCKS + number)
        return True

    def _collect_ended(self) -> None:
        """Add the counts of ended workers to the segment of the ended, and clear their own segments."""
        free = [number for number in self._numbers() if self._used(number) > _USED.size and self._is_free(number)]
        if free:
            self._add_to_ended([row for number in free for row in self._rows(number)])
        for number in free:
            self._clear(number)

    def _add_to_ended(self, rows: list[Row]) -> None:
        retention = (Retention.KEPT, Retention.AFTER_EXIT)
        kept = _add_rows(_add_rows({}, self._rows(_ENDED), retention), rows, retention)
        packed = b"".join(_packed(key, numbers) for key, numbers in kept.items())
        if len(packed) + _USED.size <= _STOPPING:
            os.pwrite(self._descriptor, _USED.pack(_USED.size + len(packed)) + packed, _ENDED)

    def _used(self, number: int) -> int:
        (used,) = _USED.unpack(os.pread(self._descriptor, _USED.size, number * SEGMENT_BYTES))
        return int(used)

    def _clear(self, number: int) -> None:
        empty = _USED.pack(_USED.size)
        os.pwrite(self._descriptor, empty + bytes(max(0, self._used(number) - len(empty))), number * SEGMENT_BYTES)

    def _rows(self, number: int) -> Iterator[Row]:
        end = self._used(number)
        segment = memoryview(os.pread(self._descriptor, end, number * SEGMENT_BYTES))
        offset = _USED.size
        while offset < end:
            length, count, retention = _ROW.unpack_from(segment, offset)
            begin = offset + _ROW.size + length
            key = tuple(str(segment[offset + _ROW.size : begin], "utf-8").rstrip(" ").split("\x1f"))
            offset = begin + 8 * count
            numbers: list[float] = segment[begin:offset].cast("d").tolist()  # type: ignore[assignment]  # as cast
            yield key, retention, numbers


def _add_rows(
    sums: dict[RowKey, list[float]], rows: Iterable[Row], which: Collection[int]
) -> dict[RowKey, list[float]]:
    """Add the rows with one of these retentions to the sums, and return the sums."""
    for key, retention, numbers in rows:
        if retention in which:
            before = sums.get(key)
            sums[key] = (
                numbers if before is None else [total + number for total, number in zip(before, numbers, strict=True)]
            )
    return sums


def _name(key: RowKey) -> bytes:
    name = "\x1f".join(key).encode()
    return name + b" " * (-len(name) % 8)


def _packed(key: RowKey, numbers: list[float]) -> bytes:
    name = _name(key)
    return _ROW.pack(len(name), len(numbers), Retention.KEPT) + name + struct.pack(f"={len(numbers)}d", *numbers)


def _anonymous_file() -> int:
    """Return the descriptor of an anonymous file, in memory if the system can do that, else in the temporary folder."""
    with suppress(AttributeError, OSError):
        return os.memfd_create("waterspout metrics")
    with tempfile.TemporaryFile(prefix="waterspout-") as file:
        return os.dup(file.fileno())
