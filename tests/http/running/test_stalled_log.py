"""A log that nobody reads: `waterspout serve 2>&1 | sleep 999`."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec
import psutil
import pytest

from tests.http.conftest import Answer
from tests.http.running.test_metrics import read
from tests.http.wire import connected
from tests.ready import address_in, port_of
from tests.waiting import until

STOP_SECONDS = 20.0
"""Much more than an idle server needs to stop, and less than any timeout of a part that hangs."""

PIPE_BYTES = 4096
"""A small pipe, which is full soon."""


class Server(msgspec.Struct):
    process: subprocess.Popen[bytes]
    port: int
    pipe: int

    def read(self) -> str:
        """Return the log so far."""
        found = b""
        try:
            while piece := os.read(self.pipe, 1 << 20):
                found += piece
        except BlockingIOError:
            pass
        return found.decode()

    def workers(self) -> list[int]:
        found = []
        for one in psutil.Process(self.process.pid).children(recursive=True):
            # A killed process may end during this check.
            with suppress(psutil.NoSuchProcess):
                found += [one.pid] if not one.children() else []
        return found


@asynccontextmanager
async def unread(url: str, *flags: str) -> AsyncIterator[Server]:
    """Yield a server whose output goes into a pipe. Only the line that it is ready is read."""
    reading, writing = os.pipe()
    fcntl.fcntl(reading, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    command = [sys.executable, "-m", "server", "serve", "--port", "0", "--database-url", url, *flags]
    process = subprocess.Popen(command, stdout=writing, stderr=writing)  # noqa: ASYNC220 - it takes a millisecond
    os.close(writing)
    os.set_blocking(reading, False)
    server, said = Server(process, 0, reading), ""
    try:

        def address() -> str | None:
            nonlocal said
            said += server.read()
            return address_in(line for line in said.splitlines(keepends=True) if line.endswith("\n"))

        server.port = port_of(await until(address))
        yield server
    finally:
        os.close(reading)
        process.kill()
        process.wait()


async def get(port: int, path: str) -> Answer:
    async with connected(port) as wire:
        await wire.send(f"GET {path} HTTP/1.1", "Connection: close")
        return await wire.answer()


async def fill(server: Server, times: int = 300) -> None:
    """Send some requests, each of which writes a line of the log."""
    async with connected(server.port) as wire:
        for _ in range(times):
            await wire.send("GET /groups/1 HTTP/1.1")
            assert (await wire.answer()).status == 404


async def end(server: Server) -> tuple[int, float]:
    begin = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    code = await asyncio.to_thread(server.process.wait, STOP_SECONDS)
    return code, time.monotonic() - begin


@pytest.mark.parametrize("log_format", ["text", "json", "journald"])
@pytest.mark.parametrize("workers", ["1", "2"])
async def test_requests_are_answered_and_the_server_stops(database_url: str, workers: str, log_format: str) -> None:
    async with unread(database_url, "--workers", workers, "--log-format", log_format) as server:
        await fill(server)
        assert (await get(server.port, "/-/ready")).status == 200
        code, seconds = await end(server)
        assert (code, seconds < STOP_SECONDS / 2) == (0, True)


async def test_under_load(database_url: str) -> None:
    """All requests of eight concurrent clients are answered."""
    async with unread(database_url, "--workers", "2", "--drain-seconds", "0.1") as server:
        await asyncio.gather(*(fill(server) for _ in range(8)))
        assert (await end(server))[0] == 0


async def test_a_worker_that_dies_is_replaced(database_url: str) -> None:
    async with unread(database_url, "--workers", "2") as server:
        await fill(server)
        [one, *_] = before = server.workers()
        os.kill(one, signal.SIGKILL)
        await until(lambda: len(set(server.workers()) - {one}) == len(before))
        await fill(server, times=50)
        assert (await end(server))[0] == 0


async def test_a_reload_succeeds(database_url: str) -> None:
    async with unread(database_url) as server:
        await fill(server)
        before = set(server.workers())
        server.process.send_signal(signal.SIGHUP)
        await until(lambda: server.workers() and not before & set(server.workers()))
        await fill(server)
        assert (await end(server))[0] == 0


async def test_dropped_lines_are_counted_and_reported_once(database_url: str) -> None:
    """When the log is read again, there are complete lines, and one line that reports how many are missing."""
    async with unread(database_url, "--log-format", "json") as server:
        # A line has more than 250 characters.
        asked = 5000
        await fill(server, asked)
        said = ""

        def lines() -> list[dict[str, object]]:
            nonlocal said
            said += server.read()
            return [json.loads(line) for line in said.splitlines(keepends=True) if line.endswith("\n")]

        def told() -> list[str]:
            return [str(line["message"]) for line in lines() if "dropped" in str(line["message"])]

        await until(told)
        figures = read((await get(server.port, "/-/metrics")).body.decode())
        dropped = int(figures["log_lines_dropped_total"][()])
        assert dropped > 0
        assert told() == [f"{dropped} lines of the log were dropped because nobody read them"]
        await until(lambda: sum(line["logger"] == "server.access" for line in lines()) == asked - dropped)
        assert (await end(server))[0] == 0


def test_a_failed_start_prints_the_reason() -> None:
    command = [sys.executable, "-m", "server", "serve", "--port", "0", "--database-url", "postgresql://a@127.0.0.1:1/a"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    told = "Error: the database at 127.0.0.1:1 cannot be reached: "
    assert (done.returncode, done.stderr.splitlines()[-1].startswith(told)) == (1, True)
