"""Sockets that are opened before the server starts: by systemd's own tool, and across a restart."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.deploy.programs import DEADLINE_SECONDS, ROOT, SERVER, serving
from tests.ports import free_port
from tests.ready import ready_line

TOOL = "systemd-socket-activate"


def ask(port: int, path: str) -> tuple[int, bytes]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_SECONDS)) as client:
        client.request("GET", path)
        response = client.getresponse()
        return response.status, response.read()


def free_ports() -> tuple[int, int]:
    one, other = free_port(), free_port()
    return (one, other) if one != other else free_ports()


@pytest.fixture
def activated(database_url: str) -> Iterator[tuple[int, int]]:
    """Yield the main and the admin port of a server that the first connection starts."""
    if shutil.which(TOOL) is None:
        pytest.skip("systemd is not installed")
    ports = free_ports()
    listen = [f"--listen=127.0.0.1:{port}" for port in ports]
    environ = ["--setenv=WATERSPOUT_DATABASE_URL=" + database_url, "--setenv=WATERSPOUT_LOG_LEVEL=error"]
    command = [TOOL, *listen, "--fdname=waterspout.socket:admin", *environ, *SERVER, "serve", "--port", "1"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        lines = [process.stderr.readline() for _ in ports]
        assert lines == [f"Listening on 127.0.0.1:{port} as {place}.\n" for place, port in enumerate(ports, 3)]
        yield ports
        process.terminate()
        said, errors = process.communicate(timeout=DEADLINE_SECONDS)
        assert (process.returncode, said) == (0, ready_line(f"http://127.0.0.1:{ports[0]}")), errors
    finally:
        process.kill()
        process.communicate()


def test_systemd_starts_the_server_for_the_first_connection(activated: tuple[int, int]) -> None:
    main, admin = activated
    status, body = ask(main, "/users")
    assert (status, json.loads(body)["data"]) == (200, [])
    assert ask(admin, "/-/ready")[0] == 200
    assert ask(admin, "/users")[0] == 404
    assert ask(main, "/-/metrics")[0] == 404


def test_a_connection_waits_while_the_service_is_restarted(database_url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        descriptor = held.fileno()
        # As systemd does it: descriptor 3, and the process id of the program that shall accept it.
        start = (
            "import os, sys; "
            f"os.dup2({descriptor}, 3, inheritable=True); "
            "os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid())); "
            "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
        )
        command = [sys.executable, "-c", start, *SERVER[1:], "serve", "--port", "1"]
        environ = {
            "WATERSPOUT_DATABASE_URL": database_url,
            "WATERSPOUT_LOG_LEVEL": "error",
            "WATERSPOUT_DRAIN_SECONDS": "0.1",
        }
        with serving(command, environ, pass_fds=[descriptor]) as server:
            assert server.get("/users")[0] == 200
        with closing(http.client.HTTPConnection(*held.getsockname(), timeout=DEADLINE_SECONDS)) as waiting:
            waiting.request("GET", "/users")
            with serving(command, environ, pass_fds=[descriptor]):
                assert waiting.getresponse().status == 200
