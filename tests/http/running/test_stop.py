"""SIGTERM during requests: requests in progress are finished, incomplete requests are not waited for."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from server.http.transport import connections
from server.observing.shared_counters import SharedCounters
from server.processes import worker
from server.processes.listening import listen
from server.processes.reports import Reports
from server.processes.stop_times import SLACK_SECONDS
from server.settings import Settings
from server.startup.start import declarations, prepare_database
from tests.http.conftest import MEDIA_TYPE
from tests.http.running.test_process import serving
from tests.http.wire import Wire, connected
from tests.ready import port_of
from tests.waiting import until

GROUP = json.dumps({"data": {"type": "group", "attributes": {"name": "rowers"}}}).encode()
HEAD = ("POST /groups HTTP/1.1", f"Content-Type: {MEDIA_TYPE}", f"Content-Length: {len(GROUP)}")
WAITING = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'waterspout' AND wait_event_type = 'Lock'
"""


@pytest.fixture
def process(database_url: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    with serving("--port", "0", "--database-url", database_url) as (process, address):
        yield process, port_of(address)


async def send_half(wire: Wire, framing: str = HEAD[2], body: bytes = GROUP[:20]) -> None:
    """Send half of a body. Returns when the server waits for the rest."""
    await wire.send(*HEAD[:2], framing, "Expect: 100-continue")
    assert (await wire.answer()).status == 100
    await wire.send_bytes(body)


async def is_refused(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionError:
        # It is reset if it was accepted at the last moment.
        return True
    writer.close()
    return False


async def stopping(process: subprocess.Popen[str], port: int) -> None:
    """Send SIGTERM and wait until the stop has begun."""
    process.send_signal(signal.SIGTERM)
    await until(lambda: is_refused(port))


async def ended(process: subprocess.Popen[str]) -> int:
    return await asyncio.to_thread(process.wait, 20)


@asynccontextmanager
async def raw(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def test_a_stop_waits_for_work_but_not_for_incomplete_bodies(
    process: tuple[subprocess.Popen[str], int], database_url: str
) -> None:
    """Connections with incomplete bodies are closed long before the 25 seconds are over. The running request outlives
    them and is answered."""
    program, port = process
    async with (
        raw(database_url) as holder,
        connected(port) as half,
        connected(port) as chunked,
        connected(port) as work,
    ):
        await holder.execute("BEGIN; LOCK TABLE groups IN ACCESS EXCLUSIVE MODE")
        await send_half(half)
        await send_half(chunked, "Transfer-Encoding: chunked", b'8\r\n{"data":\r\n')
        await work.send(*HEAD, body=GROUP)
        async with raw(database_url) as watcher:
            await until(lambda: watcher.fetchval(WAITING))
        program.send_signal(signal.SIGTERM)
        assert await half.rest() == b""
        assert await chunked.rest() == b""
        await holder.execute("COMMIT")
        assert (await work.answer()).status == 201
    assert await ended(program) == 0


async def test_a_body_that_arrives_during_the_stop(process: tuple[subprocess.Popen[str], int]) -> None:
    program, port = process
    async with connected(port) as wire:
        await send_half(wire)
        await stopping(program, port)
        await wire.send_bytes(GROUP[20:])
        assert (await wire.answer()).status == 201
    assert await ended(program) == 0


async def test_an_incomplete_body_that_begins_during_the_stop(process: tuple[subprocess.Popen[str], int]) -> None:
    """On a connection that was open before."""
    program, port = process
    async with connected(port) as first, connected(port) as second:
        await send_half(first)
        await second.send("GET /-/live HTTP/1.1")
        assert (await second.answer()).status == 200
        await stopping(program, port)
        await second.send(*HEAD, body=GROUP[:20])
        assert await second.rest() == b""
        assert await first.rest() == b""
    assert await ended(program) == 0


class SlowTracer:
    """A tracer whose collector does not answer."""

    def __getattr__(self, _: str) -> Any:
        return lambda *_: None

    def close(self, _: float) -> None:
        time.sleep(0.2)


async def test_the_longest_stop_stays_within_its_limit(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every part of the stop takes all of its time (server/processes/stop_times.py)."""
    times = {"FINISH_SECONDS": 0.3, "LAST_PROBE_SECONDS": 0.1, "STOP_REASON_SECONDS": 0.1}
    for name, seconds in times.items():
        monkeypatch.setattr(worker, name, seconds)
    monkeypatch.setattr(connections, "CLOSING_SECONDS", 0.2)
    monkeypatch.setattr("server.observing.telemetry._tracer", SlowTracer)
    monkeypatch.setattr(worker.memory, "tune_memory", lambda: None)
    settings = Settings(port=0, admin_port=0, database_url=database_url, tracing=True)
    listening, declared, counters = listen(settings), declarations(settings), SharedCounters()
    ports = [sockets[0].getsockname()[1] for sockets in (listening.main, listening.admin)]
    schema = await prepare_database(database_url, settings, declared)
    context = worker.WorkerContext(1, Reports(), counters)
    answering = asyncio.create_task(worker.run_worker(listening, database_url, settings, declared, schema, context))
    async with raw(database_url) as holder, connected(ports[0]) as work, connected(ports[1]) as probe:
        await holder.execute("BEGIN; LOCK TABLE groups IN ACCESS EXCLUSIVE MODE")
        await work.send(*HEAD, body=GROUP)
        await probe.send_bytes(b"GET /-/live HTTP/1.1\r\n")
        async with asyncio.timeout(60), raw(database_url) as watcher:
            while not await watcher.fetchval(WAITING):
                pass
        began = time.monotonic()
        counters.mark_stopping()
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(answering, SLACK_SECONDS + 5)
        took = time.monotonic() - began
    asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
    most = sum(times.values()) + 0.2 + 0.2
    assert most - 0.3 < took < most + SLACK_SECONDS
