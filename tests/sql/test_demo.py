"""The demo rows: what they contain, and that they are inserted completely and only once, into an empty database."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import date
from typing import Any

import asyncpg
import msgspec
import pytest

from querybuild.declarations.resource import Attribute, Resource, ToOne
from querybuild.planning.changes import read_attribute
from server.resources import RESOURCES
from server.resources.demo import AS_OF, demo_rows, load_demo
from tests.waiting import until

COUNTS = {
    "groups": 6,
    "users": 60,
    "posts": 120,
    "user_bios": 40,
    "computers": 110,
    "parents": 30,
    "children": 45,
    "parent_child_associations": 80,
    "persons": 12,
    "photos": 40,
}
TOTAL = 543
NO_ROWS = dict.fromkeys(COUNTS, 0)

# The documentation quotes the rows. If you change them on purpose, change this too.
DIGEST = "6a57344c6b5774437cb586dab820e401289a4497a5b3bf2e8a90ef2bb2fca30e"

WAITING = """
SELECT count(*) FROM pg_locks
WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
COLUMNS = """
SELECT column_name FROM information_schema.columns
WHERE table_schema = 'public' AND table_name = $1 AND column_name <> 'password_hash'
"""

LONE_ROWS = [
    # a table whose rows need no rows of other tables, and a row of it
    ("groups", "(name) VALUES ('a')"),
    ("users", "(first_name, last_name) VALUES ('a', 'b')"),
    ("computers", "(name) VALUES ('a')"),
    ("parents", "(name) VALUES ('a')"),
    ("children", "(name) VALUES ('a')"),
    ("persons", "(name) VALUES ('a')"),
    ("photos", "(name) VALUES ('a')"),
]


@asynccontextmanager
async def connected(url: str, count: int) -> AsyncIterator[list[asyncpg.Connection[Any]]]:
    connections = [await asyncpg.connect(url) for _ in range(count)]
    try:
        yield connections
    finally:
        for connection in connections:
            await connection.close()


async def counts(connection: asyncpg.Connection[Any]) -> dict[str, int]:
    return {table: await connection.fetchval(f"SELECT count(*) FROM {table}") for table in COUNTS}


async def stored(connection: asyncpg.Connection[Any]) -> dict[str, list[dict[str, Any]]]:
    return {
        table: [
            {column: plain(row[column]) for column in rows.columns}
            for row in await connection.fetch(f"SELECT * FROM {table} ORDER BY id")
        ]
        for table, rows in demo_rows().items()
    }


def expected() -> dict[str, list[dict[str, Any]]]:
    return {
        table: [{column: plain(value) for column, value in zip(rows.columns, row, strict=True)} for row in rows.rows]
        for table, rows in demo_rows().items()
    }


def plain(value: Any) -> Any:
    """Return a row's value as it would be in a request. Here every text that begins with a brace is JSON."""
    match value:
        case date():
            return value.isoformat()
        case tuple():
            return list(value)
        case str() if value.startswith("{"):
            return json.loads(value)
    return value


async def until_waiting(connection: asyncpg.Connection[Any], count: int) -> None:
    """Wait until so many other connections wait for a lock."""
    await until(lambda: connection.fetchval(WAITING), lambda found: found >= count)


async def test_rows_are_loaded_once(database_url: str) -> None:
    async with connected(database_url, 1) as (connection,):
        assert await load_demo(connection) == TOTAL
        assert await counts(connection) == COUNTS
        assert await stored(connection) == expected()
        await connection.execute("DELETE FROM photos WHERE id = 1")
        assert await load_demo(connection) == 0
        assert await counts(connection) == COUNTS | {"photos": 39}


async def test_no_column_is_left_to_its_default(database_url: str) -> None:
    """A default could be today's date."""
    async with connected(database_url, 1) as (connection,):
        for table, rows in demo_rows().items():
            columns = [row["column_name"] for row in await connection.fetch(COLUMNS, table)]
            assert sorted(rows.columns) == sorted(columns)


@pytest.mark.parametrize(("table", "row"), LONE_ROWS, ids=[table for table, _ in LONE_ROWS])
async def test_a_database_with_a_row_is_left_as_it_is(database_url: str, table: str, row: str) -> None:
    async with connected(database_url, 1) as (connection,):
        await connection.execute(f"INSERT INTO {table} {row}")
        assert await load_demo(connection) == 0
        assert await counts(connection) == NO_ROWS | {table: 1}


async def test_a_full_database_is_told_without_waiting_for_its_writers(database_url: str) -> None:
    async with connected(database_url, 2) as (loader, writer):
        await writer.execute("INSERT INTO groups (name) VALUES ('a')")
        async with writer.transaction():
            await writer.execute("INSERT INTO groups (name) VALUES ('b')")
            async with asyncio.timeout(30):
                assert await load_demo(loader) == 0


async def test_of_two_loads_at_once_one_loads(database_url: str) -> None:
    async with connected(database_url, 3) as (holder, *loaders):
        async with asyncio.TaskGroup() as tasks, holder.transaction():
            # Both see empty tables, and both wait, before one of them can continue.
            await holder.execute("LOCK TABLE groups IN ROW EXCLUSIVE MODE")
            loads = [tasks.create_task(load_demo(loader)) for loader in loaders]
            await until_waiting(holder, 2)
        assert sorted(load.result() for load in loads) == [0, TOTAL]
        assert await counts(holder) == COUNTS


async def test_a_row_that_is_being_written_counts(database_url: str) -> None:
    async with connected(database_url, 2) as (loader, writer):
        async with asyncio.TaskGroup() as tasks, writer.transaction():
            await writer.execute("INSERT INTO photos (name) VALUES ('a')")
            load = tasks.create_task(load_demo(loader))
            await until_waiting(writer, 1)
        assert load.result() == 0
        assert await counts(loader) == NO_ROWS | {"photos": 1}


async def test_a_load_that_fails_leaves_nothing(database_url: str) -> None:
    async with connected(database_url, 1) as (connection,):
        await connection.execute("ALTER TABLE photos ADD CONSTRAINT refused CHECK (name NOT LIKE 'Harbour%')")
        with pytest.raises(asyncpg.CheckViolationError):
            await load_demo(connection)
        assert await counts(connection) == NO_ROWS


@pytest.mark.parametrize("used_ids", [0, 5, 1000])
async def test_the_next_ids_follow(database_url: str, used_ids: int) -> None:
    """Also if the tables had rows before."""
    async with connected(database_url, 1) as (connection,):
        await connection.execute(
            f"INSERT INTO users (first_name, last_name) SELECT 'a', 'b' FROM generate_series(1, {used_ids})"
        )
        await connection.execute("DELETE FROM users")
        await load_demo(connection)
        for table, row in LONE_ROWS:
            next_id = await connection.fetchval(f"INSERT INTO {table} {row} RETURNING id")
            assert next_id == COUNTS[table] + 1
        for table in COUNTS.keys() - {table for table, _ in LONE_ROWS}:
            next_id = await connection.fetchval("SELECT nextval(pg_get_serial_sequence($1, 'id'))", table)
            assert next_id == COUNTS[table] + 1


async def test_ages_fit_birth_dates(database_url: str) -> None:
    """As PostgreSQL computes dates."""
    async with connected(database_url, 1) as (connection,):
        await load_demo(connection)
        rows = await connection.fetch(
            "SELECT id, age, extract(year FROM age($1::date, birth_date)) AS told FROM users WHERE birth_date <= $1",
            AS_OF,
        )
        assert len(rows) == 52
        assert [row["id"] for row in rows if row["age"] != row["told"]] == []


def test_rows_are_the_same_everywhere() -> None:
    assert hashlib.sha256(msgspec.json.encode(demo_rows())).hexdigest() == DIGEST


@pytest.mark.parametrize("resource", RESOURCES, ids=[resource.type for resource in RESOURCES])
def test_rows_obey_the_declarations(resource: Resource) -> None:
    rows = expected()[resource.table]
    assert [row["id"] for row in rows] == list(range(1, COUNTS[resource.table] + 1))
    for attribute in resource.attributes:
        if attribute.is_stored:
            for row in rows:
                check(attribute, row[attribute.column_name])


def check(attribute: Attribute, value: Any) -> None:
    if value is None:
        assert attribute.nullable
    else:
        read_attribute(attribute, value)


TO_ONES = [
    (resource, relationship)
    for resource in RESOURCES
    for relationship in resource.relationships
    if isinstance(relationship, ToOne) and relationship.is_own_key
]


@pytest.mark.parametrize(
    ("resource", "relationship"), TO_ONES, ids=[f"{one.type}-{other.name}" for one, other in TO_ONES]
)
def test_a_key_is_null_where_it_may_be(resource: Resource, relationship: ToOne) -> None:
    """The rows have at least one null if the key may be null, and none otherwise."""
    keys = [row[relationship.own_columns[0]] for row in expected()[resource.table]]
    assert (None in keys) == relationship.nullable


def test_what_can_be_null_is_null_somewhere_and_not_everywhere() -> None:
    for resource in RESOURCES:
        for attribute in resource.attributes:
            if attribute.nullable:
                values = [row[attribute.column_name] for row in expected()[resource.table]]
                assert 0 < values.count(None) < len(values)


def test_ids_in_bios_are_the_users_own() -> None:
    tables = expected()
    keys = {"posts": "user_id", "computers": "owner_id"}
    for bio in tables["user_bios"]:
        for name, ids in (bio["keys_to_ids_list"] or {}).items():
            assert [tables[name][id_ - 1][keys[name]] for id_ in ids] == [bio["user_id"]] * len(ids)


def test_what_should_be_distinct_is() -> None:
    tables = expected()
    emails = [row["email"] for row in tables["users"] if row["email"]]
    serials = [row["serial"] for row in tables["computers"] if row["serial"]]
    for values in (
        emails,
        serials,
        [row["title"] for row in tables["posts"]],
        [row["name"] for row in tables["computers"]],
    ):
        assert len(values) == len(set(values))


def test_no_gap_is_left_in_a_note() -> None:
    assert [row["id"] for row in expected()["posts"] if set("{}\n") & {*row["title"], *row["body"]}] == []


def test_the_first_user_has_one_of_everything() -> None:
    tables = expected()
    first = tables["users"][0]
    assert None not in first.values()
    assert sum(row["owner_id"] == 1 for row in tables["computers"]) == 2
    assert sum(row["user_id"] == 1 for row in tables["posts"]) == 4
    assert sum(row["user_id"] == 1 for row in tables["user_bios"]) == 1
