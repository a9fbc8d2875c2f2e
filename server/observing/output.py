"""Standard output and standard error of a server, which never wait for whoever reads them. What comes in: text. What
goes out: lines, written by a thread.

A pipe that nobody reads takes 64 KiB, and then blocks who writes into it: a worker with all its requests, or the master
with its signals. Here the text is kept up to `MOST_CHARACTERS`. Lines beyond that are dropped and counted, and their
number is written when writing works again.

A process that is forked begins with nothing kept and starts a thread of its own; what its parent had kept is written by
the parent.

It must not know: what is written.
"""

from __future__ import annotations

import atexit
import os
import select
import signal
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from io import TextIOBase
from typing import Any

MOST_CHARACTERS = 1_048_576
"""That are kept for each of the two."""

WRITTEN_BYTES, WRITTEN_TO_FILE_BYTES = 4096, 65_536
"""Lines are written together up to here: so many bytes are never mixed with those of other processes, in a pipe
(PIPE_BUF) and in a file. Each write takes the lock of the interpreter from the main thread."""

PAUSE_SECONDS = 0.02
"""How long lines are gathered once some were written. To wake the thread for each of them would cost requests time."""

FLUSH_SECONDS = 1.0
"""How long a process that ends waits for its last lines to be written."""

STALLED_SECONDS, STALLED_FLUSH_SECONDS = 0.5, 0.1
"""A write that has waited for so long will hardly end now: a process that ends then waits for less."""


class Output(TextIOBase):
    """A stream in place of `sys.stdout` or `sys.stderr`. dropped: how many lines were, since the process began.
    describe: gives the line that says how many."""

    # Those of any stream, as print, warnings and click ask for them.
    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        self._most_bytes = WRITTEN_TO_FILE_BYTES if is_file else WRITTEN_BYTES
        self.describe: Callable[[int], str] = "{} lines were dropped because nobody read them\n".format
        self.renew()

    def renew(self) -> None:
        """In a process that was just forked: locks and threads are those of its parent."""
        # What logs while this process logs, such as a finalizer, is in the same thread.
        self._lock = threading.RLock()
        self._kept: deque[str] = deque()
        self._size = 0
        self._line = ""
        self._untold = 0
        self.dropped = 0
        self._has_text = threading.Event()
        self._is_started = False
        self._writes_since: float | None = None

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"a stream of text takes no {type(text).__name__}")
        with self._lock:
            if not text.endswith("\n"):
                # print writes the end of a line by itself.
                self._line += text
                if len(self._line) < MOST_CHARACTERS:
                    return len(text)
                self._line, whole = "", self._line
            elif self._line:
                self._line, whole = "", self._line + text
            else:
                whole = text
            self._keep(whole)
        return len(text)

    def _keep(self, text: str) -> None:
        # Once lines are dropped, until half of the others are written: one line tells of many.
        if self._size + len(text) > (MOST_CHARACTERS // 2 if self._untold else MOST_CHARACTERS):
            self.dropped += (lines := max(1, text.count("\n")))
            self._untold += lines
            return
        if self._untold:
            self._untold, untold = 0, self._untold
            self._kept.append(told := self.describe(untold))
            self._size += len(told)
        self._kept.append(text)
        self._size += len(text)
        self._wake()

    def _wake(self) -> None:
        if not self._has_text.is_set():
            self._has_text.set()
        if not self._is_started:
            self._is_started = True
            threading.Thread(target=self._write_all, name="output", daemon=True).start()

    def finish(self) -> None:
        """Waits until all is written, for a bounded time."""
        begin = time.monotonic()
        with self._lock:
            if self._line:
                self._line, text = "", self._line
                self._keep(text)
        while self._has_text.is_set():
            now = time.monotonic()
            since = self._writes_since
            is_stalled = since is not None and now - since > STALLED_SECONDS
            if now - begin > (STALLED_FLUSH_SECONDS if is_stalled else FLUSH_SECONDS):
                return
            time.sleep(0.002)

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def writable(self) -> bool:
        return True

    # in the thread

    def _write_all(self) -> None:
        # Signals are for the main thread, which they are to wake up.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            self._has_text.wait()
            while (text := self._take()) is not None:
                self._write(text)
            time.sleep(PAUSE_SECONDS)

    def _take(self) -> bytes | None:
        """What is written next; None where there is nothing."""
        with self._lock:
            pieces: list[bytes] = []
            size = 0
            while self._kept:
                piece = self._kept[0].encode(self.encoding, self.errors)
                if pieces and size + len(piece) > self._most_bytes:
                    break
                self._size -= len(self._kept.popleft())
                pieces.append(piece)
                size += len(piece)
            if not pieces and self._untold:
                self._untold, untold = 0, self._untold
                pieces.append(self.describe(untold).encode(self.encoding, self.errors))
            if not pieces:
                self._has_text.clear()
                return None
        return b"".join(pieces)

    def _write(self, text: bytes) -> None:
        rest = memoryview(text)
        self._writes_since = time.monotonic()
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                # Another program has made the descriptor so.
                select.select([], [self._descriptor], [])
            except OSError:
                # Nobody reads any more, or the disk is full.
                with self._lock:
                    self.dropped += text.count(b"\n")
                break
        self._writes_since = None


def take_over() -> None:
    """From here on `sys.stdout` and `sys.stderr` never block, in this process and in those that it forks."""
    for name in ("stdout", "stderr"):
        stream: Any = getattr(sys, name)
        if stream is not None and not isinstance(stream, Output):
            stream.flush()
            setattr(sys, name, made := Output(stream.fileno()))
            os.register_at_fork(after_in_child=made.renew)
    atexit.register(finish)


def finish() -> None:
    """Before a process ends: the last lines are written, if that does not take long."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, Output):
            stream.finish()


def dropped_lines() -> int:
    """Of this process."""
    return sum(stream.dropped for stream in (sys.stdout, sys.stderr) if isinstance(stream, Output))
