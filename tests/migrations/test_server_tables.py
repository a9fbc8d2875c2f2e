"""The tables of the server itself: applied where `idempotency` is on, beside the files of the user."""

from __future__ import annotations

from typing import Any

import pytest

from tests.migrations.test_commands import run
from tests.migrations.test_script import psql

TABLES = "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace('waterspout') AND relkind = 'r' ORDER BY 1"


FILES = ["0001_idempotency_keys.sql", "0002_keys_by_index.sql"]


@pytest.fixture
def on(database: str) -> Any:
    return lambda *arguments: run(*arguments, "--database-url", database)


async def test_only_where_it_is_on(on: Any, connect: Any, database: str) -> None:
    connection = await connect(database)
    assert on("migrate", "up")[0] == 0
    assert await connection.fetch(TABLES) == []
    code, out, _ = on("migrate", "status", "--check", "--idempotency", "on")
    assert (code, out.splitlines()[-2:]) == (1, [f"pending  waterspout/{name}" for name in FILES])
    code, out, _ = on("migrate", "up", "--idempotency", "on")
    assert (code, out.splitlines()) == (0, [f"applied {name}" for name in FILES])
    assert [row[0] for row in await connection.fetch(TABLES)] == ["idempotency_keys", "migrations"]
    assert on("migrate", "up", "--idempotency", "required")[1] == "nothing to apply\n"
    assert on("migrate", "verify", "--idempotency", "on")[1] == "5 applied files of 5 as on disk\n"
    assert on("migrate", "status", "--check", "--idempotency", "on")[0] == 0


async def test_a_script_for_psql(on: Any, connect: Any, database: str) -> None:
    connection = await connect(database)
    code, script, _ = on("migrate", "up", "--dry-run", "--idempotency", "on")
    assert (code, await connection.fetch(TABLES)) == (0, [])
    psql(database, script)
    assert on("migrate", "status", "--check", "--idempotency", "on")[0] == 0
    assert on("check", "--idempotency", "on")[0] == 0


def test_the_server_does_not_start_without_its_tables(on: Any) -> None:
    assert on("migrate", "up")[0] == 0
    code, _, errors = on("serve", "--port", "0", "--idempotency", "on")
    assert (code, f"waterspout/{FILES[0]}, waterspout/{FILES[1]} not applied" in errors) == (1, True)
    assert "run `waterspout migrate up`, or add --migrate" in errors
    code, out, _ = on("check", "--idempotency", "on")
    assert (code, f"pending   waterspout/{FILES[0]} is not applied" in out) == (0, True)


async def test_a_key_is_found_by_the_index(on: Any, connect: Any, database: str) -> None:
    """Also in a session that has claimed its first keys when the table was empty, and keeps the plan of these."""
    connection = await connect(database)
    assert on("migrate", "up", "--idempotency", "on")[0] == 0
    await connection.execute("ALTER TABLE waterspout.idempotency_keys SET (autovacuum_enabled = off)")
    await connection.execute("VACUUM ANALYZE waterspout.idempotency_keys")
    scans = "SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'idempotency_keys'"
    for number in range(20):
        if number == 10:
            await connection.execute(
                "INSERT INTO waterspout.idempotency_keys "
                "SELECT n::text, '', '', '', '', '', '', 200, '', '', '', false, NULL FROM generate_series(1, 5000) n"
            )
            await connection.execute("SELECT pg_stat_force_next_flush()")
            before = await connection.fetchval(scans)
        await connection.execute("SELECT waterspout.claim_key($1, 24)", f"key {number}")
    await connection.execute("SELECT pg_stat_force_next_flush()")
    assert await connection.fetchval(scans) == before


async def test_lacking_privileges(on: Any, connect: Any, database: str) -> None:
    connection = await connect(database)
    assert on("migrate", "up", "--idempotency", "on")[0] == 0
    role = await connection.fetchval("SELECT current_user")
    await connection.execute(f"REVOKE UPDATE, DELETE ON waterspout.idempotency_keys FROM {role}")
    for command in (("check",), ("serve", "--port", "0")):
        code, out, errors = on(*command, "--idempotency", "on")
        said = " ".join((out + errors).split())
        assert (code, f"the role {role} lacks UPDATE, DELETE on waterspout.idempotency_keys" in said) == (1, True)
        assert f"GRANT SELECT, INSERT, UPDATE, DELETE ON waterspout.idempotency_keys TO {role};" in said


async def test_inspect_leaves_them_out(on: Any, connect: Any, database: str) -> None:
    connection = await connect(database)
    assert on("migrate", "up", "--idempotency", "on")[0] == 0
    code, out, errors = on("inspect")
    assert (code, "idempotency" in out, "2 server tables" in errors) == (0, False, True)
    await connection.execute("DROP TABLE waterspout.idempotency_keys")
    code, _, errors = on("serve", "--port", "0", "--idempotency", "on")
    assert (code, "the table waterspout.idempotency_keys is missing" in errors) == (1, True)
