"""Migrations whose statements run one by one, without a transaction: what is done, recorded and reported when a
statement fails."""

import pytest

from migrations import MigrationError, load, up
from tests.migrations.test_runner import record, tables

MARK = "-- waterspout: no-transaction\n"
DUPLICATES = "CREATE TABLE a (id int); INSERT INTO a VALUES (1), (1)"
UNIQUE = "CREATE UNIQUE INDEX CONCURRENTLY {}a_id_key ON a (id);"
DROP = "DROP INDEX CONCURRENTLY IF EXISTS a_id_key;\n"
INVALID = "SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid"
ADVICE = (
    "Left behind invalid: public.a_id_key. Drop it, unless the file does so itself: "
    "DROP INDEX CONCURRENTLY public.a_id_key. The next run begins with the first statement of the file"
)


async def failing(conn, migrations):
    with pytest.raises(MigrationError) as caught:
        await up(conn, migrations)
    return str(caught.value)


async def test_one_statement_after_another(database, connect, folder):
    conn = await connect(database)
    await conn.execute(DUPLICATES)
    text = (
        f"{MARK}CREATE INDEX CONCURRENTLY a_id_idx ON a (id);\nVACUUM a; -- why\nREINDEX TABLE CONCURRENTLY a;\n"
        "CREATE TYPE mood AS ENUM ('glad'); ALTER TYPE mood ADD VALUE 'sad';\n"
        # This statement uses the new value, which is not possible in the transaction that added it.
        "CREATE TABLE moods AS SELECT 'sad'::mood AS mood"
    )
    await up(conn, load(folder({"0001_i.sql": text})))
    assert await tables(conn) == ["a", "moods"]
    assert await conn.fetchval("SELECT indisvalid FROM pg_index WHERE indexrelid = 'a_id_idx'::regclass")
    assert await record(conn) == [(1, "0001_i.sql")]


async def test_a_failed_file_without_transaction_reports_what_it_left_and_is_not_recorded(database, connect, folder):
    conn = await connect(database)
    await conn.execute(DUPLICATES)
    text = f"{MARK}CREATE TABLE IF NOT EXISTS b ();\n\n{UNIQUE.format('')}\nCREATE TABLE c ();"
    migrations = load(folder({"0001_i.sql": text}))
    assert await failing(conn, migrations) == (
        '0001_i.sql, line 4: could not create unique index "a_id_key". Key (id)=(1) is duplicated. '
        f"The statements before it in the file stay applied (1 of 3 statements). {ADVICE}"
    )
    assert await tables(conn) == ["a", "b"]
    assert await conn.fetchval(INVALID) == "a_id_key"
    assert await record(conn) == []
    await conn.execute("DROP INDEX CONCURRENTLY public.a_id_key; ")
    await conn.execute("DELETE FROM a")
    assert await up(conn, migrations) == migrations


async def test_a_file_that_drops_first_runs_again_as_it_is(database, connect, folder):
    conn = await connect(database)
    await conn.execute(DUPLICATES)
    migrations = load(folder({"0001_i.sql": MARK + DROP + UNIQUE.format("")}))
    for _ in range(2):
        assert "is duplicated" in await failing(conn, migrations)
    await conn.execute("DELETE FROM a")
    assert await up(conn, migrations) == migrations
    assert await conn.fetchval(INVALID) is None


async def test_an_invalid_index_does_not_count_as_existing(database, connect, folder):
    conn = await connect(database)
    await conn.execute(DUPLICATES)
    migrations = load(folder({"0001_i.sql": MARK + UNIQUE.format("IF NOT EXISTS ")}))
    assert "is duplicated" in await failing(conn, migrations)
    await conn.execute("DELETE FROM a")
    # PostgreSQL skips the statement now, with a notice.
    assert await failing(conn, migrations) == f"0001_i.sql is not applied. {ADVICE}"
    assert await record(conn) == []
    await conn.execute("DROP INDEX CONCURRENTLY public.a_id_key")
    assert await up(conn, migrations) == migrations


async def test_invalid_indexes_of_others_are_ignored(database, connect, folder):
    conn = await connect(database)
    await conn.execute(DUPLICATES)
    assert "is duplicated" in await failing(conn, load(folder({"0001_i.sql": MARK + UNIQUE.format("")})))
    migrations = load(folder({"0001_i.sql": f"{MARK}CREATE INDEX CONCURRENTLY not_a_id_key ON a (id)"}))
    assert await up(conn, migrations) == migrations
    assert await conn.fetchval(INVALID) == "a_id_key"


async def test_a_file_that_begins_a_transaction_is_refused_and_rolled_back(database, connect, folder):
    conn = await connect(database)
    migrations = load(folder({"0001_i.sql": f"{MARK}CREATE TABLE a ();\nBEGIN;\nCREATE TABLE b ();\nCOMMIT;"}))
    assert await failing(conn, migrations) == (
        "0001_i.sql, line 3: a marked file must not begin a transaction. The statements before it in the file stay "
        "applied (1 of 4 statements). The next run begins with the first statement of the file"
    )
    assert await tables(conn) == ["a"]
    assert not conn.is_in_transaction()
