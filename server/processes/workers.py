"""Several processes that answer on the same sockets.

In: listening sockets, a number, and the function that a worker runs. Out: nothing, when a signal has ended
it; or StartError, when a worker can't be kept alive. The parent holds the sockets for as long as it lives, so
a worker that dies takes only its own connections along, and those that wait to be accepted go to the others.

It must not know: HTTP, Tornado, the database, the settings.

The rule: a worker runs until it gets SIGTERM. It gets that from the parent, which passes on SIGTERM and
SIGINT in this form, or from itself when the parent is gone. SIGTTIN asks for one worker more, SIGTTOU for one less,
as the Unix servers before this one have it, and SIGUSR1 for as many as there are to be: that signals of one kind may
come as one makes no difference to it.
"""

from __future__ import annotations

import itertools
import logging
import os
import signal
import socket
import time
from collections.abc import Callable

from server.processes.forks import STOP_SIGNALS, Life, Signals, ending, fork, outlive_no_parent
from server.settings import StartError

Worker = Callable[[list[socket.socket], int], None]
Ended = Callable[[int, int], None]

FAILURES_AT_MOST = 3
EARLY_SECONDS = 5.0
BACK_OFF_SECONDS = 0.2
MORE, FEWER, WHOLE = signal.SIGTTIN, signal.SIGTTOU, signal.SIGUSR1
SIGNALS = (*STOP_SIGNALS, signal.SIGCHLD, MORE, FEWER, WHOLE)

log = logging.getLogger("server")


def run(
    sockets: list[socket.socket],
    count: int,
    worker: Worker,
    *,
    stop_seconds: float,
    life: Life | None = None,
    ended: Ended = lambda *_: None,
    stopping: Callable[[], None] = lambda: None,
    whole: int = 0,
) -> None:
    """Run `worker(sockets, index)` in `count` forked processes, index from 0, until SIGTERM or SIGINT.

    Call it from the main thread, without other threads and without an event loop: neither survives a fork. A
    worker starts with the default action for SIGTERM and without the parent's exit handlers. One that ends,
    in whichever way, is replaced: at once, or after a pause that doubles when it ended within `EARLY_SECONDS`
    of its start. Workers that don't stop within `stop_seconds` are killed. The sockets stay open; they are
    the caller's. life: of the caller's own parent, whose end is a stop signal as well. ended: is told the index and the
    pid of each that ended. stopping: is called when the stop begins. whole: the most that MORE can ask for, and what
    WHOLE asks for; else `count`.
    Raises StartError when one worker ended early three times in a row; the others are stopped before.
    """
    parent = _Parent(sockets, count, worker, life, ended, stop_seconds, whole or count)
    try:
        parent.supervise()
    finally:
        stopping()
        parent.stop()


class _Place:
    """The place of one worker, filled by one process after another."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.pid: int | None = None
        self.is_retired = False
        self.started_at = 0.0
        self.start_at = 0.0
        self.failures = 0

    def ended(self, how: str) -> None:
        """Note how its process ended and when the next may start. Raises StartError when that is in vain."""
        now = time.monotonic()
        self.failures = self.failures + 1 if now - self.started_at < EARLY_SECONDS else 0
        log.error("worker %d ended: %s", self.index, how)
        if self.failures == FAILURES_AT_MOST:
            raise StartError(
                f"worker {self.index} ended {FAILURES_AT_MOST} times in a row within {EARLY_SECONDS:g} s "
                f"of its start, the last time with {how}"
            )
        self.start_at = now + (BACK_OFF_SECONDS * 2 ** (self.failures - 1) if self.failures else 0.0)


class _Parent:
    """The parent process from before its first fork until after its last wait."""

    def __init__(
        self,
        sockets: list[socket.socket],
        count: int,
        worker: Worker,
        life: Life | None,
        ended: Ended,
        stop_seconds: float,
        whole: int,
    ) -> None:
        self.whole = whole
        self.sockets = sockets
        self.worker = worker
        self.grandparent = [] if life is None else [life.read]
        self.ended = ended
        self.stop_seconds = stop_seconds
        self.places = [_Place(index) for index in range(count)]
        self.is_orphan = False
        self.life = Life()
        self.signals = Signals(SIGNALS)

    def supervise(self) -> None:
        """Keep every place filled until a stop signal."""
        while not (self.signals.is_stop or self.is_orphan):
            for place, how in self._reap():
                if place.is_retired:
                    self.places.remove(place)
                else:
                    place.ended(how)
            self._change_number()
            for place in self.places:
                if place.pid is None and place.start_at <= time.monotonic():
                    self._fork(place)
            times = [place.start_at for place in self.places if place.pid is None]
            self.is_orphan = bool(self.signals.wait(min(times, default=None), self.grandparent))

    def _change_number(self) -> None:
        for _ in range(self.signals.take(FEWER)):
            staying = [place for place in self.places if not place.is_retired]
            if staying:
                self._retire(staying[-1])
        # Afterwards: who asks for all takes back what was asked for before.
        missing = self.whole - sum(not place.is_retired for place in self.places)
        more = self.signals.take(MORE)
        for _ in range(missing if self.signals.take(WHOLE) else min(more, missing)):
            self.places.append(_Place(self._free_index()))

    def _free_index(self) -> int:
        """The lowest: they stay as few as there are processes."""
        taken = {place.index for place in self.places}
        return next(index for index in itertools.count() if index not in taken)

    def _retire(self, place: _Place) -> None:
        if place.pid is None:
            self.places.remove(place)
            return
        place.is_retired = True
        os.kill(place.pid, signal.SIGTERM)

    def stop(self) -> None:
        """End all workers, by force when their time is over, and leave the process as it was found."""
        self._tell(signal.SIGTERM)
        deadline: float | None = time.monotonic() + self.stop_seconds
        while self._running():
            if deadline is not None and time.monotonic() >= deadline:
                log.error("workers that did not stop within %g seconds are killed", self.stop_seconds)
                self._tell(signal.SIGKILL)
                deadline = None
            self.signals.wait(deadline)
            self._reap()
        self.signals.close()
        self.life.close()

    def _running(self) -> list[int]:
        return [place.pid for place in self.places if place.pid is not None]

    def _tell(self, number: signal.Signals) -> None:
        for pid in self._running():
            os.kill(pid, number)

    def _reap(self) -> list[tuple[_Place, str]]:
        ended = []
        for place in self.places:
            if place.pid is not None and (how := ending(place.pid)) is not None:
                self.ended(place.index, place.pid)
                place.pid = None
                ended.append((place, how))
        return ended

    def _fork(self, place: _Place) -> None:
        place.started_at = time.monotonic()
        try:
            place.pid = fork(f"worker {place.index}", self.signals, lambda: self._be_worker(place.index))
        except OSError as error:
            place.ended(f"no process: {error.strerror}")

    def _be_worker(self, index: int) -> None:
        self.life.leave()
        outlive_no_parent(self.life, self.stop_seconds)
        self.worker(self.sockets, index)
