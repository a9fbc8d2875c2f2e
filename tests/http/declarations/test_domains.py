"""Section 5: filters, sorts and cursors over columns that PostgreSQL compares only after a cast: a domain over an enum,
and an array of varchar."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from tornado.ioloop import IOLoop

from server.__main__ import main
from server.settings import Settings
from server.startup.start import declarations
from tests.conftest import on_server
from tests.http.conftest import Api, Inspected, Serve
from tests.http.expected import target

TABLES = """
CREATE TYPE mood AS ENUM ('sad', 'so so', 'happy', 'a,b');
CREATE DOMAIN day_mood AS mood CHECK (VALUE <> 'a,b');
CREATE DOMAIN work_mood AS day_mood;
CREATE TABLE day (id bigint PRIMARY KEY, mood work_mood, wish mood, moods mood[], tags varchar(5)[]);
INSERT INTO day VALUES
    (1, 'happy', 'happy', '{sad}', '{b,c}'), (2, 'sad', 'happy', '{}', '{a}'), (3, NULL, 'sad', NULL, NULL),
    (4, 'happy', NULL, '{sad,happy}', '{b}'), (5, 'so so', 'a,b', '{happy}', '{}');
CREATE TABLE person (id bigint PRIMARY KEY, day_id bigint REFERENCES day);
INSERT INTO person VALUES (1, 4), (2, 5), (3, NULL);
CREATE TABLE diary (id bigint PRIMARY KEY, day_id bigint UNIQUE REFERENCES day, mood day_mood);
INSERT INTO diary VALUES (1, 2, 'happy'), (2, 5, 'sad'), (3, 1, 'happy');
CREATE TABLE job (kind day_mood PRIMARY KEY, note text);
"""


@pytest.fixture
def days(serve: Serve, database_url: str) -> Api:
    on_server(database_url, TABLES)
    return serve(database_url, declarations(Settings(database_url=database_url, inspect=True)).catalog)


@pytest.mark.parametrize(
    ("filters", "ids"),
    [
        ({"name": "mood", "op": "eq", "val": "happy"}, ["1", "4"]),
        ({"name": "mood", "op": "ne", "val": "happy"}, ["2", "5"]),
        ({"name": "mood", "op": "lt", "val": "happy"}, ["2", "5"]),
        ({"name": "mood", "op": "between", "val": ["so so", "happy"]}, ["1", "4", "5"]),
        ({"name": "mood", "op": "in_", "val": ["sad", "so so"]}, ["2", "5"]),
        ({"name": "mood", "op": "notin_", "val": ["sad"]}, ["1", "4", "5"]),
        ({"name": "mood", "op": "is_", "val": None}, ["3"]),
        ({"name": "mood", "op": "isnot", "val": "sad"}, ["1", "3", "4", "5"]),
        ({"name": "mood", "op": "startswith", "val": "s"}, ["2", "5"]),
        ({"name": "mood", "op": "eq", "field": "wish"}, ["1"]),
        ({"name": "moods", "op": "in_", "val": ["sad"]}, ["1", "4"]),
        ({"name": "tags", "op": "in_", "val": ["b"]}, ["1", "4"]),
        ({"name": "people.day.mood", "op": "eq", "val": "so so"}, ["5"]),
    ],
)
def test_filters(days: Api, io_loop: IOLoop, filters: object, ids: list[str]) -> None:
    answer = io_loop.run_sync(partial(days.get, target("/days", [("filter", json.dumps(filters))])))
    assert answer.status == 200, answer.body
    assert answer.ids == ids


@pytest.mark.parametrize(
    ("path", "ids"),
    [
        ("/days?sort=mood", ["2", "5", "1", "4", "3"]),
        ("/days?sort=-mood", ["4", "1", "5", "2", "3"]),
        ("/days?sort=-mood,wish", ["1", "4", "5", "2", "3"]),
        ("/days?sort=tags", ["5", "2", "4", "1", "3"]),
        ("/days?sort=-tags", ["1", "4", "2", "5", "3"]),
        ("/people?sort=day.mood", ["2", "1", "3"]),
        ("/days?sort=-diary.mood,id", ["1", "2", "5", "3", "4"]),
    ],
)
def test_sorts_and_cursors(days: Api, io_loop: IOLoop, path: str, ids: list[str]) -> None:
    assert io_loop.run_sync(partial(days.get, path)).ids == ids
    found, page = list[str](), f"{path}&page[size]=1&page[after]="
    while page:
        answer = io_loop.run_sync(partial(days.get, page))
        assert answer.status == 200, answer.body
        found += answer.ids
        page = answer.document["links"].get("next")
    assert found == ids


def test_an_id_cannot_be_a_domain_over_an_enum(days: Api, io_loop: IOLoop) -> None:
    assert io_loop.run_sync(partial(days.get, "/jobs")).status == 404


FILL = """
INSERT INTO day SELECT n, (ARRAY['sad', 'happy'])[1 + n % 2]::mood FROM generate_series(10, 20000) n;
CREATE INDEX day_mood_id ON day (mood, id);
ANALYZE day;
"""


def test_an_index_gives_the_order(database_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    on_server(database_url, TABLES, FILL)
    arguments = ["explain", "--inspect", "--database-url", database_url, "/days?sort=mood&page[total]=none"]
    with pytest.raises(SystemExit, match=r"^0$"):
        main(arguments)
    assert " day_mood_id " in capsys.readouterr().out


NESTED = """
CREATE DOMAIN pos AS int CHECK (VALUE > 0); CREATE DOMAIN word AS varchar(5);
CREATE DOMAIN choice AS text CHECK (VALUE IN ('a', 'b'));
CREATE TYPE pt AS (x int, y int); CREATE DOMAIN right_pt AS pt CHECK ((VALUE).x > 0);
CREATE TYPE outer_pt AS (p pos, d right_pt, w word);
CREATE TABLE things (id int PRIMARY KEY, a pos[], w word[], b right_pt, c right_pt[], m choice[], o outer_pt);
INSERT INTO things VALUES (1, '{1,2}', '{ab,c}', '(1,2)', ARRAY['(1,2)'::right_pt], '{a}', '(1,"(1,2)",x)');
"""
SHOWN: dict[str, Any] = {
    "a": [1, 2],
    "w": ["ab", "c"],
    "b": {"x": 1, "y": 2},
    "c": [{"x": 1, "y": 2}],
    "m": ["a"],
    "o": {"p": 1, "d": {"x": 1, "y": 2}, "w": "x"},
}
OTHERS: dict[str, tuple[Any, Any]] = {
    "a": ([3], [0]),
    "w": (["abcde"], ["abcdef"]),
    "b": ({"x": 3, "y": 4}, {"x": 0, "y": 4}),
    "c": ([{"x": 3, "y": 4}, {"x": 5, "y": 6}], [{"x": -1, "y": 4}]),
    "m": (["b"], ["z"]),
    "o": ({"p": 2, "d": None, "w": None}, {"p": 0, "d": None, "w": None}),
}
"""For each attribute a value that is allowed, and one that is not."""


async def test_domains_inside_of_other_types(inspected: Inspected) -> None:
    api = await inspected(NESTED)
    assert (await api.get("/things/1")).document["data"]["attributes"] == SHOWN
    for name, value in SHOWN.items():
        answer = await api.filter("/things", [{"name": name, "op": "eq", "val": value}])
        assert (answer.status, answer.ids) == (200, ["1"]), (name, answer.body)
    for name, (right, wrong) in OTHERS.items():
        refused = await api.patch("/things/1", {"data": {"type": "thing", "id": "1", "attributes": {name: wrong}}})
        assert (refused.status, refused.errors[0]["source"]) == (422, {"pointer": f"/data/attributes/{name}"})
        answer = await api.patch("/things/1", {"data": {"type": "thing", "id": "1", "attributes": {name: right}}})
        assert answer.document["data"]["attributes"][name] == right
