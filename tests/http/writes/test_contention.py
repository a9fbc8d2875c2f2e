"""Section 6 of the decisions: writes that conflict are retried a limited number of times."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.http.conftest import Api
from tests.http.expected import error
from tests.http.operating import session, until_blocked_by
from tests.http.people import create_household, document, linked, of
from tests.waiting import until

BUSY = error(503, "busy", "Busy", "Other writes were in the way; try again.")
SECONDS = 60.0


async def until_deadlocks(watcher: Any, count: int) -> None:
    """Wait until the statistics show them. A backend reports its own ten seconds after it became idle, or at its end,
    so those of the server are terminated."""
    of_the_server = "datname = current_database() AND application_name = 'waterspout'"
    await watcher.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {of_the_server}")
    statement = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    await until(lambda: watcher.fetchval(statement), lambda found: found >= count)


def renaming(name: str, *ids: str) -> dict[str, Any]:
    """Return a request that renames persons in this order."""
    data = [{"type": "person", "id": one, "attributes": {"name": name}} for one in ids]
    return {"atomic:operations": [{"op": "update", "data": one} for one in data]}


async def test_two_requests_in_a_deadlock_are_both_answered(api: Api) -> None:
    """The first deletes user 1 with its post 1, and then the owner of computers 1 and 2, in this order. The test holds
    computer 1 until the second has computer 2 and waits for post 1."""
    await create_household(api)
    moved = linked(computers=of("computer", "2"), posts=of("post", "1"))
    async with session(api) as holder, session(api) as watcher:
        await holder.execute("BEGIN; SELECT FROM computers WHERE id = 1 FOR UPDATE")
        first = asyncio.ensure_future(api.request("DELETE", "/users/1"))
        first_pid = await until_blocked_by(watcher, holder.get_server_pid())
        second = asyncio.ensure_future(api.patch("/users/2", document("user", id="2", relationships=moved)))
        await until_blocked_by(watcher, first_pid)
        await holder.execute("COMMIT")
        answers = await asyncio.gather(first, second)
        await until_deadlocks(watcher, 1)
    # The one that was rolled back was retried after the other.
    left = [row["owner_id"] for row in await api.sql("SELECT owner_id FROM computers WHERE id IN (1, 2) ORDER BY id")]
    found = [answer.status for answer in answers], left
    assert found in (([200, 200], [None, 2]), ([200, 404], [None, None])), answers


FAILING = """
    CREATE SEQUENCE attempts;
    CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        -- What a sequence has given away stays so when the transaction is rolled back.
        IF nextval('attempts') <= {failures} THEN
            RAISE EXCEPTION 'in the way' USING ERRCODE = '{state}';
        END IF;
        RETURN NEW;
    END $$;
    CREATE TRIGGER fail BEFORE UPDATE ON computers FOR EACH ROW EXECUTE FUNCTION fail();
"""
ONE_STATEMENT = ("/computers/3", document("computer", {"name": "changed"}, id="3"))
TRANSACTION = ("/users/1", document("user", id="1", relationships=linked(computers=of("computer", "1", "2", "4"))))
STATES = pytest.mark.parametrize("state", ["deadlock_detected", "serialization_failure"])
WRITES = pytest.mark.parametrize(("path", "change"), [ONE_STATEMENT, TRANSACTION], ids=["one statement", "transaction"])


async def make_fail(api: Api, failures: int, state: str) -> None:
    """Let the first writes of computers fail."""
    await create_household(api)
    async with session(api) as connection:
        await connection.execute(FAILING.format(failures=failures, state=state))


async def attempts(api: Api) -> int:
    return int((await api.sql("SELECT last_value FROM attempts"))[0][0])


@STATES
@WRITES
async def test_two_failures_are_not_reported(api: Api, path: str, change: Any, state: str) -> None:
    await make_fail(api, 2, state)
    assert (await api.patch(path, change)).status == 200
    assert await attempts(api) == 3


@STATES
@WRITES
async def test_after_three_failures_it_is_busy(api: Api, path: str, change: Any, state: str) -> None:
    await make_fail(api, 3, state)
    before = await api.sql("SELECT * FROM computers ORDER BY id")
    answer = await api.patch(path, change)
    assert (answer.status, answer.errors, answer.headers["Retry-After"]) == (503, [BUSY], "1")
    assert await attempts(api) == 3
    assert await api.sql("SELECT * FROM computers ORDER BY id") == before
    assert (await api.patch(path, change)).status == 200


async def test_the_same_rows_in_different_orders_are_no_deadlock(api: Api) -> None:
    """Three deadlocks in a row would be a 503, and each would take its time."""
    for name in ("a", "b", "c", "d"):
        await api.create("/persons", "person", {"name": name})
    orders = [("1", "2", "3", "4"), ("4", "3", "2", "1"), ("3", "1", "4", "2")] * 20
    async with asyncio.timeout(SECONDS):
        answers = await asyncio.gather(*[api.post("/operations", renaming("x", *ids)) for ids in orders])
    assert {answer.status for answer in answers} == {200}
