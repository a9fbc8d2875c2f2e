"""The first slice, all the way."""

from __future__ import annotations

from tests.http.conftest import Api


async def test_list_of_nothing(api: Api) -> None:
    answer = await api.get("/groups")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/vnd.api+json"
    assert answer.document == {
        "jsonapi": {"version": "1.0"},
        "data": [],
        "links": {"self": "/groups", "first": "/groups?page%5Bnumber%5D=1"},
        "meta": {"count": 0, "total": 0, "totalPages": 0},
    }


async def test_create_and_read(api: Api) -> None:
    created = await api.create("/groups", "group", {"name": "rowers"})
    answer = await api.get(f"/groups/{created}")
    assert answer.document["data"]["attributes"] == {"name": "rowers"}
