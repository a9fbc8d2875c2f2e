"""The network between the server and PostgreSQL fails, with or without an error."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Any

import pytest
from tornado.ioloop import IOLoop

from tests.faults.conftest import Serve, Shop
from tests.faults.load import at_work, settled
from tests.faults.network import RESET_ON_CLOSE, Network, needs_linux
from tests.waiting import until

pytestmark = pytest.mark.alone

RECOVERY_SECONDS = 2.0
LONGEST_SECONDS = 3.5
"""A statement has 1 second, the network half a second. A lost read is retried once, on a connection that has 1 second
to open."""


async def test_connections_are_reset(shop: Shop, network: Network, serve_fast: Serve) -> None:
    api = await serve_fast(shop.through(network.port))
    async with at_work(api) as load:
        for _ in range(12):
            reset = time.monotonic()
            network.reset()
            await load.until_good(reset, times=2)
    assert {one.outcome for one in load.answers if one.client in ("read", "include")} == {(200, "")}
    await settled(load, shop.names)


async def test_postgresql_does_not_listen_for_a_while(shop: Shop, network: Network, serve_fast: Serve) -> None:
    api = await serve_fast(shop.through(network.port))
    async with at_work(api) as load:
        network.refuse()
        network.reset()
        await load.until(lambda: sum(one.outcome == (503, "unavailable") for one in load.answers) > 20)
        await network.open()
        up = time.monotonic()
        await load.until_good(up)
        assert load.recovery_seconds(up) < RECOVERY_SECONDS
    await settled(load, shop.names)


@pytest.mark.parametrize("how", ["swallow", pytest.param("drop", marks=needs_linux)])
@pytest.mark.parametrize("forgotten", [False, True])
async def test_nothing_gets_through(shop: Shop, network: Network, serve_fast: Serve, how: str, forgotten: bool) -> None:
    """swallow: a machine accepts everything and answers nothing, so the system sees no error. drop: packets are lost,
    which the system notices."""
    api = await serve_fast(shop.through(network.port))
    async with at_work(api) as load:
        cut = time.monotonic()
        getattr(network, how)()
        # Each request was in progress when the fault began, and each got this error.
        await load.until(lambda: {one.client for one in load.answers if one.end > cut + 0.5} == set(load.clients))
        network.mend(forgotten=forgotten)
        up = time.monotonic()
        await load.until_good(up)
    assert load.recovery_seconds(up) < RECOVERY_SECONDS
    assert load.longest_seconds() < LONGEST_SECONDS
    told = (503, "unavailable") if how == "drop" else (504, "statement_timeout")
    assert told in {one.outcome for one in load.answers if one.client == "read" and one.begin < up}
    await settled(load, shop.names)


async def test_postgresql_is_frozen(shop: Shop, serve_fast: Serve) -> None:
    """Its system accepts what is sent, so neither it nor the network ends a statement."""
    api = await serve_fast(shop.url)
    async with at_work(api) as load:
        shop.cluster.freeze()
        cut = time.monotonic()
        try:
            await load.until(lambda: {one.client for one in load.answers if one.end > cut + 0.5} == set(load.clients))
        finally:
            shop.cluster.thaw()
        up = time.monotonic()
        await load.until_good(up)
    assert load.recovery_seconds(up) < RECOVERY_SECONDS
    assert load.longest_seconds() < LONGEST_SECONDS
    assert ("read", 504, "statement_timeout") in load.outcomes(cut)
    await settled(load, shop.names)


async def test_the_proxy_of_the_tests_reports_no_errors_of_closed_connections(io_loop: IOLoop) -> None:
    """Such errors would be taken for errors of the server."""
    told: list[dict[str, Any]] = []
    io_loop.asyncio_loop.set_exception_handler(lambda _, context: told.append(context))
    said: list[asyncio.StreamWriter] = []
    async with await asyncio.start_server(lambda _, writer: said.append(writer), "127.0.0.1", 0) as server:
        network = Network(server.sockets[0].getsockname()[1])
        await network.open()
        network.swallow()
        clients = [(await asyncio.open_connection("127.0.0.1", network.port))[1] for _ in range(3)]
        for client in clients:
            client.write(b"what does not arrive")
        await until(lambda: len(said) == 3)
        await network.heard()
        for writer in said:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            writer.transport.abort()
        await network.heard()
        network.mend()
        await network.heard()
        network.reset()
        network.say(b"more")
        await network.close()
        for client in clients:
            client.close()
    assert told == []
