"""Section 5: the results of each filter over the rows of `tests/http/rows.py`. Whole documents are compared."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.http.conftest import Api
from tests.http.expected import PATHS, Pairs, bare_list, target
from tests.variables import VARIABLES

ALL = [1, 2, 3, 4, 5, 6]


async def found(reader: Api, type_name: str, ids: list[int], filters: Pairs) -> None:
    """Request a list with these filters, and compare the whole answer."""
    pairs = [*filters, (f"fields[{type_name}]", "")]
    answer = await reader.get(target(PATHS[type_name], pairs))
    assert (answer.status, answer.document) == (200, bare_list(type_name, ids, pairs))


def one(name: str, op: str, val: Any) -> list[dict[str, Any]]:
    return [{"name": name, "op": op, "val": val}]


def two(name: str, op: str, field: str) -> list[dict[str, Any]]:
    return [{"name": name, "op": op, "field": field}]


@pytest.mark.parametrize(
    ("filters", "ids"),
    [
        # eq, ne: ne does not match null
        (one("age", "eq", 36), [1]),
        (one("age", "ne", 36), [2, 3, 4, 6]),
        (one("age", "eq", 36.0), [1]),
        (one("first_name", "eq", "Ada"), [1]),
        (one("first_name", "eq", "ADA"), []),
        (one("last_name", "eq", "Gödel"), [4]),
        (one("last_name", "eq", "50%_off\\"), [6]),
        (one("status", "eq", "block"), [4]),
        (one("status", "ne", "active"), [3, 4]),
        (one("gender", "ne", "male"), [1, 3, 6]),
        (one("birth_date", "eq", "1912-06-23"), [2]),
        (one("display_name", "eq", "Ada Lovelace"), [1]),
        (one("words", "eq", ["math", "a,b"]), [5]),
        (one("words", "eq", []), [4]),
        (one("words", "eq", ["a,b", "math"]), []),
        (one("words", "ne", ["navy"]), [1, 2, 4, 5, 6]),
        (one("id", "eq", "3"), [3]),
        (one("id", "eq", 3), [3]),
        (one("id", "eq", 77), []),
        # order
        (one("age", "lt", 41), [1, 6]),
        (one("age", "le", 41), [1, 2, 6]),
        (one("age", "gt", 41), [3, 4]),
        (one("age", "ge", 41), [2, 3, 4]),
        (one("age", "between", [36, 71]), [1, 2, 4]),
        (one("age", "between", [71, 36]), []),
        (one("birth_date", "lt", "1900-01-01"), [1]),
        (one("birth_date", "between", ["1906-04-28", "1906-12-09"]), [3, 4]),
        (one("date_create", "ge", "2024-01-04"), [5, 6]),
        (one("last_name", "between", ["Hopper", "Noether"]), [1, 3, 5]),
        (one("status", "lt", "archive"), [1, 2, 5, 6]),
        (one("id", "gt", "4"), [5, 6]),
        (one("id", "between", ["2", 3]), [2, 3]),
        # lists: an empty one matches nothing, or everything
        (one("age", "in_", [36, 0, 12]), [1, 6]),
        (one("age", "in", [36, 0, 12]), [1, 6]),
        (one("age", "notin_", [36, 0, 12]), [2, 3, 4]),
        (one("age", "in_", []), []),
        (one("age", "notin_", []), ALL),
        (one("status", "in_", ["block", "archive"]), [3, 4]),
        (one("birth_date", "in_", ["1906-12-09"]), [3]),
        (one("id", "in_", ["1", 6]), [1, 6]),
        (one("id", "notin_", ["1", 6]), [2, 3, 4, 5]),
        # null
        (one("age", "is_", None), [5]),
        (one("age", "isnot", None), [1, 2, 3, 4, 6]),
        (one("age", "is_", 36), [1]),
        (one("age", "isnot", 36), [2, 3, 4, 5, 6]),
        (one("words", "is_", []), [4]),
        (one("words", "isnot", ["navy"]), [1, 2, 4, 5, 6]),
        (one("words", "is_", None), []),
        (one("status", "isnot", "active"), [3, 4]),
        # LIKE: a pattern with %, contained literally without
        (one("last_name", "like", "el"), [1, 4]),
        (one("last_name", "like", "el%"), []),
        (one("last_name", "like", "%el"), [4]),
        (one("last_name", "like", "_uring%"), [2]),
        (one("last_name", "like", "_uring"), []),
        (one("last_name", "like", "_o"), [6]),
        (one("last_name", "like", "\\"), [6]),
        (one("last_name", "like", "50\\%%"), [6]),
        (one("last_name", "like", ""), ALL),
        (one("first_name", "like", "ada"), [6]),
        (one("first_name", "ilike", "ADA"), [1, 6]),
        (one("first_name", "ilike", "A%A"), [1, 6]),
        (one("first_name", "notlike", "a"), [4, 5]),
        (one("first_name", "notlike", "A%"), [3, 4, 5, 6]),
        (one("first_name", "notilike", "a"), [4, 5]),
        (one("email", "notlike", "kurt"), [1, 2, 6]),
        (one("status", "like", "ive"), [1, 2, 3, 5, 6]),
        (one("display_name", "ilike", "ADA l"), [1]),
        # beginnings and ends are literal
        (one("first_name", "startswith", "A"), [1, 2]),
        (one("last_name", "startswith", "50%"), [6]),
        (one("last_name", "startswith", "5_%"), []),
        (one("last_name", "endswith", "%_off\\"), [6]),
        (one("last_name", "endswith", "er"), [3, 5]),
        (one("status", "startswith", "a"), [1, 2, 3, 5, 6]),
        (one("status", "endswith", "ck"), [4]),
        # regular expressions
        (one("first_name", "match", "^A"), [1, 2]),
        (one("first_name", "match", "^[Aa]da$"), [1, 6]),
        (one("last_name", "match", "\\d"), [6]),
        (one("last_name", "match", "x" * 200), []),
        # an array contains a value, or overlaps
        (one("words", "in", "math"), [1, 2, 5]),
        (one("words", "in_", "math"), [1, 2, 5]),
        (one("words", "in_", ["navy", "running"]), [2, 3]),
        (one("words", "in_", "a,b"), [5]),
        (one("words", "in_", []), []),
        (one("words", "notin_", "math"), [3, 4, 6]),
        (one("words", "notin_", []), ALL),
    ],
)
async def test_values(reader: Api, filters: Any, ids: list[int]) -> None:
    await found(reader, "user", ids, [("filter", json.dumps(filters))])


@pytest.mark.parametrize(
    ("type_name", "filters", "ids"),
    [
        ("user", two("age", "gt", "id"), [1, 2, 3, 4]),
        ("user", two("id", "ge", "age"), [6]),
        ("user", two("id", "eq", "group_id"), [1]),
        ("user", two("group", "lt", "id"), [2, 3, 4]),
        ("user", two("birth_date", "eq", "date_create"), [6]),
        ("user", two("birth_date", "lt", "date_create"), [1, 2, 3, 4]),
        ("user", two("age", "is_", "id"), []),
        ("user", two("age", "isnot", "id"), ALL),
        ("user", two("display_name", "startswith", "first_name"), ALL),
        ("user", two("display_name", "endswith", "last_name"), ALL),
        ("user", two("email", "like", "first_name"), []),
        ("user", two("email", "ilike", "first_name"), [1, 2, 4]),
        ("user", two("email", "notilike", "first_name"), [6]),
        ("user", two("email", "notlike", "first_name"), [1, 2, 4, 6]),
        ("user", two("status", "ne", "first_name"), ALL),
        ("user", two("words", "eq", "words"), ALL),
        ("user", two("words", "in", "words"), [1, 2, 3, 5, 6]),
        ("user", two("display_name", "match", "first_name"), ALL),
        ("post", two("title", "eq", "body"), [2]),
        ("post", two("user_id", "lt", "id"), [2, 3]),
        ("post", two("user.id", "eq", "id"), [1]),
        ("post", two("user.age", "gt", "id"), [1, 2, 3]),
        ("post", two("id", "lt", "user.age"), [1, 2, 3]),
    ],
)
async def test_fields(reader: Api, type_name: str, filters: Any, ids: list[int]) -> None:
    await found(reader, type_name, ids, [("filter", json.dumps(filters))])


@pytest.mark.skipif("WATERSPOUT_TEST_POSTGRES" in VARIABLES, reason="another database keeps its own collation")
@pytest.mark.parametrize(
    ("filters", "ids"),
    [
        (one("first_name", "ge", "Kurt"), [4, 6]),
        (one("first_name", "lt", "a"), [1, 2, 3, 4, 5]),
        (one("first_name", "between", ["Ada", "Alan"]), [1, 2]),
        (two("group.name", "lt", "first_name"), []),
    ],
)
async def test_text_by_code_point(reader: Api, filters: Any, ids: list[int]) -> None:
    await found(reader, "user", ids, [("filter", json.dumps(filters))])


ENGINE = {"name": "name", "op": "eq", "val": "Bombe"}
ACE = {"name": "name", "op": "eq", "val": "Ace"}


@pytest.mark.parametrize(
    ("filters", "ids"),
    [
        # the top level is a conjunction; one object is a list of one
        (one("age", "gt", 36) + one("age", "lt", 80), [2, 4]),
        ({"name": "age", "op": "eq", "val": 36}, [1]),
        ([], ALL),
        # groups
        ({"or": one("age", "eq", 36) + one("age", "is_", None)}, [1, 5]),
        ({"and": one("gender", "eq", "male") + one("status", "eq", "active")}, [2]),
        ({"not": {"name": "status", "op": "eq", "val": "active"}}, [3, 4]),
        ({"not": one("status", "eq", "active")}, [3, 4]),
        # NOT of an unknown is unknown, as in SQL
        ({"not": {"name": "age", "op": "eq", "val": 36}}, [2, 3, 4, 6]),
        ({"not": {"or": one("age", "lt", 40) + one("gender", "eq", "male")}}, [3]),
        ([{"or": [*one("id", "eq", 1), {"and": one("id", "gt", 1) + one("id", "lt", 3)}]}], [1, 2]),
        ({"and": []}, ALL),
        ({"or": []}, []),
        ({"not": {"or": []}}, ALL),
        # any, has
        (one("computers", "any", ENGINE), [2]),
        (one("computers", "any", []), [1, 2, 4]),
        ({"not": {"name": "computers", "op": "any", "val": []}}, [3, 5, 6]),
        (one("computers", "any", [{"name": "serial", "op": "is_", "val": None}]), [2]),
        (one("group", "has", {"name": "name", "op": "eq", "val": "alpha"}), [1, 2]),
        (one("group", "has", []), [1, 2, 3, 4]),
        (one("bio", "has", []), [1, 2]),
        (one("bio", "has", {"name": "birth_city", "op": "like", "val": "don"}), [1]),
        (one("computers", "any", {"or": [ENGINE, {"name": "serial", "op": "eq", "val": "A-5"}]}), [2, 4]),
        (one("computers", "any", {"not": {"name": "serial", "op": "is_", "val": None}}), [1, 2, 4]),
        (one("group", "has", one("users", "any", {"name": "status", "op": "eq", "val": "block"})), [3, 4]),
        (one("group.users", "any", {"name": "status", "op": "eq", "val": "block"}), [3, 4]),
        (one("computers.owner", "has", {"name": "age", "op": "eq", "val": 71}), [4]),
        # one row that meets both, or two rows that meet one each
        (one("computers", "any", [ENGINE, ACE]), []),
        (one("computers.name", "eq", "Bombe") + one("computers.name", "eq", "Ace"), [2]),
        # dotted names: each step is an EXISTS, so rows are never repeated
        (one("group.name", "eq", "alpha"), [1, 2]),
        (one("computers.name", "ne", "nothing"), [1, 2, 4]),
        (one("bio.birth_city", "startswith", "Maida"), [2]),
        (one("group.users.computers.name", "eq", "Arithmometer"), [3, 4]),
        (one("group.users.id", "eq", "3"), [3, 4]),
        (one("posts.title", "in_", ["Notes", "Sketch"]), [1]),
        (one("bio.favourite_movies", "is_", None), [1]),
        # the id of a to-one with the key in its own row: null matches an empty relationship
        (one("group.id", "eq", "1"), [1, 2]),
        (one("group_id", "eq", 1), [1, 2]),
        (one("group", "eq", "1"), [1, 2]),
        (one("group.id", "is_", None), [5, 6]),
        (one("group_id", "is_", None), [5, 6]),
        (one("group", "isnot", None), [1, 2, 3, 4]),
        # and null matches if the key is in the other table and there is no related row
        (one("bio.id", "is_", None), [3, 4, 5, 6]),
        (one("bio_id", "isnot", None), [1, 2]),
        (one("bio.id", "isnot", 1), [2, 3, 4, 5, 6]),
        (one("bio.id", "notin_", []), ALL),
        (one("bio", "eq", 1), [1]),
        ({"not": one("bio.id", "eq", 1)[0]}, [2]),
        ({"not": one("bio.id", "is_", 1)[0]}, [2, 3, 4, 5, 6]),
        ({"not": {"not": one("bio.id", "eq", 1)[0]}}, [1]),
        # is_ with a value is never unknown: not of it is isnot
        ({"not": one("age", "is_", 36)[0]}, [2, 3, 4, 5, 6]),
        (one("age", "isnot", 36), [2, 3, 4, 5, 6]),
        (one("group", "in_", ["2", 3]), [3, 4]),
        (one("bio.id", "eq", "2"), [2]),
        (one("bio_id", "eq", 2), [2]),
        (one("bio", "eq", 2), [2]),
        (one("computers.owner_id", "eq", "4"), [4]),
    ],
)
async def test_structure(reader: Api, filters: Any, ids: list[int]) -> None:
    await found(reader, "user", ids, [("filter", json.dumps(filters))])


@pytest.mark.parametrize(
    ("val", "ids"),
    [
        ({"a": 1}, [1]),
        ({}, [1, 2, 4]),
        ({"tags": ["y"]}, [1]),
        ({"in": {"b": [2]}}, [2]),
        ({"a": 1.0}, [1]),
        ({"a": "1"}, []),
        ([], []),
        ({"a'; DROP TABLE photos; --": 1}, []),
    ],
)
async def test_json_contains(reader: Api, val: Any, ids: list[int]) -> None:
    await found(reader, "photo", ids, [("filter", json.dumps(one("words", "jsonb_contains", val)))])


@pytest.mark.parametrize(
    ("type_name", "filters", "ids"),
    [
        ("photo", one("words", "is_", None), [3]),
        ("photo", one("words", "isnot", None), [1, 2, 4]),
        ("user_bio", one("keys_to_ids_list", "jsonb_contains", {"posts": [2]}), [1]),
        ("computer", one("owner", "is_", None), [4]),
        ("computer", one("owner.group.name", "eq", "beta"), [5]),
        ("computer", one("owner.computers.name", "eq", "Ace"), [2, 3]),
        ("parent", one("children.child.name", "eq", "Ralph"), [2]),
        ("child", one("parents.parent.name", "eq", "Anne"), [1]),
        ("child", {"not": one("parents", "any", [])}, [3]),
        ("parent-to-child-association", one("parent.name", "eq", "Byron") + one("child_id", "eq", 1), [2]),
        ("group", {"not": one("users", "any", [])}, [3]),
    ],
)
async def test_other_resources(reader: Api, type_name: str, filters: Any, ids: list[int]) -> None:
    await found(reader, type_name, ids, [("filter", json.dumps(filters))])


@pytest.mark.parametrize(
    ("pairs", "ids"),
    [
        ([("filter[age]", "36")], [1]),
        ([("filter[age][eq]", "36")], [1]),
        ([("filter[age][gt]", "36")], [2, 3, 4]),
        ([("filter[age][between]", "36,71")], [1, 2, 4]),
        ([("filter[age][in_]", "36,0")], [1, 6]),
        ([("filter[age][in]", "36")], [1]),
        ([("filter[age][in_]", "")], []),
        ([("filter[age][notin_]", "")], ALL),
        ([("filter[birth_date]", "1912-06-23")], [2]),
        ([("filter[status]", "block")], [4]),
        ([("filter[id]", "3")], [3]),
        ([("filter[id][in]", "3,5")], [3, 5]),
        # the text null is only null for is_ and isnot
        ([("filter[email][is_]", "null")], [3, 5]),
        ([("filter[email][isnot]", "null")], [1, 2, 4, 6]),
        ([("filter[email]", "null")], []),
        ([("filter[words][in]", "null")], [6]),
        ([("filter[age][is_]", "36")], [1]),
        # lists split at commas, an escaped comma is a comma; text operators take the text whole
        ([("filter[words][in_]", "navy,running")], [2, 3]),
        ([("filter[words][in_]", "a\\,b")], [5]),
        ([("filter[words][in_]", "a,b")], []),
        ([("filter[words]", "math,a\\,b")], [5]),
        ([("filter[words]", "")], [4]),
        ([("filter[first_name]", "Ada,Alan")], []),
        ([("filter[last_name][like]", "%,%")], []),
        ([("filter[last_name][in_]", "50%_off\\\\,Gödel")], [4, 6]),
        ([("filter[last_name]", "50%_off\\")], [6]),
        ([("filter[display_name]", "Ada Lovelace")], [1]),
        # dotted names, and a to-one by its id
        ([("filter[group.name]", "alpha")], [1, 2]),
        ([("filter[group.id]", "2")], [3, 4]),
        ([("filter[group_id]", "2")], [3, 4]),
        ([("filter[group]", "2")], [3, 4]),
        ([("filter[group_id][is_]", "null")], [5, 6]),
        ([("filter[computers.serial][is_]", "null")], [2]),
        # all filters of a request are one conjunction
        ([("filter[age][gt]", "36"), ("filter[age][lt]", "80")], [2, 4]),
        ([("filter[gender]", "male"), ("filter", json.dumps(one("status", "eq", "active")))], [2]),
        ([("filter", json.dumps(one("age", "gt", 36))), ("filter", json.dumps(one("age", "lt", 80)))], [2, 4]),
        ([("filter[gender]", "male"), ("filter[gender]", "female")], []),
    ],
)
async def test_simple(reader: Api, pairs: Pairs, ids: list[int]) -> None:
    await found(reader, "user", ids, pairs)


async def test_simple_json(reader: Api) -> None:
    await found(reader, "photo", [1], [("filter[words][jsonb_contains]", '{"tags":["x"]}')])
    await found(reader, "photo", [3], [("filter[words][is_]", "null")])


@pytest.mark.parametrize(
    "text",
    ["'; DROP TABLE users; --", "$1", "%(x)s", '"', "\\", "{}", "%s", "\t\n", "\U0001f9c0", "?", "' OR '1'='1"],
)
@pytest.mark.parametrize("op", ["eq", "in_", "like", "startswith", "endswith"])
async def test_values_are_bound(reader: Api, text: str, op: str) -> None:
    val = [text] if op == "in_" else text
    ids = [6] if text == "\\" and op in ("like", "endswith") else []
    await found(reader, "user", ids, [("filter", json.dumps(one("last_name", op, val)))])


async def test_pages_of_a_filtered_list(reader: Api) -> None:
    """Filter, order, page and total agree."""
    pairs = [("filter[name][endswith]", "1"), ("sort", "-id"), ("page[size]", "3"), ("fields[person]", "")]
    answer = await reader.get(target("/persons", pairs))
    assert answer.status == 200
    assert answer.ids == ["61", "51", "41"]
    assert answer.document["meta"] == {"count": 3, "total": 7, "totalPages": 3}


@pytest.mark.parametrize("page", ["", "&page[size]=0"])
async def test_a_pattern_that_would_take_too_much_memory(reader: Api, page: str) -> None:
    """It is not sent to PostgreSQL."""
    answer = await reader.get(f"/users?filter[first_name][match]=((x{{1,200}}){{1,200}}){page}")
    assert (answer.status, [error["code"] for error in answer.errors]) == (400, ["invalid_filter"])
    assert answer.errors[0]["source"] == {"parameter": "filter[first_name][match]"}


@pytest.mark.parametrize("lists", [([1], [2, 3]), ([], [9]), ([3, 3], [3]), ([], []), ([6, 5], [1])])
async def test_lists_of_one_column(reader: Api, lists: tuple[list[int], list[int]]) -> None:
    """With OR they are one list. All these requests have one form."""
    tree = {"or": [test for ids in lists for test in one("id", "in_", ids)]}
    ids = [id for id in ALL if id in [*lists[0], *lists[1]]]
    await found(reader, "user", ids, [("filter", json.dumps([tree]))])
    await found(reader, "user", [id for id in ALL if id not in ids], [("filter", json.dumps([{"not": tree}]))])


async def test_the_fault_of_one_of_the_lists_of_a_column(reader: Api) -> None:
    tree = {"or": [test for val in ([1], [2, "x"], [3]) for test in one("id", "in_", val)]}
    answer = await reader.get(target("/users", [("filter", json.dumps([tree]))]))
    assert [error["detail"].partition(":")[0] for error in answer.errors] == ["[0].or[1]"]


async def test_lists_of_one_column_among_other_values(reader: Api) -> None:
    """Their values are found whatever other filters a request has."""
    computers = {user: (await reader.get(f"/users/{user}/computers")).ids for user in ALL}
    for first, second in ((1, 2), (2, 1), (3, 2)):
        ids = {int(id) for id in [*computers[first], *computers[second]]}
        chosen = {"or": [test for id in [*ids, 99] for test in one("id", "in_", [id])]}
        users = {"or": [test for id in (first, second) for test in one("id", "in_", [id])]}
        pairs = [
            ("filter[age][ne]", "-1"),
            ("filter", json.dumps([users])),
            ("include", "computers"),
            ("includeFilter[computers]", json.dumps([chosen])),
        ]
        answer = await reader.get(target("/users", pairs))
        assert sorted(answer.ids) == sorted([str(first), str(second)])
        assert {int(included["id"]) for included in answer.document.get("included", [])} == ids
