"""Section 4: `sort`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.conftest import Api
from tests.http.expected import PATHS, bare_list, error, target
from tests.variables import VARIABLES


@pytest.mark.parametrize(
    ("type_name", "sort", "ids"),
    [
        # without a sort, by id
        ("user", None, [1, 2, 3, 4, 5, 6]),
        ("user", "id", [1, 2, 3, 4, 5, 6]),
        ("user", "-id", [6, 5, 4, 3, 2, 1]),
        # nulls last in both directions
        ("user", "age", [6, 1, 2, 4, 3, 5]),
        ("user", "-age", [3, 4, 2, 1, 6, 5]),
        ("user", "birth_date", [1, 4, 3, 2, 6, 5]),
        ("user", "-birth_date", [6, 2, 3, 4, 1, 5]),
        # the id is the last key, in the direction of the key before
        ("user", "date_create", [1, 2, 3, 4, 5, 6]),
        ("user", "-date_create", [6, 5, 4, 3, 2, 1]),
        ("user", "status", [1, 2, 5, 6, 3, 4]),
        ("user", "-status", [4, 3, 6, 5, 2, 1]),
        ("user", "gender", [1, 3, 2, 4, 6, 5]),
        ("user", "-gender", [6, 4, 2, 3, 1, 5]),
        ("user", "-email", [6, 4, 2, 1, 5, 3]),
        # several keys
        ("user", "status,-age", [2, 1, 6, 5, 3, 4]),
        ("user", "status,age", [6, 1, 2, 5, 3, 4]),
        ("user", "-status,age", [4, 3, 6, 1, 2, 5]),
        ("user", "-status,-id", [4, 3, 6, 5, 2, 1]),
        ("user", "-status,id", [4, 3, 1, 2, 5, 6]),
        ("user", "id,-age", [1, 2, 3, 4, 5, 6]),
        ("user", "status,status", [1, 2, 5, 6, 3, 4]),
        # computed, and arrays by their items
        ("user", "words", [4, 5, 1, 2, 3, 6]),
        ("user", "-words", [6, 3, 2, 1, 5, 4]),
        # dotted through to-one relationships; a missing one is null
        ("user", "group.name", [1, 2, 3, 4, 5, 6]),
        ("user", "-group.name", [4, 3, 2, 1, 6, 5]),
        ("user", "group.id", [1, 2, 3, 4, 5, 6]),
        ("user", "-group.id", [4, 3, 2, 1, 6, 5]),
        ("user", "-group.id,age", [4, 3, 1, 2, 6, 5]),
        ("user", "bio.birth_city", [1, 2, 3, 4, 5, 6]),
        ("user", "-bio.birth_city", [2, 1, 6, 5, 4, 3]),
        ("user", "-bio.id", [2, 1, 6, 5, 4, 3]),
        ("computer", "owner.age", [1, 2, 3, 5, 4]),
        ("computer", "-owner.age", [5, 3, 2, 1, 4]),
        ("computer", "-owner.group.name,name", [5, 3, 2, 1, 4]),
        ("computer", "-owner.age,-owner.id,serial", [5, 3, 2, 1, 4]),
        ("post", "-user.bio.birth_city", [3, 2, 1]),
        ("parent-to-child-association", "child.name,-parent.name", [2, 1, 3]),
        # <to-one>_id is the id of the related resource
        ("user", "-group_id", [4, 3, 2, 1, 6, 5]),
        ("user", "group_id,-age", [2, 1, 3, 4, 6, 5]),
        ("user", "-bio_id", [2, 1, 6, 5, 4, 3]),
        ("computer", "-owner_id", [5, 3, 2, 1, 4]),
        ("computer", "-owner.group_id", [5, 3, 2, 1, 4]),
        ("post", "-user.bio_id", [3, 2, 1]),
    ],
)
async def test_order(reader: Api, type_name: str, sort: str | None, ids: list[int]) -> None:
    pairs = [(f"fields[{type_name}]", ""), *([] if sort is None else [("sort", sort)])]
    answer = await reader.get(target(PATHS[type_name], pairs))
    assert (answer.status, answer.document) == (200, bare_list(type_name, ids, pairs))


@pytest.mark.skipif("WATERSPOUT_TEST_POSTGRES" in VARIABLES, reason="another database keeps its own collation")
@pytest.mark.parametrize(
    ("sort", "ids"),
    [
        ("first_name", [1, 2, 5, 3, 4, 6]),
        ("-first_name", [6, 4, 3, 5, 2, 1]),
        ("last_name", [6, 4, 3, 1, 5, 2]),
        ("display_name", [1, 2, 5, 3, 4, 6]),
    ],
)
async def test_text_by_code_point(reader: Api, sort: str, ids: list[int]) -> None:
    pairs = [("fields[user]", ""), ("sort", sort)]
    answer = await reader.get(target("/users", pairs))
    assert (answer.status, answer.document) == (200, bare_list("user", ids, pairs))


@pytest.mark.parametrize("sort", ["status", "-status", "gender", "-gender", "group.name", "-group.name", "-age"])
async def test_pages_never_overlap(reader: Api, sort: str) -> None:
    whole = await reader.get(f"/users?sort={sort}")
    pages = [(await reader.get(f"/users?sort={sort}&page[size]=1&page[number]={n}")).ids for n in range(1, 7)]
    assert [number for page in pages for number in page] == whole.ids
    assert len(set(whole.ids)) == 6


def refused(path: str, detail: str) -> dict[str, Any]:
    """The error also names the dotted path, besides the name in it that is wrong."""
    place = f"“{path}”: " if "." in path else ""
    return error(400, "invalid_sort", "Invalid Sort", f"{place}{detail}", parameter="sort")


USER_COLUMNS = "id, first_name, last_name, display_name, age, email, status, birth_date, gender, words, date_create"


@pytest.mark.parametrize(
    ("path", "sort", "errors"),
    [
        (
            "/users",
            "agee",
            [
                refused(
                    "agee",
                    f"There is no attribute “agee” in user to sort by. Did you mean “age”? There are: {USER_COLUMNS}.",
                )
            ],
        ),
        (
            "/users",
            "password_hash",
            [
                refused(
                    "password_hash",
                    f"There is no attribute “password_hash” in user to sort by. There are: {USER_COLUMNS}.",
                )
            ],
        ),
        (
            "/users",
            "-group",
            [refused("group", "“group” is a relationship: sort by an attribute of it, as group.id.")],
        ),
        (
            "/users",
            "bio",
            [refused("bio", "“bio” is a relationship: sort by an attribute of it, as bio.id.")],
        ),
        (
            "/users",
            "computers",
            [refused("computers", "“computers” is to-many: a sort goes through to-one relationships.")],
        ),
        (
            "/users",
            "computers.name",
            [refused("computers.name", "“computers” is to-many: a sort goes through to-one relationships.")],
        ),
        (
            "/computers",
            "owner.computers.name",
            [refused("owner.computers.name", "“computers” is to-many: a sort goes through to-one relationships.")],
        ),
        (
            "/photos",
            "words",
            [refused("words", "“words” holds JSON, which has no order. Sort by a value inside: words.name.")],
        ),
        (
            "/users",
            "bio.keys_to_ids_list",
            [
                refused(
                    "bio.keys_to_ids_list",
                    "“keys_to_ids_list” holds JSON, which has no order. "
                    "Sort by a value inside: bio.keys_to_ids_list.name.",
                )
            ],
        ),
        (
            "/groups",
            "name.id",
            [
                refused(
                    "name.id",
                    "“name” is no relationship of group: a path goes through to-one relationships.",
                )
            ],
        ),
        (
            "/groups",
            "",
            [error(400, "invalid_sort", "Invalid Sort", "A sort key is empty.", parameter="sort")],
        ),
        (
            "/groups",
            "name,,-",
            [error(400, "invalid_sort", "Invalid Sort", "A sort key is empty.", parameter="sort")] * 2,
        ),
        (
            "/groups",
            "--name,+name",
            [
                refused(
                    "-name",
                    "There is no attribute “-name” in group to sort by. Did you mean “name”? There are: id, name.",
                ),
                refused(
                    "+name",
                    "There is no attribute “+name” in group to sort by. Did you mean “name”? There are: id, name.",
                ),
            ],
        ),
    ],
)
async def test_refused(reader: Api, path: str, sort: str, errors: list[dict[str, Any]]) -> None:
    answer = await reader.get(target(path, [("sort", sort)]))
    assert (answer.status, answer.errors) == (400, errors)


async def test_steps(reader: Api) -> None:
    """Each step is a join. A long path is refused before PostgreSQL has to plan it."""
    answer = await reader.get("/users?sort=-bio.user.bio.user.age&page[size]=2")
    assert (answer.status, answer.ids) == (200, ["2", "1"])
    answer = await reader.get(f"/users?sort={'bio.user.' * 50}age")
    assert (answer.status, [found["code"] for found in answer.errors]) == (400, ["invalid_sort"])


async def test_repeated(reader: Api) -> None:
    answer = await reader.get("/users?sort=age&sort=age")
    expected = error(400, "invalid_sort", "Invalid Sort", "It occurs more than once.", parameter="sort")
    assert (answer.status, answer.errors) == (400, [expected])
