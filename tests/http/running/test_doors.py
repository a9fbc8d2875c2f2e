"""The two doors to the database: reads of a request without a write may be answered by another server, and everything
else by the one that takes writes. The server has no setting for another server yet, so the tests add it."""

from __future__ import annotations

from typing import Any

import pytest
from tornado.ioloop import IOLoop

from server.handlers.writing import WritingHandler
from server.postgres.connection import PostgresConnection
from server.postgres.opening import open_database
from server.resources import built_in
from server.settings import Settings
from tests.http.conftest import Api, Start
from tests.http.people import create_household
from tests.http.writes.test_around_writes import EVERY
from tests.http.writes.test_preconditions import operations
from waterspout import Change, CustomHandler


class Mixed(CustomHandler):
    """GET reads, writes if it is asked for, and reads again: as rows, and as a document."""

    async def get(self) -> None:
        seen = [await self._seen()]
        if (name := self.get_query_argument("name", "")) and self.get_query_argument("by", "") == "sql":
            await self.database.write(lambda one: one.execute("INSERT INTO groups (name) VALUES ($1)", name))
        elif name:
            await self.write([Change(kind="create", type="group", attributes={"name": name})])
        seen.append(await self._seen())
        self.finish({"seen": seen})

    async def post(self) -> None:
        self.finish({"seen": [await self._seen()]})

    async def _seen(self) -> list[Any]:
        count = await self.database.read(lambda one: one.fetchval("SELECT count(*) FROM groups"))
        return [count, len((await self.read("group"))["data"])]


class Behind:
    """A server and the other database that answers its reads, which has other groups."""

    def __init__(self, api: Api) -> None:
        self.api = api

    async def groups(self) -> list[str]:
        return [one["attributes"]["name"] for one in (await self.api.get("/groups?sort=name")).document["data"]]


@pytest.fixture
def behind(io_loop: IOLoop, start: Start, database_url: str, rows_url: str) -> Behind:
    async def opened() -> Behind:
        api = await start(database_url, built_in(), routes=[(r"/mixed", Mixed)])
        other = await open_database(rows_url, Settings(), 2)
        api.app.database.pools["read"] = other.pool
        return Behind(api)

    return io_loop.run_sync(opened)


async def test_reads(behind: Behind, reader: Api) -> None:
    """Pages, one resource, related resources, linkage, and a list without pages."""
    assert await behind.api.sql("SELECT id FROM users") == []
    for path in (
        "/users",
        "/users/1?include=computers",
        "/users?include=group,computers&sort=-age",
        "/groups/1/users",
        "/users/1/relationships/computers",
        "/users?page[size]=0",
        "/computers?page[size]=0&include=owner",
    ):
        answer, same = await behind.api.get(path), await reader.get(path)
        assert (answer.status, answer.document["data"]) == (200, same.document["data"])
        assert answer.document["data"]


@EVERY
async def test_writes(behind: Behind, method: str, path: str, sent: Any) -> None:
    """A write and its answer never read from the other server. The rows of the household are not there."""
    await create_household(behind.api)
    answer = await behind.api.request(method, path, sent)
    assert answer.status in (200, 201, 204), answer.body


async def test_a_row_that_is_missing(behind: Behind, reader: Api) -> None:
    """It is looked for again where writes go, and not where it is."""
    assert (await reader.get("/users/1")).status == 200
    for method in ("PATCH", "DELETE"):
        body = {"data": {"type": "user", "id": "1", "attributes": {"age": 3}}} if method == "PATCH" else None
        assert (await behind.api.request(method, "/users/1", body)).status == 404


@pytest.mark.parametrize("by", ["sql", "change"])
async def test_custom_code(behind: Behind, reader: Api, by: str) -> None:
    """It reads from the other server until it writes. A POST never does."""
    await behind.api.sql("INSERT INTO groups (name) SELECT 'group ' || n FROM generate_series(1, 6) n")
    there = len((await reader.get("/groups?page[size]=0")).document["data"])
    assert 0 < there < 6
    assert (await behind.api.get("/mixed")).document == {"seen": [[there, there]] * 2}
    assert (await behind.api.get(f"/mixed?name=new&by={by}")).document == {"seen": [[there, there], [7, 7]]}
    assert (await behind.api.post("/mixed", None)).document == {"seen": [[7, 7]]}


async def test_what_follows_a_commit(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs on the connection of the write, which other connections see by then: a statement without a transaction,
    and a transaction."""
    seen: list[int] = []

    async def count(connection: PostgresConnection) -> None:
        assert not connection.is_in_transaction()
        seen.append((await api.sql("SELECT count(*) FROM groups"))[0][0])

    monkeypatch.setattr(WritingHandler, "committed", staticmethod(count))
    await api.create("/groups", "group", {"name": "one"})
    add = {"op": "add", "data": {"type": "group", "attributes": {"name": "two"}}}
    update = {"op": "update", "data": {"type": "group", "id": "1", "attributes": {"name": "three"}}}
    assert (await api.request("POST", "/operations", operations(add, update))).status == 200
    assert seen == [1, 2]


async def test_what_follows_a_commit_fails(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The write stands, and is answered. The connection is not used again."""

    async def fail(connection: PostgresConnection) -> None:
        pids.append(await connection.fetchval("SELECT pg_backend_pid()"))
        await connection.execute("SELECT 1/0")

    pids: list[int] = []
    monkeypatch.setattr(WritingHandler, "committed", staticmethod(fail))
    for name in ("one", "two"):
        await api.create("/groups", "group", {"name": name})
    assert (await api.sql("SELECT count(*) FROM groups"))[0][0] == 2
    assert len(set(pids)) == 2
    assert "after the commit of a write failed: division by zero" in caplog.text
