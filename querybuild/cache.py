"""A bounded cache, least recently used out first. What comes in: keys, values and what each weighs. What goes
out: the values.

Bounded in entries and in bytes, so that no stream of different shapes makes the server grow.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class BoundedCache(Generic[Value]):
    """At most `max_entries` values that weigh at most `max_bytes` together; hits and misses are counted."""

    def __init__(self, max_entries: int, max_bytes: int) -> None:
        self.max_entries, self.max_bytes = max_entries, max_bytes
        self.hits = self.misses = self.bytes = 0
        self._entries: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Hashable) -> Value | None:
        entry = self._entries.get(key)
        if entry is None:
            self.misses += 1
            return None
        self.hits += 1
        self._entries.move_to_end(key)
        return entry[0]

    def get_or_make(self, key: Hashable, make: Callable[[], Value], weigh: Callable[[Value], int]) -> Value:
        """The value kept, else the one that `make` makes, which is kept from now on. weigh: as `put` has it."""
        value = self.get(key)
        if value is None:
            value = make()
            self.put(key, value, weigh(value))
        return value

    def put(self, key: Hashable, value: Value, weight: int) -> None:
        """Keeps the value unless it alone is over the bound. weight: bytes, as good as the caller can tell."""
        if weight > self.max_bytes or key in self._entries:
            return
        self._entries[key] = (value, weight)
        self.bytes += weight
        while len(self._entries) > self.max_entries or self.bytes > self.max_bytes:
            self.bytes -= self._entries.popitem(last=False)[1][1]
