"""Defines the connection to PostgreSQL: asyncpg's connection, with the state that the pool needs.

It must not know: the pool, the server's statements.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import asyncpg

from serializers.errors import answer_too_large
from server.observing import metrics
from server.observing.telemetry import Telemetry
from server.postgres.wire.meter import ReceivedMeter
from server.postgres.wire.pipeline import PipelinedStatement, command_messages, execute_messages, has_texts

RESET = (
    "DO $$ DECLARE own text; BEGIN FOR own IN SELECT name FROM pg_prepared_statements WHERE from_sql LOOP "
    "EXECUTE format('DEALLOCATE %I', own); END LOOP; END $$; "
    "SET SESSION AUTHORIZATION DEFAULT; RESET ALL; CLOSE ALL; UNLISTEN *; SELECT pg_advisory_unlock_all(); "
    "DISCARD PLANS; DISCARD TEMP; DISCARD SEQUENCES"
)
"""DISCARD ALL, without the prepared statements that the driver keeps track of."""

SYNC = "BEGIN;ROLLBACK"
"""Ends the transaction of a statement that was prepared and then not executed, because its request was cancelled or a
value was refused. asyncpg sends no Sync between the two, so PostgreSQL keeps the locks of the tables. What was sent
ahead of the statement is rolled back. Without BEGIN, PostgreSQL would log a warning."""

ROLLBACK = "ROLLBACK"

COMMIT = "COMMIT;"
"""As asyncpg's transactions send it."""


class PostgresConnection(asyncpg.Connection):
    """A pooled connection. Our own statements leave no session state behind, so its release takes no round trip. After
    custom code has used it, it is fully reset.

    _pipelined: the statements that are sent with the next one (`wire/pipeline.py`). _is_queueing: whether the next
    command is one of them. _is_sending: whether the next one is not executed yet."""

    telemetry: Telemetry | None = None
    _meter: ReceivedMeter
    _protocol: Any
    _transport: Any
    _stmt_cache: Any
    _pipelined: tuple[PipelinedStatement, ...] = ()
    _is_queueing = False
    _is_sending = False
    _needs_reset = False
    _is_leaving = False
    must_close = False
    """Whether it must not serve another request: it has type codecs of custom code, which cannot all be undone, or it
    was retired."""

    def require_reset(self) -> None:
        """Mark the connection to be fully reset on its release, because custom code uses it."""
        self._needs_reset = True

    @property
    def must_be_reset(self) -> bool:
        """Whether asyncpg has to reset or close the connection before its next use."""
        return self._needs_reset or self.must_close

    def get_reset_query(self) -> str:
        needs_reset, self._needs_reset = self._needs_reset, False
        return RESET if needs_reset else SYNC

    async def execute(self, query: str, *args: Any, **options: Any) -> str:
        if args:
            return await super().execute(query, *args, **options)
        # Without arguments asyncpg does not call `_execute`.
        if self._is_queueing:
            self._pipelined += (PipelinedStatement(query),)
            return ""
        commands: tuple[PipelinedStatement, ...] = ()
        if self._pipelined:
            if query.startswith(ROLLBACK) and self._forget_pipelined(query):
                return ROLLBACK
            if query == COMMIT and self._pipelined[-1].values:
                _, tag, _ = await self._execute(COMMIT, (), 0, None, return_status=True)
                return self._check_commit(tag.decode())
            commands = await self._execute_pipelined()
        begin = time.perf_counter()
        status = await super().execute("".join([*[statement.sql for statement in commands], query]), **options)
        for statement in commands:
            statement.tag = ""
        self.statement_finished(query, begin)
        return self._check_commit(status) if query == COMMIT else status

    def _check_commit(self, status: str) -> str:
        if status == ROLLBACK:
            # asyncpg's transactions send this text. Only the command tag shows that PostgreSQL rolled back.
            raise RuntimeError("custom code went on after a failed statement: nothing was written")
        return status

    async def queue(self, command: Awaitable[object]) -> PipelinedStatement:
        """Send the command of a transaction with the next statement: `queue(transaction.start())`."""
        self._is_queueing = True
        try:
            await command
        finally:
            self._is_queueing = False
        return self._pipelined[-1]

    async def pipeline(self, sql: str, values: Sequence[Any]) -> PipelinedStatement:
        """Send a statement with the next one, and ignore its rows. If its values have no text, it is executed now."""
        statement = PipelinedStatement(sql, values)
        if has_texts(values):
            self._pipelined += (statement,)
        else:
            statement.tag = await self.execute(sql, *values)
        return statement

    async def describe(self, texts: Sequence[str]) -> None:
        """Have PostgreSQL describe those of the statements that are new."""
        record_class = self._protocol.get_record_class()
        for sql in texts:
            if not self._stmt_cache.has((sql, record_class, False)):
                await self._get_statement(sql, None)  # type: ignore[attr-defined]  # the stubs leave it out

    def forget_pipelined(self) -> None:
        """Forget the statements that wait, because the next one is not sent."""
        self._pipelined = ()

    async def settle(self) -> None:
        """Execute the statements that wait for the next one."""
        if self._pipelined and (commands := await self._execute_pipelined()):
            self._pipelined = commands[:-1]
            await self.execute(commands[-1].sql)
            commands[-1].tag = ""

    async def _execute_pipelined(self) -> tuple[PipelinedStatement, ...]:
        """Execute the statements that wait, up to the last one with values. Return the commands after it."""
        pipelined, self._pipelined = self._pipelined, ()
        count = max([number for number, statement in enumerate(pipelined, 1) if statement.values], default=0)
        if count:
            self._pipelined, last = pipelined[: count - 1], pipelined[count - 1]
            try:
                last.tag = await super().execute(last.sql, *last.values)
            except asyncpg.PostgresError:
                last.is_refused = not any(statement.is_refused for statement in pipelined)
                raise
        return pipelined[count:]

    def _forget_pipelined(self, rollback: str) -> bool:
        """Forget the statements that wait, because they are rolled back. Return whether there is nothing else to roll
        back: what has begun the transaction, or the savepoint, is one of them."""
        begin = rollback.replace(f"{ROLLBACK} TO ", "SAVEPOINT ")
        pipelined, self._pipelined = self._pipelined, ()
        for index, statement in enumerate(pipelined):
            if statement.sql == begin or (rollback == f"{ROLLBACK};" and statement.sql.startswith("BEGIN")):
                self._pipelined = pipelined[:index]
                return True
        return False

    async def _send_pipelined(self) -> None:
        """Send the statements that wait. Another one must follow at once."""
        pipelined, self._pipelined = self._pipelined, ()
        self._is_sending = True
        # The cancel request of an earlier statement must not hit one of these.
        await self._protocol._wait_for_cancellation()
        messages = b""
        sent: list[PipelinedStatement] = []
        for statement in pipelined:
            made = self._messages_of(statement)
            if made is None:
                # BEGIN comes first: after a statement was described, it can set no isolation level.
                self._send_messages(messages, sent)
                messages, sent = b"", []
                described: Any = await self._get_statement(statement.sql, None)  # type: ignore[attr-defined]  # as above
                made = execute_messages(described.name.encode(), statement.values)
            messages += made
            sent.append(statement)
        self._send_messages(messages, sent)

    def _send_messages(self, messages: bytes, statements: Sequence[PipelinedStatement]) -> None:
        for statement in statements:
            self._meter.answers.expect(statement)
        if messages:
            self._transport.write(messages)

    def _messages_of(self, statement: PipelinedStatement) -> bytes | None:
        """Return the messages that execute a statement, or None if it has to be described first."""
        if not statement.values:
            return command_messages(statement.sql)
        described = self._stmt_cache.get((statement.sql, self._protocol.get_record_class(), False))
        return None if described is None else execute_messages(described.name.encode(), statement.values)

    async def _execute(self, query: str, *args: Any, **options: Any) -> Any:
        """Execute any statement that `execute` does not send itself, and report it to the telemetry."""
        begin = time.perf_counter()
        try:
            if self._pipelined:
                await self._send_pipelined()
            return await super()._execute(query, *args, **options)  # type: ignore[misc]  # the stubs leave it out
        finally:
            self._is_sending = False
            self.statement_finished(query, begin)

    async def _cleanup_stmts(self) -> None:
        """Close the statements that left the cache, but not while statements are pipelined: the Sync that ends the
        close would commit these."""
        if not self._is_sending:
            await super()._cleanup_stmts()  # type: ignore[misc]  # as above

    async def _executemany(self, query: str, *args: Any, **options: Any) -> Any:
        begin = time.perf_counter()
        try:
            if self._pipelined:
                await self._send_pipelined()
            return await super()._executemany(query, *args, **options)  # type: ignore[misc]  # as above
        finally:
            self._is_sending = False
            self.statement_finished(query, begin)

    def statement_finished(self, query: str, begin: float) -> None:
        """Report a finished statement to the telemetry. begin: by time.perf_counter."""
        if self.telemetry is not None:
            self.telemetry.record_statement(query, begin)

    def on_open(self, telemetry: Telemetry) -> None:
        """Prepare a newly opened connection."""
        self.telemetry = telemetry
        self._meter = ReceivedMeter(self)
        telemetry.count(metrics.OPENED)

    def limit_received(self, max_bytes: int) -> ReceivedMeter:
        """Return a context manager that limits the bytes that its statements receive together. It raises
        AnswerTooLarge."""
        return self._meter.limit(max_bytes)

    def count_received(self) -> None:
        """Start to count the bytes that `check_received` checks."""
        self._meter.reset()

    def check_received(self, max_bytes: int) -> None:
        """Check how many bytes were received since `count_received`. Raises AnswerTooLarge."""
        if self._meter.received_bytes > max_bytes:
            raise answer_too_large(max_bytes)

    async def fetch_batch(self, sql: str, values: Sequence[Sequence[Any]], max_bytes: int) -> list[asyncpg.Record]:
        """Execute a statement with each of the values, and return all rows. If they are too large, the connection is
        closed. A batch cannot be cancelled, because asyncpg would not send the end of the batch to PostgreSQL.

        Raises AnswerTooLarge."""
        with self._meter.limit(max_bytes, is_cancelled=False):
            rows: list[asyncpg.Record] = await self.fetchmany(sql, values)
        return rows

    def retire(self) -> None:
        """Mark the connection to be closed on its release."""
        self.must_close = True

    async def close(self, **options: Any) -> None:
        self._is_leaving = True
        await super().close(**options)

    def terminate(self) -> None:
        self._is_leaving = True
        super().terminate()

    def mark_lost(self) -> None:
        """Count the connection as lost, unless this server has closed it."""
        if self.telemetry is not None and not self._is_leaving:
            self.telemetry.count(metrics.LOST)
        self._is_leaving = True

    def _cleanup(self) -> None:
        self.mark_lost()
        super()._cleanup()  # type: ignore[misc]  # as above

    @property
    def socket(self) -> socket.socket | None:
        """The socket, or None if the transport has none."""
        transport_socket: socket.socket | None = self._transport.get_extra_info("socket")
        return transport_socket

    @property
    def is_cancelling(self) -> bool:
        """Whether a cancelled statement has not ended yet."""
        protocol = self._protocol
        return protocol is not None and protocol._is_cancelling()

    async def set_type_codec(self, *args: Any, **options: Any) -> None:
        self.retire()
        await super().set_type_codec(*args, **options)

    async def set_builtin_type_codec(self, *args: Any, **options: Any) -> None:
        self.retire()
        await super().set_builtin_type_codec(*args, **options)

    async def reset_type_codec(self, *args: Any, **options: Any) -> None:
        self.retire()
        await super().reset_type_codec(*args, **options)

    async def fetch_at_most(self, sql: str, values: Sequence[Any], limit: int) -> list[asyncpg.Record]:
        """Return the first `limit` rows, or all rows for 0. The limit is part of the protocol message. A LIMIT in the
        statement could make PostgreSQL's planner choose a slow index scan. asyncpg only offers such a limit in
        `fetchrow`, which calls `_execute`."""
        rows: list[asyncpg.Record] = await self._execute(sql, values, limit, None)
        return rows


Result = TypeVar("Result")
Work = Callable[[PostgresConnection], Awaitable[Result]]
"""What runs on a connection."""


def is_cancel_pending(connection: PostgresConnection) -> bool:
    """Return whether a cancelled statement has to end before the next one can be sent."""
    return not connection.is_closed() and connection.is_cancelling and not connection.must_close


class SendCheck:
    """Checks whether a statement was sent on a connection since this object was created. If so, it may have been
    executed."""

    __slots__ = ("_before", "_protocol")

    def __init__(self, connection: PostgresConnection) -> None:
        # A connection that was aborted has no protocol.
        self._protocol: Any = connection._protocol
        self._before = 0 if self._protocol is None else self._protocol.queries_count

    @property
    def has_sent(self) -> bool:
        """Whether a statement was sent since then."""
        return self.count_sent() > 0

    def count_sent(self) -> int:
        """Return how many statements were sent since then."""
        return 0 if self._protocol is None else int(self._protocol.queries_count - self._before)
