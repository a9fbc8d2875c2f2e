"""The server as a separate process: its output when it is ready, and the effect of signals and sockets."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path

import psutil
import pytest

from tests.conftest import memory
from tests.ready import READY, address_in, port_of

DEADLINE_SECONDS = 60
QUIET = ("--log-level", "warning")


CLOSED = """
from waterspout import *

READ = frozenset({"list"})
RESOURCES = [
    Resource("group", "/groups", "groups", methods=READ),
    Resource("computer", "/computers", "computers", methods=READ, access=(Allow(ANYONE, "read"),)),
]


async def AUTHENTICATE(request):
    return None
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a folder that a system user may enter, with a path short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="waterspout-", dir=memory()) as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextmanager
def serving(*flags: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yield a running server, once it is ready, and the addresses that it reports."""
    command = [sys.executable, "-m", "server", "serve", *(() if "--log-level" in flags else QUIET), *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        if (address := address_in(process.stdout)) is None:
            pytest.fail(f"never ready: {process.communicate()[1]}")
        yield process, address
    finally:
        process.kill()
        process.communicate()


def end(process: subprocess.Popen[str], number: signal.Signals) -> tuple[int, str]:
    process.send_signal(number)
    _, errors = process.communicate(timeout=DEADLINE_SECONDS)
    return process.returncode, errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_the_start_stops_the_embedded_database(folder: Path, number: signal.Signals) -> None:
    with serving("--port", "0", "--data-dir", str(folder / "data")) as (process, _):
        postmasters = [child.pid for child in psutil.Process(process.pid).children() if child.name() == "postgres"]
        assert len(postmasters) == 1
        assert end(process, number) == (0, "")
        assert not psutil.pid_exists(postmasters[0])


def test_the_start_names_the_resources_that_are_closed(database_url: str, folder: Path) -> None:
    path = folder / "closed.py"
    path.write_text(CLOSED)
    command = [sys.executable, "-m", "server", "serve", *QUIET, "--port", "0", "--database-url", database_url]
    with subprocess.Popen([*command, "--resources", str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
        process.terminate()
    assert lines[0] == "closed to everybody, because they have no rules (access=...): group\n"
    assert lines[1].startswith(READY)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], " with its docs on ADDRESS/-/docs"),
        (["--path-prefix", "/v1"], "/v1 with its docs on ADDRESS/v1/-/docs"),
        (["--host", "0.0.0.0"], " with its docs on http://localhost:PORT/-/docs"),
        (["--no-docs-page"], ""),
        (["--no-openapi"], ""),
    ],
)
def test_the_ready_line_says_where_the_docs_are(database_url: str, flags: list[str], said: str) -> None:
    command = [sys.executable, "-m", "server", "serve", *QUIET, "--port", "0", "--database-url", database_url, *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.terminate()
    start = re.match(r"waterspout is ready on (http://[\d.]+:(\d+))", line)
    assert start is not None
    assert line == f"{start[0]}{said}\n".replace("ADDRESS", start[1]).replace("PORT", start[2])


def test_a_stop_sends_the_rest_of_a_response(database_url: str) -> None:
    with serving("--port", "0", "--database-url", database_url) as (process, address):
        port = port_of(address)
        words = {"w": ["x" * 1000] * 1000}
        body = json.dumps({"data": {"type": "photo", "attributes": {"name": "n", "words": words}}})
        with closing(http.client.HTTPConnection("127.0.0.1", port)) as fill:
            for _ in range(8):
                fill.request("POST", "/photos", body, {"Content-Type": "application/json"})
                assert fill.getresponse().read()
        with socket.create_connection(("127.0.0.1", port)) as slow:
            slow.sendall(b"GET /photos HTTP/1.1\r\nHost: localhost\r\n\r\n")
            received = slow.recv(1000)
            process.send_signal(signal.SIGTERM)
            while chunk := slow.recv(1 << 20):
                received += chunk
        head, _, sent = received.partition(b"\r\n\r\n")
        length = next(line for line in head.split(b"\r\n") if line.startswith(b"Content-Length: "))
        assert len(sent) == int(length.split()[1]) > 8_000_000
        process.communicate(timeout=DEADLINE_SECONDS)
        assert process.returncode == 0


def test_a_unix_socket_is_private_and_removed_at_the_end(database_url: str, folder: Path) -> None:
    path = folder / "socket"
    flags = ("--unix-socket", str(path), "--database-url", database_url)
    # A socket that a killed server left behind does not matter.
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with serving(*flags) as (process, address):
        assert address == f"unix:{path}"
        second = subprocess.run(
            [sys.executable, "-m", "server", "serve", *flags], capture_output=True, text=True, timeout=DEADLINE_SECONDS
        )
        assert second.returncode == 1
        assert second.stderr == f"Error: cannot listen on {path}: another server answers there\n"
        assert end(process, signal.SIGTERM)[0] == 0
    assert not path.exists()


def test_a_file_in_place_of_the_socket_is_refused(database_url: str, folder: Path) -> None:
    path = folder / "file"
    path.write_text("mine")
    flags = ("--unix-socket", str(path), "--database-url", database_url)
    refused = subprocess.run(
        [sys.executable, "-m", "server", "serve", *flags], capture_output=True, text=True, timeout=DEADLINE_SECONDS
    )
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"Error: cannot listen on {path}: ")
    assert path.read_text() == "mine"


@pytest.mark.parametrize("flags", ["--", "--admin-"])
def test_an_address_that_is_not_available(flags: str) -> None:
    """The start is refused before the database is opened."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for host, told in (
            ("127.0.0.1", f"Address already in use; choose another with {flags}port"),
            ("203.0.113.1", f"Cannot assign requested address; {flags}host has to be an address of this machine"),
        ):
            command = [sys.executable, "-m", "server", "serve", "--port", "0", "--data-dir", "/dev/null"]
            command += [f"{flags}host", host, f"{flags}port", port]
            refused = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)
            assert (refused.returncode, refused.stderr) == (1, f"Error: cannot listen on {host}:{port}: {told}\n")


def test_two_workers_report_ready_once(database_url: str) -> None:
    with serving("--port", "0", "--workers", "2", "--database-url", database_url) as (process, address):
        with closing(http.client.HTTPConnection("127.0.0.1", port_of(address))) as client:
            client.request("GET", "/-/ready")
            with client.getresponse() as response:
                assert response.status == 200
        os.kill(process.pid, signal.SIGTERM)
        output, _ = process.communicate(timeout=DEADLINE_SECONDS)
        assert (process.returncode, output) == (0, "")


TEXT_LINE = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO \[\d+\] GET /users/1 400 \d+\.\dms mine"


def logged(database_url: str, log_format: str) -> list[str]:
    """Return the lines about one request."""
    flags = ("--port", "0", "--database-url", database_url, "--log-level", "info", "--log-format", log_format)
    with serving(*flags) as (process, address):
        with closing(http.client.HTTPConnection(address.removeprefix("http://"), timeout=DEADLINE_SECONDS)) as client:
            client.request("GET", "/users/1?filter=secret", headers={"X-Request-Id": "mine"})
            client.getresponse().read()
        return [line for line in end(process, signal.SIGTERM)[1].splitlines() if "mine" in line]


def test_the_access_log_as_text(database_url: str) -> None:
    [line] = logged(database_url, "text")
    assert re.fullmatch(TEXT_LINE, line), line


def test_the_access_log_as_json(database_url: str) -> None:
    """It has the same facts and the client address, but not the query string."""
    [line] = [json.loads(line) for line in logged(database_url, "json")]
    shown = {name: line[name] for name in ("level", "logger", "request_id", "method", "path", "status", "remote")}
    assert shown == {
        "level": "info",
        "logger": "server.access",
        "request_id": "mine",
        "method": "GET",
        "path": "/users/1",
        "status": 400,
        "remote": "127.0.0.1",
    }
    # Each is rounded separately.
    said = re.fullmatch(r"GET /users/1 400 (\d+\.\d)ms mine", line["message"])
    assert said is not None
    assert abs(float(said[1]) - line["milliseconds"]) < 0.06
    assert datetime.fromisoformat(line["time"]).tzinfo is not None


def test_the_memory_of_a_worker_is_tuned() -> None:
    """The objects of the start are frozen, and the collector runs rarely."""
    program = (
        "import gc; from server.processes import memory; memory.tune_memory();"
        "print(gc.get_freeze_count() > 1000, gc.get_threshold())"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "True (100000, 20, 20)\n"
