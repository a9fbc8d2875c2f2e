"""Connections that run the statements of a request with its role and its claims.

Outside of an explicit transaction, the statement that sets the role is sent together with the statement of the request,
without a Sync between the two. For PostgreSQL they are one transaction, whose end takes the role away again, and the
role costs no round trip. docs/adr/0028-row-security.md has the figures.

It must not know: the pool, principals.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from struct import Struct
from typing import Any

from asyncpg import exceptions as pg

from server.postgres.connection import Connection
from server.postgres.meter import Meter
from server.postgres.pooler import PooledConnection
from server.postgres.row_security.roles import SET_ROLE, RequestRole

Executor = Callable[[Any, Any], Awaitable[Any]]

_HEAD = Struct("!cI")
_LENGTH = Struct("!I")
_COUNT = Struct("!H")
_COMMAND_COMPLETE, _ERROR = ord("C"), ord("E")
_OF_ROLE = frozenset(b"12DC")
"""ParseComplete, BindComplete, DataRow, CommandComplete: the answer to the statement that sets the role."""

_REFUSED = (pg.InsufficientPrivilegeError, pg.InvalidParameterValueError, pg.UndefinedObjectError)


class RoleRefused(RuntimeError):
    """PostgreSQL does not give the role to this server: it was dropped or revoked after the start."""


class RoleMeter(Meter):
    """Keeps the answers to statements that set the role from asyncpg, which has not sent them. is_refused: whether
    PostgreSQL has refused the last one."""

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        self.is_refused = False
        self._expected = 0
        self._begun = b""

    def expect_answer(self) -> None:
        """Expect the answer to such a statement before all others."""
        self._expected += 1
        self.is_refused = False

    def data_received(self, data: bytes) -> None:
        if self._expected:
            data = self._without_answers(data)
            if not data:
                return
        super().data_received(data)

    def _without_answers(self, data: bytes) -> bytes:
        """Return the data without the expected answers. Notices and the like may be between them. After an error there
        is no further answer: PostgreSQL skips everything up to the Sync."""
        data, kept, begin = self._begun + data, [], 0
        while self._expected and len(data) - begin >= _HEAD.size:
            kind = data[begin]
            end = begin + 1 + _LENGTH.unpack_from(data, begin + 1)[0]
            if end > len(data):
                break
            if kind == _COMMAND_COMPLETE:
                self._expected -= 1
            elif kind == _ERROR:
                self._expected, self.is_refused = 0, True
            if kind not in _OF_ROLE:
                kept.append(data[begin:end])
            begin = end
        if self._expected:
            self._begun = data[begin:]
            return b"".join(kept)
        self._begun = b""
        return b"".join([*kept, data[begin:]])


class RoleConnection(Connection):
    """A connection that runs statements with the role of a request."""

    _protocol: Any
    _transport: Any
    _stmt_cache: Any
    _meter: RoleMeter
    _role: RequestRole | None = None
    _set_role_name = b""
    meter_class = RoleMeter

    @contextmanager
    def acting_as(self, role: RequestRole) -> Iterator[None]:
        """Run each statement of the block with the role. There must be no explicit transaction."""
        self._role = role
        try:
            yield
        finally:
            self._role = None

    async def set_role(self, role: RequestRole) -> None:
        """Set the role for the rest of the explicit transaction. Raises RoleRefused."""
        try:
            await self.execute(SET_ROLE, role.name, role.claims)
        except _REFUSED as error:
            raise RoleRefused(f"the role {role.name} cannot be set") from error

    async def execute(self, query: str, *args: Any, **options: Any) -> str:
        if self._role is not None and not args:
            raise AssertionError("a statement without its role")
        return await super().execute(query, *args, **options)

    async def prepare(self, *args: Any, **options: Any) -> Any:
        if self._role is not None:
            raise AssertionError("a statement without its role")
        return await super().prepare(*args, **options)

    async def _do_execute(self, query: str, executor: Executor, *args: Any, retry: bool = True, **options: Any) -> Any:
        # asyncpg's second attempt gets the executor of the first.
        if self._role is not None and retry:
            executor = self._with_role(executor, self._role)
        return await super()._do_execute(query, executor, *args, retry=retry, **options)  # type: ignore[misc]

    def _with_role(self, executor: Executor, role: RequestRole) -> Executor:
        async def execute(*args: Any) -> Any:
            await self._send_role(role)
            try:
                return await executor(*args)
            except _REFUSED as error:
                if self._meter.is_refused:
                    raise RoleRefused(f"the role {role.name} cannot be set") from error
                raise

        return execute

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
        """Send the statement that sets the role, without a Sync. The next statement must follow at once."""
        # The cancel request of a statement before must not hit this one.
        await self._protocol._wait_for_cancellation()
        messages = await self._role_messages(role)
        self._meter.expect_answer()
        self._transport.write(messages)

    async def _role_messages(self, role: RequestRole) -> bytes:
        if not self._set_role_name:
            # Not cached: the cache could close the statement of the request meanwhile.
            statement = await super()._get_statement(SET_ROLE, None, named=True, use_cache=False)  # type: ignore[misc]
            self._set_role_name = statement.name.encode()
        return _bind_and_execute(self._set_role_name, role)


class PooledRoleConnection(RoleConnection, PooledConnection):
    """The same through a pooler, without named statements."""

    async def _role_messages(self, role: RequestRole) -> bytes:
        return _PARSE + _bind_and_execute(b"", role)


def _message(kind: bytes, *parts: bytes) -> bytes:
    """Return a message of PostgreSQL's protocol ("54.7. Message Formats")."""
    body = b"".join(parts)
    return _HEAD.pack(kind, 4 + len(body)) + body


def _bind_and_execute(statement: bytes, role: RequestRole) -> bytes:
    values = role.name.encode(), role.claims.encode()
    sent = [part for value in values for part in (_LENGTH.pack(len(value)), value)]
    # All values are sent and returned as text.
    bind = _message(b"B", b"\0", statement, b"\0", _COUNT.pack(0), _COUNT.pack(len(values)), *sent, _COUNT.pack(0))
    return bind + _EXECUTE


_PARSE = _message(b"P", b"\0", SET_ROLE.encode(), b"\0", _COUNT.pack(0))
_EXECUTE = _message(b"E", b"\0", _LENGTH.pack(0))
