"""Applies migrations at a start and for the commands, and decides whether the server can use the schema.

What comes in: settings, a connection. What goes out: a schema that this server can use, or StartError.

It must not know: declarations, which are compared with the tables elsewhere.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import asyncpg

import migrations
from migrations import LockWait, Migration, Status
from server.postgres.opening import open_alone
from server.settings import Settings, StartError
from server.settings.served import BUILT_IN, is_built_in
from server.tools.console.progress import step

# One statement, because another runner may create the record, and then the tables, between two. The tables of
# extensions belong to no user.
_OTHER_TABLES = """
SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE to_regclass('public.waterspout_migrations') IS NULL AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\\_%'
AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
ORDER BY 1
"""
_SHOWN_TABLES = 5

log = logging.getLogger("server")


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
    connection: asyncpg.Connection[Any],
    url: str,
    settings: Settings,
    files: Sequence[Migration],
    say: Callable[[str], None],
) -> tuple[Migration, ...]:
    """Apply the pending migrations and return them. Raises StartError, MigrationError."""
    await _refuse_other_tables(connection, settings)
    if settings.pooler != "none" and (await migrations.status(connection, files)).pending:
        refuse_pooler(settings)
    with step("applying migrations") as show:
        return await migrations.up(
            connection,
            files,
            say=say,
            begin=lambda name: show(f"applying {name}"),
            lock_wait=lock_wait(settings),
            connect=lambda: open_alone(url, settings),
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


def check_schema_status(state: Status, files: Sequence[Migration], hint: str = "") -> None:
    """Refuse a schema that this server cannot use, and warn of one that is ahead. hint: what to do if the files are not
    those that the user means. Raises StartError with the names of the files."""
    if state.pending:
        behind = f"the schema is behind: {names(state.pending)} not applied"
        advice = "run `waterspout migrate up`, or add --migrate"
        raise StartError(
            f"{behind}\n{hint} For these in an empty database, {advice}." if hint else f"{behind}; {advice}"
        )
    if not files:
        # Without migrations of its own, the server does not know how far the schema should be.
        return
    if state.breaking:
        raise StartError(
            f"the schema is ahead of this server, and {names(state.breaking)} breaks servers that do not have it: "
            "start a newer one"
        )
    if state.ahead:
        log.warning("the schema is ahead of this server: %s", names(state.ahead))


def names(found: Sequence[Migration | migrations.Applied]) -> str:
    """Return the names of migrations, separated by commas."""
    return ", ".join(one.name for one in found)
