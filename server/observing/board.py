"""Numbers that all workers count, in memory that they share. What comes in: the names of rows, and how many numbers
each has. What goes out: cells to count in, and the sums over all workers.

The memory is a file without a name, made before the first fork, so that nothing is ever left behind. Each worker has a
sheet of it, in which it alone writes, without a lock: to count is to add to a cell, which takes 0.05 microseconds.
A sheet is a worker's for as long as it holds the lock on one byte of the file, which ends with the process, however
that ended. What the dead have counted is kept in a sheet of its own, so no sum ever falls.

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

SHEET_BYTES = 1024 * 1024
"""Room for some 5,000 rows. What nobody writes to takes no memory."""

SPARE_CELLS = 64
"""Where that is counted for which there is no room any more, which nobody reads."""

_DEAD = 0
_ENDING = SHEET_BYTES - 8
"""The last word of that sheet: whether all is to end."""
_LOCKS = 1 << 40
"""The byte of the lock of sheet 0, which stands for the whole board; those of the others follow. The file ends far
below."""

_USED = struct.Struct("=q")
_ROW = struct.Struct("=III4x")
"""Before each row: bytes of its name, filled up to a multiple of 8; how many numbers; for how long."""


class Lasting(IntEnum):
    """For how long a row's numbers count."""

    PRESENT = 0
    """As long as the worker lives."""
    KEPT = 1
    LEGACY = 2
    """From then on."""


Key = tuple[str, ...]
Row = tuple[Key, int, list[float]]


class Figures(msgspec.Struct, frozen=True):
    """kept: the sums over all workers there ever were. present: of each that lives, by the number of its sheet."""

    kept: dict[Key, list[float]]
    present: dict[Key, dict[int, list[float]]]
    workers: int


class Sheet:
    """One worker's. cells: all numbers of it."""

    def __init__(self, memory: mmap.mmap, number: int) -> None:
        self.number = number
        self._memory = memory
        self.cells = memoryview(memory).cast("d")

    def row(self, key: Key, count: int, lasting: Lasting) -> int:
        """The place of the first of a new row's numbers, all 0."""
        name, used = _name(key), int(_USED.unpack_from(self._memory, 0)[0])
        begin = used + _ROW.size + len(name)
        end = begin + 8 * count
        if end > SHEET_BYTES - 8 * SPARE_CELLS:
            return len(self.cells) - SPARE_CELLS
        _ROW.pack_into(self._memory, used, len(name), count, lasting)
        self._memory[used + _ROW.size : begin] = name
        # Last, so that nobody reads half a row.
        _USED.pack_into(self._memory, 0, end)
        return begin // 8


class Board:
    """All sheets. To be made before the first fork; a process takes one sheet, when it will not fork any more."""

    def __init__(self) -> None:
        self._descriptor = _file_without_name()
        weakref.finalize(self, os.close, self._descriptor).atexit = False
        self._own: Sheet | None = None
        os.ftruncate(self._descriptor, SHEET_BYTES)
        self._clear(_DEAD)

    def sheet(self) -> Sheet:
        """One of this process's own: that of a worker that ended, or a new one."""
        assert self._own is None, "a process has one sheet"
        with self._locked():
            self._keep_the_dead()
            number = next((one for one in self._numbers() if self._lock(one)), None)
            if number is None:
                number = self._count()
                os.ftruncate(self._descriptor, (number + 1) * SHEET_BYTES)
                self._clear(number)
                self._lock(number)
        # Kept here, for when a descriptor of the file is closed in this process, and a mapping has one, its locks go.
        self._own = Sheet(mmap.mmap(self._descriptor, SHEET_BYTES, offset=number * SHEET_BYTES), number)
        return self._own

    def end(self) -> None:
        """All workers are about to end, and no others will come."""
        os.pwrite(self._descriptor, _USED.pack(1), _ENDING)

    @property
    def is_ending(self) -> bool:
        return os.pread(self._descriptor, _USED.size, _ENDING) == _USED.pack(1)

    def read(self) -> Figures:
        """The sums at this moment. With 8 workers it takes about a millisecond."""
        with self._locked():
            self._keep_the_dead()
            kept = _added({}, self._rows(_DEAD), (Lasting.KEPT,))
            present: dict[Key, dict[int, list[float]]] = {}
            living = [number for number in self._numbers() if not self._is_free(number)]
            for number in living:
                rows = list(self._rows(number))
                _added(kept, rows, (Lasting.KEPT,))
                for key, lasting, numbers in rows:
                    if lasting == Lasting.PRESENT:
                        present.setdefault(key, {})[number] = numbers
        return Figures(kept, present, len(living))

    def _count(self) -> int:
        return os.fstat(self._descriptor).st_size // SHEET_BYTES

    def _numbers(self) -> range:
        return range(_DEAD + 1, self._count())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.lockf(self._descriptor, fcntl.LOCK_EX, 1, _LOCKS)
        try:
            yield
        finally:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, _LOCKS)

    def _lock(self, number: int) -> bool:
        """Takes a sheet that nobody has."""
        with suppress(OSError):
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _LOCKS + number)
            return True
        return False

    def _is_free(self, number: int) -> bool:
        if (self._own is not None and number == self._own.number) or not self._lock(number):
            return False
        fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, _LOCKS + number)
        return True

    def _keep_the_dead(self) -> None:
        """Adds what workers that ended have counted to the sheet for it."""
        free = [number for number in self._numbers() if self._used(number) > _USED.size and self._is_free(number)]
        if free:
            self._keep([row for number in free for row in self._rows(number)])
        for number in free:
            self._clear(number)

    def _keep(self, rows: list[Row]) -> None:
        lasting = (Lasting.KEPT, Lasting.LEGACY)
        kept = _added(_added({}, self._rows(_DEAD), lasting), rows, lasting)
        packed = b"".join(_packed(key, numbers) for key, numbers in kept.items())
        if len(packed) + _USED.size <= _ENDING:
            os.pwrite(self._descriptor, _USED.pack(_USED.size + len(packed)) + packed, _DEAD)

    def _used(self, number: int) -> int:
        (used,) = _USED.unpack(os.pread(self._descriptor, _USED.size, number * SHEET_BYTES))
        return int(used)

    def _clear(self, number: int) -> None:
        empty = _USED.pack(_USED.size)
        os.pwrite(self._descriptor, empty + bytes(max(0, self._used(number) - len(empty))), number * SHEET_BYTES)

    def _rows(self, number: int) -> Iterator[Row]:
        end = self._used(number)
        sheet = memoryview(os.pread(self._descriptor, end, number * SHEET_BYTES))
        place = _USED.size
        while place < end:
            length, count, lasting = _ROW.unpack_from(sheet, place)
            begin = place + _ROW.size + length
            key = tuple(str(sheet[place + _ROW.size : begin], "utf-8").rstrip(" ").split("\x1f"))
            place = begin + 8 * count
            numbers: list[float] = sheet[begin:place].cast("d").tolist()  # type: ignore[assignment]  # as cast
            yield key, lasting, numbers


def _added(sums: dict[Key, list[float]], rows: Iterable[Row], which: Collection[int]) -> dict[Key, list[float]]:
    """The sums, with those of the rows."""
    for key, lasting, numbers in rows:
        if lasting in which:
            before = sums.get(key)
            sums[key] = numbers if before is None else [a + b for a, b in zip(before, numbers, strict=True)]
    return sums


def _name(key: Key) -> bytes:
    name = "\x1f".join(key).encode()
    return name + b" " * (-len(name) % 8)


def _packed(key: Key, numbers: list[float]) -> bytes:
    name = _name(key)
    return _ROW.pack(len(name), len(numbers), Lasting.KEPT) + name + struct.pack(f"={len(numbers)}d", *numbers)


def _file_without_name() -> int:
    """A descriptor. In memory where the system can do that; else in a folder for what is temporary."""
    with suppress(AttributeError, OSError):
        return os.memfd_create("waterspout metrics")
    with tempfile.TemporaryFile(prefix="waterspout-") as file:
        return os.dup(file.fileno())
