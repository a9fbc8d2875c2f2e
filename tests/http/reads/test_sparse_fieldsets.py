"""Section 4: `fields[type]`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.conftest import Api
from tests.http.expected import ADA, NO_DATA, Pairs, error, one, resource, target


@pytest.mark.parametrize(
    ("fields", "data"),
    [
        ("age", resource("user", "1", {}, age=36)),
        # in the declared order, whatever order is requested
        ("words,age", resource("user", "1", {}, age=36, words=["math", "poetry"])),
        ("display_name", resource("user", "1", {}, display_name="Ada Lovelace")),
        ("age,age", resource("user", "1", {}, age=36)),
        # an empty fieldset has no fields
        ("", resource("user", "1", {})),
        # an omitted relationship has no links either
        ("group", resource("user", "1", {"group": NO_DATA})),
        ("bio,age,posts", resource("user", "1", {"posts": NO_DATA, "bio": NO_DATA}, age=36)),
    ],
)
async def test_detail(reader: Api, fields: str, data: dict[str, Any]) -> None:
    path = target("/users/1", [("fields[user]", fields)])
    answer = await reader.get(path)
    expected = {"jsonapi": {"version": "1.0"}, "data": data, "links": {"self": path}}
    assert (answer.status, answer.document) == (200, expected)
    assert list(answer.document["data"].get("attributes", {})) == list(data.get("attributes", {}))


@pytest.mark.parametrize(
    ("pairs", "data", "included"),
    [
        (
            [("fields[computer]", "name"), ("fields[user]", "age")],
            resource("computer", "1", {}, name="Engine"),
            [resource("user", "1", {}, age=36)],
        ),
        (
            [("fields[computer]", "owner"), ("fields[user]", "")],
            resource("computer", "1", {"owner": one("user", "1")}),
            [resource("user", "1", {})],
        ),
        (
            [("fields[computer]", "")],
            resource("computer", "1", {}),
            [ADA],
        ),
        # a type that is not in the answer is allowed
        (
            [("fields[user]", "age,group"), ("fields[photo]", "name")],
            resource("computer", "1", {"owner": one("user", "1")}, name="Engine", serial="A-1"),
            [resource("user", "1", {"group": NO_DATA}, age=36)],
        ),
    ],
)
async def test_included(reader: Api, pairs: Pairs, data: dict[str, Any], included: list[dict[str, Any]]) -> None:
    path = target("/computers/1", [("include", "owner"), *pairs])
    answer = await reader.get(path)
    expected = {"jsonapi": {"version": "1.0"}, "data": data, "included": included, "links": {"self": path}}
    assert (answer.status, answer.document) == (200, expected)


async def test_a_fieldset_without_the_filtered_and_sorted_fields(reader: Api) -> None:
    """Fields that a filter, a sort or an include needs need not be shown."""
    pairs = [
        ("filter[age][gt]", "36"),
        ("sort", "-age"),
        ("fields[user]", "gender"),
        ("include", "group"),
        ("fields[group]", ""),
    ]
    answer = await reader.get(target("/users", pairs))
    page = target("/users", [*pairs, ("page[number]", "1")])
    assert (answer.status, answer.document) == (
        200,
        {
            "jsonapi": {"version": "1.0"},
            "data": [
                resource("user", "3", {}, gender="female"),
                resource("user", "4", {}, gender="male"),
                resource("user", "2", {}, gender="male"),
            ],
            "included": [resource("group", "2", {}), resource("group", "1", {})],
            "links": {"self": target("/users", pairs), "first": page, "last": page},
            "meta": {"count": 3, "total": 3, "totalPages": 1},
        },
    )


def refused(parameter: str, detail: str) -> dict[str, Any]:
    return error(400, "invalid_fields", "Invalid Sparse Fieldset", detail, parameter=parameter)


@pytest.mark.parametrize(
    ("pairs", "errors"),
    [
        (
            [("fields[user]", "agee")],
            [refused("fields[user]", "user has no field “agee”. Did you mean “age”?")],
        ),
        ([("fields[user]", "password_hash")], [refused("fields[user]", "user has no field “password_hash”.")]),
        ([("fields[user]", "id")], [refused("fields[user]", "user has no field “id”.")]),
        ([("fields[user]", "age,")], [refused("fields[user]", "user has no field “”.")]),
        (
            [("fields[user]", "group.name")],
            [refused("fields[user]", "user has no field “group.name”. Did you mean “group”?")],
        ),
        (
            [("fields[users]", "age")],
            [refused("fields[users]", "There is no resource type “users”. Did you mean “user”?")],
        ),
        ([("fields[]", "age")], [refused("fields[]", "There is no resource type “”.")]),
        ([("fields", "age")], [refused("fields", "A sparse fieldset is fields[type]=name,name.")]),
        (
            [("fields[user][x]", "age")],
            [refused("fields[user][x]", "A sparse fieldset is fields[type]=name,name.")],
        ),
        (
            [("fields[user]", "age"), ("fields[user]", "age")],
            [refused("fields[user]", "It occurs more than once.")],
        ),
        (
            [("fields[user]", "x,age,y"), ("fields[z]", "age")],
            [
                refused("fields[user]", "user has no field “x”."),
                refused("fields[user]", "user has no field “y”."),
                refused("fields[z]", "There is no resource type “z”."),
            ],
        ),
    ],
)
@pytest.mark.parametrize("path", ["/users", "/users/1", "/computers/1/owner"])
async def test_refused(reader: Api, path: str, pairs: Pairs, errors: list[dict[str, Any]]) -> None:
    answer = await reader.get(target(path, pairs))
    assert (answer.status, answer.errors) == (400, errors)
