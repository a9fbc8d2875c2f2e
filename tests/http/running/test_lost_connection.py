"""Section 6 of the decisions: the connection to PostgreSQL breaks during a write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import asyncpg
import pytest
from tornado.ioloop import IOLoop

from tests.http.conftest import Answer, Api, Serve
from tests.http.expected import error
from tests.http.people import create_household, document, linked, of
from tests.http.proxy import Moment, Proxy

UNKNOWN = error(
    503,
    "outcome_unknown",
    "Outcome Unknown",
    "The connection was lost while the write was being committed: check whether it was done.",
)
GONE = error(503, "unavailable", "Database Unavailable", "The database cannot be reached; try again.")
MOMENTS = get_args(Moment)
COMMIT = b"COMMIT;"
"""The statement, and not the word in READ COMMITTED."""


@pytest.fixture
def proxy(io_loop: IOLoop, database_url: str) -> Iterator[Proxy]:
    made = Proxy(database_url)
    yield made
    io_loop.run_sync(made.close)


@pytest.fixture
def api(io_loop: IOLoop, proxy: Proxy, serve: Serve) -> Api:
    """Return a server whose connections to the database go through the proxy."""
    return serve(io_loop.run_sync(proxy.open))


def is_unknown(answer: Answer) -> None:
    assert (answer.status, answer.errors) == (503, [UNKNOWN])
    assert "Retry-After" not in answer.headers


def is_gone(answer: Answer) -> None:
    assert (answer.status, answer.errors, answer.headers["Retry-After"]) == (503, [GONE], "1")


async def computers_of(api: Api, user: int) -> list[int]:
    return [row[0] for row in await api.sql("SELECT id FROM computers WHERE owner_id = $1 ORDER BY id", user)]


@pytest.mark.parametrize("moment", MOMENTS)
async def test_lost_at_the_commit(api: Api, proxy: Proxy, moment: Moment) -> None:
    """The write is not retried: the server cannot know whether it was done."""
    await create_household(api)
    change = document("user", id="1", relationships=linked(computers=of("computer", "3")))
    proxy.cut_at(COMMIT, moment)
    is_unknown(await api.patch("/users/1", change))
    assert proxy.cuts == 1
    assert await computers_of(api, 1) == ([1, 2] if moment == "before" else [3])
    assert (await api.patch("/users/1", change)).status == 200
    assert await computers_of(api, 1) == [3]


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
async def test_lost_in_a_write_of_one_statement(api: Api, proxy: Proxy, method: str, moment: Moment) -> None:
    """The statement is its own commit. It was prepared before, so that its execution is cut."""
    await create_household(api)
    await api.create("/groups", "group", {"name": "prepared"})
    await api.sql("INSERT INTO groups (id, name) VALUES (1000, 'kept'), (7777777, 'sought')")
    assert (await api.patch("/groups/1000", document("group", {"name": "kept too"}, id="1000"))).status == 200
    assert (await api.delete("/groups/1000")).status == 200
    path, change, sent = {
        "POST": ("/groups", document("group", {"name": "made anew"}), b"made anew"),
        "PATCH": ("/groups/7777777", document("group", {"name": "made anew"}, id="7777777"), b"made anew"),
        "DELETE": ("/groups/7777777", None, (7_777_777).to_bytes(8)),
    }[method]
    proxy.cut_at(sent, moment)
    is_unknown(await api.request(method, path, change))
    assert proxy.cuts == 1
    names = {row[0] for row in await api.sql("SELECT name FROM groups WHERE id > 2")}
    made = {"POST": {"sought", "made anew"}, "PATCH": {"made anew"}, "DELETE": set()}[method]
    assert names == ({"sought"} if moment == "before" else made)
    assert (await api.get("/groups")).status == 200


@pytest.mark.parametrize("moment", MOMENTS)
async def test_lost_in_a_write_of_a_to_many(api: Api, proxy: Proxy, moment: Moment) -> None:
    """It is sent in one round trip, so the server cannot know whether it was done."""
    await create_household(api)
    await api.sql("INSERT INTO computers (id, name) VALUES (7777777, 'eniac')")
    path, linkage = "/users/1/relationships/computers", {"data": of("computer", "7777777")}
    assert (await api.patch(path, {"data": of("computer", "1", "2")})).status == 200
    proxy.cut_at(b"7777777", moment)
    is_unknown(await api.patch(path, linkage))
    assert proxy.cuts == 1
    assert await computers_of(api, 1) == ([1, 2] if moment == "before" else [7_777_777])
    assert (await api.patch(path, linkage)).status == 200
    assert await computers_of(api, 1) == [7_777_777]


async def test_lost_before_the_commit(api: Api, proxy: Proxy) -> None:
    """Nothing was written, and the answer says so."""
    await create_household(api)
    change = document("user", id="1", relationships=linked(computers=of("computer", "3")))
    proxy.cut_at(b'UPDATE "computers"', "after")
    is_gone(await api.patch("/users/1", change))
    assert proxy.cuts == 1
    assert await computers_of(api, 1) == [1, 2]
    assert (await api.patch("/users/1", change)).status == 200


READS = [("", b'FROM "users"'), ("?include=computers.owner", COMMIT), ("?page[size]=0", b'FROM "users"')]


@pytest.mark.parametrize(("query", "sent"), READS)
async def test_lost_in_a_read(api: Api, proxy: Proxy, query: str, sent: bytes) -> None:
    """Reads of one statement, and of several in one snapshot, are retried once. Their COMMIT does not matter."""
    await create_household(api)
    proxy.cut_at(sent, "before")
    answer = await api.get(f"/users{query}")
    assert (answer.status, answer.ids) == (200, ["1", "2"])
    assert proxy.cuts == 1


@pytest.mark.parametrize(("query", "sent"), READS)
async def test_lost_in_a_read_twice(api: Api, proxy: Proxy, query: str, sent: bytes) -> None:
    await create_household(api)
    proxy.cut_at(sent, "before", times=2)
    is_gone(await api.get(f"/users{query}"))
    assert proxy.cuts == 2
    assert (await api.get(f"/users{query}")).status == 200


@pytest.mark.parametrize("moment", MOMENTS)
async def test_lost_before_a_write_was_sent(api: Api, proxy: Proxy, moment: Moment) -> None:
    """Nothing was sent, so the write can begin on another connection."""
    await create_household(api)
    change = document("user", id="1", relationships=linked(computers=of("computer", "3")))
    proxy.cut_at(b"BEGIN ISOLATION LEVEL READ COMMITTED", moment)
    assert (await api.patch("/users/1", change)).status == 200
    assert proxy.cuts == 1
    assert await computers_of(api, 1) == [3]


async def test_lost_while_a_write_is_prepared(api: Api, proxy: Proxy) -> None:
    """PostgreSQL has prepared the statement, but never executed it."""
    proxy.cut_at(b'INSERT INTO "groups"', "after")
    assert (await api.post("/groups", document("group", {"name": "made"}))).status == 201
    assert proxy.cuts == 1
    assert [row[0] for row in await api.sql("SELECT name FROM groups")] == ["made"]


async def test_an_idle_connection_that_broke_is_not_used(api: Api, database_url: str) -> None:
    assert (await api.get("/groups")).status == 200
    connection = await asyncpg.connect(database_url)
    try:
        ended = await connection.fetch(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = 'waterspout'"
        )
    finally:
        await connection.close()
    assert [row[0] for row in ended] == [True]
    assert (await api.get("/groups")).status == 200
