"""The connection of hooks: session state that they leave behind, and transactions that are retried, that they end, or
whose client has gone."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from tests.http.conftest import MEDIA_TYPE, Api, Start
from tests.http.custom import hooked
from tests.http.people import document, select
from tests.http.wire import SECONDS, connected
from tests.waiting import until
from waterspout import BadRequest, Change, Hooks, Writing, Written

ROW = "INSERT INTO persons (id, name) VALUES (1, 'old')"
STATE = """
    SELECT pg_backend_pid() AS pid, current_user, session_user, current_setting('role') AS role,
        (SELECT array_agg(name || '=' || setting ORDER BY name) FROM pg_settings
            WHERE name IN ('DateStyle', 'TimeZone', 'default_transaction_read_only', 'search_path', 'work_mem')
        ) AS settings,
        (SELECT array_agg(c) FROM pg_listening_channels() c) AS channels,
        (SELECT array_agg(name) FROM pg_cursors WHERE is_holdable) AS cursors,
        (SELECT array_agg(relname) FROM pg_class WHERE relpersistence = 't') AS temporary,
        (SELECT array_agg(name) FROM pg_prepared_statements WHERE from_sql) AS prepared,
        (SELECT array_agg(objid) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()) AS locks
"""


def new(name: str = "new") -> dict[str, Any]:
    return document("person", {"name": name})


def errors_of(caplog: pytest.LogCaptureFixture) -> list[BaseException | None]:
    """Return the logged causes of faults."""
    return [each.exc_info[1] for each in caplog.records if each.levelname == "ERROR" and each.exc_info]


class Session:
    """A server with one connection. Its deletes run some code, and its updates show the state of the session."""

    def __init__(self) -> None:
        self.states: list[dict[str, Any]] = []

    async def look(self, writing: Writing, changes: list[Change]) -> None:
        self.states.append(dict(await writing.connection.fetchrow(STATE)))


LEFT = [
    "SET work_mem = '1MB'; SET timezone = 'Asia/Tokyo'; SET datestyle = 'German'",
    "SELECT set_config('search_path', 'nowhere', false)",
    "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
    "SELECT set_config('role', current_user, false)",
    "SET ROLE pg_monitor",
    "SET SESSION AUTHORIZATION pg_monitor",
    "SELECT pg_advisory_lock(7), pg_advisory_lock_shared(8)",
    "CREATE TEMP TABLE persons (id bigint, name text)",
    "LISTEN channel",
    "DECLARE held CURSOR WITH HOLD FOR SELECT 1",
    "PREPARE prepared AS SELECT 1",
]


async def is_superuser(api: Api) -> bool:
    [(found,)] = await select(api, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
    return bool(found)


@pytest.mark.parametrize("statements", LEFT)
async def test_session_state_of_a_hook_is_reset(start: Start, database_url: str, statements: str) -> None:
    """The next request has the same connection, in the state from before the hook."""
    session = Session()

    async def leave(writing: Writing, written: list[Written]) -> None:
        await writing.connection.execute(statements)

    hooks = Hooks(after_delete=leave, before_update=session.look)
    api = await start(database_url, hooked(person=hooks), pool_size=1)
    await api.sql("INSERT INTO persons SELECT n, 'old' FROM generate_series(1, 3) n")
    if "pg_monitor" in statements and not await is_superuser(api):
        pytest.skip("only a superuser may change into others")
    for _ in range(2):
        assert (await api.patch("/persons/1", document("person", {"name": "x"}, id="1"))).status == 200
        found = await api.get("/persons?sort=-id&page[size]=1&fields[person]=name")
        await api.delete(f"/persons/{found.ids[0]}")
    assert (await api.patch("/persons/1", document("person", {"name": "x"}, id="1"))).status == 200
    assert session.states == [session.states[0]] * 3


async def test_session_state_of_a_hook_that_raises_is_reset(start: Start, database_url: str) -> None:
    session = Session()

    async def leave(writing: Writing, changes: list[Change]) -> None:
        await writing.connection.execute("SELECT pg_advisory_lock(7)")
        raise BadRequest("No.")

    api = await start(database_url, hooked(person=Hooks(before_delete=leave, before_update=session.look)), pool_size=1)
    await api.sql(ROW)
    assert (await api.delete("/persons/1")).status == 400
    assert (await api.patch("/persons/1", document("person", {"name": "x"}, id="1"))).status == 200
    assert session.states[0]["locks"] is None


async def test_a_codec_is_only_set_for_one_request(start: Start, database_url: str) -> None:
    async def leave(writing: Writing, changes: list[Change]) -> None:
        connection: Any = writing.connection
        await connection.set_type_codec("jsonb", encoder=json.dumps, decoder=lambda text: "mine", schema="pg_catalog")

    api = await start(database_url, hooked(person=Hooks(before_create=leave)), pool_size=1)
    await api.sql("""INSERT INTO photos (name, meta) VALUES ('lake', '{"a": 1}')""")
    for _ in range(2):
        assert (await api.post("/persons", new())).status == 201
        answer = await api.get("/photos/1")
        assert {"a": 1} in answer.document["data"]["attributes"].values(), answer.body


# retried transactions


class Attempts:
    """Hooks that record their runs. The first `failing` runs of after_create fail with a conflict."""

    def __init__(self, failing: int) -> None:
        self.failing = failing
        self.calls: list[str] = []

    @property
    def hooks(self) -> Hooks:
        return Hooks(before_create=self.before, after_create=self.after, after_commit=self.after_commit)

    async def before(self, writing: Writing, changes: list[Change]) -> None:
        self.calls.append("before")

    async def after(self, writing: Writing, written: list[Written]) -> None:
        self.calls.append("after")
        if self.calls.count("after") <= self.failing:
            await writing.connection.execute("DO $$ BEGIN RAISE EXCEPTION 'in the way' USING ERRCODE = '40001'; END $$")

    async def after_commit(self, written: list[Written]) -> None:
        self.calls.append("committed")


@pytest.mark.parametrize(
    ("failing", "status", "calls", "count"),
    [
        (0, 201, ["before", "after", "committed"], 1),
        (1, 201, [*["before", "after"] * 2, "committed"], 1),
        (2, 201, [*["before", "after"] * 3, "committed"], 1),
        (3, 503, ["before", "after"] * 3, 0),
    ],
)
async def test_hooks_run_again_if_a_transaction_is_retried(
    start: Start, database_url: str, failing: int, status: int, calls: list[str], count: int
) -> None:
    attempts = Attempts(failing)
    api = await start(database_url, hooked(person=attempts.hooks))
    answer = await api.post("/persons", new())
    assert (answer.status, attempts.calls) == (status, calls)
    assert await select(api, "SELECT count(*) FROM persons") == [(count,)]


async def test_hooks_run_again_if_operations_are_retried(start: Start, database_url: str) -> None:
    attempts = Attempts(1)
    api = await start(database_url, hooked(person=attempts.hooks))
    operations = [{"op": "add", "data": {"type": each, "attributes": {"name": "n"}}} for each in ("child", "person")]
    answer = await api.post("/operations", {"atomic:operations": operations})
    assert (answer.status, attempts.calls) == (200, [*["before", "after"] * 2, "committed"])
    assert await select(api, "SELECT (SELECT count(*) FROM persons), (SELECT count(*) FROM children)") == [(1, 1)]


WAITS_FOR_LONG = """
    SELECT FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock'
        AND query_start < clock_timestamp() - 1.2 * current_setting('deadlock_timeout')::interval
"""
"""It has looked for a deadlock, which each backend does once, so another backend must find the next one."""


async def test_a_deadlock(start: Start, database_url: str) -> None:
    """The hook's transaction holds person 2 and waits for person 1. Another one holds 1 and waits for 2."""
    holds, goes_on = asyncio.Event(), asyncio.Event()
    runs: list[str] = []

    async def before(writing: Writing, changes: list[Change]) -> None:
        runs.append("before")
        await writing.connection.execute("SELECT FROM persons WHERE id = 2 FOR UPDATE")
        holds.set()
        await goes_on.wait()
        await writing.connection.execute("SELECT FROM persons WHERE id = 1 FOR UPDATE")

    async def after_commit(written: list[Written]) -> None:
        runs.append("committed")

    api = await start(database_url, hooked(person=Hooks(before_update=before, after_commit=after_commit)))
    await api.sql("INSERT INTO persons (id, name) VALUES (1, 'a'), (2, 'b')")
    other = await asyncpg.connect(database_url)
    try:
        await other.execute("BEGIN; SELECT FROM persons WHERE id = 1 FOR UPDATE")
        sent = asyncio.ensure_future(api.patch("/persons/2", document("person", {"name": "new"}, id="2")))
        await holds.wait()
        waiting = asyncio.ensure_future(other.execute("SELECT FROM persons WHERE id = 2 FOR UPDATE"))
        await until_row(api, WAITS_FOR_LONG, other.get_server_pid())
        goes_on.set()
        await waiting
        await other.execute("ROLLBACK")
        assert (await sent).status == 200
    finally:
        await other.close()
    assert runs == ["before", "before", "committed"]
    assert await select(api, "SELECT name FROM persons WHERE id = 2") == [("new",)]


async def until_row(api: Api, statement: str, *values: Any) -> None:
    """Wait until there is a row."""
    connection = await asyncpg.connect(api.database_url)
    try:
        await until(lambda: connection.fetchrow(statement, *values), lambda row: row is not None)
    finally:
        await connection.close()


# transactions that custom code ends


@pytest.mark.parametrize("statement", ["COMMIT", "ROLLBACK", "COMMIT AND CHAIN", "ROLLBACK; BEGIN"])
@pytest.mark.parametrize("name", ["before_create", "after_create"])
async def test_a_hook_that_ends_the_transaction(
    start: Start, database_url: str, statement: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """This is a fault. Nothing is written after it."""

    async def ends(writing: Writing, items: Any) -> None:
        await writing.connection.execute(statement)

    api = await start(database_url, hooked(person=replace(Hooks(), **{name: ends})), pool_size=1)
    answer = await api.post("/persons", new())
    assert (answer.status, [error["code"] for error in answer.errors]) == (500, ["internal_error"])
    (error,) = errors_of(caplog)
    assert "custom code has ended" in str(error)
    is_kept = name == "after_create" and statement.startswith("COMMIT")
    assert await select(api, "SELECT count(*) FROM persons") == [(int(is_kept),)]
    assert (await api.post("/parents", document("parent", {"name": "p"}))).status == 201
    assert await idle_in_transaction(api) == []


IDLE = "SELECT pid, query FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in tr%'"


async def idle_in_transaction(api: Api) -> list[tuple[Any, ...]]:
    return await select(api, IDLE)


# faults outside of the database


@pytest.mark.parametrize("error", [TimeoutError("mine"), FileNotFoundError("mine"), ConnectionRefusedError("mine")])
async def test_a_network_error_of_a_hook_is_a_fault(
    start: Start, database_url: str, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """An error of another connection says nothing about the database. It is logged."""

    async def before(writing: Writing, changes: list[Change]) -> None:
        raise error

    api = await start(database_url, hooked(person=Hooks(before_create=before)))
    answer = await api.post("/persons", new())
    assert (answer.status, [each["code"] for each in answer.errors]) == (500, ["internal_error"])
    assert len(errors_of(caplog)) == 1
    assert f"\n{type(error).__name__}: mine\n" in caplog.text


async def test_a_hook_cannot_continue_after_a_failed_statement(
    start: Start, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def before(writing: Writing, changes: list[Change]) -> None:
        with pytest.raises(asyncpg.PostgresError):
            await writing.connection.execute("SELECT * FROM nowhere")

    api = await start(database_url, hooked(person=Hooks(before_create=before)))
    assert (await api.post("/persons", new())).status == 500
    (error,) = errors_of(caplog)
    assert isinstance(error, asyncpg.InFailedSQLTransactionError)
    assert await select(api, "SELECT * FROM persons") == []


# timeouts, and clients that disconnect


async def test_a_statement_of_a_hook_has_the_usual_timeout(start: Start, database_url: str) -> None:
    async def before(writing: Writing, changes: list[Change]) -> None:
        await writing.connection.execute("SELECT pg_sleep(60)")

    catalog = hooked(person=Hooks(before_create=before))
    api = await start(database_url, catalog, statement_timeout_seconds=0.1)
    answer = await api.post("/persons", new())
    assert (answer.status, [error["code"] for error in answer.errors]) == (504, ["statement_timeout"])


async def post_and_disconnect(api: Api, when: asyncio.Event) -> None:
    """Send a POST, and disconnect at some point."""
    body = json.dumps(new()).encode()
    async with connected(api.port) as wire:
        await wire.send(
            "POST /persons HTTP/1.1", f"Content-Type: {MEDIA_TYPE}", f"Content-Length: {len(body)}", body=body
        )
        async with asyncio.timeout(SECONDS):
            await when.wait()


async def test_a_client_that_disconnects_cancels_the_hook(start: Start, database_url: str) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def before(writing: Writing, changes: list[Change]) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    api = await start(database_url, hooked(person=Hooks(before_create=before)), pool_size=1)
    await post_and_disconnect(api, begun)
    async with asyncio.timeout(SECONDS):
        await ended.wait()
    # The only connection is free again, and its session is reset.
    assert (await api.post("/parents", document("parent", {"name": "p"}))).status == 201
    assert await idle_in_transaction(api) == []
    assert await select(api, "SELECT * FROM persons") == []


SLOW_COMMIT = """
    CREATE FUNCTION wait_for_lock() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_advisory_xact_lock(42); RETURN NULL; END $$;
    CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON persons DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION wait_for_lock();
"""


async def test_a_client_that_disconnects_during_the_commit(start: Start, database_url: str) -> None:
    """The commit is done, and the hooks after it run."""
    committed = asyncio.Event()

    async def before(writing: Writing, changes: list[Change]) -> None:
        """Do nothing. A request with a hook is a transaction."""

    async def after_commit(written: list[Written]) -> None:
        committed.set()

    api = await start(database_url, hooked(person=Hooks(before_create=before, after_commit=after_commit)))
    holder = await asyncpg.connect(database_url)
    try:
        await holder.execute(SLOW_COMMIT)
        await holder.execute("SELECT pg_advisory_lock(42)")
        commits = asyncio.Event()
        sent = asyncio.ensure_future(post_and_disconnect(api, commits))
        await until_row(api, "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'COMMIT%' AND wait_event_type = 'Lock'")
        commits.set()
        await sent
        # When the server answers on another connection, it has read the end of this one.
        assert (await api.get("/-/live")).status == 200
        await holder.execute("SELECT pg_advisory_unlock(42)")
    finally:
        await holder.close()
    await until_row(api, "SELECT 1 FROM persons")
    async with asyncio.timeout(SECONDS):
        await committed.wait()
