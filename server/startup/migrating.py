"""Applies migrations at a start and for the commands, and decides whether the server can use the schema.

What comes in: settings, a connection. What goes out: a schema that this server can use, or StartError.

It must not know: declarations, which are compared with the tables elsewhere.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import asyncpg
import msgspec

import migrations
from migrations import LockWait, Migration, Status
from server.postgres.opening import open_alone
from server.settings import Settings, StartError
from server.settings.served import BUILT_IN, built_in_hint, is_built_in
from server.tools.console.progress import step

# One statement, because another runner may create the record, and then the tables, between two. The tables of
# extensions belong to no user.
_OTHER_TABLES = f"""
SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE to_regclass('public.waterspout_migrations') IS NULL AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
AND n.nspname NOT IN ('information_schema', '{migrations.SERVER_SCHEMA}') AND n.nspname NOT LIKE 'pg\\_%'
AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
ORDER BY 1
"""
_SHOWN_TABLES = 5

_KEYS_TABLE = f"{migrations.SERVER_SCHEMA}.idempotency_keys"
_KEY_PRIVILEGES = ("SELECT", "INSERT", "UPDATE", "DELETE")
_HAS_PRIVILEGES = f"""
SELECT quote_ident(current_user), {
    ",".join(
        f"has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, '{name}')" for name in _KEY_PRIVILEGES
    )
}
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = '{migrations.SERVER_SCHEMA}' AND c.relname = 'idempotency_keys'
"""

log = logging.getLogger("server")


class MigrationSet(msgspec.Struct, frozen=True):
    """Files that are applied together. table: in which it is recorded what was applied. prefix: before their names when
    they are shown. hint: what to do if they are not those that the user means."""

    files: tuple[Migration, ...]
    table: str = migrations.TABLE
    prefix: str = ""
    hint: str = ""

    def names(self, listed: Sequence[Migration | migrations.Applied]) -> str:
        """Return the names of migrations, separated by commas."""
        return ", ".join(self.prefix + migration.name for migration in listed)

    async def status(self, connection: asyncpg.Connection[Any]) -> Status:
        """Compare a database with the files. Raises MigrationError."""
        return await migrations.status(connection, self.files, self.table)


def known_migrations(settings: Settings) -> tuple[Migration, ...]:
    """Return the migrations of the folder in the settings. Without a folder, return the built-in ones for the built-in
    resources, and none for a user's own resources."""
    if settings.migrations is not None:
        return migrations.load(settings.migrations)
    return migrations.load(migrations.BUILT_IN) if is_built_in(settings) else ()


def migration_sets(settings: Settings) -> tuple[MigrationSet, ...]:
    """Return all migrations of a server with these settings."""
    hint = "" if settings.migrations is not None else built_in_hint(settings)
    own = MigrationSet(known_migrations(settings), hint=hint)
    if not settings.keeps_answers:
        return (own,)
    return own, MigrationSet(
        migrations.load(migrations.SERVER), migrations.SERVER_TABLE, f"{migrations.SERVER_SCHEMA}/"
    )


def lock_wait(settings: Settings) -> LockWait:
    """Return how long migrations wait, from the settings."""
    return LockWait(settings.migration_lock_timeout_seconds, settings.migration_wait_seconds)


def refuse_pooler(settings: Settings) -> None:
    """Refuse to migrate through a pooler. It assigns a backend for one transaction, so another client could get the
    backend that holds the lock of the runner. Raises StartError."""
    if settings.pooler != "none":
        raise StartError(
            "migrations are not applied through a pooler: `waterspout migrate up --pooler none` with PostgreSQL's own "
            "address in --database-url"
        )


async def apply(
    connection: asyncpg.Connection[Any], url: str, settings: Settings, say: Callable[[str], None]
) -> tuple[Migration, ...]:
    """Apply the pending migrations and return them. Raises StartError, MigrationError."""
    await _refuse_other_tables(connection, settings)
    applied = [
        await _apply_set(connection, url, settings, migration_set, say) for migration_set in migration_sets(settings)
    ]
    return tuple(chain.from_iterable(applied))


async def _apply_set(
    connection: asyncpg.Connection[Any], url: str, settings: Settings, known: MigrationSet, say: Callable[[str], None]
) -> tuple[Migration, ...]:
    if settings.pooler != "none" and (await known.status(connection)).pending:
        refuse_pooler(settings)
    with step("applying migrations") as show:
        return await migrations.up(
            connection,
            known.files,
            say=say,
            begin=lambda name: show(f"applying {name}"),
            lock_wait=lock_wait(settings),
            connect=lambda: open_alone(url, settings),
            table=known.table,
        )


async def _refuse_other_tables(connection: asyncpg.Connection[Any], settings: Settings) -> None:
    """Refuse to create the tables of the built-in resources among others, unless the user asks for the sample rows:
    who leaves out --resources or --migrations does not expect them. Raises StartError."""
    is_own = settings.migrations is not None or not is_built_in(settings)
    if is_own or settings.demo or settings.database_url is None:
        return
    tables = [row[0] for row in await connection.fetch(_OTHER_TABLES)]
    if tables:
        more = f" and {len(tables) - _SHOWN_TABLES} more" if len(tables) > _SHOWN_TABLES else ""
        raise StartError(
            f"the database has other tables: {', '.join(tables[:_SHOWN_TABLES])}{more}. The migrations of the built-in "
            f"resources were not applied.\n{BUILT_IN} Your own migrations are in the folder of --migrations. For the "
            "built-in tables beside yours, run the SQL that `waterspout migrate up --dry-run` prints."
        )


def check_schema_status(state: Status, known: MigrationSet) -> None:
    """Refuse a schema that this server cannot use, and warn of one that is ahead. Raises StartError with the names of
    the files."""
    hint, names = known.hint, known.names
    if state.pending:
        behind = f"the schema is behind: {names(state.pending)} not applied"
        advice = "run `waterspout migrate up`, or add --migrate"
        raise StartError(
            f"{behind}\n{hint} For these in an empty database, {advice}." if hint else f"{behind}; {advice}"
        )
    if not known.files:
        # Without migrations of its own, the server does not know how far the schema should be.
        return
    if state.breaking:
        raise StartError(
            f"the schema is ahead of this server, and {names(state.breaking)} breaks servers that do not have it: "
            "start a newer one"
        )
    if state.ahead:
        log.warning("the schema is ahead of this server: %s", names(state.ahead))


async def key_faults(connection: asyncpg.Connection[Any], settings: Settings) -> tuple[str, ...]:
    """Return what the role of the server may not do with the table of kept answers, if it needs it."""
    if not settings.keeps_answers:
        return ()
    rights = await connection.fetchrow(_HAS_PRIVILEGES)
    if rights is None:
        return (f"idempotency is {settings.idempotency}, and the table {_KEYS_TABLE} is missing: it was dropped",)
    role, *has = rights
    lacking = [name for name, is_granted in zip(_KEY_PRIVILEGES, has, strict=True) if not is_granted]
    if not lacking:
        return ()
    return (
        f"idempotency is {settings.idempotency}, and the role {role} lacks {', '.join(lacking)} on "
        f"{_KEYS_TABLE}: GRANT USAGE ON SCHEMA {migrations.SERVER_SCHEMA} TO {role}; "
        f"GRANT {', '.join(_KEY_PRIVILEGES)} ON {_KEYS_TABLE} TO {role};",
    )
