"""The life of a server: replaced workers, new settings during operation, handover to another program, and notifications
of systemd. Each test runs the server as a separate process."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.conftest import cloned, on_server, with_database
from tests.http.running.test_process import DEADLINE_SECONDS, end, folder, serving  # noqa: F401  (a fixture)
from tests.ready import port_of, ready_line
from tests.waiting import wait_until


def get(port: int, path: str = "/users") -> tuple[int, bytes]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_SECONDS)) as client:
        client.request("GET", path)
        response = client.getresponse()
        return response.status, response.read()


def page_size(port: int) -> int:
    return len(json.loads(get(port, "/computers")[1])["data"])


def workers_of(process: subprocess.Popen[str]) -> set[int]:
    """Return the processes without children."""
    found = set()
    for one in psutil.Process(process.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if one.status() != psutil.STATUS_ZOMBIE and not one.children():
                found.add(one.pid)
    return found


class Load(threading.Thread):
    """A client that sends requests without a pause, on one connection as long as the server keeps it."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.port = port
        self.is_over = False
        self.count = 0
        self.failures: list[str] = []

    def run(self) -> None:
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_SECONDS)
        while not self.is_over:
            try:
                client.request("GET", "/groups")
                response = client.getresponse()
                response.read()
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(repr(error))
                client.close()
            else:
                self.count += 1
                if response.status != 200:
                    self.failures.append(str(response.status))
        client.close()


@contextmanager
def load(port: int, clients: int = 3) -> Iterator[list[Load]]:
    """Run clients during the block. They get answers before, in and after it, and always a 200."""
    loads = [Load(port) for _ in range(clients)]
    for one in loads:
        one.start()
    try:
        wait_until(lambda: all(one.count > 5 for one in loads))
        yield loads
        counts = [one.count for one in loads]
        wait_until(lambda: all(one.count > before + 5 for one, before in zip(loads, counts, strict=True)))
    finally:
        for one in loads:
            one.is_over = True
            one.join()
    assert [one.failures for one in loads] == [[]] * clients


@pytest.fixture(scope="module")
def seeded(administer: Callable[[str], object], postgres_url: str, template: str) -> Iterator[str]:
    """Yield the URL of a database with sample rows, for tests that only read."""
    with cloned(administer, postgres_url, f"waterspout_seeded_{os.getpid()}", template) as url:
        command = [sys.executable, "-m", "server", "seed", "--database-url", url]
        subprocess.run(command, check=True, capture_output=True)
        yield url


@pytest.fixture
def empty_database_url(postgres_url: str) -> Iterator[str]:
    on_server(postgres_url, "CREATE DATABASE nothing")
    yield with_database(postgres_url, "nothing")
    on_server(postgres_url, "DROP DATABASE nothing WITH (FORCE)")


@pytest.mark.parametrize("count", [1, 3])
def test_a_reload_applies_the_new_settings_and_loses_no_request(folder: Path, seeded: str, count: int) -> None:  # noqa: F811
    config = folder / "settings.toml"
    config.write_text("page_size = 7")
    flags = ("--port", "0", "--workers", str(count), "--database-url", seeded, "--config", str(config))
    with serving(*flags) as (process, address):
        port = port_of(address)
        assert page_size(port) == 7
        before = workers_of(process)
        config.write_text("page_size = 9")
        with load(port):
            process.send_signal(signal.SIGHUP)
            wait_until(lambda: len(workers_of(process)) == count and not workers_of(process) & before)
        assert page_size(port) == 9
        code, errors = end(process, signal.SIGTERM)
        assert (code, "generation 2 answers" in errors) == (0, True)


def test_wrong_settings_are_refused_at_a_reload(folder: Path, seeded: str) -> None:  # noqa: F811
    config = folder / "settings.toml"
    right = f"page_size = 7\ndatabase_url = {json.dumps(seeded)}\n"
    wrong = {
        right.replace("size = 7", "size = 0"): "page_size: expected a whole number",
        right + "resources = '/not/there.py'\n": "/not/there.py",
        "database_url = 'postgresql://127.0.0.1:1/none'\n": "the database at 127.0.0.1:1 cannot be reached",
    }
    config.write_text(right)
    with serving("--port", "0", "--config", str(config)) as (process, address):
        port = port_of(address)
        before = workers_of(process)
        assert process.stderr is not None
        for broken, reason in wrong.items():
            config.write_text(broken)
            process.send_signal(signal.SIGHUP)
            line = next(line for line in process.stderr if "are refused" in line)
            assert reason in line
            assert (page_size(port), workers_of(process)) == (7, before)
        config.write_text(right.replace("size = 7", "size = 8"))
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: page_size(port) == 8)
        assert end(process, signal.SIGTERM)[0] == 0


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_worker_that_dies_or_hangs_is_replaced(database_url: str, count: int, number: signal.Signals) -> None:
    flags = ("--port", "0", "--workers", str(count), "--worker-timeout-seconds", "1.5", "--database-url", database_url)
    with serving(*flags) as (process, address):
        # A worker that has not started yet has sent no report, so it would not be killed for a missing one.
        wait_until(
            lambda: get(port_of(address), "/-/metrics")[1].count(b"\nwaterspout_worker_resident_memory_bytes{") == count
        )
        before = workers_of(process)
        assert len(before) == count
        victim = min(before)
        os.kill(victim, number)
        wait_until(lambda: victim not in workers_of(process) and len(workers_of(process)) == count)
        assert len(workers_of(process) & before) == count - 1
        assert {get(port_of(address))[0] for _ in range(10)} == {200}
        assert end(process, signal.SIGTERM)[0] == 0


def connections_of(pid: int, port: int) -> int:
    with suppress(psutil.NoSuchProcess):
        found = psutil.Process(pid).net_connections("tcp")
        return sum(one.status == psutil.CONN_ESTABLISHED and one.laddr.port == port for one in found)
    return 0


def test_open_connections_move_to_a_new_worker(seeded: str) -> None:
    """When one of two workers ends, its clients connect to the other one. Without balancing they would stay there."""
    flags = ("--port", "0", "--workers", "2", "--header-timeout-seconds", "2", "--database-url", seeded)
    with serving(*flags) as (process, address):
        wait_until(lambda: len(workers_of(process)) == 2)
        port, gone = port_of(address), min(workers_of(process))
        with load(port, 8):
            os.kill(gone, signal.SIGTERM)
            wait_until(lambda: gone not in workers_of(process) and len(workers_of(process)) == 2)
            wait_until(lambda: all(connections_of(pid, port) >= 3 for pid in workers_of(process)))
        assert end(process, signal.SIGTERM)[0] == 0


def test_the_last_response_of_a_connection_says_close(database_url: str) -> None:
    """An open connection may send one more request while the server stops."""
    with serving("--port", "0", "--drain-seconds", "20", "--database-url", database_url) as (process, address):
        with closing(http.client.HTTPConnection("127.0.0.1", port_of(address), timeout=DEADLINE_SECONDS)) as client:
            client.request("GET", "/users")
            assert client.getresponse().read()
            process.send_signal(signal.SIGTERM)
            wait_until(lambda: is_refused(port_of(address)))
            client.request("GET", "/users")
            response = client.getresponse()
            assert (response.status, response.getheader("Connection")) == (200, "close")
            assert response.read()
        # There is no client left to wait for.
        process.communicate(timeout=60)
        assert process.returncode == 0


def is_refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionError:
        return True
    return False


def test_an_idle_connection_is_closed_during_the_stop(database_url: str) -> None:
    flags = ("--port", "0", "--drain-seconds", "0.3", "--database-url", database_url)
    with serving(*flags) as (process, address), socket.create_connection(("127.0.0.1", port_of(address))) as idle:
        # It has been accepted, because a later one was answered.
        assert get(port_of(address))[0] == 200
        began = time.monotonic()
        assert end(process, signal.SIGTERM)[0] == 0
        assert 0.3 <= time.monotonic() - began < 20
        assert idle.recv(1) == b""


def test_a_handover_to_a_new_program_loses_no_request(seeded: str) -> None:
    with serving("--port", "0", "--workers", "2", "--database-url", seeded) as (process, address):
        assert process.stdout is not None
        port = port_of(address)
        with load(port):
            process.send_signal(signal.SIGUSR2)
            assert process.stdout.readline() == ready_line(address)
            children = psutil.Process(process.pid).children()
            assert process.wait(DEADLINE_SECONDS) == 0
        [successor] = [one for one in children if is_at_work(one)]
        try:
            assert get(port)[0] == 200
        finally:
            successor.terminate()
        wait_until(lambda: not is_at_work(successor))
        assert is_refused(port)


def is_at_work(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


def test_no_process_outlives_a_killed_master(database_url: str) -> None:
    with serving("--port", "0", "--workers", "2", "--database-url", database_url) as (process, address):
        wait_until(lambda: len(workers_of(process)) == 2)
        others = psutil.Process(process.pid).children(recursive=True)
        assert len(others) == 3
        process.kill()
        wait_until(lambda: is_refused(port_of(address)))
        gone, left = psutil.wait_procs(others, timeout=DEADLINE_SECONDS)
        assert (len(gone), left) == (3, [])


class Systemd:
    """The notifications of a service to systemd."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.settimeout(DEADLINE_SECONDS)

    def hears(self, field: str) -> dict[str, str]:
        """Return the next message with this field."""
        while True:
            lines = self.socket.recv(4096).decode().splitlines()
            message = dict(line.split("=", 1) for line in lines)
            if field in message:
                return message


@pytest.fixture
def systemd(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Systemd]:  # noqa: F811
    listener = Systemd(folder / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", str(listener.path))
    monkeypatch.setenv("WATCHDOG_USEC", "400000")
    with closing(listener.socket):
        yield listener


def test_notifications_of_systemd(database_url: str, systemd: Systemd) -> None:
    with serving("--port", "0", "--database-url", database_url) as (process, address):
        ready = systemd.hears("READY")
        assert ready == {"READY": "1", "STATUS": f"answers on {address} with 1 worker"}
        for _ in range(3):
            assert systemd.hears("WATCHDOG")["WATCHDOG"] == "1"
        process.send_signal(signal.SIGHUP)
        assert int(systemd.hears("RELOADING")["MONOTONIC_USEC"]) > 0
        assert systemd.hears("READY")["STATUS"] == ready["STATUS"]
        process.terminate()
        assert systemd.hears("STOPPING")["STOPPING"] == "1"
        assert process.wait(DEADLINE_SECONDS) == 0


def test_systemd_is_not_notified_while_the_schema_is_behind(empty_database_url: str, systemd: Systemd) -> None:
    command = [sys.executable, "-m", "server", "serve", "--port", "0", "--database-url", empty_database_url]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS)
    assert (refused.returncode, "the schema is behind" in refused.stderr) == (1, True)
    systemd.socket.setblocking(False)
    heard = []
    with suppress(BlockingIOError):
        while True:
            heard.append(systemd.socket.recv(4096))
    assert [one for one in heard if b"READY" in one] == []


def test_sockets_that_are_handed_over_are_used(database_url: str) -> None:
    """As systemd passes them: from descriptor 3 on, with the server's pid in LISTEN_PID."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        program = (
            "import os, sys; os.dup2(int(sys.argv[1]), 3); os.environ['LISTEN_PID'] = str(os.getpid());"
            "os.execv(sys.executable, [sys.executable, '-m', 'server', *sys.argv[2:]])"
        )
        flags = ("serve", "--log-level", "warning", "--database-url", database_url)
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(listening.fileno()), *flags],
            env=os.environ | {"LISTEN_FDS": "1"},
            pass_fds=(listening.fileno(),),
            stdout=subprocess.PIPE,
            text=True,
        )
        with process:
            assert process.stdout is not None
            port = listening.getsockname()[1]
            assert process.stdout.readline() == ready_line(f"http://127.0.0.1:{port}")
            assert get(port)[0] == 200
            process.terminate()
            assert process.wait(DEADLINE_SECONDS) == 0
        # It is still open here: clients that connect wait for the next server.
        socket.create_connection(("127.0.0.1", port)).close()
