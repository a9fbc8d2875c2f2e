"""Row security of PostgreSQL: requests run with the role and the claims of their principal."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.supabase import ANN, BOB, CYD, POSTS, Open, Shop

READERS = [None, ANN, BOB, CYD]


def post(title: str, author: str | None = None, **attributes: Any) -> dict[str, Any]:
    data: dict[str, Any] = {"type": "post", "attributes": {"title": title} | attributes}
    if author is not None:
        data["relationships"] = {"author": {"data": {"type": "profile", "id": author}}}
    return {"data": data}


def update(post_id: str, **attributes: Any) -> dict[str, Any]:
    return {"data": {"type": "post", "id": post_id, "attributes": attributes}}


@pytest.mark.parametrize("sub", READERS)
async def test_each_principal_reads_its_rows(shop: Shop, sub: str | None) -> None:
    for _ in range(2):
        answer = await shop.get(sub, "/posts?sort=id")
        assert (answer.status, answer.ids) == (200, POSTS[sub]), answer.body
        assert answer.document["meta"]["total"] == len(POSTS[sub])
    for number in ("1", "2", "3", "4", "5"):
        status = 200 if number in POSTS[sub] else 404
        assert (await shop.get(sub, f"/posts/{number}")).status == status


async def test_principals_alternate_on_one_connection(open_shop: Open) -> None:
    shop = await open_shop(pool_size=1)
    for _ in range(8):
        for sub in READERS:
            assert (await shop.get(sub, "/posts?sort=id")).ids == POSTS[sub]
            assert (await shop.get(sub, "/posts?sort=id&include=author,team")).ids == POSTS[sub]
        assert (await shop.get(CYD, "/posts?sort=id", **{"X-Role": "editor"})).ids == ["1", "2", "3", "4", "5"]


async def test_writes(shop: Shop) -> None:
    created = await shop.request(ANN, "POST", "/posts", post("new of Ann", ANN))
    assert created.status == 201, created.body
    new = created.document["data"]["id"]
    assert (await shop.request(ANN, "PATCH", f"/posts/{new}", update(new, title="newer"))).status == 200
    assert (await shop.request(BOB, "PATCH", f"/posts/{new}", update(new, title="taken"))).status == 404
    assert (await shop.request(BOB, "DELETE", f"/posts/{new}")).status == 404
    assert (await shop.request(ANN, "DELETE", f"/posts/{new}")).status == 200
