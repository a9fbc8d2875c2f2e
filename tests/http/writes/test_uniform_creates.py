"""Adds that send different members are written together, and leave the rows that they leave one after the other."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from tests.http.conftest import Api, Inspected, Sent
from tests.http.operating import add, extended
from tests.http.people import of

TABLES = """
CREATE DOMAIN grade AS int DEFAULT 3;
CREATE TABLE pairs (a int, b int, PRIMARY KEY (a, b));
INSERT INTO pairs VALUES (1, 1), (1, 2);
CREATE TABLE things (
    id bigserial PRIMARY KEY, name text NOT NULL, note text, count int CHECK (count + count < 200), words text[],
    data jsonb, status text NOT NULL DEFAULT 'new', score numeric(4,2) DEFAULT 5, grade grade,
    loud text GENERATED ALWAYS AS (upper(note)) STORED, parent_id bigint REFERENCES things, a int, b int,
    FOREIGN KEY (a, b) REFERENCES pairs
);
"""
COLUMNS = "name, note, count, words, data, status, score, grade, loud, parent_id IS NULL, a, b"
OPTIONAL: dict[str, Any] = {"note": "n", "count": 7, "words": ["a", "b"], "data": {"k": [1]}}
DEFAULTED: dict[str, Any] = {"status": "old", "score": "1.50", "grade": 9}
NULLS: dict[str, Any] = dict.fromkeys((*OPTIONAL, "score"))


def things(count: int, values: dict[str, Any]) -> list[dict[str, Any]]:
    """Return adds, each with some of the values."""
    chance, operations = random.Random(5), []
    for number in range(count):
        names = [name for name in values if chance.random() < 0.5]
        operation = add("thing", {"name": f"t{number}"} | {name: values[name] for name in names})
        if chance.random() < 0.5:
            operation["data"]["relationships"] = {"pair": {"data": of("pair", chance.choice(("1,1", "1,2")))[0]}}
        operations.append(operation)
    return operations


async def rows(api: Api) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in await api.sql(f"SELECT {COLUMNS} FROM things ORDER BY id")]


@pytest.mark.parametrize("values", [OPTIONAL, OPTIONAL | DEFAULTED, OPTIONAL | NULLS], ids=["nullable", "all", "nulls"])
async def test_together_and_alone(inspected: Inspected, values: dict[str, Any]) -> None:
    api = await inspected(TABLES)
    operations = things(120, values)
    answer = await extended(api, *operations)
    assert answer.status == 200, answer.body
    together = await rows(api)
    shown = [result["data"]["attributes"] for result in answer.document["atomic:results"]]
    await api.sql("TRUNCATE things")
    alone = [await api.post("/things", {"data": operation["data"]}) for operation in operations]
    assert [one.status for one in alone] == [201] * 120
    assert await rows(api) == together
    assert shown == [one.document["data"]["attributes"] for one in alone]


async def test_they_are_a_few_statements(inspected: Inspected, sent: Sent) -> None:
    api = await inspected(TABLES)
    operations = things(200, OPTIONAL)
    sent.clear()
    assert (await extended(api, *operations)).status == 200
    assert len(sent) < 10, sent


async def test_the_refused_one(inspected: Inspected) -> None:
    api = await inspected(TABLES)
    operations = things(30, {"note": "n", "data": {}})
    operations[17]["data"]["attributes"]["count"] = 100
    answer = await extended(api, *operations)
    pointer = "/atomic:operations/17/data/attributes/count"
    assert [(one["code"], one["source"]["pointer"]) for one in answer.errors] == [("invalid_attribute", pointer)]
    assert await rows(api) == []


async def test_they_refer_to_a_row_of_the_same_request(inspected: Inspected) -> None:
    api = await inspected(TABLES)
    operations = things(20, OPTIONAL)
    for operation in operations[::3]:
        parent = {"parent": {"data": {"type": "thing", "lid": "p"}}}
        operation["data"]["relationships"] = operation["data"].get("relationships", {}) | parent
    answer = await extended(api, add("thing", {"name": "p"}, lid="p"), *operations)
    assert answer.status == 200, answer.body
    assert [row[9] for row in await rows(api)] == [True, *[number % 3 > 0 for number in range(20)]]


async def test_lines_with_different_members(inspected: Inspected, sent: Sent) -> None:
    """Also those of an import."""
    api = await inspected(TABLES)
    lines = [json.dumps({"type": "thing", "attributes": one["data"]["attributes"]}) for one in things(300, OPTIONAL)]
    sent.clear()
    headers = {"Content-Type": "application/x-ndjson"}
    answer = await api.request("POST", "/things", body="\n".join(lines).encode(), headers=headers)
    assert (answer.status, answer.document["meta"]["count"]) == (201, 300)
    assert len(sent) < 20, sent
