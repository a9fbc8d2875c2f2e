"""How many connections each worker of a generation has, in memory that they share. What comes in: the count of one, by
that one. What goes out: whether it has more than another, and how many too many.

It must not know: what connections are.
"""

from __future__ import annotations

import mmap

TOLERATED = 5
"""Of so many connections of one worker, one too many is chance."""


class Balance:
    """places: how many are compared; workers beyond them are not. To be made before the workers are forked."""

    def __init__(self, places: int) -> None:
        self._counts = memoryview(mmap.mmap(-1, 8 * places)).cast("q")
        self._own: int | None = None

    def take(self, place: int) -> None:
        """place: of this worker, from 0. Whoever had it before is gone."""
        if place < len(self._counts):
            self._own = place
            self._counts[place] = 0

    def join(self) -> None:
        """This worker listens: from here on others compare themselves with it."""
        self.put(0)

    def put(self, count: int) -> None:
        if self._own is not None:
            # 0 is for places that nobody has.
            self._counts[self._own] = count + 1

    def leave(self) -> None:
        """This worker takes no more."""
        if self._own is not None:
            self.free(self._own)
            self._own = None

    def free(self, place: int) -> None:
        """Nobody has it any more: else one that was killed would have few connections, as others see it, for ever."""
        if place < len(self._counts):
            self._counts[place] = 0

    @property
    def is_ahead(self) -> bool:
        """Whether another worker has fewer."""
        if self._own is None:
            return False
        own = self._counts[self._own]
        return any(0 < other < own for other in self._counts)

    @property
    def excess(self) -> int:
        """How many this worker has beyond its share of all; 0 where that may be chance."""
        if self._own is None:
            return 0
        counts = [count - 1 for count in self._counts if count]
        own = self._counts[self._own] - 1
        excess = own - -(-sum(counts) // len(counts))
        return excess if excess * TOLERATED > own and excess > 1 else 0
