"""The private parts of asyncpg (`tests/private_parts.py`) behave on a real connection as the server expects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import asyncpg
import msgspec
import pytest

from server.postgres.pooler import PooledConnection
from server.postgres.said import said
from server.postgres.wire.meter import ReceivedMeter
from tests.private_parts import DRIVER, MESSAGE, PARTS, PROTOCOL, STATEMENT, naming

TRANSACTION = "asyncpg.transaction.Transaction"
MAX_SECONDS = 60.0
"""How long one check may take. If a part that it waits for is missing, it would never end."""

SLEEP = "SELECT pg_sleep(0.5)"
"""This statement ends by itself: PostgreSQL ignores a cancel request that arrives before the statement."""

Check = Callable[[Any], Awaitable[None]]
CHECKS: dict[str, tuple[Check, type[asyncpg.Connection]]] = {}


class Recorder(asyncpg.Connection):
    """A connection that records which of its private methods run, and the SQL of `execute`. url: of its database."""

    url: str

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.calls: list[str] = []

    async def execute(self, query: str, *args: Any, **options: Any) -> str:
        self.calls.append(query)
        return await super().execute(query, *args, **options)

    async def _execute(self, *args: Any, **options: Any) -> Any:
        self.calls.append("_execute")
        return await super()._execute(*args, **options)  # type: ignore[misc]  # the stubs leave it out

    async def _executemany(self, *args: Any, **options: Any) -> Any:
        self.calls.append("_executemany")
        return await super()._executemany(*args, **options)  # type: ignore[misc]  # as above

    async def _cleanup_stmts(self) -> None:
        self.calls.append("_cleanup_stmts")
        await super()._cleanup_stmts()  # type: ignore[misc]  # as above

    def _cleanup(self) -> None:
        self.calls.append("_cleanup")
        super()._cleanup()  # type: ignore[misc]  # as above


def checks(*names: str, connection: type[asyncpg.Connection] = Recorder) -> Callable[[Check], Check]:
    def listed(check: Check) -> Check:
        CHECKS.update(dict.fromkeys(names, (check, connection)))
        return check

    return listed


@checks(f"{DRIVER}._execute", f"{DRIVER}._executemany")
async def every_statement_with_values_runs_through_one_method(connection: Any) -> None:
    sql = "SELECT $1::int"
    await connection.fetch(sql, 1)
    await connection.fetchrow(sql, 1)
    await connection.fetchval(sql, 1)
    assert connection.calls == ["_execute"] * 3
    connection.calls.clear()
    await connection.execute(sql, 1)
    assert connection.calls == [sql, "_execute"]
    connection.calls.clear()
    await connection.executemany(sql, [(1,)])
    await connection.fetchmany(sql, [(1,)])
    assert connection.calls == ["_executemany"] * 2
    rows = await connection._execute("SELECT generate_series(1, $1::int)", (9,), 2, None)
    assert [tuple(row) for row in rows] == [(1,), (2,)]


@checks(f"{PROTOCOL}.queries_count")
async def statements_are_counted_when_they_are_executed(connection: Any) -> None:
    counts = [connection._protocol.queries_count]
    await connection.execute("SELECT")
    counts.append(connection._protocol.queries_count)
    await connection.fetch("SELECT $1::int", 1)
    counts.append(connection._protocol.queries_count)
    await connection.fetchmany("SELECT $1::int", [(1,)])
    counts.append(connection._protocol.queries_count)
    with suppress(asyncpg.DataError, asyncpg.InterfaceError):
        # Parsed, and not executed.
        await connection.fetch("SELECT $1::int4", "x")
    counts.append(connection._protocol.queries_count)
    assert [count - counts[0] for count in counts] == [0, 1, 2, 3, 3]


@checks(f"{DRIVER}._cleanup_stmts")
async def statements_that_left_the_cache_are_closed_by_one_method(connection: Any) -> None:
    connection._stmt_cache.set_max_size(1)
    for sql in ("SELECT $1::int", "SELECT $1::text"):
        await connection.fetchval(sql, None)
        assert await connection.fetchval("SELECT count(*) FROM pg_prepared_statements") == 1
    assert connection.calls.count("_cleanup_stmts") == 3


@checks(f"{DRIVER}._cleanup")
async def a_connection_is_cleaned_up_when_it_is_closed_or_lost(connection: Any) -> None:
    another = await asyncpg.connect(connection.url, connection_class=Recorder)
    gone = asyncio.Event()
    another.add_termination_listener(lambda _: gone.set())
    await connection.execute("SELECT pg_terminate_backend($1)", another.get_server_pid())
    await gone.wait()
    assert "_cleanup" in another.calls
    await connection.close()
    assert connection.calls[-1] == "_cleanup"


@checks(f"{DRIVER}._protocol", f"{DRIVER}._transport")
async def a_meter_between_transport_and_protocol_sees_all_bytes(connection: Any) -> None:
    meter = ReceivedMeter(connection)
    assert connection._transport.get_protocol() is meter
    assert await connection.fetchval("SELECT repeat('a', 100000)") == "a" * 100_000
    assert 100_000 < meter.received_bytes < 101_000
    assert connection._transport.get_extra_info("socket") is not None
    connection.terminate()
    assert connection._protocol is None


@checks(f"{PROTOCOL}._is_cancelling")
async def a_cancelled_statement_is_known_until_it_ends(connection: Any) -> None:
    assert not connection._protocol._is_cancelling()
    running = asyncio.ensure_future(connection.execute(SLEEP))
    await asyncio.sleep(0)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    assert connection._protocol._is_cancelling()
    await connection.execute("SELECT")
    assert not connection._protocol._is_cancelling()


@checks(f"{TRANSACTION}.commit", f"{TRANSACTION}.rollback")
async def the_commands_of_a_transaction_are_statements_with_these_texts(connection: Any) -> None:
    for end in ("commit", "rollback"):
        transaction = connection.transaction()
        await transaction.start()
        savepoint = connection.transaction()
        await savepoint.start()
        await getattr(savepoint, end)()
        await getattr(transaction, end)()
    first, second = [connection.calls[1].split()[1], connection.calls[5].split()[1]]
    assert connection.calls == [
        *("BEGIN;", f"SAVEPOINT {first}", f"RELEASE SAVEPOINT {first}", "COMMIT;"),
        *("BEGIN;", f"SAVEPOINT {second}", f"ROLLBACK TO {second}", "ROLLBACK;"),
    ]


@checks(
    f"{DRIVER}._get_unique_id",
    f"{DRIVER}._get_statement",
    f"{STATEMENT}.prepared",
    f"{STATEMENT}.mark_unprepared",
    connection=PooledConnection,
)
async def statements_have_no_names_behind_a_pooler(connection: Any) -> None:
    sql, known = "SELECT $1::int", []
    for value in (1, 2):
        assert await connection.fetchval(sql, value) == value
        known.append(connection._is_known)
    assert known == [False, True]
    assert await connection.fetchval("SELECT count(*) FROM pg_prepared_statements") == 0


@checks(f"{DRIVER}._do_execute", f"{DRIVER}._drop_global_statement_cache", connection=PooledConnection)
async def a_stale_description_is_forgotten(connection: Any) -> None:
    sql = "SELECT * FROM changing"
    await connection.execute("CREATE TEMP TABLE changing AS SELECT 1 AS a")
    assert [tuple(row) for row in await connection.fetch(sql)] == [(1,)]
    await connection.execute("ALTER TABLE changing ALTER a TYPE text, ADD b int DEFAULT 2")
    with pytest.raises(asyncpg.OutdatedSchemaCacheError):
        await connection.fetch(sql)
    assert [tuple(row) for row in await connection.fetch(sql)] == [("1", 2)]


FIELDS = {
    "severity_en": "ERROR",
    "server_source_function": "exec_stmt_raise",
    "message": "the message",
    "detail": "the detail",
    "hint": "the hint",
    "schema_name": "the schema",
    "table_name": "the table",
    "column_name": "the column",
    "constraint_name": "the constraint",
    "data_type_name": "the type",
}
RAISE = """
DO $$ BEGIN
  RAISE EXCEPTION 'the message' USING DETAIL = 'the detail', HINT = 'the hint', SCHEMA = 'the schema',
    TABLE = 'the table', COLUMN = 'the column', CONSTRAINT = 'the constraint', DATATYPE = 'the type';
END $$
"""


PLACES = ("position", "internal_position", "internal_query")


@checks(f"{MESSAGE}.as_dict")
async def an_error_has_the_fields_of_postgresqls_message(connection: Any) -> None:
    with pytest.raises(asyncpg.RaiseError) as caught:
        await connection.execute(RAISE)
    fields = caught.value.as_dict()
    assert {name: fields.get(name) for name in FIELDS} == FIELDS
    assert msgspec.structs.asdict(said(caught.value)) == FIELDS
    found = []
    for sql in ("SELECT nothing", "DO $$ BEGIN EXECUTE 'SELECT nothing'; END $$"):
        with pytest.raises(asyncpg.UndefinedColumnError) as undefined:
            await connection.execute(sql)
        found.append([undefined.value.as_dict().get(name) for name in PLACES])
    assert found == [["8", None, None], [None, "8", "SELECT nothing"]]


@pytest.mark.parametrize("name", CHECKS)
def test_listed_parts_behave_on_a_connection_as_the_server_expects(name: str, postgres_url: str) -> None:
    part = {str(one): one for one in PARTS}[name]
    check, connection_class = CHECKS[name]

    async def run() -> None:
        connection: Any = await asyncpg.connect(postgres_url, connection_class=connection_class)
        connection.url = postgres_url
        try:
            await asyncio.wait_for(check(connection), MAX_SECONDS)
        finally:
            connection.terminate()

    with naming(part):
        asyncio.run(run())
