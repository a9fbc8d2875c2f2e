"""SIGTERM while requests are under way: what is at work may finish, what has not all arrived is not waited for."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from tests.http.conftest import MEDIA_TYPE
from tests.http.test_process import serving
from tests.http.wire import Wire, connected

GROUP = json.dumps({"data": {"type": "group", "attributes": {"name": "rowers"}}}).encode()
HEAD = ("POST /groups HTTP/1.1", f"Content-Type: {MEDIA_TYPE}", f"Content-Length: {len(GROUP)}")
WAITING = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'waterspout' AND wait_event_type = 'Lock'
"""


@pytest.fixture
def process(database_url: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    with serving("--port", "0", "--database-url", database_url) as (process, address):
        yield process, int(address.rpartition(":")[2])


async def send_half(wire: Wire, framing: str = HEAD[2], body: bytes = GROUP[:20]) -> None:
    """Returns once the server is at work on the request and awaits the rest."""
    await wire.send(*HEAD[:2], framing, "Expect: 100-continue")
    assert (await wire.answer()).status == 100
    await wire.send_bytes(body)


async def is_refused(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionError:
        # Reset, where it was accepted at the last moment.
        return True
    writer.close()
    return False


async def stopping(process: subprocess.Popen[str], port: int) -> None:
    """Sends SIGTERM and waits until the stop has begun."""
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(10):
        while not await is_refused(port):
            pass


async def ended(process: subprocess.Popen[str]) -> int:
    return await asyncio.to_thread(process.wait, 20)


@asynccontextmanager
async def raw(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def test_half_a_body_is_not_waited_for_but_work_is(
    process: tuple[subprocess.Popen[str], int], database_url: str
) -> None:
    """The half ones are let go long before the 25 seconds are over; the one at work outlives them and is answered."""
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
        async with asyncio.timeout(10), raw(database_url) as watcher:
            while not await watcher.fetchval(WAITING):
                pass
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


async def test_half_a_body_that_begins_during_the_stop(process: tuple[subprocess.Popen[str], int]) -> None:
    """On a connection that was there before."""
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
