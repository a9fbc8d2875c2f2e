"""Runs several worker processes that answer on the same sockets.

What comes in: listening sockets, a count, and the function that a worker runs. `run` returns after a stop signal, or
raises StartError when a worker keeps ending. The parent keeps the sockets open: a worker that dies loses only its own
connections, and the other workers accept the waiting ones.

It must not know: HTTP, Tornado, the database, the settings.

A worker runs until it receives SIGTERM. The parent sends it when it receives SIGTERM or SIGINT itself; the worker sends
it to itself when the parent has ended. SIGTTIN adds a worker and SIGTTOU removes one, as in other Unix servers. SIGUSR1
restores the full count. Signals of one kind may be merged into one, which makes no difference to SIGUSR1.
"""

from __future__ import annotations

import itertools
import logging
import os
import signal
import socket
import time
from collections.abc import Callable

from server.processes.forks import STOP_SIGNALS, ParentPipe, Signals, exit_with_parent, fork, poll_exit
from server.settings import StartError

Worker = Callable[[list[socket.socket], int], None]
OnExit = Callable[[int, int], None]

MAX_FAILURES = 3
EARLY_SECONDS = 5.0
BACK_OFF_SECONDS = 0.2
ADD_WORKER, REMOVE_WORKER, RESTORE_WORKERS = signal.SIGTTIN, signal.SIGTTOU, signal.SIGUSR1
SIGNALS = (*STOP_SIGNALS, signal.SIGCHLD, ADD_WORKER, REMOVE_WORKER, RESTORE_WORKERS)

log = logging.getLogger("server")


def run(
    sockets: list[socket.socket],
    count: int,
    worker: Worker,
    *,
    stop_seconds: float,
    parent_pipe: ParentPipe | None = None,
    on_exit: OnExit = lambda *_: None,
    on_stop: Callable[[], None] = lambda: None,
    max_count: int = 0,
) -> None:
    """Run `worker(sockets, index)` in `count` forked processes, index from 0, until SIGTERM or SIGINT.

    Call it from the main thread, without other threads and without an event loop: neither survives a fork. A worker
    starts with the default action for SIGTERM and without the parent's exit handlers. A worker that ends is replaced:
    at once, or after a pause that doubles if it ended within `EARLY_SECONDS` of its start. Workers that do not stop
    within `stop_seconds` are killed. The sockets stay open; they belong to the caller.

    parent_pipe: of the caller's own parent, whose end counts as a stop signal. on_exit: is called with the index and
    the pid of each worker that ended. on_stop: is called when the stop begins. max_count: the full count, which
    ADD_WORKER cannot exceed and which RESTORE_WORKERS restores; `count` by default.

    Raises StartError when one worker ended early three times in a row; the others are stopped before.
    """
    parent = _Parent(sockets, count, worker, parent_pipe, on_exit, stop_seconds, max_count or count)
    try:
        parent.supervise()
    finally:
        on_stop()
        parent.stop()


class _Slot:
    """The slot of one worker. One process after another runs in it."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.pid: int | None = None
        self.is_retired = False
        self.started_at = 0.0
        self.start_at = 0.0
        self.failures = 0

    def record_exit(self, how: str) -> None:
        """Record how the process ended, and when the next one may start. Raises StartError after too many failures."""
        now = time.monotonic()
        self.failures = self.failures + 1 if now - self.started_at < EARLY_SECONDS else 0
        log.error("worker %d ended: %s", self.index, how)
        if self.failures == MAX_FAILURES:
            raise StartError(
                f"worker {self.index} ended {MAX_FAILURES} times in a row within {EARLY_SECONDS:g} s "
                f"of its start, the last time with {how}"
            )
        self.start_at = now + (BACK_OFF_SECONDS * 2 ** (self.failures - 1) if self.failures else 0.0)


class _Parent:
    """The parent process, from before its first fork until after its last wait."""

    def __init__(
        self,
        sockets: list[socket.socket],
        count: int,
        worker: Worker,
        parent_pipe: ParentPipe | None,
        on_exit: OnExit,
        stop_seconds: float,
        max_count: int,
    ) -> None:
        self.max_count = max_count
        self.sockets = sockets
        self.worker = worker
        self.parent_descriptors = [] if parent_pipe is None else [parent_pipe.read]
        self.on_exit = on_exit
        self.stop_seconds = stop_seconds
        self.slots = [_Slot(index) for index in range(count)]
        self.is_orphan = False
        self.parent_pipe = ParentPipe()
        self.signals = Signals(SIGNALS)

    def supervise(self) -> None:
        """Keep a process in every slot until a stop signal."""
        while not (self.signals.is_stop or self.is_orphan):
            for slot, how in self._reap():
                if slot.is_retired:
                    self.slots.remove(slot)
                else:
                    slot.record_exit(how)
            self._resize()
            for slot in self.slots:
                if slot.pid is None and slot.start_at <= time.monotonic():
                    self._fork(slot)
            times = [slot.start_at for slot in self.slots if slot.pid is None]
            self.is_orphan = bool(self.signals.wait(min(times, default=None), self.parent_descriptors))

    def _resize(self) -> None:
        for _ in range(self.signals.take(REMOVE_WORKER)):
            staying = [slot for slot in self.slots if not slot.is_retired]
            if staying:
                self._retire(staying[-1])
        # After the removals: RESTORE_WORKERS overrides them.
        missing = self.max_count - sum(not slot.is_retired for slot in self.slots)
        more = self.signals.take(ADD_WORKER)
        for _ in range(missing if self.signals.take(RESTORE_WORKERS) else min(more, missing)):
            self.slots.append(_Slot(self._free_index()))

    def _free_index(self) -> int:
        """Return the lowest free index, so that the indexes stay as low as possible."""
        taken = {slot.index for slot in self.slots}
        return next(index for index in itertools.count() if index not in taken)

    def _retire(self, slot: _Slot) -> None:
        if slot.pid is None:
            self.slots.remove(slot)
            return
        slot.is_retired = True
        os.kill(slot.pid, signal.SIGTERM)

    def stop(self) -> None:
        """Stop all workers, kill those that do not stop in time, and restore the signal handlers."""
        self._signal_all(signal.SIGTERM)
        deadline: float | None = time.monotonic() + self.stop_seconds
        while self._running():
            if deadline is not None and time.monotonic() >= deadline:
                log.error("workers that did not stop within %g seconds are killed", self.stop_seconds)
                self._signal_all(signal.SIGKILL)
                deadline = None
            self.signals.wait(deadline)
            self._reap()
        self.signals.close()
        self.parent_pipe.close()

    def _running(self) -> list[int]:
        return [slot.pid for slot in self.slots if slot.pid is not None]

    def _signal_all(self, number: signal.Signals) -> None:
        for pid in self._running():
            os.kill(pid, number)

    def _reap(self) -> list[tuple[_Slot, str]]:
        ended = []
        for slot in self.slots:
            if slot.pid is not None and (how := poll_exit(slot.pid)) is not None:
                self.on_exit(slot.index, slot.pid)
                slot.pid = None
                ended.append((slot, how))
        return ended

    def _fork(self, slot: _Slot) -> None:
        slot.started_at = time.monotonic()
        try:
            slot.pid = fork(f"worker {slot.index}", self.signals, lambda: self._run_worker(slot.index))
        except OSError as error:
            slot.record_exit(f"cannot start a process: {error.strerror}")

    def _run_worker(self, index: int) -> None:
        self.parent_pipe.close_in_child()
        exit_with_parent(self.parent_pipe, self.stop_seconds)
        self.worker(self.sockets, index)
