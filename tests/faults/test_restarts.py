"""PostgreSQL ends while clients send requests, and comes back."""

from __future__ import annotations

import signal
import time

import pytest

from tests.faults.conftest import Serve, Shop
from tests.faults.load import at_work, settled
from tests.waiting import until

pytestmark = pytest.mark.alone

RECOVERY_SECONDS = 2.0


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["fast", "crash"])
async def test_postgresql_is_restarted(shop: Shop, serve_fast: Serve, how: signal.Signals) -> None:
    api = await serve_fast(shop.url)
    async with at_work(api) as load:
        for _ in range(3):
            await shop.cluster.restart(how)
            up = time.monotonic()
            await load.until_good(up)
            assert load.recovery_seconds(up) < RECOVERY_SECONDS
    await settled(load, shop.names)


async def test_backends_are_terminated(shop: Shop, serve_fast: Serve) -> None:
    """No read fails for it."""
    api = await serve_fast(shop.url)
    async with at_work(api) as load:
        for _ in range(12):
            begin = time.monotonic()
            ended = (
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1 AND application_name <> ''"
            )
            assert await shop.cluster.run(ended, shop.database)
            await load.until_good(begin, times=2)
    assert {one.outcome for one in load.answers if one.client in ("read", "include")} == {(200, "")}
    await settled(load, shop.names)


async def test_the_log_says_that_postgresql_is_unreachable_and_reachable_again(
    shop: Shop, serve_fast: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """Once each, for any number of requests."""
    api = await serve_fast(shop.url)
    assert (await api.get("/users/1")).status == 200
    shop.cluster.stop()
    assert {(await api.get("/users/1")).status for _ in range(5)} == {503}
    shop.cluster.start()
    await until(lambda: api.get("/users/1"), lambda answer: answer.status == 200, seconds=RECOVERY_SECONDS)
    told = [record.getMessage() for record in caplog.records if "reached" in record.getMessage()]
    assert [line.partition(":")[0] for line in told] == ["PostgreSQL cannot be reached", "PostgreSQL is reached again"]
