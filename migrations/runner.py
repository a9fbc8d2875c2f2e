"""Applies numbered SQL files to a database, each once.

In: the `Migration`s of a folder and an asyncpg connection. Out: what `up` applied, or the `script` that it would run.
Must not know what the files do, nor any setting.

A file runs in one transaction together with its row in the table of applied migrations, so it is applied completely or
not at all. The statements of a file marked `-- waterspout: no-transaction` (such as CREATE INDEX CONCURRENTLY) run one
by one, each committed by itself, and the file is recorded after the last one. If it fails, its earlier statements stay
done, so such a file must be written to run again."""

import re
from collections.abc import Iterator, Sequence

import asyncpg

from migrations import locks, record
from migrations.files import NO_TRANSACTION, Migration, MigrationError
from migrations.locks import Connect, LockWait, Run, Say
from migrations.record import Connection
from migrations.statements import MigrationStatement, is_ended

INVALID_INDEXES = """\
SELECT format('%I.%I', nspname, relname) AS name, relname AS bare
FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE NOT (indisvalid AND indisready) AND relkind = 'i' ORDER BY 1"""


async def up(
    conn: Connection,
    migrations: Sequence[Migration],
    *,
    say: Say | None = None,
    begin: Say | None = None,
    lock_wait: LockWait | None = None,
    connect: Connect | None = None,
    table: str = record.TABLE,
) -> tuple[Migration, ...]:
    """Apply the pending files in order, and return them. `say` gets one line for each file, and for each wait.
    `begin` gets the name of each file before it is applied.

    Any number of servers may call this at once: they take turns, and each file is applied once. The connection must be
    a session of its own, outside a transaction, not behind a pooler in transaction mode, and without a
    `command_timeout` shorter than the longest file. Its settings are restored. `connect` opens another connection to
    the same database; with it, waits are reported with the blocking sessions. `table` records what was applied.

    Raises MigrationError like `status`, for a file that did not get its locks in time, and for a file that fails. A
    failed file is rolled back; the files before it stay applied.
    """
    if conn.is_in_transaction():
        raise RuntimeError("migrations need a connection that is outside a transaction")
    if not (await record.status(conn, migrations, table)).pending:
        return ()
    run = Run(conn, lock_wait or LockWait(), say or (lambda _: None), connect, table)
    async with locks.hold_runner_lock(run):
        await _ensure_record(run)
        pending = (await record.status(conn, migrations, table)).pending
        for migration in pending:
            if begin is not None:
                begin(migration.name)
            await _apply(run, migration)
            run.say(f"applied {migration.name}")
        return pending


async def script(
    conn: Connection,
    migrations: Sequence[Migration],
    *,
    lock_wait: LockWait | None = None,
    table: str = record.TABLE,
) -> str:
    """Return the SQL that `up` would run as a script for psql, or "" if nothing is pending. Change nothing.

    Raises MigrationError like `status`, and for a file without a statement.
    """
    pending = (await record.status(conn, migrations, table)).pending
    if not pending:
        return ""
    lock_wait = lock_wait or LockWait()
    parts = [f"-- the table of applied migrations\n{text};\n" for text in await record.statements(conn, table)]
    for migration in pending:
        _check_statements(migration)
        parts.append("\n".join(_script_lines(migration, lock_wait, table)))
    return "\n".join(parts)


def _script_lines(migration: Migration, lock_wait: LockWait, table: str) -> Iterator[str]:
    local = "LOCAL " if migration.in_transaction else ""
    seconds = lock_wait.lock_timeout_seconds if local else lock_wait.wait_seconds
    settings = locks.SESSION | {"lock_timeout": locks.milliseconds(seconds)}
    yield f"-- {migration.name}: " + ("one transaction" if local else "no transaction, one statement after another")
    if local:
        yield "BEGIN;"
    for name, value in settings.items():
        if name != "transaction_timeout":  # before PostgreSQL 17 it would be an error
            yield f"SET {local}{name} = {value if name == 'search_path' else repr(value)};"
    yield migration.sql.rstrip("\n") + ("" if is_ended(migration.sql) else "\n;")
    yield record.insert_text(migration, table) + ";"
    if local:
        yield "COMMIT;"
    yield ""


async def _ensure_record(run: Run) -> None:
    try:
        await locks.retry_for_locks(run, "the table of applied migrations", lambda: record.ensure(run.conn, run.table))
    except asyncpg.PostgresError as error:
        raise MigrationError(f"the table of applied migrations cannot be made: {_postgres_message(error)}") from error


def _check_statements(migration: Migration) -> None:
    """Check that the file is not empty: once it is recorded, nobody could add statements. Raises MigrationError."""
    if not migration.statements:
        raise MigrationError(f"{migration.name} has no statement yet")


async def _apply(run: Run, migration: Migration) -> None:
    _check_statements(migration)
    try:
        await locks.apply_session_settings(run.conn)
        if migration.in_transaction:
            await locks.retry_for_locks(run, migration.name, lambda: _run_in_transaction(run, migration))
        else:
            await _run_without_transaction(run, migration)
    except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        if run.conn.is_closed():
            raise MigrationError(f"{migration.name}: the connection to PostgreSQL was lost") from error
        if isinstance(error, asyncpg.InterfaceError):
            raise
        raise MigrationError(_failure(migration, error)) from error


async def _run_in_transaction(run: Run, migration: Migration) -> None:
    # Session settings of the file must not outlive a rolled-back attempt or leak into the next file: the rollback
    # undoes a SET, and the settings are applied again before the next file.
    async with run.conn.transaction():
        await run.conn.execute(_as_do_block(migration))
        await record.insert(run.conn, migration, run.table)


def _as_do_block(migration: Migration) -> str:
    # EXECUTE runs any number of statements, and refuses BEGIN, COMMIT, ROLLBACK and the like. Without it, a COMMIT in
    # the file would end our transaction, and half a file would stay applied. A text cannot contain its own checksum, so
    # it cannot contain the quotes.
    do, quote = f"$do_{migration.checksum}$", f"$sql_{migration.checksum}$"
    return f"DO {do}BEGIN EXECUTE {quote}{migration.sql}{quote}; END{do}"


async def _run_without_transaction(run: Run, migration: Migration) -> None:
    invalid_before = await _invalid_indexes(run.conn)
    for done, statement in enumerate(migration.statements):
        try:
            await _run_statement(run, migration, statement)
        except (asyncpg.PostgresError, MigrationError) as error:
            if run.conn.is_closed():
                raise
            new = [name for name in await _invalid_indexes(run.conn) if name not in invalid_before]
            said = _failure(migration, error, statement) if isinstance(error, asyncpg.PostgresError) else str(error)
            raise MigrationError(said + _leftovers(migration, done, new)) from error
    # CREATE INDEX CONCURRENTLY IF NOT EXISTS skips an invalid index that an earlier run left.
    left = [name for name, bare in (await _invalid_indexes(run.conn)).items() if _mentions(migration, bare)]
    if left:
        raise MigrationError(f"{migration.name} is not applied" + _leftovers(migration, 0, left))
    await record.insert(run.conn, migration, run.table)


async def _run_statement(run: Run, migration: Migration, statement: MigrationStatement) -> None:
    if {"COPY", "STDIN"} <= set(statement.words):
        raise MigrationError(f"{_place(migration, statement.line)}: COPY of data is not supported in migrations")
    if "CONCURRENTLY" in statement.words:
        # It waits for older transactions, and blocks no requests. Each attempt with a short timeout would leave an
        # invalid index.
        await locks.set_lock_timeout(run.conn, run.lock_wait.wait_seconds)
        async with locks.report_blockers(run, migration.name, locks.Blockers()):
            await run.conn.fetch(statement.sql)
    else:
        await locks.retry_for_locks(run, _place(migration, statement.line), lambda: run.conn.fetch(statement.sql))
    if run.conn.is_in_transaction():
        await run.conn.execute("ROLLBACK")
        raise MigrationError(f"{_place(migration, statement.line)}: a marked file must not begin a transaction")


async def _invalid_indexes(conn: Connection) -> dict[str, str]:
    """Return the invalid indexes that a failed CREATE INDEX CONCURRENTLY leaves: qualified and quoted name -> bare
    name."""
    return {row["name"]: row["bare"] for row in await conn.fetch(INVALID_INDEXES)}


def _mentions(migration: Migration, bare: str) -> bool:
    return re.search(rf"(?<![\w$]){re.escape(bare)}(?![\w$])", migration.sql, re.IGNORECASE) is not None


def _leftovers(migration: Migration, done: int, invalid: Sequence[str]) -> str:
    """Return a message about what a failed run left behind, and what to do about it."""
    text = ""
    if done:
        text += (
            f". The statements before it in the file stay applied ({done} of {len(migration.statements)} statements)"
        )
    if invalid:
        drops = "; ".join(f"DROP INDEX CONCURRENTLY {name}" for name in invalid)
        text += f". Left behind invalid: {', '.join(invalid)}. Drop it, unless the file does so itself: {drops}"
    return text + (". The next run begins with the first statement of the file" if done or invalid else "")


def _failure(migration: Migration, error: asyncpg.PostgresError, statement: MigrationStatement | None = None) -> str:
    place = _place(migration, _line(migration, error, statement))
    return f"{place}: {_postgres_message(error)}{_advice(error)}"


def _place(migration: Migration, line: int | None) -> str:
    return f"{migration.name}, line {line}" if line else migration.name


def _postgres_message(error: asyncpg.PostgresError) -> str:
    said = error.as_dict()
    parts = [said.get(name) for name in ("message", "detail", "hint")]
    return ". ".join([part.rstrip(".") for part in parts if part])


def _line(migration: Migration, error: asyncpg.PostgresError, statement: MigrationStatement | None) -> int | None:
    said = error.as_dict()
    if statement is not None:
        return statement.line + statement.sql.count("\n", 0, max(0, int(said.get("position", 1)) - 1))
    if said.get("internal_query") != migration.sql or "internal_position" not in said:
        return None
    return migration.sql.count("\n", 0, int(said["internal_position"]) - 1) + 1


def _advice(error: asyncpg.PostgresError) -> str:
    # PostgreSQL's messages may be translated; the name of the source function is not.
    if isinstance(error, asyncpg.ActiveSQLTransactionError):
        return f". What cannot run in a transaction has its own file, whose first line is {NO_TRANSACTION!r}"
    if error.as_dict().get("server_source_function") == "exec_stmt_dynexecute":
        return ". The transaction is the runner's; COPY of data and SELECT INTO are not supported in migrations either"
    return ""
