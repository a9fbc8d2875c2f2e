"""Workers as real processes on a real socket: which answer, which are replaced, which remain.

The output of a program ends only when the parent and all workers have ended.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from textwrap import indent

import pytest

from server.processes.workers import EARLY_SECONDS, _Slot
from server.settings import StartError
from tests.processes.programs import Program, started

PROGRAM = """
import atexit, logging, os, signal, socket, sys, time
from server.processes import workers

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

def answer(sockets, index):
    # A signal that comes just before accept() is only handled after it, so accept() must not wait for ever.
    sockets[0].settimeout(0.05)
    say("worker", index, os.getpid())
    while True:
        try:
            connection, _ = sockets[0].accept()
        except TimeoutError:
            continue
        connection.sendall(b"%d" % os.getpid())
        connection.close()

def worker(sockets, index):
{worker}

def on_exit(index, pid):
    say("gone", index, pid)

logging.basicConfig(stream=sys.stdout, format="log %(message)s")
atexit.register(say, "exit handler")
listening = socket.create_server(("127.0.0.1", 0))
before = [signal.getsignal(number) for number in workers.SIGNALS]
say("port", listening.getsockname()[1])
try:
    workers.run([listening], {count}, worker, stop_seconds={stop_seconds}, max_count={max_count}, on_exit=on_exit)
    say("returned")
except workers.StartError as error:
    say("error", error)
say("restored", before == [signal.getsignal(number) for number in workers.SIGNALS])
say("listening", listening.fileno() != -1)
"""


@contextmanager
def program(
    worker: str, count: int = 2, stop_seconds: float = 30.0, text: str = PROGRAM, max_count: int = 0
) -> Iterator[Program]:
    with started(
        text.format(worker=indent(worker, "    "), count=count, stop_seconds=stop_seconds, max_count=max_count)
    ) as running:
        running.port = int(running.line("port (.*)")[1])
        yield running


def test_all_workers_start_and_answer() -> None:
    with program("answer(sockets, index)", count=3) as running:
        workers = [running.worker() for _ in range(3)]
        assert sorted(index for index, _ in workers) == [0, 1, 2]
        pids = {pid for _, pid in workers}
        assert len(pids | {running.process.pid}) == 4
        assert {running.ask() for _ in range(20)} <= pids


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_parent_stops_all_workers(number: signal.Signals) -> None:
    with program("answer(sockets, index)") as running:
        for _ in range(2):
            running.worker()
        running.process.send_signal(number)
        assert running.end()[-4:] == ["returned", "restored True", "listening True", "exit handler"]
        assert running.process.returncode == 0


def test_workers_get_sigterm_and_finish_their_work() -> None:
    worker = """
def finish(number, frame):
    say("finished", index, signal.Signals(number).name)
    sys.exit(0)

signal.signal(signal.SIGTERM, finish)
answer(sockets, index)
"""
    with program(worker) as running:
        for _ in range(2):
            running.worker()
        os.killpg(running.process.pid, signal.SIGINT)  # as Ctrl-C in a terminal does
        lines = running.end()
        assert sorted(line for line in lines if line.startswith("finished")) == [
            "finished 0 SIGTERM",
            "finished 1 SIGTERM",
        ]
        assert lines.index("returned") > max(i for i, line in enumerate(lines) if line.startswith("finished"))


def test_a_worker_starts_with_reset_signal_handlers() -> None:
    worker = """
handlers = [signal.getsignal(number).name for number in workers.SIGNALS]
say("handlers", handlers, list(signal.pthread_sigmask(signal.SIG_BLOCK, [])), signal.set_wakeup_fd(-1))
answer(sockets, index)
"""
    with program(worker, count=1) as running:
        assert (
            running.line("handlers (.*)")[1]
            == "['SIG_DFL', 'SIG_IGN', 'SIG_DFL', 'SIG_IGN', 'SIG_IGN', 'SIG_IGN'] [] -1"
        )


def test_a_worker_that_dies_is_replaced_and_the_port_keeps_answering() -> None:
    with program("answer(sockets, index)", count=1) as running:
        _, first = running.worker()
        os.kill(first, signal.SIGKILL)
        assert running.line("log worker 0 ended: (.*)")[1] == "signal 9 (Killed)"
        # The connection waits in the socket that the parent holds, until there is a worker again.
        answered_by = running.ask()
        assert running.worker() == (0, answered_by)
        assert answered_by != first


def test_the_other_workers_stay_when_one_dies() -> None:
    with program("answer(sockets, index)", count=2) as running:
        workers = dict(running.worker() for _ in range(2))
        os.kill(workers[1], signal.SIGKILL)
        index, pid = running.worker()
        assert (index, pid != workers[1]) == (1, True)
        assert {running.ask() for _ in range(20)} <= {workers[0], pid}
        running.process.terminate()
        lines = running.end()
        assert [line for line in lines if line.startswith("log")] == ["log worker 1 ended: signal 9 (Killed)"]


@pytest.mark.parametrize(
    ("worker", "how", "lines"),
    [
        ("return", "exit code 0", []),
        ("raise workers.StartError('no database')", "exit code 1", ["log worker 0: no database"]),
        ("raise ValueError('ours')", "exit code 1", ["log worker 0 failed", "ValueError: ours"]),
        ("os._exit(7)", "exit code 7", []),
        ("os.kill(os.getpid(), signal.SIGKILL)", "signal 9 (Killed)", []),
    ],
)
def test_a_worker_that_keeps_dying_at_once_ends_the_server(worker: str, how: str, lines: list[str]) -> None:
    with program(f"if index == 1: answer(sockets, index)\n{worker}") as running:
        written = running.end()
        assert [line for line in written if line.startswith("log worker 0 ended")] == [f"log worker 0 ended: {how}"] * 3
        assert written[-4:] == [
            f"error worker 0 ended 3 times in a row within 5 s of its start, the last time with {how}",
            "restored True",
            "listening True",
            "exit handler",
        ]
        assert [line for line in lines if written.count(line) != 3] == []
        assert written.count("exit handler") == 1


def test_the_pause_before_a_replacement_grows() -> None:
    with program("say('start', time.monotonic())", count=1) as running:
        starts = [float(running.line("start (.*)")[1]) for _ in range(3)]
    first, second = starts[1] - starts[0], starts[2] - starts[1]
    assert first >= 0.2
    assert second >= 0.4


def test_a_worker_that_lived_long_enough_is_replaced_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("server.processes.workers.time.monotonic", lambda: clock[0])
    slot = _Slot(0)
    waits = []
    for lived in [1.0, 1.0, EARLY_SECONDS, 1.0, 1.0]:
        slot.started_at = clock[0]
        clock[0] += lived
        slot.record_exit("exit code 1")
        waits.append(round(slot.start_at - clock[0], 6))
    assert waits == [0.2, 0.4, 0.0, 0.2, 0.4]
    slot.started_at = clock[0]
    with pytest.raises(StartError):
        slot.record_exit("exit code 1")


def test_a_worker_that_does_not_stop_is_killed() -> None:
    worker = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nanswer(sockets, index)"
    with program(worker, stop_seconds=0.3) as running:
        for _ in range(2):
            running.worker()
        began = time.monotonic()
        running.process.terminate()
        lines = running.end()
        assert time.monotonic() - began >= 0.3
        assert "log workers that did not stop within 0.3 seconds are killed" in lines
        assert lines[-4:] == ["returned", "restored True", "listening True", "exit handler"]


def test_no_worker_outlives_a_killed_parent() -> None:
    worker = """
def finish(number, frame):
    say("finished", index)
    os._exit(0)

signal.signal(signal.SIGTERM, finish)
answer(sockets, index)
"""
    with program(worker) as running:
        for _ in range(2):
            running.worker()
        running.process.kill()
        assert sorted(running.end()[-2:]) == ["finished 0", "finished 1"]


def test_a_worker_that_ignores_the_end_of_its_parent_is_killed() -> None:
    worker = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nanswer(sockets, index)"
    with program(worker, stop_seconds=0.3) as running:
        for _ in range(2):
            running.worker()
        running.process.kill()
        running.end()


def test_a_replacement_does_not_outlive_a_killed_parent() -> None:
    with program("answer(sockets, index)", count=2) as running:
        workers = dict(running.worker() for _ in range(2))
        os.kill(workers[0], signal.SIGKILL)
        running.worker()
        running.process.kill()
        running.end()


def test_other_children_of_the_parent_are_not_waited_for() -> None:
    forked = PROGRAM.replace("listening =", "other = os.fork() or os._exit(5)\nlistening =", 1)
    text = forked + "say('other', os.waitstatus_to_exitcode(os.waitpid(other, 0)[1]))\n"
    with program("answer(sockets, index)", text=text) as running:
        for _ in range(2):
            running.worker()
        running.process.terminate()
        assert "other 5" in running.end()


def test_signals_add_and_remove_a_worker() -> None:
    with program("answer(sockets, index)", count=1, max_count=2) as running:
        first = running.worker()
        running.process.send_signal(signal.SIGTTIN)
        index, pid = running.worker()
        assert (first[0], index) == (0, 1)
        one_fewer(running, 1, pid)
        assert running.ask() == first[1]
        running.process.terminate()
        # A removed worker is not a failure, and is not replaced.
        assert [line for line in running.end() if line.startswith("log")] == []


def test_there_are_never_more_workers_than_the_full_count() -> None:
    """A worker that died is replaced, and the signal that adds one does not add another."""
    with program("answer(sockets, index)", count=2) as running:
        workers = dict(running.worker() for _ in range(2))
        running.process.send_signal(signal.SIGTTIN)
        os.kill(workers[0], signal.SIGKILL)
        assert running.worker()[0] == 0
        one_fewer(running, 1, workers[1])


def one_fewer(running: Program, index: int, pid: int) -> None:
    running.process.send_signal(signal.SIGTTOU)
    assert running.line(r"gone (.*)")[1] == f"{index} {pid}"


def test_a_signal_restores_the_full_count() -> None:
    """However often it is sent."""
    with program("answer(sockets, index)", count=3) as running:
        for index, pid in sorted((running.worker() for _ in range(3)), reverse=True)[:2]:
            one_fewer(running, index, pid)
        running.process.send_signal(signal.SIGUSR1)
        again = dict(running.worker() for _ in range(2))
        assert sorted(again) == [1, 2]
        running.process.send_signal(signal.SIGUSR1)
        one_fewer(running, 2, again[2])


def test_a_slot_is_free_when_its_process_has_ended() -> None:
    worker = """
if index == 1: signal.signal(signal.SIGTERM, signal.SIG_IGN)
answer(sockets, index)
"""
    with program(worker, count=2, stop_seconds=0.3) as running:
        slow = dict(running.worker() for _ in range(2))[1]
        running.process.send_signal(signal.SIGTTOU)
        running.process.send_signal(signal.SIGUSR1)
        assert running.worker()[0] == 2
        os.kill(slow, signal.SIGKILL)
        assert running.line(r"gone (.*)")[1] == f"1 {slow}"
        running.process.send_signal(signal.SIGTTOU)
        running.process.send_signal(signal.SIGUSR1)
        assert running.worker()[0] == 1
