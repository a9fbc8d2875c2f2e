"""QUERY: it answers like GET, with the parameters in its body."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest

from tests.http.conftest import Answer, Api, Serve
from tests.http.expected import error

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


async def ask(api: Api, path: str, body: str | bytes = "", **headers: str) -> Answer:
    return await api.request("QUERY", path, headers={**FORM, **headers}, body=body)


@pytest.mark.parametrize(
    "url",
    [
        "/users",
        "/users?page[size]=2&sort=-age&include=group,computers",
        "/users?filter[last_name]=G%C3%B6del",
        "/users?filter[last_name]=Gödel",
        "/users?filter=" + quote(json.dumps([{"name": "computers", "op": "any", "val": []}])),
        "/users?page[size]=2&page[after]=",
        "/users?page[size]=0",
        "/users/1?include=computers&includePage[computers][size]=1",
        "/users/1/computers?sort=-id",
        "/users/1/group",
        "/users/2/relationships/computers?page[size]=1",
        "/users/2/relationships/group?include=group",
        "/users?groupBy=status&aggregateAs[n]=count()",
        "/users?sort=x&page[size]=x",
        "/users/99",
        "/nothing",
    ],
)
async def test_it_answers_like_get(reader: Api, url: str) -> None:
    path, _, parameters = url.partition("?")
    for body in (parameters, parameters.encode()):
        found, expected = await ask(reader, path, body), await reader.get(quote(url, safe="/?&=[],%"))
        assert found.status == expected.status
        got, wanted = found.document, expected.document
        if found.status == 200:
            assert got["links"].pop("self") == path
            wanted["links"].pop("self")
        else:
            for one in (*got["errors"], *wanted["errors"]):
                one.pop("id")
        assert got == wanted


async def test_links_that_are_too_long(reader: Api) -> None:
    """They are left out, and the cursor carries on."""
    values = [*range(1, 500), *[10**17 + number for number in range(500)]]
    filters = quote(json.dumps([{"name": "id", "op": "in_", "val": values}] * 2))
    assert len(filters) > 16_384
    found, cursor = list[str](), ""
    while True:
        answer = await ask(reader, "/users", f"filter={filters}&page[size]=4&page[after]={cursor}")
        assert answer.status == 200, answer.body
        assert set(answer.document["links"]) == {"self"}
        found += answer.ids
        if "page" not in answer.document["meta"]:
            break
        cursor = answer.document["meta"]["page"]["after"]
    assert found == ["1", "2", "3", "4", "5", "6"]
    short = await ask(reader, "/users", "page[size]=4&page[after]=")
    assert "page" not in short.document["meta"]
    assert (await reader.get(short.document["links"]["next"])).ids == ["5", "6"]


async def test_links_of_chosen_includes_that_are_too_long(reader: Api) -> None:
    chosen = "&".join(f"includeFilter[computers][name][ne]={'x' * 1000}{number}" for number in range(20))
    path, body = "/users/2", f"include=computers&includePage[computers][size]=1&{chosen}"
    answer = await ask(reader, path, body)
    computers = answer.document["data"]["relationships"]["computers"]
    assert (computers["meta"]["hasMore"], "next" in computers["links"]) == (True, False)


@pytest.mark.parametrize(
    ("headers", "status", "code", "source"),
    [
        ({}, 400, "bad_request", {"header": "Content-Type"}),
        ({"Content-Type": "application/vnd.api+json"}, 415, "unsupported_media_type", {"header": "Content-Type"}),
        ({"Content-Type": "text/plain"}, 415, "unsupported_media_type", {"header": "Content-Type"}),
        (FORM | {"Content-Encoding": "gzip"}, 415, "unsupported_media_type", {"header": "Content-Encoding"}),
    ],
)
async def test_media_types(reader: Api, headers: dict[str, str], status: int, code: str, source: Any) -> None:
    answer = await reader.request("QUERY", "/users", headers=headers, body="sort=id")
    assert (answer.status, answer.errors[0]["code"], answer.errors[0]["source"]) == (status, code, source)
    assert (await ask(reader, "/users", "", **{"Content-Type": FORM["Content-Type"] + "; charset=utf-8"})).status == 200


async def test_a_query_string_as_well(reader: Api) -> None:
    answer = await ask(reader, "/users?sort=id", "sort=id")
    detail = "A QUERY has its parameters in its body, and none in its URL."
    assert answer.errors == [error(400, "invalid_parameter", "Invalid Parameter", detail, parameter="sort")]


async def test_a_body_that_is_not_utf8(reader: Api) -> None:
    answer = await ask(reader, "/users", b"filter[last_name]=\xff")
    assert (answer.status, answer.errors[0]["code"]) == (400, "invalid_parameter")


@pytest.fixture
def limited(serve: Serve, rows_url: str) -> Api:
    return serve(rows_url, max_query_bytes=1000, max_body_bytes=100, allowed_hosts="*")


async def test_the_largest_body_is_a_setting(limited: Api) -> None:
    assert (await ask(limited, "/users", "x_=" + "y" * 997)).status == 200
    answer = await ask(limited, "/users", "x_=" + "y" * 998)
    assert (answer.status, answer.errors[0]["detail"]) == (413, "A body has at most 1000 bytes.")


async def test_it_is_safe(limited: Api) -> None:
    """A page of another origin may send it, as it may send a GET."""
    assert (await ask(limited, "/users", "", Origin="https://elsewhere.example")).status == 200


async def test_the_methods_of_routes(reader: Api) -> None:
    for path in ("/users", "/users/1", "/users/1/group", "/users/1/relationships/computers"):
        answer = await reader.request("OPTIONS", path)
        assert "QUERY" in answer.headers["Allow"].split(", ")
        assert answer.headers["Accept-Query"] == '"application/x-www-form-urlencoded"'
    for path in ("/", "/operations", "/-/live", "/-/openapi.json"):
        answer = await reader.request("OPTIONS", path)
        assert "QUERY" not in answer.headers.get("Allow", "")
        assert "Accept-Query" not in answer.headers
        assert (await ask(reader, path)).status == 405


async def test_a_tag_that_is_still_the_same(reader: Api) -> None:
    first = await ask(reader, "/users/1", "")
    again = await ask(reader, "/users/1", "", **{"If-None-Match": first.headers["ETag"]})
    assert again.status == 304
