"""The master as a real process, with generations that do what a test wants of them: who is begun, who goes on, who is
told. Without a database; the whole of it is in tests/http/test_life.py."""

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

from server.observing.board import Board
from server.processes import generation as generations
from server.processes import master as masters
from server.processes import stop_times
from server.processes.generation import Inherited
from server.processes.listening import Listening, listen
from server.processes.master import _Master
from server.processes.offspring import Offspring
from server.processes.reports import MOST_CHARACTERS
from server.settings import Settings, StartError
from tests.unit.programs import Program, started

PROGRAM = """
import logging, os, signal, sys
from server.observing.board import Board
from server.processes import master, workers
from server.processes.forks import outlive_no_parent
from server.processes.generation import Inherited
from server.processes.listening import Listening
from server.settings import Settings, SettingsError, StartError

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

class Here(Listening):
    address = "http://here"

def stay(life):
    outlive_no_parent(life, 5.0)
    while True:
        signal.pause()

def answer(reports, life):
    "As one worker, which is the generation."
    reports.loaded(1)
    reports.ready()
    stay(life)

def answer_by(number, count, most, reports, life, work):
    def be(_, index):
        work(index)
        signal.pause()
    def ended(index, pid):
        say("gone", number, index)
        reports.ended(pid)
    reports.loaded(most)
    workers.run([], count, be, stop_seconds=5.0, life=life, ended=ended, whole=most)

def run_generation(inherited, settings, count, post, life):
    number, reports = post.generation, post.reports
    say("generation", number, os.getpid())
{generation}

def read_settings():
{settings}

logging.basicConfig(stream=sys.stdout, format="log %(message)s")
master.run_generation = run_generation
master.LOOK_SECONDS = master.AGAIN_SECONDS = 0.05
{before}
say("worker 0", os.getpid())
one = master._Master(Inherited(Here([], []), Board(), None, read_settings()), read_settings, None)
try:
    one.run()
    say("returned")
except StartError as error:
    say("error", error)
finally:
    one.stop()
"""

ANSWER = "answer(reports, life)"
READY = "waterspout is ready on http://here"

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
    """A master, and what sends it a signal."""
    text = PROGRAM.format(generation=indent(generation, "    "), before=before, settings=indent(settings, "    "))
    with started(text) as running:
        _, pid = running.worker()
        yield running, lambda number: os.kill(pid, number)


def generation(running: Program) -> tuple[int, int]:
    """Number and pid of the next one."""
    match = running.line(r"generation (\d+) (\d+)")
    return int(match[1]), int(match[2])


# a fork that fails


def test_a_reload_without_a_process() -> None:
    """The one that answers goes on, whatever comes next, and the next reload that can be is."""
    with program(ANSWER, FORKS.format((2, 3))) as (running, send):
        _, first = generation(running)
        running.line(READY)
        for _ in range(2):
            send(signal.SIGHUP)
            running.line(
                "log the new settings are not taken, the old ones stay: no process: Resource temporarily unavailable"
            )
        assert os.getsid(first) == running.process.pid
        send(signal.SIGHUP)
        number, _ = generation(running)
        running.line(f"log generation {number} answers")
        send(signal.SIGTERM)
        assert running.end()[-1] == "returned"


def test_those_that_answered_are_gone_and_there_is_no_process() -> None:
    with program(ANSWER, FORKS.format((2, 3))) as (running, send):
        _, first = generation(running)
        running.line(READY)
        os.kill(first, signal.SIGKILL)
        for _ in range(2):
            running.line("log the workers cannot be started: no process: Resource temporarily unavailable")
        number, _ = generation(running)
        running.line(f"log generation {number} answers")
        send(signal.SIGTERM)
        assert running.end()[-1] == "returned"


def test_the_first_start_without_a_process() -> None:
    with program(ANSWER, FORKS.format((1,))) as (running, _):
        assert running.end()[-1] == "error no process: Resource temporarily unavailable"


# a reload that comes to nothing

HALFWAY = """
def work(index):
    if (number, index) == (2, 2) or number == 3:
        signal.pause()
    say("answers", number, index)
    reports.ready()

answer_by(number, count, 3, reports, life, work)
"""


def count(running: Program, word: str) -> int:
    """How many of the first generation have said so."""
    return sum(line.startswith(f"{word} 1 ") for line in running.lines)


def await_answers(running: Program, number: int) -> None:
    """Until so many workers of the first generation have answered."""
    while count(running, "answers") < number:
        running.line("answers 1 .")


def end_halfway(fail: Callable[[int, Callable[[signal.Signals], None]], None]) -> list[str]:
    """Of the second generation's three workers two answer, and others have gone for them, when it fails: there are as
    many again of the first one. Gives all lines."""
    with program(HALFWAY, settings="return Settings(workers=3)") as (running, send):
        await_answers(running, 3)
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


def test_a_reload_that_fails_halfway_gives_the_workers_back() -> None:
    lines = end_halfway(lambda pid, _: os.kill(pid, signal.SIGKILL))
    told = "log the new settings are not taken, the old ones stay: generation 2 ended with signal 9 (Killed)"
    assert {told, "returned"} <= set(lines)


def test_a_reload_that_is_overtaken_gives_the_workers_back() -> None:
    assert "returned" in end_halfway(lambda _, send: send(signal.SIGHUP))


RELAPSE = """
def work(index):
    if number == 2 and index:
        signal.pause()
    say("answers", number, index)
    reports.ready()
    if number == 2:
        os._exit(1)

answer_by(number, count, 3, reports, life, work)
"""


def test_a_worker_that_comes_again_and_again_takes_one_place() -> None:
    """The others go on answering until it is known that the new ones cannot be."""
    with program(RELAPSE, settings="return Settings(workers=3)") as (running, send):
        await_answers(running, 3)
        send(signal.SIGHUP)
        running.line("log the new settings are not taken, the old ones stay: generation 2 ended with exit code 1")
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
answer_by(number, count, 3, reports, life, work)
"""


def test_those_that_come_when_the_others_are_gone_are_as_many_as_there_are_to_be() -> None:
    with program(ORPHANED, settings="return Settings(workers=3)") as (running, send):
        await_answers(running, 3)
        send(signal.SIGHUP)
        found = {running.line("answers 2 (.)")[1] for _ in range(3)}
        assert found == {"0", "1", "2"}
        send(signal.SIGTERM)
        assert "returned" in running.end()


# a reload before anybody answers

STALL_FIRST = """
if number == 1:
    stay(life)
answer(reports, life)
"""


def test_a_reload_during_the_start() -> None:
    """Whoever answers first is who the start waited for."""
    with program(STALL_FIRST) as (running, send):
        assert generation(running)[0] == 1
        send(signal.SIGHUP)
        running.line(READY)
        send(signal.SIGHUP)
        running.line("log generation 3 answers")
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


def test_a_reload_during_a_takeover() -> None:
    """The one before is told to go nevertheless."""
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
def test_a_reload_during_a_start_that_cannot_be(settings: str, reason: str) -> None:
    """It is not tried for ever."""
    with program("if number == 1:\n    stay(life)\nreports.failed('no table')", "", settings) as (running, send):
        generation(running)
        send(signal.SIGHUP)
        assert running.end()[-1] == f"error {reason}"


# who hangs, and who is late

HANG = """
reports.loaded(1)
reports.ready()
say("hangs")
stay(life)
"""


def test_how_long_a_worker_may_hang_is_its_own_settings_affair() -> None:
    settings = "return Settings(worker_timeout_seconds=0.1 if 'one' in globals() else 3600.0)"
    with program(HANG, settings=settings) as (running, send):
        generation(running)
        running.line(READY)
        send(signal.SIGHUP)
        number, pid = generation(running)
        running.line(f"log worker with pid {pid} has not been heard of for 0.1 s and is killed")
        assert number == 2


HANG_AT_THE_START = """
def work(index):
    reports.begun()
    if index == 0:
        reports.ready()
    say("begun", index, os.getpid())

answer_by(number, count, 2, reports, life, work)
"""


def test_who_hangs_before_it_is_ready_is_killed() -> None:
    with program(HANG_AT_THE_START, settings="return Settings(workers=2, worker_timeout_seconds=0.1)") as (running, _):
        generation(running)
        pid = running.line(r"begun 1 (\d+)")[1]
        running.line(f"log worker with pid {pid} has not been heard of for 0.1 s and is killed")


# a program that does not come to take over


def test_a_successor_that_ends_at_once() -> None:
    """The one before goes on, and the next one may try."""
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
    """One that has not begun."""
    listening = listen(Settings(port=0))
    made = _Master(Inherited(listening, Board(), None, Settings()), Settings, None)
    yield made
    made.signals.close()
    made.life.close()
    listening.close()


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Who would have been sent which signal."""
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
    """Nobody has waited for it."""
    with child("") as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        yield process.pid


def test_who_was_not_forked_is_nobody(
    master: _Master, killed: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No pid, to which signals would go, and no pipe."""

    def refuse() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("server.processes.forks.os.fork", refuse)
    master.has_answered = True
    before = os.listdir("/dev/fd")
    for _ in range(2):
        master._reload()
    assert (master.coming, master._all(), killed) == (None, [], [])
    assert os.listdir("/dev/fd") == before


@contextmanager
def offspring(number: int, pid: int) -> Iterator[Offspring]:
    """Of which the test says what it reports."""
    made = Offspring(number, 30.0)
    made.pid = pid
    yield made
    made.reports.be_reader()


def test_what_the_dead_have_said(master: _Master, killed: list[tuple[int, int]], living: int, dead: int) -> None:
    """Whoever was ready takes nobody's place, and is sent nothing: its pid may be another's by now."""
    master.has_answered = True
    with offspring(1, living) as current, offspring(2, dead) as coming:
        master.current, master.coming = current, coming
        coming.reports.loaded(2)
        coming.reports.ready()
        master._reap()
        assert (master.current, master.coming, killed) == (current, None, [])
        current.reports.close()


def test_the_last_word_of_the_dead(master: _Master, dead: int) -> None:
    with offspring(1, dead) as master.coming:
        master.coming.reports.failed("no table")
        with pytest.raises(StartError, match="no table"):
            master._reap()


def test_systemd_hears_of_nobody_who_does_not_answer(master: _Master, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one before has ended too early."""
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(masters.systemd, "notify", lambda **fields: told.append(fields))
    master.predecessor = os.getpid()
    master._watch()
    assert [fields for fields in told if "READY" in fields] == []
    assert master.predecessor is None


def test_what_takes_a_restart_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """And nothing else is."""
    before = Settings(database_url="postgresql://a/b", data_dir=Path("a"))
    other = {"host": "::1", "port": 1, "unix_socket": Path("b"), "admin_host": "::1", "admin_port": 2}
    other |= {"data_dir": Path("b"), "workers": 3, "migrations": Path("b"), "drain_seconds": 3.0}
    changed = msgspec.structs.replace(before, **other)
    inherited = Inherited(Listening([], []), Board(), None, before)
    assert generations._database_url(inherited, changed) == "postgresql://a/b"
    names = ("host", "port", "unix_socket", "admin_host", "admin_port", "data_dir")
    assert [record.getMessage() for record in caplog.records] == [
        f"{name} has changed, which takes a restart: it stays as it was" for name in names
    ]


def test_how_long_a_stop_may_take() -> None:
    """The sum is that of the page which says it, and each waits longer than those whose end it waits for."""
    table = re.findall(r"^ +([0-9.]+)  ([A-Z_]+)", stop_times.__doc__ or "", re.MULTILINE)
    said = {name: float(seconds) for seconds, name in table}
    assert said == {name: pytest.approx(getattr(stop_times, name)) for name in said}
    parts = [seconds for name, seconds in said.items() if name not in ("WORKER_SECONDS", "GENERATION_SECONDS")]
    assert len(parts) == 5
    assert sum(parts) + 2 <= said["WORKER_SECONDS"] < said["GENERATION_SECONDS"]


@pytest.mark.parametrize("letter", ["x", "ж", "\U0001f300"])
def test_a_reason_of_any_length_is_told(letter: str) -> None:
    """As one line, which a pipe takes at once."""
    one = Offspring(1, 30.0)
    one.reports.failed(letter * 100_000)
    assert list(one.hear()) == []
    assert one.failure == letter * MOST_CHARACTERS
    one.reports.be_reader()
    one.reports.close()
