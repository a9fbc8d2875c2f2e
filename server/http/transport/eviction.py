"""Chooses the connection to close when there are too many: the one with the least progress.

Progress is the bytes that were received, and the bytes of answers that the client has read. Their weight halves every
`HALF_LIFE_SECONDS`, so that old progress counts little. It makes no difference what a connection waits for: a request,
the rest of a head or body, a client that reads, its end. Only connections whose request is at work are never chosen.

It must not know: HTTP, sockets, why a connection has to go.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, Protocol, TypeVar

HALF_LIFE_SECONDS = 5.0

SETTLED_SECONDS = 1.0
"""A younger connection is only chosen if there is no older one, because its request may be on its way. Of the younger
ones the oldest is chosen, whatever its progress, because the bytes of the others may not have arrived yet."""

RANKED_SECONDS = 1.0
"""How long a ranking is used. A new one takes 0.5 ms for 1,000 connections."""

RETRY_SECONDS = 0.000_01
"""If all connections were at work, the next search waits for this time multiplied by their number. A search takes a
twentieth of that."""

MAX_TRIES = 50
"""How many connections are ranked again because they moved bytes meanwhile. The next one is then chosen in any case."""

Rank = tuple[bool, float]


class Connected(Protocol):
    """The interface of a connection."""

    @property
    def is_at_work(self) -> bool:
        """Whether the client waits for the server."""

    @property
    def moved_bytes(self) -> int:
        """The bytes that were received, and those that the client has read."""


class Progress:
    """The progress of one connection. joined_at: by the monotonic clock. client: the address of its other end."""

    __slots__ = ("_moved_bytes", "_recent_bytes", "client", "connection", "joined_at")

    def __init__(self, connection: Connected, client: str, now: float) -> None:
        self.connection = connection
        self.client = client
        self.joined_at = now
        self._moved_bytes = 0
        self._recent_bytes = 0.0

    def update(self, decay: float) -> None:
        """Add the bytes moved since the last call. Call it periodically. decay: the weight that older bytes keep."""
        moved = self.connection.moved_bytes
        self._recent_bytes = self._recent_bytes * decay + moved - self._moved_bytes
        self._moved_bytes = moved

    def rank(self, now: float) -> Rank:
        """Return the sort key. The connection with the lowest key is evicted first."""
        if now - self.joined_at < SETTLED_SECONDS:
            return True, self.joined_at
        return False, self._recent_bytes + self.connection.moved_bytes - self._moved_bytes


def decay_over(seconds: float) -> float:
    """Return the weight of bytes that are so old.

    >>> decay_over(0.0), decay_over(HALF_LIFE_SECONDS)
    (1.0, 0.5)
    """
    return float(0.5 ** (seconds / HALF_LIFE_SECONDS))


Member = TypeVar("Member", bound=Progress)


class EvictionGroup(Generic[Member]):
    """Connections of which one may be evicted: all of a worker, or those of one client."""

    def __init__(self) -> None:
        self._members: dict[Connected, Member] = {}
        # The rest of the last ranking, as a heap. The number tells equal ranks apart.
        self._ranking: list[tuple[Rank, int, Member]] = []
        self._ranked_at = float("-inf")
        self._retry_at = float("-inf")

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        """Iterate over a copy: members may be removed meanwhile."""
        return iter(list(self._members.values()))

    def add(self, member: Member) -> None:
        """Add a connection."""
        self._members[member.connection] = member

    def discard(self, connection: Connected) -> None:
        """Remove a connection, if it is there."""
        self._members.pop(connection, None)

    def least(self, now: float) -> Member | None:
        """Return the connection with the least progress, or None if all are at work. A second call returns the next
        one."""
        if now - self._ranked_at > RANKED_SECONDS:
            self._rank(now)
        member = self._next(now)
        if member is None and now >= self._retry_at:
            self._rank(now)
            member = self._next(now)
            if member is None:
                self._retry_at = now + RETRY_SECONDS * len(self._members)
        return member

    def _rank(self, now: float) -> None:
        free = [member for member in self._members.values() if not member.connection.is_at_work]
        self._ranking = [(member.rank(now), number, member) for number, member in enumerate(free)]
        heapify(self._ranking)
        self._ranked_at = now

    def _next(self, now: float) -> Member | None:
        """Return the first connection of the ranking whose rank has not changed."""
        ranking, tries = self._ranking, 0
        while ranking:
            _, number, member = heappop(ranking)
            if member.connection not in self._members or member.connection.is_at_work:
                continue
            rank, tries = member.rank(now), tries + 1
            if not ranking or rank <= ranking[0][0] or tries == MAX_TRIES:
                return member
            heappush(ranking, (rank, number, member))
        return None
