"""Row security through a real pgbouncer in transaction mode. The connections of a server share three backends."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Iterator
from contextlib import suppress

import asyncpg
import pytest
from tornado.ioloop import IOLoop

from server.postgres.opening import open_alone
from server.settings import Settings, StartError
from tests.conftest import on_server
from tests.faults.cluster import Cluster
from tests.faults.pgbouncer import pgbouncer
from tests.first_rows import set_first_rows
from tests.http.access.test_row_security import post, update
from tests.http.access.test_row_security_leaks import (
    UNKNOWN,
    check_first_posts,
    check_nothing_left,
    check_role,
    end,
    locked,
    run,
    until_waiting,
)
from tests.http.supabase import ANN, CYD, POSTS, Open, Shop, as_authenticator
from tests.waiting import until

PATHS = ["/posts?sort=id", "/posts?sort=id&include=author,team", "/posts?sort=id&filter[id][gt]=0"]


@pytest.fixture
def pooled(io_loop: IOLoop, shop_cluster: Cluster, shop_url: str, open_shop: Open) -> Iterator[Shop]:
    """Yield a server behind pgbouncer, with more connections than there are backends."""
    on_server(shop_cluster.url(), *allowed(io_loop, shop_url))
    try:
        with pgbouncer(shop_cluster, shop_url.partition("?")[0].rpartition("/")[2], "authenticator") as port:
            url = shop_url.replace(f":{shop_cluster.port}/", f":{port}/")
            yield io_loop.run_sync(lambda: open_shop(url=url, pooler="transaction", pool_size=8))
    finally:
        on_server(shop_cluster.url(), "ALTER ROLE authenticator RESET ALL")


def allowed(io_loop: IOLoop, url: str) -> list[str]:
    """Return the statements that the server asks for when it refuses to start."""
    with pytest.raises(StartError) as refused:
        io_loop.run_sync(lambda: open_alone(as_authenticator(url), Settings(pooler="transaction")))
    return re.findall(r"\n  (ALTER ROLE .*);", str(refused.value))


async def test_principals_at_once(pooled: Shop) -> None:
    chosen = random.Random(3)

    async def ask() -> None:
        for _ in range(20):
            sub, path = chosen.choice(list(POSTS)), chosen.choice(PATHS)
            answer = await pooled.get(sub, path)
            assert (answer.status, answer.ids) == (200, POSTS[sub]), answer.body

    await asyncio.gather(*[ask() for _ in range(16)])
    await check_nothing_left(pooled)


async def test_writes(pooled: Shop) -> None:
    for number in range(5):
        created = await pooled.request(ANN, "POST", "/posts", post(f"new {number}", ANN))
        assert created.status == 201, created.body
        path = f"/posts/{created.document['data']['id']}"
        document = update(created.document["data"]["id"], title=f"newer {number}")
        assert (await pooled.request(CYD, "PATCH", path, document)).status == 404
        assert (await pooled.request(ANN, "PATCH", f"{path}?include=author", document)).status == 200
        assert (await pooled.request(None, "DELETE", path)).status == 401
        assert (await pooled.request(ANN, "DELETE", path)).status == 200
    await check_nothing_left(pooled)


async def test_streams(pooled: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    set_first_rows(monkeypatch, 0, pooled.api.app.engine)
    for _ in range(3):
        found = await asyncio.gather(*[pooled.get(sub, "/posts?page[size]=0&sort=id&include=author") for sub in POSTS])
        assert [answer.ids for answer in found] == list(POSTS.values())
    await check_nothing_left(pooled)


@pytest.mark.parametrize("path", ["/posts", "/posts?include=author"])
async def test_a_backend_is_terminated(pooled: Shop, path: str) -> None:
    async with locked(pooled) as owner:
        asked = asyncio.create_task(pooled.get(ANN, path))
        await until_waiting(owner)
        await until(lambda: end(owner, asked), pause_seconds=0.05)
        assert (await asked).status == 503
    # pgbouncer waits before it logs in again.
    await until(lambda: is_good(pooled))
    await check_nothing_left(pooled)


async def is_good(pooled: Shop) -> bool:
    answers = [await pooled.get(None, "/posts") for _ in range(8)]
    return all(answer.status == 200 for answer in answers)


async def test_a_statement_is_cancelled(pooled: Shop) -> None:
    for path in PATHS:
        async with locked(pooled) as owner:
            asked = asyncio.create_task(pooled.get(ANN, path))
            await owner.execute("SELECT pg_cancel_backend($1)", await until_waiting(owner))
            assert (await asked).status == 504
        await check_nothing_left(pooled)


async def test_a_migration_makes_descriptions_stale(pooled: Shop) -> None:
    for statement in (
        "ALTER TABLE posts ALTER COLUMN title TYPE varchar(100)",
        "ALTER TABLE posts ALTER COLUMN title TYPE text",
    ):
        for _ in range(4):
            await check_first_posts(pooled)
        await run(pooled, statement)
        for _ in range(4):
            await check_first_posts(pooled)


async def test_statements_for_which_the_driver_asks_more(pooled: Shop) -> None:
    await run(pooled, "CREATE TYPE mood AS ENUM ('new')")
    for sql in UNKNOWN.values():
        for is_snapshot in (False, True):
            await asyncio.gather(*[check_role(pooled, sql, is_snapshot=is_snapshot) for _ in range(8)])
    await check_nothing_left(pooled)


async def test_clients_that_leave(pooled: Shop) -> None:
    for _ in range(20):
        with suppress(TimeoutError, asyncpg.PostgresError):
            async with asyncio.timeout(0.003):
                await pooled.get(ANN, PATHS[1])
    await check_nothing_left(pooled)
