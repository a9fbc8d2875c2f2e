"""The memory that a worker has for the bodies of its requests: which may come, and which go where there is no room.
What comes in: bytes of bodies, as they are counted. What goes out: whether there is room for them.

It must not know: HTTP, documents, the database.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Protocol

SETTLED_SECONDS = 1.0
"""What is younger is not closed to make room: it may be whole in a moment. A newcomer is refused instead."""


class Holder(Protocol):
    """A request with a body. body_bytes: what is counted of it. is_arriving: whether more of it is awaited."""

    body_bytes: int

    @property
    def is_arriving(self) -> bool: ...

    def evict(self, why: str) -> None:
        """Closes the connection, as if its client had gone."""


class Bodies:
    """The bodies of one worker, each from its first byte until its request has ended."""

    def __init__(self, most_bytes: int = sys.maxsize) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        # Since when each has come; the oldest first.
        self._holders: dict[Holder, float] = {}

    def has_room(self, count: int) -> bool:
        """Whether a body of so many bytes may come: there is room, or there are half bodies that would be closed for
        it."""
        excess = self._bytes + count - self._most_bytes
        return excess <= 0 or not self._bytes or excess <= sum([one.body_bytes for one in self._slow_ones()])

    def hold(self, holder: Holder, count: int) -> bool:
        """Counts bytes that have come. False where there is no room for them. One body alone has room, whatever its
        length."""
        excess = self._bytes + count - self._most_bytes
        if excess > 0 and self._bytes > holder.body_bytes and not self._make_room(holder, excess):
            return False
        if not holder.body_bytes:
            self._holders[holder] = time.monotonic()
        holder.body_bytes += count
        self._bytes += count
        return True

    def release(self, holder: Holder) -> None:
        """The request has ended, or does not need its body any more."""
        if holder.body_bytes:
            self._bytes -= holder.body_bytes
            holder.body_bytes = 0
            del self._holders[holder]

    def _slow_ones(self) -> Iterator[Holder]:
        """The half bodies that have taken longest, but none that is young."""
        before = time.monotonic() - SETTLED_SECONDS
        for one, since in self._holders.items():
            if since > before:
                return
            if one.is_arriving:
                yield one

    def _make_room(self, newcomer: Holder, excess: int) -> bool:
        for one in list(self._slow_ones()):
            if excess <= 0:
                break
            if one is not newcomer:
                excess -= one.body_bytes
                self.release(one)
                one.evict("to have the memory of its body back")
        return excess <= 0
