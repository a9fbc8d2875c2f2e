"""Counts the connections of each worker of a generation in shared memory. Each worker writes its own count, and reads
whether it has more than another and how many too many.

It must not know: what connections are.
"""

from __future__ import annotations

import mmap

TOLERANCE = 5
"""An excess of up to a fifth of the connections is regarded as random."""


class Balance:
    """The connection counts of all workers. Create it before the workers are forked.

    slots: how many workers are compared; workers beyond them are not."""

    def __init__(self, slots: int) -> None:
        self._counts = memoryview(mmap.mmap(-1, 8 * slots)).cast("q")
        self._own: int | None = None

    def claim(self, slot: int) -> None:
        """Use this slot, counted from 0. The worker that used it before has ended."""
        if slot < len(self._counts):
            self._own = slot
            self._counts[slot] = 0

    def join(self) -> None:
        """Publish that this worker listens, so that the others compare themselves with it."""
        self.set_count(0)

    def set_count(self, count: int) -> None:
        """Publish how many connections this worker has."""
        if self._own is not None:
            # 0 marks a slot that no worker has.
            self._counts[self._own] = count + 1

    def leave(self) -> None:
        """Publish that this worker accepts no more connections."""
        if self._own is not None:
            self.free_slot(self._own)
            self._own = None

    def free_slot(self, slot: int) -> None:
        """Free the slot of a worker that has ended. Otherwise the others would always compare their load with that of a
        killed worker."""
        if slot < len(self._counts):
            self._counts[slot] = 0

    @property
    def is_ahead(self) -> bool:
        """Whether another worker has fewer."""
        if self._own is None:
            return False
        own = self._counts[self._own]
        return any(0 < other < own for other in self._counts)

    @property
    def excess(self) -> int:
        """How many connections this worker has beyond its equal share. 0 if the excess may be random."""
        if self._own is None:
            return 0
        counts = [count - 1 for count in self._counts if count]
        own = self._counts[self._own] - 1
        excess = own - -(-sum(counts) // len(counts))
        return excess if excess * TOLERANCE > own and excess > 1 else 0
