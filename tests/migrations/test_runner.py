"""`status` and `up` on a real PostgreSQL: each file is applied once, completely or not at all, also if several
processes run at once."""

import asyncio

import pytest

from migrations import BUILT_IN, MigrationError, load, status, up

TWO = {"0001_a.sql": "CREATE TABLE a (id int);", "0002_b.sql": "CREATE TABLE b (id int);"}
CONCURRENTLY = "-- waterspout: no-transaction\nCREATE INDEX CONCURRENTLY a_id_idx ON a (id)"


async def tables(conn):
    rows = await conn.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
    return [row[0] for row in rows if row[0] != "waterspout_migrations"]


async def record(conn):
    return [tuple(row) for row in await conn.fetch("SELECT number, name FROM waterspout_migrations ORDER BY 1")]


async def advisory_locks(conn):
    return await conn.fetchval(
        "SELECT count(*) FROM pg_locks JOIN pg_database d ON d.oid = database "
        "WHERE locktype = 'advisory' AND datname = current_database()"
    )


async def close_gate(conn):
    """Lock the table `gate`, so that others who lock it wait until this connection rolls back."""
    await conn.execute("CREATE TABLE gate ()")
    await conn.execute("BEGIN; LOCK TABLE gate")


async def stands_at_gate(conn, run):
    waiting = "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'gate'::regclass AND NOT granted)"
    while not await conn.fetchval(waiting):
        assert not run.done()


async def test_the_built_in_catalog_is_applied(database, connect):
    conn = await connect(database)
    said = []
    applied = await up(conn, load(BUILT_IN), say=said.append)
    assert applied == load(BUILT_IN)
    assert said == [f"applied {migration.name}" for migration in applied]
    assert await tables(conn) == [
        "children",
        "computers",
        "groups",
        "parent_child_associations",
        "parents",
        "persons",
        "photos",
        "posts",
        "user_bios",
        "users",
    ]


async def test_a_second_run_does_nothing(database, connect, folder):
    conn = await connect(database)
    migrations = load(folder(TWO))
    await up(conn, migrations)
    before = await conn.fetch("SELECT * FROM waterspout_migrations")
    said = []
    assert await up(conn, migrations, say=said.append) == ()
    assert said == []
    assert await conn.fetch("SELECT * FROM waterspout_migrations") == before


async def test_the_record_has_number_name_checksum_and_time(database, connect, folder):
    conn = await connect(database)
    migrations = load(folder(TWO))
    before = await conn.fetchval("SELECT clock_timestamp()")
    await up(conn, migrations)
    rows = await conn.fetch("SELECT number, name, checksum FROM waterspout_migrations ORDER BY number")
    assert [tuple(row) for row in rows] == [(m.number, m.name, m.checksum) for m in migrations]
    within = "SELECT bool_and(applied_at BETWEEN $1 AND clock_timestamp()) FROM waterspout_migrations"
    assert await conn.fetchval(within, before)


async def test_only_what_is_pending_is_applied(database, connect, folder):
    conn = await connect(database)
    await up(conn, load(folder({"0001_a.sql": TWO["0001_a.sql"]})))
    migrations = load(folder(TWO))
    assert (await status(conn, migrations)).pending == migrations[1:]
    assert await up(conn, migrations) == migrations[1:]


async def test_status_writes_nothing(database, connect, folder):
    conn = await connect(database)
    migrations = load(folder(TWO))
    await conn.execute("SET default_transaction_read_only = on")
    state = await status(conn, migrations)
    assert (state.applied, state.pending, state.ahead) == ((), migrations, ())
    assert await conn.fetchval("SELECT to_regclass('public.waterspout_migrations')") is None


async def test_a_database_ahead_of_the_folder_is_not_an_error(database, connect, folder):
    conn = await connect(database)
    await up(conn, load(folder({**TWO, "0003_c.sql": "SELECT 1"})))
    migrations = load(folder({"0001_a.sql": TWO["0001_a.sql"]}))
    state = await status(conn, migrations)
    assert (state.applied, state.pending, [row.name for row in state.ahead]) == (
        migrations,
        (),
        ["0002_b.sql", "0003_c.sql"],
    )
    assert await up(conn, migrations) == ()


async def test_a_changed_file_is_refused(database, connect, folder):
    conn = await connect(database)
    await up(conn, load(folder(TWO)))
    await conn.execute("UPDATE waterspout_migrations SET applied_at = '2025-01-02 12:00+00'")
    migrations = load(folder({**TWO, "0001_a.sql": "CREATE TABLE a (id bigint);", "0003_c.sql": "SELECT 1"}))
    message = (
        "0001_a.sql was changed after it was applied on 2025-01-02; "
        "put it back as it was and write a new file for what should change"
    )
    for asked in (status, up):
        with pytest.raises(MigrationError) as caught:
            await asked(conn, migrations)
        assert str(caught.value) == message
    assert await record(conn) == [(1, "0001_a.sql"), (2, "0002_b.sql")]


async def test_a_missing_file_is_refused(database, connect, folder):
    conn = await connect(database)
    await up(conn, load(folder({**TWO, "0003_c.sql": "SELECT 1"})))
    migrations = load(folder({"0001_a.sql": TWO["0001_a.sql"], "0002_c.sql": "SELECT 1"}))
    with pytest.raises(MigrationError) as caught:
        await status(conn, migrations)
    assert str(caught.value) == (
        "0002_b.sql was applied to this database and is missing from the folder, which has 0002_c.sql in its place;"
        " is it the folder that belongs to this database?"
    )


@pytest.mark.parametrize(
    ("removed", "message"),
    [
        (1, "0002_b.sql was applied to this database, but 0001_a.sql before it was not"),
        (3, "0004_d.sql was applied to this database, but 0003 before it was not"),
    ],
)
async def test_a_record_with_a_gap_is_refused(database, connect, folder, removed, message):
    conn = await connect(database)
    await up(conn, load(folder({**TWO, "0003_c.sql": "SELECT 3", "0004_d.sql": "SELECT 4"})))
    await conn.execute("DELETE FROM waterspout_migrations WHERE number = $1", removed)
    with pytest.raises(MigrationError) as caught:
        await status(conn, load(folder(TWO)))
    assert str(caught.value) == message


FAILURES = [
    # file, message
    (
        "-- ü\nCREATE TABLE b (id int);\nCREATE TABEL c (id int);",
        '0002_b.sql, line 3: syntax error at or near "TABEL"',
    ),
    (
        "CREATE TABLE b (id int);\nSELECT id\n  FROM nowhere;",
        '0002_b.sql, line 3: relation "nowhere" does not exist',
    ),
    (
        "CREATE TABLE b (id int PRIMARY KEY);\nINSERT INTO b VALUES (1), (1);",
        '0002_b.sql: duplicate key value violates unique constraint "b_pkey". Key (id)=(1) already exists',
    ),
    (
        "CREATE TABLE b (id int UNIQUE DEFERRABLE INITIALLY DEFERRED);\nINSERT INTO b VALUES (1), (1);",
        '0002_b.sql: duplicate key value violates unique constraint "b_id_key". Key (id)=(1) already exists',
    ),
    *(
        (
            text,
            "0002_b.sql: EXECUTE of transaction commands is not implemented. "
            "The transaction is the runner's; COPY of data and SELECT INTO are not supported in migrations either",
        )
        for text in (
            "BEGIN; CREATE TABLE b (id int); COMMIT;",
            "CREATE TABLE b (id int); COMMIT; CREATE TABLE c (id int);",
            "CREATE TABLE b (id int); END;",
            "ROLLBACK; CREATE TABLE b (id int);",
            "CREATE TABLE b (id int); SAVEPOINT s; CREATE TABLE c (id int); ROLLBACK TO s;",
        )
    ),
    (
        "CREATE TABLE b (id int); DO $$ BEGIN COMMIT; END $$;",
        "0002_b.sql: invalid transaction termination",
    ),
    (
        "CREATE TABLE b (id int); COPY b FROM STDIN;",
        "0002_b.sql: cannot COPY to/from client in PL/pgSQL. "
        "The transaction is the runner's; COPY of data and SELECT INTO are not supported in migrations either",
    ),
    (
        "CREATE TABLE b (id int); CREATE INDEX CONCURRENTLY ON a (id);",
        "0002_b.sql: CREATE INDEX CONCURRENTLY cannot run inside a transaction block. What cannot run "
        "in a transaction has its own file, whose first line is '-- waterspout: no-transaction'",
    ),
    (
        "-- waterspout: no-transaction\nCREATE INDEX CONCURRENTLY b_idx\n  ON a (nothing)",
        '0002_b.sql, line 2: column "nothing" does not exist',
    ),
    (
        "-- waterspout: no-transaction\n\nCREATE INDEX CONCURRENTLY b_idx\n  OF a (id)",
        '0002_b.sql, line 4: syntax error at or near "OF"',
    ),
    (
        "-- waterspout: no-transaction\nBEGIN; CREATE TABLE b (id int); COMMIT",
        "0002_b.sql, line 2: a marked file must not begin a transaction",
    ),
    (
        "-- waterspout: no-transaction\n\nCOPY a FROM STDIN",
        "0002_b.sql, line 3: COPY of data is not supported in migrations",
    ),
    ("", "0002_b.sql has no statement yet"),
    ("-- nothing here\n;", "0002_b.sql has no statement yet"),
]


@pytest.mark.parametrize(("text", "message"), FAILURES)
async def test_a_failing_file_is_named_and_leaves_nothing(database, connect, folder, text, message):
    conn = await connect(database)
    migrations = load(folder({**TWO, "0002_b.sql": text, "0003_c.sql": "CREATE TABLE d (id int)"}))
    with pytest.raises(MigrationError) as caught:
        await up(conn, migrations)
    assert str(caught.value) == message
    assert await tables(conn) == ["a"]
    assert await record(conn) == [(1, "0001_a.sql")]
    assert await advisory_locks(conn) == 0


async def test_after_a_failure_the_mended_file_is_applied(database, connect, folder):
    conn = await connect(database)
    with pytest.raises(MigrationError):
        await up(conn, load(folder({**TWO, "0002_b.sql": "CREATE TABLE b (id int); SELECT 1/0"})))
    assert [migration.name for migration in await up(conn, load(folder(TWO)))] == ["0002_b.sql"]
    assert await tables(conn) == ["a", "b"]


async def test_a_marked_file_runs_outside_a_transaction(database, connect, folder):
    conn = await connect(database)
    files = {"0001_a.sql": TWO["0001_a.sql"], "0002_i.sql": CONCURRENTLY}
    await up(conn, load(folder(files)))
    assert await conn.fetchval("SELECT indisvalid FROM pg_index WHERE indexrelid = 'a_id_idx'::regclass")
    assert await record(conn) == [(1, "0001_a.sql"), (2, "0002_i.sql")]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 'a $sql$ b $do$ \\';",
        "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; END; SELECT f();",
        "DO $$ BEGIN PERFORM 1; END $$;",
        "CREATE TABLE c (id int); INSERT INTO c SELECT 1; CREATE INDEX ON c (id); ALTER TABLE c ADD d text;",
        "CREATE TYPE mood AS ENUM ('glad'); ALTER TYPE mood ADD VALUE 'sad';",
    ],
)
async def test_sql_of_every_kind_is_applied(database, connect, folder, text):
    conn = await connect(database)
    await up(conn, load(folder({"0001_a.sql": text})))
    assert await record(conn) == [(1, "0001_a.sql")]


async def test_ten_servers_at_once_apply_each_file_once(database, connect, folder):
    files = {**TWO, "0003_i.sql": CONCURRENTLY, "0004_c.sql": "CREATE TABLE c (id int)"}
    migrations = load(folder(files))
    conns = [await connect(database) for _ in range(10)]
    results = await asyncio.gather(*(up(conn, migrations) for conn in conns))
    assert sorted(results, key=len) == [()] * 9 + [migrations]
    assert await record(conns[0]) == [(m.number, m.name) for m in migrations]
    assert await advisory_locks(conns[0]) == 0


async def test_the_second_server_waits_and_says_so(database, connect, folder):
    first, second, holder = [await connect(database) for _ in range(3)]
    migrations = load(folder({"0001_a.sql": "LOCK TABLE gate; CREATE TABLE a (id int)"}))
    await close_gate(holder)
    one = asyncio.create_task(up(first, migrations))
    await stands_at_gate(holder, one)
    said, is_waiting = [], asyncio.Event()
    two = asyncio.create_task(up(second, migrations, say=lambda line: (said.append(line), is_waiting.set())))
    await is_waiting.wait()
    await holder.execute("ROLLBACK")
    assert await asyncio.gather(one, two) == [migrations, ()]
    assert said == ["waiting for another server that is applying migrations"]


async def test_a_cancelled_run_is_rolled_back_and_releases_the_lock(database, connect, folder):
    conn, holder = await connect(database), await connect(database)
    migrations = load(folder({"0001_a.sql": "CREATE TABLE a (id int); LOCK TABLE gate"}))
    await close_gate(holder)
    run = asyncio.create_task(up(conn, migrations))
    await stands_at_gate(holder, run)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert await advisory_locks(conn) == 0
    assert await conn.fetchval("SHOW search_path") == '"$user", public'
    await holder.execute("ROLLBACK")
    assert await tables(conn) == ["gate"]
    assert await up(conn, migrations) == migrations


async def test_a_cancelled_wait_takes_no_lock(database, connect, folder):
    conn, holder = await connect(database), await connect(database)
    migrations = load(folder({"0001_a.sql": "LOCK TABLE gate"}))
    await close_gate(holder)
    first = asyncio.create_task(up(await connect(database), migrations))
    await stands_at_gate(holder, first)
    is_waiting = asyncio.Event()
    second = asyncio.create_task(up(conn, migrations, say=lambda _: is_waiting.set()))
    await is_waiting.wait()
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    assert await advisory_locks(conn) == 1
    await holder.execute("ROLLBACK")
    assert await first == migrations
    assert await advisory_locks(conn) == 0


async def test_a_lost_connection_names_the_file_and_leaves_nothing(database, connect, folder):
    conn, holder = await connect(database), await connect(database)
    migrations = load(folder({"0001_a.sql": "CREATE TABLE a (id int); LOCK TABLE gate"}))
    await close_gate(holder)
    run = asyncio.create_task(up(conn, migrations))
    await stands_at_gate(holder, run)
    await holder.execute(f"SELECT pg_terminate_backend({conn.get_server_pid()})")
    with pytest.raises(MigrationError) as caught:
        await run
    assert str(caught.value) == "0001_a.sql: the connection to PostgreSQL was lost"
    await holder.execute("ROLLBACK")
    assert await tables(holder) == ["gate"]
    assert await advisory_locks(holder) == 0


async def test_names_without_a_schema_mean_public_and_search_path_is_restored(database, connect, folder):
    conn = await connect(database)
    await conn.execute("CREATE SCHEMA mine; SET search_path = mine, public; CREATE TEMP TABLE a (id int)")
    # The first file's SET must not affect the second file, and the session's temporary table `a` must not be mistaken
    # for the real one.
    first = "CREATE TABLE a (id int); SET search_path = mine"
    files = {"0001_a.sql": first, "0002_b.sql": "CREATE TABLE b (); ALTER TABLE a ADD found text"}
    await up(conn, load(folder(files)))
    assert await conn.fetch("SELECT id, found FROM public.a") == []
    assert await tables(conn) == ["a", "b"]
    assert await conn.fetchval("SHOW search_path") == "mine, public"
    with pytest.raises(MigrationError):
        await up(conn, load(folder({**files, "0003_c.sql": "SELECT 1/0"})))
    assert await conn.fetchval("SHOW search_path") == "mine, public"


async def test_a_record_that_cannot_be_created_is_reported(database, connect, folder):
    conn = await connect(database)
    await conn.execute("SET default_transaction_read_only = on")
    with pytest.raises(MigrationError) as caught:
        await up(conn, load(folder(TWO)))
    assert str(caught.value) == (
        "the table of applied migrations cannot be made: cannot execute CREATE TABLE in a read-only transaction"
    )


async def test_a_connection_in_a_transaction_is_refused(database, connect, folder):
    conn = await connect(database)
    async with conn.transaction():
        with pytest.raises(RuntimeError, match="outside a transaction"):
            await up(conn, load(folder(TWO)))
    assert await tables(conn) == []


async def test_another_folder_than_the_one_applied_is_refused(database, connect, folder):
    conn = await connect(database)
    await up(conn, load(BUILT_IN))
    with pytest.raises(MigrationError) as caught:
        await up(conn, load(folder(TWO)))
    assert str(caught.value) == (
        "0001_catalogue.sql was applied to this database and is missing from the folder, "
        "which has 0001_a.sql in its place; is it the folder that belongs to this database?"
    )
