"""The record of applied migrations against a folder: older tables, files that break older servers, and several errors
at once."""

import pytest

from migrations import MigrationError, load, status, up, verify
from tests.migrations.test_runner import TWO

BREAKS = "-- waterspout: breaks-older-servers\n"
OLD_TABLE = """
CREATE TABLE public.waterspout_migrations (
    number integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now())
"""
COLUMNS = """
SELECT attname FROM pg_attribute WHERE attrelid = 'public.waterspout_migrations'::regclass AND attnum > 0
ORDER BY attnum
"""
BREAKS_BY_NAME = "SELECT name, breaks_older_servers FROM public.waterspout_migrations ORDER BY number"
INSERT_OLD = "INSERT INTO public.waterspout_migrations (number, name, checksum) VALUES ($1, $2, $3)"


async def columns(conn):
    return [row[0] for row in await conn.fetch(COLUMNS)]


async def with_old_table(conn, migrations):
    await conn.execute(OLD_TABLE)
    for migration in migrations:
        await conn.execute(INSERT_OLD, migration.number, migration.name, migration.checksum)


async def test_servers_without_a_breaking_file_see_that_it_was_applied(database, connect, folder):
    conn = await connect(database)
    newer = {**TWO, "0003_c.sql": f"{BREAKS}DROP TABLE a", "0004_d.sql": "SELECT 1"}
    await up(conn, load(folder(newer)))
    state = await status(conn, load(folder(TWO)))
    assert [row.name for row in state.ahead] == ["0003_c.sql", "0004_d.sql"]
    assert [row.name for row in state.breaking] == ["0003_c.sql"]
    # A server that has the file is not broken by it.
    assert (await status(conn, load(folder({**newer, "0005_e.sql": "SELECT 1"})))).breaking == ()


async def test_an_older_table_is_read_and_upgraded_by_a_run(database, connect, folder):
    conn = await connect(database)
    migrations = load(folder({**TWO, "0003_c.sql": f"{BREAKS}SELECT 1"}))
    await with_old_table(conn, migrations[:2])
    state = await status(conn, migrations[:1])
    assert [(row.name, row.breaks_older_servers) for row in state.ahead] == [("0002_b.sql", False)]
    # A run that has nothing to apply does not lock the table of the record.
    assert await up(conn, migrations[:2]) == ()
    assert await columns(conn) == ["number", "name", "checksum", "applied_at"]
    assert await up(conn, migrations) == migrations[2:]
    assert (await columns(conn))[4:] == ["breaks_older_servers"]
    assert [tuple(row) for row in await conn.fetch(BREAKS_BY_NAME)] == [
        ("0001_a.sql", False),
        ("0002_b.sql", False),
        ("0003_c.sql", True),
    ]


async def test_an_older_runner_can_write_into_the_present_table(database, connect, folder):
    conn = await connect(database)
    migrations = load(folder({**TWO, "0003_c.sql": "SELECT 1"}))
    await up(conn, migrations[:2])
    await conn.execute(INSERT_OLD, 3, migrations[2].name, migrations[2].checksum)
    assert (await status(conn, migrations)).pending == ()


async def test_verify_reports_all_faults(database, connect, folder):
    conn = await connect(database)
    texts = {f"000{number}_{name}.sql": f"SELECT {number}" for number, name in enumerate("abcdef", 1)}
    await up(conn, load(folder(texts)))
    await conn.execute("UPDATE waterspout_migrations SET applied_at = '2025-01-02 12:00+00'")
    await conn.execute("DELETE FROM waterspout_migrations WHERE number = 5")
    found = load(
        folder(
            {
                "0001_a.sql": "SELECT 0",
                "0002_B.sql": "SELECT 2",
                "0003_d.sql": "SELECT 4",
                "0004_new.sql": "SELECT 'new'",
                "0005_e.sql": "SELECT 5",
            }
        )
    )
    lines = await verify(conn, found)
    assert lines == (
        "0001_a.sql was changed after it was applied on 2025-01-02; "
        "put it back as it was and write a new file for what should change",
        "0002_b.sql was applied to this database and was renamed to 0002_B.sql",
        "0003_c.sql was applied to this database and is missing from the folder, which has 0003_d.sql in its place;"
        " is it the folder that belongs to this database?",
        "0004_d.sql was applied to this database and was renamed to 0003_d.sql, which has 0004_new.sql in its place",
        "0006_f.sql was applied to this database, but 0005_e.sql before it was not",
    )
    with pytest.raises(MigrationError) as caught:
        await status(conn, found)
    assert str(caught.value) == lines[0]


async def test_verify_reports_nothing_for_a_matching_record(database, connect, folder):
    conn = await connect(database)
    assert await verify(conn, load(folder(TWO))) == ()
    await up(conn, load(folder({**TWO, "0003_c.sql": "SELECT 1"})))
    for files in (TWO, {**TWO, "0003_c.sql": "SELECT 1", "0004_d.sql": "SELECT 1"}):
        assert await verify(conn, load(folder(files))) == ()
