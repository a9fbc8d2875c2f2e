"""Every kind of answer against the JSON Schema of JSON:API 1.0 responses: `jsonapi_schema.json` is the unchanged
official file of jsonapi.org (https://jsonapi.org/schemas/spec/v1.0/draft). It requires absolute links, so the server
has a `public_url` here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from tests.http.conftest import Api, Serve
from tests.http.expected import COLLECTIONS
from tests.http.people import create_household, document, linked, of, one, user

SCHEMA = json.loads((Path(__file__).parents[1] / "jsonapi_schema.json").read_text())
VALIDATOR = jsonschema_rs.Draft202012Validator(SCHEMA, validate_formats=True)


READS = [
    "/-/live",
    "/-/ready",
    *(f"/{path}" for path in COLLECTIONS),
    *(f"/{path}/1" for path in COLLECTIONS),
    *(f"/{path}?page[size]=0" for path in COLLECTIONS),
    "/users?include=computers.owner,posts,bio,group.users",
    "/users?include=",
    "/users?fields[user]=&include=computers",
    "/users?fields[user]=age,group&sort=-age,group.name",
    "/users?page[size]=1&page[number]=2",
    "/users?page[size]=1&page[number]=9",
    "/users?page[limit]=1&page[offset]=1&page[total]=none",
    "/users?page[size]=1&page[total]=estimated",
    "/users?filter[age]=36&filter[group.name]=rowers",
    "/users?filter[age]=1",
    "/users/1?include=computers,group&fields[computer]=name,owner",
    "/users/1/computers?include=owner",
    "/users/1/bio",
    "/users/2/group",
    "/computers/4/owner",
    "/users/1/relationships/computers",
    "/users/1/relationships/computers?include=computers",
    "/users/2/relationships/group",
    "/users/1/relationships/group",
]

WRITES: list[tuple[str, str, Any]] = [
    ("POST", "/users", user(group=one("group", "1"), computers=of("computer", "1", "4"), bio=None)),
    ("POST", "/users?include=group,computers.owner", user(group=one("group", "1"), computers=of("computer", "2"))),
    ("POST", "/users?fields[user]=", user()),
    ("POST", "/groups", document("group", {"name": "climbers"})),
    ("POST", "/persons", document("person", {"name": "n"}, id="77")),
    ("POST", "/photos", document("photo", {"name": "n", "words": {"type": 1, "relationships": None}})),
    ("PATCH", "/users/1", document("user", {"age": 1}, id="1")),
    ("PATCH", "/users/1?include=computers", document("user", id="1", relationships=linked(computers=[], group=None))),
    ("DELETE", "/users/1", None),
]

ERRORS: list[tuple[str, str, Any]] = [
    ("GET", "/nothing", None),
    ("GET", "/users/77", None),
    ("GET", "/users?include=x&sort=x&filter[x]=1&page[size]=x&fields[x]=y&unknown=1", None),
    ("GET", '/users?filter=[{"name":"agee","op":"eq","val":1}]', None),
    ("POST", "/users", document("user", {"agee": 1, "age": "x"}, id="1", relationships=linked(group=of("group", "1")))),
    ("POST", "/users", document("group", {})),
    ("POST", "/users", user(group=one("group", "77"))),
    ("POST", "/groups", document("group", {"name": "rowers"})),
    ("POST", "/groups", []),
    ("PATCH", "/users/1", document("user", id="1", relationships=linked(posts=[]))),
    ("PATCH", "/users", document("user", id="1")),
    ("DELETE", "/groups/1", None),
    ("DELETE", "/users/1?include=group", None),
]


def faults(found: Any) -> list[str]:
    return [f"{error.instance_path}: {error.message}" for error in VALIDATOR.iter_errors(found)]


@pytest.fixture
def public_api(serve: Serve, database_url: str) -> Api:
    return serve(database_url, public_url="https://example.org/api")


async def test_reads(public_api: Api) -> None:
    await create_household(public_api)
    for path in READS:
        answer = await public_api.get(path)
        assert answer.status == 200, (path, answer.body)
        assert faults(answer.document) == [], path


async def test_the_root(public_api: Api) -> None:
    """Its links name every collection, which the schema does not allow. Everything else is valid."""
    found = (await public_api.get("/")).document
    links = found["links"]
    for name in ("self", "service-desc", "service-doc", *COLLECTIONS, "operations"):
        assert faults(found | {"links": {"self": links.pop(name)}}) == []
    assert links == {}


async def test_empty_lists(public_api: Api) -> None:
    for path in COLLECTIONS:
        assert faults((await public_api.get(f"/{path}?page[size]=1")).document) == [], path


async def test_writes(public_api: Api) -> None:
    await create_household(public_api)
    for method, path, sent in WRITES:
        answer = await public_api.request(method, path, sent)
        assert answer.status in (200, 201), (path, answer.body)
        assert faults(answer.document) == [], (method, path)


async def test_errors(public_api: Api) -> None:
    await create_household(public_api)
    statuses = set()
    for method, path, sent in ERRORS:
        answer = await public_api.request(method, path, sent)
        statuses.add(answer.status)
        assert answer.status >= 400, (path, answer.body)
        assert faults(answer.document) == [], (method, path)
    assert statuses == {400, 403, 404, 405, 409, 422}


async def test_errors_of_http(public_api: Api) -> None:
    for headers, status in (
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/json", "Accept": 'application/vnd.api+json; charset="x"'}, 406),
        ({"Content-Type": "application/json"}, 400),
    ):
        answer = await public_api.request("POST", "/users", headers=headers, body="x")
        assert (answer.status, faults(answer.document)) == (status, [])


async def test_the_schema_refuses_invalid_documents(public_api: Api) -> None:
    await create_household(public_api)
    found = (await public_api.get("/users/1?include=group")).document
    broken: list[dict[str, Any]] = [
        {},
        found | {"errors": []},
        found | {"more": 1},
        found | {"links": {"self": "/users/1"}},
        found | {"meta": None},
        found | {"included": found["included"] * 2},
        {name: value for name, value in found.items() if name != "data"},
        found | {"data": {name: value for name, value in found["data"].items() if name != "type"}},
        found | {"data": found["data"] | {"id": 1}},
        found | {"data": found["data"] | {"attributes": {"a+b": 1}}},
        found | {"data": found["data"] | {"relationships": {"group": {}}}},
    ]
    assert [number for number, document in enumerate(broken) if not faults(document)] == []
