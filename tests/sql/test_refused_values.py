"""Some values pass the server's own checks and PostgreSQL still refuses them. The SQLSTATE is then of class 22, which
is answered as a refused value and never as a fault."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest
from tornado.ioloop import IOLoop

from querybuild.sql.select import compile_read
from querybuild.sql.writes.modify import compile_write
from tests.planning import create, filter_query, read_collection

BODIES: list[tuple[str, Any]] = [
    ("short", "x" * 11),
    ("fixed", "x" * 7),
    ("price", 99999999999),
    ("price", "1e131071"),
]

FILTERS: list[tuple[str, str, Any]] = [
    ("words", "match", "("),
    ("words", "match", "a{1000}"),
    ("words", "match", "\\"),
]

TAKEN: list[tuple[str, Any]] = [
    ("exact", "1e131071"),
    ("exact", "1e-16383"),
    ("exact", "9" * 131072),
    ("tree", {"a": [float("1e300"), "x" * 100_000]}),
    ("fixed", "x     "),
    ("single", 1e-60),
]


@pytest.fixture
def connection(io_loop: IOLoop, corner_url: str) -> Any:
    connection = io_loop.run_sync(lambda: asyncpg.connect(corner_url))
    yield connection
    io_loop.run_sync(connection.close)


async def insert(connection: Any, name: str, value: Any) -> None:
    written = create("sample", {"attributes": {name: value}})
    statement = compile_write(written.plan).row
    assert statement is not None
    await connection.execute(statement.sql, *written.values)


async def refusal(work: Any) -> str:
    """Return the class of the SQLSTATE. An error of asyncpg's own checks has class 22 too."""
    try:
        await work
    except asyncpg.DataError as error:
        return (error.sqlstate or "22")[:2]
    except asyncpg.PostgresError as error:
        return str(error.sqlstate)
    return ""


async def test_bodies(connection: Any) -> None:
    found = [(name, value, await refusal(insert(connection, name, value))) for name, value in BODIES]
    assert found == [(name, value, "22") for name, value in BODIES]


async def test_filters(connection: Any) -> None:
    await connection.execute("INSERT INTO corner.samples (words, span) VALUES ('a', '1 day')")
    found = []
    for name, op, value in FILTERS:
        planned = read_collection("sample", filter_query([{"name": name, "op": op, "val": value}]) + "&page[size]=0")
        sql = compile_read(planned.plan).primary.sql
        found.append((name, op, value, await refusal(connection.fetch(sql, *planned.values))))
    assert found == [(name, op, value, "22") for name, op, value in FILTERS]


async def test_extreme_values_are_accepted(connection: Any) -> None:
    found = [(name, await refusal(insert(connection, name, value))) for name, value in TAKEN]
    assert found == [(name, "") for name, _ in TAKEN]
