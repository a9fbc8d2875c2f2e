"""The audit log of a whole server: of several workers, after a reload, on standard output."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from tests.http.running.test_process import DEADLINE_SECONDS, end, serving
from tests.ready import port_of


def create(address: str, name: str) -> int:
    body = json.dumps({"data": {"type": "group", "attributes": {"name": name}}})
    port = port_of(address)
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_SECONDS)) as client:
        client.request("POST", "/groups", body, {"Content-Type": "application/vnd.api+json"})
        with client.getresponse() as response:
            response.read()
            return response.status


def ids(text: str) -> list[int]:
    return sorted(int(json.loads(line)["id"]) for line in text.splitlines())


def until_line(process: subprocess.Popen[str], is_found: Callable[[str], bool]) -> None:
    assert process.stderr is not None
    while not is_found(process.stderr.readline()):
        pass


def test_several_workers_and_a_reload(database_url: str, tmp_path: Path) -> None:
    """A moved file is replaced at the next write, and by a reload as well. No line is lost."""
    path = tmp_path / "audit"
    flags = ("--port", "0", "--database-url", database_url, "--workers", "2", "--log-level", "info")
    with serving(*flags, "--audit-log", str(path)) as (process, address), ThreadPoolExecutor(8) as threads:

        def many(begin: int) -> None:
            assert set(threads.map(lambda n: create(address, f"group {n}"), range(begin, begin + 50))) == {201}

        many(0)
        first = path.rename(tmp_path / "audit.1")
        many(50)
        second = path.rename(tmp_path / "audit.2")
        process.send_signal(signal.SIGHUP)
        until_line(process, lambda line: "generation 2 answers" in line)
        many(100)
        assert end(process, signal.SIGTERM)[0] == 0
    assert ids(first.read_text()) == list(range(1, 51))
    assert ids(second.read_text()) == list(range(51, 101))
    assert ids(path.read_text()) == list(range(101, 151))


def test_standard_output(database_url: str) -> None:
    with serving("--port", "0", "--database-url", database_url, "--audit-log", "-") as (process, address):
        assert create(address, "one") == 201
        assert process.stdout is not None
        found = json.loads(process.stdout.readline())
        assert (found["kind"], found["type"], found["id"], found["outcome"]) == ("create", "group", "1", "done")
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=DEADLINE_SECONDS) == ("", "")


def test_a_file_that_cannot_be_opened(database_url: str, tmp_path: Path) -> None:
    """The start is refused, with the reason."""
    path = tmp_path / "nothing" / "audit"
    command = [sys.executable, "-m", "server", "serve", "--port", "0", "--database-url", database_url]
    refused = subprocess.run(
        [*command, "--audit-log", str(path)], capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False
    )
    told = f"Error: the audit log {path} cannot be opened: {os.strerror(2)}\n"
    assert (refused.returncode, refused.stderr) == (1, told)
