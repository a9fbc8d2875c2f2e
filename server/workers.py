"""Several processes that answer on the same sockets.

In: listening sockets, a number, and the function that a worker runs. Out: nothing, when a signal has ended
it; or StartError, when a worker can't be kept alive. The parent holds the sockets for as long as it lives, so
a worker that dies takes only its own connections along, and those that wait to be accepted go to the others.

It must not know: HTTP, Tornado, the database, the settings.

The rule: a worker runs until it gets SIGTERM. It gets that from the parent, which passes on SIGTERM and
SIGINT in this form, or from its own watch on a pipe that only the parent holds open: when the parent is gone,
even by SIGKILL, the pipe ends, and the worker gets SIGTERM from itself, and SIGKILL when that does not help
in time. A worker that hangs without dying is not noticed.
"""

import logging
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection
from typing import NoReturn

from server.settings import StartError

Worker = Callable[[list[socket.socket], int], None]
Tend = Callable[[], None]

FAILURES_AT_MOST = 3
EARLY_SECONDS = 5.0
BACK_OFF_SECONDS = 0.2
STOP_SECONDS = 30.0
TEND_SECONDS = 0.25
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
SIGNALS = (*STOP_SIGNALS, signal.SIGCHLD)

log = logging.getLogger(__name__)


def run(
    sockets: list[socket.socket],
    count: int,
    worker: Worker,
    *,
    tend: Tend | None = None,
    stop_seconds: float = STOP_SECONDS,
) -> None:
    """Run `worker(sockets, index)` in `count` forked processes, index from 0, until SIGTERM or SIGINT.

    Call it from the main thread, without other threads and without an event loop: neither survives a fork. A
    worker starts with the default action for SIGTERM and without the parent's exit handlers. One that ends,
    in whichever way, is replaced: at once, or after a pause that doubles when it ended within `EARLY_SECONDS`
    of its start. Workers that don't stop within `stop_seconds` are killed. The sockets stay open; they are
    the caller's. `tend` is called in the parent, when a child of it has ended and at least every `TEND_SECONDS`,
    until the stop begins.
    Raises StartError when one worker ended early three times in a row, or what `tend` raises; the others are
    stopped before.
    """
    parent = _Parent(sockets, count, worker, tend, stop_seconds)
    try:
        parent.supervise()
    finally:
        parent.stop()


class _Place:
    """The place of one worker, filled by one process after another."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.pid: int | None = None
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
        self, sockets: list[socket.socket], count: int, worker: Worker, tend: Tend | None, stop_seconds: float
    ) -> None:
        self.sockets = sockets
        self.worker = worker
        self.tend = tend
        self.stop_seconds = stop_seconds
        self.places = [_Place(index) for index in range(count)]
        self.is_stopping = False
        self.life_read, self.life_write = os.pipe()
        self.wake_read, self.wake_write = os.pipe()
        os.set_blocking(self.wake_read, False)
        os.set_blocking(self.wake_write, False)
        self.wakeup_before = signal.set_wakeup_fd(self.wake_write, warn_on_full_buffer=False)
        self.handlers_before = {number: signal.signal(number, self._note) for number in SIGNALS}

    def _note(self, number: int, _frame: object) -> None:
        self.is_stopping = self.is_stopping or number in STOP_SIGNALS

    def supervise(self) -> None:
        """Keep every place filled until a stop signal."""
        while not self.is_stopping:
            if self.tend is not None:
                self.tend()
            for place, how in self._reap():
                place.ended(how)
            for place in self.places:
                if place.pid is None and place.start_at <= time.monotonic():
                    self._fork(place)
            times = [place.start_at for place in self.places if place.pid is None]
            if self.tend is not None:
                times.append(time.monotonic() + TEND_SECONDS)
            self._wait(min(times, default=None))

    def stop(self) -> None:
        """End all workers, by force when their time is over, and leave the process as it was found."""
        self._tell(signal.SIGTERM)
        deadline: float | None = time.monotonic() + self.stop_seconds
        while self._running():
            if deadline is not None and time.monotonic() >= deadline:
                log.error("workers that did not stop within %g seconds are killed", self.stop_seconds)
                self._tell(signal.SIGKILL)
                deadline = None
            self._wait(deadline)
            self._reap()
        for number, handler in self.handlers_before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self.wakeup_before)
        for descriptor in (self.life_read, self.life_write, self.wake_read, self.wake_write):
            os.close(descriptor)

    def _running(self) -> list[int]:
        return [place.pid for place in self.places if place.pid is not None]

    def _tell(self, number: signal.Signals) -> None:
        for pid in self._running():
            os.kill(pid, number)

    def _wait(self, until: float | None) -> None:
        """Wait for a signal, at most until this time of the monotonic clock."""
        timeout = None if until is None else max(0.0, until - time.monotonic())
        if select.select([self.wake_read], [], [], timeout)[0]:
            os.read(self.wake_read, 4096)

    def _reap(self) -> list[tuple[_Place, str]]:
        # Each by its pid: other children of this process, a database among them, are waited for by their
        # owners.
        ended = []
        for place in self.places:
            if place.pid is not None:
                pid, status = os.waitpid(place.pid, os.WNOHANG)
                if pid:
                    place.pid = None
                    ended.append((place, _how(os.waitstatus_to_exitcode(status))))
        return ended

    def _fork(self, place: _Place) -> None:
        # What is still in a buffer would be written by both processes.
        sys.stdout.flush()
        sys.stderr.flush()
        # A signal that came between the fork and the reset of its handler would be lost on the worker.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        place.started_at = time.monotonic()
        try:
            pid = os.fork()
            if pid == 0:
                self._be_worker(place.index, mask)
            place.pid = pid
        except OSError as error:
            place.ended(f"no process: {error.strerror}")
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _be_worker(self, index: int, mask: Collection[int]) -> NoReturn:
        code = 1
        try:
            self._leave_parent(mask)
            self.worker(self.sockets, index)
            code = 0
        except StartError as error:
            log.error("worker %d: %s", index, error)
        except BaseException:
            log.exception("worker %d failed", index)
        finally:
            _exit(code)

    def _leave_parent(self, mask: Collection[int]) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # Ctrl-C reaches all processes of a terminal; the parent passes it on, so that a worker is told once.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for descriptor in (self.life_write, self.wake_read, self.wake_write):
            os.close(descriptor)
        watch = threading.Thread(target=_outlive_no_parent, args=(self.life_read, self.stop_seconds), daemon=True)
        watch.start()


def _outlive_no_parent(life_read: int, stop_seconds: float) -> None:
    """Wait for the end of the pipe, which is the end of the parent, then end this process."""
    # A signal handled in this thread would not wake the main one.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    os.read(life_read, 1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(stop_seconds)
    os.kill(os.getpid(), signal.SIGKILL)


def _exit(code: int) -> NoReturn:
    """End the process here: exit handlers and the open blocks of the stack are the parent's to run."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    return f"signal {-code}" + (f" ({name})" if (name := signal.strsignal(-code)) else "")
