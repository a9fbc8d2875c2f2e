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
from server.console.progress import step
from server.postgres.opening import open_alone
from server.settings import Settings, StartError

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
