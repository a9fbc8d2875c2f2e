"""The server as a container runs it: as the first process, whose parent has no process id."""

from __future__ import annotations

import shutil
import signal
import subprocess

import psutil
import pytest

from tests.deploy.programs import DEADLINE_SECONDS, SERVER, serving

FIRST = ("unshare", "--pid", "--fork")


def may_be_first() -> bool:
    return shutil.which(FIRST[0]) is not None and subprocess.run([*FIRST, "true"], capture_output=True).returncode == 0


def test_it_may_be_the_first_process(database_url: str) -> None:
    if not may_be_first():
        pytest.skip("a namespace of processes takes root")
    command = [*FIRST, *SERVER, "serve", "--port=0", "--database-url", database_url]
    # It gets its own process group, because a signal to the process 0 would end the whole group.
    with serving(command, start_new_session=True) as server:
        [first] = psutil.Process(server.process.pid).children()
        first.send_signal(signal.SIGHUP)
        assert server.process.stderr is not None
        assert any("generation 2 answers" in line for line in server.process.stderr)
        assert server.get("/users")[0] == 200
        first.send_signal(signal.SIGTERM)
        assert server.process.wait(DEADLINE_SECONDS) == 0
