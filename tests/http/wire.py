"""A client over bare sockets, for requests that no HTTP client sends.

In: the bytes to send. Out: answers as they come. It must not know the server's code."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tornado.httputil import HTTPHeaders

from tests.http.conftest import Answer

SECONDS = 60.0
"""The limit for any answer. A test that reaches it fails."""


class Wire:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, *lines: str, body: bytes = b"") -> None:
        """Send a request line and headers, with Host, and then the given part of a body."""
        head = "\r\n".join([*lines, "Host: localhost", "", ""])
        await self.send_bytes(head.encode("latin-1") + body)

    async def send_bytes(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def answer(self, *, has_body: bool = True) -> Answer:
        """Return the next answer. An informational one has no body."""
        async with asyncio.timeout(SECONDS):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            status_line, _, header_lines = head.partition("\r\n")
            status = int(status_line.split(" ")[1])
            headers = HTTPHeaders.parse(header_lines)
            length = int(headers.get("Content-Length", "0")) if has_body and status >= 200 else 0
            return Answer(status, headers, await self._reader.readexactly(length))

    async def rest(self) -> bytes:
        """Return all bytes until the server closes the connection."""
        async with asyncio.timeout(SECONDS):
            return await self._reader.read()


@asynccontextmanager
async def connected(port: int, source: str = "127.0.0.1") -> AsyncIterator[Wire]:
    """Yield a connection to the server. source: the address of the client."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
    try:
        yield Wire(reader, writer)
    finally:
        writer.close()
