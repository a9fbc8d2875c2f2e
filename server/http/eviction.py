"""Which connection is closed when there are too many: the one with the least progress. What comes in: connections. What
goes out: the next one to close.

Progress is bytes: those that came, and those of answers that the client took. Their weight halves every
`HALF_LIFE_SECONDS`, so that old progress counts little. What a connection waits for makes no difference: a request, the
rest of a head or of a body, a client that reads, its end. Only a request that is at work here is safe.

It must not know: HTTP, sockets, why a connection has to go.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, Protocol, TypeVar

HALF_LIFE_SECONDS = 5.0

SETTLED_SECONDS = 1.0
"""A younger connection goes only where there is no older one: its request may be on its way. Of these the oldest goes,
whatever it has moved: the bytes of the newest have not had the time to come."""

RANKED_SECONDS = 1.0
"""How long a ranking is used. To make one takes 0.5 ms for 1,000 connections."""

AGAIN_SECONDS = 0.000_01
"""For each connection: after how long there is another search where all were at work. A search takes a twentieth."""

MOST_TRIES = 50
"""How many connections may turn out to have moved bytes since they were ranked, until one is taken all the same."""

Rank = tuple[bool, float]


class Connected(Protocol):
    """What is asked of a connection. moved_bytes: that came or were taken, since it began."""

    @property
    def is_at_work(self) -> bool: ...

    @property
    def moved_bytes(self) -> int: ...


class Progress:
    """The progress of one connection. joined_at: by the monotonic clock. client: the address of its other end."""

    __slots__ = ("_moved_bytes", "_recent_bytes", "client", "connection", "joined_at")

    def __init__(self, connection: Connected, client: str, now: float) -> None:
        self.connection = connection
        self.client = client
        self.joined_at = now
        self._moved_bytes = 0
        self._recent_bytes = 0.0

    def look(self, decay: float) -> None:
        """To be called every now and then. decay: the weight that older bytes keep."""
        moved = self.connection.moved_bytes
        self._recent_bytes = self._recent_bytes * decay + moved - self._moved_bytes
        self._moved_bytes = moved

    def rank(self, now: float) -> Rank:
        """The lowest goes first."""
        if now - self.joined_at < SETTLED_SECONDS:
            return True, self.joined_at
        return False, self._recent_bytes + self.connection.moved_bytes - self._moved_bytes


def decay_over(seconds: float) -> float:
    """The weight that bytes keep for so long.

    >>> decay_over(0.0), decay_over(HALF_LIFE_SECONDS)
    (1.0, 0.5)
    """
    return float(0.5 ** (seconds / HALF_LIFE_SECONDS))


One = TypeVar("One", bound=Progress)


class Group(Generic[One]):
    """Connections of which one may have to go: all of a worker, or those of one client."""

    def __init__(self) -> None:
        self._members: dict[Connected, One] = {}
        # The rest of the last ranking, as a heap. The number tells equal ranks apart.
        self._ranking: list[tuple[Rank, int, One]] = []
        self._ranked_at = float("-inf")
        self._again_at = float("-inf")

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[One]:
        """Those that are members now, however many go meanwhile."""
        return iter(list(self._members.values()))

    def add(self, one: One) -> None:
        self._members[one.connection] = one

    def discard(self, connection: Connected) -> None:
        self._members.pop(connection, None)

    def least(self, now: float) -> One | None:
        """The one with the least progress; None where all are at work. A second call gives the next one."""
        if now - self._ranked_at > RANKED_SECONDS:
            self._rank(now)
        found = self._next(now)
        if found is None and now >= self._again_at:
            self._rank(now)
            found = self._next(now)
            if found is None:
                self._again_at = now + AGAIN_SECONDS * len(self._members)
        return found

    def _rank(self, now: float) -> None:
        free = [one for one in self._members.values() if not one.connection.is_at_work]
        self._ranking = [(one.rank(now), number, one) for number, one in enumerate(free)]
        heapify(self._ranking)
        self._ranked_at = now

    def _next(self, now: float) -> One | None:
        """By its rank as it is now."""
        ranking, tries = self._ranking, 0
        while ranking:
            _, number, one = heappop(ranking)
            if one.connection not in self._members or one.connection.is_at_work:
                continue
            rank, tries = one.rank(now), tries + 1
            if not ranking or rank <= ranking[0][0] or tries == MOST_TRIES:
                return one
            heappush(ranking, (rank, number, one))
        return None
