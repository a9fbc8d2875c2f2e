"""The progress of what takes long: on a terminal a line that is removed, else a plain line."""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from server.tools.console import progress

Written = Callable[[], str]


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Written]:
    """Make standard error a terminal. Returns a function that returns what was written since its last call."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    parent, child = os.openpty()
    with os.fdopen(child, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)

        def written() -> str:
            found, until = b"", time.monotonic() + 0.1
            # A terminal passes on what is written a little later.
            while (left := until - time.monotonic()) > 0 and select.select([parent], [], [], left)[0]:
                found += os.read(parent, 65_536)
            return found.decode()

        yield written
    os.close(parent)


def drawn(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Draw without waiting. Return an event that is set after each line."""
    event, write = threading.Event(), progress._write

    def note(text: bytes) -> None:
        write(text)
        event.set()

    monkeypatch.setattr(progress, "_write", note)
    for name in ("SHOWN_AFTER_SECONDS", "PRINTED_AFTER_SECONDS", "DRAWN_EVERY_SECONDS"):
        monkeypatch.setattr(progress, name, 0.01)
    return event


def wait(event: threading.Event) -> None:
    for _ in range(2):  # a text may have changed while a line was drawn
        event.clear()
        assert event.wait(10)


def test_a_terminal_has_one_line_that_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    event = drawn(monkeypatch)
    with terminal(monkeypatch) as written:
        with progress.step("reading"):
            wait(event)
            assert written().endswith("\r\x1b[Kreading ...\r")
            with progress.step("reading " + "x" * 60) as show:
                wait(event)
                assert written().endswith(f"\r\x1b[Kreading {'x' * 31}\r")
                show("reading 2 of 3")
                wait(event)
                assert written().endswith("\r\x1b[Kreading 2 of 3 ...\r")
            wait(event)
            assert written().endswith("\r\x1b[Kreading ...\r")
        assert written().endswith("\r\x1b[K")
    assert "progress" not in [thread.name for thread in threading.enumerate()]


def test_another_line_replaces_it(monkeypatch: pytest.MonkeyPatch) -> None:
    event = drawn(monkeypatch)
    monkeypatch.setattr(progress, "DRAWN_EVERY_SECONDS", 60.0)
    with terminal(monkeypatch) as written, progress.step("reading"):
        assert event.wait(10)
        progress.clear_line()
        assert written() == "\r\x1b[Kreading ...\r\r\x1b[K"


def test_what_is_fast_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as written:
        with progress.step("reading"):
            pass
        assert written() == ""


@pytest.mark.parametrize("term", ["dumb", "none"])
def test_without_a_terminal_it_is_a_plain_line(term: str, monkeypatch: pytest.MonkeyPatch) -> None:
    event = drawn(monkeypatch)
    with terminal(monkeypatch) as written:
        monkeypatch.setenv("TERM", term)
        monkeypatch.setattr(progress, "_is_terminal", progress._is_terminal if term == "dumb" else lambda: False)
        with progress.step("reading"):
            assert event.wait(10)
        assert written() == "reading ...\r\n"
