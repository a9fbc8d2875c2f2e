"""PostgreSQL behind a pooler in transaction mode, such as pgbouncer. What comes in: what asyncpg opens. What goes out:
a connection that leaves nothing behind on the backend that it is lent for each transaction; and whether that backend
has by itself the settings that this server needs. Nothing here knows the pool.

Statements are unnamed: the driver keeps what it knows of each, and PostgreSQL parses it anew with each execution, in
the same message. To have each described anew as well took 1.6 times as long, and twice the time of the processor.
"""

from __future__ import annotations

from typing import Any

import asyncpg
from asyncpg import exceptions as pg

from server.postgres.connection import SYNC, Connection
from server.settings import Settings, StartError

SESSION = {"datestyle": "ISO", "extra_float_digits": "1", "intervalstyle": "iso_8601", "timezone": "UTC"}
"""Texts and comparisons of times hang on these, and a database or a role may set others."""


REFUSED_AS_STALE = (pg.InvalidBinaryRepresentationError, pg.ProtocolViolationError, pg.DatatypeMismatchError)
MISREAD = (pg.ProtocolError, AssertionError, BufferError, OverflowError, ValueError)


class PooledConnection(Connection):
    """What it knows of a statement may be stale after a migration, which PostgreSQL does not tell of one that is
    unnamed: it then refuses the values, or gives rows of another form."""

    _is_known = False
    """Whether the statement under way was known before."""

    def _get_unique_id(self, prefix: str) -> str:
        """Names of statements outlive the transaction, on a backend that other processes use as well."""
        name: str = "" if prefix == "stmt" else super()._get_unique_id(prefix)  # type: ignore[misc]
        return name

    async def _get_statement(self, *args: Any, **options: Any) -> Any:
        statement = await super()._get_statement(*args, **options)  # type: ignore[misc]
        self._is_known = not statement.prepared
        statement.mark_unprepared()
        return statement

    async def _do_execute(self, *args: Any, **options: Any) -> Any:
        try:
            return await super()._do_execute(*args, **options)  # type: ignore[misc]
        except (*REFUSED_AS_STALE, *MISREAD) as error:
            if not self._is_known or isinstance(error, pg.InterfaceError):
                raise
            self._drop_global_statement_cache()  # type: ignore[attr-defined]
            if isinstance(error, MISREAD):
                raise pg.OutdatedSchemaCacheError("its rows are not what they were") from error
            raise pg.InvalidCachedStatementError("its values are not what they were") from error

    def get_reset_query(self) -> str:
        """There is no session to reset: the next statement may be another backend's."""
        super().get_reset_query()
        return SYNC


def timeouts(settings: Settings) -> dict[str, str]:
    """Milliseconds, as PostgreSQL takes them."""
    return {
        "statement_timeout": milliseconds(settings.statement_timeout_seconds),
        "idle_in_transaction_session_timeout": milliseconds(settings.idle_transaction_timeout_seconds),
    }


def milliseconds(seconds: float) -> str:
    return str(max(1, round(seconds * 1000)))


async def check_backend(connection: asyncpg.Connection[Any], settings: Settings) -> None:
    """Looks whether backends have by themselves what a session cannot be given. Raises StartError, which says how."""
    bounds = timeouts(settings)
    sql = "SELECT name, setting FROM pg_settings WHERE name = ANY($1)"
    found = {name.lower(): setting for name, setting in await connection.fetch(sql, [*_SPELLED, *bounds])}
    wrong = {name: value for name, value in SESSION.items() if not _is_fit(name, found[name])}
    wrong |= {name: f"{most}ms" for name, most in bounds.items() if not 0 < int(found[name]) <= int(most)}
    if not wrong:
        return
    role = await connection.fetchval("SELECT quote_ident(current_user)")
    statements = "".join(f"\n  ALTER ROLE {role} SET {name} = '{value}';" for name, value in wrong.items())
    raise StartError(
        "with pooler = transaction these have to be settings of the role; afterwards have the pooler connect anew "
        f"(of pgbouncer: RECONNECT):{statements}"
    )


_SPELLED = ("DateStyle", "extra_float_digits", "IntervalStyle", "TimeZone")


def _is_fit(name: str, found: str) -> bool:
    if name == "extra_float_digits":
        return int(found) >= 1
    return found.upper().split(",")[0] in {"timezone": ("UTC", "ETC/UTC")}.get(name, (SESSION[name].upper(),))
