"""Runs planned writes inside their transaction, with the custom code around them. What comes in: changes, their plans,
and the read that answers them. What goes out: ids and rows; or the answer that a constraint amounts to.

Nothing here writes SQL, and nothing encodes.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import chain, groupby
from typing import Any, TypeVar

import asyncpg
import msgspec

from querybuild.changes import PlannedWrite, related_not_found
from querybuild.errors import (
    AttributeFault,
    ResourceNotFound,
    quoted,
    raise_all,
    raise_as,
    resource_not_found,
)
from querybuild.free_ids import FreeIdStatements
from querybuild.hooks import Written
from querybuild.modify import TargetStatement, WriteStatements, rows_together
from querybuild.plan import LockStrength, Node, Statement, Values, WritePlan, node_of
from querybuild.query import Lid
from querybuild.resource import Relationship, Resource
from querybuild.rows import Row, nodes
from serializers.encode import shown_values
from serializers.pointers import slot_pointer
from server.engine import Engine, PreparedRead, PreparedWrite, ReadShape
from server.errors import NotWritten
from server.execution.execute import Bound, ReadResult, arguments, check_size, result_of, run_read_at_once
from server.execution.free_ids import draw_free_ids, insert_with_free_id
from server.execution.hooks import Writing
from server.execution.links import write_link
from server.execution.locks import lock_related, lock_rows
from server.execution.refusals import is_refusal, not_written, translate_write_error
from server.postgres.connection import Connection
from server.postgres.custom_code import custom_code
from server.postgres.driver_errors import SAVEPOINT_GONE
from server.postgres.rules import raise_rule

Item = TypeVar("Item")
Result = TypeVar("Result")


class Outcome(msgspec.Struct, frozen=True):
    """id: of the row that was written. row: as the plan's `returning` shows it; None where it has to be read."""

    id: Any
    row: Row | None


class Transaction:
    """One request's writes inside their transaction: what was made so far under a lid, and all that was planned and
    written."""

    def __init__(
        self, connection: Connection, engine: Engine, headers: Mapping[str, str], is_sequence_exhausted: bool = False
    ) -> None:
        self.connection = connection
        self.planned: list[PlannedWrite] = []
        self.written: list[tuple[Resource, list[Written]]] = []
        self._engine = engine
        self._headers = headers
        self._is_past_end = is_sequence_exhausted
        self._ids: dict[Lid, Any] = {}
        self._most_bytes = engine.settings.max_answer_bytes
        connection.count_received()

    async def run(self, writes: Sequence[PreparedWrite], returning: Node | None = None) -> list[Outcome]:
        """Writes of one kind and one resource, none of which needs an id that another of them makes.

        Raises ResourceNotFound, RelatedNotFound, RequiredLink, AttributeFault, Conflict, BodyValueRefused, and what the
        custom code raises.
        """
        first = writes[0]
        after = first.resource.hooks.after(first.change.kind)
        planned = [write.planned for write in writes if write.planned is not None]
        if len(planned) < len(writes):
            writes, planned = await self._before(writes)
        self.planned += planned
        outcomes = await self._write(planned, returning)
        written = [Written(write.change, outcome.id) for write, outcome in zip(writes, outcomes, strict=True)]
        for one in written:
            if one.change.kind == "create" and one.change.lid is not None:
                self._ids[Lid(first.resource.type, one.change.lid)] = one.id
        self.written.append((first.resource, written))
        if after is not None:
            await self._custom(after, written)
        if after is None and returning is not None:
            return outcomes
        return [Outcome(outcome.id, None) for outcome in outcomes]

    async def lock(self, writes: Sequence[PreparedWrite]) -> None:
        """Locks what all of them are going to lock. A single write does that by itself."""
        if len(writes) > 1:
            planned = [write.planned for write in writes if write.planned is not None]
            await lock_rows(self.connection, self._engine, planned)

    async def lock_related(
        self, resource: Resource, relationship: Relationship, row_id: Any, strength: LockStrength
    ) -> Any:
        """The id at the other end of a to-one; see `server/execution/locks.py`."""
        return await lock_related(self.connection, self._engine, resource, relationship, row_id, strength)

    async def write_and_read(self, write: PreparedWrite, read: PreparedRead) -> tuple[Any, ReadResult]:
        node = returned(write, read)
        [outcome] = await self.run([write], node)
        if outcome.row is not None:
            result = answer_of(outcome.row, read)
        else:
            result = await run_read_at_once(self.connection, read, outcome.id, self._engine)
        await check_size(read, result, self._engine)
        return outcome.id, result

    async def read_rows(self, resource: Resource, ids: Sequence[Any]) -> dict[Any, Row]:
        """The rows with those ids, id and readable attributes, in one batch."""
        read = self._engine.prepare_read(ReadShape("resource", resource), "")
        statement, context = read.compiled.statements.primary, self._engine.context.values
        values = [arguments(statement, (), one, context=context) for one in ids]
        rows = await self.connection.fetch_batch(statement.sql, values, self._most_bytes)
        return {row[0]: row for row in rows}

    async def _custom(self, hook: Callable[[Writing, list[Item]], Awaitable[Result]], items: list[Item]) -> Result:
        """Runs custom code. The savepoint around it cannot be released when it has ended the transaction, or has passed
        over a statement that failed: then no answer can be true. What PostgreSQL refuses of its own statements is a
        fault of its own, and says nothing of the document."""
        self.connection.require_reset()
        savepoint = self.connection.transaction()
        await savepoint.start()
        try:
            with custom_code(self.connection):
                result = await hook(Writing(self.connection, self._headers, self._engine.context), items)
            await savepoint.commit()
            self.connection.count_received()
        except SAVEPOINT_GONE as error:
            raise RuntimeError("custom code has ended the transaction that it was given") from error
        except Exception as error:
            raise_rule(error)
            if is_refusal(error):
                raise RuntimeError("PostgreSQL refuses a statement of custom code") from error
            raise
        return result

    async def _before(self, writes: Sequence[PreparedWrite]) -> tuple[list[PreparedWrite], list[PlannedWrite]]:
        """The custom code may change what is planned."""
        first = writes[0]
        before = first.resource.hooks.before(first.change.kind)
        assert before is not None
        sent = [write.change for write in writes]
        # A transaction may be tried again, with what was sent and not with what custom code has made of it.
        changes = await self._custom(before, copy.deepcopy(sent))
        if changes is None:
            changes = sent
        if [(one.kind, one.lid) for one in changes] != [(one.kind, one.lid) for one in sent]:
            raise ValueError(f"custom code was given {len(sent)} changes, and gives others or another number of them")
        planned = self._engine.plan_writes(first.resource, changes)
        changed = zip(writes, changes, strict=True)
        return [msgspec.structs.replace(write, change=change) for write, change in changed], planned

    async def _write(self, planned: Sequence[PlannedWrite], returning: Node | None) -> list[Outcome]:
        """Neighbours of one shape are sent as one batch, where one statement is all of each."""
        outcomes: list[Outcome] = []
        for plan, same in groupby(planned, key=lambda write: write.plan):
            group = list(same)
            shown = msgspec.structs.replace(plan, returning=returning)
            statements = self._engine.write_statements(shown)
            rows = await self._batch(group, shown, statements) if len(group) > 1 and statements.is_repeatable else None
            if rows is None:
                outcomes += [await self._one(write, statements) for write in group]
            else:
                outcomes += [Outcome(row[0], row) for row in rows]
        return outcomes

    async def _batch(
        self, group: Sequence[PlannedWrite], plan: WritePlan, statements: WriteStatements
    ) -> Sequence[Row] | None:
        """The row of each; None where one of them fails, which the driver does not tell apart: they are undone, and
        have to be written one by one."""
        statement = statements.row
        assert statement is not None
        values = [arguments(statement, self._values(write)) for write in group]
        rows = await self._all_or_none(len(group), lambda: self._rows(plan, statement, values))
        if rows is None and statements.free_ids is not None:
            rows = await self._batch_with_ids(group, plan.resource, statements.free_ids)
        return rows

    async def _batch_with_ids(
        self, group: Sequence[PlannedWrite], resource: Resource, statements: FreeIdStatements
    ) -> Sequence[Row] | None:
        """The same where clients have taken some of the ids that the default offers."""
        numbers = await draw_free_ids(self.connection, resource, statements, len(group))
        if numbers is None:
            return None
        insert = statements.insert
        numbered = zip(group, numbers, strict=True)
        values = [
            arguments(insert, self._values(write), row_id=number, context=self._engine.context.values)
            for write, number in numbered
        ]
        return await self._all_or_none(len(group), lambda: self.connection.fetchmany(insert.sql, values))

    async def _all_or_none(self, count: int, send: Callable[[], Awaitable[Sequence[Row]]]) -> Sequence[Row] | None:
        """So many rows; None, and nothing is written, where one is refused or missing."""
        savepoint = self.connection.transaction()
        await savepoint.start()
        rows: Sequence[Row] = ()
        try:
            rows = await send()
        except Exception as error:
            if not is_refusal(error):
                raise
        if len(rows) < count or any(row[0] is None for row in rows):
            await savepoint.rollback()
            return None
        await savepoint.commit()
        return rows

    async def _rows(self, plan: WritePlan, statement: Statement, values: Sequence[Sequence[Any]]) -> Sequence[Row]:
        """The row of each. New ones are many to a statement, as far as they go."""
        size = rows_together(plan) if plan.kind == "create" else 1
        end = len(values) - len(values) % size if size > 1 else 0
        rows: list[Row] = []
        if end:
            joined = [list(chain.from_iterable(values[begin : begin + size])) for begin in range(0, end, size)]
            rows += await self.connection.fetch_batch(self._engine.rows_statement(plan), joined, self._most_bytes)
        if end < len(values):
            rows += await self.connection.fetch_batch(statement.sql, values[end:], self._most_bytes)
        return rows

    async def _one(self, write: PlannedWrite, statements: WriteStatements) -> Outcome:
        resolved = msgspec.structs.replace(write, values=self._values(write)) if write.has_lids else write
        outcome = await _run_told(self.connection, resolved, statements, self._engine, self._is_past_end)
        self.connection.check_received(self._most_bytes)
        return outcome

    def _values(self, write: PlannedWrite) -> Values:
        """The values, with the ids of what was made meanwhile where a Lid stood for them."""
        return tuple([self._resolved(value) for value in write.values]) if write.has_lids else write.values

    def _resolved(self, value: Any) -> Any:
        if isinstance(value, Lid):
            return self._ids[value]
        return [self._resolved(item) for item in value] if isinstance(value, list) else value


def returned(write: PreparedWrite, read: PreparedRead) -> Node | None:
    """What the write's own statement can give back of the answer: all of it, where that is one row and nothing else,
    and no custom code writes after it."""
    return read.plan.node if read.compiled.is_one_row and not write.is_hooked else None


def answer_of(row: Row, read: PreparedRead) -> ReadResult:
    """One row, and no included resources."""
    return result_of(read, [[row], *([] for _ in list(nodes(read.plan.node))[1:])])


async def _run_told(
    connection: Connection,
    write: PlannedWrite,
    statements: WriteStatements,
    engine: Engine,
    is_sequence_exhausted: bool = False,
) -> Outcome:
    """A write, of which the database's refusal is an answer."""
    try:
        return await run_write(
            connection, write, write.values, statements, is_sequence_exhausted, engine.context.values
        )
    except Exception as error:
        raise_as(translate_write_error(error, write, engine), error)


async def run_alone(connection: Connection, write: PlannedWrite, alone: Statement, engine: Engine) -> Outcome | None:
    """A write of one statement. None where a trigger may have cancelled it, or where WITH does not write the table:
    nothing has been written then."""
    try:
        row = await connection.fetchrow(alone.sql, *arguments(alone, write.values))
    except Exception as error:
        if isinstance(error, _UNDONE) and not isinstance(error, asyncpg.InvalidCachedStatementError):
            return None
        raise_as(translate_write_error(error, write, engine), error)
    assert row is not None
    if row[0] is None:
        raise resource_not_found(write.plan.resource.type, _id_text(write, write.values), write.id_pointer)
    return Outcome(row[0], row)


_UNDONE = (asyncpg.DivisionByZeroError, asyncpg.FeatureNotSupportedError)
"""The division of our own; and tables with rules, which WITH does not write."""


async def run_write(
    connection: Connection,
    write: PlannedWrite,
    values: Values,
    statements: WriteStatements,
    is_sequence_exhausted: bool,
    context: Values,
) -> Outcome:
    """Writes the row and its links. is_sequence_exhausted: whether the sequence of the id has no further number.
    context: the values of `Context`.

    Raises ResourceNotFound, RelatedNotFound, RequiredLink, AttributeFault.
    """
    plan, row = write.plan, None
    bound = partial(arguments, values=values, context=context)
    row_id = None if plan.id_slot is None else values[plan.id_slot]
    if plan.owner is not None and statements.owner is not None:
        owner_id = values[plan.owner.slot]
        if await connection.fetchval(statements.owner.sql, *bound(statements.owner)) is None:
            raise resource_not_found(plan.owner.resource.type, str(owner_id))
    for joined in statements.joined:
        await connection.fetch(joined.sql, *bound(joined))
    related = {
        place: await connection.fetch(first.sql, *bound(first))
        for place, (link, one) in enumerate(zip(plan.links, statements.links, strict=True))
        if link.is_target_first and (first := one.lock) is not None
    }
    if statements.lock is not None:
        locked = await connection.fetchrow(statements.lock.sql, *bound(statements.lock))
        if locked is None:
            raise resource_not_found(plan.resource.type, str(row_id), write.id_pointer)
        _check_unchanged(write, locked)
    for target in statements.targets:
        await _check_target(connection, write, values[target.slot], target, bound)
    if statements.is_limited:
        # What is hidden is decided before the row is written, which may change it.
        for place, one in enumerate(statements.links):
            if one.lock is not None and place not in related:
                related[place] = await connection.fetch(one.lock.sql, *bound(one.lock, row_id=row_id))
    if statements.row is not None:
        row = await _write_row(connection, write, bound, statements, is_sequence_exhausted)
        row_id = row_id if row is None else row[0]
    for place, (link, link_statements) in enumerate(zip(plan.links, statements.links, strict=True)):
        try:
            await write_link(connection, write, values, link, link_statements, row_id, related.get(place), bound)
        except asyncpg.PostgresError as error:
            # Its rows are other resources', and only the linkage stands in the document.
            raise_rule(error, slot_pointer(write, link.slot))
            raise
    # A term that is computed in SQL may count what is linked.
    return Outcome(row_id, None if plan.links else row)


async def _check_target(
    connection: Connection, write: PlannedWrite, key: Any, target: TargetStatement, bound: Bound
) -> None:
    """A key must be that of a row that is there and not hidden. A new row may refer to itself. Raises
    RelatedNotFound."""
    plan = write.plan
    is_itself = plan.kind == "create" and plan.id_slot is not None and write.values[plan.id_slot] == key
    if key is None or (is_itself and target.resource is plan.resource):
        return
    if await connection.fetchval(target.lock.sql, *bound(target.lock)) is None:
        raise related_not_found(target.resource, str(key), slot_pointer(write, target.slot))


async def _write_row(
    connection: Connection,
    write: PlannedWrite,
    bound: Bound,
    statements: WriteStatements,
    is_sequence_exhausted: bool,
) -> asyncpg.Record | None:
    """The row as the statement returns it, its id first; None of one that a trigger deletes and keeps. Raises
    ResourceNotFound, NotWritten."""
    statement, there = statements.row, statements.there
    assert statement is not None
    if statements.keeps_row and there is not None:
        if await connection.fetchval(there.sql, *bound(there)) is None:
            raise resource_not_found(write.plan.resource.type, _id_text(write, write.values), write.id_pointer)
        await connection.execute(statement.sql, *bound(statement))
        return None
    row, free_ids = None, statements.free_ids
    if free_ids is None or not is_sequence_exhausted:
        row = await connection.fetchrow(statement.sql, *bound(statement))
    if row is None and free_ids is not None:
        plan = write.plan
        row = await insert_with_free_id(
            connection, plan, bound, statement, free_ids, is_sequence_exhausted=is_sequence_exhausted
        )
    if row is not None and row[0] is not None:
        return row
    if there is None or statements.lock is not None:
        raise not_written(write)
    sent = bound(there)
    found = await connection.fetchval(there.sql, *sent)
    raise Missing(write, there, sent) if found is None else not_written(write)


def _id_text(write: PlannedWrite, values: Values) -> str:
    assert write.plan.id_slot is not None
    return str(values[write.plan.id_slot])


class Missing(ResourceNotFound):
    """A row that is not there, inside the transaction of its write. there: finds it."""

    def __init__(self, write: PlannedWrite, there: Statement, values: Sequence[Any]) -> None:
        found = resource_not_found(write.plan.resource.type, str(values[0]), write.id_pointer)
        super().__init__(found.detail, pointer=found.pointer)
        self.there = there
        self.values = values
        self._write = write

    def not_written(self) -> NotWritten:
        """That it is there, and its write was cancelled. Operations say where in the request that is."""
        answer = not_written(self._write)
        answer.pointer = answer.pointer or self.pointer
        return answer


def _check_unchanged(write: PlannedWrite, row: Row) -> None:
    """Read-only attributes that were sent must have the value that they have. row: of a node of those attributes."""
    node = node_of(write.plan.resource, tuple(sent.attribute for sent in write.plan.unchanged))
    raise_all(
        [
            AttributeFault(
                f"{quoted(sent.attribute.name)} is read-only: leave it out, or send the value it has.",
                pointer=slot_pointer(write, sent.slot),
            )
            for sent, value in zip(write.plan.unchanged, shown_values(node, row), strict=True)
            if value != write.values[sent.slot]
        ]
    )
