"""The embedded PostgreSQL is killed while the server runs, with one worker and with two."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.embedded.test_embedded import open_folder, postmaster_pid, query
from tests.http.running.test_process import DEADLINE_SECONDS, end, serving
from tests.ready import port_of

COMPUTER = json.dumps({"data": {"type": "computer", "attributes": {"name": "abacus"}}})


@pytest.fixture
def data() -> Iterator[Path]:
    folder = open_folder()
    yield folder / "data"
    shutil.rmtree(folder)


def ask(address: str, method: str, path: str, body: str | None = None) -> tuple[int, str | None, Any]:
    """Return status, Retry-After and document of a request on a new connection."""
    with closing(http.client.HTTPConnection("127.0.0.1", port_of(address), timeout=30)) as client:
        client.request(method, path, body, {"Content-Type": "application/vnd.api+json"} if body else {})
        answer = client.getresponse()
        return answer.status, answer.getheader("Retry-After"), json.loads(answer.read())


def is_another_up(data: Path, killed: int) -> bool:
    """Return whether PostgreSQL accepts connections again."""
    try:
        query(f"postgresql://waterspout@/waterspout?host={data / 'socket'}", "SELECT 1")
    except (OSError, asyncpg.PostgresError):
        return False
    return postmaster_pid(data) != killed


OF_THE_MASTER = ("PostgreSQL ended (signal 9): it is started again", "PostgreSQL takes connections again after")
OF_WORKERS = ("PostgreSQL cannot be reached", "PostgreSQL is reached again", "a connection to PostgreSQL broke")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_killed_postgresql_is_restarted(data: Path, workers: str) -> None:
    flags = ("--port", "0", "--data-dir", str(data), "--workers", workers)
    with serving(*flags) as (process, address):
        for _ in range(4):
            assert ask(address, "POST", "/computers", COMPUTER)[0] == 201
        killed = postmaster_pid(data)
        os.kill(killed, signal.SIGKILL)
        answers = []
        while not is_another_up(data, killed):
            answers.append(ask(address, "GET", "/computers"))
            assert len(answers) < 10_000
        # Each worker has broken connections, and uses none of them.
        for _ in range(6):
            status, _, document = ask(address, "GET", "/computers")
            assert (status, document["meta"]["total"]) == (200, 4)
        assert {(status, retry) for status, retry, _ in answers} <= {(200, None), (503, "1")}
        assert ask(address, "POST", "/computers", COMPUTER)[0] == 201
        assert process.stderr is not None
        log = ""
        while not all(word in log for word in OF_THE_MASTER):
            log += process.stderr.readline()
        new = postmaster_pid(data)
        code, rest = end(process, signal.SIGTERM)
    assert code == 0
    lines = (log + rest).splitlines()
    assert [line for line in lines if not any(word in line for word in OF_THE_MASTER + OF_WORKERS)] == []
    assert not Path(f"/proc/{new}").exists()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_postgresql_that_cannot_be_restarted_ends_the_server(data: Path, workers: str) -> None:
    flags = ("--port", "0", "--data-dir", str(data), "--workers", workers)
    with serving(*flags) as (process, address):
        assert ask(address, "GET", "/computers")[0] == 200
        with (data / "cluster" / "postgresql.conf").open("a") as settings:
            settings.write("\nnonsense = 1\n")
        os.kill(postmaster_pid(data), signal.SIGKILL)
        statuses = until_503(address)
        _, errors = process.communicate(timeout=DEADLINE_SECONDS)
    assert set(statuses) <= {(200, None, None), (503, "1", "unavailable")}
    assert process.returncode == 1
    (told,) = [line for line in errors.splitlines() if line.startswith("Error: ")]
    assert told.startswith("Error: PostgreSQL ended and did not start again in 3 tries; it said: ")
    assert 'unrecognized configuration parameter "nonsense"' in told


def until_503(address: str) -> list[tuple[int, str | None, str | None]]:
    """Return the answers up to the first that is not a 200, without waiting for PostgreSQL to start."""
    statuses: list[tuple[int, str | None, str | None]] = []
    while not statuses or statuses[-1][0] == 200:
        status, retry, document = ask(address, "GET", "/computers")
        statuses.append((status, retry, document["errors"][0]["code"] if status != 200 else None))
        assert len(statuses) < 10_000
    return statuses
