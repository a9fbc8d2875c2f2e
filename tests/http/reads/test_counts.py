"""Filters and sorts by the number of related resources. `tests/property/test_filter_semantics.py` compares them with a
model."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.http.conftest import Api, Inspected
from waterspout import TEXT, Attribute, Catalog, Link, Resource, ToMany


def count(name: str, op: str, val: Any, *of: Any) -> dict[str, Any]:
    return {"name": name, "op": "count", "val": {"op": op, "val": val}} | ({"of": list(of)} if of else {})


async def ids(api: Api, path: str, *filters: Any) -> list[str]:
    answer = await api.filter(path, list(filters))
    assert answer.status == 200, answer.body
    return answer.ids


SERIAL = {"name": "serial", "op": "isnot", "val": None}


@pytest.mark.parametrize(
    ("test", "found"),
    [
        (count("computers", "ge", 1), "124"),
        (count("computers", "eq", 0), "356"),
        (count("computers", "eq", 2), "2"),
        (count("computers", "eq", 1, SERIAL), "124"),
        (count("computers", "between", [1, 2], SERIAL), "124"),
        (count("computers", "in_", [0, 2]), "2356"),
        (count("computers", "notin_", [0, 2]), "14"),
        (count("computers", "in_", []), ""),
        ({"not": count("computers", "ge", 1)}, "356"),
        (count("computers", "lt", -1), ""),
        (count("computers", "eq", 1, {"name": "owner.age", "op": "gt", "val": 40}), "4"),
        # for one of the rows before it
        (count("group.users", "eq", 2), "1234"),
        (count("group.users.computers", "eq", 2), "12"),
        (count("computers.owner.posts", "ge", 2), "1"),
        (count("computers", "ge", 1, count("owner.posts", "eq", 1)), "2"),
        (count("posts", "eq", 2, {"name": "title", "op": "match", "val": "^[NS]"}), "1"),
    ],
)
async def test_filters(reader: Api, test: Any, found: str) -> None:
    assert sorted(await ids(reader, "/users", test)) == list(found)


@pytest.mark.parametrize(
    ("query", "found"),
    [("count]=0", "356"), ("count][ge]=1", "124"), ("count][between]=1,2", "124"), ("count][in_]=2,3", "2")],
)
async def test_simple_filters(reader: Api, query: str, found: str) -> None:
    assert "".join((await reader.get(f"/users?filter[computers][{query}&sort=id")).ids) == found


@pytest.mark.parametrize(
    ("sort", "found"),
    [
        ("-count(computers),id", "214356"),
        ("count(computers),-id", "653412"),
        ("-count(posts),-count(computers),id", "124356"),
        ("count(group.users),id", "561234"),
        ("-count(computers),count(computers),-id", "241653"),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 10])
async def test_sorts_with_cursors(reader: Api, sort: str, found: str, size: int) -> None:
    url, forwards = f"/users?sort={sort}&page[size]={size}&page[after]=", ""
    while url:
        answer = await reader.get(url)
        assert answer.status == 200, answer.body
        forwards += "".join(answer.ids)
        last, url = answer, answer.document["links"].get("next", "")
    assert forwards == found
    backwards, url = "".join(last.ids), last.document["links"].get("prev", "")
    while url:
        answer = await reader.get(url)
        backwards, url = "".join(answer.ids) + backwards, answer.document["links"].get("prev", "")
    assert backwards == found


@pytest.mark.parametrize("sort", ["-count(computers),id", "count(group.users),-count(posts),id"])
async def test_some_rows_are_sorted_like_all(reader: Api, sort: str) -> None:
    """Related rows are counted at once for all rows, and otherwise for each."""
    all_rows = (await reader.get(f"/users?sort={sort}")).ids
    assert (await reader.get(f"/users?sort={sort}&filter[id][gt]=0")).ids == all_rows
    assert (await reader.get(f"/users?sort={sort}&filter[id][gt]=2")).ids == [one for one in all_rows if one > "2"]


async def test_it_chooses_what_is_included(reader: Api) -> None:
    answer = await reader.get(
        "/groups?include=users&includeFilter[users][computers][count][ge]=1&includeSort[users]=-count(computers)"
    )
    assert [[one["id"] for one in group["relationships"]["users"]["data"]] for group in answer.document["data"]] == [
        ["2", "1"],
        ["4"],
        [],
    ]


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ("filter[computers][count]=x", "the value for “computers” must be a whole number"),
        ("filter[computers][count]=null", "must be a whole number"),
        ("filter[computers][count][like]=3", "`count` has no operator “like”. Did you mean “le”?"),
        ("filter[computers][count][is_]=3", "`count` has no operator “is_”"),
        ("filter[computers][count][ge][x]=3", "A simple filter is"),
        ("filter[computers][counts][ge]=3", "A simple filter is"),
        ("filter[age][count]=3", "user has no relationship “age”"),
        ("filter[group][count]=3", "“group” is to-one: its operator is `has`."),
        ("filter[computers.][count]=3", "holds an empty name"),
        ("sort=count(computer)", "Did you mean “computers”?"),
        ("sort=count(group)", "“group” is no to-many relationship"),
        ("sort=count(computers.owner)", "“computers.owner”: “computers” is to-many"),
        ("sort=count()", "A sort key is empty."),
        ("sort=count(computers", "There is no attribute “count(computers” in user"),
    ],
)
async def test_errors(reader: Api, query: str, detail: str) -> None:
    answer = await reader.get(f"/users?{query}")
    [found] = answer.errors
    assert (found["status"], detail in found["detail"]) == ("400", True), found
    assert found["source"] == {"parameter": query.split("=")[0]}


@pytest.mark.parametrize(
    ("node", "detail"),
    [
        ({"name": "computers", "op": "count"}, "[0].val: `count` takes a `val`"),
        ({"name": "computers", "op": "count", "val": 3}, "[0].val: `count` takes a `val`"),
        ({"name": "computers", "op": "count", "val": {"op": "ge"}}, "[0].val: `count` takes a `val`"),
        ({"name": "computers", "op": "count", "val": {"op": 3, "val": 3}}, "[0].val: `count` takes a `val`"),
        ({"op": "count", "val": {"op": "ge", "val": 3}}, "[0]: a filter object has a `name`"),
        (count("computers", "ge", None), "[0].val: the number of related resources is never null."),
        (count("computers", "ge", 1.5), "[0].val: the value for “computers” must be a whole number"),
        (count("computers", "ge", 10**30), "must be a whole number from"),
        (count("computers", "in_", 3), "must be a list"),
        (count("computers", "ge", 1) | {"of": 3}, "[0].of: expected a filter object"),
        (count("computers", "ge", 1) | {"field": "age"}, "`count` has the members"),
        (count("computers", "ge", 1, {"name": "colour", "op": "eq", "val": 1}), "[0].of[0]: computer has no attribute"),
        (count("posts", "ge", 1, {"name": "title", "op": "match", "val": "("}), "a regular expression is not valid"),
    ],
)
async def test_errors_of_filter_objects(reader: Api, node: Any, detail: str) -> None:
    answer = await reader.filter("/users", [node])
    [found] = answer.errors
    assert (found["status"], detail in found["detail"]) == ("400", True), found


async def test_counts_are_nested_only_so_deep(reader: Api) -> None:
    node: Any = {"name": "age", "op": "ge", "val": 0}
    for _ in range(6):
        node = count(
            "computers", "ge", 0, count("owner.computers", "ge", 0, {"name": "owner", "op": "has", "val": [node]})
        )
    answer = await reader.filter("/users", [node])
    assert answer.status == 400
    assert "deep" in answer.errors[0]["detail"] or "in a row" in answer.errors[0]["detail"]


async def test_links_are_counted(inspected: Inspected) -> None:
    named = (Attribute("name", TEXT, nullable=True),)
    links = ToMany("leaves", "leaf", through=Link("links", "tree_id", "leaf_id"))
    catalog = Catalog([Resource("tree", "/trees", "trees", attributes=named, relationships=(links,)),
                       Resource("leaf", "/leaves", "leaves", attributes=named)])  # fmt: skip
    api = await inspected(
        """
        CREATE TABLE trees (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, name text);
        CREATE TABLE leaves (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, name text);
        CREATE TABLE links (tree_id bigint, leaf_id bigint, PRIMARY KEY (tree_id, leaf_id));
        INSERT INTO trees SELECT n FROM generate_series(1, 3) n;
        INSERT INTO leaves SELECT n, 'x' || n % 2 FROM generate_series(1, 5) n;
        INSERT INTO links VALUES (1, 1), (1, 2), (1, 3), (2, 4)
        """,
        catalog,
    )
    assert await ids(api, "/trees", count("leaves", "ge", 1)) == ["1", "2"]
    assert await ids(api, "/trees", count("leaves", "eq", 1, {"name": "name", "op": "eq", "val": "x0"})) == ["1", "2"]
    assert (await api.get("/trees?sort=-count(leaves)")).ids == ["1", "2", "3"]


async def test_many_resources_are_written_by_a_count(api: Api) -> None:
    """A filter of an operation takes it too."""
    for number in range(3):
        user = await api.create("/users", "user", {"first_name": "A", "last_name": str(number)})
        for _ in range(number):
            await api.create("/computers", "computer", {"name": "x"}, owner={"type": "user", "id": user})
    meta = {"filter": [count("computers", "ge", 1)], "max": 5}
    operation = {
        "op": "update",
        "ref": {"type": "user"},
        "data": {"type": "user", "attributes": {"age": 7}},
        "meta": meta,
    }
    answer = await api.request("POST", "/operations", {"atomic:operations": [operation]})
    assert answer.status == 200, answer.body
    rows = await api.sql("SELECT age FROM users ORDER BY id")
    assert [row["age"] for row in rows] == [None, 7, 7], json.dumps(answer.document)
