"""Simulates the network between the server and PostgreSQL, which a test can cut. In: the port of a PostgreSQL. Out: a
port that forwards to it."""

from __future__ import annotations

import asyncio
import ctypes
import socket
import struct
import sys
from contextlib import suppress

import pytest

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="packets are dropped by a filter of Linux")
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
ATTACH_FILTER, DETACH_FILTER = 26, 27


class _Instruction(ctypes.Structure):
    """BPF_RET | BPF_K with 0: no byte of a packet is kept (Linux, Documentation/networking/filter.rst)."""

    _fields_ = (("code", ctypes.c_uint16), ("jt", ctypes.c_uint8), ("jf", ctypes.c_uint8), ("k", ctypes.c_uint32))


_NOTHING = _Instruction(0x06, 0, 0, 0)
DROP_ALL = struct.pack("HL", 1, ctypes.addressof(_NOTHING))


class Network:
    """A TCP proxy. Its side of each connection is a socket of this process, whose packets the kernel can drop."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listening: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: dict[asyncio.StreamWriter, tuple[asyncio.Task[None], asyncio.StreamWriter] | None] = {}
        """The connections, and what ends the other side of each: what reads from PostgreSQL, and what writes to it."""
        self._flows = asyncio.Event()
        self._flows.set()
        self.port = 0

    @property
    def _clients(self) -> list[asyncio.StreamWriter]:
        """The connections that can still be written to. uvloop has no socket for others."""
        return [writer for writer in self._writers if not writer.is_closing()]

    async def open(self) -> None:
        """Listen, also again after `refuse`."""
        self._listening = socket.create_server(("127.0.0.1", self.port), backlog=200)
        self.port = self._listening.getsockname()[1]
        self._server = await asyncio.start_server(self._connected, sock=self._listening)

    async def close(self) -> None:
        self.refuse()
        self.reset()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def reset(self) -> None:
        """End all connections without a message of PostgreSQL."""
        for writer in self._clients:
            _socket(writer).setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            writer.transport.abort()

    def say(self, words: bytes) -> None:
        """Send this to the server on all connections."""
        for writer in self._clients:
            writer.write(words)

    async def heard(self) -> None:
        """Wait until all of this has been sent, and the event loop, which the client shares, has had time to read
        it."""
        for writer in self._clients:
            await writer.drain()
        for _ in range(10):
            await asyncio.sleep(0)

    def refuse(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def swallow(self) -> None:
        """Accept everything that is sent and answer nothing."""
        self._flows.clear()

    def drop(self) -> None:
        """Drop all packets without an error."""
        self.swallow()
        for writer in self._clients:
            _socket(writer).setsockopt(socket.SOL_SOCKET, ATTACH_FILTER, DROP_ALL)
        assert self._listening is not None
        self._listening.setsockopt(socket.SOL_SOCKET, ATTACH_FILTER, DROP_ALL)

    def mend(self, *, forgotten: bool = False) -> None:
        """Let packets through again. forgotten: like a restarted firewall, which does not know the old connections.
        PostgreSQL has ended them then, because nobody answers its keepalive; this machine would go on to answer."""
        assert self._listening is not None
        for one in (self._listening, *(() if forgotten else map(_socket, self._clients))):
            with suppress(OSError):
                one.setsockopt(socket.SOL_SOCKET, DETACH_FILTER, 0)
        if forgotten:
            for ends in filter(None, self._writers.values()):
                ends[0].cancel()
                ends[1].transport.abort()
            self._writers.clear()
        self._flows.set()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers[writer] = None
        back: asyncio.Task[None] | None = None
        server: asyncio.StreamWriter | None = None
        try:
            # asyncio's streams log an error for a cancelled task.
            with suppress(OSError, asyncio.CancelledError):
                server_reader, server = await asyncio.open_connection("127.0.0.1", self._to)
                back = asyncio.ensure_future(self._pass_on(server_reader, writer))
                self._writers[writer] = back, server
                await self._pass_on(reader, server)
        finally:
            for end in (back, server, writer):
                if isinstance(end, asyncio.Task):
                    end.cancel()
                elif end is not None:
                    end.close()
            self._writers.pop(writer, None)
            self._tasks.discard(task)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                await self._flows.wait()
                if writer.is_closing():
                    # uvloop's streams cannot be written to any more.
                    break
                writer.write(data)
        writer.close()


def _socket(writer: asyncio.StreamWriter) -> socket.socket:
    found: socket.socket = writer.get_extra_info("socket")
    return found
