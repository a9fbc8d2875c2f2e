"""Shows what a command is doing while it takes long: one line of a terminal, which is removed at the end.

    with step("looking for missing indexes") as show:
        show("looking for missing indexes: 3 of 12 tables")

It must not know: what the steps do.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Show = Callable[[str], None]

SHOWN_AFTER_SECONDS = 0.5
"""On a terminal. A line that disappears at once would only disturb."""

PRINTED_AFTER_SECONDS = 5.0
"""Without a terminal: one plain line, so that a log says what a command waits for."""

DRAWN_EVERY_SECONDS = 0.2
_CLEAR = b"\r\x1b[K"


class _Line:
    """The line of a step. A thread draws it, because a step may keep the main thread busy."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._begun_at = time.monotonic()
        self._is_drawn = False
        self._has_ended = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Remove the line."""
        self._has_ended.set()
        # A terminal that is stopped (Ctrl-S) takes nothing. The command does not wait for it.
        self._thread.join(1.0)

    def _run(self) -> None:
        # Signals must wake the main thread, so this thread blocks them.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        if not _is_terminal():
            if not self._has_ended.wait(PRINTED_AFTER_SECONDS):
                _write(f"{self.text} ...\n".encode())
            return
        wait = SHOWN_AFTER_SECONDS
        while not self._has_ended.wait(wait):
            with self._lock:
                self._draw()
            wait = DRAWN_EVERY_SECONDS
        self.clear()

    def _draw(self) -> None:
        seconds = time.monotonic() - self._begun_at
        line = f"{self.text} ... {seconds:.0f} s" if seconds >= 1 else f"{self.text} ..."
        room = shutil.get_terminal_size().columns - 1
        # The cursor goes back to the beginning of the line, so that other output replaces this line.
        _write(_CLEAR + line[:room].encode() + b"\r")
        self._is_drawn = True

    def clear(self) -> None:
        """Remove the line until it is drawn again."""
        with self._lock:
            if self._is_drawn:
                _write(_CLEAR)
            self._is_drawn = False


_current: _Line | None = None


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def _write(text: bytes) -> None:
    # Not through sys.stderr, which may keep a text until its line ends.
    try:
        os.write(sys.stderr.fileno(), text)
    except (OSError, ValueError, AttributeError):
        return  # nobody can read it


@contextmanager
def step(text: str) -> Iterator[Show]:
    """Show a text while the block runs, if this takes long. The block may replace the text by calling what it gets. A
    step inside of another replaces its text, and puts it back."""
    global _current
    if (outer := _current) is not None:
        before, outer.text = outer.text, text
        try:
            yield lambda new: setattr(outer, "text", new)
        finally:
            outer.text = before
        return
    _current = line = _Line(text)
    try:
        yield lambda new: setattr(line, "text", new)
    finally:
        _current = None
        line.end()


def clear_line() -> None:
    """Remove the line of the running step from the terminal, before something else is written there."""
    if _current is not None:
        _current.clear()
