"""Connections that run the statements of a request with its role and its claims.

A role costs no round trip (docs/adr/0028-row-security.md). Outside of an explicit transaction, the statement that sets
the role is sent ahead of the statement of the request (`server/postgres/wire/pipeline.py`). For PostgreSQL they are one
transaction, whose end takes the role away again. In an explicit transaction it is sent with BEGIN ahead of the first
statement.

It must not know: the pool, principals.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from asyncpg import exceptions as pg

from server.errors import causes
from server.postgres.connection import PostgresConnection
from server.postgres.pooler import PooledConnection
from server.postgres.row_security.roles import NO_ROLE, SET_ROLE, RequestRole
from server.postgres.wire.pipeline import PipelinedStatement, execute_messages, parse_message

Executor = Callable[[Any, Any], Awaitable[Any]]

_REFUSED = (pg.InsufficientPrivilegeError, pg.InvalidParameterValueError, pg.UndefinedObjectError)


class RoleRefused(RuntimeError):
    """PostgreSQL does not give the role to this server: it was dropped or revoked after the start."""


class RoleConnection(PostgresConnection):
    """A connection that runs statements with the role of a request.

    _role: that of statements outside of an explicit transaction. _set_role: the last statement that has set it."""

    _role: RequestRole | None = None
    _set_role: PipelinedStatement | None = None
    _set_role_name = b""

    @contextmanager
    def acting_as(self, role: RequestRole) -> Iterator[None]:
        """Run each statement of the block with the role. There must be no explicit transaction."""
        self._role = role
        try:
            yield
        finally:
            self._role = None

    async def execute(self, query: str, *args: Any, **options: Any) -> str:
        if not args:
            self._check_role()
        return await super().execute(query, *args, **options)

    async def prepare(self, *args: Any, **options: Any) -> Any:
        self._check_role()
        return await super().prepare(*args, **options)

    def _check_role(self) -> None:
        """Check that a statement that this class does not see needs no role."""
        if self._role is not None:
            raise RuntimeError("a statement would run without its role")

    async def _do_execute(self, query: str, executor: Executor, *args: Any, retry: bool = True, **options: Any) -> Any:
        role = self._role
        # asyncpg's second attempt gets the executor of the first.
        if not retry or role is None:
            return await super()._do_execute(query, executor, *args, retry=retry, **options)  # type: ignore[misc]

        async def second(*args: Any) -> Any:
            await self._send_role(role)
            return await executor(*args)

        try:
            return await super()._do_execute(query, second, *args, **options)  # type: ignore[misc]
        except _REFUSED as error:
            check_role(self._set_role, role, error)
            raise

    async def _get_statement(self, query: str, *args: Any, **options: Any) -> Any:
        # The schema may be one that only the role may use.
        if self._role is not None and not self._is_described(query, options):
            await self._send_role(self._role)
        return await super()._get_statement(query, *args, **options)  # type: ignore[misc]

    def _is_described(self, query: str, options: dict[str, Any]) -> bool:
        """Return whether asyncpg has the statement in its cache, so that it sends nothing before its values."""
        record_class = options.get("record_class") or self._protocol.get_record_class()
        return bool(self._stmt_cache.has((query, record_class, options.get("ignore_custom_codec", False))))

    async def _send_role(self, role: RequestRole) -> None:
        """Send the statement that sets the role. Another one must follow at once."""
        # The cancel request of an earlier statement must not hit this one.
        await self._protocol._wait_for_cancellation()
        messages = await self._role_messages(role)
        self._set_role = PipelinedStatement(SET_ROLE, (role.name, role.claims))
        self._send_messages(messages, [self._set_role])

    async def _role_messages(self, role: RequestRole) -> bytes:
        if not self._set_role_name:
            # Not cached: the cache could close the statement of the request meanwhile.
            statement = await super()._get_statement(SET_ROLE, None, named=True, use_cache=False)  # type: ignore[misc]
            self._set_role_name = statement.name.encode()
        return execute_messages(self._set_role_name, (role.name, role.claims))


class PooledRoleConnection(RoleConnection, PooledConnection):
    """The same through a pooler, without named statements."""

    async def _role_messages(self, role: RequestRole) -> bytes:
        return parse_message(SET_ROLE) + execute_messages(b"", (role.name, role.claims))


def check_role(statement: PipelinedStatement | None, role: RequestRole, error: BaseException) -> None:
    """Raise RoleRefused if the statement that sets the role has caused this error."""
    if statement is not None and statement.is_refused and any(isinstance(cause, _REFUSED) for cause in causes(error)):
        raise RoleRefused(f"the role {role.name} cannot be set") from error


async def set_role(connection: PostgresConnection, role: RequestRole | None, *, is_servers: bool) -> None:
    """Have the next statements of a transaction run with the server's own role, or with that of the request again.
    role: that of the request; None if it is the server's."""
    if role is not None:
        await connection.pipeline(SET_ROLE, (NO_ROLE if is_servers else role.name, role.claims))
