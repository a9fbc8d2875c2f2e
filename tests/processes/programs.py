"""Runs a program in a process of its own and reads the lines that it writes.

Forking and signals concern the whole process, so such tests cannot run in the test process. A test waits for a line, or
for the end of the output, which comes when all processes of the program have ended: each of them holds it open.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

DEADLINE_SECONDS = 60.0


class Program:
    """A running program and the lines it wrote. workers: the index and pid of each that started. port: where they
    answer."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        self.process = process
        self.output = process.stdout.fileno()
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.output, selectors.EVENT_READ)
        self.buffer = b""
        self.lines: list[str] = []
        self.workers: list[tuple[int, int]] = []
        self.port = 0

    def line(self, pattern: str) -> re.Match[str]:
        """Return the next line that matches; others are skipped. Fails at the end of the output, or after the
        deadline."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            while b"\n" not in self.buffer:
                assert self.read(deadline), f"the output ended before {pattern!r}: {self.lines}"
            first, _, self.buffer = self.buffer.partition(b"\n")
            self.lines.append(first.decode())
            if (match := re.fullmatch(pattern, self.lines[-1])) is not None:
                return match

    def read(self, deadline: float) -> bool:
        """Read more of the output. False at its end."""
        assert self.selector.select(max(0.0, deadline - time.monotonic())), f"nothing after {self.lines}"
        piece = os.read(self.output, 65536)
        self.buffer += piece
        return bool(piece)

    def end(self) -> list[str]:
        """Return all lines, after the last process has ended."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while self.read(deadline):
            pass
        self.process.wait(DEADLINE_SECONDS)
        self.lines += self.buffer.decode().splitlines()
        return self.lines

    def worker(self) -> tuple[int, int]:
        """Return the index and pid of the next worker that is up."""
        match = self.line(r"worker (\d+) (\d+)")
        self.workers.append((int(match[1]), int(match[2])))
        return self.workers[-1]

    def ask(self) -> int:
        """Return the pid of the worker that answers a new connection."""
        with socket.create_connection(("127.0.0.1", self.port), DEADLINE_SECONDS) as connection:
            return int(connection.makefile("rb").read())


@contextmanager
def started(text: str) -> Iterator[Program]:
    process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, start_new_session=True)
    try:
        with process:
            running = Program(process)
            try:
                yield running
            finally:
                running.selector.close()
                for pid in (process.pid, *(pid for _, pid in running.workers)):
                    kill_own(pid, process.pid)
    finally:
        process.wait(DEADLINE_SECONDS)


def kill_own(pid: int, session: int) -> None:
    """Kill a process that the test left, but not another process that got its pid later."""
    try:
        if os.getsid(pid) == session:
            os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
