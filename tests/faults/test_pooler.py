"""A real pgbouncer in transaction mode between the server and PostgreSQL."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from server.postgres.opening import open_alone
from server.settings import Settings, StartError
from tests.faults.conftest import FAST, Serve, Shop
from tests.faults.load import at_work, outcome_of, settled
from tests.faults.pgbouncer import pgbouncer
from tests.http.people import document
from tests.waiting import until

pytestmark = pytest.mark.alone

RECOVERY_SECONDS = 2.0
POOLED: Any = {"pooler": "transaction"}


@pytest.fixture
def pooler(clerk: Shop) -> Iterator[str]:
    """Yield the URL of pgbouncer. It has three backends for all clients."""
    with pgbouncer(clerk.cluster, clerk.database, "clerk") as port:
        yield clerk.through(port)


async def allow(clerk: Shop) -> None:
    """Run the statements that the server asks for when it refuses to start."""
    with pytest.raises(StartError) as refused:
        await open_alone(clerk.url, Settings(**FAST, **POOLED))
    for statement in re.findall(r"\n  (ALTER ROLE .*);", str(refused.value)):
        await clerk.cluster.run(statement)


async def test_settings_that_a_session_cannot_set_must_be_set_for_the_role(clerk: Shop, pooler: str) -> None:
    await clerk.cluster.run("ALTER ROLE clerk SET timezone = 'Asia/Tokyo'")
    with pytest.raises(StartError) as refused:
        await open_alone(pooler, Settings(**POOLED))
    assert str(refused.value).splitlines() == [
        "with pooler = transaction these must be settings of the role; afterwards make the pooler reconnect "
        "(RECONNECT in pgbouncer):",
        "  ALTER ROLE clerk SET intervalstyle = 'iso_8601';",
        "  ALTER ROLE clerk SET timezone = 'UTC';",
        "  ALTER ROLE clerk SET statement_timeout = '30000ms';",
        "  ALTER ROLE clerk SET idle_in_transaction_session_timeout = '30000ms';",
    ]
    for statement in str(refused.value).splitlines()[1:]:
        await clerk.cluster.run(statement)
    connection = await open_alone(clerk.url, Settings(**POOLED))
    await connection.close()


async def test_clients_at_work(clerk: Shop, pooler: str, serve_fast: Serve) -> None:
    """Ten connections of the server share three backends."""
    await allow(clerk)
    api = await serve_fast(pooler, **POOLED)
    async with at_work(api) as load:
        await load.until_good(time.monotonic(), times=20)
        assert {one.outcome[0] for one in load.answers} == {200, 201}
        await clerk.cluster.restart()
        up = time.monotonic()
        await load.until_good(up)
    assert load.recovery_seconds(up) < RECOVERY_SECONDS
    await settled(load, clerk.names)


async def test_backends_are_terminated(clerk: Shop, pooler: str, serve_fast: Serve) -> None:
    """Sometimes a read finds no backend in its second attempt, because pgbouncer waits before it logs in again."""
    await allow(clerk)
    api = await serve_fast(pooler, **POOLED)
    ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1 AND usename = 'clerk'"
    async with at_work(api) as load:
        for _ in range(10):
            begin = time.monotonic()
            await until(lambda: clerk.cluster.run(ended, clerk.database))
            await load.until_good(begin, times=2)
    await settled(load, clerk.names)


async def test_two_servers_and_their_streams(clerk: Shop, pooler: str, serve_fast: Serve) -> None:
    """The names of their statements and cursors do not collide, and nothing is left on a backend."""
    await allow(clerk)
    more = "INSERT INTO groups (name) SELECT 'group-' || number FROM generate_series(1, 2000) number"
    await clerk.cluster.run(more, database=clerk.database)
    apis = [await serve_fast(pooler, max_streams=3, **POOLED) for _ in range(2)]
    answers = await asyncio.gather(*(api.get("/groups?page[size]=0&sort=id") for api in apis * 6))
    wanted = [str(number) for number in range(1, 2002)]
    assert all(answer.ids == wanted for answer in answers)
    connection = await open_alone(pooler, Settings(**FAST, **POOLED))
    left = await connection.fetchval("SELECT count(*) FROM pg_prepared_statements")
    await connection.close()
    assert left == 0


@pytest.mark.parametrize("is_write_first", [True, False])
async def test_a_migration_under_clients(clerk: Shop, pooler: str, serve_fast: Serve, is_write_first: bool) -> None:
    """The types of parameters and rows of known statements are stale. If the rows of a write cannot be read, the write
    was done and is not repeated."""
    await allow(clerk)
    api = await serve_fast(pooler, pool_size=2, **POOLED)

    async def ask(name: str) -> list[tuple[int, str]]:
        asking = [
            lambda: api.post("/computers", computer(name, "1")),
            lambda: api.patch("/computers/1", computer("abacus", "2", id="1")),
            lambda: api.get("/users?include=computers,group&filter[last_name]=Byron"),
            lambda: api.get("/computers/1"),
        ]
        return [outcome_of(await one()) for one in (asking if is_write_first else reversed(asking))]

    good = {(200, ""), (201, "")}
    for number in range(4):
        assert set(await ask(f"before-{number}")) == good
    for statement in MIGRATIONS:
        await clerk.cluster.run(statement, database=clerk.database)
        first = await ask(f"{statement}-first")
        assert set(first) <= good | {(503, "outcome_unknown")}, statement
        assert is_write_first or set(first) == good, statement
        assert set(await ask(f"{statement}-second")) == good, statement
        assert max((await made(clerk)).values()) == 1


async def made(clerk: Shop) -> Counter[str]:
    found = await clerk.cluster.run("SELECT name FROM computers", database=clerk.database)
    return Counter(name for (name,) in found)


def computer(name: str, owner: str, **members: str) -> dict[str, Any]:
    owned = {"owner": {"data": {"type": "user", "id": owner}}}
    return document("computer", {"name": name[:250], "serial": name[:20]}, relationships=owned, **members)


MIGRATIONS = [
    "ALTER TABLE computers ALTER COLUMN owner_id TYPE integer",
    "ALTER TABLE computers ALTER COLUMN id TYPE integer",
    "ALTER TABLE computers ALTER COLUMN id TYPE bigint, ALTER COLUMN owner_id TYPE bigint",
    "ALTER TABLE computers ALTER COLUMN serial TYPE varchar(50)",
]
