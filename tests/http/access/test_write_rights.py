"""Rows that may be read and not written: 403. Rows that may not be read do not exist: 404."""

from __future__ import annotations

from typing import Any

import pytest
from tornado.ioloop import IOLoop

from querybuild.principal import ANONYMOUS, Principal
from server.engine import Engine
from tests import access
from tests.access import ME
from tests.http.conftest import Answer, Api
from tests.http.writes.test_relationships import corners, fill

__all__ = ["corners"]

ROWS = """
    INSERT INTO groups (name) VALUES ('mine'), ('readable'), ('hidden');
    INSERT INTO users (first_name, last_name, age, group_id)
        SELECT 'first ' || n, 'last', n, 1 + n % 3 FROM generate_series(1, 9) n;
    INSERT INTO computers (name, owner_id) SELECT 'computer ' || n, n FROM generate_series(1, 9) n;
    INSERT INTO posts (title, body, user_id) SELECT 'post ' || n, '', n FROM generate_series(1, 9) n
"""
MINE, READABLE, HIDDEN = "3", "1", "2"
"""User 3 is in group 1, user 1 in group 2, and user 2 in group 3. A computer and a post have the id of their owner."""
IN_GROUPS: dict[str, Any] = {"user": "group.id", "computer": "owner.group.id", "post": "user.group.id"}
RULES: dict[str, dict[str, Any]] = {
    "read": {name: {"name": path, "op": "in_", "val": [1, 2]} for name, path in IN_GROUPS.items()},
    "update": {name: {"name": path, "op": "eq", "val": 1} for name, path in IN_GROUPS.items()},
    "delete": {name: {"name": path, "op": "eq", "val": 1} for name, path in IN_GROUPS.items()},
}
OWN_COLUMNS: dict[str, dict[str, Any]] = {
    "read": {"user": {"name": "group.id", "op": "in_", "val": [1, 2]}},
    "update": {"user": {"name": "group.id", "op": "eq", "val": 1}},
    "delete": {"user": {"name": "group.id", "op": "eq", "val": 1}},
}
"""Rules for rows that only depend on their own columns."""


class Ruled:
    """A server whose context is made by hand."""

    def __init__(self, api: Api, principal: Principal = ME, **rules: Any) -> None:
        self.api = api
        engine = api.app.engine
        context = access.context(engine, principal, **rules)
        self.engine = api.app.engine = Engine(engine.settings, engine.catalog, engine.schema)
        self.engine.is_open = False
        self.engine.context_of = lambda _: context  # type: ignore[method-assign]  # every request has this one

    async def write(self, method: str, path: str, data: Any = None) -> Answer:
        return await self.api.request(method, path, None if data is None else {"data": data})


@pytest.fixture
def filled(api: Api, io_loop: IOLoop) -> Api:
    async def fill() -> None:
        for statement in ROWS.split(";"):
            await api.sql(statement)

    io_loop.run_sync(fill)
    return api


def told(answer: Answer) -> tuple[int, str | None, str | None]:
    """The status of an answer, and the code and the pointer of its error."""
    if answer.status < 400:
        return answer.status, None, None
    [error] = answer.errors
    return answer.status, error["code"], error.get("source", {}).get("pointer")


def user(id_text: str, **attributes: Any) -> Any:
    return {"type": "user", "id": id_text, "attributes": attributes}


FORBIDDEN = (403, "forbidden", None)
ABSENT = (404, "resource_not_found", None)


@pytest.mark.parametrize("rules", [RULES, OWN_COLUMNS], ids=["with steps", "own columns"])
@pytest.mark.parametrize(
    ("id_text", "expected"), [(MINE, (200, None, None)), (READABLE, FORBIDDEN), (HIDDEN, ABSENT), ("99", ABSENT)]
)
async def test_one_row(filled: Api, rules: Any, id_text: str, expected: Any) -> None:
    ruled = Ruled(filled, **rules)
    before = await filled.sql("SELECT * FROM users WHERE id <> $1 ORDER BY id", int(MINE))
    path = f"/users/{id_text}"
    assert told(await ruled.write("PATCH", path, user(id_text, age=50))) == expected
    assert told(await ruled.write("PATCH", path, user(id_text))) == expected
    # Nothing refers to it any more.
    await filled.sql("DELETE FROM computers WHERE owner_id = 3")
    await filled.sql("DELETE FROM posts WHERE user_id = 3")
    assert told(await ruled.write("DELETE", path)) == expected
    assert await filled.sql("SELECT * FROM users WHERE id <> $1 ORDER BY id", int(MINE)) == before


async def test_the_anonymous_are_asked_for_credentials(filled: Api) -> None:
    ruled = Ruled(filled, ANONYMOUS, **RULES)
    answer = await ruled.write("DELETE", f"/users/{READABLE}")
    assert answer.errors == [
        {
            "status": "401",
            "code": "unauthenticated",
            "title": "Unauthenticated",
            "detail": "You may not delete this user. Send credentials.",
        }
    ]
    assert told(await ruled.write("DELETE", f"/users/{HIDDEN}")) == ABSENT


@pytest.mark.parametrize(("id_text", "expected"), [(MINE, 200), (READABLE, 403), (HIDDEN, 404)])
async def test_the_own_row_of_a_relationship(filled: Api, id_text: str, expected: int) -> None:
    """Its write is an update of the row that has it, also if no column of this row changes."""
    ruled = Ruled(filled, **RULES)
    nothing: Any = []
    assert (await ruled.write("POST", f"/users/{id_text}/relationships/computers", nothing)).status == expected
    linkage = {"type": "group", "id": "1"}
    assert (await ruled.write("PATCH", f"/users/{id_text}/relationships/group", linkage)).status == expected


def computers(*ids: str) -> list[Any]:
    return [{"type": "computer", "id": one} for one in ids]


@pytest.mark.parametrize(
    ("method", "ids", "expected"),
    [
        ("POST", ["6"], (200, None, None)),
        ("POST", ["6", READABLE], (403, "forbidden", "/data/1")),
        ("POST", ["6", HIDDEN], (404, "related_not_found", "/data/1")),
        ("PATCH", [MINE, "6"], (200, None, None)),
        ("PATCH", [MINE, READABLE], (403, "forbidden", "/data/1")),
        # It has no link that could be removed.
        ("DELETE", [READABLE], (200, None, None)),
        ("DELETE", [MINE], (200, None, None)),
    ],
)
async def test_rows_whose_keys_change(filled: Api, method: str, ids: list[str], expected: Any) -> None:
    ruled = Ruled(filled, **RULES)
    keys = "SELECT id, owner_id FROM computers ORDER BY id"
    before = await filled.sql(keys)
    assert told(await ruled.write(method, f"/users/{MINE}/relationships/computers", computers(*ids))) == expected
    after = await filled.sql(keys)
    assert (after == before) == (expected[0] != 200 or ids == [READABLE])


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
async def test_rows_that_leave(filled: Api, method: str) -> None:
    """The computer may be read, and not updated."""
    rules = {**RULES, "update": {"user": RULES["update"]["user"], "computer": {"name": "name", "op": "eq", "val": "x"}}}
    ruled = Ruled(filled, **rules)
    path, expected = f"/users/{MINE}/relationships/computers", {"PATCH": "/data", "DELETE": "/data/0"}
    sent: list[Any] = [] if method == "PATCH" else computers(MINE)
    assert told(await ruled.write(method, path, sent)) == (403, "forbidden", expected[method])
    # A row that is linked already does not change.
    assert told(await ruled.write("PATCH", path, computers(MINE)))[0] == 200
    assert told(await ruled.write("POST", path, computers(MINE)))[0] == 200


async def test_a_to_one_needs_no_right_on_its_target(filled: Api) -> None:
    ruled = Ruled(filled, **RULES)
    path = f"/computers/{MINE}/relationships/owner"
    assert told(await ruled.write("PATCH", path, {"type": "user", "id": HIDDEN})) == (404, "related_not_found", "/data")
    assert told(await ruled.write("PATCH", path, {"type": "user", "id": READABLE})) == (200, None, None)


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
async def test_the_related_resource_of_a_to_one(filled: Api, method: str) -> None:
    """The computer may be read; its owner needs the right of the action."""
    ruled = Ruled(filled, **RULES)
    await filled.sql("DELETE FROM posts")
    for id_text, expected in ((READABLE, 403), (HIDDEN, 404), (MINE, 200)):
        data = user(id_text, age=7) if method == "PATCH" else None
        answer = await ruled.write(method, f"/computers/{id_text}/owner", data)
        assert answer.status == expected, answer.body


async def test_operations(filled: Api) -> None:
    Ruled(filled, **RULES)
    for id_text, code in ((READABLE, b'"forbidden"'), (HIDDEN, b'"resource_not_found"')):
        operations = [
            {"op": "update", "data": user(MINE, age=50)},
            {"op": "update", "data": user("6", age=50)},
            {"op": "update", "data": user(id_text, age=50)},
        ]
        answer = await filled.post("/operations", {"atomic:operations": operations})
        assert (answer.status, code in answer.body) == (422, True), answer.body
        assert b"at position 2" in answer.body
        assert not await filled.sql("SELECT FROM users WHERE age = 50")
    operations = [{"op": "update", "data": user(one, age=50)} for one in (MINE, "6")]
    assert (await filled.post("/operations", {"atomic:operations": operations})).status == 200
    assert len(await filled.sql("SELECT FROM users WHERE age = 50")) == 2


async def test_an_action_that_nobody_granted_is_refused_before_anything_is_read(filled: Api) -> None:
    refused: Any = [("user", "update"), ("user", "delete"), ("post", "create"), ("computer", "update")]
    ruled = Ruled(filled, refused=[*refused, ("group", "read")])
    post = {"type": "post", "attributes": {"title": "t", "body": "b"}}
    everybody: list[tuple[str, str, Any]] = [
        ("PATCH", "/users/99", user("99", age=1)),
        ("DELETE", "/users/99", None),
        ("POST", "/users/99/posts", post),
        ("POST", "/posts", post),
        ("PATCH", "/users/99/relationships/group", {"type": "group", "id": "1"}),
        ("PATCH", "/computers/99/owner", user("99", age=1)),
        ("DELETE", "/computers/99/owner", None),
        ("POST", "/groups/99/users", {"type": "user", "attributes": {"first_name": "a", "last_name": "b"}}),
    ]
    for method, path, data in everybody:
        assert told(await ruled.write(method, path, data)) == FORBIDDEN, (method, path)
    unread = Ruled(filled, refused=[("computer", "read")])
    for method, path, data in everybody[5:7]:
        assert told(await unread.write(method, path, data)) == FORBIDDEN, (method, path)
    # The key is in computers.
    answer = await Ruled(filled, refused=[("computer", "update")]).write("POST", "/users/1/relationships/computers", [])
    assert told(answer) == (403, "forbidden", "/data")
    assert (await Ruled(filled, ANONYMOUS, refused=refused).write("DELETE", "/users/1")).status == 401
    answer = await filled.post("/operations", {"atomic:operations": [{"op": "add", "data": post}] * 20})
    assert (answer.status, b"without credentials" in answer.body) == (422, True)
    assert len(await filled.sql("SELECT FROM posts")) == 9


@pytest.mark.parametrize(
    ("rules", "article", "status"),
    [
        ({"update": {"article": {"name": "id", "op": "eq", "val": "a"}}}, "a", 201),
        ({"update": {"article": {"name": "id", "op": "eq", "val": "a"}}}, "b", 403),
        ({"read": {"article": {"name": "id", "op": "eq", "val": "a"}}}, "b", 404),
        ({"check_update": {"article": {"not": {"name": "tags.name", "op": "eq", "val": "new"}}}}, "a", 403),
        ({"refused": [("article", "update")]}, "a", 403),
        ({"refused": [("article", "read")]}, "a", 403),
    ],
)
async def test_a_new_resource_behind_a_link_table(corners: Api, rules: Any, article: str, status: int) -> None:
    """The link is one of the resource of the path, too."""
    await fill(corners)
    ruled = Ruled(corners, **rules)
    before = await corners.sql("SELECT * FROM corner.article_tags ORDER BY 1, 2")
    answer = await ruled.write("POST", f"/articles/{article}/tags", {"type": "tag", "attributes": {"name": "new"}})
    assert answer.status == status, answer.body
    after = await corners.sql("SELECT * FROM corner.article_tags ORDER BY 1, 2")
    assert len(after) == len(before) + (status == 201)
    assert len(await corners.sql("SELECT FROM tags WHERE name = 'new'")) == (status == 201)
