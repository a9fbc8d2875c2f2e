"""The cost of a read: what it is for each part of a query, and what is refused."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest

from tests.http.conftest import Api, Serve
from tests.http.expected import error

COST = {"Prefer": "cost"}


async def cost(api: Api, path: str) -> Any:
    answer = await api.get(path, **COST)
    assert answer.status == 200, answer.body
    assert answer.headers["Preference-Applied"] == "cost"
    assert "Prefer" in answer.headers["Vary"].split(", ")
    return answer.document["meta"]["cost"]


def filtered(*nodes: Any) -> str:
    return "filter=" + quote(json.dumps(nodes))


ANY = {"name": "computers", "op": "any", "val": [{"name": "owner.group.name", "op": "eq", "val": "x"}]}
COUNT = {"name": "computers", "op": "count", "val": {"op": "ge", "val": 1}}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/users", 30),
        ("/users?page[size]=7", 7),
        ("/users?page[limit]=7", 7),
        ("/users?page[size]=7&page[after]=", 7),
        ("/users?page[size]=0", 10_000),
        ("/users/1", 1),
        ("/users/1/group", 1),
        ("/groups/1/users", 30),
        ("/groups/1/relationships/users", 30),
        ("/users?include=group", 30 + 30),
        ("/users?include=computers", 30 + 300),
        ("/users?include=computers.owner", 30 + 300 + 300),
        ("/users?include=group.users", 30 + 30 + 300),
        ("/users?include=computers&includePage[computers][size]=3", 30 + 90),
        ("/users?include=computers&includePage[computers][size]=0", 30 + 30),
        ("/users?include=computers&includeFilter[computers][name]=x", 30 + 300 + 5),
        ("/users?" + filtered({"name": "age", "op": "ge", "val": 1}), 30 + 5),
        ("/users?" + filtered({"or": [{"name": "age", "op": "ge", "val": 1}] * 2}), 30 + 15),
        ("/users?" + filtered(ANY), 30 + 10 + 300),
        ("/users?" + filtered(COUNT), 30 + 5 + 100),
        ("/users?filter[group.name]=x", 30 + 5 + 100),
        ("/users?sort=age", 30),
        ("/users?sort=group.name,-count(computers)", 30 + 200),
        ("/users?groupBy=group.name&aggregateAs[n]=count()", 30 + 2000 + 100),
    ],
)
async def test_the_cost_of_each_part(reader: Api, path: str, expected: int) -> None:
    for _ in range(2):
        assert await cost(reader, path) == expected


async def test_it_is_only_shown_if_it_is_asked_for(reader: Api) -> None:
    for headers in ({}, {"Prefer": "respond-async"}, {"Prefer": 'x="cost"'}, {"Prefer": "costs"}):
        answer = await reader.get("/users", **headers)
        assert "cost" not in answer.document["meta"]
        assert "Prefer" not in answer.headers["Vary"]
    assert "meta" not in (await reader.get("/users/1")).document
    answer = await reader.get("/users", Prefer="respond-async, Cost; x=1")
    assert answer.document["meta"]["cost"] == 30


@pytest.fixture
def limited(serve: Serve, rows_url: str) -> Api:
    return serve(rows_url, max_query_cost=100, max_page_size=90)


async def test_a_query_that_costs_too_much(limited: Api) -> None:
    assert (await limited.get("/users?page[size]=50&include=group")).status == 200
    detail = (
        "The query costs 445, and at most 100 is allowed. "
        "What costs most: include=computers (400), page[size]=40 (40), filter (5)."
    )
    age = filtered({"name": "age", "op": "ge", "val": 1})
    for _ in range(2):
        answer = await limited.get(f"/users?page[size]=40&include=computers&{age}")
        expected = error(400, "query_too_costly", "Query Too Costly", detail, parameter="include")
        assert answer.errors == [expected]
    assert (await limited.get("/users?page[size]=0")).status == 200
    assert (await limited.get("/users?include=computers")).status == 400
    assert (await limited.get("/users/1/relationships/computers")).status == 200


async def test_a_write_whose_answer_costs_too_much_is_not_done(limited: Api) -> None:
    data = {"type": "user", "id": "1", "attributes": {"age": 99}}
    answer = await limited.patch("/users/1?include=group.users.computers", {"data": data})
    assert (answer.status, answer.errors[0]["code"]) == (400, "query_too_costly")
    assert (await limited.get("/users/1")).document["data"]["attributes"]["age"] == 36
