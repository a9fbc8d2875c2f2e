"""Metrics and health of a server with two workers: the figures are the sum, whichever worker answers."""

from __future__ import annotations

import asyncio
import http.client
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import asyncpg
import psutil

from tests.http.running.test_metrics import Samples, read
from tests.http.running.test_process import DEADLINE_SECONDS, serving
from tests.ports import free_port
from tests.waiting import wait_until

COUNT = "http_request_duration_seconds_count"
LISTS = ("GET", "/{collection}", "200")


class Port:
    """Each request uses a new connection, so any worker may answer."""

    def __init__(self, address: str) -> None:
        self._address = address

    def get(self, path: str) -> tuple[int, str]:
        with closing(http.client.HTTPConnection(self._address, timeout=DEADLINE_SECONDS)) as client:
            client.request("GET", path)
            answer = client.getresponse()
            return answer.status, answer.read().decode()

    def status(self, path: str) -> int:
        return self.get(path)[0]

    def scrape(self) -> Samples:
        status, text = self.get("/-/metrics")
        assert status == 200
        return read(text)

    def until(self, condition: Callable[[Samples], Any]) -> Samples:
        """Return the metrics, once this holds."""
        found: Samples = wait_until(self.scrape, condition)
        return found


def workers_of(pid: int) -> list[psutil.Process]:
    """Return the processes without children."""
    return [child for child in psutil.Process(pid).children(recursive=True) if not child.children()]


def test_sums(database_url: str) -> None:
    """A worker dies and the settings are reloaded. No counter falls, and nothing is counted twice."""
    with serving("--port", "0", "--workers", "2", "--database-url", database_url) as (process, address):
        port = Port(address.removeprefix("http://"))
        port.until(lambda found: len(found["worker_resident_memory_bytes"]) == 2)
        assert {port.status("/groups") for _ in range(20)} == {200}
        # A worker counts an answer after it has sent it.
        port.until(lambda found: found[COUNT][LISTS] >= 20)
        scrapes = [port.scrape() for _ in range(10)]
        assert [found[COUNT][LISTS] for found in scrapes] == [20] * 10
        assert [len(found["worker_resident_memory_bytes"]) for found in scrapes] == [2] * 10
        assert [found["pool_max_connections"][()] for found in scrapes] == [12] * 10
        assert set(scrapes[0]["build_info"].values()) == {1}
        # The total of the server; each worker has answered some of them.
        assert max(found["worker_cpu_seconds_total"][("2",)] for found in scrapes) > 0

        workers_of(process.pid)[0].send_signal(signal.SIGKILL)
        found = port.until(lambda found: found["workers_ended_total"][()] == 1 and found["workers"][()] == 2)
        assert found[COUNT][LISTS] == 20
        assert {port.status("/groups") for _ in range(5)} == {200}

        process.send_signal(signal.SIGHUP)
        found = port.until(lambda found: set(found["worker_generation"].values()) == {2} and found[COUNT][LISTS] >= 25)
        assert (found[COUNT][LISTS], found["workers"][()], found["workers_ended_total"][()]) == (25, 2, 1)
        assert found["cache_misses_total"][("prepared_reads",)] >= 1


@contextmanager
def locked(database_url: str, table: str) -> Iterator[None]:
    """Lock the table, so that nobody else can read it."""
    loop = asyncio.new_event_loop()
    connection = loop.run_until_complete(asyncpg.connect(database_url))
    loop.run_until_complete(connection.execute(f"BEGIN; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"))
    try:
        yield
    finally:
        loop.run_until_complete(connection.close())
        loop.close()


def test_the_admin_port_during_a_stop(database_url: str) -> None:
    """It answers until the last request has been answered, and reports that the server is not ready. It stays ready
    while workers are replaced."""
    own = free_port()
    flags = ("--port", "0", "--admin-port", str(own), "--workers", "2", "--database-url", database_url)
    with serving(*flags) as (process, address):
        port, admin = Port(address.removeprefix("http://")), Port(f"127.0.0.1:{own}")
        admin.until(lambda found: len(found["worker_resident_memory_bytes"]) == 2)
        assert [one.status("/-/ready") for one in (port, admin)] == [404, 200]
        assert [one.status("/groups") for one in (port, admin)] == [200, 404]
        process.send_signal(signal.SIGHUP)
        ready = []
        while set(admin.scrape()["worker_generation"].values()) != {2}:
            ready.append(admin.status("/-/ready"))
        assert set(ready) == {200}
        answers: list[int] = []
        waiting = threading.Thread(target=lambda: answers.append(port.status("/groups")))
        with locked(database_url, "groups"):
            waiting.start()
            admin.until(lambda found: found["http_requests_in_flight"][()] == 1)
            os.kill(process.pid, signal.SIGTERM)
            # One of the workers has nothing to finish, and ends.
            admin.until(lambda found: found["workers"][()] == 1)
            assert admin.status("/-/ready") == 503
            assert admin.status("/-/live") == 200
        waiting.join(DEADLINE_SECONDS)
        assert answers == [200]
        process.communicate(timeout=DEADLINE_SECONDS)
        assert process.returncode == 0
