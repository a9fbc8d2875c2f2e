"""New connections go to the worker that has fewest."""

from __future__ import annotations

import asyncio
import copy
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tornado.routing import RuleRouter

from server.http.balance import PLACES, Balance
from server.http.connections import Server

CLIENTS = 20
SECONDS = 10.0


@asynccontextmanager
async def workers(count: int) -> AsyncIterator[tuple[list[Server], list[Balance], int]]:
    """Servers on one socket, as workers have it, and its port."""
    balance = Balance()
    # Of one process each in truth: the memory is the same.
    balances = [copy.copy(balance) for _ in range(count)]
    with socket.create_server(("127.0.0.1", 0), backlog=CLIENTS) as listening:
        servers = [Server(RuleRouter([]).find_handler, balance=own) for own in balances]
        for place, (server, own) in enumerate(zip(servers, balances, strict=True)):
            own.take(place)
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
    async with asyncio.timeout(SECONDS):
        while sum(server.connections for server in servers) != count:  # noqa: ASYNC110  (the server tells nobody)
            await asyncio.sleep(0.001)
    return [server.connections for server in servers]


async def test_each_has_its_share() -> None:
    async with workers(2) as (servers, _, port), connected(port, CLIENTS):
        assert await until_taken(servers, CLIENTS) == [CLIENTS / 2, CLIENTS / 2]


async def test_those_that_end_make_room() -> None:
    async with workers(2) as (servers, _, port), connected(port, CLIENTS) as writers:
        await until_taken(servers, CLIENTS)
        for writer in writers[: CLIENTS // 2]:
            writer.close()
        await until_taken(servers, CLIENTS // 2)
        async with connected(port, CLIENTS // 2):
            few, many = sorted(await until_taken(servers, CLIENTS))
            # Which of the two has heard of an end first is the loop's affair.
            assert many - few <= 4


async def test_one_that_takes_none_keeps_nobody_waiting() -> None:
    """It hangs, or has just died."""
    async with workers(1) as (servers, [balance], port):
        other = copy.copy(balance)
        other.take(1)
        other.join()
        async with connected(port, CLIENTS):
            assert balance.is_ahead
            assert await until_taken(servers, CLIENTS) == [CLIENTS]


async def test_one_that_stops_is_not_waited_for() -> None:
    async with workers(2) as (servers, balances, port):
        servers[1].stop()
        balances[1].leave()
        async with connected(port, CLIENTS):
            await until_taken(servers, CLIENTS)
            assert not balances[0].is_ahead


def test_places_beyond_those_that_there_are() -> None:
    own = Balance()
    own.take(PLACES)
    own.put(1000)
    assert not own.is_ahead
