"""Row security with bearer tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.http.conftest import Answer, Api, Start
from tests.http.supabase import ANN, CATALOG, POST, POSTS, SETTINGS, as_authenticator
from tests.issuer import AUDIENCE, claims, signed
from waterspout import ANYONE, Allow, Catalog

SECRET = b"a secret of at least thirty-two bytes, which nobody knows"
OPEN = (Allow(ANYONE, "all"),)


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "secret"
    path.write_bytes(SECRET)
    return SETTINGS | {"auth_secret_file": path, "auth_audience": AUDIENCE}


async def get(api: Api, path: str, **changed: Any) -> Answer:
    """Send a request with a token. changed: its claims."""
    return await api.get(path, Authorization=f"Bearer {signed(claims(**changed), SECRET, 'HS256')}")


async def test_the_claims_of_a_token(start: Start, shop_url: str, settings: dict[str, Any]) -> None:
    catalog = Catalog([replace(one, access=OPEN) for one in CATALOG])
    api = await start(as_authenticator(shop_url), catalog, **settings)
    for _ in range(2):
        for sub in (ANN, None):
            answer = await (
                api.get("/posts?sort=id") if sub is None else get(api, "/posts?sort=id", sub=sub, role="authenticated")
            )
            assert answer.ids == POSTS[sub]
        assert (await get(api, "/posts?sort=id", sub=ANN, role="anon")).ids == POSTS[None]
        assert (await get(api, "/posts?sort=id", sub=ANN)).ids == POSTS[None]
        answer = await get(api, "/posts", sub=ANN, role="postgres")
        assert (answer.status, [one["code"] for one in answer.errors]) == (403, ["forbidden"])


async def test_rules_and_policies_hold_both(start: Start, shop_url: str, settings: dict[str, Any]) -> None:
    """The rule allows published posts and posts with this title; the policies, Ann's own, her team's and published."""
    published = Allow(ANYONE, "read", rows={"name": "published", "op": "eq", "val": True})
    own = Allow(ANYONE, "read", rows={"name": "title", "op": "in_", "val": ["draft of Ann", "draft of Bob"]})
    closed = [replace(one, access=(published, own) if one is POST else OPEN) for one in CATALOG]
    api = await start(as_authenticator(shop_url), Catalog(closed), **settings)
    for _ in range(2):
        answer = await get(api, "/posts?sort=id&page[total]=estimated", sub=ANN, role="authenticated")
        assert (answer.ids, answer.document["meta"]["total"]) == (["1", "2", "5"], 3)
        assert (await get(api, "/posts/3", sub=ANN, role="authenticated")).status == 404
        assert (await api.get("/posts?sort=id")).ids == ["1", "5"]


async def test_a_resource_without_rules_is_closed(start: Start, shop_url: str, settings: dict[str, Any]) -> None:
    """Policies do not replace them."""
    api = await start(as_authenticator(shop_url), CATALOG, **settings)
    assert (await get(api, "/posts", sub=ANN, role="authenticated")).status == 403
    assert (await api.get("/posts")).status == 401


async def test_without_authentication_everybody_is_anonymous(start: Start, shop_url: str) -> None:
    api = await start(as_authenticator(shop_url), CATALOG, **SETTINGS)
    assert (await api.get("/posts?sort=id")).ids == POSTS[None]
    assert (await get(api, "/posts?sort=id", sub=ANN, role="authenticated")).ids == POSTS[None]
    api = await start(as_authenticator(shop_url), CATALOG, **(SETTINGS | {"auth_anonymous_role": None}))
    assert (await api.get("/posts")).status == 401
