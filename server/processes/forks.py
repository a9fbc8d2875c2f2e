"""Forks child processes, and handles their signals and pipes, for a parent without an event loop.

What comes in: the function that a child runs. What goes out: its pid, and the signals that have arrived. A child resets
the signal handlers, does not run the parent's exit handlers, and notices the end of its parent by a pipe that only the
parent holds open.

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
    """Collects signals until they are asked for. Create and close it in the main thread."""

    def __init__(self, numbers: Sequence[signal.Signals]) -> None:
        self.numbers = numbers
        self._counts: Counter[int] = Counter()
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._wakeup_before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._handlers_before = {number: signal.signal(number, self._record) for number in numbers}

    def _record(self, number: int, _frame: object) -> None:
        self._counts[number] += 1

    @property
    def is_stop(self) -> bool:
        """Whether a signal that ends the process has arrived."""
        return any(self._counts[number] for number in STOP_SIGNALS)

    def take(self, number: signal.Signals) -> int:
        """Return how often the signal has arrived since the last call."""
        return self._counts.pop(number, 0)

    def wait(self, until: float | None, descriptors: Sequence[int] = ()) -> list[int]:
        """Wait for a signal, for one of the descriptors, or until this time of the monotonic clock. Returns the
        descriptors that can be read."""
        timeout = None if until is None else max(0.0, until - time.monotonic())
        ready: list[int] = select.select([self._read, *descriptors], [], [], timeout)[0]
        if self._read in ready:
            os.read(self._read, 4096)
            ready.remove(self._read)
        return ready

    def close(self) -> None:
        """Restore the previous signal handlers."""
        for number, handler in self._handlers_before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        os.close(self._read)
        os.close(self._write)

    def reset_in_child(self, mask: Collection[int]) -> None:
        """Reset the signal handlers in a forked child. Ctrl-C and the end of a terminal reach all processes. The child
        ignores them, because the parent passes them on as SIGTERM."""
        signal.set_wakeup_fd(-1)
        for number in self.numbers:
            signal.signal(number, signal.SIG_DFL if number in _DEFAULT_SIGNALS else signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(self._read)
        os.close(self._write)


class ParentPipe:
    """A pipe that tells children when their parent ends. Only the parent holds the write end, so the read end reaches
    EOF when the parent ends, even by SIGKILL."""

    def __init__(self) -> None:
        self.read, self._write = os.pipe()

    def close_in_child(self) -> None:
        """Close the write end in a forked child."""
        os.close(self._write)

    def close(self) -> None:
        """Close both ends in the parent."""
        os.close(self.read)
        os.close(self._write)


def fork(name: str, signals: Signals, work: Callable[[], None]) -> int:
    """Start a process that runs `work` and ends. Returns its pid. Raises OSError if the system refuses."""
    # Buffered text would be written by both processes.
    sys.stdout.flush()
    sys.stderr.flush()
    # The child would lose a signal that arrives between the fork and the reset of its handler.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signals.numbers)
    try:
        with warnings.catch_warnings():
            # Python 3.12 warns when a process with threads forks. Ours hold no lock that a child uses.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            _run_child(name, signals, mask, work)
        return pid
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _run_child(name: str, signals: Signals, mask: Collection[int], work: Callable[[], None]) -> NoReturn:
    code = 1
    try:
        signals.reset_in_child(mask)
        work()
        code = 0
    except StartError as error:
        log.error("%s: %s", name, error)
    except BaseException:
        log.exception("%s failed", name)
    finally:
        _exit(code)


def _exit(code: int) -> NoReturn:
    """End the process here. The exit handlers and the open blocks on the stack belong to the parent."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
        output.finish()
    finally:
        os._exit(code)


def exit_with_parent(parent_pipe: ParentPipe, stop_seconds: float) -> None:
    """Send SIGTERM to this process when its parent ends, and SIGKILL after `stop_seconds`. It starts a thread, so the
    process must not fork afterwards."""
    threading.Thread(target=_stop_with_parent, args=(parent_pipe.read, stop_seconds), daemon=True).start()


def _stop_with_parent(descriptor: int, stop_seconds: float) -> None:
    # A signal that this thread handles would not wake the main thread.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    os.read(descriptor, 1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(stop_seconds)
    os.kill(os.getpid(), signal.SIGKILL)


def poll_exit(pid: int) -> str | None:
    """Return how a child ended, in words, or None while it runs. It only waits for this pid, because other modules wait
    for other children."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    return _describe_exit(os.waitstatus_to_exitcode(status)) if ended else None


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    return f"signal {-code}" + (f" ({name})" if (name := signal.strsignal(-code)) else "")
