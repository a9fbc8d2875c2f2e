"""The version that a row must have is tested by the statement that writes it: one write needs no lock, and many are a
batch."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tornado.ioloop import IOLoop

from tests.http.conftest import Api, Inspected, Sent
from tests.http.operating import EXTENDED, extended, session, until_blocked_by
from waterspout import TEXT, Attribute, Catalog, Resource

COUNT = 50
COUNTED = "version int NOT NULL DEFAULT 1,"
TABLES = """
CREATE TABLE things (id bigserial PRIMARY KEY, {0} name text NOT NULL, note text);
INSERT INTO things (name) SELECT 'n' || n FROM generate_series(1, 50) n;
"""


ATTRIBUTES = (Attribute("name", TEXT, required=True), Attribute("note", TEXT, nullable=True))


@pytest.fixture(params=["", COUNTED], ids=["xmin", "a column"])
def api(io_loop: IOLoop, inspected: Inspected, sent: Sent, request: pytest.FixtureRequest) -> Api:
    # The statements of servers that are started later are kept.
    assert sent == []
    version = "version" if request.param else ""
    thing = Resource("thing", "/things", "things", attributes=ATTRIBUTES, version=version or None)
    return io_loop.run_sync(lambda: inspected(TABLES.format(request.param), Catalog([thing])))


async def tag_of(api: Api, row_id: int) -> str:
    return (await api.get(f"/things/{row_id}")).headers["ETag"]


async def has_column(api: Api) -> bool:
    return bool(await api.sql("SELECT FROM pg_attribute WHERE attrelid = 'things'::regclass AND attname = 'version'"))


async def names(api: Api) -> list[str]:
    return [row[0] for row in await api.sql("SELECT name FROM things ORDER BY id")]


def body(row_id: int, name: str = "new") -> dict[str, Any]:
    return {"data": {"type": "thing", "id": str(row_id), "attributes": {"name": name}}}


async def updates(api: Api) -> list[dict[str, Any]]:
    tags = [await tag_of(api, row_id) for row_id in range(1, COUNT + 1)]
    return [{"op": "update", **body(number), "meta": {"ifMatch": tag}} for number, tag in enumerate(tags, 1)]


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
async def test_one_statement(api: Api, sent: Sent, method: str) -> None:
    tag = await tag_of(api, 7)
    sent.clear()
    answer = await api.request(method, "/things/7", body(7) if method == "PATCH" else None, headers={"If-Match": tag})
    assert (answer.status, len(sent)) == (200, 1), sent
    stale = await api.request(method, "/things/7", body(7) if method == "PATCH" else None, headers={"If-Match": tag})
    assert stale.status == (412 if method == "PATCH" else 404)


async def test_many_are_a_batch(api: Api, sent: Sent) -> None:
    operations = await updates(api)
    sent.clear()
    assert (await extended(api, *operations)).status == 200
    # All rows are locked at once, in the order of their ids, so that two such requests do not wait for each other.
    assert [statement.partition(" ")[0] for statement in sent] == ["BEGIN", "SELECT", "SAVEPOINT", "UPDATE", "COMMIT;"]
    assert await names(api) == ["new"] * COUNT
    answer = await extended(api, *operations)
    assert [one["source"]["pointer"] for one in answer.errors] == ["/atomic:operations/0/meta/ifMatch"]


async def test_the_one_that_has_changed(api: Api) -> None:
    operations = await updates(api)
    assert (await api.patch("/things/18", body(18, "theirs"))).status == 200
    before = await names(api)
    answer = await extended(api, *operations)
    assert (answer.status, answer.headers["Content-Type"]) == (412, EXTENDED)
    assert [one["source"]["pointer"] for one in answer.errors] == ["/atomic:operations/17/meta/ifMatch"]
    assert await names(api) == before


@pytest.mark.parametrize(("write", "status"), [("UPDATE things SET name = 'theirs'", 412), ("DELETE FROM things", 404)])
@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
async def test_a_row_that_another_transaction_changes(api: Api, method: str, write: str, status: int) -> None:
    """The statement waits for the row, and then tests the new version."""
    tag = await tag_of(api, 7)
    async with session(api) as connection, session(api) as watcher, connection.transaction():
        counted = ", version = version + 1" if "SET" in write and await has_column(api) else ""
        await connection.execute(f"{write}{counted} WHERE id = 7")
        sent = body(7) if method == "PATCH" else None
        answering = asyncio.ensure_future(api.request(method, "/things/7", sent, headers={"If-Match": tag}))
        await until_blocked_by(watcher, connection.get_server_pid())
    answer = await answering
    assert answer.status == status, answer.body
    assert (await names(api))[6] == ("theirs" if status == 412 else "n8")
