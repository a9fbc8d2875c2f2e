"""Reads and writes the table of applied migrations, and compares it with a folder.

In: an asyncpg connection and the `Migration`s of a folder. Out: the `Status` of the database, or its faults. Must not
know how a file is applied.

There is one table for each set of files: `TABLE` for those of the user or of the built-in resources, `SERVER_TABLE` for
those of the server itself. Their last column was added later. A table without it is read as if no file broke older
servers. The next run that applies a file adds the column.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias

import asyncpg

from migrations.files import Migration, MigrationError

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]"

TABLE = "public.waterspout_migrations"
SERVER_SCHEMA = "waterspout"
SERVER_TABLE = f"{SERVER_SCHEMA}.migrations"

_CREATE = """\
CREATE TABLE {table} (
    number integer PRIMARY KEY,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(),
    breaks_older_servers boolean NOT NULL DEFAULT false
)"""
_CREATE_SCHEMA = f"CREATE SCHEMA IF NOT EXISTS {SERVER_SCHEMA}"
_UPGRADE = """\
ALTER TABLE {table} ADD COLUMN IF NOT EXISTS breaks_older_servers boolean NOT NULL DEFAULT false"""
_INSERT = """\
INSERT INTO {table} (number, name, checksum, breaks_older_servers) VALUES ($1, $2, $3, $4)"""
# Through JSON, because the column may be missing.
_SELECT = """\
SELECT number, name, checksum, applied_at, coalesce((to_jsonb(record) ->> 'breaks_older_servers')::boolean, false)
FROM {table} record ORDER BY number"""
_EXISTS = "SELECT to_regclass($1) IS NOT NULL"
_HAS_LAST_COLUMN = """\
SELECT EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass($1)
               AND attname = 'breaks_older_servers' AND NOT attisdropped)"""


@dataclass(frozen=True, slots=True)
class Applied:
    """One applied migration: a row of the table."""

    number: int
    name: str
    checksum: str
    applied_at: datetime
    breaks_older_servers: bool = False


@dataclass(frozen=True, slots=True)
class Status:
    """A database compared with a folder. applied, pending: files of the folder. ahead: migrations that were applied and
    that the folder does not have."""

    applied: tuple[Migration, ...]
    pending: tuple[Migration, ...]
    ahead: tuple[Applied, ...]

    @property
    def breaking(self) -> tuple[Applied, ...]:
        """The applied migrations that break servers without their files."""
        return tuple(row for row in self.ahead if row.breaks_older_servers)


async def status(conn: Connection, migrations: Sequence[Migration], table: str = TABLE) -> Status:
    """Compare a database with these migrations. Reads only the table, takes no lock, writes nothing.

    `ahead` is not an error: during a rolling update the database is migrated before the last old server stops. Raises
    MigrationError for a file that was changed, removed or renamed after it was applied, and for a gap in the table.
    """
    return compare(migrations, await read(conn, table))


async def verify(conn: Connection, migrations: Sequence[Migration], table: str = TABLE) -> tuple[str, ...]:
    """Return all faults that `status` would raise, in the order of the numbers. Writes nothing."""
    return tuple(faults(migrations, await read(conn, table)))


def compare(migrations: Sequence[Migration], record: Sequence[Applied]) -> Status:
    """Return the status of rows that were read before. Raises MigrationError like `status`."""
    for fault in faults(migrations, record):
        raise MigrationError(fault)
    count = len(record)
    return Status(tuple(migrations[:count]), tuple(migrations[count:]), ahead=tuple(record[len(migrations) :]))


async def read(conn: Connection, table: str = TABLE) -> tuple[Applied, ...]:
    """Return the applied migrations in the order of their numbers; none if the table does not exist yet."""
    if not await _exists(conn, table):
        return ()
    return tuple(Applied(*row) for row in await conn.fetch(_SELECT.format(table=table)))


async def _exists(conn: Connection, table: str) -> bool:
    exists: bool = await conn.fetchval(_EXISTS, table)
    return exists


def faults(migrations: Sequence[Migration], record: Sequence[Applied]) -> Iterator[str]:
    """Return the differences between files and table that are errors, in order."""
    files = {migration.number: migration for migration in migrations}
    expected = 1
    for row in record:
        for number in range(expected, row.number):
            lacking = files[number].name if number in files else f"{number:04}"
            yield f"{row.name} was applied to this database, but {lacking} before it was not"
        expected = row.number + 1
        if row.number in files:
            yield from _file_faults(migrations, files[row.number], row)


def _file_faults(migrations: Sequence[Migration], migration: Migration, row: Applied) -> Iterator[str]:
    if migration.name != row.name:
        same = next((other.name for other in migrations if other.checksum == row.checksum), None)
        is_now = f"was renamed to {same}" if same else "is missing from the folder"
        instead = "" if same == migration.name else f", which has {migration.name} in its place"
        advice = "" if same else "; is it the folder that belongs to this database?"
        yield f"{row.name} was applied to this database and {is_now}{instead}{advice}"
    elif migration.checksum != row.checksum:
        yield (
            f"{migration.name} was changed after it was applied on {row.applied_at:%Y-%m-%d}; "
            "put it back as it was and write a new file for what should change"
        )


async def statements(conn: Connection, table: str) -> list[str]:
    """Return the statements that create the table, or add its missing column."""
    if not await _exists(conn, table):
        return ([_CREATE_SCHEMA] if table == SERVER_TABLE else []) + [_CREATE.format(table=table)]
    return [] if await conn.fetchval(_HAS_LAST_COLUMN, table) else [_UPGRADE.format(table=table)]


async def ensure(conn: Connection, table: str) -> None:
    """Create the table, or add its missing column. The caller must hold the advisory lock of the runners."""
    for statement in await statements(conn, table):
        await conn.execute(statement)


async def insert(conn: Connection, migration: Migration, table: str) -> None:
    """Record an applied migration."""
    values = (migration.number, migration.name, migration.checksum, migration.breaks_older_servers)
    await conn.execute(_INSERT.format(table=table), *values)


def insert_text(migration: Migration, table: str) -> str:
    """Return the statement of `insert` as text, for a script. Name and checksum contain no quotes."""
    statement = _INSERT.format(table=table)
    values = (migration.number, repr(migration.name), repr(migration.checksum), migration.breaks_older_servers)
    for place, value in enumerate(values, 1):
        statement = statement.replace(f"${place}", str(value))
    return statement
