"""What writes for one request: by one statement where that is the whole write, else in a transaction. What comes in:
prepared writes and the read that answers them. What goes out: ids and rows; or the answer that a refusal amounts to.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, Protocol, TypeVar

import asyncpg
import msgspec

from querybuild.changes import PlannedWrite
from querybuild.errors import raise_as
from querybuild.hooks import Written
from querybuild.modify import Create, WriteStatements, may_meet_taken_ids
from querybuild.plan import Node
from querybuild.query import Lid
from querybuild.resource import Resource
from querybuild.rows import Row
from server.engine import Engine, PreparedRead, PreparedWrite
from server.errors import NoFreeId
from server.execution.execute import ReadResult
from server.execution.refusals import is_refusal, translate_commit_error
from server.execution.writes import Missing, Outcome, Transaction, answer_of, returned, run_alone
from server.postgres.connection import Connection
from server.postgres.database import PREPARED_STATEMENT_BYTES, Database

log = logging.getLogger("server")

MOST_TOGETHER = 8
"""How many creates are written by one statement; of more, neighbours that are alike are sent as a batch."""

Result = TypeVar("Result")


class Client(Protocol):
    """The other end of the connection."""

    def run(self, work: Awaitable[Result]) -> Awaitable[Result]:
        """Runs what is to be given up when the client goes."""

    def run_statement(self, work: Awaitable[Result]) -> Awaitable[Result]:
        """As above, where that is a write that is its own transaction."""

    def shield(self) -> None:
        """From here on the work is not cancelled, even if the client goes."""


class Writer(msgspec.Struct, frozen=True, eq=False):
    """What writes for one request."""

    database: Database
    engine: Engine
    headers: Mapping[str, str]
    client: Client

    async def one(self, write: PreparedWrite, read: PreparedRead) -> tuple[Any, ReadResult]:
        """A write and the reading of its answer, in one transaction; in one statement where that can be."""
        node = returned(write, read)
        is_sure = node is not None and not node.computed and self.engine.has_room_for_rows
        statements = self._alone(write, node) if is_sure else None
        if node is None or statements is None:
            return await self.transaction(lambda transaction: transaction.write_and_read(write, read))
        outcome = await self._run_alone(write, statements)
        if outcome is None:
            return await self.transaction(lambda transaction: transaction.write_and_read(write, read))
        return outcome.id, answer_of(outcome.row, read)

    async def one_unread(self, write: PreparedWrite) -> None:
        """A write whose answer shows nothing of it."""
        statements = self._alone(write, None)
        if statements is None or await self._run_alone(write, statements) is None:
            await self.transaction(lambda transaction: transaction.run([write]))

    async def creates_together(self, writes: Sequence[PreparedWrite], shown: Sequence[Node]) -> list[Row] | None:
        """The rows of new resources, as `shown` has each, by one statement. None where there is none for them, or where
        it was refused and so has written nothing: one by one they tell which of them it was."""
        # What Python computes may fail, and then nothing is to be written.
        has_computed = any(node.computed for node in shown)
        has_room = self.engine.has_room_for_rows
        if has_computed or not has_room or len(writes) > MOST_TOGETHER or not all(map(self._is_create_alone, writes)):
            return None
        creates, values = _together([write.planned for write in writes if write.planned is not None], writes, shown)
        sql = self.engine.statement_together(creates)
        if len(sql) > PREPARED_STATEMENT_BYTES:
            return None
        try:
            row = await self.client.run_statement(self.database.write_statement(lambda one: one.fetchrow(sql, *values)))
        except Exception as error:
            # WITH does not write tables with rules.
            if is_refusal(error) or isinstance(error, asyncpg.FeatureNotSupportedError):
                return None
            raise
        assert row is not None
        ends = list(accumulate([create.width for create in creates], initial=1))
        return [row[begin:end] for begin, end in pairwise(ends)]

    def _is_create_alone(self, write: PreparedWrite) -> bool:
        return write.change.kind == "create" and self._alone(write, None) is not None

    async def transaction(
        self, work: Callable[[Transaction], Awaitable[Result]], *, is_sequence_exhausted: bool = False
    ) -> Result:
        """Runs the work in a transaction, again when others made it fail; then the custom code that waits for the
        commit. is_sequence_exhausted: whether a sequence of ids has come to its end, so that free numbers are looked
        for."""
        last: Transaction | None = None

        async def run(connection: Connection) -> Result:
            nonlocal last
            last = Transaction(connection, self.engine, self.headers, is_sequence_exhausted)
            return await work(last)

        try:
            result = await self.client.run(self.database.write(run, committing=self.client.shield))
        except Missing as error:
            # Of several writes an earlier one may have removed it.
            is_only = last is not None and len(last.planned) == 1
            if is_only and await self._is_there(error):
                raise error.not_written() from error
            raise
        except NoFreeId:
            planned = last.planned if last is not None else []
            if is_sequence_exhausted or not any(may_meet_taken_ids(write.plan) for write in planned):
                raise
            return await self.transaction(work, is_sequence_exhausted=True)
        except asyncpg.PostgresError as error:
            # Of a deferred constraint, at the commit; or of a statement that only locks or reads.
            raise_as(translate_commit_error(error, last.planned if last is not None else (), self.engine), error)
        for resource, written in last.written if last is not None else ():
            await _after_commit(resource, written)
        return result

    async def _is_there(self, missing: Missing) -> bool:
        """Whether the row is there again now that nothing was written: a trigger has hidden it from its view, and then
        cancelled the write."""
        sql, values = missing.there.sql, missing.values
        found = self.database.read(lambda connection: connection.fetchval(sql, *values), is_snapshot=False)
        return await self.client.run(found) is not None

    def _alone(self, write: PreparedWrite, returning: Node | None) -> WriteStatements | None:
        """The statements of a write that is one of them, and so its own transaction."""
        hooks = write.resource.hooks
        if write.planned is None or write.is_hooked or hooks.after_commit is not None:
            return None
        statements = self.engine.write_statements(msgspec.structs.replace(write.planned.plan, returning=returning))
        return statements if statements.alone is not None else None

    async def _run_alone(self, write: PreparedWrite, statements: WriteStatements) -> Outcome | None:
        """None where the write has to be done in a transaction, which has not been done now."""
        planned, alone = write.planned, statements.alone
        assert planned is not None
        assert alone is not None
        return await self.client.run_statement(
            self.database.write_statement(lambda one: run_alone(one, planned, alone, self.engine))
        )


def _together(
    planned: Sequence[PlannedWrite], writes: Sequence[PreparedWrite], shown: Sequence[Node]
) -> tuple[tuple[Create, ...], list[Any]]:
    """The shape of creates and the values that are sent, with no Lid among them."""
    creates, values = list[Create](), list[Any]()
    places: dict[Lid, int] = {}
    for place, (write, one, node) in enumerate(zip(planned, writes, shown, strict=True)):
        sent = [(assignment.slot, write.values[assignment.slot]) for assignment in write.plan.assignments]
        ids = tuple([(slot, places[value]) for slot, value in sent if isinstance(value, Lid)])
        creates.append(Create(msgspec.structs.replace(write.plan, returning=node), ids))
        values += [value for _, value in sent if not isinstance(value, Lid)]
        if one.change.lid is not None:
            places[Lid(one.resource.type, one.change.lid)] = place
    return tuple(creates), values


async def _after_commit(resource: Resource, written: list[Written]) -> None:
    after_commit = resource.hooks.after_commit
    if after_commit is None:
        return
    try:
        await after_commit(written)
    except (Exception, asyncio.CancelledError):
        log.exception("after_commit of %s failed; what was written stands", resource.type)
