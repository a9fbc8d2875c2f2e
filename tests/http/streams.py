"""Helpers for tests of streams: small batches, many rows, and a client that reads as slowly as a test wants.

In: the port of a server. Out: the pieces of its answers, and how they ended."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from server.execution import streams
from tests.first_rows import set_first_rows
from tests.http.conftest import Api
from tests.waiting import until

SECONDS = 60.0
"""The limit for any wait. A test that reaches it fails."""

MANY_ROWS = """
    INSERT INTO groups (name) SELECT 'group ' || n FROM generate_series(1, 10) n;
    INSERT INTO users (first_name, last_name, age, group_id)
        SELECT 'first ' || n, 'last ' || n % 100, n % 80, 1 + n % 10 FROM generate_series(1, $users) n;
    INSERT INTO computers (name, owner_id) SELECT 'computer ' || n, 1 + n % $users FROM generate_series(1, $computers) n
"""


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers with more than two rows are streamed, two rows at a time."""
    set_first_rows(monkeypatch, 1)
    monkeypatch.setattr(streams, "BATCH_ROWS", 2)
    monkeypatch.setattr(streams, "BATCH_LINKAGE", 2)


async def create_many(api: Api, users: int, computers: int = 0) -> None:
    for statement in MANY_ROWS.split(";"):
        await api.sql(statement.replace("$users", str(users)).replace("$computers", str(computers)))
    await api.sql("ANALYZE")


class Reader:
    """A client that reads only what a test asks for. Its buffer is small, so that the server's buffer becomes full."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, path: str, method: str = "GET", version: str = "1.1", *headers: str) -> tuple[int, list[str]]:
        """Return the status and the lines of headers."""
        lines = [f"{method} {path} HTTP/{version}", "Host: localhost", *headers, "", ""]
        self._writer.write("\r\n".join(lines).encode())
        async with asyncio.timeout(SECONDS):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        first, *others = head.split("\r\n")[:-2]
        return int(first.split(" ")[1]), others

    async def some(self) -> bytes:
        """Return the next bytes as they come, with the framing of chunks."""
        async with asyncio.timeout(SECONDS):
            return await self._reader.read(1 << 16)

    async def chunks(self) -> tuple[bytes, bool]:
        """Return the body up to its end or the end of the connection, and whether it had its last chunk."""
        body = []
        try:
            async with asyncio.timeout(SECONDS):
                while size := int(await self._reader.readuntil(b"\r\n"), 16):
                    body.append((await self._reader.readexactly(size + 2))[:-2])
                await self._reader.readexactly(2)
        except (asyncio.IncompleteReadError, ConnectionResetError):
            return b"".join(body), False
        return b"".join(body), True

    async def rest(self) -> bytes:
        """Return all bytes until the connection ends. Raises ConnectionResetError if it is reset."""
        async with asyncio.timeout(SECONDS):
            return await self._reader.read()

    def leave(self) -> None:
        self._writer.transport.abort()


@asynccontextmanager
async def reading(port: int) -> AsyncIterator[Reader]:
    own = socket.socket()
    own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    own.setblocking(False)
    await asyncio.get_running_loop().sock_connect(own, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=own, limit=1 << 14)
    try:
        yield Reader(reader, writer)
    finally:
        writer.close()


async def until_sessions(api: Api, condition: str) -> None:
    """Wait until the connections of the server to PostgreSQL are in this state. Fails after a while."""
    statement = f"SELECT {condition} FROM pg_stat_activity WHERE datname=current_database() AND application_name=$1"
    await until(lambda: api.sql(statement, "waterspout"), lambda rows: rows[0][0])
