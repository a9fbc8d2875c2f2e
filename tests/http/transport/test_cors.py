"""CORS: the answers to preflight requests, and the headers of each answer, including errors."""

from __future__ import annotations

from typing import Any

import pytest

from server.execution import streams
from server.resources import built_in
from tests.http.conftest import MEDIA_TYPE, Answer, Api, Serve, Start
from tests.http.streams import small_batches
from tests.http.wire import connected
from waterspout import CustomHandler

__all__ = ["small_batches"]

PAGE = "https://app.example.org"
OTHER = "https://other.example.org"
EXPOSED = (
    "Location, ETag, Preference-Applied, Idempotent-Replayed, X-Request-Id, Retry-After, Server-Timing, "
    "WWW-Authenticate"
)
METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE, QUERY"
NAMES = {"Vary", "Access-Control-Allow-Origin", "Access-Control-Expose-Headers", "Access-Control-Allow-Methods"}
NAMES |= {"Access-Control-Allow-Headers", "Access-Control-Max-Age", "Access-Control-Allow-Credentials"}
READABLE = {
    "Vary": "Accept, Origin",
    "Access-Control-Allow-Origin": PAGE,
    "Access-Control-Expose-Headers": EXPOSED,
}


def cors_headers(answer: Answer) -> dict[str, str]:
    return {name: value for name, value in answer.headers.get_all() if name in NAMES}


class Report(CustomHandler):
    async def get(self) -> None:
        self.set_header("Content-Type", "text/csv")
        self.finish("a,b")

    async def put(self) -> None:
        raise KeyError("secret")


@pytest.fixture
def shared(serve: Serve, rows_url: str) -> Api:
    return serve(rows_url, cors_origins=f"{PAGE},http://localhost:3000", max_url_bytes=256, max_body_bytes=100)


async def preflight(api: Api, path: str, origin: str = PAGE, **headers: str) -> Answer:
    asked = {"Origin": origin, "Access-Control-Request-Method": "PATCH"} | headers
    return await api.request("OPTIONS", path, headers=asked)


@pytest.mark.parametrize(
    "path",
    ["/users", "/users/1", "/users/1/relationships/group", "/operations", "/", "/-/live", "/nothing", "//", "/%FF"],
)
async def test_a_preflight(shared: Api, path: str) -> None:
    """It is the same for every path, so that a page can read the 404 or 405 that follows."""
    answer = await preflight(shared, path, **{"Access-Control-Request-Headers": "content-type,x-request-id"})
    assert (answer.status, answer.body) == (204, b"")
    assert cors_headers(answer) == {
        **READABLE,
        "Access-Control-Allow-Methods": METHODS,
        "Access-Control-Allow-Headers": "content-type,x-request-id",
        "Access-Control-Max-Age": "7200",
    }
    assert "Content-Type" not in answer.headers
    assert "Content-Length" not in answer.headers


async def test_a_preflight_of_a_long_url(shared: Api) -> None:
    path = f"/users?filter={'x' * 300}"
    assert (await preflight(shared, path)).status == 204
    answer = await shared.get(path, Origin=PAGE)
    assert (answer.status, cors_headers(answer)) == (414, READABLE)


async def test_a_preflight_keeps_the_connection(shared: Api) -> None:
    async with connected(shared.port) as wire:
        for _ in range(2):
            await wire.send("OPTIONS /users HTTP/1.1", f"Origin: {PAGE}", "Access-Control-Request-Method: POST")
            assert (await wire.answer(has_body=False)).status == 204


@pytest.mark.parametrize("origin", [OTHER, "null", f"{PAGE}:444", f"{PAGE}.evil.org", PAGE.upper()])
async def test_an_origin_that_is_not_allowed_gets_no_headers(shared: Api, origin: str) -> None:
    answer = await preflight(shared, "/users", origin)
    assert (answer.status, cors_headers(answer)) == (204, {"Vary": "Accept, Origin"})
    assert answer.headers["Allow"] == "GET, POST, HEAD, QUERY, OPTIONS"
    assert (await preflight(shared, "/nothing", origin)).status == 404
    answer = await shared.get("/users/1", Origin=origin)
    assert (answer.status, cors_headers(answer)) == (200, {"Vary": "Accept, Origin"})


async def test_options_requests_that_are_not_a_preflight(shared: Api) -> None:
    answer = await shared.request("OPTIONS", "/users", headers={"Origin": PAGE})
    assert (answer.status, answer.headers["Allow"]) == (204, "GET, POST, HEAD, QUERY, OPTIONS")
    assert cors_headers(answer) == READABLE
    answer = await shared.request("OPTIONS", "/users", headers={"Access-Control-Request-Method": "GET"})
    assert cors_headers(answer) == {"Vary": "Accept, Origin"}
    answer = await shared.get("/users/1", **{"Origin": PAGE, "Access-Control-Request-Method": "GET"})
    assert (answer.status, cors_headers(answer)) == (200, READABLE)


BODY = {"Content-Type": MEDIA_TYPE, "Origin": PAGE}


@pytest.mark.parametrize(
    ("method", "path", "headers", "body", "status"),
    [
        ("GET", "/users", {}, None, 200),
        ("HEAD", "/users/1", {}, None, 200),
        ("GET", "/-/live", {}, None, 200),
        ("GET", "/nothing", {}, None, 404),
        ("GET", "/users/99", {}, None, 404),
        ("GET", "/users?sort=x", {}, None, 400),
        ("PUT", "/users", {}, None, 405),
        ("GET", "/users", {"Accept": f"{MEDIA_TYPE};charset=utf-8"}, None, 406),
        ("POST", "/groups", {"Content-Type": "text/html"}, "x", 415),
        ("POST", "/groups", BODY, "x" * 101, 413),
        ("POST", "/groups", BODY, "{", 400),
        ("POST", "/groups", BODY, "{}", 422),
        ("PATCH", "/groups/1", BODY | {"If-Match": "x"}, "{}", 400),
        ("GET", "/users", {"X-Long": "x" * 66_000}, None, 431),
    ],
)
async def test_a_page_can_read_every_answer(
    shared: Api, method: str, path: str, headers: dict[str, str], body: Any, status: int
) -> None:
    answer = await shared.request(method, path, headers={"Origin": PAGE} | headers, body=body)
    assert (answer.status, cors_headers(answer)) == (status, READABLE)


async def test_writes(start: Start, database_url: str) -> None:
    api = await start(database_url, built_in(), cors_origins=PAGE)
    group = {"data": {"type": "group", "attributes": {"name": "new"}}}
    answer = await api.request("POST", "/groups", group, headers={"Origin": PAGE})
    assert (answer.status, cors_headers(answer)) == (201, READABLE)
    answer = await api.request("DELETE", answer.headers["Location"], headers={"Origin": PAGE})
    assert (answer.status, cors_headers(answer)) == (200, READABLE)


@pytest.mark.parametrize("origin", [PAGE, OTHER, "null"])
async def test_all_origins(start: Start, rows_url: str, origin: str) -> None:
    api = await start(rows_url, built_in(), cors_origins="*")
    answer = await api.get("/users/1", Origin=origin)
    assert cors_headers(answer) == READABLE | {"Access-Control-Allow-Origin": "*"}
    answer = await preflight(api, "/nothing", origin)
    assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (204, "*")
    assert cors_headers(await api.get("/users/1")) == {"Vary": "Accept, Origin"}


async def test_custom_code(start: Start, rows_url: str) -> None:
    api = await start(rows_url, built_in(), [("/report", Report)], cors_origins=PAGE)
    answer = await api.get("/report", Origin=PAGE)
    assert (answer.status, answer.body, cors_headers(answer)) == (200, b"a,b", READABLE)
    answer = await api.request("PUT", "/report", headers={"Origin": PAGE})
    assert (answer.status, cors_headers(answer)) == (500, READABLE)


async def test_a_stream(shared: Api, small_batches: None) -> None:
    assert streams.BATCH_ROWS == 2
    answer = await shared.get("/users?page[size]=0", Origin=PAGE)
    assert answer.headers["Transfer-Encoding"] == "chunked"
    assert (answer.status, cors_headers(answer)) == (200, READABLE)


@pytest.mark.parametrize("path", ["/users/1", "/nothing"])
async def test_without_the_setting_there_are_no_cors_headers(reader: Api, path: str) -> None:
    assert cors_headers(await reader.get(path, Origin=PAGE)) == {"Vary": "Accept"}
    answer = await preflight(reader, path)
    assert cors_headers(answer) == {"Vary": "Accept"}
