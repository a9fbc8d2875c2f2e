"""Runs attacks on a server, and measures the latency of other clients meanwhile.

In: the port of a server that runs as a separate program. Out: connections that misbehave for as long as a block lasts;
latencies; memory. It must not know the server's code."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import psutil  # type: ignore[import-untyped]  # it has no hints of its own

from tests.http.conftest import MEDIA_TYPE
from tests.http.wire import connected

"""More than any wait here takes: a test that waits for it fails."""

SLOWER = 10
BEARABLE_SECONDS = 0.15
"""The latency of other clients that is always acceptable during an attack, because the machine of the tests also runs
the attack."""

PIECE = b" " * 0x40000

_BIND_ADDRESS_NO_PORT = 24
"""The socket option of ip(7)."""

Reader, Writer = asyncio.StreamReader, asyncio.StreamWriter
Attack = Callable[[Reader, Writer], Awaitable[None]]


async def latency(port: int, path: str = "/groups/1", times: int = 100) -> float:
    """Return the 95th percentile of requests on one kept connection, in seconds."""
    taken = []
    async with connected(port) as wire:
        for _ in range(times):
            begin = time.perf_counter()
            await wire.send(f"GET {path} HTTP/1.1")
            assert (await wire.answer()).status == 200
            taken.append(time.perf_counter() - begin)
    return sorted(taken)[times * 19 // 20]


def is_bearable(before: float, now: float) -> bool:
    return now < max(SLOWER * before, BEARABLE_SECONDS)


@asynccontextmanager
async def attacked(
    port: int, count: int, attack: Attack, source: str = "127.0.0.1"
) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Yield the attacks, all of which are connected. An attack ends when the server closes its connection. source: the
    address of the clients."""
    pairs = [await _connect(port, source) for _ in range(count)]
    tasks = [asyncio.ensure_future(_run(attack, *pair)) for pair in pairs]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for _, writer in pairs:
            writer.transport.abort()


async def _connect(port: int, source: str) -> tuple[Reader, Writer]:
    """Connect with a small buffer, so that the server's buffer becomes full."""
    own = socket.socket()
    # The port is chosen at the connect, so ports that are used for other destinations are available, too.
    own.setsockopt(socket.SOL_IP, _BIND_ADDRESS_NO_PORT, 1)
    own.bind((source, 0))
    own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    own.setblocking(False)
    await asyncio.get_running_loop().sock_connect(own, ("127.0.0.1", port))
    return await asyncio.open_connection(sock=own, limit=4096)


async def _run(attack: Attack, reader: Reader, writer: Writer) -> None:
    try:
        with suppress(OSError, EOFError):
            await attack(reader, writer)
    finally:
        writer.transport.abort()


async def idle(reader: Reader, _: Writer) -> None:
    await reader.read()


def slow_head(pause_seconds: float) -> Attack:
    return _trickle(b"GET /groups/1 HTTP/1.1\r\nHost: localhost\r\nX: ", pause_seconds)


def slow_body(pause_seconds: float) -> Attack:
    head = f"POST /groups HTTP/1.1\r\nHost: localhost\r\nContent-Type: {MEDIA_TYPE}\r\nContent-Length: 100000\r\n\r\n"
    return _trickle(head.encode(), pause_seconds)


def _trickle(first: bytes, pause_seconds: float, *, is_answered: bool = False) -> Attack:
    """Send a byte from time to time, until there is an answer if is_answered, or else until the connection ends."""

    async def attack(reader: Reader, writer: Writer) -> None:
        writer.write(first)
        answered = asyncio.ensure_future(reader.read(-1 if is_answered else 1))
        while not (await asyncio.wait([answered], timeout=pause_seconds))[0]:
            writer.write(b"x")
        await answered

    return attack


def never_reads(path: str) -> Attack:
    """Send a request and never read the answer. The client does not notice the end of the connection either, so its
    task ends with the test."""

    async def attack(_: Reader, writer: Writer) -> None:
        reading: asyncio.ReadTransport = writer.transport  # type: ignore[assignment]  # it is both
        reading.pause_reading()
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        await asyncio.Event().wait()

    return attack


def slow_chunks(pause_seconds: float) -> Attack:
    head = (
        f"POST /groups HTTP/1.1\r\nHost: localhost\r\nContent-Type: {MEDIA_TYPE}\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    return _trickle(head.encode() + b"ffff\r\n", pause_seconds)


def lingers(pause_seconds: float) -> Attack:
    """Stay connected after the last answer."""
    return _trickle(b"no request\r\n\r\n", pause_seconds, is_answered=True)


def never_reads_pipeline(path: str) -> Attack:
    """Send more requests than the server reads at once, and read no answer."""

    async def attack(_: Reader, writer: Writer) -> None:
        reading: asyncio.ReadTransport = writer.transport  # type: ignore[assignment]  # it is both
        reading.pause_reading()
        while True:
            writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * 1000)
            await writer.drain()

    return attack


def large_body(size: int, *, is_chunked: bool) -> Attack:
    """Send all of the body, whatever the server answers, unless it closes the connection."""

    async def attack(_: Reader, writer: Writer) -> None:
        framing = "Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {size}"
        head = f"POST /groups HTTP/1.1\r\nHost: localhost\r\nContent-Type: {MEDIA_TYPE}\r\n{framing}\r\n\r\n"
        writer.write(head.encode())
        for _ in range(size // len(PIECE)):
            writer.write(b"40000\r\n" + PIECE + b"\r\n" if is_chunked else PIECE)
            await writer.drain()

    return attack


class Memory:
    """The memory of a process in bytes, relative to that at creation. most: the highest measurement."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._before: int = self._process.memory_info().rss
        self.most = 0

    def now(self) -> int:
        growth: int = self._process.memory_info().rss - self._before
        self.most = max(self.most, growth)
        return growth
