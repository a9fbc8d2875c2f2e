"""Output that never blocks, over pipes of the test."""

from __future__ import annotations

import fcntl
import os
import select
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator

import msgspec
import pytest

from server.observing import output
from server.observing.output import MAX_CHARACTERS, Output
from tests.waiting import wait_until

PIPE_BYTES = 4096


class Pipe(msgspec.Struct):
    output: Output
    descriptor: int

    def read(self) -> str:
        """Return the output so far."""
        found = b""
        while select.select([self.descriptor], [], [], 0)[0] and (piece := os.read(self.descriptor, 1 << 20)):
            found += piece
        return found.decode()

    def until(self, *ends: str) -> str:
        """Return the output until all of these were in it."""
        found = ""

        def arrived() -> str:
            nonlocal found
            found += self.read()
            return found

        wait_until(arrived, lambda text: all(end in text for end in ends))
        return found


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    reading, writing = os.pipe()
    fcntl.fcntl(reading, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    made = Pipe(Output(writing), reading)
    yield made
    # A thread that still writes gets an error, and then ends.
    os.close(reading)
    made.output.finish()


def test_lines_keep_their_order(pipe: Pipe) -> None:
    """Lines of print are complete, although print writes the line break separately."""
    for number in range(100):
        print("line", number, file=pipe.output)
    pipe.output.write("two\nlines\n")
    pipe.output.finish()
    assert pipe.read() == "".join(f"line {number}\n" for number in range(100)) + "two\nlines\n"


def test_an_incomplete_line_is_written_at_the_end(pipe: Pipe) -> None:
    pipe.output.write("half")
    pipe.output.finish()
    assert pipe.read() == "half"


def test_surrogates_are_escaped(pipe: Pipe) -> None:
    pipe.output.write("\udc80é\n")
    pipe.output.finish()
    assert pipe.read() == "\\udc80é\n"


def test_lines_are_dropped_when_nobody_reads(pipe: Pipe) -> None:
    """They are kept up to a limit, and one line reports the gap in its place."""
    line = "x" * 999 + "\n"
    begin = time.monotonic()
    for _ in range(3 * MAX_CHARACTERS // len(line)):
        pipe.output.write(line)
    assert time.monotonic() - begin < 10
    dropped = pipe.output.dropped
    assert dropped >= MAX_CHARACTERS // len(line)
    came = pipe.until("because nobody read them\n")
    pipe.output.write("next\n")
    came += pipe.until("next\n")
    *whole, told, last = came.splitlines(keepends=True)
    assert set(whole) == {line}
    assert len(whole) == 3 * MAX_CHARACTERS // len(line) - dropped
    assert (told, last) == (f"{dropped} lines were dropped because nobody read them\n", "next\n")


def test_finish_does_not_wait_for_a_stalled_reader(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "STALLED_SECONDS", 0.0)
    monkeypatch.setattr(output, "FLUSH_SECONDS", 60.0)
    pipe.output.write("x" * 10 * PIPE_BYTES + "\n")
    wait_until(lambda: len(pipe.read()) > 0)
    begin = time.monotonic()
    pipe.output.finish()
    assert time.monotonic() - begin < 30.0


def test_a_closed_pipe(pipe: Pipe) -> None:
    """The lines count as dropped, and nothing else happens."""
    other, writing = os.pipe()
    os.close(other)
    gone = Output(writing)
    gone.write("one\ntwo\n")
    gone.finish()
    assert gone.dropped == 2
    os.close(writing)


def test_a_child_writes_its_own_lines(pipe: Pipe) -> None:
    """It writes none of its parent, because the thread of the parent does not exist in the child."""
    pipe.output.write("x" * 10 * PIPE_BYTES + "\n")
    wait_until(lambda: select.select([pipe.descriptor], [], [], 0)[0])
    pipe.output.write("parent\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        try:
            pipe.output.reset_after_fork()
            pipe.output.write("child\n")
            pipe.output.finish()
        finally:
            os._exit(0)
    # Either line may come first. That of the child may come within the long one, which is written in pieces.
    came = pipe.until("parent\n", "child\n")
    os.waitpid(pid, 0)
    came += pipe.read()
    assert sorted(filter(None, (line.strip("x") for line in came.splitlines()))) == ["child", "parent"]


PROGRAM = """
import sys, threading, warnings
from server.observing import output
output.replace_standard_streams()
print("printed", end="")
print("told", file=sys.stderr)
warnings.warn("warned")
threading.Thread(target=lambda: 1 / 0).start()
raise ValueError("raised")
"""


def test_a_program_writes_everything_before_its_end() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "printed")
    found = [
        word for word in ("told\n", "warned\n", "ZeroDivisionError", "ValueError: raised\n") if word in done.stderr
    ]
    assert found == ["told\n", "warned\n", "ZeroDivisionError", "ValueError: raised\n"]
