"""Sends the reports of a generation's processes to the master, as lines in a pipe.

loaded 2        the settings are accepted, and the generation has two workers
failed "..."    the settings are refused; the reason is a JSON string
begun 4711      the worker with this pid has started
ready 4711      it answers requests
alive 4711      its event loop runs
ended 4711      it has ended
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress

HEARTBEAT_SECONDS = 1.0
"""How often a worker reports that it is alive."""


class Reports:
    """The pipe of one generation. The master keeps the read end, the children keep the write end."""

    def __init__(self) -> None:
        self.read, self._write = os.pipe()
        os.set_blocking(self.read, False)
        # A master that does not read must not block a worker.
        os.set_blocking(self._write, False)
        self._rest = b""

    def loaded(self, workers: int) -> None:
        """Report that the settings are accepted."""
        self._send(f"loaded {workers}")

    def failed(self, reason: str) -> None:
        """Report that the settings are refused."""
        self._send(f"failed {json.dumps(reason[:MAX_REASON_CHARACTERS])}")

    def begun(self) -> None:
        """Report that this worker has started."""
        self._send(f"begun {os.getpid()}")

    def ready(self) -> None:
        """Report that this worker answers requests."""
        self._send(f"ready {os.getpid()}")

    def alive(self) -> None:
        """Report that the event loop of this worker runs."""
        self._send(f"alive {os.getpid()}")

    def ended(self, pid: int) -> None:
        """Report that a worker has ended."""
        self._send(f"ended {pid}")

    def _send(self, line: str) -> None:
        with suppress(BlockingIOError, BrokenPipeError):
            os.write(self._write, f"{line}\n".encode())

    def lines(self) -> Iterator[tuple[str, str]]:
        """Return the lines that have arrived: the first word, and the rest."""
        with suppress(BlockingIOError):
            while piece := os.read(self.read, 65536):
                self._rest += piece
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            word, _, text = line.decode().partition(" ")
            yield word, text

    def as_reader(self) -> None:
        """Keep only the read end, in the master: the pipe reaches EOF when the last child ends."""
        os.close(self._write)

    def as_writer(self) -> None:
        """Keep only the write end, in a child."""
        os.close(self.read)

    def close(self) -> None:
        """Close the read end, in the master."""
        os.close(self.read)


MAX_REASON_CHARACTERS = 5_000
"""The limit for a reason. JSON uses up to 12 bytes for a character, and an empty pipe takes 65,536 bytes at once, so no
line is split."""
