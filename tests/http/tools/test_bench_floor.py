"""The benchmark's floors answer what the server answers, byte for byte, and write the same rows."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote
from urllib.request import urlopen

import asyncpg
import pytest
from tornado.netutil import bind_sockets

from bench.floor.__main__ import opened
from bench.requests import DEEP_OFFSET, REQUESTS, USERS, Request, rendered
from bench.rows import fingerprint, keep_copies, load_rows, make_users, restore
from server.resources import built_in
from tests.conftest import on_server, with_database
from tests.http.conftest import Answer, Api, Start
from tests.waiting import until

Result = TypeVar("Result")
ROOT = Path(__file__).parents[3]
NUMBER = 4_000_000
"""The number of the first request that writes."""

BOTH = pytest.mark.parametrize("is_plain", [False, True], ids=["sharpest", "plain"])
IS_WAITING = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@pytest.fixture(scope="module")
def bench_url(postgres_url: str, template: str) -> Iterator[str]:
    """Yield the URL of a database with the rows of the benchmark, for all tests of this module. Tests that write
    restore it."""
    name = f"waterspout_bench_{os.getpid()}"
    url = with_database(postgres_url, name)
    on_server(postgres_url, f"DROP DATABASE IF EXISTS {name}", f"CREATE DATABASE {name} TEMPLATE {template}")

    async def fill(connection: asyncpg.Connection[Any]) -> None:
        await load_rows(connection, USERS)
        await keep_copies(connection)

    asyncio.run(connected(url, fill))
    yield url
    on_server(postgres_url, f"DROP DATABASE {name} WITH (FORCE)")


async def connected(url: str, work: Callable[[asyncpg.Connection[Any]], Awaitable[Result]]) -> Result:
    connection = await asyncpg.connect(url)
    try:
        return await work(connection)
    finally:
        await connection.close()


@asynccontextmanager
async def floor_on(url: str, pool_size: int = 4, *, is_plain: bool = False) -> AsyncIterator[Api]:
    connections, server = await opened(url, pool_size, is_plain=is_plain)
    sockets = bind_sockets(0, "127.0.0.1")
    server.add_sockets(sockets)
    api = Api(sockets[0].getsockname()[1], url)
    try:
        yield api
    finally:
        await api.close()
        server.stop()
        await server.close_all_connections()
        await connections.close()


async def sent(api: Api, request: Request, number: int = 1, cursor: str = "") -> Answer:
    path, body = rendered(request, number, cursor)
    headers = {"Content-Type": "application/vnd.api+json"} if body else {}
    return await api.request(request.method, path, headers=headers, body=body or None)


def shown(answer: Answer) -> tuple[int, str | None, str | None, bytes]:
    headers = answer.headers
    return answer.status, headers.get("Content-Type"), headers.get("Location"), answer.body


async def cursor_at(server: Api, offset: int) -> str:
    """Return the cursor of the row before this one in the order of ids, from the server."""
    cursor = ""
    for _ in range(10):
        page = await server.get(f"/computers?page[size]={offset // 10}&page[after]={cursor}&fields[computer]=")
        cursor = unquote(page.document["links"]["next"].partition("page%5Bafter%5D=")[2])
    return cursor


@pytest.mark.parametrize("request_", [one for one in REQUESTS if not one.writes], ids=lambda one: one.name)
async def test_reads(start: Start, bench_url: str, request_: Request) -> None:
    server = await start(bench_url, built_in())
    cursor = await cursor_at(server, DEEP_OFFSET) if request_.has_cursor else ""
    expected = await sent(server, request_, cursor=cursor)
    assert expected.status == 200
    assert expected.document["data"]
    for is_plain in (False, True):
        async with floor_on(bench_url, is_plain=is_plain) as floor:
            assert shown(await sent(floor, request_, cursor=cursor)) == shown(expected), is_plain


@pytest.mark.parametrize("request_", [one for one in REQUESTS if one.writes], ids=lambda one: one.name)
async def test_writes(start: Start, bench_url: str, loaded: str, request_: Request) -> None:
    """The writes run one after the other, on the same rows and with the same next ids."""
    server = await start(bench_url, built_in())
    try:
        expected, written = await written_by(server, request_)
        assert expected.status in (200, 201), expected.body
        assert written != loaded
        for is_plain in (False, True):
            async with floor_on(bench_url, is_plain=is_plain) as floor:
                answer, rows = await written_by(floor, request_)
            assert shown(answer) == shown(expected), is_plain
            assert rows == written, is_plain
    finally:
        await connected(bench_url, restore)


@pytest.fixture(scope="module")
def loaded(bench_url: str) -> str:
    """Return the contents of the tables."""
    return asyncio.run(connected(bench_url, fingerprint))


async def written_by(api: Api, request: Request) -> tuple[Answer, str]:
    """Return the answer, and the contents of the tables after it."""
    await connected(api.database_url, restore)
    if request.name == "delete":
        # Create two and delete one. Otherwise the rows would equal the loaded ones.
        await connected(api.database_url, lambda connection: make_users(connection, NUMBER, 2))
    answer = await sent(api, request, NUMBER)
    return answer, await connected(api.database_url, fingerprint)


@BOTH
async def test_a_replacement_waits_for_another(bench_url: str, is_plain: bool) -> None:
    """Then it replaces the links that the other one has left."""
    other = await asyncpg.connect(bench_url)
    async with floor_on(bench_url, is_plain=is_plain) as floor:
        try:
            async with other.transaction():
                await other.execute("SELECT FROM users WHERE id = 7 FOR NO KEY UPDATE")
                waiting = asyncio.ensure_future(replaced(floor, [4, 5, 6]))
                await until(lambda: floor.sql(IS_WAITING))
                assert not waiting.done()
                await other.execute("UPDATE computers SET owner_id = 7 WHERE id IN (1, 2, 3)")
            assert (await waiting).status == 200
            rows = await floor.sql("SELECT id FROM computers WHERE owner_id = 7 ORDER BY id")
            assert [row["id"] for row in rows] == [4, 5, 6]
        finally:
            await other.close()
            await connected(bench_url, restore)


async def replaced(api: Api, ids: list[int]) -> Answer:
    data = [{"type": "computer", "id": str(own)} for own in ids]
    return await api.patch("/users/7/relationships/computers", {"data": data})


@BOTH
async def test_a_replacement_is_atomic(bench_url: str, is_plain: bool) -> None:
    async with floor_on(bench_url, pool_size=1, is_plain=is_plain) as floor:
        before = await connected(bench_url, fingerprint)
        assert (await replaced(floor, [1, 99_999_999])).status == 404
        assert await connected(bench_url, fingerprint) == before
        assert (await floor.get("/users/7")).status == 200


@BOTH
async def test_the_connection_of_a_departed_client_is_released(bench_url: str, is_plain: bool) -> None:
    async with floor_on(bench_url, pool_size=1, is_plain=is_plain) as floor:
        reader, writer = await asyncio.open_connection("127.0.0.1", floor.port)
        writer.write(b"GET /users?page%5Bsize%5D=0&page%5Btotal%5D=none HTTP/1.1\r\nHost: floor\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()
        assert (await floor.get("/users/4711")).status == 200


@BOTH
async def test_a_connection_that_broke_is_replaced(bench_url: str, is_plain: bool) -> None:
    async with floor_on(bench_url, pool_size=1, is_plain=is_plain) as floor:
        assert (await floor.get("/users/4711")).status == 200
        await floor.sql(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        statuses = [(await floor.get("/users/4711")).status for _ in range(2)]
        assert statuses[-1] == 200


@BOTH
async def test_missing_resources(bench_url: str, is_plain: bool) -> None:
    change = {"data": {"type": "user", "id": "99999999", "attributes": {"age": 1, "email": None}}}
    async with floor_on(bench_url, is_plain=is_plain) as floor:
        statuses = [
            (await floor.get("/users/99999999")).status,
            (await floor.patch("/users/99999999", change)).status,
            (await floor.delete("/users/99999999")).status,
            (await floor.get("/nothing")).status,
        ]
    assert statuses == [404, 404, 404, 404]


def test_the_plain_floor_logs_each_request(bench_url: str) -> None:
    """It logs to standard error, like the server."""
    command = [sys.executable, "-m", "bench.floor", "--plain", "--database-url", bench_url, "--pool-size", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        url = process.stdout.readline().rpartition(" ")[2].strip()
        with urlopen(f"{url}/users/4711") as answer:
            assert answer.status == 200
            assert "Etag" not in answer.headers
        process.terminate()
        _, logged = process.communicate(timeout=60)
    assert [line for line in logged.splitlines() if "200 GET /users/4711" in line]


def test_the_floor_does_not_import_the_server() -> None:
    asked = "import sys, bench.floor.__main__; print(*{name.partition('.')[0] for name in sys.modules})"
    ran = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True, cwd=ROOT)
    assert not {"server", "querybuild", "serializers", "migrations", "pypika"} & set(ran.stdout.split())
