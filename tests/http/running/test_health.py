"""/-/live and /-/ready: their answers are true, cheap, and independent of headers."""

from __future__ import annotations

import asyncio
import gc
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from server import health
from server.errors import Unavailable
from server.postgres.connection import PostgresConnection
from server.resources import built_in
from tests.http.conftest import MEDIA_TYPE, Answer, Api, Sent, Start
from tests.http.expected import error
from tests.http.operating import locked
from tests.http.running.test_metrics import scrape, until_metrics
from tests.waiting import SECONDS

LIVE = {"meta": {"status": "live"}, "jsonapi": {"version": "1.0"}}
READY = {"meta": {"status": "ready"}, "jsonapi": {"version": "1.0"}}
BUSY = {"meta": {"status": "busy"}, "jsonapi": {"version": "1.0"}}
GONE = error(503, "unavailable", "Database Unavailable", "The database cannot be reached; try again.")
SLOW = error(503, "unavailable", "Database Unavailable", "The database does not answer in time; try again.")
STOPPING = error(503, "not_ready", "Not Ready", "The server is stopping.")


def shown(answer: Answer) -> tuple[int, Any]:
    return answer.status, answer.errors if answer.status >= 400 else answer.document


@pytest.mark.parametrize("path", ["/-/live", "/-/ready"])
@pytest.mark.parametrize("accept", ["text/plain", "*/*;q=0", f'{MEDIA_TYPE};version="2"', "text/html,application/json"])
async def test_the_accept_header_is_ignored(reader: Api, path: str, accept: str) -> None:
    answer = await reader.get(path, Accept=accept)
    assert shown(answer) == (200, LIVE if path == "/-/live" else READY)
    assert answer.headers["Content-Type"] == MEDIA_TYPE


@pytest.mark.parametrize("path", ["/-/live", "/-/ready", "/-/metrics"])
async def test_methods(reader: Api, path: str) -> None:
    head, get = await reader.request("HEAD", path), await reader.get(path)
    assert (head.status, head.body, get.status) == (200, b"", 200)
    refused = await reader.request("POST", path, {})
    assert (refused.status, refused.headers["Allow"]) == (405, "GET, HEAD, OPTIONS")
    assert refused.errors[0]["code"] == "method_not_allowed"


async def test_many_probes_share_a_ping(sent: Sent, start: Start, database_url: str) -> None:
    """A hundred concurrent probes and a hundred later ones need one ping."""
    api = await start(database_url, built_in())
    sent.clear()
    answers = await asyncio.gather(*(api.get("/-/ready") for _ in range(100)))
    answers += [await api.get("/-/ready") for _ in range(100)]
    assert {answer.status for answer in answers} == {200}
    assert sent == ["SELECT 1"]


async def test_the_answer_of_postgresql_expires(
    sent: Sent, start: Start, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "CACHE_SECONDS", -1.0)
    api = await start(database_url, built_in())
    sent.clear()
    for _ in range(3):
        assert (await api.get("/-/ready")).status == 200
    assert sent == ["SELECT 1"] * 3


@pytest.mark.parametrize("pool_size", [1, 3])
async def test_a_busy_server_is_still_ready(start: Start, database_url: str, pool_size: int) -> None:
    """Every connection of the pool waits for a lock, and requests wait for a connection."""
    api = await start(database_url, built_in(), pool_size=pool_size, max_requests_per_client=pool_size)
    async with locked(api, "groups"):
        held = [asyncio.ensure_future(api.get("/groups")) for _ in range(pool_size)]
        await until_metrics(api, lambda found: found["pool_connections"][("used",)] == pool_size)
        assert shown(await api.get("/-/ready")) == (200, READY)
        held.append(asyncio.ensure_future(api.get("/groups")))
        await until_metrics(api, lambda found: found["pool_waiting_requests"][()] == 1)
        for _ in range(3):
            api.app.health._pinged_at = float("-inf")
            answers = await asyncio.gather(*(api.get("/-/ready") for _ in range(8)))
            assert [shown(answer) for answer in answers] == [(200, BUSY)] * 8
        assert (await scrape(api))["pool_waiting_requests"][()] == 1
    assert {(await one).status for one in held} == {200}
    assert shown(await api.get("/-/ready")) == (200, READY)


async def slow_pings(monkeypatch: pytest.MonkeyPatch, gate: asyncio.Event) -> None:
    fetchval = PostgresConnection.fetchval

    async def late(self: PostgresConnection, query: str, *values: Any, **options: Any) -> Any:
        await gate.wait()
        return await fetchval(self, query, *values, **options)

    monkeypatch.setattr(PostgresConnection, "fetchval", late)


async def test_postgresql_does_not_answer(start: Start, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ping times out, and the next one uses another connection."""
    monkeypatch.setattr(health, "PING_TIMEOUT_SECONDS", 0.05)
    monkeypatch.setattr(health, "CACHE_SECONDS", 0.0)
    api, gate = await start(database_url, built_in()), asyncio.Event()
    assert shown(await api.get("/-/ready")) == (200, READY)
    with monkeypatch.context() as patch:
        await slow_pings(patch, gate)
        assert shown(await api.get("/-/ready")) == (503, [SLOW])
    assert api.app.database._probe._connection is None
    monkeypatch.setattr(health, "PING_TIMEOUT_SECONDS", SECONDS)
    assert shown(await api.get("/-/ready")) == (200, READY)


async def test_a_late_answer_is_not_reused(
    start: Start, database_url: str, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is old: the next probe sends a new ping."""
    monkeypatch.setattr(health, "PROBE_TIMEOUT_SECONDS", 0.05)
    monkeypatch.setattr(health, "CACHE_SECONDS", 0.0)
    api, gate = await start(database_url, built_in()), asyncio.Event()
    with monkeypatch.context() as patch:
        await slow_pings(patch, gate)
        assert shown(await api.get("/-/ready")) == (503, [SLOW])
        gate.set()
        ping = api.app.health._ping
        assert ping is not None
        await asyncio.wait((ping,), timeout=SECONDS)
    monkeypatch.setattr(health, "PROBE_TIMEOUT_SECONDS", SECONDS)
    sent.clear()
    assert shown(await api.get("/-/ready")) == (200, READY)
    assert sent == ["SELECT 1"]


async def test_a_connection_that_broke_is_opened_again(start: Start, database_url: str) -> None:
    api = await start(database_url, built_in())
    assert shown(await api.get("/-/ready")) == (200, READY)
    name = urlsplit(database_url).path[1:]
    ended = (
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = $1 AND pid <> pg_backend_pid()"
    )
    assert [row[0] for row in await api.sql(ended, name)] == [True]
    api.app.health._pinged_at = float("-inf")
    assert shown(await api.get("/-/ready")) == (200, READY)


FULL = error(503, "busy", "Busy", "The database takes no more connections; try again.")


@pytest.mark.parametrize(("has_pool", "expected"), [(True, (200, READY)), (False, (503, [FULL]))])
async def test_postgresql_accepts_no_more_connections(
    start: Start, database_url: str, monkeypatch: pytest.MonkeyPatch, has_pool: bool, expected: Any
) -> None:
    """The server is ready as long as the pool has connections."""
    api = await start(database_url, built_in())
    if has_pool:
        assert (await api.get("/groups")).status == 200

    async def refuse() -> PostgresConnection:
        raise asyncpg.TooManyConnectionsError("sorry, too many clients already")

    monkeypatch.setattr(api.app.database._probe, "_connect", refuse)
    assert shown(await api.get("/-/ready")) == expected


async def test_a_late_failure_is_not_reported(
    start: Start, database_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """PostgreSQL was away at the last probe and is back: the old failure reaches neither a probe nor the log."""
    monkeypatch.setattr(health, "PROBE_TIMEOUT_SECONDS", 0.05)
    api, gate = await start(database_url, built_in()), asyncio.Event()
    check = api.app.database.check

    async def fail(*_: Any, **__: Any) -> None:
        await gate.wait()
        raise Unavailable("The database is away.")

    monkeypatch.setattr(api.app.database, "check", fail)
    assert shown(await api.get("/-/ready")) == (503, [SLOW])
    gate.set()
    ping = api.app.health._ping
    assert ping is not None
    await asyncio.wait((ping,), timeout=SECONDS)
    monkeypatch.setattr(api.app.database, "check", check)
    monkeypatch.setattr(health, "PROBE_TIMEOUT_SECONDS", SECONDS)
    assert shown(await api.get("/-/ready")) == (200, READY)
    del ping
    gc.collect()
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


async def test_the_database_is_gone(start: Start, database_url: str, postgres_url: str) -> None:
    """The next probe after its return is ready."""
    api = await start(database_url, built_in())
    name = urlsplit(database_url).path[1:]
    administrator = await asyncpg.connect(postgres_url)
    try:
        await administrator.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        await administrator.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = $1", name
        )
        gone = [await api.get("/-/ready") for _ in range(3)]
        assert shown(await api.get("/-/live")) == (200, LIVE)
    finally:
        await administrator.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        await administrator.close()
    assert [shown(answer) for answer in gone] == [(503, [GONE])] * 3
    assert shown(await api.get("/-/ready")) == (200, READY)


async def test_a_server_that_stops(api: Api) -> None:
    """It is no longer ready, whatever the last ping found. Other requests are answered."""
    assert shown(await api.get("/-/ready")) == (200, READY)
    api.app.database.telemetry.counters.mark_stopping()
    answer = await api.get("/-/ready")
    assert (*shown(answer), answer.headers["Retry-After"]) == (503, [STOPPING], "1")
    assert shown(await api.get("/-/live")) == (200, LIVE)
    assert (await api.get("/users")).status == 200


async def test_a_worker_that_is_replaced(api: Api) -> None:
    """Only the worker stops, so the server stays ready."""
    assert (await scrape(api))["workers_stopping"][()] == 0
    api.app.health.is_stopping = True
    assert shown(await api.get("/-/ready")) == (200, READY)
    assert (await scrape(api))["workers_stopping"][()] == 1


async def test_each_change_is_logged_once(
    api: Api, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO", "server")
    for is_away in (False, True, True, False, False):

        async def ask(is_away: bool = is_away) -> None:
            if is_away:
                raise Unavailable("The database is away.")

        monkeypatch.setattr(api.app.health, "_wait_for_ping", ask)
        await api.get("/-/ready")
    told = [(record.levelname, record.getMessage()) for record in caplog.records if record.name == "server"]
    assert told == [
        ("WARNING", "not ready: The database is away."),
        ("INFO", "ready again"),
    ]
