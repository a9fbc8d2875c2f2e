"""Writes atomic operations for tests, and compares the database before and after them. What comes in: an Api. What goes
out: operations as plain dicts, answers, rows. It must not know the server's code."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from tests.http.conftest import MEDIA_TYPE, Answer, Api
from tests.http.refusals import contents
from tests.waiting import until

URI = "https://jsonapi.org/ext/atomic"
EXTENDED = f'{MEDIA_TYPE};ext="{URI}"'

Operation = dict[str, Any]


def add(type_name: str, attributes: Any = None, **members: Any) -> Operation:
    """Return an operation that creates a resource. members: those of the resource object: lid, id, relationships."""
    return {"op": "add", "data": _data(type_name, attributes, members)}


def update(type_name: str, attributes: Any = None, **members: Any) -> Operation:
    return {"op": "update", "data": _data(type_name, attributes, members)}


def remove(type_name: str, **members: Any) -> Operation:
    """Return an operation that deletes a resource. members: id or lid."""
    return {"op": "remove", "ref": {"type": type_name, **members}}


def link(op: str, type_name: str, relationship: str, data: Any, **members: Any) -> Operation:
    """Return an operation on a relationship, as the extension defines it. members: id or lid of the resource that has
    it."""
    return {"op": op, "ref": {"type": type_name, **members, "relationship": relationship}, "data": data}


def by_lid(type_name: str, lid: str) -> dict[str, str]:
    return {"type": type_name, "lid": lid}


def _data(type_name: str, attributes: Any, members: dict[str, Any]) -> dict[str, Any]:
    return {"type": type_name, **members} | ({} if attributes is None else {"attributes": attributes})


async def operate(api: Api, *operations: Any, media_type: str = MEDIA_TYPE, path: str = "/operations") -> Answer:
    return await api.request("POST", path, {"atomic:operations": operations}, headers={"Content-Type": media_type})


async def extended(api: Api, *operations: Any) -> Answer:
    return await operate(api, *operations, media_type=EXTENDED)


def results(answer: Answer) -> list[Any]:
    """Return the resources in the results of an answer without the extension."""
    assert answer.status == 200, answer.body
    assert answer.headers["Content-Type"] == MEDIA_TYPE
    assert all(set(each) == {"data", "meta"} and each["meta"] is None for each in answer.document["atomic:results"])
    return [each["data"] for each in answer.document["atomic:results"]]


def extended_results(answer: Answer) -> list[Any]:
    assert answer.status == 200, answer.body
    assert answer.headers["Content-Type"] == EXTENDED
    assert all(set(each) == {"data"} for each in answer.document["atomic:results"])
    return [each["data"] for each in answer.document["atomic:results"]]


def detail(answer: Answer) -> Any:
    """Return the `detail` of an error without the extension."""
    assert (answer.status, answer.headers["Content-Type"]) == (422, "application/json"), answer.body
    assert set(answer.document) == {"detail"}
    return answer.document["detail"]


def extended_errors(answer: Answer) -> tuple[int, list[dict[str, Any]]]:
    assert answer.headers["Content-Type"] == EXTENDED, answer.body
    assert set(answer.document) == {"errors", "jsonapi"}
    return answer.status, answer.errors


@asynccontextmanager
async def session(api: Api) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(api.database_url)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def locked(api: Api, table: str) -> AsyncIterator[None]:
    """Lock the table, so that nobody else can read it."""
    async with session(api) as connection, connection.transaction():
        await connection.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        yield


@asynccontextmanager
async def unchanged(api: Api) -> AsyncIterator[Any]:
    """Check that every row of every table is the same afterwards, and that no session of the server is in a transaction
    or holds a lock. Yields a connection for tests."""
    async with session(api) as watcher:
        before = await contents(watcher)
        yield watcher
        await until_at_rest(watcher)
        assert await contents(watcher) == before


async def until_at_rest(watcher: Any) -> None:
    """Wait until no session of the server is in a transaction or holds a lock. Fails if this takes too long."""
    await until(lambda: at_work(watcher), lambda busy: not busy)


async def at_work(watcher: Any) -> list[str]:
    """Return the state of each session of the server that is in a transaction or holds a lock."""
    found = await watcher.fetch(
        "SELECT state FROM pg_stat_activity a WHERE datname = current_database() AND application_name = 'waterspout'"
        " AND (state <> 'idle' OR xact_start IS NOT NULL OR EXISTS (SELECT FROM pg_locks l WHERE l.pid = a.pid))"
    )
    return [row["state"] for row in found]


async def until_blocked_by(watcher: Any, holder_pid: int) -> int:
    """Wait until a session waits for a lock of the other one. Returns its process id."""
    statement = "SELECT pid FROM pg_stat_activity WHERE $1 = ANY(pg_blocking_pids(pid))"
    return int(await until(lambda: watcher.fetchval(statement, holder_pid)))
