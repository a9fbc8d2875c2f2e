"""Section 6, reads: related and relationship routes answer a GET like lists and details."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.conftest import Api
from tests.http.expected import NO_DATA, Pairs, error, many, one, resource, target


def links_of(path: str, pairs: Pairs, *, related: str | None = None, last: str = "1") -> dict[str, str]:
    """Return the links of a first page, which is the only one unless `last` is given."""
    pages = {"first": "1", "last": last} | ({"next": "2"} if last != "1" else {})
    own = {"self": target(path, pairs)} | ({} if related is None else {"related": related})
    return own | {name: target(path, [*pairs, ("page[number]", place)]) for name, place in pages.items()}


@pytest.mark.parametrize(
    ("path", "pairs", "ids"),
    [
        ("/groups/1/users", [], ["1", "2"]),
        ("/groups/1/users", [("sort", "-age")], ["2", "1"]),
        ("/groups/1/users", [("filter[age][gt]", "36")], ["2"]),
        ("/groups/1/users", [("filter", '[{"name":"computers","op":"any","val":[]}]'), ("sort", "-id")], ["2", "1"]),
        ("/groups/1/users", [("filter[group_id]", "2")], []),
        ("/groups/3/users", [], []),
        ("/parents/2/children", [], ["2", "3"]),
        ("/users/3/computers", [], []),
    ],
)
async def test_related_list(reader: Api, path: str, pairs: Pairs, ids: list[str]) -> None:
    answer = await reader.get(target(path, pairs))
    assert (answer.status, answer.ids) == (200, ids)
    assert answer.document["meta"] == {"count": len(ids), "total": len(ids), "totalPages": min(len(ids), 1)}


async def test_related_page(reader: Api) -> None:
    pairs = [("page[size]", "1"), ("fields[user]", "age,group"), ("include", "group"), ("fields[group]", "name")]
    answer = await reader.get(target("/groups/2/users", pairs))
    assert (answer.status, answer.document) == (
        200,
        {
            "jsonapi": {"version": "1.0"},
            "data": [resource("user", "3", {"group": one("group", "2")}, age=85)],
            "included": [resource("group", "2", {}, name="beta")],
            "links": links_of("/groups/2/users", pairs, last="2"),
            "meta": {"count": 1, "total": 2, "totalPages": 2},
        },
    )


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("/users/1/group", resource("group", "1", {"users": NO_DATA}, name="alpha")),
        ("/users/5/group", None),
        ("/users/5/bio", None),
        (
            "/users/2/bio",
            resource(
                "user_bio",
                "2",
                {"user": NO_DATA},
                birth_city="Maida Vale",
                favourite_movies="Snow White",
                keys_to_ids_list=None,
            ),
        ),
    ],
)
async def test_related_resource(reader: Api, path: str, data: dict[str, Any] | None) -> None:
    answer = await reader.get(path)
    assert (answer.status, answer.document) == (
        200,
        {"jsonapi": {"version": "1.0"}, "data": data, "links": {"self": path}},
    )


@pytest.mark.parametrize(
    ("path", "data", "related"),
    [
        ("/groups/1/relationships/users", many("user", 1, 2), "/groups/1/users"),
        ("/parents/2/relationships/children", many("parent-to-child-association", 2, 3), "/parents/2/children"),
    ],
)
async def test_linkage_of_a_to_many(reader: Api, path: str, data: Any, related: str) -> None:
    answer = await reader.get(path)
    assert (answer.status, answer.document) == (
        200,
        {
            "jsonapi": {"version": "1.0"},
            "data": data,
            "links": links_of(path, [], related=related),
            "meta": {"count": 2, "total": 2, "totalPages": 1},
        },
    )


async def test_linkage_is_paginated_like_a_list(reader: Api) -> None:
    path, pairs = "/groups/1/relationships/users", [("page[size]", "1")]
    answer = await reader.get(target(path, pairs))
    assert (answer.status, answer.document) == (
        200,
        {
            "jsonapi": {"version": "1.0"},
            "data": many("user", 1),
            "links": links_of(path, pairs, related="/groups/1/users", last="2"),
            "meta": {"count": 1, "total": 2, "totalPages": 2},
        },
    )


@pytest.mark.parametrize(
    ("path", "data", "related"),
    [
        ("/users/1/relationships/group", one("group", "1"), "/users/1/group"),
        ("/users/5/relationships/group", None, "/users/5/group"),
        ("/users/2/relationships/bio", one("user_bio", "2"), "/users/2/bio"),
        ("/users/3/relationships/bio", None, "/users/3/bio"),
    ],
)
async def test_linkage_of_a_to_one(reader: Api, path: str, data: Any, related: str) -> None:
    answer = await reader.get(path)
    assert (answer.status, answer.document) == (
        200,
        {"jsonapi": {"version": "1.0"}, "data": data, "links": {"self": path, "related": related}},
    )


@pytest.mark.parametrize(
    ("path", "included"),
    [
        ("/users/1/relationships/group?include=group&fields[group]=name", [resource("group", "1", {}, name="alpha")]),
        ("/users/5/relationships/group?include=group", []),
        (
            "/users/2/relationships/computers?include=computers&fields[computer]=name",
            [resource("computer", "2", {}, name="Bombe"), resource("computer", "3", {}, name="Ace")],
        ),
        (
            "/users/1/relationships/computers?include=computers.owner&fields[computer]=owner&fields[user]=",
            [resource("computer", "1", {"owner": one("user", "1")}), resource("user", "1", {})],
        ),
    ],
)
async def test_include_begins_with_the_name_of_the_relationship(
    reader: Api, path: str, included: list[dict[str, Any]]
) -> None:
    answer = await reader.get(path)
    assert (answer.status, answer.document["included"]) == (200, included)


@pytest.mark.parametrize(
    "path", ["/users/1/relationships/group?include=users", "/users/2/relationships/computers?include=owner"]
)
async def test_include_of_another_name(reader: Api, path: str) -> None:
    answer = await reader.get(path)
    assert (answer.status, [found["code"] for found in answer.errors]) == (400, ["invalid_include"])


@pytest.mark.parametrize("id_text", ["99", "01", "x", "9223372036854775808"])
@pytest.mark.parametrize(
    "rest", ["computers", "group", "bio", "relationships/computers", "relationships/group", "relationships/bio"]
)
async def test_a_missing_parent(reader: Api, id_text: str, rest: str) -> None:
    answer = await reader.get(f"/users/{id_text}/{rest}")
    detail = f"There is no user with the id “{id_text}”."
    expected = error(404, "resource_not_found", "Resource Not Found", detail)
    assert (answer.status, answer.errors) == (404, [expected])


@pytest.mark.parametrize("query", ["?page[number]=9", "?page[offset]=50&page[total]=none", "?filter[name]=x"])
async def test_a_missing_parent_with_any_parameters(reader: Api, query: str) -> None:
    assert (await reader.get(f"/users/99/computers{query}")).status == 404
    assert (await reader.get(f"/users/1/computers{query}")).status == 200


@pytest.mark.parametrize(
    "path",
    ["/users/1/computers", "/users/1/group", "/users/1/relationships/computers", "/users/1/relationships/group"],
)
async def test_head(reader: Api, path: str) -> None:
    get, head = await reader.get(path), await reader.request("HEAD", path)
    assert (head.status, head.body, head.headers["Content-Length"]) == (200, b"", get.headers["Content-Length"])
