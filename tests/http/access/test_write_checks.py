"""What a row must be once it is written, and answers to writes of rows that may not be read afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from querybuild.principal import ANONYMOUS
from tests.http.access.test_write_rights import RULES, Ruled, computers, filled, told, user
from tests.http.conftest import Api

__all__ = ["filled"]

IN_MINE: dict[str, Any] = {"name": "group.id", "op": "eq", "val": 1}
OWNED: dict[str, Any] = {"name": "owner.group.id", "op": "eq", "val": 1}
CHECKS: dict[str, dict[str, Any]] = {
    "check_create": {"user": IN_MINE, "computer": OWNED},
    "check_update": {"user": IN_MINE, "computer": OWNED},
}
AT_DATA = (403, "forbidden", "/data")
"""The pointer is to the resource object."""


def new_user(group: str, **relationships: Any) -> Any:
    related = {"group": {"data": {"type": "group", "id": group}}} | relationships
    return {"type": "user", "attributes": {"first_name": "n", "last_name": "n"}, "relationships": related}


def new_computer(owner: str) -> Any:
    linkage = {"data": {"type": "user", "id": owner}}
    return {"type": "computer", "attributes": {"name": "n"}, "relationships": {"owner": linkage}}


async def everything(api: Api) -> Any:
    return [await api.sql(f"SELECT * FROM {table} ORDER BY id") for table in ("users", "computers", "posts", "groups")]


@pytest.mark.parametrize("is_bare", [False, True], ids=["with all rules", "only checks"])
@pytest.mark.parametrize(
    ("method", "path", "data", "expected"),
    [
        ("POST", "/users", new_user("1"), 201),
        ("POST", "/users", new_user("2"), 403),
        ("PATCH", "/users/3", user("3", age=1), 200),
        ("PATCH", "/users/3", user("3") | {"relationships": {"group": {"data": {"type": "group", "id": "2"}}}}, 403),
        ("PATCH", "/users/3/relationships/group", {"type": "group", "id": "1"}, 200),
        ("PATCH", "/users/3/relationships/group", {"type": "group", "id": "2"}, 403),
        ("PATCH", "/users/3/relationships/group", None, 403),
        ("POST", "/computers", new_computer("3"), 201),
        # A step over a relationship that the same request writes.
        ("POST", "/computers", new_computer("1"), 403),
        ("POST", "/users/3/computers", {"type": "computer", "attributes": {"name": "n"}}, 201),
        ("POST", "/users/1/computers", {"type": "computer", "attributes": {"name": "n"}}, 403),
        ("PATCH", "/computers/3/owner", user("3", age=1), 200),
        ("POST", "/users/3/relationships/computers", computers("6"), 200),
        # It leaves its owner, and would have none.
        ("DELETE", "/users/3/relationships/computers", computers("3"), 403),
        ("PATCH", "/users/3/relationships/computers", computers("6"), 403),
        ("DELETE", "/computers/3", None, 200),
    ],
)
async def test_a_write(filled: Api, is_bare: bool, method: str, path: str, data: Any, expected: int) -> None:
    Ruled(filled, **({} if is_bare else RULES), **CHECKS)
    before = await everything(filled)
    document = None if method == "DELETE" and data is None else {"data": data}
    answer = await filled.request(method, path, document)
    assert answer.status == expected, answer.body
    after = await everything(filled)
    if expected == 403:
        assert (told(answer)[1], after) == ("forbidden", before)
    elif path != "/users/3/relationships/group":
        assert after != before


async def test_the_pointers(filled: Api) -> None:
    ruled = Ruled(filled, **CHECKS)
    assert told(await ruled.write("POST", "/users", new_user("2"))) == AT_DATA
    lost = new_user("1", computers={"data": computers("1")})
    assert told(await ruled.write("POST", "/users", lost))[0] == 201
    linkage = {"group": {"data": {"type": "group", "id": "2"}}, "computers": {"data": []}}
    left = await ruled.write("PATCH", "/users/3", user("3") | {"relationships": linkage})
    assert told(left)[:2] == (403, "forbidden")
    empty = user("3") | {"relationships": {"computers": {"data": []}}}
    answer = await ruled.write("PATCH", "/users/3", empty)
    assert told(answer) == (403, "forbidden", "/data/relationships/computers/data")
    assert answer.errors[0]["detail"] == "You may not update computer 3 with these values."
    assert (await Ruled(filled, ANONYMOUS, **CHECKS).write("POST", "/users", new_user("2"))).status == 401


MOVE = {
    "op": "update",
    "data": {"type": "user", "lid": "u", "relationships": {"group": {"data": {"type": "group", "id": "1"}}}},
}


async def test_each_operation_is_checked(filled: Api) -> None:
    """Also if a later operation changes or removes what must not be."""
    Ruled(filled, **CHECKS)
    wrong = {"op": "add", "data": new_user("2") | {"lid": "u"}}
    removed = {"op": "remove", "ref": {"type": "user", "lid": "u"}}
    before = await everything(filled)
    for operations in ([{"op": "add", "data": new_user("1")}, wrong], [wrong, MOVE], [wrong, removed]):
        answer = await filled.post("/operations", {"atomic:operations": operations})
        place = f"at position {operations.index(wrong)}".encode()
        assert (answer.status, place in answer.body, b'"forbidden"' in answer.body) == (422, True, True), answer.body
        assert await everything(filled) == before
    right = {"op": "add", "data": new_user("1") | {"lid": "u"}}
    assert (await filled.post("/operations", {"atomic:operations": [right, MOVE, removed]})).status == 200


@pytest.mark.parametrize("is_together", [False, True], ids=["three kinds", "one kind"])
async def test_a_row_that_must_not_be_gives_no_rights_to_later_operations(filled: Api, is_together: bool) -> None:
    """User 3 may only be in group 1, and computers may only be written if their users are in group 2."""
    theirs = {"name": "owner.group.id", "op": "eq", "val": 2}
    Ruled(filled, delete={"computer": theirs}, check_update={"user": IN_MINE, "computer": {"not": theirs}})
    there, back = [
        {"op": "update", "data": user("3") | {"relationships": {"group": {"data": {"type": "group", "id": group}}}}}
        for group in ("2", "1")
    ]
    written = {"op": "remove", "ref": {"type": "computer", "id": "3"}}
    if is_together:
        written = {"op": "update", "data": user("6") | {"relationships": {"computers": {"data": computers("3")}}}}
    before = await everything(filled)
    answer = await filled.post("/operations", {"atomic:operations": [there, written, back]})
    assert (answer.status, b"at position 0" in answer.body) == (422, True), answer.body
    assert await everything(filled) == before


@pytest.mark.parametrize("count", [2, 30])
async def test_many_adds_are_checked(filled: Api, count: int) -> None:
    Ruled(filled, **CHECKS)
    before = await everything(filled)
    adds = [{"op": "add", "data": new_user("1")} for _ in range(count)]
    wrong = [*adds[:-1], {"op": "add", "data": new_user("2")}]
    answer = await filled.post("/operations", {"atomic:operations": wrong})
    assert (answer.status, f"at position {count - 1}".encode() in answer.body) == (422, True), answer.body
    assert await everything(filled) == before
    assert (await filled.post("/operations", {"atomic:operations": adds})).status == 200
    assert len(await filled.sql("SELECT FROM users")) == len(before[0]) + count


UNREADABLE: dict[str, dict[str, Any]] = {"read": {"user": IN_MINE, "computer": OWNED}}
"""Rows may be written so that they are hidden afterwards."""


async def test_answers_to_writes_of_rows_that_may_not_be_read_afterwards(filled: Api) -> None:
    ruled = Ruled(filled, **UNREADABLE)
    answer = await ruled.write("POST", "/users?include=computers", new_user("2"))
    created = {"jsonapi": {"version": "1.0"}, "data": {"type": "user", "id": "10"}}
    assert (answer.status, answer.document, answer.headers.get("Location")) == (201, created, None)
    moved = user("3") | {"relationships": {"group": {"data": {"type": "group", "id": "2"}}}}
    answer = await ruled.write("PATCH", "/users/3", moved)
    assert (answer.status, answer.body, answer.headers.get("Content-Type")) == (204, b"", None)
    answer = await ruled.write("PATCH", "/users/6/relationships/group", {"type": "group", "id": "2"})
    assert (answer.status, answer.body) == (204, b"")
    answer = await ruled.write("PATCH", "/computers/9/owner", user("9") | {"relationships": moved["relationships"]})
    assert (answer.status, answer.body) == (204, b"")
    assert [row["group_id"] for row in await filled.sql("SELECT group_id FROM users WHERE id IN (3, 6, 9, 10)")] == [
        2
    ] * 4


async def test_a_relationship_that_hides_its_own_row(filled: Api) -> None:
    """A user may be read if it has a computer."""
    has_computer = {"name": "computers", "op": "any", "val": []}
    ruled = Ruled(filled, read={"user": has_computer})
    answer = await ruled.write("PATCH", "/users/3/relationships/computers", [])
    assert (answer.status, answer.body) == (204, b"")
    assert (await ruled.write("PATCH", "/users/3/relationships/computers", [])).status == 404
    answer = await ruled.write("PATCH", "/users/6/relationships/computers", computers("6", "3"))
    assert (answer.status, answer.ids) == (200, ["3", "6"])


async def test_results_of_operations_on_rows_that_may_not_be_read_afterwards(filled: Api) -> None:
    Ruled(filled, **UNREADABLE)
    moved = user("3") | {"relationships": {"group": {"data": {"type": "group", "id": "2"}}}}
    operations = [
        {"op": "add", "data": new_user("2")},
        {"op": "add", "data": new_user("1")},
        {"op": "update", "data": moved},
        {"op": "add", "data": new_computer("6")},
    ]
    answer = await filled.post("/operations", {"atomic:operations": operations})
    assert answer.status == 200, answer.body
    results = [one["data"] for one in answer.document["atomic:results"]]
    assert results[0] == {"type": "user", "id": "10"}
    assert results[1]["attributes"]["first_name"] == "n"
    assert (results[2], results[3]["attributes"]["name"]) == (None, "n")
    adds = [{"op": "add", "data": new_user(str(1 + number % 2))} for number in range(20)]
    answer = await filled.post("/operations", {"atomic:operations": adds})
    results = [one["data"] for one in answer.document["atomic:results"]]
    assert [set(one) for one in results] == [{"type", "id", "attributes"}, {"type", "id"}] * 10
