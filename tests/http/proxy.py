"""A TCP proxy between the server and PostgreSQL that cuts a connection when it forwards certain bytes.

In: the URL of a database, and bytes of the frontend's protocol. Out: a URL of the same database through the proxy. It
must not know the server's code."""

from __future__ import annotations

import asyncio
from typing import Literal
from urllib.parse import parse_qs, urlsplit, urlunsplit

Moment = Literal["before", "after"]


class Proxy:
    """The proxy. cuts: how many connections it has cut."""

    def __init__(self, database_url: str) -> None:
        parts = urlsplit(database_url)
        asked = parse_qs(parts.query)
        self._host = asked.get("host", [parts.hostname or "localhost"])[0]
        self._port = int(asked.get("port", [str(parts.port or 5432)])[0])
        self._parts = parts
        self._cut: tuple[bytes, Moment] | None = None
        self._times = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.cuts = 0

    async def open(self) -> str:
        """Return the URL to connect to, without TLS, because the proxy must see the bytes."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        user, at, _ = self._parts.netloc.rpartition("@")
        return urlunsplit(self._parts._replace(netloc=f"{user}{at}127.0.0.1:{port}", query="sslmode=disable"))

    async def close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut_at(self, sent: bytes, moment: Moment, times: int = 1) -> None:
        """Cut the next connections on which the client sends these bytes, either before PostgreSQL gets them, or after
        it has answered. In both cases the client gets no answer."""
        self._cut, self._times = (sent, moment), times

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            server_reader, server_writer = await self._connect()
            back = asyncio.ensure_future(_pass_on(server_reader, writer))
            try:
                moment = await self._pass_until_cut(reader, server_writer)
                back.cancel()
                await asyncio.wait([back])
                if moment == "after":
                    await server_reader.read(1 << 16)
            finally:
                back.cancel()
                server_writer.close()
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._host.startswith("/"):
            return await asyncio.open_unix_connection(f"{self._host}/.s.PGSQL.{self._port}")
        return await asyncio.open_connection(self._host, self._port)

    async def _pass_until_cut(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Moment | None:
        """Forward bytes. Returns None at the end of the connection."""
        while data := await reader.read(1 << 16):
            if self._cut is None or self._cut[0] not in data or not self._times:
                writer.write(data)
                continue
            moment = self._cut[1]
            self._times -= 1
            self.cuts += 1
            if moment == "after":
                writer.write(data)
            return moment
        return None


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
    writer.close()
