"""Forking, signals and pipes for a process that has children and no event loop.

In: what a child is to do. Out: its pid; the signals that came, which a `select` wakes up for. A child begins with
signals of its own, ends without the exit handlers of its parent, and learns of its parent's end from a pipe that only
the parent holds open.

It must not know: what the children do.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import NoReturn

from server.observing import output
from server.settings import StartError

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_DEFAULT_SIGNALS = frozenset({signal.SIGTERM, signal.SIGCHLD})

log = logging.getLogger("server")


class Signals:
    """The signals that came since they were last asked for. To be made in the main thread, and closed there."""

    def __init__(self, numbers: Sequence[signal.Signals]) -> None:
        self.numbers = numbers
        self._came: Counter[int] = Counter()
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._wakeup_before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._handlers_before = {number: signal.signal(number, self._note) for number in numbers}

    def _note(self, number: int, _frame: object) -> None:
        self._came[number] += 1

    @property
    def is_stop(self) -> bool:
        """Whether one that ends the process came."""
        return any(self._came[number] for number in STOP_SIGNALS)

    def take(self, number: signal.Signals) -> int:
        """How often it came; from here on never."""
        return self._came.pop(number, 0)

    def wait(self, until: float | None, descriptors: Sequence[int] = ()) -> list[int]:
        """Waits for a signal, for one of the descriptors or until this time of the monotonic clock. Gives the
        descriptors that can be read."""
        timeout = None if until is None else max(0.0, until - time.monotonic())
        ready: list[int] = select.select([self._read, *descriptors], [], [], timeout)[0]
        if self._read in ready:
            os.read(self._read, 4096)
            ready.remove(self._read)
        return ready

    def close(self) -> None:
        """Leaves the process as it was found."""
        for number, handler in self._handlers_before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        os.close(self._read)
        os.close(self._write)

    def leave(self, mask: Collection[int]) -> None:
        """In a child: what the parent waits for is none of its business. Ctrl-C and the end of a terminal reach all of
        its processes; the parent passes them on, so that a child is told once."""
        signal.set_wakeup_fd(-1)
        for number in self.numbers:
            signal.signal(number, signal.SIG_DFL if number in _DEFAULT_SIGNALS else signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(self._read)
        os.close(self._write)


class Life:
    """A pipe of which the parent holds the one end and its children read the other: it ends when the parent does, even
    by SIGKILL."""

    def __init__(self) -> None:
        self.read, self._write = os.pipe()

    def leave(self) -> None:
        """In a child."""
        os.close(self._write)

    def close(self) -> None:
        os.close(self.read)
        os.close(self._write)


def fork(name: str, signals: Signals, work: Callable[[], None]) -> int:
    """The pid of a new process that does the work and ends. Raises OSError where there is none to be had."""
    # What is still in a buffer would be written by both processes.
    sys.stdout.flush()
    sys.stderr.flush()
    # A signal that came between the fork and the reset of its handler would be lost on the child.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signals.numbers)
    try:
        with warnings.catch_warnings():
            # Python 3.12 warns of threads. Those of here only write and wait, and hold nothing that a child uses.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            _be_child(name, signals, mask, work)
        return pid
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _be_child(name: str, signals: Signals, mask: Collection[int], work: Callable[[], None]) -> NoReturn:
    code = 1
    try:
        signals.leave(mask)
        work()
        code = 0
    except StartError as error:
        log.error("%s: %s", name, error)
    except BaseException:
        log.exception("%s failed", name)
    finally:
        _exit(code)


def _exit(code: int) -> NoReturn:
    """Ends the process here: exit handlers and the open blocks of the stack are the parent's to run."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
        output.finish()
    finally:
        os._exit(code)


def outlive_no_parent(life: Life, stop_seconds: float) -> None:
    """From here on the end of the parent is SIGTERM to this process, and SIGKILL when that does not help in time. For a
    process that forks no more."""
    threading.Thread(target=_watch, args=(life.read, stop_seconds), daemon=True).start()


def _watch(descriptor: int, stop_seconds: float) -> None:
    # A signal handled in this thread would not wake the main one.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    os.read(descriptor, 1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(stop_seconds)
    os.kill(os.getpid(), signal.SIGKILL)


def ending(pid: int) -> str | None:
    """How a child ended, in words; None while it runs. Each is waited for by its pid: other children are waited for by
    their owners."""
    found, status = os.waitpid(pid, os.WNOHANG)
    return _how(os.waitstatus_to_exitcode(status)) if found else None


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    return f"signal {-code}" + (f" ({name})" if (name := signal.strsignal(-code)) else "")
