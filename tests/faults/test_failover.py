"""A primary and its standby: the primary fails, and the standby is promoted."""

from __future__ import annotations

import asyncio
import math
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from server.postgres.connection import PostgresConnection
from server.postgres.hosts import Hosts
from tests.conftest import on_server
from tests.faults.cluster import Cluster
from tests.faults.conftest import Serve, Shop
from tests.faults.load import at_work, settled
from tests.faults.network import Network, needs_linux
from tests.waiting import until

pytestmark = pytest.mark.alone

RECOVERY_SECONDS = 2.0
SYNCHRONOUS = ("ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
ALONE = ("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
READ_ONLY = ("ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
READ_WRITE = ("ALTER SYSTEM RESET default_transaction_read_only", "SELECT pg_reload_conf()")


@pytest.fixture
def standby(shop: Shop, faults_folder: Path) -> Iterator[Cluster]:
    """Yield a standby of the shop's cluster, which is started again afterwards. It has all committed rows."""
    made = shop.cluster.copy_to(faults_folder / f"standby_of_{shop.database}")
    made.start()
    on_server(shop.cluster.url(), *SYNCHRONOUS)
    yield made
    if not shop.cluster.is_running:
        shop.cluster.start()
    on_server(shop.cluster.url(), *ALONE)
    made.stop()


def of_both(shop: Shop, standby: Cluster) -> str:
    return shop.url.replace(f":{shop.cluster.port}/", f":{shop.cluster.port},127.0.0.1:{standby.port}/")


async def names_at(cluster: Cluster, shop: Shop) -> Counter[str]:
    return await Shop(cluster, shop.database).names()


async def test_the_standby_takes_over(shop: Shop, standby: Cluster, serve_fast: Serve) -> None:
    """Before its promotion the standby answers reads."""
    api = await serve_fast(of_both(shop, standby))
    async with at_work(api) as load:
        await asyncio.to_thread(shop.cluster.stop, signal.SIGQUIT)
        down = time.monotonic()
        refused = [("create", 503, "unavailable"), ("operations", 503, "unavailable")]
        await load.until_answered(down, ("read", 200, ""), ("include", 200, ""), *refused)
        await standby.run("SELECT pg_promote()")
        up = time.monotonic()
        await load.until_good(up)
    assert load.recovery_seconds(up) < RECOVERY_SECONDS
    await settled(load, lambda: names_at(standby, shop))


async def test_the_old_primary_becomes_read_only(shop: Shop, standby: Cluster, serve_fast: Serve) -> None:
    """The server gives up its connections to the old primary, although they are open."""
    api = await serve_fast(of_both(shop, standby))
    async with at_work(api) as load:
        try:
            for statement in READ_ONLY:
                await shop.cluster.run(statement)
            begin = time.monotonic()
            await load.until_answered(begin, ("read", 200, ""), ("create", 503, "unavailable"))
            await standby.run("SELECT pg_promote()")
            up = time.monotonic()
            await load.until_good(up)
        finally:
            for statement in READ_WRITE:
                await shop.cluster.run(statement)
    assert load.recovery_seconds(up) < RECOVERY_SECONDS
    assert {one.outcome for one in load.answers if one.client in ("read", "include")} == {(200, "")}
    await settled(load, lambda: names_at(standby, shop))


@needs_linux
async def test_the_first_host_is_silent(shop: Shop, standby: Cluster, network: Network, serve_fast: Serve) -> None:
    """A host that does not answer must not prevent an attempt with the next one."""
    api = await serve_fast(of_both(shop, standby).replace(f":{shop.cluster.port},", f":{network.port},"))
    async with at_work(api) as load:
        network.drop()
        cut = time.monotonic()
        await standby.run("SELECT pg_promote()")
        await load.until_good(cut)
        again = time.monotonic()
        await load.until_good(again)
    # A statement in progress has 1 second to end, and the network half a second.
    assert load.recovery_seconds(cut) < 1.5 + RECOVERY_SECONDS
    assert {one.outcome[0] for one in load.answers if one.begin > again} <= {200, 201}
    await settled(load, lambda: names_at(standby, shop))


async def test_a_read_only_server(shop: Shop, serve_fast: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads work and writes fail. Another server is looked for from time to time, but not for each write."""
    connect, opened = Hosts.connect, list[float]()

    async def counted(hosts: Hosts, *values: object, **options: Any) -> PostgresConnection:
        opened.append(time.monotonic())
        return await connect(hosts, *values, **options)

    monkeypatch.setattr(Hosts, "connect", counted)
    api = await serve_fast(shop.url)
    async with at_work(api) as load:
        try:
            for statement in READ_ONLY:
                await shop.cluster.run(statement)
            begin = time.monotonic()
            refused = [("create", 503, "unavailable"), ("operations", 503, "unavailable")]
            await load.until(lambda: min(load.outcomes(begin)[outcome] for outcome in refused) > 20)
            looked = time.monotonic()
        finally:
            for statement in READ_WRITE:
                await shop.cluster.run(statement)
        up = time.monotonic()
        await load.until_good(up)
    assert load.recovery_seconds(up) < RECOVERY_SECONDS
    assert {one.outcome for one in load.answers if one.client in ("read", "include")} == {(200, "")}
    # As many as clients, each time.
    assert sum(begin <= at <= looked for at in opened) <= len(load.clients) * (1 + math.ceil(looked - begin))
    await settled(load, shop.names)


async def test_a_standby_ends_statements_to_keep_up(shop: Shop, standby: Cluster, serve_fast: Serve) -> None:
    """The statements are tried again. They conflict with a lock of the primary."""
    api = await serve_fast(Shop(standby, shop.database).url)
    conflicts = "SELECT confl_lock + confl_snapshot FROM pg_stat_database_conflicts WHERE datname = $1"

    async def in_its_way() -> bool:
        await shop.cluster.run_all("BEGIN; LOCK TABLE users, computers, groups; COMMIT", database=shop.database)
        return bool((await standby.run(conflicts, shop.database))[0][0])

    async with at_work(api, "read", "include") as load:
        await until(in_its_way)
        await load.until_good(time.monotonic())
