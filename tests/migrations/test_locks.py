"""A migration while other sessions work: it waits for locks, and they do not wait for it."""

import asyncio
import re
import time
from contextlib import asynccontextmanager

import asyncpg
import pytest

from migrations import LockWait, MigrationError, load, status, up
from tests.migrations.test_runner import advisory_locks, record

BUSY = "CREATE TABLE busy (id int); INSERT INTO busy SELECT generate_series(1, 100)"
ADD_COLUMN = {"0001_add.sql": "ALTER TABLE busy ADD COLUMN note text"}
INDEX = "-- waterspout: no-transaction\nCREATE INDEX CONCURRENTLY busy_id_idx ON busy (id)"
DEADLINE_SECONDS = 60


class Said(list):
    """The lines that a run reports. A test can wait for them."""

    def __init__(self):
        super().__init__()
        self._more = asyncio.Event()

    def append(self, line):
        super().append(line)
        self._more.set()

    async def until(self, count, pattern):
        async with asyncio.timeout(DEADLINE_SECONDS):
            while sum(re.search(pattern, line) is not None for line in self) < count:
                self._more.clear()
                await self._more.wait()


@asynccontextmanager
async def holding(url, statement="SELECT FROM busy LIMIT 1"):
    """Keep a transaction open, with the locks of this statement."""
    conn = await asyncpg.connect(url, server_settings={"application_name": "report"})
    try:
        async with conn.transaction(isolation="repeatable_read"):
            await conn.execute(statement)
            yield conn
    finally:
        await conn.close()


async def read_again_and_again(conn, waits):
    """Read repeatedly, and add the seconds of each read to the list."""
    while True:
        began = time.perf_counter()
        await conn.fetchval("SELECT count(*) FROM busy")
        waits.append(time.perf_counter() - began)
        await asyncio.sleep(0)


async def test_readers_of_a_busy_table_are_answered_while_a_migration_waits_for_it(database, connect, folder):
    conn, readers, waits, said = await connect(database), [await connect(database) for _ in range(3)], [], Said()
    await conn.execute(BUSY)
    migrations, lock_wait = load(folder(ADD_COLUMN)), LockWait(lock_timeout_seconds=0.2, wait_seconds=DEADLINE_SECONDS)
    async with holding(database):
        began = time.perf_counter()
        reading = [asyncio.create_task(read_again_and_again(reader, waits)) for reader in readers]
        run = asyncio.create_task(up(conn, migrations, say=said.append, lock_wait=lock_wait))
        await said.until(3, "no lock within 0.2 s; again in")
        held_seconds = time.perf_counter() - began
    assert await run == migrations
    for task in reading:
        task.cancel()
    await asyncio.wait(reading)
    print(f"held {held_seconds:.2f} s, {len(waits)} reads, the longest {max(waits):.3f} s")
    # Without the limit one of the reads would have waited until the lock on the table was released.
    assert max(waits) < held_seconds / 2
    assert said[-1] == "applied 0001_add.sql"


async def test_a_timeout_reports_the_blocking_session_and_changes_nothing(database, connect, folder):
    conn, said = await connect(database), Said()
    await conn.execute(BUSY)
    migrations = load(folder({"0001_a.sql": "CREATE TABLE a (id int)", "0002_b.sql": ADD_COLUMN["0001_add.sql"]}))
    lock_wait = LockWait(lock_timeout_seconds=0.4, wait_seconds=0.6)
    async with holding(database) as holder:
        with pytest.raises(MigrationError) as caught:
            await up(conn, migrations, say=said.append, lock_wait=lock_wait, connect=lambda: asyncpg.connect(database))
    seen = (
        rf"waits for the lock on public\.busy of process {holder.get_server_pid()} \(report, in a transaction for 0 s\)"
    )
    over = r"0002_b\.sql did not get its locks within 0\.6 s, and left nothing behind: it "
    assert re.fullmatch(over + seen, str(caught.value)), caught.value
    again = r"0002_b\.sql: no lock within 0\.4 s; again in 0\.\d s, for up to 0 s more"
    patterns = (r"applied 0001_a\.sql", rf"0002_b\.sql {seen}", again)
    assert [bool(re.fullmatch(*pair)) for pair in zip(patterns, said, strict=True)] == [True] * 3, said
    assert await record(conn) == [(1, "0001_a.sql")]
    assert await advisory_locks(conn) == 0
    assert (await status(conn, migrations)).pending == migrations[1:]


async def test_a_run_continues_without_the_second_connection(database, connect, folder):
    conn, said = await connect(database), Said()
    await conn.execute(BUSY)

    async def refused():
        said.append("asked")
        raise ConnectionRefusedError

    lock_wait = LockWait(lock_timeout_seconds=0.1)
    async with holding(database):
        run = asyncio.create_task(
            up(conn, load(folder(ADD_COLUMN)), say=said.append, lock_wait=lock_wait, connect=refused)
        )
        await said.until(1, "again in")
    await run
    assert said[0] == "asked"
    assert said[-1] == "applied 0001_add.sql"


async def test_ten_servers_at_once_wait_for_a_busy_table_and_change_it_once(database, connect, folder):
    conns, said = [await connect(database) for _ in range(10)], Said()
    await conns[0].execute(BUSY)
    migrations, lock_wait = load(folder(ADD_COLUMN)), LockWait(lock_timeout_seconds=0.1)
    async with holding(database):
        runs = [asyncio.create_task(up(conn, migrations, say=said.append, lock_wait=lock_wait)) for conn in conns]
        await said.until(1, "again in")
        await said.until(9, "waiting for another server")
    assert sorted(await asyncio.gather(*runs), key=len) == [()] * 9 + [migrations]
    assert said.count("applied 0001_add.sql") == 1


# The second LOCK makes a deadlock. The other session has already waited longer than deadlock_timeout, so it has checked
# for a deadlock before. Therefore the migration finds the deadlock and is cancelled.
INTO_DEADLOCK = """
LOCK TABLE first;
DO $$ BEGIN
    IF nextval('tries') = 1 THEN
        WHILE NOT EXISTS (
            SELECT FROM pg_locks WHERE relation = 'first'::regclass AND NOT granted
            AND waitstart < clock_timestamp() - 2 * current_setting('deadlock_timeout')::interval
        ) LOOP PERFORM pg_sleep(0.01); END LOOP;
    END IF;
END $$;
LOCK TABLE second;
CREATE TABLE done ();
"""


async def test_a_deadlock_is_tried_again(database, connect, folder):
    conn, other, said = await connect(database), await connect(database), Said()
    await conn.execute("CREATE TABLE first (); CREATE TABLE second (); CREATE SEQUENCE tries")
    migrations = load(folder({"0001_a.sql": INTO_DEADLOCK}))
    await other.execute("BEGIN; LOCK TABLE second")
    run = asyncio.create_task(up(conn, migrations, say=said.append, lock_wait=LockWait(lock_timeout_seconds=10)))
    while not await other.fetchval("SELECT is_called FROM tries"):
        assert not run.done()
    await other.execute("LOCK TABLE first")
    await said.until(1, "a deadlock with another session; again in")
    await other.execute("ROLLBACK")
    assert await run == migrations
    assert await conn.fetchval("SELECT to_regclass('done') IS NOT NULL")


async def test_an_index_built_concurrently_waits_for_older_transactions_as_long_as_there_is_time(
    database, connect, folder
):
    conn, said = await connect(database), Said()
    await conn.execute(BUSY)
    migrations = load(folder({"0001_i.sql": INDEX}))
    lock_wait = LockWait(lock_timeout_seconds=0.1, wait_seconds=DEADLINE_SECONDS)
    async with holding(database) as holder:
        run = asyncio.create_task(
            up(conn, migrations, say=said.append, lock_wait=lock_wait, connect=lambda: asyncpg.connect(database))
        )
        await said.until(1, "waits")
        # No reader or writer has to wait for the migration.
        async with asyncio.timeout(DEADLINE_SECONDS):
            await (await connect(database)).execute("INSERT INTO busy VALUES (1)")
    assert await run == migrations
    pid = holder.get_server_pid()
    assert re.fullmatch(
        rf"0001_i\.sql waits for the end of process {pid} \(report, in a transaction for \d s\)", said[0]
    ), said
    assert said[1:] == ["applied 0001_i.sql"]
    assert await conn.fetchval("SELECT indisvalid FROM pg_index WHERE indexrelid = 'busy_id_idx'::regclass")


async def test_an_index_that_timed_out_is_named(database, connect, folder):
    conn = await connect(database)
    await conn.execute(BUSY)
    migrations = load(folder({"0001_i.sql": INDEX}))
    async with holding(database):
        with pytest.raises(MigrationError) as caught:
            await up(conn, migrations, lock_wait=LockWait(wait_seconds=0.1))
    assert str(caught.value) == (
        "0001_i.sql, line 2: canceling statement due to lock timeout. Left behind invalid: public.busy_id_idx. Drop "
        "it, unless the file does so itself: DROP INDEX CONCURRENTLY public.busy_id_idx. The next run begins with the "
        "first statement of the file"
    )
    await conn.execute("DROP INDEX CONCURRENTLY public.busy_id_idx")
    assert await up(conn, migrations) == migrations


async def test_session_settings_do_not_affect_files_and_are_restored(database, connect, folder):
    conn = await connect(database)
    names = ("lock_timeout", "statement_timeout")
    await conn.execute("SET lock_timeout = '1h'; SET statement_timeout = '100ms'")
    sleepy = "SELECT pg_sleep(0.2); CREATE TABLE a AS SELECT current_setting('lock_timeout') AS during"
    await up(conn, load(folder({"0001_a.sql": sleepy})), lock_wait=LockWait(lock_timeout_seconds=1.5))
    assert await conn.fetchval("SELECT during FROM a") == "1500ms"
    assert [await conn.fetchval(f"SHOW {name}") for name in names] == ["1h", "100ms"]
