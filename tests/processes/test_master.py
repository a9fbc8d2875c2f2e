"""The master as a real process, with fake generations and without a database: which generation starts, stays and gets
signals. tests/http/running/test_life.py tests real generations."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import indent
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from server.observing.shared_counters import SharedCounters
from server.processes import generation as generations
from server.processes import master as masters
from server.processes import stop_times
from server.processes.generation import Inherited
from server.processes.generation_handle import GenerationHandle
from server.processes.listening import Listening, listen
from server.processes.master import _Master
from server.processes.reports import MAX_REASON_CHARACTERS
from server.settings import Settings, StartError
from tests.processes.programs import Program, started

PROGRAM = """
import logging, os, signal, sys
from server.observing.shared_counters import SharedCounters
from server.processes import master, workers
from server.processes.forks import exit_with_parent
from server.processes.generation import Inherited
from server.processes.listening import Listening
from server.settings import Settings, SettingsError, StartError

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

class Here(Listening):
    address = "http://here"

def stay(parent_pipe):
    exit_with_parent(parent_pipe, 5.0)
    while True:
        signal.pause()

def answer(reports, parent_pipe):
    "As a generation with one worker, which needs no further process."
    reports.loaded(1)
    reports.ready()
    stay(parent_pipe)

def answer_by(number, count, most, reports, parent_pipe, work):
    def be(_, index):
        work(index)
        signal.pause()
    def on_exit(index, pid):
        say("gone", number, index)
        reports.ended(pid)
    reports.loaded(most)
    workers.run([], count, be, stop_seconds=5.0, parent_pipe=parent_pipe, on_exit=on_exit, max_count=most)

def run_generation(inherited, settings, count, context, parent_pipe):
    number, reports = context.generation, context.reports
    say("generation", number, os.getpid())
{generation}

def read_settings():
{settings}

logging.basicConfig(stream=sys.stdout, format="log %(message)s")
master.run_generation = run_generation
master.CHECK_SECONDS = master.RESTART_SECONDS = 0.05
{before}
say("worker 0", os.getpid())
one = master._Master(Inherited(Here([], []), SharedCounters(), None, read_settings()), read_settings, None)
try:
    one.run()
    say("returned")
except StartError as error:
    say("error", error)
finally:
    one.stop()
"""

ANSWER = "answer(reports, parent_pipe)"
READY = "waterspout is ready on http://here with its docs on http://here/-/docs"
READ_AGAIN = ": settings, declarations and tables were read again"
REFUSED = "log the new settings are refused and the old ones stay in effect"

FORKS = """
fork, forks = os.fork, 0
def seldom():
    global forks
    forks += 1
    if forks in {0}:
        raise BlockingIOError(11, "Resource temporarily unavailable")
    return fork()
os.fork = seldom
"""


@contextmanager
def program(
    generation: str, before: str = "", settings: str = "return Settings()"
) -> Iterator[tuple[Program, Callable[[signal.Signals], None]]]:
    """Yield a running master, and a function that sends it a signal."""
    text = PROGRAM.format(generation=indent(generation, "    "), before=before, settings=indent(settings, "    "))
    with started(text) as running:
        _, pid = running.worker()
        yield running, lambda number: os.kill(pid, number)


def generation(running: Program) -> tuple[int, int]:
    """Return the number and the pid of the next generation."""
    match = running.line(r"generation (\d+) (\d+)")
    return int(match[1]), int(match[2])


# a fork that fails


def test_a_reload_whose_fork_fails() -> None:
    """The current generation goes on answering, and a later reload succeeds."""
    with program(ANSWER, FORKS.format((2, 3))) as (running, send):
        _, first = generation(running)
        running.line(READY)
        for _ in range(2):
            send(signal.SIGHUP)
            running.line(f"{REFUSED}: cannot start a process: Resource temporarily unavailable")
        assert os.getsid(first) == running.process.pid
        send(signal.SIGHUP)
        number, _ = generation(running)
        running.line(f"log generation {number} answers{READ_AGAIN}")
        send(signal.SIGTERM)
        assert running.end()[-1] == "returned"


def test_a_restart_whose_fork_fails_is_retried() -> None:
    with program(ANSWER, FORKS.format((2, 3))) as (running, send):
        _, first = generation(running)
        running.line(READY)
        os.kill(first, signal.SIGKILL)
        for _ in range(2):
            running.line("log the workers cannot be started: cannot start a process: Resource temporarily unavailable")
        number, _ = generation(running)
        running.line(f"log generation {number} answers{READ_AGAIN}")
        send(signal.SIGTERM)
        assert running.end()[-1] == "returned"


def test_a_first_start_whose_fork_fails() -> None:
    with program(ANSWER, FORKS.format((1,))) as (running, _):
        assert running.end()[-1] == "error cannot start a process: Resource temporarily unavailable"


# a reload that fails

HALFWAY = """
def work(index):
    if (number, index) == (2, 2) or number == 3:
        signal.pause()
    say("answers", number, index)
    reports.ready()

answer_by(number, count, 3, reports, parent_pipe, work)
"""


def count(running: Program, word: str) -> int:
    """Return how many workers of the first generation have written this word."""
    return sum(line.startswith(f"{word} 1 ") for line in running.lines)


def await_answers(running: Program, number: int) -> None:
    """Wait until so many workers of the first generation have answered."""
    while count(running, "answers") < number:
        running.line("answers 1 .")


def await_start(running: Program) -> None:
    """Wait until the first generation is the current one and its three workers have answered. A worker answers before
    the master knows it, and a reload before that stops the first generation."""
    running.line(READY)
    await_answers(running, 3)


def end_halfway(fail: Callable[[int, Callable[[signal.Signals], None]], None]) -> list[str]:
    """Let the second generation fail when two of its three workers have replaced workers of the first generation, and
    wait until the first generation has three workers again. Returns all lines."""
    with program(HALFWAY, settings="return Settings(workers=3)") as (running, send):
        await_start(running)
        send(signal.SIGHUP)
        _, pid = generation(running)
        running.line("answers 2 1")
        while not count(running, "gone"):
            running.line("gone 1 .")
        fail(pid, send)
        while count(running, "answers") - count(running, "gone") < 3:
            running.line("(answers|gone) 1 .")
        send(signal.SIGTERM)
        return running.end()


def test_a_reload_that_fails_halfway_restores_the_workers() -> None:
    lines = end_halfway(lambda pid, _: os.kill(pid, signal.SIGKILL))
    told = f"{REFUSED}: generation 2 ended with signal 9 (Killed)"
    assert {told, "returned"} <= set(lines)


def test_a_reload_that_is_superseded_restores_the_workers() -> None:
    assert "returned" in end_halfway(lambda _, send: send(signal.SIGHUP))


RELAPSE = """
def work(index):
    if number == 2 and index:
        signal.pause()
    say("answers", number, index)
    reports.ready()
    if number == 2:
        os._exit(1)

answer_by(number, count, 3, reports, parent_pipe, work)
"""


def test_a_worker_that_keeps_restarting_replaces_one_worker() -> None:
    """The other workers go on answering until the new generation has failed."""
    with program(RELAPSE, settings="return Settings(workers=3)") as (running, send):
        await_start(running)
        send(signal.SIGHUP)
        running.line(f"{REFUSED}: generation 2 ended with exit code 1")
        await_answers(running, 4)
        assert count(running, "gone") == 1
        send(signal.SIGTERM)
        assert "returned" in running.end()


ORPHANED = """
def work(index):
    say("answers", number, index)
    reports.ready()

if number == 2:
    os.kill(one.current.pid, signal.SIGKILL)
answer_by(number, count, 3, reports, parent_pipe, work)
"""


def test_a_generation_without_a_predecessor_starts_all_workers() -> None:
    with program(ORPHANED, settings="return Settings(workers=3)") as (running, send):
        await_start(running)
        send(signal.SIGHUP)
        found = {running.line("answers 2 (.)")[1] for _ in range(3)}
        assert found == {"0", "1", "2"}
        send(signal.SIGTERM)
        assert "returned" in running.end()


# a reload before any generation answers

STALL_FIRST = """
if number == 1:
    stay(parent_pipe)
answer(reports, parent_pipe)
"""


def test_a_reload_during_the_start() -> None:
    """The start is complete when any generation answers."""
    with program(STALL_FIRST) as (running, send):
        assert generation(running)[0] == 1
        send(signal.SIGHUP)
        running.line(READY)
        send(signal.SIGHUP)
        running.line(f"log generation 3 answers{READ_AGAIN}")
        send(signal.SIGTERM)
        lines = running.end()
        assert (lines.count(READY), lines[-1]) == (1, "returned")


PREDECESSOR = """
signal.signal(signal.SIGTERM, lambda *_: (say("told"), os._exit(0)))
if os.fork():
    while True:
        signal.pause()
os.environ["WATERSPOUT_PREDECESSOR"] = str(os.getppid())
"""


def test_a_reload_during_a_handover() -> None:
    """The predecessor is stopped nevertheless."""
    with program(STALL_FIRST, PREDECESSOR) as (running, send):
        generation(running)
        send(signal.SIGHUP)
        running.line("told")
        send(signal.SIGTERM)
        assert running.end()[-1] == "returned"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ("return Settings()", "no table"),
        (
            "if 'one' in globals(): raise SettingsError(('page_size: no number',))\nreturn Settings()",
            "page_size: no number",
        ),
    ],
)
def test_a_reload_during_a_start_that_fails(settings: str, reason: str) -> None:
    """The start is not retried for ever."""
    with program("if number == 1:\n    stay(parent_pipe)\nreports.failed('no table')", "", settings) as (running, send):
        generation(running)
        send(signal.SIGHUP)
        assert running.end()[-1] == f"error {reason}"


# workers that hang

HANG = """
reports.loaded(1)
reports.ready()
say("hangs")
stay(parent_pipe)
"""


def test_a_hung_worker_is_killed_after_the_timeout_of_its_own_settings() -> None:
    settings = "return Settings(worker_timeout_seconds=0.1 if 'one' in globals() else 3600.0)"
    with program(HANG, settings=settings) as (running, send):
        generation(running)
        running.line(READY)
        send(signal.SIGHUP)
        number, pid = generation(running)
        running.line(f"log worker with pid {pid} has not reported for 0.1 s and is killed")
        assert number == 2


HANG_AT_THE_START = """
def work(index):
    reports.begun()
    if index == 0:
        reports.ready()
    say("begun", index, os.getpid())

answer_by(number, count, 2, reports, parent_pipe, work)
"""


def test_a_worker_that_hangs_before_it_is_ready_is_killed() -> None:
    with program(HANG_AT_THE_START, settings="return Settings(workers=2, worker_timeout_seconds=0.1)") as (running, _):
        generation(running)
        pid = running.line(r"begun 1 (\d+)")[1]
        running.line(f"log worker with pid {pid} has not reported for 0.1 s and is killed")


# a handover that fails


def test_a_successor_that_ends_at_once() -> None:
    """The old program goes on, and another handover may be tried."""
    ends = "if 'WATERSPOUT_PREDECESSOR' in os.environ: os._exit(3)"
    with program(ANSWER, ends) as (running, send):
        _, first = generation(running)
        running.line(READY)
        for _ in range(2):
            send(signal.SIGUSR2)
            running.line("log the new program ended: exit code 3")
        assert os.getsid(first) == running.process.pid
        send(signal.SIGTERM)
        assert running.end()[-1] == "returned"


# without processes


@pytest.fixture
def master() -> Iterator[_Master]:
    """Yield a master that has not started anything."""
    listening = listen(Settings(port=0))
    made = _Master(Inherited(listening, SharedCounters(), None, Settings()), Settings, None)
    yield made
    made.signals.close()
    made.parent_pipe.close()
    listening.close()


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Return the signals that would have been sent, with their pids."""
    sent: list[tuple[int, int]] = []
    kill = SimpleNamespace(kill=lambda pid, number: sent.append((pid, number)))
    monkeypatch.setattr(masters, "os", kill)
    return sent


@contextmanager
def child(statement: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", statement])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def living() -> Iterator[int]:
    with child("import signal; signal.pause()") as process:
        yield process.pid


@pytest.fixture
def dead() -> Iterator[int]:
    """Yield the pid of a zombie."""
    with child("") as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        yield process.pid


def test_a_failed_fork_leaves_no_generation(
    master: _Master, killed: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no pid that signals would go to, and no open pipe."""

    def refuse() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("server.processes.forks.os.fork", refuse)
    master.has_answered = True
    before = os.listdir("/dev/fd")
    for _ in range(2):
        master._reload()
    assert (master.starting, master._all(), killed) == (None, [], [])
    assert os.listdir("/dev/fd") == before


@contextmanager
def generation_handle(number: int, pid: int) -> Iterator[GenerationHandle]:
    """Yield a generation whose reports the test writes."""
    made = GenerationHandle(number, 30.0)
    made.pid = pid
    yield made
    made.reports.as_reader()


def test_reports_of_an_ended_generation_replace_no_worker(
    master: _Master, killed: list[tuple[int, int]], living: int, dead: int
) -> None:
    """No signal is sent to its pid, which another process may have by now."""
    master.has_answered = True
    with generation_handle(1, living) as current, generation_handle(2, dead) as starting:
        master.current, master.starting = current, starting
        starting.reports.loaded(2)
        starting.reports.ready()
        master._reap()
        assert (master.current, master.starting, killed) == (current, None, [])
        current.reports.close()


def test_the_failure_of_an_ended_generation_is_read(master: _Master, dead: int) -> None:
    with generation_handle(1, dead) as master.starting:
        master.starting.reports.failed("no table")
        with pytest.raises(StartError, match="no table"):
            master._reap()


def test_systemd_is_not_told_ready_before_a_generation_answers(
    master: _Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even if the predecessor has ended."""
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(masters.systemd, "notify", lambda **fields: told.append(fields))
    master.predecessor = os.getpid()
    master._check_health()
    assert [fields for fields in told if "READY" in fields] == []
    assert master.predecessor is None


def test_a_changed_setting_that_needs_a_restart_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """No other changed setting is logged."""
    before = Settings(database_url="postgresql://a/b", data_dir=Path("a"))
    other = {"host": "::1", "port": 1, "unix_socket": Path("b"), "admin_host": "::1", "admin_port": 2}
    other |= {"data_dir": Path("b"), "workers": 3, "migrations": Path("b"), "drain_seconds": 3.0}
    changed = msgspec.structs.replace(before, **other)
    inherited = Inherited(Listening([], []), SharedCounters(), None, before)
    assert generations._database_url(inherited, changed) == "postgresql://a/b"
    names = ("host", "port", "unix_socket", "admin_host", "admin_port", "data_dir")
    assert [record.getMessage() for record in caplog.records] == [
        f"the change of {name} needs a restart: the old value stays in effect" for name in names
    ]


def test_the_times_of_a_stop_add_up() -> None:
    """The docstring has the right values, and each process waits longer than its children."""
    table = re.findall(r"^ +([0-9.]+)  ([A-Z_]+)", stop_times.__doc__ or "", re.MULTILINE)
    said = {name: float(seconds) for seconds, name in table}
    assert said == {name: pytest.approx(getattr(stop_times, name)) for name in said}
    parts = [seconds for name, seconds in said.items() if name not in ("WORKER_SECONDS", "GENERATION_SECONDS")]
    assert len(parts) == 5
    assert sum(parts) + 2 <= said["WORKER_SECONDS"] < said["GENERATION_SECONDS"]


@pytest.mark.parametrize("letter", ["x", "ж", "\U0001f300"])
def test_a_reason_of_any_length_is_reported(letter: str) -> None:
    """It is one line, which a pipe takes at once."""
    one = GenerationHandle(1, 30.0)
    one.reports.failed(letter * 100_000)
    assert list(one.read_reports()) == []
    assert one.failure == letter * MAX_REASON_CHARACTERS
    one.reports.as_reader()
    one.reports.close()
