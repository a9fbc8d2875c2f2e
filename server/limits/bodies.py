"""Limits the memory that a worker uses for request bodies.

What comes in: the bytes of bodies, as they arrive. What goes out: whether there is room for them. Slow bodies are
evicted to make room.

It must not know: HTTP, documents, the database.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Protocol

EVICTABLE_AFTER_SECONDS = 1.0
"""A younger body is not evicted, because it may soon be complete. The new request is refused instead."""


class Holder(Protocol):
    """A request with a body. body_bytes: how many were counted."""

    body_bytes: int

    @property
    def is_arriving(self) -> bool:
        """Whether more of the body is expected."""

    def evict(self, why: str) -> None:
        """Close the connection, as if the client had gone."""


class Bodies:
    """The bodies of one worker, each from its first byte until its request has ended."""

    def __init__(self, max_bytes: int = sys.maxsize) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        # When each body began to arrive; the oldest first.
        self._holders: dict[Holder, float] = {}

    def has_room(self, count: int) -> bool:
        """Return whether a body of `count` bytes may arrive: there is room, or slow bodies can be evicted for it."""
        excess = self._bytes + count - self._max_bytes
        return excess <= 0 or not self._bytes or excess <= sum([holder.body_bytes for holder in self._evictable()])

    def hold(self, holder: Holder, count: int) -> bool:
        """Count bytes that have arrived. False if there is no room for them. A single body always has room, whatever
        its length."""
        excess = self._bytes + count - self._max_bytes
        if excess > 0 and self._bytes > holder.body_bytes and not self._make_room(holder, excess):
            return False
        if not holder.body_bytes:
            self._holders[holder] = time.monotonic()
        holder.body_bytes += count
        self._bytes += count
        return True

    def release(self, holder: Holder) -> None:
        """Free the memory: the request has ended, or does not need its body any more."""
        if holder.body_bytes:
            self._bytes -= holder.body_bytes
            holder.body_bytes = 0
            del self._holders[holder]

    def _evictable(self) -> Iterator[Holder]:
        """Return the incomplete bodies that may be evicted, oldest first."""
        before = time.monotonic() - EVICTABLE_AFTER_SECONDS
        for holder, since in self._holders.items():
            if since > before:
                return
            if holder.is_arriving:
                yield holder

    def _make_room(self, newcomer: Holder, excess: int) -> bool:
        for holder in list(self._evictable()):
            if excess <= 0:
                break
            if holder is not newcomer:
                excess -= holder.body_bytes
                self.release(holder)
                holder.evict("to free the memory of its body")
        return excess <= 0
