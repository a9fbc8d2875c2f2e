"""All paths below a prefix: which routes answer, where links lead, and what a proxy in front may do."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from server.resources import built_in
from tests.http.conftest import Answer, Api, Serve, Start
from tests.http.operating import add
from tests.http.streams import small_batches
from tests.http.wire import connected
from waterspout import CustomHandler

__all__ = ["small_batches"]

PREFIX = "/api/v1"
ROUTES = [
    "/",
    "/-/live",
    "/-/ready",
    "/-/metrics",
    "/users",
    "/users?page[size]=2&page[number]=2&include=computers,group",
    "/users?page[after]=&page[size]=2",
    "/users/1",
    "/users/1/computers",
    "/users/1/group",
    "/users/1/relationships/computers",
    "/users/1/relationships/group",
]


class Report(CustomHandler):
    async def get(self, name: str) -> None:
        self.finish({"name": name, "path": self.request.path})


@pytest.fixture
def prefixed(serve: Serve, rows_url: str) -> Api:
    return serve(rows_url, path_prefix=PREFIX)


def links(document: Any) -> list[str]:
    """Return all links of a document."""
    if isinstance(document, list):
        return [link for one in document for link in links(one)]
    if not isinstance(document, dict):
        return []
    own = list(document.get("links", {}).values())
    return own + [link for name, value in document.items() if name != "links" for link in links(value)]


def without(base: str, answer: Answer) -> Any:
    """Return the document without this prefix in its links. Fails if a link does not have it."""
    found = links(answer.document)
    assert all(link.startswith(f"{base}/") for link in found), found
    return json.loads(re.sub(rf'":"{re.escape(base)}/', '":"/', answer.body.decode()))


@pytest.mark.parametrize("path", ROUTES)
async def test_routes_and_links(prefixed: Api, reader: Api, path: str) -> None:
    answer, plain = await prefixed.get(PREFIX + path), await reader.get(path)
    assert (answer.status, plain.status) == (200, 200)
    assert (await prefixed.get(path)).status == 404
    if path != "/-/metrics":
        assert without(PREFIX, answer) == plain.document


@pytest.mark.parametrize("path", [PREFIX, f"{PREFIX}/", f"http://localhost{PREFIX}", f"http://localhost{PREFIX}/"])
async def test_the_root(prefixed: Api, path: str) -> None:
    async with connected(prefixed.port) as wire:
        await wire.send(f"GET {path} HTTP/1.1")
        found = (await wire.answer()).document["links"]
    assert found["self"] == f"{PREFIX}/"
    assert found["operations"] == f"{PREFIX}/operations"
    assert found["users"] == f"{PREFIX}/users"


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/",
            "/users",
            "/api",
            "/api/",
            "/api/v1x/users",
            "/api/v1users",
            "/api/v12",
            "/api//v1/users",
            "/API/v1/users",
        ),
        *(
            "/api/v1//",
            "/api/v1//users",
            "//api/v1/users",
            "/api/v1/api/v1/users",
            "/x/api/v1/users",
        ),
        *("/-/live", "/operations", "/api/v1/nothing", "/api/v1/users/99", "/api/v1/../v1/users"),
    ],
)
async def test_paths_outside_of_the_prefix_are_not_found(prefixed: Api, path: str) -> None:
    async with connected(prefixed.port) as wire:
        await wire.send(f"GET {path} HTTP/1.1")
        answer = await wire.answer()
    assert (answer.status, [error["status"] for error in answer.errors]) == (404, ["404"])


async def test_a_path_without_the_prefix(prefixed: Api) -> None:
    """The error suggests the path with it."""
    paths = ("/users", f"{PREFIX}/user", "/api/v2/users", "/nothing/of/it")
    told = [(await prefixed.get(path)).errors[0]["detail"].partition(". ")[2] for path in paths]
    meant = f"Did you mean “{PREFIX}/users”?"
    assert told == [meant, meant, meant, ""]


async def test_the_absolute_form(prefixed: Api) -> None:
    async with connected(prefixed.port) as wire:
        await wire.send(f"GET http://localhost{PREFIX}/groups/1 HTTP/1.1")
        answer = await wire.answer()
    assert (answer.status, answer.document["links"]) == (200, {"self": f"{PREFIX}/groups/1"})


async def test_another_spelling_of_the_prefix(prefixed: Api) -> None:
    answer = await prefixed.get("/%61pi/v%31/groups/1/")
    assert (answer.status, answer.document["links"]) == (200, {"self": f"{PREFIX}/groups/1"})


async def test_every_link_leads_somewhere(prefixed: Api) -> None:
    answer = await prefixed.get(f"{PREFIX}/users?page[size]=2&page[number]=2&include=computers,group")
    root = await prefixed.get(PREFIX)
    found = set(links(answer.document)) | set(links(root.document)) - {f"{PREFIX}/operations"}
    assert len(found) > 20
    for link in found:
        assert (await prefixed.get(link)).status == 200, link


async def test_writes(start: Start, database_url: str) -> None:
    api = await start(database_url, built_in(), path_prefix=PREFIX)
    answer = await api.post(f"{PREFIX}/groups", {"data": {"type": "group", "attributes": {"name": "a"}}})
    location = answer.headers["Location"]
    assert (answer.status, location) == (201, f"{PREFIX}/groups/{answer.document['data']['id']}")
    assert links(answer.document)[:1] == [location]
    without(PREFIX, answer)
    answer = await api.patch(location, {"data": {"type": "group", "id": location.rpartition("/")[2]}})
    assert answer.document["links"] == {"self": location}
    answer = await api.request("POST", "/operations", {"atomic:operations": []})
    assert answer.status == 404
    answer = await api.request("OPTIONS", f"{PREFIX}/operations")
    assert (answer.status, answer.headers["Allow"]) == (204, "POST, OPTIONS")
    assert (await api.delete(location)).status == 200


async def test_operations(start: Start, database_url: str) -> None:
    api = await start(database_url, built_in(), path_prefix=PREFIX, operations_path="/all")
    body = json.dumps({"atomic:operations": [add("group", {"name": "a"})]})
    answer = await api.request("POST", f"{PREFIX}/all", headers={"Content-Type": "application/json"}, body=body)
    assert answer.status == 200
    assert (await api.get(PREFIX)).document["links"]["operations"] == f"{PREFIX}/all"


@pytest.fixture
def unprefixed(serve: Serve, rows_url: str) -> Api:
    return serve(rows_url)


async def test_a_stream(prefixed: Api, unprefixed: Api, small_batches: None) -> None:
    path = "/users?page[size]=0&include=computers"
    answer, plain = await prefixed.get(PREFIX + path), await unprefixed.get(path)
    assert answer.headers["Transfer-Encoding"] == "chunked"
    assert without(PREFIX, answer) == plain.document


async def test_custom_routes(start: Start, rows_url: str) -> None:
    api = await start(rows_url, built_in(), [("/report/(.*)", Report)], path_prefix=PREFIX)
    answer = await api.get(f"{PREFIX}/report/a%20b")
    assert (answer.status, answer.document) == (200, {"name": "a b", "path": f"{PREFIX}/report/a%20b"})
    assert (await api.get("/report/a")).status == 404


async def test_cross_origin_requests(start: Start, rows_url: str) -> None:
    api = await start(rows_url, built_in(), path_prefix=PREFIX, cors_origins="*")
    asked = {"Origin": "https://a", "Access-Control-Request-Method": "GET"}
    for path in ("/users", f"{PREFIX}/users"):
        assert (await api.request("OPTIONS", path, headers=asked)).status == 204


# behind a proxy


@pytest.mark.parametrize(
    ("settings", "path", "base"),
    [
        # The proxy forwards the path unchanged.
        ({"path_prefix": "/api"}, "/api/users/1", "/api"),
        ({"path_prefix": "/api", "public_url": "https://example.org/api"}, "/api/users/1", "https://example.org/api"),
        # The proxy removes the prefix.
        ({"public_url": "https://example.org/api"}, "/users/1", "https://example.org/api"),
        ({"public_url": "/api"}, "/users/1", "/api"),
        # The proxy has another prefix.
        ({"path_prefix": "/v1", "public_url": "https://example.org/api"}, "/v1/users/1", "https://example.org/api"),
        ({"path_prefix": "/v1", "public_url": "https://api.example.org"}, "/v1/users/1", "https://api.example.org"),
    ],
)
async def test_links_are_as_clients_see_them(
    start: Start, rows_url: str, reader: Api, settings: dict[str, str], path: str, base: str
) -> None:
    api = await start(rows_url, built_in(), **settings)
    answer, plain = await api.get(f"{path}?include=group"), await reader.get("/users/1?include=group")
    assert (answer.status, without(base, answer)) == (200, plain.document)
