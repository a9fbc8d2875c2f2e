"""New connections go to the worker with the fewest, and persistent connections move there in time."""

from __future__ import annotations

import asyncio
import copy
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tornado.httputil import HTTPMessageDelegate, HTTPServerRequest, ResponseStartLine

from server.http.headers import Headers
from server.http.transport.connections import Server
from server.limits.balance import Balance
from tests.waiting import SECONDS, until

CLIENTS = 20


class Answering(HTTPMessageDelegate):
    def __init__(self, request: HTTPServerRequest) -> None:
        self.exchange: Any = request.connection

    def finish(self) -> None:
        asyncio.get_running_loop().call_soon(self.answer)

    def answer(self) -> None:
        self.exchange.write_headers(ResponseStartLine("", 200, "OK"), Headers({"Content-Length": ["0"]}))
        self.exchange.finish()


@asynccontextmanager
async def workers(count: int) -> AsyncIterator[tuple[list[Server], list[Balance], int]]:
    """Yield servers that share one listening socket like workers, and its port."""
    balance = Balance(2 * count)
    # In reality each is in its own process; the memory is the same.
    balances = [copy.copy(balance) for _ in range(count)]
    with socket.create_server(("127.0.0.1", 0), backlog=CLIENTS) as listening:
        servers = [Server(Answering, balance=own) for own in balances]
        for place, (server, own) in enumerate(zip(servers, balances, strict=True)):
            own.claim(place)
            own.join()
            server.add_sockets([listening.dup()])
        try:
            yield servers, balances, listening.getsockname()[1]
        finally:
            for server in servers:
                server.stop()
                await server.close_all_connections()


@asynccontextmanager
async def connected(port: int, count: int) -> AsyncIterator[list[asyncio.StreamWriter]]:
    writers = [(await asyncio.open_connection("127.0.0.1", port))[1] for _ in range(count)]
    try:
        yield writers
    finally:
        for writer in writers:
            writer.close()


async def until_taken(servers: list[Server], count: int) -> list[int]:
    await until(lambda: sum(server.connections for server in servers) == count)
    return [server.connections for server in servers]


async def test_workers_share_new_connections_equally() -> None:
    async with workers(2) as (servers, _, port), connected(port, CLIENTS):
        assert await until_taken(servers, CLIENTS) == [CLIENTS / 2, CLIENTS / 2]


async def test_connections_that_end_make_room() -> None:
    async with workers(2) as (servers, _, port), connected(port, CLIENTS) as writers:
        await until_taken(servers, CLIENTS)
        for writer in writers[: CLIENTS // 2]:
            writer.close()
        await until_taken(servers, CLIENTS // 2)
        async with connected(port, CLIENTS // 2):
            few, many = sorted(await until_taken(servers, CLIENTS))
            # The event loop decides which of the two notices an end first.
            assert many - few <= 4


async def test_a_worker_that_accepts_nothing_does_not_delay_the_others() -> None:
    """The worker hangs, or has just died."""
    async with workers(1) as (servers, [balance], port):
        other = copy.copy(balance)
        other.claim(1)
        other.join()
        async with connected(port, CLIENTS):
            assert balance.is_ahead
            assert await until_taken(servers, CLIENTS) == [CLIENTS]


async def test_a_stop_accepts_the_connections_in_the_backlog() -> None:
    """Otherwise the system would reset them, and their requests would be lost."""
    async with workers(1) as ([server], _, port):
        with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            server.stop()
            server.end_after_answers()
            async with asyncio.timeout(SECONDS):
                await server.wait_until_empty()
            assert client.recv(1000).startswith(b"HTTP/1.1 200 OK\r\n")


async def test_a_stopped_worker_is_not_waited_for() -> None:
    async with workers(2) as (servers, balances, port):
        servers[1].stop()
        balances[1].leave()
        async with connected(port, CLIENTS):
            await until_taken(servers, CLIENTS)
            assert not balances[0].is_ahead


class Client:
    """A client with a persistent connection."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.times_connected = 0
        self.writer: asyncio.StreamWriter | None = None

    async def ask(self) -> None:
        """Send a request. Raises if there is no complete answer."""
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
            self.times_connected += 1
        self.writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head = await self.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        if b"\r\nConnection: close\r\n" in head:
            assert await self.reader.read() == b""
            self.close()

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None


async def test_persistent_connections_move_to_a_later_worker() -> None:
    """Not all at once, and no more than necessary."""
    async with workers(1) as ([first], [own], port):
        clients = [Client(port) for _ in range(CLIENTS)]
        try:
            await asyncio.gather(*(one.ask() for one in clients))
            later = copy.copy(own)
            later.claim(1)
            later.join()
            second = Server(Answering, balance=later)
            second.add_sockets([first._sockets[0].dup()])
            given_away = []
            async with asyncio.timeout(SECONDS):
                while own.excess or not given_away:
                    await asyncio.gather(first.check_timeouts(), second.check_timeouts())
                    given_away.append(first.shed_next)
                    await asyncio.gather(*(one.ask() for one in clients))
                    assert first.shed_next == 0
                    # Shed clients reconnect before the next check.
                    await asyncio.gather(*(one.ask() for one in clients if one.writer is None))
                    await until_taken([first, second], CLIENTS)
            # At the first check it may be chance.
            assert given_away[:2] == [0, 3]
            assert max(given_away) == 3
            assert sum(one.times_connected for one in clients) == CLIENTS + sum(given_away)
            assert CLIENTS / 2 <= first.connections <= CLIENTS * 6 / 10
            second.stop()
            await second.close_all_connections()
        finally:
            for one in clients:
                one.close()


async def test_a_shed_that_was_not_used_does_not_accumulate() -> None:
    """Idle connections cost nothing, and the counts may have changed by the next check."""
    async with workers(1) as ([first], [own], port), connected(port, CLIENTS):
        await until_taken([first], CLIENTS)
        other = copy.copy(own)
        other.claim(1)
        other.join()
        for shed_next in (0, 3, 3):
            await first.check_timeouts()
            assert first.shed_next == shed_next
        other.set_count(CLIENTS)
        await first.check_timeouts()
        assert (first.shed_next, first.connections) == (0, CLIENTS)


def of(*counts: int) -> Balance:
    """Return the counts, as the first worker sees them."""
    balance = Balance(len(counts) + 1)
    for place, count in reversed(list(enumerate(counts))):
        balance.claim(place)
        balance.set_count(count)
    return balance


def test_workers_beyond_the_slots_are_not_compared() -> None:
    own = of(1000, 2)
    assert own.is_ahead
    own.claim(3)
    own.set_count(1000)
    own.free_slot(3)
    assert (own.is_ahead, own.excess) == (True, 499)


def test_a_killed_worker_is_not_compared() -> None:
    own = of(1000, 0)
    own.free_slot(1)
    assert (own.is_ahead, own.excess) == (False, 0)


@pytest.mark.parametrize(
    ("counts", "excess"),
    [
        ((16, 0), 8),
        ((16, 1), 7),
        ((11, 5), 3),
        ((10, 6), 0),
        ((1000, 600), 0),
        ((1000, 500), 250),
        ((0, 16), 0),
        ((2, 0), 0),
        ((4, 0), 2),
        ((8, 8, 0, 0), 4),
        ((8,), 0),
    ],
)
def test_excess_above_the_equal_share(counts: tuple[int, ...], excess: int) -> None:
    """A difference that is only chance is ignored."""
    assert of(*counts).excess == excess
