"""The master's view of one generation.

What comes in: the reports of its processes. What goes out: whether it failed, which workers are alive, and which hang.

It must not know: other generations, signals.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

from server.processes.reports import Reports


class GenerationHandle:
    """A generation that the master has forked.

    workers: how many it should have, 0 until it has loaded its settings. alive: the pids of the workers that are ready,
    with the time of the last report. starting: the same for workers that are not ready yet. failure: why it could not
    start. timeout_seconds: after which a worker without a report counts as hung."""

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
        """The time since the generation was forked."""
        return time.monotonic() - self._made_at

    def read_reports(self) -> Iterator[int]:
        """Read the reports that have arrived. Yields the pid of each worker that has become ready."""
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

    def pop_hung(self) -> list[int]:
        """Return the pids of the workers that have not reported for `timeout_seconds`. Each is returned once."""
        before = time.monotonic() - self.timeout_seconds
        hung = [(pids, pid) for pids in (self.starting, self.alive) for pid, at in pids.items() if at < before]
        for pids, pid in hung:
            del pids[pid]
        return [pid for _, pid in hung]
