"""The embedded PostgreSQL dies under a running server: it is restarted on the same data, until too many starts fail."""

import logging
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import disk_usage
from types import SimpleNamespace

import asyncpg
import pytest

from server.embedded import cluster
from server.embedded import supervisor as embedded_supervisor
from server.embedded.cluster import running_pid
from server.embedded.postgres import EmbeddedServer, StartFailed, start
from server.embedded.supervisor import MAX_FAILURES
from tests.embedded.test_embedded import PSQL, is_running, open_folder, postmaster_pid, query, silent
from tests.waiting import wait_until

NOT_YET = (OSError, asyncpg.PostgresError)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Yield a data folder with the table `kept` and a row in it."""
    place = open_folder()
    with start(place / "data", say=silent) as server:
        query(server.dsn, "CREATE TABLE kept (note text)")
        query(server.dsn, "INSERT INTO kept VALUES ('before')")
    yield place / "data"
    shutil.rmtree(place)


@pytest.fixture
def server(folder: Path) -> Iterator[EmbeddedServer]:
    with start(folder, say=silent) as running:
        yield running


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_supervisor, "RETRY_SECONDS", 0.0)


def kill(folder: Path) -> int:
    """Kill the postmaster. Returns its process id."""
    pid = postmaster_pid(folder)
    os.kill(pid, signal.SIGKILL)
    return pid


def supervised(server: EmbeddedServer, claim: Callable[[], object]) -> Callable[[], object]:
    def check() -> object:
        server.supervise()
        return claim()

    return check


def is_up(dsn: str) -> bool:
    try:
        return query(dsn, "SELECT note FROM kept") == [("before",)]
    except NOT_YET:
        return False


def logged(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


def is_back(caplog: pytest.LogCaptureFixture, times: int) -> bool:
    """Return whether the log says so many times that PostgreSQL is back."""
    return len(logged(caplog, logging.WARNING)) == times


def break_settings(folder: Path) -> Callable[[], object]:
    """Make every start on the folder fail. Returns the function that repairs it."""
    settings = folder / "cluster" / "postgresql.conf"
    before = settings.read_text()
    settings.write_text(before + "\nnonsense = 1\n")
    return lambda: settings.write_text(before)


def test_a_killed_postmaster_is_replaced(
    server: EmbeddedServer, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    killed = kill(folder)
    wait_until(supervised(server, lambda: is_back(caplog, 1)))
    assert is_up(server.dsn)
    new = postmaster_pid(folder)
    assert new != killed
    assert logged(caplog, logging.ERROR) == ["PostgreSQL ended (signal 9): it is started again"]
    assert logged(caplog, logging.WARNING)[0].startswith("PostgreSQL takes connections again after ")
    server.stop()
    assert not is_running(new)


def test_nothing_happens_while_it_runs_or_after_a_stop(
    server: EmbeddedServer, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pid = postmaster_pid(folder)
    server.supervise()
    assert postmaster_pid(folder) == pid
    server.stop()
    assert caplog.records == []
    assert not (folder / "cluster" / "postmaster.pid").exists()


def test_a_statement_that_outlives_its_postmaster_is_waited_for(
    server: EmbeddedServer, folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Starts that the orphans prevent do not count as failures. They do not wait for free disk space either."""
    monkeypatch.setattr(cluster, "LOG_SEGMENT_BYTES", 2**62)
    busy = "SELECT count(*) FROM generate_series(1, 5000) a, generate_series(1, 5000) b"
    with subprocess.Popen([PSQL, "-Xc", busy, server.dsn], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        wait_until(
            lambda: query(server.dsn, f"SELECT FROM pg_stat_activity WHERE query = '{busy}' AND state = 'active'")
        )
        kill(folder)
        wait_until(supervised(server, lambda: is_back(caplog, 1)))
    assert is_up(server.dsn)
    assert (folder / "postgresql.log").read_text().count("pre-existing shared memory block") > MAX_FAILURES
    assert len(logged(caplog, logging.ERROR)) == 1


def test_restarts_end_after_three_failures(
    server: EmbeddedServer, folder: Path, caplog: pytest.LogCaptureFixture, quick: None
) -> None:
    repair = break_settings(folder)
    try:
        kill(folder)
        with pytest.raises(StartFailed, match="did not start again in 3 tries") as raised:
            wait_until(supervised(server, lambda: False))
    finally:
        repair()
    assert 'unrecognized configuration parameter "nonsense"' in str(raised.value)
    assert len(logged(caplog, logging.ERROR)) == 4
    server.stop()
    with start(folder, say=silent) as again:
        assert is_up(again.dsn)


def test_a_successful_start_resets_the_failures(
    server: EmbeddedServer, folder: Path, caplog: pytest.LogCaptureFixture, quick: None
) -> None:
    for times in (1, 2):
        caplog.clear()
        repair = break_settings(folder)
        try:
            kill(folder)
            # One line that it ended, and two lines of failed starts.
            wait_until(supervised(server, lambda: len(logged(caplog, logging.ERROR)) == 3))
        finally:
            repair()
        wait_until(supervised(server, lambda: is_back(caplog, 1)))
        assert is_up(server.dsn), times


def test_failures_far_apart_do_not_add_up(
    server: EmbeddedServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr(embedded_supervisor, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    log = folder / "postgresql.log"
    begin = log.stat().st_size

    def tries() -> int:
        return log.read_bytes()[begin:].count(b"unrecognized configuration parameter")

    repair = break_settings(folder)
    try:
        kill(folder)
        for number in range(1, 5):
            wait_until(supervised(server, lambda number=number: tries() == number))
            wait_until(supervised(server, lambda: server._supervisor._launched is None))
            clock[0] += embedded_supervisor.RETRY_SECONDS - 0.01
            server.supervise()
            assert server._supervisor._launched is None
            clock[0] += embedded_supervisor.FAILURES_SECONDS / 2
    finally:
        repair()


def test_a_restart_waits_while_the_disk_is_full(
    server: EmbeddedServer,
    folder: Path,
    caplog: pytest.LogCaptureFixture,
    quick: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The start is tried once, and again when there is space for a WAL segment."""
    asked: list[Path] = []
    monkeypatch.setattr(cluster, "LOG_SEGMENT_BYTES", 2**62)
    monkeypatch.setattr(cluster.shutil, "disk_usage", lambda path: (asked.append(path), disk_usage(path))[1])
    repair = break_settings(folder)
    try:
        kill(folder)
        wait_until(supervised(server, lambda: len(asked) == 10))
    finally:
        repair()
    # The first line says that PostgreSQL ended. The next ones say that it did not start and that the disk is full.
    assert [line.split(" ")[0] for line in logged(caplog, logging.ERROR)[1:]] == ["PostgreSQL", "the"]
    monkeypatch.undo()
    wait_until(supervised(server, lambda: is_back(caplog, 1)))
    assert is_up(server.dsn)


def test_a_stop_during_a_restart(server: EmbeddedServer, folder: Path) -> None:
    killed = kill(folder)
    wait_until(supervised(server, lambda: running_pid(folder) not in (0, killed)))
    new = running_pid(folder)
    server.stop()
    assert not is_running(new)
    assert not (folder / "cluster" / "postmaster.pid").exists()


def test_a_removed_data_folder(quick: None) -> None:
    place = open_folder()
    server = start(place / "data", say=silent)
    kill(place / "data")
    shutil.rmtree(place)
    with pytest.raises(StartFailed, match="No such file or directory"):
        wait_until(supervised(server, lambda: False))
    server.stop()
