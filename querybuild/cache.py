"""Caches that evict the least recently used entry first. They are bounded in entries and in bytes, so that no stream
of different keys makes the server grow.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class BoundedCache(Generic[Value]):
    """A cache of at most `max_entries` values and `max_bytes` bytes. It counts hits and misses."""

    def __init__(self, max_entries: int, max_bytes: int) -> None:
        self.max_entries, self.max_bytes = max_entries, max_bytes
        self.hits = self.misses = self.bytes = 0
        self._entries: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Hashable) -> Value | None:
        """Return the value of the key, or None."""
        entry = self._entries.get(key)
        if entry is None:
            self.misses += 1
            return None
        self.hits += 1
        self._entries.move_to_end(key)
        return entry[0]

    def get_or_make(self, key: Hashable, make: Callable[[], Value], weigh: Callable[[Value], int]) -> Value:
        """Return the cached value. If there is none, make it and put it into the cache. weigh: returns its weight, as
        for `put`."""
        value = self.get(key)
        if value is None:
            value = make()
            self.put(key, value, weigh(value))
        return value

    def put(self, key: Hashable, value: Value, weight: int) -> None:
        """Keep the value, unless it is larger than the cache. weight: its approximate number of bytes."""
        if weight > self.max_bytes or key in self._entries:
            return
        self._entries[key] = (value, weight)
        self.bytes += weight
        while len(self._entries) > self.max_entries or self.bytes > self.max_bytes:
            self.bytes -= self._entries.popitem(last=False)[1][1]

    def discard(self, key: Hashable) -> None:
        """Forget the value of the key, if there is one."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.bytes -= entry[1]

    def clear(self) -> None:
        """Forget all values."""
        self._entries.clear()
        self.bytes = 0


class SecondUseCache(BoundedCache[Value]):
    """A BoundedCache that keeps a value when its key is put for the second time. Keys that come only once cost little
    and evict nothing.

    Of a key that was put once only the hash is remembered. Two sets have the hashes of at least the last
    `max_entries` keys, and at most twice as many. When the newer set is full, it replaces the older one. If two keys
    have the same hash, the second is kept at once, which does no harm.
    """

    def __init__(self, max_entries: int, max_bytes: int) -> None:
        super().__init__(max_entries, max_bytes)
        self._newer: set[int] = set()
        self._older: set[int] = set()

    def put(self, key: Hashable, value: Value, weight: int) -> None:
        """Add a value, as `BoundedCache.put` does, if the key was put before."""
        hashed = hash(key)
        if hashed in self._newer or hashed in self._older:
            super().put(key, value, weight)
            return
        if len(self._newer) >= self.max_entries:
            self._newer, self._older = set(), self._newer
        self._newer.add(hashed)
