"""Updates that send different members are written together, and leave the rows that they leave one after the other."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from tests.http.conftest import Api, Inspected, Sent
from tests.http.operating import extended, session, until_blocked_by
from tests.http.people import of
from waterspout import TEXT, Attribute, Catalog, Resource

COUNT = 120
TABLES = """
CREATE DOMAIN grade AS int DEFAULT 3;
CREATE TABLE things (
    id bigserial PRIMARY KEY, name text NOT NULL, note text, count int CHECK (count + count < 200), words text[],
    data jsonb, json json, score numeric(4,2) DEFAULT 5, grade grade, body bytea, code text UNIQUE,
    loud text GENERATED ALWAYS AS (upper(note)) STORED, parent_id bigint REFERENCES things
);
"""
ROWS = f"""
INSERT INTO things (name, note, count, words, data, json, score, grade, body, code, parent_id)
SELECT 'n' || n, CASE WHEN n % 3 > 0 THEN 'old' || n END, n % 90, '[5:6]={{a,b}}', '{{"k":[1]}}', '{{"a": 1 }}', 1.25,
    n, '\\x00ff', 'c' || n, nullif(1, n)
FROM generate_series(1, {COUNT}) n;
"""
COLUMNS = "id, name, note, count, array_dims(words), words, data, json::text, score, grade, body, code, loud, parent_id"
VALUES: dict[str, Any] = {
    "name": "new",
    "note": None,
    "count": 7,
    "words": ["a", "b"],
    "data": {"k": None},
    "json": [1],
    "score": "2.50",
    "grade": 9,
    "body": "AQI=",
}


def updates(values: dict[str, Any], count: int = COUNT) -> list[dict[str, Any]]:
    """Return updates, each with some of the values."""
    chance, operations = random.Random(7), []
    for number in range(1, count + 1):
        names = [name for name in values if chance.random() < 0.5]
        attributes = {name: values[name] for name in names}
        data: dict[str, Any] = {"type": "thing", "id": str(number), "attributes": attributes}
        if chance.random() < 0.3:
            data["relationships"] = {"parent": {"data": chance.choice((None, of("thing", "2")[0]))}}
        operations.append({"op": "update", "data": data})
    return operations


async def execute(api: Api, sql: str) -> None:
    async with session(api) as connection:
        await connection.execute(sql)


async def rows(api: Api) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in await api.sql(f"SELECT {COLUMNS} FROM things ORDER BY id")]


async def patch(api: Api, operation: dict[str, Any]) -> Any:
    answer = await api.request("PATCH", f"/things/{operation['data']['id']}", {"data": operation["data"]})
    assert answer.status == 200, answer.body
    return answer.document["data"]["attributes"]


TRIGGER = """
CREATE TABLE seen (thing bigint, what text);
CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO seen VALUES (NEW.id, TG_ARGV[0]); RETURN NEW; END $$;
CREATE TRIGGER looks {0} UPDATE OF note ON things FOR EACH ROW EXECUTE FUNCTION look('note');
CREATE TRIGGER looks_too {0} UPDATE OF count ON things FOR EACH ROW EXECUTE FUNCTION look('count');
"""


@pytest.mark.parametrize(
    "more", ["", TRIGGER.format("BEFORE"), TRIGGER.format("AFTER")], ids=["plain", "before", "after"]
)
async def test_together_and_alone(inspected: Inspected, more: str) -> None:
    api = await inspected(TABLES + ROWS + more)
    seen = "SELECT * FROM seen ORDER BY thing, what" if more else "SELECT 1"
    operations, before = updates(VALUES), await rows(api)
    answer = await extended(api, *operations)
    assert answer.status == 200, answer.body
    together, told = await rows(api), await api.sql(seen)
    assert together != before
    shown = [result["data"]["attributes"] for result in answer.document["atomic:results"]]
    await execute(api, f"TRUNCATE things{', seen' if more else ''} RESTART IDENTITY; {ROWS}")
    assert await rows(api) == before
    assert [await patch(api, operation) for operation in operations] == shown
    assert await rows(api) == together
    assert await api.sql(seen) == told


async def test_they_are_a_few_statements(inspected: Inspected, sent: Sent) -> None:
    api = await inspected(TABLES + ROWS)
    operations = [one for one in updates(VALUES) if one["data"]["attributes"] and "relationships" not in one["data"]]
    sent.clear()
    assert (await extended(api, *operations)).status == 200
    assert len(set(sent)) < 6, set(sent)
    assert sum(statement.startswith("UPDATE") for statement in sent) == 1, sent


async def test_the_refused_one(inspected: Inspected) -> None:
    api = await inspected(TABLES + ROWS)
    before, operations = await rows(api), updates({"note": "n", "data": {}})
    operations[17]["data"]["attributes"]["count"] = 100
    answer = await extended(api, *operations)
    pointer = "/atomic:operations/17/data/attributes/count"
    assert [(one["code"], one["source"]["pointer"]) for one in answer.errors] == [("invalid_attribute", pointer)]
    assert await rows(api) == before


async def test_unique_values_change_in_their_order(inspected: Inspected) -> None:
    """The second one takes the value that the first one has left. The other way round it is refused."""
    api = await inspected(TABLES + ROWS)
    leave = {"op": "update", "data": {"type": "thing", "id": "1", "attributes": {"code": "free", "note": "x"}}}
    take = {"op": "update", "data": {"type": "thing", "id": "2", "attributes": {"code": "c1", "count": 1}}}
    answer = await extended(api, take, leave)
    assert [one["source"]["pointer"] for one in answer.errors] == ["/atomic:operations/0/data/attributes/code"]
    assert (await extended(api, leave, take)).status == 200


async def test_other_clients_change_what_is_left_out(inspected: Inspected) -> None:
    """The update waits for them, and keeps what they have written."""
    api = await inspected(TABLES + ROWS)
    operations = [
        {"op": "update", "data": {"type": "thing", "id": "1", "attributes": {"count": 1}}},
        {"op": "update", "data": {"type": "thing", "id": "2", "attributes": {"name": "new"}}},
    ]
    async with session(api) as connection, session(api) as watcher, connection.transaction():
        await connection.execute("UPDATE things SET name = 'theirs', count = 33, note = 'theirs' WHERE id < 3")
        answer = asyncio.ensure_future(extended(api, *operations))
        await until_blocked_by(watcher, connection.get_server_pid())
        assert not answer.done()
    assert (await answer).status == 200
    assert [(row[1], row[2], row[3]) for row in (await rows(api))[:2]] == [
        ("theirs", "theirs", 1),
        ("new", "theirs", 33),
    ]


async def test_a_column_that_the_role_may_not_read(inspected: Inspected) -> None:
    """An update with others would read what it leaves out. Then they run one after the other."""
    attributes = (Attribute("name", TEXT, required=True), Attribute("pin", TEXT, nullable=True, readable=False))
    ddl = "CREATE TABLE things (id bigserial PRIMARY KEY, name text NOT NULL, pin text); "
    ddl += "INSERT INTO things (name) VALUES ('a'), ('b')"
    api = await inspected(ddl, Catalog([Resource("thing", "/things", "things", attributes=attributes)]))
    await execute(api, "REVOKE SELECT ON things FROM CURRENT_USER; GRANT SELECT (id, name) ON things TO CURRENT_USER")
    operations = [
        {"op": "update", "data": {"type": "thing", "id": "1", "attributes": {"pin": "1"}}},
        {"op": "update", "data": {"type": "thing", "id": "2", "attributes": {"name": "new"}}},
    ]
    answer = await extended(api, *operations)
    assert answer.status == 200, answer.body
    await api.sql("GRANT SELECT ON things TO CURRENT_USER")
    assert [tuple(row) for row in await api.sql("SELECT name, pin FROM things ORDER BY id")] == [
        ("a", "1"),
        ("new", None),
    ]
