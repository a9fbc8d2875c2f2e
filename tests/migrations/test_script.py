"""The dry run: it prints a script and changes nothing. If somebody runs the script in psql, it has the same effect as a
run."""

import subprocess

from migrations import BUILT_IN, LockWait, load, script, status, up
from tests.migrations.test_runner import TWO, tables
from tests.migrations.test_schema import pg_programs

FILES = {
    "0001_a.sql": "CREATE TABLE a (id int, note text)",
    "0002_i.sql": "-- waterspout: no-transaction\nCREATE INDEX CONCURRENTLY a_id_idx ON a (id);\nVACUUM a -- at last",
    "0003_b.sql": "-- waterspout: breaks-older-servers\nALTER TABLE a DROP note;\n",
}


async def test_the_script_is_what_would_run(database, connect, folder):
    conn = await connect(database)
    migrations = load(folder({**FILES, "0001_a.sql": TWO["0001_a.sql"]}))
    await up(conn, migrations[:1])
    await conn.execute("SET default_transaction_read_only = on")
    text = await script(conn, migrations, lock_wait=LockWait(lock_timeout_seconds=1.5, wait_seconds=60))
    assert text == (
        "-- 0002_i.sql: no transaction, one statement after another\n"
        "SET search_path = public, pg_temp;\n"
        "SET statement_timeout = '0';\n"
        "SET lock_timeout = '60000ms';\n"
        "-- waterspout: no-transaction\n"
        "CREATE INDEX CONCURRENTLY a_id_idx ON a (id);\n"
        "VACUUM a -- at last\n"
        ";\n"
        "INSERT INTO public.waterspout_migrations (number, name, checksum, breaks_older_servers) "
        f"VALUES (2, '0002_i.sql', '{migrations[1].checksum}', False);\n"
        "\n"
        "-- 0003_b.sql: one transaction\n"
        "BEGIN;\n"
        "SET LOCAL search_path = public, pg_temp;\n"
        "SET LOCAL statement_timeout = '0';\n"
        "SET LOCAL lock_timeout = '1500ms';\n"
        "-- waterspout: breaks-older-servers\n"
        "ALTER TABLE a DROP note;\n"
        "INSERT INTO public.waterspout_migrations (number, name, checksum, breaks_older_servers) "
        f"VALUES (3, '0003_b.sql', '{migrations[2].checksum}', True);\n"
        "COMMIT;\n"
    )


async def test_psql_applies_the_script_like_a_run(database, connect, folder):
    conn = await connect(database)
    migrations = load(folder(FILES))
    text = await script(conn, migrations)
    assert await tables(conn) == []
    psql(database, text)
    state = await status(conn, migrations)
    assert (state.applied, state.pending) == (migrations, ())
    assert [row.name for row in (await status(conn, migrations[:2])).breaking] == ["0003_b.sql"]
    assert await script(conn, migrations) == ""
    psql(database, await script(conn, load(folder({**FILES, "0004_c.sql": "CREATE TABLE c ()"}))))
    assert await tables(conn) == ["a", "c"]


async def test_the_script_of_the_built_in_catalog(database, connect):
    conn = await connect(database)
    psql(database, await script(conn, load(BUILT_IN)))
    assert (await status(conn, load(BUILT_IN))).pending == ()


def psql(url, text):
    [program, *_] = pg_programs("psql")
    subprocess.run([program, "-qXv", "ON_ERROR_STOP=1", url], input=text, text=True, check=True, capture_output=True)
