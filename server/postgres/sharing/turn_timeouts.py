"""Ends turns that are awaited for too long.

A timer for each turn would cost as much as the rest of the wait: 1.9 of 4 microseconds. Nearly all turns come in time,
so one timer serves all of them, and a turn that came in time is only forgotten.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from itertools import count

from server.postgres.sharing.shares import Turn


class TurnTimeouts:
    """The turns that are awaited, by the time at which each fails with TimeoutError."""

    def __init__(self) -> None:
        # The number keeps two turns of the same time from being compared.
        self._turns: list[tuple[float, int, Turn]] = []
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None
        self._fires_at = float("inf")

    def add(self, turn: Turn, seconds: float) -> None:
        """Add a turn. seconds: the time until it fails."""
        turns, end = self._turns, time.monotonic() + seconds
        while turns and turns[0][2].done():
            heapq.heappop(turns)
        heapq.heappush(turns, (end, next(self._numbers), turn))
        if end < self._fires_at:
            self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._fires_at = None, float("inf")
        if self._turns:
            self._fires_at = self._turns[0][0]
            self._timer = asyncio.get_running_loop().call_later(self._fires_at - time.monotonic(), self._fire)

    def _fire(self) -> None:
        turns, now = self._turns, time.monotonic()
        while turns and (turns[0][2].done() or turns[0][0] <= now):
            turn = heapq.heappop(turns)[2]
            if not turn.done():
                turn.set_exception(TimeoutError())
        self._set_timer()
