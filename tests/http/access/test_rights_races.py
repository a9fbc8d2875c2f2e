"""A row changes hands between the moment in which a write finds it and that in which it is written: nobody without
the right writes it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import asyncpg
import msgspec
import pytest
from tornado.ioloop import IOLoop

from tests.http.access.test_write_rights import Ruled
from tests.http.conftest import Api
from tests.waiting import until

ROUNDS = 40
ROWS = """
    INSERT INTO groups (name) VALUES ('mine'), ('mine too'), ('other');
    INSERT INTO users (first_name, last_name, age, group_id)
        SELECT 'first ' || n, 'last', 0, CASE WHEN n < 5 THEN 1 ELSE 3 END FROM generate_series(1, 8) n;
    INSERT INTO computers (name, owner_id) SELECT 'computer ' || n, n FROM generate_series(1, 8) n
"""
MINE = ["mine", "mine too"]
STEPS: dict[str, Any] = {
    "user": {"name": "group.name", "op": "in_", "val": MINE},
    "computer": {"name": "owner.group.name", "op": "in_", "val": MINE},
}
"""Whether a row is mine depends on another row."""
COLUMNS: dict[str, Any] = {
    "user": {"name": "group.id", "op": "in_", "val": [1, 2]},
    "computer": {"name": "owner.id", "op": "in_", "val": [1, 2, 3, 4]},
}
RULES: dict[str, dict[str, Any]] = {
    "steps": {"update": STEPS, "delete": STEPS},
    "columns": {"update": COLUMNS, "delete": COLUMNS},
    "hidden steps": {"read": STEPS},
    "hidden columns": {"read": COLUMNS},
    "checked": {"check_update": STEPS},
}
LOST = {"steps": 403, "columns": 403, "hidden steps": 404, "hidden columns": 404}
WAITING = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


class Write(msgspec.Struct, frozen=True):
    """A request, and the row that it writes. is_related: only the linkage names the row."""

    method: str
    path: str
    data: Any = None
    table: str = "users"
    is_related: bool = False


def user(age: int, **relationships: Any) -> Any:
    return {"type": "user", "id": "1", "attributes": {"age": age}} | (
        {"relationships": {name: {"data": one} for name, one in relationships.items()}} if relationships else {}
    )


COMPUTER = {"type": "computer", "id": "1"}
WRITES = {
    "update": Write("PATCH", "/users/1", user(50)),
    "unchanged": Write("PATCH", "/users/1", user(50) | {"attributes": {"display_name": "first 1 last", "age": 50}}),
    "a to-one": Write("PATCH", "/users/1/relationships/group", {"type": "group", "id": "1"}),
    "a to-many": Write("PATCH", "/users/1/relationships/computers", []),
    "the related": Write("PATCH", "/computers/1/owner", user(50)),
    "delete": Write("DELETE", "/computers/1", table="computers"),
    "one that joins": Write("POST", "/users/2/relationships/computers", [COMPUTER], "computers", True),
    "one that leaves": Write("PATCH", "/users/1/relationships/computers", [], "computers", True),
}
AWAY = {
    "users": "UPDATE users SET group_id = 2, age = 1 WHERE id = 1; UPDATE groups SET name = 'lost' WHERE id = 2",
    "computers": "UPDATE computers SET owner_id = 4, serial = 'x' WHERE id = 1;"
    " UPDATE users SET group_id = 3 WHERE id = 4",
}
"""The row gets another group, and at the same time this group another name. Before, the row and both groups were mine:
whoever sees the new row and the old group would find it mine, too."""
AWAY_BY_COLUMN = {
    "users": "UPDATE users SET group_id = 3, age = 1 WHERE id = 1",
    "computers": "UPDATE computers SET owner_id = 5, serial = 'x' WHERE id = 1",
}
WITHIN = {
    "users": "UPDATE users SET group_id = 2, age = 1 WHERE id = 1",
    "computers": "UPDATE computers SET name = 'y' WHERE id = 1; UPDATE users SET group_id = 2 WHERE id = 1",
}
"""The row stays mine."""


@pytest.fixture
def filled(api: Api, io_loop: IOLoop) -> Api:
    async def fill() -> None:
        for statement in ROWS.split(";"):
            await api.sql(statement)

    io_loop.run_sync(fill)
    return api


async def after(api: Api, sql: str, write: Write) -> Any:
    """Send a write that has to wait for a transaction with these statements. Return its answer."""
    connection = await asyncpg.connect(api.database_url)
    try:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(sql)
        document = None if write.data is None else {"data": write.data}
        sent = asyncio.ensure_future(api.request(write.method, write.path, document))
        await until(lambda: api.sql(WAITING))
        await transaction.commit()
        return await sent
    finally:
        await connection.close()


async def everything(api: Api) -> Any:
    return [await api.sql(f"SELECT * FROM {table} ORDER BY id") for table in ("users", "computers", "groups")]


@pytest.mark.parametrize("rules", LOST)
@pytest.mark.parametrize("name", WRITES)
async def test_a_row_that_is_lost(filled: Api, rules: str, name: str) -> None:
    write, away = WRITES[name], AWAY if "steps" in rules else AWAY_BY_COLUMN
    Ruled(filled, **RULES[rules])
    answer = await after(filled, away[write.table], write)
    expected = LOST[rules]
    if name == "one that leaves":
        # It has left already, so nothing has to be removed.
        expected = 200
    assert answer.status == expected, answer.body
    found = await everything(filled)
    await filled.sql("UPDATE users SET group_id = 1, age = 0 WHERE id IN (1, 4)")
    await filled.sql("UPDATE groups SET name = 'mine too' WHERE id = 2")
    await filled.sql("UPDATE computers SET owner_id = id, serial = NULL")
    for statement in away[write.table].split(";"):
        await filled.sql(statement)
    assert await everything(filled) == found


@pytest.mark.parametrize("rules", LOST)
@pytest.mark.parametrize("name", WRITES)
async def test_a_row_that_stays(filled: Api, rules: str, name: str) -> None:
    write = WRITES[name]
    Ruled(filled, **RULES[rules])
    answer = await after(filled, WITHIN[write.table], write)
    assert answer.status == 200, answer.body
    if write.data == user(50):
        assert [tuple(row) for row in await filled.sql("SELECT age, group_id FROM users WHERE id = 1")] == [(50, 2)]


@pytest.mark.parametrize("rules", ["steps", "columns", "hidden steps", "hidden columns", "checked"])
async def test_many_rounds(filled: Api, rules: str) -> None:
    """What the write has written, nobody but the owner of this moment has written."""
    Ruled(filled, **RULES[rules])
    chance, seen = random.Random(rules), Counter[tuple[int, bool]]()
    away = (AWAY if rules in ("steps", "hidden steps", "checked") else AWAY_BY_COLUMN)["users"]
    connection = await asyncpg.connect(filled.database_url)
    document = {"data": user(50)}
    batch = {
        "atomic:operations": [{"op": "update", "data": user(50)}, {"op": "update", "data": user(50) | {"id": "2"}}]
    }
    for round_number in range(ROUNDS):
        await connection.execute("UPDATE groups SET name = 'mine too' WHERE id = 2")
        await connection.execute("UPDATE users SET group_id = 1, age = 0 WHERE id < 5")

        async def transfer() -> None:
            await asyncio.sleep(chance.random() * 0.004)
            async with connection.transaction():
                await connection.execute(away)

        is_batch = round_number % 3 == 2
        write = filled.post("/operations", batch) if is_batch else filled.patch("/users/1", document)
        answer, _ = await asyncio.gather(write, transfer())
        [(age,)] = await connection.fetch("SELECT age FROM users WHERE id = 1")
        # The transfer has the last word: it sets another age.
        assert age == 1, (answer.status, answer.body)
        assert answer.status in ({200, 422} if is_batch else {200, LOST.get(rules, 403)}), answer.body
        seen[answer.status, is_batch] += 1
    await connection.close()
    assert {status for status, is_batch in seen if not is_batch} == {200, LOST.get(rules, 403)}, seen
