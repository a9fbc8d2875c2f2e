"""Connections that run the statements of a request with its role and its claims.

A role costs no round trip (docs/adr/0028-row-security.md). Outside of an explicit transaction, the statement that sets
the role is sent together with the statement of the request, without a Sync between the two. For PostgreSQL they are one
transaction, whose end takes the role away again. BEGIN is sent together with the statement that sets the role of the
transaction.

It must not know: the pool, principals.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from struct import Struct
from typing import Any

from asyncpg import exceptions as pg
from asyncpg.transaction import Transaction

from server.postgres.connection import Connection
from server.postgres.meter import Meter
from server.postgres.pooler import PooledConnection
from server.postgres.row_security.roles import SET_ROLE, RequestRole

Executor = Callable[[Any, Any], Awaitable[Any]]

_HEAD = Struct("!cI")
_LENGTH = Struct("!I")
_COUNT = Struct("!H")
_COMMAND_COMPLETE, _ERROR = ord("C"), ord("E")
_ANSWER = frozenset(b"12DC")
"""ParseComplete, BindComplete, DataRow, CommandComplete: the answer to a statement."""

_REFUSED = (pg.InsufficientPrivilegeError, pg.InvalidParameterValueError, pg.UndefinedObjectError)


class RoleRefused(RuntimeError):
    """PostgreSQL does not give the role to this server: it was dropped or revoked after the start."""


class RoleMeter(Meter):
    """Keeps the answers to the statements that are sent first from asyncpg, which has not sent them. is_refused:
    whether PostgreSQL has refused the last one."""

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
            if kind not in _ANSWER:
                kept.append(data[begin:end])
            begin = end
        if self._expected:
            self._begun = data[begin:]
            return b"".join(kept)
        self._begun = b""
        return b"".join([*kept, data[begin:]])


class RoleConnection(Connection):
    """A connection that runs statements with the role of a request.

    _role: that of statements outside of an explicit transaction. _beginning: that of the transaction that begins.
    _begin: the messages that begin it."""

    _protocol: Any
    _transport: Any
    _stmt_cache: Any
    _meter: RoleMeter
    _role: RequestRole | None = None
    _beginning: RequestRole | None = None
    _begin = b""
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

    async def begin_as(self, transaction: Transaction, role: RequestRole) -> None:
        """Start the transaction, with the role for all of it, in one round trip. Raises RoleRefused."""
        self._beginning = role
        try:
            await transaction.start()
        except _REFUSED as error:
            raise RoleRefused(f"the role {role.name} cannot be set") from error
        finally:
            self._beginning = None

    async def execute(self, query: str, *args: Any, **options: Any) -> str:
        role, self._beginning = self._beginning, None
        if role is None:
            if not args:
                self._check_role()
            return await super().execute(query, *args, **options)
        # asyncpg's transaction begins, with this text.
        self._begin = _parse(query) + _bind_and_execute(b"")
        try:
            return await super().execute(SET_ROLE, role.name, role.claims)
        finally:
            self._begin = b""

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
        if not retry or not (role or self._begin):
            return await super()._do_execute(query, executor, *args, retry=retry, **options)  # type: ignore[misc]

        async def second(*args: Any) -> Any:
            if role or self._begin:
                await self._send_first(role)
            return await executor(*args)

        try:
            return await super()._do_execute(query, second, *args, **options)  # type: ignore[misc]
        except _REFUSED as error:
            if role is not None and self._meter.is_refused:
                raise RoleRefused(f"the role {role.name} cannot be set") from error
            raise

    async def _get_statement(self, query: str, *args: Any, **options: Any) -> Any:
        # The schema may be one that only the role may use. And once PostgreSQL has described a statement, BEGIN can set
        # no isolation level.
        if (self._role or self._begin) and not self._is_described(query, options):
            await self._send_first(self._role)
        return await super()._get_statement(query, *args, **options)  # type: ignore[misc]

    def _is_described(self, query: str, options: dict[str, Any]) -> bool:
        """Return whether asyncpg has the statement in its cache, so that it sends nothing before its values."""
        record_class = options.get("record_class") or self._protocol.get_record_class()
        return bool(self._stmt_cache.has((query, record_class, options.get("ignore_custom_codec", False))))

    async def _send_first(self, role: RequestRole | None) -> None:
        """Send the statement that sets the role, or else BEGIN, without a Sync. Another statement must follow at
        once."""
        # The cancel request of a statement before must not hit this one.
        await self._protocol._wait_for_cancellation()
        messages = self._begin if role is None else await self._role_messages(role)
        self._begin = b""
        self._meter.expect_answer()
        self._transport.write(messages)

    async def _role_messages(self, role: RequestRole) -> bytes:
        if not self._set_role_name:
            # Not cached: the cache could close the statement of the request meanwhile.
            statement = await super()._get_statement(SET_ROLE, None, named=True, use_cache=False)  # type: ignore[misc]
            self._set_role_name = statement.name.encode()
        return _bind_and_execute(self._set_role_name, role.name, role.claims)


class PooledRoleConnection(RoleConnection, PooledConnection):
    """The same through a pooler, without named statements."""

    async def _role_messages(self, role: RequestRole) -> bytes:
        return _PARSE_SET_ROLE + _bind_and_execute(b"", role.name, role.claims)


def _message(kind: bytes, *parts: bytes) -> bytes:
    """Return a message of PostgreSQL's protocol ("54.7. Message Formats")."""
    body = b"".join(parts)
    return _HEAD.pack(kind, 4 + len(body)) + body


def _parse(sql: str) -> bytes:
    """Return the message that parses an unnamed statement."""
    return _message(b"P", b"\0", sql.encode(), b"\0", _COUNT.pack(0))


def _bind_and_execute(statement: bytes, *values: str) -> bytes:
    sent = [part for value in map(str.encode, values) for part in (_LENGTH.pack(len(value)), value)]
    # All values are sent and returned as text.
    bind = _message(b"B", b"\0", statement, b"\0", _COUNT.pack(0), _COUNT.pack(len(values)), *sent, _COUNT.pack(0))
    return bind + _EXECUTE


_EXECUTE = _message(b"E", b"\0", _LENGTH.pack(0))
_PARSE_SET_ROLE = _parse(SET_ROLE)
