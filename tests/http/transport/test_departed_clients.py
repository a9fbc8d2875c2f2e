"""A client that disconnects is noticed while its request is in progress, however much it has sent after it, and its
statement is cancelled. Over a real socket, in the event loop of the server."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress

import pytest

from server.http.transport import http1
from server.resources import built_in
from tests.http.conftest import Start
from tests.http.running.test_limits import holder, until_waiting
from tests.http.server_loop import io_loop
from tests.http.wire import connected

__all__ = ["io_loop"]

GET = b"GET /groups HTTP/1.1\r\nHost: localhost\r\n\r\n"
NOTICED_SECONDS = 60.0
"""It takes about one second; the rest is for a busy machine. The statement would wait longer."""


async def sent(port: int, data: bytes) -> socket.socket:
    """Return a connection on which as much of the data was sent as the buffers of both systems hold."""
    client = socket.socket()
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", port))
    view = memoryview(data)
    while view:
        try:
            view = view[client.send(view) :]
            await asyncio.sleep(0.001)
        except BlockingIOError:
            break
    return client


def leave(client: socket.socket, way: str) -> None:
    if way == "half":
        client.shutdown(socket.SHUT_WR)
        return
    if way == "reset":
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


@pytest.mark.parametrize("way", ["close", "half", "reset"])
@pytest.mark.parametrize("behind", [0, 100_000, 20_000_000], ids=["nothing", "more than is kept", "full buffers"])
async def test_a_client_that_leaves(start: Start, database_url: str, behind: int, way: str) -> None:
    """A connection that is closed in one direction counts as closed."""
    api = await start(database_url, built_in())
    async with holder(api) as watcher:
        client = await sent(api.port, GET * (1 + behind // len(GET)))
        await until_waiting(watcher, 1)
        leave(client, way)
        async with asyncio.timeout(NOTICED_SECONDS):
            await until_waiting(watcher, 0)
        client.close()


async def test_a_client_that_stays(start: Start, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets the answer to the slow request, with `Connection: close`: the other requests must be sent again."""
    monkeypatch.setattr(http1, "PAUSED_SECONDS", 0.1)
    api = await start(database_url, built_in())
    async with connected(api.port) as wire:
        async with holder(api) as watcher:
            await wire.send_bytes(GET * (100_000 // len(GET)))
            await until_waiting(watcher, 1)
            # More than the buffers of the systems: it is read and discarded.
            await wire.send_bytes(GET * (12_000_000 // len(GET)))
        answer = await wire.answer()
        assert (answer.status, answer.headers["Connection"]) == (200, "close")
        assert await wire.rest() == b""


async def test_a_client_that_keeps_sending(start: Start, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server discards a limited number of bytes. Then it resets the connection and cancels the statement."""
    monkeypatch.setattr(http1, "PAUSED_SECONDS", 0.1)
    monkeypatch.setattr(http1, "DISCARDED_BYTES", 1_000_000)
    api = await start(database_url, built_in())
    async with holder(api) as watcher, connected(api.port) as wire:
        with suppress(ConnectionError):
            for _ in range(1000):
                await wire.send_bytes(GET * 1000)
        await until_waiting(watcher, 0)


async def test_many_requests_at_once_are_all_answered(start: Start, database_url: str) -> None:
    """Reading pauses and resumes. Nothing is discarded while answers are sent."""
    api = await start(database_url, built_in())
    request, count = GET[:-2] + b"X: " + b"x" * 2000 + b"\r\n\r\n", 150
    async with connected(api.port) as wire:
        sending = asyncio.ensure_future(wire.send_bytes(request * count))
        assert [(await wire.answer()).status for _ in range(count)] == [200] * count
        await sending
