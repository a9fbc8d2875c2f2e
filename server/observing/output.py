"""Replaces standard output and standard error by streams that never block.

What comes in: text. What goes out: lines, written by a thread.

A pipe that nobody reads takes 64 KiB and then blocks the writer: a worker with all its requests, or the master with its
signals. Here up to `MAX_CHARACTERS` are kept. Further lines are dropped and counted, and their number is written when
writing works again.

A forked process starts with an empty buffer and a thread of its own. The parent writes what was in its own buffer.

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

MAX_CHARACTERS = 1_048_576
"""How many are kept for each of the two streams."""

WRITE_BYTES, FILE_WRITE_BYTES = 4096, 65_536
"""How many bytes are written at once. So many are never mixed with those of other processes, in a pipe (PIPE_BUF) and
in a file. Each write takes the GIL from the main thread, so lines are written together."""

GATHER_SECONDS = 0.02
"""How long lines are gathered after a write. Waking the thread for each line would slow requests down."""

FLUSH_SECONDS = 1.0
"""How long a process that ends waits until its last lines are written."""

STALLED_SECONDS, STALLED_FLUSH_SECONDS = 0.5, 0.1
"""A write that has blocked for STALLED_SECONDS will probably not end soon. A process that ends then waits only for
STALLED_FLUSH_SECONDS."""


class Output(TextIOBase):
    """A stream that replaces `sys.stdout` or `sys.stderr`. dropped: how many lines were dropped since the process
    began. describe: makes the line that reports how many."""

    # print, warnings and click expect these attributes of a stream.
    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        self._max_bytes = FILE_WRITE_BYTES if is_file else WRITE_BYTES
        self.describe: Callable[[int], str] = "{} lines were dropped because nobody read them\n".format
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """Reset the state in a forked process: the locks and threads belong to its parent."""
        # Reentrant, because a finalizer may log while this thread logs.
        self._lock = threading.RLock()
        self._kept: deque[str] = deque()
        self._size = 0
        self._line = ""
        self._unreported = 0
        self.dropped = 0
        self._has_text = threading.Event()
        self._is_started = False
        self._writes_since: float | None = None

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"a stream of text takes no {type(text).__name__}")
        with self._lock:
            if not text.endswith("\n"):
                # print may write the line break separately.
                self._line += text
                if len(self._line) < MAX_CHARACTERS:
                    return len(text)
                self._line, whole = "", self._line
            elif self._line:
                self._line, whole = "", self._line + text
            else:
                whole = text
            self._keep(whole)
        return len(text)

    def _keep(self, text: str) -> None:
        # Once lines are dropped, drop until half of the buffer is written, so that one line reports many.
        if self._size + len(text) > (MAX_CHARACTERS // 2 if self._unreported else MAX_CHARACTERS):
            self.dropped += (lines := max(1, text.count("\n")))
            self._unreported += lines
            return
        if self._unreported:
            self._unreported, unreported = 0, self._unreported
            self._kept.append(report := self.describe(unreported))
            self._size += len(report)
        self._kept.append(text)
        self._size += len(text)
        self._wake()

    def _wake(self) -> None:
        if not self._has_text.is_set():
            self._has_text.set()
        if self._is_started:
            return
        try:
            threading.Thread(target=self._write_all, name="output", daemon=True).start()
            self._is_started = True
        except RuntimeError:
            # The process ends, and Python starts no thread any more.
            self._write_now()

    def _write_now(self) -> None:
        """Write what is kept, as long as somebody reads."""
        while (
            select.select([], [self._descriptor], [], STALLED_FLUSH_SECONDS)[1] and (text := self._take()) is not None
        ):
            self._write(text)

    def finish(self) -> None:
        """Wait until all is written, for a limited time."""
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
        # Signals must wake the main thread, so this thread blocks them.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            self._has_text.wait()
            while (text := self._take()) is not None:
                self._write(text)
            time.sleep(GATHER_SECONDS)

    def _take(self) -> bytes | None:
        """Return the bytes to write next, or None."""
        with self._lock:
            pieces: list[bytes] = []
            size = 0
            while self._kept:
                piece = self._kept[0].encode(self.encoding, self.errors)
                if pieces and size + len(piece) > self._max_bytes:
                    break
                self._size -= len(self._kept.popleft())
                pieces.append(piece)
                size += len(piece)
            if not pieces and self._unreported:
                self._unreported, unreported = 0, self._unreported
                pieces.append(self.describe(unreported).encode(self.encoding, self.errors))
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
                # Another program has made the descriptor non-blocking.
                select.select([], [self._descriptor], [])
            except OSError:
                # Nobody reads any more, or the disk is full.
                with self._lock:
                    self.dropped += text.count(b"\n")
                break
        self._writes_since = None


def replace_standard_streams() -> None:
    """Replace `sys.stdout` and `sys.stderr` by streams that never block, in this process and in those that it forks."""
    for name in ("stdout", "stderr"):
        stream: Any = getattr(sys, name)
        if stream is not None and not isinstance(stream, Output):
            stream.flush()
            setattr(sys, name, made := Output(stream.fileno()))
            os.register_at_fork(after_in_child=made.reset_after_fork)
    atexit.register(finish)


def finish() -> None:
    """Write the last lines before the process ends, for a limited time."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, Output):
            stream.finish()


def dropped_lines() -> int:
    """Return how many lines this process has dropped."""
    return sum(stream.dropped for stream in (sys.stdout, sys.stderr) if isinstance(stream, Output))
