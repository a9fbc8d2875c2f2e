"""Sets PostgreSQL's limit on temporary files for each session, if the role may set it.

Only a superuser may set temp_file_limit, or a role with SET on the parameter (PostgreSQL, "20.4.2. Disk").
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
from asyncpg import exceptions as pg

from server.postgres.connection import PostgresConnection
from server.postgres.hosts import Hosts
from server.settings import Settings

Connect = Callable[..., Awaitable[PostgresConnection]]

_LIMIT = """
    SELECT setting::bigint, has_parameter_privilege('temp_file_limit', 'SET'), quote_ident(current_user)
    FROM pg_settings WHERE name = 'temp_file_limit'
"""


def kilobytes(limit_bytes: int) -> int:
    """Return the limit in the unit of temp_file_limit."""
    return max(1, limit_bytes // 1024)


class LimitedConnect:
    """Connects with the limit as a session parameter, or without it if the role may not set it."""

    def __init__(self, connect: Connect, limit_bytes: int) -> None:
        self._connect = connect
        self._parameter = {"temp_file_limit": str(kilobytes(limit_bytes))}
        self._is_allowed = True

    async def __call__(self, *values: object, server_settings: dict[str, str], **options: Any) -> PostgresConnection:
        """Open a connection. Raises asyncpg's errors."""
        if self._is_allowed:
            try:
                return await self._connect(*values, server_settings=server_settings | self._parameter, **options)
            except pg.InsufficientPrivilegeError:
                # If the role may not use the database itself, the second attempt is refused too.
                pass
        made = await self._connect(*values, server_settings=server_settings, **options)
        self._is_allowed = False
        return made


def connector(url: str, settings: Settings) -> Any:
    """Return the function that opens connections for asyncpg's pool. It is typed as Any, because asyncpg's type hints
    demand its own whole signature."""
    connect = Hosts(url, settings).connect
    if settings.temp_file_limit_bytes is None or settings.pooler == "transaction":
        return connect
    return LimitedConnect(connect, settings.temp_file_limit_bytes)


async def check_temp_file_limit(connection: asyncpg.Connection[Any], settings: Settings) -> str | None:
    """Return a message with the SQL to run if the setting has no effect with this role. Otherwise return None."""
    if settings.temp_file_limit_bytes is None:
        return None
    wanted = kilobytes(settings.temp_file_limit_bytes)
    limit, is_allowed, role = await connection.fetchrow(_LIMIT) or (-1, False, "")
    if 0 <= limit <= wanted or (is_allowed and settings.pooler == "none"):
        return None
    statement = f"ALTER ROLE {role} SET temp_file_limit = '{wanted}kB';"
    return (
        "temp_file_limit_bytes has no effect: the role may not set temp_file_limit, or a pooler is in use. "
        f"As a superuser run: {statement}"
    )
