"""The limits of a read with a filter: its time, and its temporary files."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import asyncpg
import pytest

from server.resources import built_in
from tests.http.conftest import Start
from tests.http.expected import error
from tests.http.operating import locked
from tests.http.running.test_metrics import scrape
from tests.http.streams import create_many, small_batches
from waterspout import CustomHandler

__all__ = ["small_batches"]

LATE = error(504, "statement_timeout", "Statement Timeout", "The database took too long over this filter.")
EXPENSIVE = error(
    400,
    "too_expensive",
    "Too Expensive",
    "The database would need too much room on disk for this request: ask for less at once.",
)


@pytest.mark.parametrize(
    "path",
    ["/groups?filter[name]=x", "/groups?filter[name]=x&include=users", "/groups?filter[name]=x&page[total]=none"],
)
async def test_a_read_with_a_filter_has_its_own_timeout(start: Start, database_url: str, path: str) -> None:
    """Other reads have the timeout of statements. The connection is kept."""
    api = await start(database_url, built_in(), filter_timeout_seconds=0.2, statement_timeout_seconds=20.0)
    async with locked(api, "groups"):
        other = asyncio.ensure_future(api.get("/groups"))
        begin = time.monotonic()
        answers = [await api.get(path) for _ in range(3)]
        assert time.monotonic() - begin < 10
        assert [(answer.status, answer.errors) for answer in answers] == [(504, [LATE])] * 3
        assert not other.done()
    assert (await other).status == 200
    assert (await api.get(path)).status == 200
    assert (await scrape(api))["pool_connections_opened_total"][()] <= 2


async def test_a_stream_with_a_filter_has_its_own_timeout(start: Start, database_url: str, small_batches: None) -> None:
    api = await start(database_url, built_in(), filter_timeout_seconds=0.3, statement_timeout_seconds=20.0)
    await create_many(api, 9, 9)
    path = "/users?page[size]=0&include=computers&filter[id][le]=9"
    assert (await api.get(path)).status == 200
    async with locked(api, "computers"):
        assert (await api.get(path)).status == 504


async def test_a_filter_without_its_own_timeout(start: Start, database_url: str) -> None:
    api = await start(database_url, built_in(), statement_timeout_seconds=0.2)
    async with locked(api, "groups"):
        answer = await api.get("/groups?filter[name]=x")
    detail = "The database took too long over this request."
    assert (answer.status, answer.errors) == (504, [error(504, "statement_timeout", "Statement Timeout", detail)])


SORTED = "SELECT repeat('x', 250) || n FROM generate_series(1, 20000) n ORDER BY 1 OFFSET 15000 LIMIT 1"


class Sorting(CustomHandler):
    """Sorts more rows than fit into memory."""

    async def get(self) -> None:
        async def work(connection: Any) -> str:
            await connection.execute("SET LOCAL work_mem = '64kB'")
            found: str = await connection.fetchval(SORTED)
            return found

        self.finish(str(len(await self.database.read(work))))


async def test_too_large_temporary_files(start: Start, database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    may_set = await connection.fetchval("SELECT has_parameter_privilege('temp_file_limit', 'SET')")
    await connection.close()
    if not may_set:
        pytest.skip("needs GRANT SET ON PARAMETER temp_file_limit")
    limited = await start(database_url, built_in(), [("/sorting", Sorting)], temp_file_limit_bytes=65_536)
    refused = await limited.get("/sorting")
    assert (refused.status, refused.errors) == (400, [EXPENSIVE])
    assert (await limited.get("/groups")).status == 200
    without = await start(database_url, built_in(), [("/sorting", Sorting)])
    assert (await without.get("/sorting")).status == 200
