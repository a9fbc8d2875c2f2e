"""Applies numbered SQL files to a PostgreSQL, each once.

In: a folder of files `NNNN_what.sql` and an asyncpg connection. Out: the `Migration`s of the folder, the
`Status` of a database against them, and what `up` applied now. Must not know what the files are about, nor
any setting.

The record of what was applied is the table `public.waterspout_migrations`. A file runs in one transaction
together with its row there, so that it is applied as a whole or not at all, unless its first line is

    -- waterspout: no-transaction

Such a file holds one statement (CREATE INDEX CONCURRENTLY, say) and is written so that it may run again:
what it has done by the time it fails stays done, and is not on record.
"""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import asyncpg

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]"
Say: TypeAlias = Callable[[str], None]

NO_TRANSACTION = "-- waterspout: no-transaction"
ORDER = re.compile(r"-- *waterspout *:")
NAME = re.compile(r"([0-9]{4})_[A-Za-z0-9_-]+\.sql")
LOOKS_NUMBERED = re.compile(r"[0-9].*\.sql", re.IGNORECASE)

# Any number would do, as long as every version of this program keeps to it: the advisory lock of the one
# runner that is at work in a database. The bytes of "watersp".
LOCK = 0x77617465727370
POLL_SECONDS = 0.1

CREATE_RECORD = """
CREATE TABLE public.waterspout_migrations (
    number integer PRIMARY KEY,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)"""
INSERT_RECORD = "INSERT INTO public.waterspout_migrations (number, name, checksum) VALUES ($1, $2, $3)"
SELECT_RECORD = "SELECT number, name, checksum, applied_at FROM public.waterspout_migrations ORDER BY number"
HAS_RECORD = "SELECT to_regclass('public.waterspout_migrations') IS NOT NULL"

# Unqualified names in a file mean `public`, whatever the role's own path; pg_temp last, so that nothing
# shadows them.
PIN_PATH = "SET search_path = public, pg_temp"


class MigrationError(RuntimeError):
    """Files and database do not go together, or a file failed. The message is whole, and for a person."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One file. `sql` is its text with line ends as LF, `checksum` the hexadecimal SHA-256 of that text."""

    number: int
    name: str
    sql: str
    checksum: str
    in_transaction: bool


@dataclass(frozen=True, slots=True)
class Status:
    """A database against a folder: files on record, files to apply, numbers on record beyond the folder."""

    applied: tuple[Migration, ...]
    pending: tuple[Migration, ...]
    ahead: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Applied:
    """One row of the record."""

    number: int
    name: str
    checksum: str
    applied_at: datetime


def load(folder: Path) -> tuple[Migration, ...]:
    """The migrations of a folder in order, numbered from 0001 without a gap.

    Files whose names do not begin with a digit and end in `.sql` (schema.sql, notes) are left alone. Raises
    MigrationError for a folder that cannot be read or holds none, a gap, a number taken twice, a name that
    is almost one of ours, and a text that is not UTF-8.
    """
    migrations = tuple(_read(path) for path in _numbered(folder))
    if not migrations:
        raise MigrationError(f"{folder} holds no migrations; the first would be called 0001_<what>.sql")
    for expected, (before, migration) in enumerate(zip((None, *migrations), migrations, strict=False), 1):
        if before is not None and before.number == migration.number:
            raise MigrationError(f"{before.name} and {migration.name} have the same number; one must move on")
        if migration.number != expected:
            raise MigrationError(f"{folder} lacks {expected:04}_<what>.sql: the next file is {migration.name}")
    return migrations


async def status(conn: Connection, migrations: Sequence[Migration]) -> Status:
    """What a database has of these migrations. Reads the record alone, takes no lock, writes nothing.

    `ahead` is no error: while a fleet is being updated, the database is migrated before the last old server
    goes. Raises MigrationError for a file that was changed, removed or renamed after it was applied, and
    for a record that has a gap.
    """
    record = await _record(conn)
    _check_gapless(migrations, record)
    for migration, row in zip(migrations, record, strict=False):
        _check_unchanged(migration, row)
    count = len(record)
    ahead = tuple(row.number for row in record[len(migrations) :])
    return Status(applied=tuple(migrations[:count]), pending=tuple(migrations[count:]), ahead=ahead)


async def up(conn: Connection, migrations: Sequence[Migration], *, say: Say | None = None) -> tuple[Migration, ...]:
    """Applies what is pending, in order, and returns it. `say` gets one line for each file, and for a wait.

    Any number of servers may call this at once: they take turns, and each file is applied once. The
    connection must be a session of its own, outside a transaction (not one of a pooler that lends single
    transactions), with no `command_timeout` shorter than the longest file. Its search_path is put back as
    it was.

    Raises MigrationError as `status` does, and for a file that fails, which then leaves nothing of itself
    behind; the files before it stay applied.
    """
    if conn.is_in_transaction():
        raise RuntimeError("migrations need a connection that is outside a transaction")
    tell = say or (lambda _: None)
    if not (await status(conn, migrations)).pending:
        return ()
    async with _alone(conn, tell):
        await _ensure_record(conn)
        pending = (await status(conn, migrations)).pending
        for migration in pending:
            await _apply(conn, migration)
            tell(f"applied {migration.name}")
        return pending


def _numbered(folder: Path) -> list[Path]:
    try:
        paths = sorted(path for path in folder.iterdir() if LOOKS_NUMBERED.fullmatch(path.name))
    except OSError as error:
        raise MigrationError(f"the migrations folder {folder} cannot be read: {error.strerror}") from error
    for path in paths:
        if not NAME.fullmatch(path.name):
            raise MigrationError(f"{path.name} looks like a migration, which would be called NNNN_<what>.sql")
    return paths


def _read(path: Path) -> Migration:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise MigrationError(f"{path.name} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise MigrationError(f"{path.name} is not UTF-8 text (byte {error.start})") from error
    sql = text.replace("\r\n", "\n")
    return Migration(
        number=int(path.name[:4]),
        name=path.name,
        sql=sql,
        checksum=hashlib.sha256(sql.encode()).hexdigest(),
        in_transaction=not _is_marked(path.name, sql),
    )


def _is_marked(name: str, sql: str) -> bool:
    first = sql.partition("\n")[0].rstrip()
    if ORDER.match(first) and first != NO_TRANSACTION:
        raise MigrationError(f"{name} begins with {first!r}; the one marker there is reads {NO_TRANSACTION!r}")
    return first == NO_TRANSACTION


async def _record(conn: Connection) -> tuple[Applied, ...]:
    if not await conn.fetchval(HAS_RECORD):
        return ()
    return tuple(Applied(*row) for row in await conn.fetch(SELECT_RECORD))


def _check_gapless(migrations: Sequence[Migration], record: Sequence[Applied]) -> None:
    for expected, row in enumerate(record, 1):
        if row.number != expected:
            lacking = migrations[expected - 1].name if expected <= len(migrations) else f"{expected:04}"
            raise MigrationError(f"{row.name} was applied to this database, but {lacking} before it was not")


def _check_unchanged(migration: Migration, row: Applied) -> None:
    if migration.name != row.name:
        raise MigrationError(
            f"{row.name} was applied to this database and is missing from the folder, "
            f"which has {migration.name} in its place"
        )
    if migration.checksum != row.checksum:
        raise MigrationError(
            f"{migration.name} was changed after it was applied on {row.applied_at:%Y-%m-%d}; "
            "put it back as it was and write a new file for what should change"
        )


@asynccontextmanager
async def _alone(conn: Connection, tell: Say) -> AsyncIterator[None]:
    path = await conn.fetchval("SELECT current_setting('search_path')")
    try:
        await _lock(conn, tell)
        yield
    finally:
        # Where the session is gone, lock and path went with it.
        with suppress(asyncpg.InterfaceError, asyncpg.PostgresConnectionError, OSError):
            await conn.execute("SELECT pg_advisory_unlock($1), set_config('search_path', $2, false)", LOCK, path)


async def _lock(conn: Connection, tell: Say) -> None:
    # Asked for again and again rather than waited for: a session that waits inside pg_advisory_lock() holds
    # a snapshot, a CREATE INDEX CONCURRENTLY of the lock's holder waits for that snapshot, and the two
    # deadlock.
    is_told = False
    while not await conn.fetchval("SELECT pg_try_advisory_lock($1)", LOCK):
        if not is_told:
            tell("waiting for another server that is applying migrations")
            is_told = True
        await asyncio.sleep(POLL_SECONDS)


async def _ensure_record(conn: Connection) -> None:
    if await conn.fetchval(HAS_RECORD):
        return
    try:
        await conn.execute(CREATE_RECORD)
    except asyncpg.PostgresError as error:
        raise MigrationError(f"the table of applied migrations cannot be made: {_postgres_words(error)}") from error


async def _apply(conn: Connection, migration: Migration) -> None:
    run = _run_in_transaction if migration.in_transaction else _run_alone
    try:
        await conn.execute(PIN_PATH)
        await run(conn, migration)
    except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        if conn.is_closed():
            raise MigrationError(f"{migration.name}: the connection to PostgreSQL was lost") from error
        if isinstance(error, asyncpg.InterfaceError):
            raise
        raise MigrationError(_failure(migration, error)) from error


async def _run_in_transaction(conn: Connection, migration: Migration) -> None:
    async with conn.transaction():
        await conn.execute(_as_block(migration))
        await _insert_record(conn, migration)


async def _run_alone(conn: Connection, migration: Migration) -> None:
    # By the extended protocol, because PostgreSQL then takes one statement and no more.
    await conn.fetch(migration.sql)
    await _insert_record(conn, migration)


async def _insert_record(conn: Connection, migration: Migration) -> None:
    await conn.execute(INSERT_RECORD, migration.number, migration.name, migration.checksum)


def _as_block(migration: Migration) -> str:
    # EXECUTE takes any number of statements and refuses BEGIN, COMMIT, ROLLBACK and the like before they do
    # harm. Sent bare, a COMMIT in the file would end our transaction, and half a file would stay. A text
    # cannot hold its own checksum, so the quotes cannot meet in it.
    do, quote = f"$do_{migration.checksum}$", f"$sql_{migration.checksum}$"
    return f"DO {do}BEGIN EXECUTE {quote}{migration.sql}{quote}; END{do}"


def _failure(migration: Migration, error: asyncpg.PostgresError) -> str:
    line = _line(migration, error)
    place = f"{migration.name}, line {line}" if line else migration.name
    return f"{place}: {_postgres_words(error)}{_advice(migration, error)}"


def _postgres_words(error: asyncpg.PostgresError) -> str:
    return ". ".join(part.rstrip(".") for part in (error.message, error.detail, error.hint) if part)


def _line(migration: Migration, error: asyncpg.PostgresError) -> int | None:
    if migration.in_transaction and error.internal_query != migration.sql:
        return None
    position = error.internal_position if migration.in_transaction else error.position
    return migration.sql.count("\n", 0, int(position) - 1) + 1 if position else None


def _advice(migration: Migration, error: asyncpg.PostgresError) -> str:
    # PostgreSQL's words may be translated; the name of the function that speaks is not.
    speaker = error.server_source_function
    if isinstance(error, asyncpg.ActiveSQLTransactionError):
        return f". What cannot run in a transaction has its own file, whose first line is {NO_TRANSACTION!r}"
    if speaker == "exec_stmt_dynexecute":
        return ". The transaction is the runner's; COPY of data and SELECT INTO are not for migrations either"
    if not migration.in_transaction and speaker == "exec_parse_message":
        return f". A file whose first line is {NO_TRANSACTION!r} holds one statement"
    return ""
