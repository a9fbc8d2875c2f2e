"""Nothing of the role and the claims of one request is seen by the next, on the same connection."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg
import pytest
from msgspec import structs

from querybuild.principal import Principal
from server.errors import SchemaChanged
from tests.first_rows import set_first_rows
from tests.http.access.test_row_security import post, update
from tests.http.supabase import ANN, BOB, CATALOG, CYD, POST, POSTS, Open, Shop
from tests.http.wire import connected
from tests.waiting import until
from waterspout import Catalog, Change, CustomHandler, Hooks, Writing

WAITING = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
STATE = "SELECT current_user, session_user, current_setting('request.jwt.claims', true)"
LEFT = ("authenticator", "authenticator", "")


@asynccontextmanager
async def locked(shop: Shop) -> AsyncIterator[asyncpg.Connection[Any]]:
    """Lock the posts, so that every statement of a request waits. Yield another connection of the owner."""
    holder, owner = [await asyncpg.connect(shop.database_url) for _ in range(2)]
    try:
        await holder.execute("BEGIN; LOCK TABLE posts IN ACCESS EXCLUSIVE MODE")
        yield owner
    finally:
        await holder.close()
        await owner.close()


async def until_waiting(owner: asyncpg.Connection[Any]) -> int:
    """Return the backend of a statement that waits for a lock."""
    pid: int = await until(lambda: owner.fetchval(WAITING))
    return pid


async def end(owner: asyncpg.Connection[Any], asked: asyncio.Task[Any]) -> bool:
    """Terminate the backends that wait. Return whether the request is answered."""
    await owner.execute(f"SELECT pg_terminate_backend(pid) FROM ({WAITING}) found")
    return asked.done()


async def check_nothing_left(shop: Shop) -> None:
    """Check that the next statements have their own role, or that of the server."""
    database = shop.api.app.database.acting_as_server("write")
    for is_snapshot in (False, True):
        state = await database.read(lambda connection: connection.fetchrow(STATE), is_snapshot=is_snapshot)
        assert tuple(state[:2]) == LEFT[:2]
        assert not state[2]
    for sub in (None, CYD, BOB, ANN):
        answer = await shop.get(sub, "/posts?sort=id")
        assert (answer.status, answer.ids) == (200, POSTS[sub]), answer.body
        answer = await shop.get(sub, "/posts?sort=id&include=author")
        assert (answer.status, answer.ids) == (200, POSTS[sub]), answer.body


REQUESTS: dict[str, tuple[str, str, Any]] = {
    "list": ("GET", "/posts?sort=id", None),
    "include": ("GET", "/posts?include=author", None),
    "create": ("POST", "/posts", post("new of Ann", ANN)),
    "update": ("PATCH", "/posts/1", update("1", title="newer")),
    "operations": (
        "POST",
        "/operations",
        {"atomic:operations": [{"op": "add", "data": post("new of Ann", ANN)["data"]}] * 2},
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("is_first", [True, False])
async def test_a_backend_is_terminated(open_shop: Open, name: str, is_first: bool) -> None:
    """is_first: whether the statements are new to the connection."""
    shop = await open_shop(pool_size=1)
    if not is_first:
        await shop.get(ANN, "/posts?sort=id")
    method, path, document = REQUESTS[name]
    async with locked(shop) as owner:
        asked = asyncio.create_task(shop.request(ANN, method, path, document))
        await until_waiting(owner)
        # Some are sent again.
        await until(lambda: end(owner, asked), pause_seconds=0.05)
        answer = await asked
    assert answer.status == 503, answer.body
    await check_nothing_left(shop)


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_statement_is_cancelled(open_shop: Open, name: str) -> None:
    shop = await open_shop(pool_size=1)
    method, path, document = REQUESTS[name]
    async with locked(shop) as owner:
        asked = asyncio.create_task(shop.request(ANN, method, path, document))
        await owner.execute("SELECT pg_cancel_backend($1)", await until_waiting(owner))
        answer = await asked
    assert answer.status == 504, answer.body
    await check_nothing_left(shop)


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_statement_takes_too_long(open_shop: Open, name: str) -> None:
    shop = await open_shop(pool_size=1, statement_timeout_seconds=0.2)
    method, path, document = REQUESTS[name]
    async with locked(shop):
        answer = await shop.request(ANN, method, path, document)
    assert answer.status == 504, answer.body
    await check_nothing_left(shop)


async def test_a_request_takes_too_long(open_shop: Open) -> None:
    shop = await open_shop(pool_size=1, request_timeout_seconds=0.2)
    async with locked(shop):
        answer = await shop.get(ANN, "/posts")
    assert answer.status == 504, answer.body
    await check_nothing_left(shop)


@pytest.mark.parametrize("path", ["/posts", "/posts?include=author", "/posts?page[size]=0"])
async def test_a_client_leaves(open_shop: Open, path: str) -> None:
    shop = await open_shop(pool_size=1)
    async with locked(shop) as owner:
        async with connected(shop.api.port) as wire:
            await wire.send(f"GET {path} HTTP/1.1", f"X-Sub: {ANN}")
            await until_waiting(owner)
        await until(lambda: owner.fetchval(f"SELECT NOT EXISTS ({WAITING})"))
    await check_nothing_left(shop)


async def test_a_stream(open_shop: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = await open_shop(pool_size=1)
    set_first_rows(monkeypatch, 0, shop.api.app.engine)
    for sub in (None, ANN, CYD, BOB) * 2:
        answer = await shop.get(sub, "/posts?page[size]=0&sort=id&include=author")
        assert (answer.ids, answer.headers["Transfer-Encoding"]) == (POSTS[sub], "chunked")
    await check_nothing_left(shop)


async def test_a_stream_that_breaks(open_shop: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its client leaves halfway, or its backend is terminated."""
    shop = await open_shop(pool_size=1)
    await more_posts(shop)
    set_first_rows(monkeypatch, 0, shop.api.app.engine)
    active = "SELECT pid FROM pg_stat_activity WHERE usename = 'authenticator' AND xact_start IS NOT NULL"
    for is_terminated in (False, True):
        async with connected(shop.api.port) as wire:
            await wire.send("GET /posts?page[size]=0 HTTP/1.1", f"X-Sub: {ANN}")
            pid = await until(lambda: run(shop, active))
            if is_terminated:
                await run(shop, f"SELECT pg_terminate_backend({pid})")
        await until(lambda: run(shop, f"SELECT NOT EXISTS ({active})"))
        await check_first_posts(shop)


async def more_posts(shop: Shop) -> None:
    await run(
        shop,
        f"INSERT INTO posts (title, author_id) SELECT repeat('x', 5000) || n, '{ANN}' FROM generate_series(1, 20000) n",
    )


async def check_first_posts(shop: Shop) -> None:
    for sub in (None, CYD, BOB):
        assert (await shop.get(sub, "/posts?sort=id")).ids == POSTS[sub]


async def run(shop: Shop, statement: str) -> Any:
    """Run a statement as the owner, and return its first value."""
    connection = await asyncpg.connect(shop.database_url)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


@pytest.mark.parametrize("path", ["/posts", "/posts?include=author", "/posts/1"])
async def test_a_migration_makes_statements_stale(open_shop: Open, path: str) -> None:
    shop = await open_shop(pool_size=1)
    for statement in (
        "ALTER TABLE posts ALTER COLUMN title TYPE varchar(100)",
        "ALTER TABLE posts ALTER COLUMN title TYPE text",
        "ALTER TABLE posts ADD COLUMN more text",
    ):
        before = {sub: (await shop.get(sub, path)).body for sub in POSTS}
        await run(shop, statement)
        for sub in (ANN, None, BOB, CYD):
            assert (await shop.get(sub, path)).body == before[sub]
    await check_nothing_left(shop)


@pytest.mark.parametrize("is_transaction", [False, True])
async def test_a_retry_has_the_role_again(open_shop: Open, is_transaction: bool) -> None:
    shop = await open_shop(pool_size=1)
    await run(shop, "CREATE SEQUENCE attempts")
    await run(shop, "GRANT USAGE ON SEQUENCE attempts TO authenticated")
    await run(
        shop,
        """CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            NEW.title := NEW.title || ' by ' || current_user || ' ' || auth.uid();
            IF nextval('attempts') < 3 THEN RAISE serialization_failure; END IF; RETURN NEW;
        END $$""",
    )
    await run(shop, "CREATE TRIGGER conflict BEFORE INSERT ON posts FOR EACH ROW EXECUTE FUNCTION conflict()")
    path = "/posts?include=author" if is_transaction else "/posts"
    answer = await shop.request(ANN, "POST", path, post("new", ANN))
    assert answer.status == 201, answer.body
    assert answer.document["data"]["attributes"]["title"] == f"new by authenticated {ANN}"
    assert await run(shop, "SELECT last_value FROM attempts") == 3
    await check_first_posts(shop)


async def test_a_value_that_is_refused_after_the_role_was_sent(
    open_shop: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver refuses it. PostgreSQL has set the role by then, in a transaction that is still open."""
    shop = await open_shop(pool_size=1)
    database = shop.api.app.database.acting_for(Principal(subject=ANN, claims={"role": "authenticated"}), "write")
    for _ in range(2):
        with pytest.raises(SchemaChanged):
            await database.read(lambda connection: connection.fetch("SELECT $1::int", "text"), is_snapshot=False)
        await check_nothing_left(shop)


UNKNOWN = {
    "enum": "SELECT current_user::text, 'new'::mood",
    "array": "SELECT current_user::text, ARRAY['new'::mood]",
    "long": "SELECT current_user::text, 'new' AS " + "x" * 5000,
    "parameter": "SELECT current_user::text, $1::mood",
}
"""Statements with types that are new to the connection, and one that is too long to be kept."""


@pytest.mark.parametrize("sql", UNKNOWN.values(), ids=list(UNKNOWN))
@pytest.mark.parametrize("is_snapshot", [False, True])
async def test_statements_for_which_the_driver_asks_more(open_shop: Open, sql: str, is_snapshot: bool) -> None:
    """It looks up types in statements of their own."""
    shop = await open_shop(pool_size=1)
    await run(shop, "CREATE TYPE mood AS ENUM ('new')")
    for _ in range(3):
        await check_role(shop, sql, is_snapshot=is_snapshot)
        await check_nothing_left(shop)


async def check_role(shop: Shop, sql: str, *, is_snapshot: bool) -> None:
    """Check that one of the statements runs with its role."""
    acting = shop.api.app.database.acting_for(Principal(subject=ANN, claims={"role": "authenticated"}), "write")
    values = ["new"] if "$1" in sql else []
    row = await acting.read(lambda connection: connection.fetchrow(sql, *values), is_snapshot=is_snapshot)
    assert row[0] == "authenticated"


async def test_a_statement_that_would_run_without_its_role(open_shop: Open) -> None:
    shop = await open_shop(pool_size=1)
    acting = shop.api.app.database.acting_for(Principal(subject=ANN, claims={"role": "authenticated"}), "write")
    for work in (lambda connection: connection.execute("SELECT 1"), lambda connection: connection.prepare("SELECT 1")):
        with pytest.raises(RuntimeError, match="without its role"):
            await acting.read(work, is_snapshot=False)
    with pytest.raises(RuntimeError, match="need a principal"):
        await shop.api.app.database.read(lambda connection: connection.fetch("SELECT 1"), is_snapshot=False)
    await check_nothing_left(shop)


async def test_a_role_that_the_server_has_no_more(open_shop: Open) -> None:
    shop = await open_shop(pool_size=1)
    await shop.get(ANN, "/posts")
    await run(shop, "REVOKE authenticated FROM authenticator")
    try:
        for path in ("/posts", "/posts?include=author", "/posts?sort=-id", "/notes"):
            assert (await shop.get(ANN, path)).status == 500
            assert (await shop.get(None, "/posts?sort=id")).ids == POSTS[None]
        assert (await shop.request(ANN, "PATCH", "/posts/1", update("1", title="newer"))).status == 500
        assert (await shop.request(ANN, "PATCH", "/posts/1?include=author", update("1", title="newer"))).status == 500
    finally:
        await run(shop, "GRANT authenticated TO authenticator")
    await check_nothing_left(shop)


async def tamper(writing: Writing, changes: list[Any]) -> None:
    """Set everything for the session that a request has for its transaction."""
    await writing.connection.execute("SET SESSION ROLE editor")
    await writing.connection.execute("SELECT set_config('request.jwt.claims', $1, false)", f'{{"sub":"{BOB}"}}')


async def fail(writing: Writing, changes: list[Any]) -> None:
    await tamper(writing, changes)
    raise RuntimeError("after the role was changed")


@pytest.mark.parametrize(("hook", "status"), [(tamper, 403), (fail, 500)])
async def test_a_hook_that_changes_the_role(open_shop: Open, hook: Any, status: int) -> None:
    hooked = structs.replace(POST, hooks=Hooks(before_create=hook))
    shop = await open_shop(pool_size=1, catalog=Catalog([hooked if one is POST else one for one in CATALOG]))
    for _ in range(2):
        answer = await shop.request(ANN, "POST", "/posts", post("new", ANN))
        assert answer.status == status, answer.body
        await check_nothing_left(shop)


class State(CustomHandler):
    """Shows with what role a custom route runs."""

    async def get(self) -> None:
        row = await self.database.read(lambda connection: connection.fetchrow(STATE))
        self.finish({"state": [value or "" for value in row]})

    async def post(self) -> None:
        row = await self.database.write(lambda connection: connection.fetchrow(STATE))
        self.finish({"state": [value or "" for value in row]})


async def test_a_custom_route_acts_as_the_server(open_shop: Open) -> None:
    shop = await open_shop(pool_size=1, routes=[("/state", State)])
    for _ in range(3):
        for sub in (ANN, None):
            await shop.get(sub, "/posts")
            await shop.get(sub, "/posts?include=author")
            for method in ("GET", "POST"):
                answer = await shop.request(sub, method, "/state")
                assert answer.document == {"state": list(LEFT)}


class Own(CustomHandler):
    """Reads and writes posts as the principal may."""

    async def get(self) -> None:
        self.finish(await self.read("post", "sort=id"))

    async def post(self) -> None:
        change = Change(kind="update", type="post", id="5", attributes={"title": "taken"})
        self.finish({"ids": await self.write([change])})


async def test_the_resources_of_a_custom_route_are_those_of_the_principal(open_shop: Open) -> None:
    shop = await open_shop(pool_size=1, routes=[("/own", Own)])
    for sub in (ANN, None, BOB, CYD):
        assert (await shop.get(sub, "/own")).ids == POSTS[sub]
    for sub, status, code in ((ANN, 403, "forbidden"), (None, 401, "unauthenticated")):
        answer = await shop.request(sub, "POST", "/own")
        assert (answer.status, [one["code"] for one in answer.errors]) == (status, [code])
    await check_nothing_left(shop)
    assert (await shop.request(BOB, "POST", "/own")).document == {"ids": ["5"]}


async def test_hooks_have_the_role_of_the_request(open_shop: Open) -> None:
    seen: list[Any] = []

    async def look(writing: Writing, _: list[Any]) -> None:
        seen.append(tuple(await writing.connection.fetchrow(STATE)))

    hooked = structs.replace(POST, hooks=Hooks(before_create=look))
    shop = await open_shop(pool_size=1, catalog=Catalog([hooked if one is POST else one for one in CATALOG]))
    assert (await shop.request(ANN, "POST", "/posts", post("new", ANN))).status == 201
    claims = f'{{"sub":"{ANN}","role":"authenticated"}}'
    assert seen == [("authenticated", "authenticator", claims)]


async def test_requests_at_once_while_backends_are_cancelled_and_terminated(open_shop: Open) -> None:
    """Every answer is that of its principal, or an error."""
    shop = await open_shop(pool_size=3)
    chosen, outcomes, is_over = random.Random(7), list[int](), asyncio.Event()
    paths = ["/posts?sort=id", "/posts?sort=id&include=author,team", "/posts?sort=id&filter[id][gt]=0"]

    async def ask(number: int) -> None:
        for _ in range(40):
            sub = chosen.choice(list(POSTS))
            if number == 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.003):
                        await shop.get(sub, chosen.choice(paths))
                continue
            answer = await shop.get(sub, chosen.choice(paths))
            outcomes.append(answer.status)
            assert answer.status in (200, 503, 504), answer.body
            if answer.status == 200:
                assert answer.ids == POSTS[sub]

    async def disturb() -> None:
        owner = await asyncpg.connect(shop.database_url)
        while not is_over.is_set():
            how = chosen.choice(["pg_cancel_backend", "pg_cancel_backend", "pg_terminate_backend"])
            await owner.execute(
                f"SELECT {how}(pid) FROM pg_stat_activity WHERE usename = 'authenticator' ORDER BY random() LIMIT 1"
            )
            await asyncio.sleep(0.02)
        await owner.close()

    disturbing = asyncio.create_task(disturb())
    await asyncio.gather(*[ask(number) for number in range(8)])
    is_over.set()
    await disturbing
    assert outcomes.count(200) > len(outcomes) / 3
    await check_nothing_left(shop)
