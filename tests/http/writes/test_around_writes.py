"""What belongs to a request besides its writes runs in their transaction, before the first and after the last, on every
route that writes. It gets the answer as it is sent. The server has nothing of this kind yet, so the tests add it."""

from __future__ import annotations

from typing import Any

import pytest

from server.errors import Conflict
from server.execution.writes.reply import Reply
from server.handlers.writing import WritingHandler
from server.postgres.connection import PostgresConnection
from tests.http.conftest import Api
from tests.http.operating import add
from tests.http.people import ADA, create_household, linked, of, select, user
from tests.http.reads.test_functions import as_ann, films, functions_url
from tests.http.writes.test_preconditions import ROWS, WRITES, operations

__all__ = ["films", "functions_url"]

CREATES: list[tuple[str, str, Any]] = [
    ("POST", "/users", user()),
    ("POST", "/users", user(computers=of("computer", "1"))),
    ("POST", "/groups/1/users", user()),
    ("POST", "/operations", operations(*[add("user", ADA) for _ in range(3)])),
    ("POST", "/operations", operations(*[add("user", ADA) for _ in range(12)])),
    (
        "POST",
        "/operations",
        operations(
            add("user", ADA, lid="a"),
            add("computer", {"name": "new"}, relationships=linked(owner={"type": "user", "lid": "a"})),
        ),
    ),
]
EVERY = pytest.mark.parametrize(("method", "path", "sent"), [*WRITES, *CREATES])


class Recorded:
    """Writes a row at the begin and at the end of each transaction. refuses: at which of the two it raises instead."""

    is_one_statement = False

    def __init__(self, refuses: str = "") -> None:
        self.refuses = refuses
        self.replies: list[Reply] = []

    async def begin(self, connection: PostgresConnection) -> None:
        await self._write(connection, "begin")

    def refused(self) -> Exception | None:
        return None

    async def end(self, connection: PostgresConnection, reply: Reply) -> None:
        self.replies.append(reply)
        await self._write(connection, "end")

    async def _write(self, connection: PostgresConnection, what: str) -> None:
        if self.refuses == what:
            raise Conflict("refused")
        await connection.execute("INSERT INTO around VALUES ($1, pg_current_xact_id()::text)", what)


async def record(api: Api, monkeypatch: pytest.MonkeyPatch, recorded: Recorded) -> Recorded:
    await api.sql("CREATE TABLE around (what text, transaction text)")
    monkeypatch.setattr(WritingHandler, "around", recorded)
    return recorded


async def around(api: Api) -> list[tuple[str, str]]:
    return [tuple(row) for row in await api.sql("SELECT what, transaction FROM around")]


@EVERY
async def test_in_the_transaction_of_the_writes(
    api: Api, monkeypatch: pytest.MonkeyPatch, method: str, path: str, sent: Any
) -> None:
    await create_household(api)
    before = await select(api, ROWS)
    recorded = await record(api, monkeypatch, Recorded())
    answer = await api.request(method, path, sent)
    assert answer.status in (200, 201, 204), answer.body
    assert await select(api, ROWS) != before
    [(first, transaction), (last, same)] = await around(api)
    assert (first, last, transaction) == ("begin", "end", same)
    [reply] = recorded.replies
    assert (reply.status, reply.document or b"", reply.location) == (
        answer.status,
        answer.body,
        answer.headers.get("Location", ""),
    )


@pytest.mark.parametrize("refuses", ["begin", "end"])
@EVERY
async def test_a_refusal_undoes_the_writes(
    api: Api, monkeypatch: pytest.MonkeyPatch, method: str, path: str, sent: Any, refuses: str
) -> None:
    await create_household(api)
    before = await select(api, ROWS)
    recorded = await record(api, monkeypatch, Recorded(refuses))
    answer = await api.request(method, path, sent)
    assert (answer.status, b"refused" in answer.body) in ((409, True), (422, True)), answer.body
    assert await select(api, ROWS) == before
    assert await around(api) == []
    recorded.refuses = ""
    assert (await api.request(method, path, sent)).status in (200, 201, 204)


@pytest.mark.parametrize(("path", "meta"), [("/add-film", {"title": "e", "year": 1}), ("/copy-films", {"n": 1})])
async def test_a_function_that_writes(
    films: Api, monkeypatch: pytest.MonkeyPatch, path: str, meta: dict[str, Any]
) -> None:
    """A value, and resources."""
    recorded = await record(films, monkeypatch, Recorded("end"))
    count = "SELECT count(*) FROM films"
    before = await films.sql(count)
    refused = await films.request("POST", path, {"meta": meta}, headers=as_ann())
    assert (refused.status, await films.sql(count)) == (409, before)
    recorded.refuses = ""
    answer = await films.request("POST", path, {"meta": meta}, headers=as_ann())
    assert (answer.status, recorded.replies[-1].document) == (200, answer.body)
    assert [what for what, _ in await around(films)] == ["begin", "end"]
    assert await films.sql(count) != before
