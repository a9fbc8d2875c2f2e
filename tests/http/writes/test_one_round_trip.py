"""Statements that are sent in one round trip are one transaction, whatever the driver does in between. The next write
is sent before the answer to the last one."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from server.handlers.base import Handler
from server.postgres.connection import SYNC, PostgresConnection
from server.postgres.opening import open_database
from server.resources import built_in
from server.settings import Settings
from tests.http.conftest import Api, Start
from tests.http.operating import locked
from tests.http.people import create_household, of, select
from tests.waiting import until

LINKED = "SELECT id FROM computers WHERE owner_id = 1 ORDER BY id"


@pytest.mark.parametrize("room", [1, 3, 5])
async def test_the_driver_closes_statements_to_make_room(
    start: Start, database_url: str, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """A Sync in between would commit the removal of links, although their replacement is refused."""
    monkeypatch.setattr("server.postgres.opening.PREPARED_STATEMENTS", room)
    api = await start(database_url, built_in(), pool_size=1)
    await create_household(api)
    await api.sql(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN IF NEW.owner_id IS NOT NULL THEN RAISE 'no'; END IF; RETURN NEW; END $$"
    )
    await api.sql("CREATE TRIGGER refuse BEFORE UPDATE ON computers FOR EACH ROW EXECUTE FUNCTION refuse()")
    for _ in range(2):
        answer = await api.patch("/users/1/relationships/computers", {"data": of("computer", "3", "4")})
        assert (answer.status, await select(api, LINKED)) == (422, [(1,), (2,)])


async def test_a_refused_value_rolls_back_what_was_pipelined(api: Api) -> None:
    await create_household(api)
    database = await open_database(api.database_url, Settings(), 1)
    update, last = "UPDATE computers SET owner_id = NULL WHERE owner_id = $1", "SELECT $1::int4"
    try:
        async with database.connection() as connection:
            await connection.describe([update, last])
            await connection.pipeline(update, [1])
            with pytest.raises(asyncpg.DataError):
                await connection.fetchval(last, "x")
            await connection.execute(SYNC)
            assert not connection.is_in_transaction()
            assert await select(api, LINKED) == [(1,), (2,)]
    finally:
        await database.close()


async def test_the_next_write_is_sent_before_an_answer_is_encoded(
    start: Start, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL would have nothing to do meanwhile."""
    api = await start(database_url, built_in(), pool_size=1)
    events: list[str] = []
    fetchrow, finish_document = PostgresConnection.fetchrow, Handler.finish_document

    async def recorded_fetchrow(connection: PostgresConnection, query: str, *values: Any, **options: Any) -> Any:
        events.append("statement")
        return await fetchrow(connection, query, *values, **options)

    def recorded_finish(handler: Handler, *values: Any, **options: Any) -> None:
        events.append("answer")
        finish_document(handler, *values, **options)

    async with locked(api, "groups"):
        monkeypatch.setattr(PostgresConnection, "fetchrow", recorded_fetchrow)
        monkeypatch.setattr(Handler, "finish_document", recorded_finish)
        groups = [{"data": {"type": "group", "attributes": {"name": name}}} for name in ("first", "second")]
        waiting = [asyncio.ensure_future(api.post("/groups", group)) for group in groups]
        await until(lambda: api.app.database.pool_figures().waiting, lambda count: count == 1)
    assert [answer.status for answer in await asyncio.gather(*waiting)] == [201, 201]
    assert events == ["statement", "statement", "answer", "answer"]
