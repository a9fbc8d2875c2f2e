"""Section 7 of the decisions: operations on relationships, which only the extension has, and operations on resources
whose methods a declaration limits."""

from __future__ import annotations

from typing import Any

import pytest

from tests.catalog import CATALOG
from tests.http.conftest import MEDIA_TYPE, Api, Serve
from tests.http.operating import (
    add,
    by_lid,
    detail,
    extended,
    extended_errors,
    extended_results,
    link,
    operate,
    remove,
    unchanged,
    update,
)
from tests.http.people import ADA, create_household, of, one, select
from tests.http.refusals import error

COMPUTERS = "SELECT id, owner_id FROM computers ORDER BY id"


@pytest.fixture
def corners(serve: Serve, corner_url: str) -> Api:
    return serve(corner_url, CATALOG)


TO_MANY: list[tuple[str, Any, list[int]]] = [
    ("add", of("computer", "3", 4), [1, 2, 3, 4]),
    ("add", of("computer", "1", "4", "4"), [1, 2, 4]),
    ("add", [], [1, 2]),
    ("update", of("computer", "4", "2"), [2, 4]),
    ("update", [], []),
    ("remove", of("computer", "1", "3", "999", "07"), [2]),
    ("remove", [], [1, 2]),
]


@pytest.mark.parametrize(("op", "data", "left"), TO_MANY)
async def test_to_many(api: Api, op: str, data: Any, left: list[int]) -> None:
    """`add` adds, `update` replaces, `remove` removes, as POST, PATCH and DELETE of the relationship's route."""
    await create_household(api)
    answer = await extended(api, link(op, "user", "computers", data, id="1"), add("parent", {"name": "p"}))
    assert extended_results(answer) == [None, {"type": "parent", "id": "2", "attributes": {"name": "p"}}]
    found = await select(api, "SELECT id FROM computers WHERE owner_id = 1 ORDER BY id")
    assert [row[0] for row in found] == left


@pytest.mark.parametrize("linkage", [one("group", "2"), None])
async def test_to_one(api: Api, linkage: Any) -> None:
    await create_household(api)
    await api.create("/groups", "group", {"name": "second"})
    answer = await extended(api, link("update", "user", "group", linkage, id="1"))
    assert extended_results(answer) == [None]
    assert await select(api, "SELECT group_id FROM users WHERE id = 1") == [(linkage and 2,)]


async def test_a_reverse_to_one(api: Api) -> None:
    """Its key is in the other row."""
    await create_household(api)
    answer = await extended(
        api, add("user", ADA, lid="a"), link("update", "user", "bio", one("user_bio", "2"), lid="a")
    )
    assert extended_results(answer)[1] is None
    assert await select(api, "SELECT id, user_id FROM user_bios ORDER BY id") == [(1, 1), (2, 3)]


async def test_a_link_table(corners: Api) -> None:
    answer = await extended(
        corners,
        add("author", {"given-name": "A", "family-name": "B"}, lid="a"),
        *(add("tag", {"name": name}, lid=name) for name in "xyz"),
        add("article", {"title": "t"}, id="a/b", relationships={"author": {"data": by_lid("author", "a")}}),
        link("add", "article", "tags", [by_lid("tag", name) for name in "xyz"], id="a/b"),
        link("remove", "tag", "articles", of("article", "a/b"), lid="y"),
        link("update", "tag", "articles", [], lid="x"),
    )
    assert answer.status == 200, answer.body
    assert await select(corners, "SELECT article_id, tag_id FROM corner.article_tags") == [("a/b", 3)]


async def test_lids_of_the_owner_and_of_the_linkage(api: Api) -> None:
    await create_household(api)
    answer = await extended(
        api,
        add("user", ADA, lid="u"),
        add("computer", {"name": "new"}, lid="c"),
        add("group", {"name": "g"}, lid="g"),
        link("add", "user", "computers", [by_lid("computer", "c"), one("computer", "1")], lid="u"),
        link("update", "user", "group", by_lid("group", "g"), lid="u"),
        link("remove", "user", "computers", [by_lid("computer", "c")], lid="u"),
        link("update", "computer", "owner", by_lid("user", "u"), id="2"),
    )
    assert extended_results(answer)[3:] == [None] * 4
    assert await select(api, COMPUTERS) == [(1, 3), (2, 3), (3, 2), (4, None), (5, None)]
    assert await select(api, "SELECT group_id FROM users WHERE id = 3") == [(2,)]


async def test_only_removals_of_links(api: Api) -> None:
    await create_household(api)
    answer = await extended(api, link("remove", "user", "computers", of("computer", "1"), id="1"))
    assert (answer.status, answer.body) == (204, b"")
    assert await select(api, COMPUTERS) == [(1, None), (2, 1), (3, 2), (4, None)]


async def test_results_of_links_between_updates(api: Api) -> None:
    """Some operations of one batch have a resource as the result, and some do not."""
    await create_household(api)
    answer = await extended(
        api,
        update("computer", {"serial": "a"}, id="1"),
        link("update", "computer", "owner", None, id="1"),
        update("computer", {"serial": "b"}, id="2"),
        link("update", "computer", "owner", None, id="2"),
        update("computer", {"serial": "c"}, id="1"),
    )
    found = [each and each["attributes"]["serial"] for each in extended_results(answer)]
    assert found == ["a", None, "b", None, "c"]


async def test_refused_without_the_extension(api: Api) -> None:
    """Rule 8 of the specification."""
    await create_household(api)
    operation = link("add", "user", "computers", of("computer", "4"), id="1")
    for media_type in (MEDIA_TYPE, "application/json"):
        async with unchanged(api):
            answer = await operate(api, add("parent", {"name": "p"}), operation, media_type=media_type)
        assert detail(answer) == {
            "data": dict.fromkeys(("attributes", "id", "lid", "relationships", "type")),
            "errors": [
                {
                    "loc": ["ref", "relationship"],
                    "msg": "Relationships can only be changed here with the media type of the `atomic` extension.",
                    "type": "malformed_operations",
                }
            ],
            "message": "Malformed Operations on operation add (at position 1)",
            "ref": {"type": "user", "id": "1", "relationship": "computers"},
        }


def place(path: str) -> str:
    return f"/atomic:operations/1/{path}"


NO_ID = {"type": "user", "relationship": "group"}
REFUSED: list[tuple[Any, int, str, str]] = [
    (link("update", "user", "group", None, id="999"), 404, "resource_not_found", "ref/id"),
    (link("add", "user", "computers", [], id="07"), 404, "resource_not_found", "ref/id"),
    (link("add", "user", "computers", of("computer", "4", "9"), id="1"), 404, "related_not_found", "data/1"),
    (link("update", "user", "computers", of("computer", "4", "x"), id="1"), 404, "related_not_found", "data/1"),
    (link("update", "user", "group", one("group", "9"), id="1"), 404, "related_not_found", "data"),
    (link("add", "user", "computers", of("group", "1"), id="1"), 409, "linkage_type_conflict", "data/0/type"),
    (link("remove", "user", "posts", of("post", "1"), id="1"), 403, "required_link", "data"),
    (link("update", "user", "posts", [], id="1"), 403, "required_link", "data"),
    (link("update", "post", "user", None, id="1"), 403, "required_link", "data"),
    (link("update", "user_bio", "user", one("user", "1"), id="2"), 409, "conflict", "data"),
    (link("update", "user", "group", [], id="1"), 422, "invalid_relationship", "data"),
    (link("update", "user", "computers", None, id="1"), 422, "invalid_relationship", "data"),
    (link("add", "user", "computers", one("computer", "4"), id="1"), 422, "invalid_relationship", "data"),
    (link("update", "user", "grop", None, id="1"), 422, "invalid_relationship", "ref/relationship"),
    (link("update", "user", "group", None, lid="none"), 422, "invalid_document", "ref/lid"),
    (link("add", "user", "computers", [by_lid("computer", "c")], id="1"), 422, "invalid_document", "data/0/lid"),
    (link("add", "user", "computers", [{"type": "computer"}], id="1"), 422, "invalid_document", "data/0/id"),
    (link("add", "user", "computers", [7], id="1"), 422, "invalid_document", "data/0"),
    ({"op": "update", "ref": NO_ID, "data": None}, 422, "invalid_document", "ref/id"),
    ({"op": "update", "ref": NO_ID | {"id": "1"}}, 400, "malformed_operations", "data"),
    (link("update", "user", "group", None, id="1") | {"href": "/users/1"}, 400, "malformed_operations", "href"),
    (link("update", "usr", "group", None, id="1"), 422, "invalid_document", "ref/type"),
]


@pytest.mark.parametrize(("operation", "status", "code", "path"), REFUSED)
async def test_refused(api: Api, operation: Any, status: int, code: str, path: str) -> None:
    """The pointer names the position, and earlier operations are rolled back."""
    await create_household(api)
    async with unchanged(api):
        answer = await extended(api, add("parent", {"name": "p"}), operation, add("parent", {"name": "q"}))
    found, errors = extended_errors(answer)
    assert [(one["code"], one["source"]) for one in errors] == [(code, {"pointer": place(path)})], errors
    assert (found, errors[0]["status"]) == (status, str(status))


@pytest.mark.parametrize("name", [None, 7, True, [], {}])
async def test_an_invalid_relationship_name(api: Api, name: Any) -> None:
    """It must not turn a removal of links into a removal of the resource."""
    await create_household(api)
    ref = {"type": "user", "id": "1", "relationship": name}
    for op in ("remove", "update", "add"):
        async with unchanged(api):
            answer = await extended(api, add("parent", {"name": "p"}), {"op": op, "ref": ref, "data": []})
        pointer = place("ref/relationship")
        status, [found] = extended_errors(answer)
        assert (status, found["code"], found["source"]) == (400, "malformed_operations", {"pointer": pointer})
        assert found["detail"] == "`relationship` must be a string."
    async with unchanged(api):
        assert detail(await operate(api, {"op": "remove", "ref": ref}))["errors"][0]["loc"] == ["ref", "relationship"]


@pytest.mark.parametrize("op", ["add", "remove"])
@pytest.mark.parametrize(
    ("name", "data"), [("group", one("group", "2")), ("group", None), ("bio", one("user_bio", "2")), ("bio", None)]
)
async def test_a_to_one_is_only_written_by_update(api: Api, op: str, name: str, data: Any) -> None:
    """As in the extension: `add` and `remove` are for to-many relationships, like POST and DELETE of a route."""
    await create_household(api)
    await api.create("/groups", "group", {"name": "second"})
    async with unchanged(api):
        answer = await extended(api, link(op, "user", name, data, id="1"))
    assert 400 <= answer.status < 500, answer.body
    assert answer.errors[0]["source"]["pointer"].startswith("/atomic:operations/0")


# what declarations limit


async def test_a_resource_that_is_not_in_operations(corners: Api) -> None:
    """in_operations=False is a 422 for each kind of operation."""
    assert (await corners.post("/countries", {"data": country()["data"]})).status == 201
    for operation, path in (
        (country(id="b"), "data"),
        (update("country", {"name": "b"}, id="a"), "data"),
        (remove("country", id="a"), "ref"),
        (link("update", "country", "none", None, id="a"), "ref"),
    ):
        async with unchanged(corners):
            answer = await extended(corners, add("tag", {"name": "t"}), operation)
        said = "Resources of type “country” cannot be written by atomic operations."
        assert extended_errors(answer) == (422, [error("invalid_document", said, place(f"{path}/type"))])
    async with unchanged(corners):
        said_plainly = detail(await operate(corners, country(id="b")))
    assert said_plainly["message"] == "Validation error on operation add (at position 0)"


def country(**members: Any) -> dict[str, Any]:
    return add("country", {"name": "a"}, **({"id": "a"} | members))


FORBIDDEN: list[tuple[Any, str]] = [
    (add("log", {"line": "x"}), ""),
    (update("log", {"line": "x"}, id="1"), ""),
    (remove("log", id="1"), ""),
    (update("undetailed", {"line": "x"}, id="1"), ""),
    (update("unlisted", id="1", relationships={"node": {"data": None}}), "allowed"),
    (link("update", "log", "node", None, id="1"), "/data"),
    (link("update", "unlisted", "node", None, id="1"), "allowed"),
]


@pytest.mark.parametrize(("operation", "path"), FORBIDDEN)
async def test_a_disabled_method(corners: Api, operation: Any, path: str) -> None:
    """A 403, as on routes, for resources and for relationships."""
    await corners.sql("INSERT INTO corner.entries (line) VALUES ('first')")
    if path == "allowed":
        assert (await extended(corners, operation)).status == 200
        return
    async with unchanged(corners):
        status, errors = extended_errors(await extended(corners, add("tag", {"name": "t"}), operation))
    assert (status, errors[0]["code"]) == (403, "write_forbidden")
    assert errors[0]["source"] == {"pointer": f"/atomic:operations/1{path}"}
    if "relationship" not in operation.get("ref", {}):
        async with unchanged(corners):
            said = detail(await operate(corners, add("tag", {"name": "t"}), operation))
        assert said["message"] == f"Write Forbidden on operation {operation['op']} (at position 1)"
        assert said["errors"][0]["type"] == "write_forbidden"
