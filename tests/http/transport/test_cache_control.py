"""The header Cache-Control: resources have the value of the setting, errors and health have no-store, writes have
none."""

from __future__ import annotations

import pytest

from server.resources import built_in
from tests.http.conftest import Api, Serve, Start
from tests.http.streams import small_batches
from waterspout import CustomHandler

__all__ = ["small_batches"]

RESOURCES = ["/", "/users", "/users/1", "/users/1/computers", "/users/1/bio", "/users/1/relationships/computers"]
ERRORS = [
    ("GET", "/nothing", 404),
    ("GET", "/users/99", 404),
    ("GET", "/users?sort=x", 400),
    ("PUT", "/users", 405),
    ("PATCH", "/users/1", 422),
]
PUBLIC = "public, max-age=60"


class Report(CustomHandler):
    async def get(self, kind: str) -> None:
        if kind == "own":
            self.set_header("Cache-Control", "private")
        self.finish_document(b"{}")


@pytest.fixture
def public(serve: Serve, rows_url: str) -> Api:
    return serve(rows_url, cache_control=PUBLIC)


@pytest.fixture
def silent(serve: Serve, rows_url: str) -> Api:
    return serve(rows_url, cache_control="")


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("path", RESOURCES)
async def test_resources(reader: Api, public: Api, silent: Api, method: str, path: str) -> None:
    answers = [await api.request(method, path) for api in (reader, public, silent)]
    assert [answer.status for answer in answers] == [200] * 3
    assert [answer.headers.get_list("Cache-Control") for answer in answers] == [["no-cache"], [PUBLIC], []]


@pytest.mark.parametrize(("method", "path", "status"), ERRORS)
async def test_errors(reader: Api, public: Api, silent: Api, method: str, path: str, status: int) -> None:
    document = {} if method == "PATCH" else None
    answers = [await api.request(method, path, document) for api in (reader, public, silent)]
    assert [answer.status for answer in answers] == [status] * 3
    assert [answer.headers.get_list("Cache-Control") for answer in answers] == [["no-store"], ["no-store"], []]


@pytest.mark.parametrize("path", ["/-/live", "/-/ready", "/-/metrics"])
async def test_health_is_never_cached(public: Api, silent: Api, path: str) -> None:
    for api in (public, silent):
        assert (await api.get(path)).headers.get_list("Cache-Control") == ["no-store"]


async def test_a_stream(public: Api, small_batches: None) -> None:
    answer = await public.get("/users?page[size]=0")
    assert answer.headers["Transfer-Encoding"] == "chunked"
    assert answer.headers.get_list("Cache-Control") == [PUBLIC]


async def test_writes(start: Start, database_url: str) -> None:
    api = await start(database_url, built_in(), cache_control=PUBLIC)
    group = {"type": "group", "attributes": {"name": "new"}}
    created = await api.post("/groups", {"data": group})
    path = created.headers["Location"]
    updated = await api.patch(path, {"data": group | {"id": path.rpartition("/")[2]}})
    linked = await api.patch(f"{path}/relationships/users", {"data": []})
    deleted = await api.delete(path)
    answers = [created, updated, linked, deleted, await api.request("OPTIONS", "/groups")]
    assert [answer.status for answer in answers] == [201, 200, 200, 200, 204]
    assert [answer.headers.get_list("Cache-Control") for answer in answers] == [[]] * 5


async def test_custom_code_sets_its_own_header(start: Start, rows_url: str) -> None:
    api = await start(rows_url, built_in(), [("/report/(.*)", Report)], cache_control=PUBLIC)
    assert (await api.get("/report/own")).headers.get_list("Cache-Control") == ["private"]
    assert (await api.get("/report/none")).headers.get_list("Cache-Control") == []
