"""What the start says to a person. No database, no socket."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest

from server.start import say


class _Writes(io.RawIOBase):
    """Each write that reaches the terminal."""

    def __init__(self) -> None:
        self.found: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, piece: Any) -> int:
        self.found.append(bytes(piece))
        return len(self.found[-1])


@pytest.mark.parametrize("is_unbuffered", [False, True])
def test_a_line_is_one_write(is_unbuffered: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes share the terminal: the end of a line that came by itself would stand behind another's. Unbuffered as
    PYTHONUNBUFFERED makes it, which container images set."""
    writes = _Writes()
    output = writes if is_unbuffered else io.BufferedWriter(writes)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(output, write_through=is_unbuffered))  # type: ignore[type-var]
    say("ready")
    assert writes.found == [b"ready\n"]
