"""The migrations of a start and of the commands: applied with the patience of the settings, and what a server makes of
a schema that is not its own. What comes in: settings, a connection. What goes out: a schema that this server can work
with, or StartError.

It must not know: declarations, which are compared with the tables elsewhere.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import asyncpg

import migrations
from migrations import Migration, Patience, Status
from server.postgres.database import open_alone
from server.settings import Settings, StartError

log = logging.getLogger("server")


def patience(settings: Settings) -> Patience:
    return Patience(settings.migration_lock_timeout_seconds, settings.migration_wait_seconds)


def refuse_pooler(settings: Settings) -> None:
    """A pooler lends single transactions: the lock of the runner would stay with whoever got the backend next. Raises
    StartError."""
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
    """Applies what is pending, and returns it. Raises StartError, MigrationError."""
    if settings.pooler != "none" and (await migrations.status(connection, files)).pending:
        refuse_pooler(settings)
    return await migrations.up(
        connection,
        files,
        say=say,
        patience=patience(settings),
        connect=lambda: open_alone(url, settings),
    )


def refuse_unfit(state: Status, files: Sequence[Migration]) -> None:
    """What this server cannot work with; on what it can, it warns. Raises StartError, which names the files."""
    if state.pending:
        raise StartError(
            f"the schema is behind: {names(state.pending)} not applied; run `waterspout migrate up`, or add --migrate"
        )
    if not files:
        # Whoever brings no migrations does not know how far the schema should be.
        return
    if state.breaking:
        raise StartError(
            f"the schema is ahead of this server, and {names(state.breaking)} cannot be worked with by servers that do "
            "not have that file: start a newer one"
        )
    if state.ahead:
        log.warning("the schema is ahead of this server: %s", names(state.ahead))


def names(found: Sequence[Migration | migrations.Applied]) -> str:
    return ", ".join(one.name for one in found)
