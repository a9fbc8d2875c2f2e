"""A generation as the master sees it. What comes in: what its processes report. What goes out: whether it failed, who
of it is alive, and who has not been heard of.

It must not know: other generations, signals.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

from server.processes.reports import Reports


class Offspring:
    """workers: how many it is to have, 0 until it has loaded its settings. alive: the workers that answer, by pid, with
    the time at which each was last heard of. starting: those that do not yet. failure: why it cannot be.
    timeout_seconds: of its own settings."""

    def __init__(self, number: int, timeout_seconds: float) -> None:
        self.number = number
        self.timeout_seconds = timeout_seconds
        self.pid = 0
        self.workers = 0
        self.failure = ""
        self.alive: dict[int, float] = {}
        self.starting: dict[int, float] = {}
        self.reports = Reports()
        self._made_at = time.monotonic()

    @property
    def age_seconds(self) -> float:
        return time.monotonic() - self._made_at

    def hear(self) -> Iterator[int]:
        """Takes in what was reported, and gives the pid of each worker that has become ready."""
        for word, text in self.reports.lines():
            if word == "loaded":
                self.workers = int(text)
            elif word == "failed":
                self.failure = json.loads(text)
            elif word == "begun":
                self.starting[int(text)] = time.monotonic()
            else:
                self.starting.pop(int(text), None)
                self.alive.pop(int(text), None)
                if word != "ended":
                    self.alive[int(text)] = time.monotonic()
                if word == "ready":
                    yield int(text)

    def hung(self) -> list[int]:
        """Those that have not been heard of for `timeout_seconds`; they are told of once."""
        before = time.monotonic() - self.timeout_seconds
        found = [(those, pid) for those in (self.starting, self.alive) for pid, at in those.items() if at < before]
        for those, pid in found:
            del those[pid]
        return [pid for _, pid in found]
