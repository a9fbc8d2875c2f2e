"""How many connections each worker of a generation has, in memory that they share. What comes in: the count of one, by
that one. What goes out: whether it has more than another.

It must not know: what connections are.
"""

from __future__ import annotations

import mmap

PLACES = 256
"""Workers beyond these are not compared."""


class Balance:
    """To be made before the workers are forked. A worker that was killed leaves its last count until another takes its
    place: to the others it is as if it were slow."""

    def __init__(self) -> None:
        self._counts = memoryview(mmap.mmap(-1, 8 * PLACES)).cast("q")
        self._own: int | None = None

    def take(self, place: int) -> None:
        """place: of this worker, from 0. Whoever had it before is gone."""
        if place < PLACES:
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
            self._counts[self._own], self._own = 0, None

    @property
    def is_ahead(self) -> bool:
        """Whether another worker has fewer."""
        if self._own is None:
            return False
        own = self._counts[self._own]
        return any(0 < other < own for other in self._counts)
