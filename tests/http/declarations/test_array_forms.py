"""Arrays whose subscripts do not begin at 1, and NULL in arrays of JSON: each is found and written back as it is
shown."""

from __future__ import annotations

from typing import Any

from tests.http.conftest import Api, Inspected, Sent

TABLES = """
CREATE TABLE things (id int PRIMARY KEY, numbers int[], texts text[], boxes box[], amounts numeric[], square int[][],
    plain int[], parts jsonb[], raw json[]);
INSERT INTO things VALUES (1, '[0:2]={1,2,3}', '[-1:0]={foo,"b,ar"}', '[0:0]={(2,2),(1,1)}', '[3:3]={1.50}',
    '[0:1][5:6]={{1,2},{3,4}}', '{1,2,3}',
    ARRAY[NULL::jsonb, 'null', '1'], ARRAY[NULL::json, 'null', '{"b": 1, "a": 2}']);
INSERT INTO things VALUES (2, '{1,2}', '{}', NULL, '{2}', '{{1,2}}', '{}', '{}', NULL);
"""
THING = {"type": "thing", "id": "1"}


async def attributes(api: Api) -> dict[str, Any]:
    found: dict[str, Any] = (await api.get("/things/1")).document["data"]["attributes"]
    return found


async def test_what_is_shown_is_found(inspected: Inspected) -> None:
    api = await inspected(TABLES)
    shown = await attributes(api)
    assert shown["square"] == [[1, 2], [3, 4]]
    for name, value in shown.items():
        for op, ids in (("eq", ["1"]), ("is_", ["1"])) if name not in ("boxes", "raw") else ():
            answer = await api.filter("/things", [{"name": name, "op": op, "val": value}])
            assert (answer.status, answer.ids) == (200, ids), name
        if name not in ("boxes", "raw"):
            assert (await api.filter("/things", [{"name": name, "op": "ne", "val": value}])).ids == ["2"]
    assert (await api.filter("/things", [{"name": "numbers", "op": "eq", "field": "plain"}])).ids == ["1"]


async def test_what_is_shown_is_written_back(inspected: Inspected) -> None:
    api = await inspected(TABLES)
    before = await api.sql("SELECT things::text FROM things ORDER BY id")
    assert (await api.patch("/things/1", {"data": THING | {"attributes": await attributes(api)}})).status == 200
    assert await api.sql("SELECT things::text FROM things ORDER BY id") == before


async def test_what_is_shown_is_written_back_on_conflict(inspected: Inspected, sent: Sent) -> None:
    """By one statement, as an update writes it."""
    api = await inspected(TABLES)
    before = await api.sql("SELECT things::text FROM things ORDER BY id")
    shown = await attributes(api)
    assert (await api.post("/things?onConflict=id", {"data": THING | {"attributes": {"plain": []}}})).status == 200
    sent.clear()
    assert (await api.post("/things?onConflict=id", {"data": THING | {"attributes": shown}})).status == 200
    assert ["ON CONFLICT" in text for text in sent] == [True]
    assert await api.sql("SELECT things::text FROM things ORDER BY id") == before
    other = {"numbers": [1, 2], "parts": [None, 2], "plain": []}
    assert (await api.post("/things?onConflict=id", {"data": THING | {"attributes": other}})).status == 200
    [row] = await api.sql("SELECT numbers::text, parts::text, plain::text, texts::text FROM things WHERE id = 1")
    assert tuple(row) == ("{1,2}", "{NULL,2}", "{}", '[-1:0]={foo,"b,ar"}')


async def test_other_values_are_written(inspected: Inspected) -> None:
    api = await inspected(TABLES)
    sent = {
        "numbers": [1, 2],
        "texts": ["foo"],
        "boxes": [],
        "amounts": ["1.5"],
        "square": [[1, 2]],
        "parts": [None, 1],
    }
    assert (await api.patch("/things/1", {"data": THING | {"attributes": sent}})).status == 200
    shown = await attributes(api)
    assert {name: shown[name] for name in sent if name != "amounts"} == {
        n: v for n, v in sent.items() if n != "amounts"
    }
    columns = "parts[1] IS NULL, numbers::text, square::text"
    assert [tuple(row) for row in await api.sql(f"SELECT {columns} FROM things WHERE id = 1")] == [
        (True, "{1,2}", "{{1,2}}")
    ]
