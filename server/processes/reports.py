"""What the processes of a generation tell the master. What comes in: facts of one process. What goes out: lines in a
pipe, which the master reads as words and a text.

    loaded 2        the settings are taken, and there are to be two workers
    failed "..."    they cannot be taken, with the reason as a JSON text
    begun 4711      the worker with this pid is there
    ready 4711      it answers
    alive 4711      its event loop turns
    ended 4711      it is gone
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress

BEAT_SECONDS = 1.0
"""How often a worker says that it is alive."""


class Reports:
    """The pipe of one generation. The master keeps the end to read, its children the one to write."""

    def __init__(self) -> None:
        self.read, self._write = os.pipe()
        os.set_blocking(self.read, False)
        # A master that does not read must not keep a worker from answering.
        os.set_blocking(self._write, False)
        self._rest = b""

    def loaded(self, workers: int) -> None:
        self._tell(f"loaded {workers}")

    def failed(self, reason: str) -> None:
        self._tell(f"failed {json.dumps(reason[:MOST_CHARACTERS])}")

    def begun(self) -> None:
        self._tell(f"begun {os.getpid()}")

    def ready(self) -> None:
        self._tell(f"ready {os.getpid()}")

    def alive(self) -> None:
        self._tell(f"alive {os.getpid()}")

    def ended(self, pid: int) -> None:
        self._tell(f"ended {pid}")

    def _tell(self, line: str) -> None:
        with suppress(BlockingIOError, BrokenPipeError):
            os.write(self._write, f"{line}\n".encode())

    def lines(self) -> Iterator[tuple[str, str]]:
        """Those that have come: the word, and what follows it."""
        with suppress(BlockingIOError):
            while piece := os.read(self.read, 65536):
                self._rest += piece
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            word, _, text = line.decode().partition(" ")
            yield word, text

    def be_reader(self) -> None:
        """In the master: the pipe ends with the last child."""
        os.close(self._write)

    def be_writer(self) -> None:
        """In a child."""
        os.close(self.read)

    def close(self) -> None:
        """In the master."""
        os.close(self.read)


MOST_CHARACTERS = 5_000
"""Of a reason. JSON makes up to 12 bytes of one, and an empty pipe takes 65,536 at once: half a line is never read."""
