"""Connections through a pooler in transaction mode, such as pgbouncer. They leave no session state on the backends,
because each transaction may run on another one. Also checks that the backends have the settings that this server needs.

Statements are unnamed. The driver caches their descriptions, and PostgreSQL parses them with each execution, in the
same message. Describing them each time took 1.6 times as long, and twice the processor time.

It must not know: the pool."""

from __future__ import annotations

from typing import Any

import asyncpg
from asyncpg import exceptions as pg

from server.postgres.connection import SYNC, PostgresConnection
from server.postgres.wire.pipeline import PipelinedStatement, execute_messages, parse_message
from server.settings import Settings, StartError

SESSION = {"datestyle": "ISO", "extra_float_digits": "1", "intervalstyle": "iso_8601", "timezone": "UTC"}
"""Settings that decide how times are written and compared. A database or a role may have others."""


REFUSED_AS_STALE = (pg.InvalidBinaryRepresentationError, pg.ProtocolViolationError, pg.DatatypeMismatchError)
MISREAD = (pg.ProtocolError, AssertionError, BufferError, OverflowError, ValueError)


class PooledConnection(PostgresConnection):
    """A connection through a pooler. The cached description of a statement may be stale after a migration. PostgreSQL
    does not report that for unnamed statements: it refuses the values, or returns rows of another form."""

    _is_known = False
    """Whether the description of the current statement came from the cache."""

    def _get_unique_id(self, prefix: str) -> str:
        """Return no name: a named statement outlives the transaction, on a backend that other processes use too."""
        name: str = "" if prefix == "stmt" else super()._get_unique_id(prefix)  # type: ignore[misc]
        return name

    async def _get_statement(self, *args: Any, **options: Any) -> Any:
        statement = await super()._get_statement(*args, **options)  # type: ignore[misc]
        self._is_known = not statement.prepared
        statement.mark_unprepared()
        return statement

    def _messages_of(self, statement: PipelinedStatement) -> bytes:
        return parse_message(statement.sql) + execute_messages(b"", statement.values)

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
        """Return only SYNC: there is no session to reset, because the next statement may run on another backend."""
        super().get_reset_query()
        return SYNC


def timeouts(settings: Settings) -> dict[str, str]:
    """Return the timeout settings of a session, in milliseconds."""
    return {
        "statement_timeout": milliseconds(settings.statement_timeout_seconds),
        "idle_in_transaction_session_timeout": milliseconds(settings.idle_transaction_timeout_seconds),
    }


def milliseconds(seconds: float) -> str:
    """Return the number of milliseconds, at least 1, as PostgreSQL's settings take it."""
    return str(max(1, round(seconds * 1000)))


async def check_backend(connection: asyncpg.Connection[Any], settings: Settings) -> None:
    """Check that the backends have the settings that cannot be set for a session. Raises StartError, with the SQL that
    sets them."""
    bounds = timeouts(settings)
    sql = "SELECT name, setting FROM pg_settings WHERE name = ANY($1)"
    session = {name.lower(): setting for name, setting in await connection.fetch(sql, [*_SESSION_NAMES, *bounds])}
    wrong = {name: value for name, value in SESSION.items() if not _is_fit(name, session[name])}
    wrong |= {name: f"{limit}ms" for name, limit in bounds.items() if not 0 < int(session[name]) <= int(limit)}
    if not wrong:
        return
    role = await connection.fetchval("SELECT quote_ident(current_user)")
    statements = "".join(f"\n  ALTER ROLE {role} SET {name} = '{value}';" for name, value in wrong.items())
    raise StartError(
        "with pooler = transaction these must be settings of the role; afterwards make the pooler reconnect "
        f"(RECONNECT in pgbouncer):{statements}"
    )


_SESSION_NAMES = ("DateStyle", "extra_float_digits", "IntervalStyle", "TimeZone")


def _is_fit(name: str, setting: str) -> bool:
    if name == "extra_float_digits":
        return int(setting) >= 1
    return setting.upper().split(",")[0] in {"timezone": ("UTC", "ETC/UTC")}.get(name, (SESSION[name].upper(),))
