"""The door for all writes of a request: runs them as a single statement if that does them all, and else in a
transaction. What else belongs to the request may run in the same transaction, before its writes and after them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

import asyncpg
import msgspec

from querybuild.declarations.hooks import Written
from querybuild.declarations.resource import Resource
from querybuild.errors import raise_as
from querybuild.planning.changes import PlannedWrite
from querybuild.planning.context import Context
from querybuild.planning.rows import Row
from querybuild.sql.statement import Statement
from querybuild.sql.writes.modify import may_meet_taken_ids
from serializers.errors import answer_too_large
from serializers.operations.reader import POINTER
from serializers.operations.results import Done
from server.engine import Engine
from server.errors import RAISED, Conflict, DatabaseForbids, DatabaseRule, NoFreeId
from server.execution.refusals import is_refusal, translate_commit_error, translate_write_error
from server.execution.writes.answers import Answer, set_pointer
from server.execution.writes.batches import SingleStatement, WholeRequest, answered_of, way_of
from server.execution.writes.outcomes import Missing, WrittenRow
from server.execution.writes.reply import Reply, ReplyForm
from server.execution.writes.transaction import NotAllWritten, Transaction
from server.postgres.connection import PostgresConnection, SendCheck, Work
from server.postgres.database import Committed, Database
from server.postgres.driver_errors import VIOLATED, PostgresMessage
from server.postgres.row_security.connection import set_role
from server.preparing.writes import PreparedRows, PreparedWrite

log = logging.getLogger("server")

Result = TypeVar("Result")


class Client(Protocol):
    """The other end of the connection."""

    def run(self, work: Awaitable[Result]) -> Awaitable[Result]:
        """Run work that is cancelled if the client disconnects."""

    def run_statement(self, work: Awaitable[Result]) -> Awaitable[Result]:
        """Run a write that is its own transaction. It may be committed before the cancellation arrives."""

    def shield(self) -> None:
        """From now on the work is not cancelled, even if the client disconnects."""


class Around(Protocol):
    """What belongs to a request besides its writes, in their transaction. With `row_security` it runs with the server's
    own role. is_one_statement: whether `write` can be used instead of the other functions."""

    is_one_statement: bool

    async def begin(self, connection: PostgresConnection) -> None:
        """Run before the first write. What this raises ends the transaction. Its statements may be sent with those of
        the write."""

    def refused(self) -> Exception | None:
        """Return the error if a statement of `begin` was refused, whatever the write has raised for it."""

    async def end(self, connection: PostgresConnection, reply: Reply) -> None:
        """Run after the last write, before the commit. reply: what the request is answered with. The same as for
        `begin`."""

    async def write(
        self, connection: PostgresConnection, statement: Statement, values: Sequence[Any], form: ReplyForm
    ) -> tuple[Any, Reply]:
        """Run the statement of a write that makes its own answer, with what runs before and after it, as one statement.
        Return the id of the row, and the answer."""


class Replies(Protocol):
    """What makes the answer of a request before the commit."""

    async def reply_before_commit(self, result: Any) -> Reply:
        """Return the answer with all of its bytes. result: of the writes."""

    def reply_form(self) -> ReplyForm | None:
        """Return the form of the answer, or None if PostgreSQL cannot complete it."""

    def take_reply(self, reply: Reply) -> None:
        """Take the answer that PostgreSQL has completed."""


class Writer(msgspec.Struct, frozen=True, eq=False):
    """Runs the writes of one request. on_commit: called with the ids of the written rows, when the writes are
    committed. around: what else runs in their transaction; replies: makes the answer for it. committed:
    called with the connection after each commit. is_tried: whether everything is rolled back in the end."""

    database: Database
    engine: Engine
    context: Context
    headers: Mapping[str, str]
    client: Client
    on_commit: Callable[[Sequence[Any]], None] | None = None
    around: Around | None = None
    replies: Replies | None = None
    committed: Committed | None = None
    is_tried: bool = False

    async def transact(self, work: Work[Result]) -> Result:
        """Run work that writes in a transaction, with what belongs around it, and commit it. If it is only tried, it is
        rolled back. Every transaction of a request is run by this function."""
        if self.is_tried:
            return await self.client.run(self._try(work))
        return await self.client.run(
            self.database.write(self._surrounded(work), committing=self.client.shield, committed=self.committed)
        )

    async def _try(self, work: Work[Result]) -> Result:
        done: list[Result] = []

        async def run(connection: PostgresConnection) -> None:
            done[:] = [await work(connection)]
            # What would be checked by the commit.
            await connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
            raise _TriedError

        with suppress(_TriedError):
            await self.database.write(run)
        return done[0]

    def _surrounded(self, work: Work[Result]) -> Work[Result]:
        around, replies, role = self.around, self.replies, self.database.role
        if around is None:
            return work

        async def run(connection: PostgresConnection) -> Result:
            assert replies is not None
            try:
                await set_role(connection, role, is_servers=True)
                await around.begin(connection)
                await set_role(connection, role, is_servers=False)
                result = await work(connection)
                made = await replies.reply_before_commit(result)
                await set_role(connection, role, is_servers=True)
                await around.end(connection, made)
                await set_role(connection, role, is_servers=False)
            except Exception as error:
                if (refused := around.refused()) is None:
                    raise
                raise_as(refused, error)
            return result

        return run

    async def run(self, writes: Sequence[PreparedWrite], answer: Answer[Result]) -> Result:
        """Run the writes, and return the result of the answer.

        Raises what `Transaction.run` raises.
        """
        try:
            return await self._run(writes, answer)
        except Exception as error:
            is_hiding = self._may_hide(error)
            if not (is_hiding or _may_be_met(error, writes)):
                raise
        # A constraint has refused values, which tells of other rows. The rules come first: then it is found out again.
        return await self._run_transaction(writes, answer, checks_sent=is_hiding)

    def _may_hide(self, error: Exception) -> bool:
        """Return whether PostgreSQL has refused a write, and rules may forbid its values."""
        access, cause = self.context.access, error.__cause__ or error
        return bool(access.check_create or access.check_update) and isinstance(cause, VIOLATED)

    async def _run(self, writes: Sequence[PreparedWrite], answer: Answer[Result]) -> Result:
        """Run the writes by the shortest way."""
        whole = WholeRequest(writes, answer, self.engine, self.context.values, self.database.role is not None)
        planned = None if self.is_tried else whole.planned()
        if planned is None:
            outcomes = None
        elif self.around is not None:
            outcomes = await self._run_answered(planned, whole, self.around)
        else:
            way = way_of(planned, whole)
            outcomes = await self._run_single(way, answer) if isinstance(way, SingleStatement) else None
        if outcomes is None:
            return await self._run_transaction(writes, answer)
        if self.on_commit is not None:
            self.on_commit([outcome.id for outcome in outcomes])
        # With several writes the answer is long, and the turn of the loop costs more than it gains.
        if len(writes) == 1:
            await self.database.let_next_begin()
        if answer.last is None and self.around is None:
            await answer.add(range(len(writes)), outcomes, None)
        return answer.result

    async def _run_answered(
        self, planned: Sequence[PlannedWrite], whole: WholeRequest, around: Around
    ) -> list[WrittenRow] | None:
        """Run a write that makes its own answer, with what belongs around it, as one statement. Returns None if nothing
        was written, and a transaction has to do it or to find out why."""
        answered, replies = answered_of(planned, whole) if around.is_one_statement else None, self.replies
        assert replies is not None
        form = None if answered is None else replies.reply_form()
        if answered is None or form is None:
            return None
        statement, values = answered
        write = lambda connection: around.write(connection, statement, values, form)  # noqa: E731
        try:
            row_id, reply = await self.client.run_statement(
                self.database.write_statement(write, committed=self.committed)
            )
        except Exception as error:
            if is_refusal(error) or isinstance(error, _UNDONE):
                return None
            raise
        whole.answer.made(row_id)
        replies.take_reply(reply)
        return [WrittenRow(row_id, None)]

    async def create_rows(self, rows: PreparedRows) -> list[Done] | None:
        """Create rows and return what was done, in their order. Returns None if one of them is refused or
        cancelled: then nothing was written, and running them as writes tells which one it is. Raises AnswerTooLarge."""
        encoding = self.engine.encoders.of_objects(rows.plan.resource, has_versions=not self.is_tried)
        created: Sequence[Row] = ()

        async def run(connection: PostgresConnection) -> list[Done]:
            nonlocal created
            transaction = Transaction(connection, self.engine, self.context, self.headers)
            try:
                created = await transaction.create_rows(rows, encoding.node)
                objects = encoding.encode(created)
                if sum(map(len, objects)) > self.engine.settings.max_answer_bytes:
                    raise answer_too_large(self.engine.settings.max_answer_bytes)
            except RAISED as error:
                set_pointer(error, POINTER)
                raise
            return list(zip(objects, encoding.versions(created), strict=True))

        try:
            done = await self.transact(run)
        except (NotAllWritten, Conflict, DatabaseForbids, DatabaseRule):
            return None
        except Exception as error:
            if is_refusal(error):
                return None
            raise
        if self.on_commit is not None:
            self.on_commit([row[0] for row in created])
        return done

    async def _run_single(self, single: SingleStatement, answer: Answer[Result]) -> list[WrittenRow] | None:
        """Return the outcomes, or None if nothing was written and the writes have to run in a transaction: a trigger
        has cancelled one, or WITH does not write the table, or it is not known which of several was refused."""
        try:
            row = await self.client.run_statement(
                self.database.write_statement(
                    lambda connection: self._fetch_single(connection, single, answer), committed=self.committed
                )
            )
            return None if row is None else single.outcomes(row)
        except RAISED as error:
            answer.refused(error, range(len(single.writes)))
            raise
        except Exception as error:
            if is_refusal(error) or isinstance(error, asyncpg.FeatureNotSupportedError):
                return None
            raise

    async def _fetch_single(
        self, connection: PostgresConnection, single: SingleStatement, answer: Answer[Result]
    ) -> Row | None:
        try:
            if single.before:
                return await self._fetch_pipelined(connection, single, answer)
            return await connection.fetchrow(single.sql, *single.values)
        except Exception as error:
            if len(single.writes) > 1 or (single.before and is_refusal(error)):
                raise
            if isinstance(error, _UNDONE) and not isinstance(error, asyncpg.InvalidCachedStatementError):
                return None
            raise_as(translate_write_error(error, single.writes[0], self.engine), error)

    async def _fetch_pipelined(
        self, connection: PostgresConnection, single: SingleStatement, answer: Answer[Result]
    ) -> Row | None:
        """Send all statements of a write together, with that of the answer."""
        read = answer.last
        # Before the first one is sent, because the driver ends a transaction when it asks for unknown types.
        await connection.describe([sql for sql, _ in single.before] + ([] if read is None else [read.sql]))
        check = SendCheck(connection)
        try:
            for sql, values in single.before if read is not None else single.before[:-1]:
                await connection.pipeline(sql, values)
            if read is None:
                row: Row | None = await connection.fetchrow(single.sql, *single.values)
            else:
                row = (single.row_id,)
                await answer.read_last(connection, single.row_id)
        finally:
            connection.forget_pipelined()
        if check.count_sent() != 1:
            # The driver has repeated the last statement without the others, because its description was stale.
            raise asyncpg.InvalidCachedStatementError("a description was stale")
        return row

    async def _run_transaction(
        self,
        writes: Sequence[PreparedWrite],
        answer: Answer[Result],
        *,
        is_sequence_exhausted: bool = False,
        is_second: bool = False,
        checks_sent: bool = False,
    ) -> Result:
        """Run the writes in a transaction, again if others made it fail, and then the custom code after the commit.
        is_sequence_exhausted: whether a sequence of ids has no further number, so that free numbers are looked for.
        is_second: whether the row was absent in a first transaction, and there after it. checks_sent: whether the rules
        look at the sent values first."""
        last: Transaction | None = None

        async def run(connection: PostgresConnection) -> Result:
            nonlocal last
            last = Transaction(connection, self.engine, self.context, self.headers, is_sequence_exhausted, checks_sent)
            answer.begin()
            return await last.run(writes, answer)

        try:
            result = await self.transact(run)
        except NoFreeId:
            if is_sequence_exhausted or not any(may_meet_taken_ids(write.plan) for write in _planned(last)):
                raise
            return await self._run_transaction(writes, answer, is_sequence_exhausted=True, checks_sent=checks_sent)
        except Missing as missing:
            # With several writes, an earlier one may have removed the row.
            if len(writes) > 1 or not await self._is_there(missing):
                raise
            if is_second:
                raise_as(missing.cancelled(), missing)
            # A trigger has hidden the row, or another client has created it.
            return await self._run_transaction(writes, answer, is_second=True, checks_sent=checks_sent)
        except (asyncpg.PostgresError, asyncpg.PostgresWarning, Conflict, DatabaseForbids, DatabaseRule) as error:
            raise_as(self._refusal(error, writes, answer, _planned(last)), error)
        batches = last.written if last is not None else []
        try:
            if self.on_commit is not None:
                self.on_commit([written.id for _, batch in batches for written in batch])
        finally:
            if not self.is_tried:
                await run_after_commit(batches)
        return result

    def _refusal(
        self,
        error: Exception,
        writes: Sequence[PreparedWrite],
        answer: Answer[Result],
        planned: Sequence[PlannedWrite],
    ) -> Exception:
        """Return what is raised for an error of a transaction that was rolled back."""
        if isinstance(error, PostgresMessage):
            # A deferred constraint failed at the commit, or a statement that only locks or reads.
            error = translate_commit_error(error, planned, self.engine)
        if isinstance(error, RAISED):
            answer.refused(error, range(len(writes)))
        return error

    async def _is_there(self, missing: Missing) -> bool:
        """Whether the row exists after the rollback. Then a trigger has hidden it from its view, and has cancelled the
        write."""
        there, values = missing.absent.there, missing.absent.values
        if there is None:
            return False
        sql = there.sql
        is_there = self.database.read(lambda connection: connection.fetchval(sql, *values), is_snapshot=False)
        return await self.client.run(is_there) is not None


class _TriedError(Exception):
    """Ends the transaction of a write that is only tried."""


_UNDONE = (asyncpg.DivisionByZeroError, asyncpg.FeatureNotSupportedError)
"""Errors after which a write runs in a transaction: our own division by zero, which says that a trigger has cancelled
the write, and tables with rules, which WITH cannot write."""


def _may_be_met(error: Exception, writes: Sequence[PreparedWrite]) -> bool:
    """Return whether a create was refused that updates the row that is there. Another client may have created this row
    meanwhile: ON CONFLICT names one unique key, and the row may have been met at another one first."""
    cause = error.__cause__ or error
    return isinstance(cause, asyncpg.UniqueViolationError) and any(write.change.on_conflict for write in writes)


def _planned(transaction: Transaction | None) -> Sequence[PlannedWrite]:
    """Return the writes that a transaction has planned so far."""
    return () if transaction is None else transaction.planned


async def run_after_commit(batches: Sequence[tuple[Resource, list[Written]]]) -> None:
    """Run the custom code that follows a commit. What was written stands, whatever it raises."""
    for resource, written in batches:
        await _after_commit(resource, written)


async def _after_commit(resource: Resource, written: list[Written]) -> None:
    after_commit = resource.hooks.after_commit
    if after_commit is None:
        return
    try:
        await after_commit(written)
    except (Exception, asyncio.CancelledError):
        log.exception("after_commit of %s failed; what was written stands", resource.type)
