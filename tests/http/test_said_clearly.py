"""Errors that name the right resource, field or list, and advise what can be done."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.conftest import Inspected
from tests.http.operating import extended

TABLES = """
CREATE TABLE roles (id int PRIMARY KEY); CREATE TABLE users (id int PRIMARY KEY, age int);
CREATE TABLE user_role (id int PRIMARY KEY, user_id int REFERENCES users, role_id int REFERENCES roles,
    UNIQUE (user_id, role_id));
INSERT INTO roles VALUES (1); INSERT INTO users VALUES (1), (2), (3);
INSERT INTO user_role VALUES (1, 2, 1), (2, 3, 1);
CREATE TABLE base (id int PRIMARY KEY); CREATE TABLE kids () INHERITS (base); INSERT INTO kids VALUES (101);
CREATE TABLE notes (id int PRIMARY KEY, base_id int REFERENCES base); INSERT INTO notes VALUES (1, NULL);
CREATE TABLE amounts (id int PRIMARY KEY, whole int, part int); INSERT INTO amounts VALUES (1, 1, 0);
CREATE VIEW shares AS SELECT id, whole / part AS share FROM amounts;
"""


@pytest.mark.parametrize("path", ["/users/1/relationships/user_roles", "/users/1"])
async def test_a_conflict_names_the_resource_that_has_the_values(inspected: Inspected, path: str) -> None:
    api = await inspected(TABLES)
    linkage: Any = {"data": [{"type": "user_role", "id": "1"}, {"type": "user_role", "id": "2"}]}
    whole = {"data": {"type": "user", "id": "1", "relationships": {"user_roles": linkage}}}
    answer = await api.patch(path, linkage if "relationships" in path else whole)
    assert answer.status == 409
    assert answer.errors[0]["detail"] == "Another user_role has these values already: “user”, “role”."


async def test_a_row_that_only_its_key_does_not_reach(inspected: Inspected) -> None:
    api = await inspected(TABLES)
    assert (await api.get("/bases/101")).status == 200
    answer = await api.patch("/notes/1/relationships/base", {"data": {"type": "base", "id": "101"}})
    assert (answer.status, answer.errors[0]["source"]) == (404, {"pointer": "/data"})
    assert answer.errors[0]["detail"] == "The database does not let “base” refer to the base “101”."


@pytest.mark.parametrize(
    ("op", "val", "said"),
    [
        ("in_", [1, None], "must be a list without null, which `is_` and `isnot` find, not [1,null]"),
        ("in_", [1, "x"], "must be a list of values, each a whole number from -2147483648 to 2147483647, not [1,"),
        ("between", [1, "x"], "must be a list of values, each a whole number from -2147483648 to 2147483647, not [1,"),
    ],
)
async def test_a_list_with_a_wrong_value(inspected: Inspected, op: str, val: Any, said: str) -> None:
    api = await inspected(TABLES)
    answer = await api.filter("/users", [{"name": "age", "op": op, "val": val}])
    assert answer.status == 400
    assert said in answer.errors[0]["detail"]


async def test_an_impossible_value_names_what_can_be_left_out(inspected: Inspected) -> None:
    api = await inspected(TABLES)
    answer = await api.get("/shares")
    assert answer.errors[0]["detail"].endswith("Leave “share” out by `fields`, or exclude the row by a filter.")


NODES = "CREATE TABLE nodes (id int PRIMARY KEY, parent_id int REFERENCES nodes, next_id int UNIQUE REFERENCES nodes);"


@pytest.mark.parametrize(
    ("first", "second", "is_right"),
    [
        (("parent", "1"), ("children", []), False),
        (("parent", "1"), ("children", ["1"]), True),
        (("parent", "2"), ("children", ["1"]), False),
        (("parent", "2"), ("children", ["3"]), True),
        (("parent", None), ("children", ["1", "2"]), False),
        (("next", "1"), ("node_by_next", None), False),
        (("next", "2"), ("node_by_next", "3"), True),
    ],
)
@pytest.mark.parametrize("is_turned", [True, False])
async def test_both_sides_of_a_link_to_itself(
    inspected: Inspected, first: Any, second: Any, is_right: bool, is_turned: bool
) -> None:
    api = await inspected(NODES + "INSERT INTO nodes VALUES (1), (2), (3), (4);")

    def linkage(ids: Any) -> Any:
        if isinstance(ids, list):
            return {"data": [{"type": "node", "id": one} for one in ids]}
        return {"data": None if ids is None else {"type": "node", "id": ids}}

    pairs = [second, first] if is_turned else [first, second]
    # A document of the same form that does not contradict itself comes before.
    before = {name: linkage([] if isinstance(ids, list) else None) for name, ids in pairs}
    assert (await api.patch("/nodes/4", {"data": {"type": "node", "id": "4", "relationships": before}})).status == 200
    data = {"type": "node", "id": "1", "relationships": {name: linkage(ids) for name, ids in pairs}}
    for answer in (await api.patch("/nodes/1", {"data": data}), await extended(api, {"op": "update", "data": data})):
        assert answer.status == (200 if is_right else 422), answer.body
    rows = await api.sql("SELECT parent_id, next_id FROM nodes ORDER BY id")
    assert is_right or [tuple(row) for row in rows] == [(None, None)] * 4
