"""Applies numbered SQL files to a PostgreSQL, each once.

In: the `Migration`s of a folder and an asyncpg connection. Out: what `up` applied now, or the `script` that it would
run. Must not know what the files are about, nor any setting.

A file runs in one transaction together with its row in the record, so that it is applied as a whole or not at all,
unless it is marked `-- waterspout: no-transaction`. The statements of such a file (CREATE INDEX CONCURRENTLY, say) run
one by one, each committed by itself, and it is on record when the last of them is done. It is written so that it may
run again: what it has done by the time it fails stays done.
"""

import re
from collections.abc import Iterator, Sequence

import asyncpg

from migrations import locks, record
from migrations.files import NO_TRANSACTION, Migration, MigrationError
from migrations.locks import Connect, Patience, Run, Say
from migrations.record import Connection
from migrations.statements import Statement, is_ended

INVALID_INDEXES = """\
SELECT format('%I.%I', nspname, relname) AS name, relname AS bare
FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE NOT (indisvalid AND indisready) AND relkind = 'i' ORDER BY 1"""


async def up(
    conn: Connection,
    migrations: Sequence[Migration],
    *,
    say: Say | None = None,
    patience: Patience | None = None,
    connect: Connect | None = None,
) -> tuple[Migration, ...]:
    """Applies what is pending, in order, and returns it. `say` gets one line for each file, and for each wait.

    Any number of servers may call this at once: they take turns, and each file is applied once. The
    connection must be a session of its own, outside a transaction (not one of a pooler that lends single
    transactions), with no `command_timeout` shorter than the longest file. Its settings are put back as they
    were. `connect` opens another connection to the same database; with it a wait is told with who is waited for.

    Raises MigrationError as `status` does, for a file that did not get its locks in time, and for one that fails,
    which then leaves nothing of itself behind; the files before it stay applied.
    """
    if conn.is_in_transaction():
        raise RuntimeError("migrations need a connection that is outside a transaction")
    if not (await record.status(conn, migrations)).pending:
        return ()
    run = Run(conn, patience or Patience(), say or (lambda _: None), connect)
    async with locks.alone(run):
        await _ensure_record(run)
        pending = (await record.status(conn, migrations)).pending
        for migration in pending:
            await _apply(run, migration)
            run.tell(f"applied {migration.name}")
        return pending


async def script(conn: Connection, migrations: Sequence[Migration], *, patience: Patience | None = None) -> str:
    """What `up` would run, in order, as a text for psql. Writes nothing; empty when nothing is pending.

    Raises MigrationError as `status` does, and for a file that holds no statement.
    """
    pending = (await record.status(conn, migrations)).pending
    if not pending:
        return ""
    patience = patience or Patience()
    parts = [f"-- the table of applied migrations\n{text};\n" for text in await _record_texts(conn)]
    for migration in pending:
        _check_statements(migration)
        parts.append("\n".join(_script_of(migration, patience)))
    return "\n".join(parts)


async def _record_texts(conn: Connection) -> list[str]:
    if not await conn.fetchval(record.EXISTS):
        return [record.CREATE]
    return [] if await conn.fetchval(record.HAS_LAST_COLUMN) else [record.UPGRADE]


def _script_of(migration: Migration, patience: Patience) -> Iterator[str]:
    local = "LOCAL " if migration.in_transaction else ""
    seconds = patience.lock_timeout_seconds if local else patience.wait_seconds
    settings = locks.SESSION | {"lock_timeout": locks.milliseconds(seconds)}
    yield f"-- {migration.name}: " + ("one transaction" if local else "no transaction, one statement after another")
    if local:
        yield "BEGIN;"
    for name, value in settings.items():
        if name != "transaction_timeout":  # before PostgreSQL 17 it would be an error
            yield f"SET {local}{name} = {value if name == 'search_path' else repr(value)};"
    yield migration.sql.rstrip("\n") + ("" if is_ended(migration.sql) else "\n;")
    yield record.insert_text(migration) + ";"
    if local:
        yield "COMMIT;"
    yield ""


async def _ensure_record(run: Run) -> None:
    try:
        await locks.patiently(run, "the table of applied migrations", lambda: record.ensure(run.conn))
    except asyncpg.PostgresError as error:
        raise MigrationError(f"the table of applied migrations cannot be made: {_postgres_words(error)}") from error


def _check_statements(migration: Migration) -> None:
    """An empty file on record could never be filled."""
    if not migration.statements:
        raise MigrationError(f"{migration.name} holds no statement yet")


async def _apply(run: Run, migration: Migration) -> None:
    _check_statements(migration)
    try:
        await locks.pin(run.conn)
        if migration.in_transaction:
            await locks.patiently(run, migration.name, lambda: _run_in_transaction(run.conn, migration))
        else:
            await _run_alone(run, migration)
    except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        if run.conn.is_closed():
            raise MigrationError(f"{migration.name}: the connection to PostgreSQL was lost") from error
        if isinstance(error, asyncpg.InterfaceError):
            raise
        raise MigrationError(_failure(migration, error)) from error


async def _run_in_transaction(conn: Connection, migration: Migration) -> None:
    # What the file sets for its session must not outlive an attempt that is rolled back, nor leak into the next file:
    # a SET is undone by the rollback, and the next file is pinned anew.
    async with conn.transaction():
        await conn.execute(_as_block(migration))
        await record.insert(conn, migration)


def _as_block(migration: Migration) -> str:
    # EXECUTE takes any number of statements and refuses BEGIN, COMMIT, ROLLBACK and the like before they do
    # harm. Sent bare, a COMMIT in the file would end our transaction, and half a file would stay. A text
    # cannot hold its own checksum, so the quotes cannot meet in it.
    do, quote = f"$do_{migration.checksum}$", f"$sql_{migration.checksum}$"
    return f"DO {do}BEGIN EXECUTE {quote}{migration.sql}{quote}; END{do}"


async def _run_alone(run: Run, migration: Migration) -> None:
    invalid_before = await _invalid_indexes(run.conn)
    for done, statement in enumerate(migration.statements):
        try:
            await _run_statement(run, migration, statement)
        except (asyncpg.PostgresError, MigrationError) as error:
            if run.conn.is_closed():
                raise
            new = [name for name in await _invalid_indexes(run.conn) if name not in invalid_before]
            said = _failure(migration, error, statement) if isinstance(error, asyncpg.PostgresError) else str(error)
            raise MigrationError(said + _left(migration, done, new)) from error
    # CREATE INDEX CONCURRENTLY IF NOT EXISTS passes over what an earlier run left.
    left = [name for name, bare in (await _invalid_indexes(run.conn)).items() if _names(migration, bare)]
    if left:
        raise MigrationError(f"{migration.name} is not applied" + _left(migration, 0, left))
    await record.insert(run.conn, migration)


async def _run_statement(run: Run, migration: Migration, statement: Statement) -> None:
    if {"COPY", "STDIN"} <= set(statement.words):
        raise MigrationError(f"{_place(migration, statement.line)}: COPY of data is not for migrations")
    if "CONCURRENTLY" in statement.words:
        # It waits for older transactions, and no request waits behind it. A short limit would leave one invalid index
        # after the other.
        await locks.limit(run.conn, run.patience.wait_seconds)
        async with locks.looking(run, migration.name, locks.Sight()):
            await run.conn.fetch(statement.sql)
    else:
        await locks.patiently(run, _place(migration, statement.line), lambda: run.conn.fetch(statement.sql))
    if run.conn.is_in_transaction():
        await run.conn.execute("ROLLBACK")
        raise MigrationError(f"{_place(migration, statement.line)}: a marked file begins no transaction")


async def _invalid_indexes(conn: Connection) -> dict[str, str]:
    """What CREATE INDEX CONCURRENTLY and the like left half made: qualified and quoted name -> bare name."""
    return {row["name"]: row["bare"] for row in await conn.fetch(INVALID_INDEXES)}


def _names(migration: Migration, bare: str) -> bool:
    return re.search(rf"(?<![\w$]){re.escape(bare)}(?![\w$])", migration.sql, re.IGNORECASE) is not None


def _left(migration: Migration, done: int, invalid: Sequence[str]) -> str:
    """What a run that failed left behind, and what to do about it."""
    text = ""
    if done:
        text += f". What came before in the file is done and stays ({done} of {len(migration.statements)} statements)"
    if invalid:
        drops = "; ".join(f"DROP INDEX CONCURRENTLY {name}" for name in invalid)
        text += f". Half made and invalid: {', '.join(invalid)}. Drop it, unless the file does so itself: {drops}"
    return text + (". The next run begins with the first statement of the file" if done or invalid else "")


def _failure(migration: Migration, error: asyncpg.PostgresError, statement: Statement | None = None) -> str:
    place = _place(migration, _line(migration, error, statement))
    return f"{place}: {_postgres_words(error)}{_advice(error)}"


def _place(migration: Migration, line: int | None) -> str:
    return f"{migration.name}, line {line}" if line else migration.name


def _postgres_words(error: asyncpg.PostgresError) -> str:
    return ". ".join(part.rstrip(".") for part in (error.message, error.detail, error.hint) if part)


def _line(migration: Migration, error: asyncpg.PostgresError, statement: Statement | None) -> int | None:
    if statement is not None:
        return statement.line + statement.sql.count("\n", 0, max(0, int(error.position or 1) - 1))
    if error.internal_query != migration.sql or not error.internal_position:
        return None
    return migration.sql.count("\n", 0, int(error.internal_position) - 1) + 1


def _advice(error: asyncpg.PostgresError) -> str:
    # PostgreSQL's words may be translated; the name of the function that speaks is not.
    if isinstance(error, asyncpg.ActiveSQLTransactionError):
        return f". What cannot run in a transaction has its own file, whose first line is {NO_TRANSACTION!r}"
    if error.server_source_function == "exec_stmt_dynexecute":
        return ". The transaction is the runner's; COPY of data and SELECT INTO are not for migrations either"
    return ""
