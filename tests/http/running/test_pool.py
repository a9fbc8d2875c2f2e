"""The connection pool, `server/postgres/pool.py`, on a real PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg
import pytest

from server.observing.telemetry import Telemetry
from server.postgres import pool as pools
from server.postgres.connection import PostgresConnection
from server.postgres.opening import open_database
from server.postgres.pool import Pool
from server.settings import Settings
from tests.waiting import until

SECONDS = 10.0


@asynccontextmanager
async def opened(
    url: str, size: int = 2, max_per_client: int | None = None, *, has_spare: bool = False
) -> AsyncIterator[tuple[Pool, Any]]:
    """Yield a pool, and the asyncpg pool that it uses."""
    below = await asyncpg.create_pool(url, min_size=0, max_size=size + has_spare, connection_class=PostgresConnection)
    pool = Pool(below, Telemetry(Settings()), max_per_client, has_spare=has_spare)
    try:
        yield pool, below
    except BaseException:
        pool.terminate()
        raise
    await pool.close()


async def pid_of(connection: PostgresConnection) -> int:
    return int(await connection.fetchval("SELECT pg_backend_pid()"))


async def refuse(*_: Any, **__: Any) -> Any:
    """Refuse to connect, as a PostgreSQL without free connections does."""
    raise asyncpg.TooManyConnectionsError("sorry, too many clients already")


async def test_a_kept_connection_is_used_again(database_url: str) -> None:
    async with opened(database_url) as (pool, below):
        first = await pool.acquire(SECONDS)
        pid = await pid_of(first)
        await pool.keep(first)
        assert below.get_idle_size() == 0
        assert await pool.acquire(SECONDS) is first
        await pool.release(first)
        assert below.get_idle_size() == 1
        again = await pool.acquire(SECONDS)
        assert await pid_of(again) == pid
        await pool.release(again)


async def test_a_waiting_request_gets_the_connection_first(database_url: str) -> None:
    async with opened(database_url, size=1) as (pool, _):
        first = await pool.acquire(SECONDS)
        pid = await pid_of(first)
        waiting = asyncio.create_task(pool.acquire(SECONDS))
        await asyncio.sleep(0)
        await pool.keep(first)
        second = await waiting
        assert await pid_of(second) == pid
        await pool.release(second)


async def test_a_wait_for_a_connection_times_out(database_url: str) -> None:
    async with opened(database_url, size=1) as (pool, _):
        first = await pool.acquire(SECONDS)
        with pytest.raises(TimeoutError):
            await pool.acquire(0.01)
        await pool.keep(first)
        assert await pool.acquire(SECONDS) is first
        await pool.release(first)


async def test_a_kept_connection_that_broke_is_replaced(database_url: str) -> None:
    async with opened(database_url) as (pool, _):
        first = await pool.acquire(SECONDS)
        pid = await pid_of(first)
        await pool.keep(first)
        other = await asyncpg.connect(database_url)
        await other.execute("SELECT pg_terminate_backend($1)", pid)
        await other.close()
        await until(lambda: first.is_closed())
        second = await pool.acquire(SECONDS)
        assert await pid_of(second) != pid
        await pool.release(second)


async def test_unused_connections_are_released(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two connections, one is used again and again."""
    monkeypatch.setattr(pools, "KEPT_TIMES", 2**62)
    monkeypatch.setattr(pools, "UNUSED_CONNECTION_SECONDS", 0.05)
    async with opened(database_url) as (pool, below):
        both = [await pool.acquire(SECONDS), await pool.acquire(SECONDS)]
        for connection in both:
            await pool.keep(connection)

        async def used() -> PostgresConnection:
            one = await pool.acquire(SECONDS)
            await pool.keep(one)
            return one

        one = await until(used, lambda _: below.get_idle_size() > 0)
        assert below.get_idle_size() == 1
        assert not one.is_closed()


async def test_a_stop_while_unused_connections_are_released(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "UNUSED_CONNECTION_SECONDS", 0.05)
    async with opened(database_url, size=4) as (pool, below):
        for connection in [await pool.acquire(SECONDS) for _ in range(4)]:
            await pool.keep(connection)
        await until(lambda: len(pool._ready) < 4)
        async with asyncio.timeout(SECONDS):
            await pool.close()
        assert below.get_size() == 0


async def test_one_timeout_for_all_waits(database_url: str) -> None:
    """A request that gets a place at the last moment has little time left to open a connection."""
    async with opened(database_url, size=1) as (pool, below):
        first = await pool.acquire(SECONDS)
        begin = asyncio.get_running_loop().time()
        waiting = asyncio.create_task(pool.acquire(0.5))
        asyncio.get_running_loop().call_later(0.4, lambda: asyncio.ensure_future(pool.release(first)))
        below._connect = never
        first.terminate()
        with pytest.raises(TimeoutError):
            await waiting
        assert asyncio.get_running_loop().time() - begin < 0.9


async def never(*_: Any, **__: Any) -> Any:
    await asyncio.Event().wait()


async def test_a_kept_connection_is_released_to_asyncpg_periodically(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "KEPT_TIMES", 3)
    async with opened(database_url) as (pool, below):
        idle = []
        for _ in range(6):
            await pool.keep(await pool.acquire(SECONDS))
            idle.append(below.get_idle_size())
        assert idle == [0, 0, 1, 0, 0, 1]


async def test_close_waits_for_connections_in_use(database_url: str) -> None:
    async with opened(database_url) as (pool, below):
        ready, used = await pool.acquire(SECONDS), await pool.acquire(SECONDS)
        await pool.keep(ready)
        closing = asyncio.create_task(pool.close())
        await asyncio.sleep(0)
        assert not closing.done()
        await pool.keep(used)
        await closing
        assert below.get_size() == 0


async def test_a_cancelled_wait_loses_no_connection(database_url: str) -> None:
    """Whether it is cancelled before or after it was given a connection, the next request gets it."""
    async with opened(database_url, size=1) as (pool, _):
        first = await pool.acquire(SECONDS)
        early, late, last = [asyncio.create_task(pool.acquire(SECONDS)) for _ in range(3)]
        await asyncio.sleep(0)
        early.cancel()
        await pool.keep(first)
        late.cancel()
        assert await last is first
        await pool.release(first)
        again = await pool.acquire(SECONDS)
        await pool.release(again)


async def test_a_free_place_is_handed_on_like_a_connection(database_url: str) -> None:
    """A waiting request gets the place of a connection that is not kept, and of one that could not be opened."""
    async with opened(database_url, size=1) as (pool, below):
        first = await pool.acquire(SECONDS)
        waiting = asyncio.create_task(pool.acquire(SECONDS))
        await asyncio.sleep(0)
        first.terminate()
        await pool.release(first)
        second = await waiting
        assert await pid_of(second) > 0
        await pool.release(second)
        below.set_connect_args(dsn="postgresql://127.0.0.1:1/nobody")
        await below.expire_connections()
        for _ in range(2):
            with pytest.raises(OSError):
                await pool.acquire(SECONDS)


@pytest.mark.parametrize("is_snapshot", [True, False])
async def test_work_that_is_cancelled_at_any_moment(database_url: str, is_snapshot: bool) -> None:
    """It is rolled back without a warning, and others can use the connection."""
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    database = await open_database(database_url, Settings(), 1)
    try:
        for turns in range(12):
            assert await database.read(pid_of, is_snapshot=is_snapshot) > 0
            work = asyncio.create_task(database.read(pid_of, is_snapshot=is_snapshot))
            for _ in range(turns):
                await asyncio.sleep(0)
            work.cancel()
            await asyncio.wait([work])
        assert await database.read(pid_of, is_snapshot=is_snapshot) > 0
    finally:
        await database.close()
    assert told == []


async def test_a_statement_that_was_only_prepared_keeps_no_lock(database_url: str) -> None:
    """PostgreSQL locks the table to prepare it, and asyncpg sends no Sync before it is executed."""
    database = await open_database(database_url, Settings(), 1)
    holder, watcher = await asyncpg.connect(database_url), await asyncpg.connect(database_url)
    others = "pid <> pg_backend_pid() AND relation = 'groups'::regclass"
    try:
        for turns in range(30):
            await holder.execute("BEGIN; LOCK TABLE groups")
            sql = f"SELECT id, {turns} FROM groups"
            work = asyncio.create_task(database.read(lambda one, sql=sql: one.fetch(sql), is_snapshot=False))
            await until(lambda: watcher.fetchval(f"SELECT count(*) FROM pg_locks WHERE NOT granted AND {others}"))
            await holder.execute("COMMIT")
            for _ in range(turns):
                await asyncio.sleep(0)
            work.cancel()
            await asyncio.wait([work])
            assert await watcher.fetchval(f"SELECT count(*) FROM pg_locks WHERE {others}") == 0
    finally:
        await asyncio.gather(holder.close(), watcher.close())
        await database.close()


async def test_all_open_connections_are_retired_when_one_breaks(database_url: str) -> None:
    """Idle connections at once, those in use on their release; not those opened since."""
    async with opened(database_url, size=4) as (pool, _):
        broken, used, ready, idle = [await pool.acquire(SECONDS) for _ in range(4)]
        old = {await pid_of(one) for one in (broken, used, ready, idle)}
        await pool.keep(ready)
        await pool.release(idle)
        assert await pool.retire_all(broken)
        assert ready.is_closed()
        assert await pid_of(used) in old
        fresh = [await pool.acquire(SECONDS), await pool.acquire(SECONDS)]
        new = {await pid_of(one) for one in fresh}
        assert new.isdisjoint(old)
        # This older one is broken, too, which says nothing about newer connections.
        assert not await pool.retire_all(used)
        for one in (broken, used, *fresh):
            await pool.release(one)
        again = [await pool.acquire(SECONDS) for _ in range(4)]
        assert {await pid_of(one) for one in again} >= new
        assert {await pid_of(one) for one in again}.isdisjoint(old)
        for one in again:
            await pool.release(one)


async def test_connections_are_not_retired_again_within_the_pause(database_url: str) -> None:
    async with opened(database_url) as (pool, _):
        for is_renewed in (True, False):
            one = await pool.acquire(SECONDS)
            assert await pool.retire_all(one, 60.0) is is_renewed
            await pool.release(one)


async def test_a_pool_that_cannot_grow_waits_for_its_open_connections(database_url: str) -> None:
    """Not all waiting requests try to connect in vain."""
    tried, is_refused = 0, asyncio.Event()

    async def refuse(*_: Any, **__: Any) -> Any:
        nonlocal tried
        tried += 1
        await is_refused.wait()
        raise asyncpg.TooManyConnectionsError("sorry, too many clients already")

    async with opened(database_url, size=2) as (pool, below):
        first = await pool.acquire(SECONDS)
        connect, below._connect = below._connect, refuse
        waiting = [asyncio.create_task(pool.acquire(SECONDS)) for _ in range(3)]
        await until(lambda: (tried, len(pool._turns)) == (1, 2))
        is_refused.set()
        await until(lambda: len(pool._turns) == 3)
        assert tried == 1
        while waiting:
            await pool.keep(first)
            await until(lambda: any(one.done() for one in waiting))
            [given] = [one for one in waiting if one.done()]
            waiting.remove(given)
            assert given.result() is first
        # No connection is left to wait for.
        first.terminate()
        await pool.release(first)
        with pytest.raises(asyncpg.TooManyConnectionsError):
            await pool.acquire(SECONDS)
        below._connect = connect
        again = await pool.acquire(SECONDS)
        assert await pid_of(again) > 0
        await pool.release(again)


async def test_a_waiting_request_tries_to_open_a_connection_again(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other connections may be in use for long."""
    monkeypatch.setattr(pools, "GROW_AGAIN_SECONDS", 0.05)

    async with opened(database_url, size=2) as (pool, below):
        first = await pool.acquire(SECONDS)
        connect, below._connect = below._connect, refuse
        waiting = asyncio.create_task(pool.acquire(SECONDS))
        await until(lambda: len(pool._turns) == 1)
        below._connect = connect
        second = await waiting
        assert await pid_of(second) != await pid_of(first)
        await pool.release(first)
        await pool.release(second)


async def test_all_waiting_requests_open_connections_when_postgresql_accepts_them(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After one refusal all later requests wait. Each that opens a connection lets the next one try."""
    monkeypatch.setattr(pools, "GROW_AGAIN_SECONDS", 0.05)

    async with opened(database_url, size=4) as (pool, below):
        first = await pool.acquire(SECONDS)
        connect, below._connect = below._connect, refuse
        waiting = [asyncio.create_task(pool.acquire(SECONDS / 2)) for _ in range(3)]
        await until(lambda: len(pool._turns) == 3)
        below._connect = connect
        all_of_them = [first, *await asyncio.gather(*waiting)]
        assert len({await pid_of(one) for one in all_of_them}) == 4
        for one in all_of_them:
            await pool.release(one)


async def test_a_request_cancelled_over_a_broken_connection_returns_its_place(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was given a broken connection, and is cancelled while that one is released to asyncpg."""
    async with opened(database_url, size=1) as (pool, _):
        first = await pool.acquire(SECONDS)
        release, is_taken_back = pool._release, asyncio.Event()

        async def release_slowly(connection: PostgresConnection) -> None:
            await release(connection)
            is_taken_back.set()
            await never()

        monkeypatch.setattr(pool, "_release", release_slowly)
        waiting = asyncio.create_task(pool.acquire(SECONDS))
        await until(lambda: len(pool._turns) == 1)
        first.terminate()
        await pool.keep(first)
        await asyncio.wait_for(is_taken_back.wait(), SECONDS)
        waiting.cancel()
        await asyncio.wait([waiting])
        monkeypatch.setattr(pool, "_release", release)
        again = await pool.acquire(1.0)
        assert await pid_of(again) > 0
        await pool.release(again)


async def taken(pool: Pool, client: str, most: int) -> list[PostgresConnection]:
    """Return the connections that the client gets without waiting."""
    found = []
    for _ in range(most):
        with suppress(TimeoutError):
            found.append(await pool.acquire(0.0, client))
    return found


@pytest.mark.parametrize(("has_spare", "most"), [(True, 6), (False, 3)])
async def test_a_client_of_short_requests_borrows_all(database_url: str, *, has_spare: bool, most: int) -> None:
    async with opened(database_url, 6, 3, has_spare=has_spare) as (pool, _):
        every = [await pool.acquire(SECONDS) for _ in range(6)]
        for one in every:
            await pool.keep(one)
        # The durations of the client's requests are not known yet.
        held = await taken(pool, "a", 6)
        assert len(held) == 3
        await pool.keep(held.pop(), "a")
        held += await taken(pool, "a", 9)
        assert len(held) == most
        others = await taken(pool, "b", 6)
        assert len(others) == 6 - most
        for client, connections in (("a", held), ("b", others)):
            for one in connections:
                await pool.keep(one, client)


async def test_the_spare_connection_is_for_a_client_that_has_none(database_url: str) -> None:
    """The client that has all others does not get it, not even after another client has used it."""
    async with opened(database_url, 2, 1, has_spare=True) as (pool, below):
        for one in [await pool.acquire(SECONDS) for _ in range(2)]:
            await pool.keep(one)
        await pool.keep(await pool.acquire(SECONDS, "a"), "a")
        held = await taken(pool, "a", 2)
        for _ in range(3):
            spare = await pool.acquire(SECONDS, "b")
            assert (await taken(pool, "a", 1), await taken(pool, "b", 1), below.get_size()) == ([], [], 3)
            await pool.keep(spare, "b")
            assert await taken(pool, "a", 1) == []
        spare = await pool.acquire(SECONDS, "b")
        await pool.release(spare, "b")
        assert await taken(pool, "a", 1) == []
        spare = await pool.acquire(SECONDS, "c")
        assert await taken(pool, "d", 1) == []
        for client, one in (("a", held.pop()), ("a", held.pop()), ("c", spare)):
            await pool.release(one, client)
        assert pool._places == 2


async def borrowed(pool: Pool, client: str) -> list[PostgresConnection]:
    """Return both connections of a pool of two, whose share is one."""
    for one in [await pool.acquire(SECONDS) for _ in range(2)]:
        await pool.keep(one)
    await pool.keep(await pool.acquire(SECONDS, client), client)
    found = await taken(pool, client, 2)
    assert len(found) == 2
    return found


@pytest.mark.parametrize("how", ["released", "kept", "kept for the 1000th time"])
async def test_a_spare_connection_that_is_given_back_goes_to_the_next_client(database_url: str, how: str) -> None:
    async with opened(database_url, 2, 1, has_spare=True) as (pool, below):
        held = await borrowed(pool, "a")
        spare = await pool.acquire(SECONDS, "b")
        waiting = asyncio.create_task(pool.acquire(SECONDS, "c"))
        await asyncio.sleep(0)
        if how == "released":
            await pool.release(spare, "b")
        else:
            pool._kept = 0 if how == "kept" else pools.KEPT_TIMES - 1
            await pool.keep(spare, "b")
        held.append(await asyncio.wait_for(waiting, SECONDS))
        assert below.get_size() == 3
        for client, one in zip("aac", held, strict=True):
            await pool.release(one, client)


async def test_a_spare_connection_that_postgresql_refuses_is_opened_later(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "GROW_AGAIN_SECONDS", 0.1)
    async with opened(database_url, 2, 1, has_spare=True) as (pool, below):
        held = await borrowed(pool, "a")
        connect, below._connect = below._connect, refuse
        waiting = asyncio.create_task(pool.acquire(SECONDS, "b"))
        await until(lambda: pool._grows_at > 0)
        below._connect = connect
        held.append(await asyncio.wait_for(waiting, SECONDS))
        for client, one in zip("aab", held, strict=True):
            await pool.release(one, client)


async def test_a_client_that_is_crowded_out_while_it_waits_gets_the_spare_connection(database_url: str) -> None:
    async with opened(database_url, 2, 1, has_spare=True) as (pool, _):
        for client in "ab":
            await pool.keep(await pool.acquire(SECONDS, client), client)
        held = [await pool.acquire(SECONDS, client) for client in "ab"]
        waiting = [asyncio.create_task(pool.acquire(SECONDS, client)) for client in "ac"]
        await asyncio.sleep(0)
        # The client a waits first, and borrows.
        await pool.keep(held.pop(), "b")
        held += await asyncio.wait_for(asyncio.gather(*waiting), SECONDS)
        for client, one in zip("aac", held, strict=True):
            await pool.release(one, client)


async def test_the_spare_connection_is_not_used_while_no_client_has_borrowed(database_url: str) -> None:
    async with opened(database_url, 2, 1, has_spare=True) as (pool, below):
        held = [await pool.acquire(SECONDS, client) for client in "ab"]
        with pytest.raises(TimeoutError):
            await pool.acquire(0.05, "c")
        assert below.get_size() <= 2
        for client, one in zip("ab", held, strict=True):
            await pool.release(one, client)
