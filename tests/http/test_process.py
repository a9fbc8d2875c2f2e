"""The server as its own process: what it says when it is ready, and what signals and sockets do to it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import pytest

DEADLINE_SECONDS = 60


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where a system user may go as well, and with a path short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="waterspout-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextmanager
def serving(*flags: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server, from the moment on at which it says that it is ready, and what it said it listens on."""
    command = [sys.executable, "-m", "server", "serve", "--log-level", "warning", *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if line.startswith("waterspout is ready on "):
                yield process, line.split()[-1]
                break
        else:
            pytest.fail(f"never ready: {process.communicate()[1]}")
    finally:
        process.kill()
        process.communicate()


def end(process: subprocess.Popen[str], number: signal.Signals) -> tuple[int, str]:
    process.send_signal(number)
    _, errors = process.communicate(timeout=DEADLINE_SECONDS)
    return process.returncode, errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_at_once_stops_the_embedded_database_too(folder: Path, number: signal.Signals) -> None:
    with serving("--port", "0", "--data-dir", str(folder / "data")) as (process, _):
        postmasters = [child.pid for child in psutil.Process(process.pid).children() if child.name() == "postgres"]
        assert len(postmasters) == 1
        assert end(process, number) == (0, "")
        assert not psutil.pid_exists(postmasters[0])


def test_an_answer_that_is_being_sent_is_sent_to_its_end(database_url: str) -> None:
    with serving("--port", "0", "--database-url", database_url) as (process, address):
        port = int(address.rpartition(":")[2])
        words = {"w": ["x" * 1000] * 1000}
        body = json.dumps({"data": {"type": "photo", "attributes": {"name": "n", "words": words}}})
        with closing(http.client.HTTPConnection("127.0.0.1", port)) as fill:
            for _ in range(8):
                fill.request("POST", "/photos", body, {"Content-Type": "application/json"})
                assert fill.getresponse().read()
        with socket.create_connection(("127.0.0.1", port)) as slow:
            slow.sendall(b"GET /photos HTTP/1.1\r\nHost: a\r\n\r\n")
            received = slow.recv(1000)
            process.send_signal(signal.SIGTERM)
            while chunk := slow.recv(1 << 20):
                received += chunk
        head, _, sent = received.partition(b"\r\n\r\n")
        length = next(line for line in head.split(b"\r\n") if line.startswith(b"Content-Length: "))
        assert len(sent) == int(length.split()[1]) > 8_000_000
        process.communicate(timeout=DEADLINE_SECONDS)
        assert process.returncode == 0


def test_a_unix_socket_is_nobody_elses_and_goes_at_the_end(database_url: str, folder: Path) -> None:
    path = folder / "socket"
    flags = ("--unix-socket", str(path), "--database-url", database_url)
    # What a server that was killed left behind is in nobody's way.
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


def test_a_file_is_no_socket(database_url: str, folder: Path) -> None:
    path = folder / "file"
    path.write_text("mine")
    flags = ("--unix-socket", str(path), "--database-url", database_url)
    refused = subprocess.run(
        [sys.executable, "-m", "server", "serve", *flags], capture_output=True, text=True, timeout=DEADLINE_SECONDS
    )
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"Error: cannot listen on {path}: ")
    assert path.read_text() == "mine"


def test_two_workers_say_once_that_they_are_ready(database_url: str) -> None:
    with serving("--port", "0", "--workers", "2", "--database-url", database_url) as (process, address):
        with closing(http.client.HTTPConnection("127.0.0.1", int(address.rpartition(":")[2]))) as client:
            client.request("GET", "/-/ready")
            with client.getresponse() as response:
                assert response.status == 200
        os.kill(process.pid, signal.SIGTERM)
        output, _ = process.communicate(timeout=DEADLINE_SECONDS)
        assert (process.returncode, output) == (0, "")
