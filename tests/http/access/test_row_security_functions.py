"""Attributes that call functions, with row security: who may not EXECUTE one gets a 401 or 403, never a 500."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec import structs

from querybuild.declarations.catalog import Catalog
from tests.http.access.test_row_security import post, update
from tests.http.access.test_row_security_start import found
from tests.http.supabase import ANN, CATALOG, NOTE, POST, PROFILE, SETTINGS, TEAM, Open, Shop
from waterspout import TEXT, Attribute, Resource, Template

KINDS = {
    "PL/pgSQL": "LANGUAGE plpgsql AS 'BEGIN RETURN upper($1); END'",
    "SQL, which PostgreSQL inlines": "LANGUAGE sql IMMUTABLE AS 'SELECT upper($1)'",
}
LOUD = Attribute("loud", TEXT, sql=lambda column: Template("loud({})", column("title")))
LOUDER = Catalog([PROFILE, TEAM, structs.replace(POST, attributes=(*POST.attributes, LOUD)), NOTE])
GRANT = "GRANT EXECUTE ON FUNCTION loud TO authenticated"
CALLING = [
    ("GET", "/posts", None),
    ("GET", "/posts/1", None),
    ("GET", "/posts?page[size]=0", None),
    ("GET", "/posts?sort=loud&fields[post]=title", None),
    ("GET", "/posts?filter[loud]=X&fields[post]=title&page[total]=exact", None),
    ("GET", "/profiles?include=posts", None),
    ("GET", "/profiles?filter[posts.loud]=X", None),
    ("GET", f"/profiles/{ANN}/posts", None),
    ("POST", "/posts", post("x", ANN)),
    ("PATCH", "/posts/2", update("2", title="y")),
]


def create(kind: str) -> Sequence[str]:
    function = f"CREATE FUNCTION loud(text) RETURNS text {KINDS[kind]}"
    return function, "REVOKE EXECUTE ON FUNCTION loud FROM PUBLIC"


async def statuses(shop: Shop, sub: str | None) -> list[int]:
    answers = [await shop.request(sub, method, path, document) for method, path, document in CALLING]
    return [answer.status for answer in answers]


@pytest.mark.parametrize("kind", KINDS)
async def test_who_may_not_call_a_function(open_shop: Open, shop_url: str, kind: str) -> None:
    schema = await found(shop_url, *create(kind), catalog=LOUDER, **SETTINGS)
    assert tuple(map(str, schema.faults)) == (
        "resource “post”: it cannot be read: permission denied for function loud",
    )
    schema = await found(shop_url, "GRANT EXECUTE ON FUNCTION loud TO anon", catalog=LOUDER, **SETTINGS)
    assert (schema.faults, schema.plans_depend_on_role) == ((), "inlines" in kind)
    shop = await open_shop(catalog=LOUDER)
    assert await statuses(shop, ANN) == [403] * len(CALLING)
    assert (await statuses(shop, None))[:8] == [200] * 8
    assert (await shop.get(ANN, "/posts?fields[post]=title")).status == 200
    await found(shop_url, GRANT, "REVOKE EXECUTE ON FUNCTION loud FROM anon", **SETTINGS)
    assert await statuses(shop, None) == [401] * len(CALLING)
    assert await statuses(shop, ANN) == [200] * 8 + [201, 200]


async def test_a_plan_of_a_role_that_may_call_a_function_is_not_used_for_another(
    open_shop: Open, shop_url: str
) -> None:
    """PostgreSQL plans a statement without its values after some executions, and keeps this plan, with the function
    inlined. It does so for tables without policies."""
    [kind] = [kind for kind in KINDS if "inlines" in kind]
    await found(
        shop_url,
        "CREATE TABLE plain (id bigint PRIMARY KEY, title text NOT NULL)",
        "INSERT INTO plain VALUES (1, 'a')",
        "GRANT SELECT ON plain TO anon, authenticated",
        *create(kind),
        GRANT,
        **SETTINGS,
    )
    reads = frozenset({"list", "detail"})
    plain = Resource("plain", "/plain", "plain", (Attribute("title", TEXT, required=True), LOUD), methods=reads)
    shop = await open_shop(catalog=Catalog([plain]), pool_size=1)
    for path in ("/plain/1", "/plain?filter[loud]=A&fields[plain]=title"):
        told = [(await shop.get(sub, path)).status for sub in [ANN] * 8 + [None] + [ANN]]
        assert told == [200] * 8 + [401, 200], path


async def test_plans_are_kept_if_all_roles_may_call_the_same_functions(shop_url: str) -> None:
    schema = await found(shop_url, catalog=CATALOG, **SETTINGS)
    assert (schema.faults, schema.plans_depend_on_role) == ((), False)
