"""Limits of statements if PostgreSQL does not enforce them: a backend that does not check its timeout, and a role that
may not set its own limit."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import asyncpg
import psutil  # type: ignore[import-untyped]  # it has no hints of its own
import pytest

from server.postgres.temp_files import check_temp_file_limit
from server.settings import Settings
from tests.faults.conftest import Serve, Shop
from tests.waiting import until

pytestmark = pytest.mark.alone

MIB = 2**20
SLOW: dict[str, Any] = {"network_timeout_seconds": 20.0, "acquire_timeout_seconds": 20.0}


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        (SLOW | {"statement_timeout_seconds": 0.5}, "/groups"),
        (SLOW | {"statement_timeout_seconds": 20.0, "filter_timeout_seconds": 0.5}, "/groups?filter[name]=x"),
    ],
)
async def test_a_backend_that_ignores_its_timeout(
    shop: Shop, serve_fast: Serve, settings: dict[str, Any], path: str
) -> None:
    """As one that compiles a regular expression. The client gets its answer in time, and the connection is given up."""
    api = await serve_fast(shop.url, **settings)
    holder = await asyncpg.connect(shop.url)
    waiting = "SELECT pid FROM pg_stat_activity WHERE datname = $1 AND wait_event_type = 'Lock'"
    await holder.execute("BEGIN; LOCK TABLE groups IN ACCESS EXCLUSIVE MODE")
    begin = time.monotonic()
    asked = asyncio.ensure_future(api.get(path))
    [(pid,)] = await until(lambda: shop.cluster.run(waiting, shop.database))
    backend = psutil.Process(pid)
    backend.suspend()
    try:
        answer = await asked
        taken = time.monotonic() - begin
    finally:
        backend.resume()
        await holder.close()
    assert (answer.status, answer.document["errors"][0]["code"]) == (504, "statement_timeout")
    assert taken < 0.5 + 1.0 + 1.5
    assert (await api.get("/groups")).status == 200


@pytest.mark.parametrize("pooler", ["none", "transaction"])
async def test_a_role_that_may_not_limit_its_temporary_files(clerk: Shop, serve_fast: Serve, pooler: Any) -> None:
    """The server answers requests, and logs the statement that has to be run."""
    settings = Settings(temp_file_limit_bytes=10 * MIB, pooler=pooler)
    if pooler == "none":
        api = await serve_fast(clerk.url, temp_file_limit_bytes=10 * MIB)
        assert [(await api.get(path)).status for path in ("/groups", "/-/ready")] == [200, 200]
    assert await told(clerk, settings) == (
        "temp_file_limit_bytes has no effect: the role may not set temp_file_limit, or a pooler is in use. "
        "As a superuser run: ALTER ROLE clerk SET temp_file_limit = '10240kB';"
    )
    assert await told(clerk, Settings()) is None
    await clerk.cluster.run("ALTER ROLE clerk SET temp_file_limit = '10240kB'")
    assert await told(clerk, settings) is None


async def test_a_role_that_may_limit_its_temporary_files(clerk: Shop, serve_fast: Serve) -> None:
    await clerk.cluster.run("GRANT SET ON PARAMETER temp_file_limit TO clerk")
    try:
        assert await told(clerk, Settings(temp_file_limit_bytes=10 * MIB)) is None
        api = await serve_fast(clerk.url, temp_file_limit_bytes=10 * MIB)
        async with api.app.database.connection() as connection:
            assert await connection.fetchval("SHOW temp_file_limit") == "10MB"
            # The session is reset after custom code, and the limit stays.
            await connection.execute("RESET ALL")
            assert await connection.fetchval("SHOW temp_file_limit") == "10MB"
    finally:
        await clerk.cluster.run("REVOKE SET ON PARAMETER temp_file_limit FROM clerk")


async def told(shop: Shop, settings: Settings) -> str | None:
    connection = await asyncpg.connect(shop.url)
    try:
        return await check_temp_file_limit(connection, settings)
    finally:
        await connection.close()
