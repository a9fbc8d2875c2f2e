"""A representation that a test adds, for lists: `tests/csv_encoder.py`, and its name in the route table."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

import msgspec
import pytest

from server import routes
from server.http.negotiation import JSON_API
from tests.csv_encoder import CSV
from tests.http.conftest import Answer, Api
from tests.http.streams import create_many, small_batches

__all__ = ["small_batches"]

LISTS = (routes.Shape.COLLECTION, routes.Shape.RELATED)
USERS = 30
FIELDS = "fields[user]=first_name,age,group"


@pytest.fixture
def csv_lists(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lists are answered as CSV where the client prefers it."""
    for shape in LISTS:
        methods = [
            msgspec.structs.replace(one, answers=(JSON_API, CSV)) if one.accepts == routes.ON_MANY else one
            for one in routes.TABLE[shape]
        ]
        monkeypatch.setitem(routes.TABLE, shape, tuple(methods))
    routes.methods_of.cache_clear()
    yield
    routes.methods_of.cache_clear()


async def ask(api: Api, path: str, accept: str = "text/csv", **headers: str) -> Answer:
    return await api.request("GET", path, headers={"Accept": accept, **headers})


def lines(answer: Answer) -> list[list[str]]:
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/csv"), answer.body
    return list(csv.reader(io.StringIO(answer.body.decode())))


async def expected(api: Api, path: str, *, has_group: bool) -> list[list[str]]:
    """Return the lines of what the same list shows as JSON:API."""
    shown = (await api.get(path)).document["data"]
    groups = [[one["relationships"]["group"]["data"]["id"]] if has_group else [] for one in shown]
    rows = [
        [one["id"], *map(str, one["attributes"].values()), *group] for one, group in zip(shown, groups, strict=True)
    ]
    return [["id", "first_name", "age", *(["group"] if has_group else [])], *rows]


@pytest.mark.parametrize("path", ["/users?page[size]=7&sort=-age", "/users?page[size]=0&sort=-id", "/groups/3/users?"])
@pytest.mark.parametrize("include", ["", "group", "group,computers.owner"])
async def test_a_list(api: Api, csv_lists: None, path: str, include: str) -> None:
    """It is the same as a page and as a whole list without pages. Included resources are left out."""
    await create_many(api, USERS, 2 * USERS)
    path += f"&{FIELDS}" + (f"&include={include}" if include else "")
    assert lines(await ask(api, path)) == await expected(api, path, has_group="group" in include)


async def test_a_stream(api: Api, csv_lists: None, small_batches: None) -> None:
    await create_many(api, USERS, 2 * USERS)
    path = f"/users?page[size]=0&{FIELDS}&include=group,computers"
    answer = await ask(api, path)
    assert "Content-Length" not in answer.headers
    assert lines(answer) == await expected(api, path, has_group=True)


async def test_a_long_page(api: Api, csv_lists: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is encoded in steps."""
    await create_many(api, 6000)
    path = f"/users?page[size]=6000&{FIELDS}"
    found = lines(await ask(api, path))
    assert len(found) == 6001
    assert found == await expected(api, path, has_group=False)


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        ("text/csv", "text/csv"),
        ("text/*", "text/csv"),
        ("application/vnd.api+json, text/csv", JSON_API.name),
        ("application/vnd.api+json;q=0.5, text/csv", "text/csv"),
        ("text/csv;q=0.5, */*", JSON_API.name),
        ("text/csv;q=0", JSON_API.name),
        ("text/csv;q=2", JSON_API.name),
        ("text/html", JSON_API.name),
        ("*/*", JSON_API.name),
    ],
)
async def test_what_accept_prefers(api: Api, csv_lists: None, accept: str, media_type: str) -> None:
    assert (await ask(api, "/users", accept)).headers["Content-Type"] == media_type


@pytest.mark.parametrize("path", ["/users/1", "/users/1/group", "/users/1/relationships/computers", "/users?sort=a"])
async def test_where_there_is_no_other_representation(api: Api, csv_lists: None, path: str) -> None:
    """Also for errors."""
    assert (await ask(api, path)).headers["Content-Type"] == JSON_API.name


async def test_it_is_described(api: Api, csv_lists: None) -> None:
    document = (await api.get("/-/openapi.json")).document
    for path, names in (("/users", 2), ("/groups/{id}/users", 2), ("/users/{id}", 1), ("/users/{id}/group", 1)):
        [_, name] = document["paths"][path]["get"]["responses"]["200"]["$ref"].split("/responses/")
        content = document["components"]["responses"][name]["content"]
        assert [*content] == [JSON_API.name, "text/csv"][:names]
