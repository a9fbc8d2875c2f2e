"""One answer is one snapshot of the database: primary data, linkage, included resources and total agree, whatever is
written meanwhile.

Most tests do not depend on chance: a hook on the server's connections commits a write of another connection between two
statements of one request, at each of these points in turn."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from server.postgres.connection import PostgresConnection
from tests.http.conftest import Answer, Api
from tests.http.people import create_household, document, linked, of, one

RANDOM_SECONDS = 2.0
READERS = 6


class Between:
    """Runs a write after the n-th statement of the server, counted from 1; n = 0 runs none."""

    def __init__(self) -> None:
        self.place = 0
        self.count = 0
        self.write: Callable[[], Awaitable[Any]] | None = None

    async def statement_done(self) -> None:
        self.count += 1
        if self.count == self.place and self.write is not None:
            await self.write()

    def arm(self, place: int, write: Callable[[], Awaitable[Any]]) -> None:
        self.place, self.count, self.write = place, 0, write


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Between:
    hook = Between()
    # The methods that asyncpg's fetch, fetchrow, fetchval and execute call.
    execute: Any = PostgresConnection._execute  # type: ignore[attr-defined]

    async def hooked(connection: Any, *values: Any, **options: Any) -> Any:
        result = await execute(connection, *values, **options)
        await hook.statement_done()
        return result

    monkeypatch.setattr(PostgresConnection, "_execute", hooked)
    return hook


SIDES = (
    (("user", "computers"), ("computer", "owner")),
    (("user", "posts"), ("post", "user")),
    (("group", "users"), ("user", "group")),
)


def agree(found: Any) -> None:
    """Check that both sides of a relationship agree wherever both are shown."""
    primary = found["data"] if isinstance(found["data"], list) else [found["data"]]
    resources = {(item["type"], item["id"]): item for item in (*primary, *found.get("included", []))}
    for many, single in SIDES:
        owned = _linkage(resources, *many)
        owners = _linkage(resources, *single)
        for owner, members in owned.items():
            for member in members:
                assert owners.get(member, [owner]) == [owner], (owner, member, found)
        for member, targets in owners.items():
            for target in targets:
                assert member in owned.get(target, [member]), (member, target, found)


def _linkage(resources: dict[tuple[str, str], Any], type_name: str, name: str) -> dict[Any, list[Any]]:
    linkage: dict[Any, list[Any]] = {}
    for key, resource in resources.items():
        shown = resource.get("relationships", {}).get(name, {})
        if resource["type"] == type_name and "data" in shown:
            data = shown["data"]
            items = data if isinstance(data, list) else [data] if data else []
            linkage[key] = [(item["type"], item["id"]) for item in items]
    return linkage


async def everywhere(api: Api, between: Between, request: Callable[[], Awaitable[Answer]], sql: str) -> int:
    """Send the request once for each gap between its statements, with the write in the gap. Return the number of gaps.
    Each answer must be consistent."""
    async with writer(api) as connection:
        for place in itertools.count(1):
            between.arm(place, lambda: connection.execute(sql))
            answer = await request()
            assert answer.status in (200, 201), answer.body
            agree(answer.document)
            if between.count <= place:
                return place - 1
    raise AssertionError("unreachable")


@asynccontextmanager
async def writer(api: Api) -> AsyncIterator[asyncpg.Connection[Any]]:
    connection = await asyncpg.connect(api.database_url)
    try:
        yield connection
    finally:
        await connection.close()


TURN_ROUND = """
    UPDATE users SET group_id = CASE WHEN group_id = 1 THEN 2 ELSE 1 END;
    UPDATE computers SET owner_id = CASE WHEN owner_id = 1 THEN 2 ELSE 1 END;
"""
"""Every user changes the group and every computer its owner, so a statement that sees the other state is inconsistent.
It takes no lock that a write of the server holds, and is one transaction."""


async def create_two_groups(api: Api) -> None:
    await create_household(api)
    await api.create("/groups", "group", {"name": "climbers"})
    await api.sql("UPDATE users SET group_id = id")


# reads


async def test_a_read_shows_the_state_at_its_begin(api: Api, between: Between) -> None:
    """The whole answer is the one from before the write."""
    await create_two_groups(api)
    paths = [
        "/users?page[size]=1&include=computers.owner,posts,bio,group.users",
        "/users/1?include=computers.owner,posts,bio,group.users",
        "/computers?page[size]=2&page[number]=2&sort=-owner.id&include=owner.group",
        "/groups?filter[users.computers.name]=abacus&page[size]=1&include=users.computers",
    ]
    write = (
        TURN_ROUND
        + """
        INSERT INTO users (first_name, last_name, group_id) VALUES ('Cy', 'Byron', 1);
        INSERT INTO computers (name, owner_id) SELECT 'abacus', max(id) FROM users;
        INSERT INTO posts (title, body, user_id) VALUES ('more', 'text', 1);
        UPDATE groups SET name = name || 's';
    """
    )
    gaps = 0
    async with writer(api) as connection:
        for path in paths:
            for place in itertools.count(1):
                between.arm(0, lambda: connection.execute(write))
                before = (await api.get(path)).document
                between.arm(place, lambda: connection.execute(write))
                during = (await api.get(path)).document
                if between.count <= place:
                    break
                gaps += 1
                assert during == before
                between.arm(0, lambda: connection.execute(write))
                assert (await api.get(path)).document != before
    assert gaps >= len(paths)


async def test_the_total_agrees_with_the_page(api: Api, between: Between) -> None:
    """Rows that are inserted between the page and the count do not change the total."""
    more = "INSERT INTO computers (name) SELECT 'more' FROM generate_series(1, 3)"
    async with writer(api) as connection:
        for number, place in itertools.product((1, 2, 3, 4, 5), (1, 2)):
            await connection.execute("DELETE FROM computers")
            await connection.execute(more)
            between.arm(place, lambda: connection.execute(more))
            found = (await api.get(f"/computers?page[size]=3&page[number]={number}")).document
            total, count = found["meta"]["total"], len(found["data"])
            assert found["meta"] == {"count": count, "total": total, "totalPages": total // 3}
            assert count == (3 if number <= total // 3 else 0)
            assert f"page%5Bnumber%5D={total // 3}" in found["links"]["last"]


# answers to writes


async def test_the_answer_to_a_post(api: Api, between: Between) -> None:
    await create_two_groups(api)

    async def create() -> Answer:
        sent = document("computer", {"name": "new"}, relationships=linked(owner=one("user", "1")))
        return await api.post("/computers?include=owner.group.users", sent)

    assert await everywhere(api, between, create, "UPDATE users SET group_id = 3 - group_id") > 0


async def test_the_answer_to_a_patch_of_attributes(api: Api, between: Between) -> None:
    await create_two_groups(api)

    async def update() -> Answer:
        return await api.patch(
            "/posts/1?include=user.group.users,user.computers", document("post", {"body": "x"}, id="1")
        )

    assert await everywhere(api, between, update, TURN_ROUND) > 0


async def test_the_answer_to_a_patch_of_a_to_many(api: Api, between: Between) -> None:
    await create_two_groups(api)

    async def update() -> Answer:
        await api.sql("UPDATE posts SET user_id = 1")
        sent = document("user", id="1", relationships=linked(computers=of("computer", "1", "4")))
        return await api.patch("/users/1?include=posts.user.posts,computers", sent)

    assert await everywhere(api, between, update, "UPDATE posts SET user_id = 2 WHERE id = 2") > 0


async def test_the_answer_to_a_patch_of_a_to_one(api: Api, between: Between) -> None:
    await create_two_groups(api)

    async def update() -> Answer:
        sent = document("computer", {"name": "mine"}, id="1", relationships=linked(owner=one("user", "1")))
        answer = await api.patch("/computers/1?include=owner.group.users", sent)
        assert answer.document["data"]["attributes"]["name"] == "mine"
        assert answer.document["data"]["relationships"]["owner"]["data"] == one("user", "1")
        return answer

    assert await everywhere(api, between, update, "UPDATE users SET group_id = 3 - group_id") > 0


# at random


MOVE = """
    UPDATE computers SET owner_id = (SELECT id FROM users ORDER BY random() LIMIT 1)
        WHERE id IN (SELECT id FROM computers ORDER BY random() LIMIT 5)
"""
REPLACE = """
    DELETE FROM computers WHERE id IN (SELECT id FROM computers ORDER BY random() LIMIT 3);
    DELETE FROM users WHERE id = (SELECT id FROM users ORDER BY random() LIMIT 1);
    INSERT INTO users (first_name, last_name) VALUES ('u', 'new');
    INSERT INTO computers (name, owner_id)
        SELECT 'c', max(users.id) FROM users, generate_series(1, 3) number GROUP BY number;
    UPDATE computers SET owner_id = (SELECT max(id) FROM users) WHERE owner_id IS NULL;
"""
"""Each statement is a transaction."""


async def test_many_readers_during_writes_that_keep_the_sums(api: Api) -> None:
    """There are always 10 users with 30 computers: the writer moves computers, and replaces a user and three computers
    in one transaction."""
    await api.sql("INSERT INTO users (first_name, last_name) SELECT 'u', n::text FROM generate_series(1, 10) n")
    await api.sql("INSERT INTO computers (name, owner_id) SELECT 'c', id FROM users, generate_series(1, 3)")
    loop = asyncio.get_running_loop()
    end = loop.time() + RANDOM_SECONDS
    counts = await asyncio.gather(_write_until(api, end), *(_read_until(api, end, number) for number in range(READERS)))
    assert min(counts) > 5


async def _write_until(api: Api, end: float) -> int:
    chance = random.Random(7)
    loop = asyncio.get_running_loop()
    count = 0
    async with writer(api) as connection:
        while loop.time() < end:
            count += 1
            await connection.execute(MOVE if chance.random() < 0.5 else REPLACE)
    return count


async def _read_until(api: Api, end: float, number: int) -> int:
    loop = asyncio.get_running_loop()
    count = 0
    while loop.time() < end:
        count += 1
        if number % 2:
            found = (await api.get("/users?page[size]=0&include=computers.owner")).document
            assert found["meta"] == {"count": 10, "total": 10, "totalPages": 1}
            assert sum(len(user["relationships"]["computers"]["data"]) for user in found["data"]) == 30
            assert len(found["included"]) == 30
        else:
            found = (await api.get("/computers?page[size]=7&page[number]=5&include=owner.computers")).document
            assert found["meta"] == {"count": 2, "total": 30, "totalPages": 5}
        agree(found)
    return count
