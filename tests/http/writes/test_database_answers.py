"""Section 8: the answers if the database is gone, busy or too slow."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import asyncpg
import pytest

from tests.http.conftest import Answer, Api, Serve
from tests.http.expected import error
from tests.http.operating import locked

GONE = error(503, "unavailable", "Database Unavailable", "The database cannot be reached; try again.")
BUSY = error(503, "busy", "Busy", "All database connections are in use; try again.")
SLOW = error(504, "statement_timeout", "Statement Timeout", "The database took too long over this request.")


def is_retryable(answer: Answer) -> bool:
    return int(answer.headers.get("Retry-After", "0")) > 0


async def test_the_database_is_gone(api: Api, postgres_url: str) -> None:
    """Every route that needs it answers 503, and works again when it is back."""
    assert (await api.get("/groups")).status == 200
    name = urlsplit(api.database_url).path[1:]
    administrator = await asyncpg.connect(postgres_url)
    try:
        await administrator.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        await administrator.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = $1", name
        )
        for path in ("/groups", "/groups/1", "/users?include=group", "/-/ready"):
            answer = await api.get(path)
            assert (answer.status, answer.errors, is_retryable(answer)) == (503, [GONE], True), path
        assert (await api.get("/-/live")).status == 200
        assert (await api.get("/")).status == 200
        assert (await api.get("/groups?sort=x")).status == 400
    finally:
        await administrator.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        await administrator.close()
    assert (await api.get("/groups")).status == 200
    assert (await api.get("/-/ready")).status == 200


@pytest.fixture
def hurried(serve: Serve, database_url: str) -> Api:
    return serve(database_url, statement_timeout_seconds=1.0)


async def test_a_statement_that_takes_too_long(hurried: Api) -> None:
    async with locked(hurried, "groups"):
        answer = await hurried.get("/groups")
    assert (answer.status, answer.errors, is_retryable(answer)) == (504, [SLOW], False)
    assert (await hurried.get("/groups")).status == 200


@pytest.fixture
def narrow(serve: Serve, database_url: str) -> Api:
    return serve(database_url, pool_size=1, acquire_timeout_seconds=0.2)


async def test_all_connections_in_use(narrow: Api) -> None:
    async with locked(narrow, "groups"):
        waiting = asyncio.ensure_future(narrow.get("/groups"))
        answers = [await narrow.get("/users") for _ in range(2)]
    assert (await waiting).status == 200
    # One of the two may have come before the request that waits.
    assert (answers[1].status, answers[1].errors, is_retryable(answers[1])) == (503, [BUSY], True)
    assert (await narrow.get("/users")).status == 200
