"""Idempotency-Key with row security: keys are claimed and answers are kept with the server's own role, and the write
has the role of its request."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import asyncpg
import pytest

from server.execution.writes.keys import NOT_KEPT
from tests.http.access.test_row_security import ATOMIC, post, update
from tests.http.access.test_row_security_leaks import locked, until_waiting
from tests.http.conftest import create_server_tables
from tests.http.supabase import ANN, BOB, Open, Shop
from tests.http.writes.test_keyed_writes import code_of, replayed, shown

KEY = {"Idempotency-Key": "k"}
GRANTS = """
    GRANT USAGE ON SCHEMA waterspout TO authenticator;
    GRANT SELECT ON waterspout.migrations TO authenticator;
    GRANT SELECT, INSERT, UPDATE, DELETE ON waterspout.idempotency_keys TO authenticator;
    CREATE TABLE seen (who text);
    GRANT INSERT ON seen TO PUBLIC;
    CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN INSERT INTO seen VALUES (current_user || ' ' || auth.uid()); RETURN NULL; END $$;
    CREATE CONSTRAINT TRIGGER tell AFTER INSERT OR UPDATE OR DELETE ON posts DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION tell();
"""


@pytest.fixture
def open_keyed(open_shop: Open, shop_url: str) -> Open:
    async def opened(**settings: Any) -> Shop:
        await create_server_tables(shop_url)
        owner = await asyncpg.connect(shop_url)
        await owner.execute(GRANTS)
        await owner.close()
        return await open_shop(idempotency="on", **settings)

    return opened


@pytest.mark.parametrize("settings", [{}, {"pool_size": 1}])
async def test_writes(open_keyed: Open, settings: dict[str, Any]) -> None:
    shop = await open_keyed(**settings)
    operations = {"atomic:operations": [{"op": "add", **post(f"of {n}", ANN)} for n in range(12)]}
    for number, (method, path, body, headers) in enumerate(
        [
            ("POST", "/posts", post("new", ANN), {}),
            ("PATCH", "/posts/1", update("1", title="changed"), {}),
            ("POST", "/operations", operations, {"Content-Type": ATOMIC}),
            ("DELETE", "/posts/1", None, {}),
        ]
    ):
        asked = {"Idempotency-Key": f"k{number}"} | headers
        first = await shop.request(ANN, method, path, body, **asked)
        assert (first.status, replayed(first)) in ((200, "false"), (201, "false")), first.body
        again = await shop.request(ANN, method, path, body, **asked)
        assert (shown(again), replayed(again)) == (shown(first), "true")
    owner = await asyncpg.connect(shop.database_url)
    assert {row[0] for row in await owner.fetch("SELECT who FROM seen")} == {f"authenticated {ANN}"}
    kept = await owner.fetch("SELECT subject, address FROM waterspout.idempotency_keys")
    assert [tuple(row) for row in kept] == [(ANN, "")] * 4
    await owner.close()


KEEPERS = """
    GRANT USAGE ON SCHEMA waterspout TO PUBLIC;
    GRANT ALL ON waterspout.idempotency_keys TO PUBLIC;
    CREATE TABLE keepers (who text);
    GRANT INSERT ON keepers TO PUBLIC;
    CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN INSERT INTO keepers VALUES (current_user); RETURN NEW; END $$;
    CREATE TRIGGER keep BEFORE INSERT ON waterspout.idempotency_keys FOR EACH ROW EXECUTE FUNCTION keep();
"""


async def test_the_server_keeps_the_answer(open_keyed: Open) -> None:
    """The write has another role, even if that could keep the answer too."""
    shop = await open_keyed()
    owner = await asyncpg.connect(shop.database_url)
    await owner.execute(KEEPERS)
    assert (await shop.request(ANN, "DELETE", "/posts/1", None, **KEY)).status == 200
    assert await owner.fetchval("SELECT array_agg(who) FROM keepers") == ["authenticator"]
    await owner.close()


async def test_what_policies_refuse_is_not_kept(open_keyed: Open) -> None:
    shop = await open_keyed()
    refused = await shop.request(BOB, "POST", "/posts", post("as Ann", ANN), **KEY)
    assert (refused.status, replayed(refused)) == (403, None)
    done = await shop.request(BOB, "POST", "/posts", post("as Bob", BOB), **KEY)
    assert (done.status, replayed(done)) == (201, "false")
    assert code_of(await shop.request(BOB, "POST", "/posts", post("as Ann", ANN), **KEY)) == (
        422,
        "idempotency_mismatch",
    )


async def test_while_the_first_one_is_at_work(open_keyed: Open) -> None:
    shop = await open_keyed()
    async with locked(shop) as owner:
        first = asyncio.ensure_future(shop.request(ANN, "PATCH", "/posts/1", update("1", title="x"), **KEY))
        await until_waiting(owner)
        again = await shop.request(ANN, "PATCH", "/posts/1", update("1", title="x"), **KEY)
        assert code_of(again) == (409, "idempotency_in_progress")
    assert (await first).status == 200
    assert replayed(await shop.request(ANN, "PATCH", "/posts/1", update("1", title="x"), **KEY)) == "true"


@pytest.mark.parametrize(
    ("claims", "is_kept"),
    [({}, True), ({"exp": 9, "iat": 8, "jti": "x"}, True), ({"team": "b"}, False), ({"role": "editor"}, False)],
)
async def test_claims_that_have_changed(open_keyed: Open, claims: dict[str, Any], is_kept: bool) -> None:
    shop = await open_keyed()
    own = {"sub": ANN, "role": "authenticated", "exp": 1, "iat": 1, "team": "a"}
    first = await shop.request(None, "POST", "/posts", post("t", ANN), **KEY | {"X-Claims": json.dumps(own)})
    assert first.status == 201
    sent = KEY | {"X-Claims": json.dumps(own | claims)}
    again = await shop.request(None, "POST", "/posts", post("t", ANN), **sent)
    assert (again.status, again.body) == (201, first.body if is_kept else NOT_KEPT)


async def test_roles_cannot_read_kept_answers(open_keyed: Open) -> None:
    shop = await open_keyed()
    owner = await asyncpg.connect(shop.database_url)
    for role in ("anon", "authenticated", "editor"):
        async with owner.transaction():
            await owner.execute(f"SET LOCAL ROLE {role}")
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                async with owner.transaction():
                    await owner.execute("SELECT FROM waterspout.idempotency_keys")
    await owner.close()
