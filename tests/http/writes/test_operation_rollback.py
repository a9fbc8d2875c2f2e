"""Atomic operations that are interrupted from outside: they are rolled back, and no transaction or lock outlives its
request.

test_operation_failures.py tests errors of the operations themselves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tornado.ioloop import IOLoop

from server.resources import built_in
from tests.http.conftest import MEDIA_TYPE, Answer, Api, Start
from tests.http.expected import error
from tests.http.operating import (
    EXTENDED,
    add,
    link,
    operate,
    remove,
    session,
    unchanged,
    until_at_rest,
    until_blocked_by,
    update,
)
from tests.http.people import create_household, linked, of, select
from tests.http.proxy import Moment, Proxy
from tests.http.wire import connected

MEDIA_TYPES = pytest.mark.parametrize("media_type", [MEDIA_TYPE, EXTENDED])
GONE = error(503, "unavailable", "Database Unavailable", "The database cannot be reached; try again.")
UNKNOWN = error(
    503,
    "outcome_unknown",
    "Outcome Unknown",
    "The connection was lost while the write was being committed: check whether it was done.",
)
TIMEOUT = error(504, "statement_timeout", "Statement Timeout", "The database took too long over this request.")
BUSY = error(503, "busy", "Busy", "Other writes were in the way; try again.")
LOCK = "BEGIN; SELECT FROM computers WHERE id = 3 FOR UPDATE"

# Each has written something before it waits for computer 3.
WAITING: dict[str, list[Any]] = {
    "one write": [add("parent", {"name": "p"}), update("computer", {"name": "x"}, id="3")],
    "a batch": [
        *(add("parent", {"name": f"p {number}"}) for number in range(200)),
        *(update("computer", {"name": "x"}, id=str(number)) for number in (1, 2, 3, 4) * 50),
        *(add("child", {"name": "c"}) for _ in range(200)),
    ],
    "removes": [remove("computer", id="4"), remove("computer", id="3"), remove("person", id="1")],
    "links": [
        update("user", {"age": 1}, id="2"),
        update("user", id="1", relationships=linked(computers=of("computer", "3", "4"))),
    ],
}
WORK = pytest.mark.parametrize("work", WAITING)


def check_usual_form(answer: Answer, status: int, told: dict[str, Any]) -> None:
    """Check that a 503 or 504 has the form of section 8, with and without the extension."""
    assert (answer.status, answer.errors) == (status, [told])
    assert answer.headers["Content-Type"] == MEDIA_TYPE


@asynccontextmanager
async def waiting(api: Api, holder: Any, watcher: Any, work: str, media_type: str) -> Any:
    """Yield a request that waits for a lock of the holder: the future of its answer, and its session in PostgreSQL."""
    await holder.execute(LOCK)
    answer = asyncio.ensure_future(operate(api, *WAITING[work], media_type=media_type))
    try:
        yield answer, await until_blocked_by(watcher, holder.get_server_pid())
    finally:
        await holder.execute("ROLLBACK")


@WORK
@MEDIA_TYPES
async def test_the_session_is_ended(api: Api, work: str, media_type: str) -> None:
    """While it waits, as by pg_terminate_backend of an administrator, or by a crash."""
    await create_household(api)
    async with unchanged(api) as watcher, session(api) as holder:
        async with waiting(api, holder, watcher, work, media_type) as (coming, pid):
            assert await watcher.fetchval("SELECT pg_terminate_backend($1)", pid)
            answer = await coming
        check_usual_form(answer, 503, GONE)
        assert answer.headers["Retry-After"] == "1"
    assert (await operate(api, *WAITING[work], media_type=media_type)).status in (200, 204)


@WORK
@MEDIA_TYPES
async def test_the_statement_is_cancelled(api: Api, work: str, media_type: str) -> None:
    await create_household(api)
    async with (
        unchanged(api) as watcher,
        session(api) as holder,
        waiting(api, holder, watcher, work, media_type) as (coming, pid),
    ):
        assert await watcher.fetchval("SELECT pg_cancel_backend($1)", pid)
        check_usual_form(await coming, 504, TIMEOUT)


@WORK
@MEDIA_TYPES
async def test_a_statement_that_takes_too_long(start: Start, database_url: str, work: str, media_type: str) -> None:
    api = await start(database_url, built_in(), statement_timeout_seconds=0.2)
    await create_household(api)
    async with unchanged(api), session(api) as holder:
        await holder.execute(LOCK)
        check_usual_form(await operate(api, *WAITING[work], media_type=media_type), 504, TIMEOUT)
        await holder.execute("ROLLBACK")


@WORK
async def test_the_client_disconnects(api: Api, work: str) -> None:
    """The lock stays held, so only the departure of the client can end the transaction."""
    await create_household(api)
    body = json.dumps({"atomic:operations": WAITING[work]}).encode()
    lines = ("POST /operations HTTP/1.1", f"Content-Type: {MEDIA_TYPE}", f"Content-Length: {len(body)}")
    async with unchanged(api) as watcher, session(api) as holder:
        await holder.execute(LOCK)
        async with connected(api.port) as wire:
            await wire.send(*lines, body=body)
            await until_blocked_by(watcher, holder.get_server_pid())
        async with asyncio.timeout(2):
            await until_at_rest(watcher)
        await holder.execute("ROLLBACK")
    assert (await operate(api, *WAITING[work])).status in (200, 204)


async def test_the_client_disconnects_while_it_waits_for_a_connection(start: Start, database_url: str) -> None:
    """The request does not begin when a connection becomes free."""
    api = await start(database_url, built_in(), pool_size=1)
    await create_household(api)
    body = json.dumps({"atomic:operations": [remove("person", id="1")]}).encode()
    lines = ("POST /operations HTTP/1.1", f"Content-Type: {MEDIA_TYPE}", f"Content-Length: {len(body)}")
    async with session(api) as watcher, session(api) as holder:
        async with waiting(api, holder, watcher, "one write", MEDIA_TYPE) as (first, _):
            async with connected(api.port) as wire:
                await wire.send(*lines, body=body)
                # Its answer comes after the server has read everything that was sent before.
                assert (await api.get("/-/live")).status == 200
            assert (await api.get("/-/live")).status == 200
        assert (await first).status == 200
        await until_at_rest(watcher)
    assert (await api.get("/persons/1")).status == 200


@pytest.fixture
def proxy(io_loop: IOLoop, database_url: str) -> Iterator[Proxy]:
    made = Proxy(database_url)
    yield made
    io_loop.run_sync(made.close)


CUTS = {
    "the first write": (b'INSERT INTO "parents"', GONE),
    "a later write": (b'UPDATE "computers"', GONE),
    "the commit": (b"COMMIT;", UNKNOWN),
}


@pytest.mark.parametrize("place", CUTS)
@pytest.mark.parametrize("moment", ["before", "after"])
@MEDIA_TYPES
async def test_the_connection_breaks(
    start: Start, proxy: Proxy, database_url: str, place: str, moment: Moment, media_type: str
) -> None:
    """In the middle everything is rolled back. At the commit nobody can know, and the answer says so."""
    api = await start(await proxy.open(), built_in())
    own = Api(api.port, database_url)
    await create_household(own)
    sent, told = CUTS[place]
    operations = [*(add("parent", {"name": "p"}) for _ in range(3)), update("computer", {"name": "x"}, id="1")]
    is_done = place == "the commit" and moment == "after"
    proxy.cut_at(sent, moment)
    try:
        if is_done:
            check_usual_form(await operate(api, *operations, media_type=media_type), 503, told)
        else:
            async with unchanged(own):
                check_usual_form(await operate(api, *operations, media_type=media_type), 503, told)
        assert proxy.cuts == 1
        assert await select(own, "SELECT count(*) FROM parents") == [(4 if is_done else 1,)]
    finally:
        await own.close()


# retries


FAILING = """
    CREATE SEQUENCE public.attempts;
    CREATE FUNCTION public.fail() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        -- What a sequence has given away stays so when the transaction is rolled back.
        IF NEW.name = 'in the way' AND nextval('public.attempts') <= {failures} THEN
            RAISE EXCEPTION 'in the way' USING ERRCODE = '{state}';
        END IF;
        RETURN NEW;
    END $$;
    CREATE TRIGGER fail BEFORE INSERT ON public.children FOR EACH ROW EXECUTE FUNCTION public.fail();
"""
STATES = pytest.mark.parametrize("state", ["deadlock_detected", "serialization_failure"])


def in_the_way(count: int) -> list[Any]:
    return [
        add("parent", {"name": "p"}, lid="p"),
        *(add("child", {"name": "in the way" if number == count // 2 else "c"}) for number in range(count)),
        update("parent", {"name": "q"}, lid="p"),
    ]


@STATES
@pytest.mark.parametrize("count", [1, 9])
async def test_operations_are_retried(api: Api, state: str, count: int) -> None:
    """From the start, with all lids forgotten: each operation is done once."""
    async with session(api) as connection:
        await connection.execute(FAILING.format(failures=2, state=state))
    answer = await operate(api, *in_the_way(count))
    assert answer.status == 200, answer.body
    assert len(answer.document["atomic:results"]) == count + 2
    assert await select(api, "SELECT last_value FROM attempts") == [(3,)]
    assert await select(api, "SELECT (SELECT count(*) FROM parents), (SELECT count(*) FROM children)") == [(1, count)]


@STATES
@pytest.mark.parametrize("count", [1, 9])
@MEDIA_TYPES
async def test_retries_are_limited(api: Api, state: str, count: int, media_type: str) -> None:
    async with session(api) as connection:
        await connection.execute(FAILING.format(failures=3, state=state))
    async with unchanged(api):
        check_usual_form(await operate(api, *in_the_way(count), media_type=media_type), 503, BUSY)


KEEPING_OUT = """
    CREATE FUNCTION public.keep_out() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN IF NEW.name = 'kept out' THEN RETURN NULL; END IF; RETURN NEW; END $$;
    CREATE TRIGGER kept_out BEFORE INSERT ON public.children FOR EACH ROW EXECUTE FUNCTION public.keep_out();
"""


async def test_a_deferred_constraint(api: Api) -> None:
    """It rolls back all operations, and is reported as an error."""
    await create_household(api)
    async with session(api) as connection:
        await connection.execute(
            "ALTER TABLE groups ADD CONSTRAINT late UNIQUE (name) DEFERRABLE INITIALLY DEFERRED;"
            "ALTER TABLE groups DROP CONSTRAINT groups_name_key"
        )
    operations = [add("parent", {"name": "p"}), add("group", {"name": "rowers"}), add("child", {"name": "c"})]
    groups = [add("group", {"name": name}) for name in ("rowers", *"abcdefghij")]
    for sent, pointer in ((operations, "/atomic:operations/1"), (groups, "/atomic:operations")):
        for media_type in (MEDIA_TYPE, EXTENDED):
            async with unchanged(api):
                answer = await operate(api, *sent, media_type=media_type)
            assert answer.status == (409 if media_type == EXTENDED else 422), answer.body
        assert answer.errors[0]["source"]["pointer"].startswith(pointer)


async def test_a_create_that_a_trigger_cancels(api: Api) -> None:
    """If several creates are one statement, none of them is written."""
    await create_household(api)
    async with session(api) as connection:
        await connection.execute(KEEPING_OUT)
    first = add("parent", {"name": "p"})
    for before, names in (([first], ["kept out", "c"]), ([first], ["c", "kept out"]), ([], ["c"] * 11 + ["kept out"])):
        operations = [*before, *(add("child", {"name": name}) for name in names)]
        async with unchanged(api):
            answer = await operate(api, *operations, media_type=EXTENDED)
        assert answer.status == 409, answer.body
        place = len(before) + names.index("kept out")
        assert answer.errors[0]["source"]["pointer"].startswith(f"/atomic:operations/{place}")
    assert (await operate(api, add("parent", {"name": "p"}), add("child", {"name": "c"}))).status == 200


async def test_a_fault_has_no_internal_details(api: Api) -> None:
    """A fault is a 500 in the usual form, and everything is rolled back."""
    await create_household(api)
    async with session(api) as connection:
        await connection.execute(
            "CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN EXECUTE 'no column'; END$$;"
            " CREATE TRIGGER broken BEFORE INSERT ON children FOR EACH ROW EXECUTE FUNCTION broken()"
        )
    for media_type in (MEDIA_TYPE, EXTENDED):
        async with unchanged(api):
            answer = await operate(
                api, add("parent", {"name": "p"}), add("child", {"name": "c"}), media_type=media_type
            )
        assert (answer.status, answer.headers["Content-Type"]) == (500, MEDIA_TYPE)
        assert [each["code"] for each in answer.errors] == ["internal_error"]
        assert b"broken" not in answer.body
        assert b"column" not in answer.body


async def test_links_of_an_operation_are_rolled_back_too(api: Api) -> None:
    await create_household(api)
    operations = [
        link("add", "user", "computers", of("computer", "3", "4"), id="1"),
        link("update", "user", "group", None, id="1"),
        link("remove", "user", "computers", of("computer", "1"), id="1"),
        remove("person", id="9"),
    ]
    async with unchanged(api):
        assert (await operate(api, *operations, media_type=EXTENDED)).status == 404
