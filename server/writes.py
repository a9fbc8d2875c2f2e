"""Runs planned writes inside their transaction, with the custom code around them. What comes in: changes, their plans,
and the read that answers them. What goes out: ids and rows; or the answer that a constraint amounts to.

Nothing here writes SQL, and nothing encodes.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import accumulate, chain, groupby, pairwise
from typing import Any, Protocol, TypeVar

import asyncpg
import msgspec

from querybuild.changes import PlannedWrite, related_not_found
from querybuild.errors import AttributeFault, Errors, RequiredLink, quoted, raise_all, raise_as, resource_not_found
from querybuild.hooks import Writing, Written
from querybuild.modify import Create, LinkStatements, WriteStatements, rows_together
from querybuild.plan import LinkWrite, LockStrength, Node, Statement, Values, WritePlan, node_of
from querybuild.query import Lid
from querybuild.resource import Relationship, Resource, link_of
from querybuild.rows import Row, nodes
from serializers.encode import shown_values
from server.engine import Engine, PreparedRead, PreparedWrite, ReadShape
from server.execute import ReadResult, arguments, result_of, run_read_at_once
from server.locks import lock_related, lock_rows
from server.postgres.connection import Connection
from server.postgres.database import PREPARED_STATEMENT_BYTES, Database, custom_code
from server.postgres.driver_errors import ENDED
from server.postgres.rules import raise_rule
from server.refusals import is_refusal, refused_commit, refused_write

log = logging.getLogger("server")

MOST_TOGETHER = 8
"""How many creates are written by one statement; of more, neighbours that are alike are sent as a batch."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class Client(Protocol):
    """The other end of the connection."""

    def run(self, work: Awaitable[Result]) -> Awaitable[Result]:
        """Runs what is to be given up when the client goes."""

    def run_statement(self, work: Awaitable[Result]) -> Awaitable[Result]:
        """As above, where that is a write that is its own transaction."""

    def let_go(self) -> None:
        """From here on the work is finished, whoever is there to hear of it."""


class Outcome(msgspec.Struct, frozen=True):
    """id: of the row that was written. row: as the plan's `returning` shows it; None where it has to be read."""

    id: Any
    row: Row | None


class Transaction:
    """One request's writes inside their transaction: what was made so far under a lid, and all that was planned and
    written."""

    def __init__(self, connection: Connection, engine: Engine, headers: Mapping[str, str]) -> None:
        self.connection = connection
        self.planned: list[PlannedWrite] = []
        self.written: list[tuple[Resource, list[Written]]] = []
        self._engine = engine
        self._headers = headers
        self._ids: dict[Lid, Any] = {}

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
        """The id at the other end of a to-one; see `server/locks.py`."""
        return await lock_related(self.connection, self._engine, resource, relationship, row_id, strength)

    async def write_and_read(self, write: PreparedWrite, read: PreparedRead) -> tuple[Any, ReadResult]:
        node = returned(write, read)
        [outcome] = await self.run([write], node)
        if outcome.row is not None:
            return outcome.id, _answer_of(outcome.row, read)
        return outcome.id, await run_read_at_once(self.connection, read, outcome.id, self._engine)

    async def read_rows(self, resource: Resource, ids: Sequence[Any]) -> dict[Any, Row]:
        """The rows with those ids, id and readable attributes, in one batch."""
        read = self._engine.prepare_read(ReadShape("resource", resource), "")
        rows = await self.connection.fetchmany(read.compiled.statements.primary.sql, [(one,) for one in ids])
        return {row[0]: row for row in rows}

    async def _custom(self, hook: Callable[[Writing, list[Item]], Awaitable[Result]], items: list[Item]) -> Result:
        """Runs custom code. The savepoint around it cannot be released when it has ended the transaction, or has passed
        over a statement that failed: then no answer can be true. What PostgreSQL refuses of its own statements is a
        fault of its own, and says nothing of the document."""
        self.connection.hold()
        savepoint = self.connection.transaction()
        await savepoint.start()
        try:
            with custom_code(self.connection):
                result = await hook(Writing(self.connection, self._headers, self._engine.context), items)
            await savepoint.commit()
        except ENDED as error:
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
        savepoint = self.connection.transaction()
        await savepoint.start()
        rows: Sequence[Row] = ()
        try:
            rows = await self._rows(plan, statement, values)
        except Exception as error:
            if not is_refusal(error):
                raise
        if len(rows) < len(group):
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
            rows += await self.connection.fetchmany(self._engine.rows_statement(plan), joined)
        if end < len(values):
            rows += await self.connection.fetchmany(statement.sql, values[end:])
        return rows

    async def _one(self, write: PlannedWrite, statements: WriteStatements) -> Outcome:
        resolved = msgspec.structs.replace(write, values=self._values(write)) if write.has_lids else write
        return await _run_told(self.connection, resolved, statements, self._engine)

    def _values(self, write: PlannedWrite) -> Values:
        """The values, with the ids of what was made meanwhile where a Lid stood for them."""
        return tuple([self._resolved(value) for value in write.values]) if write.has_lids else write.values

    def _resolved(self, value: Any) -> Any:
        if isinstance(value, Lid):
            return self._ids[value]
        return [self._resolved(item) for item in value] if isinstance(value, list) else value


class Writer(msgspec.Struct, frozen=True, eq=False):
    """What writes for one request."""

    database: Database
    engine: Engine
    headers: Mapping[str, str]
    client: Client

    async def one(self, write: PreparedWrite, read: PreparedRead) -> tuple[Any, ReadResult]:
        """A write and the reading of its answer, in one transaction; in one statement where that can be."""
        node = returned(write, read)
        statements = self._alone(write, node) if node is not None and not node.computed else None
        if node is None or statements is None:
            return await self.transaction(lambda transaction: transaction.write_and_read(write, read))
        outcome = await self._run_alone(write, statements)
        return outcome.id, _answer_of(outcome.row, read)

    async def one_unread(self, write: PreparedWrite) -> None:
        """A write whose answer shows nothing of it."""
        statements = self._alone(write, None)
        if statements is None:
            await self.transaction(lambda transaction: transaction.run([write]))
        else:
            await self._run_alone(write, statements)

    async def creates_together(self, writes: Sequence[PreparedWrite], shown: Sequence[Node]) -> list[Row] | None:
        """The rows of new resources, as `shown` has each, by one statement. None where there is none for them, or where
        it was refused and so has written nothing: one by one they tell which of them it was."""
        # What Python computes may fail, and then nothing is to be written.
        has_computed = any(node.computed for node in shown)
        if has_computed or len(writes) > MOST_TOGETHER or not all(map(self._is_create_alone, writes)):
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

    async def transaction(self, work: Callable[[Transaction], Awaitable[Result]]) -> Result:
        """Runs the work in a transaction, again when others made it fail; then the custom code that waits for the
        commit."""
        last: Transaction | None = None

        async def run(connection: Connection) -> Result:
            nonlocal last
            last = Transaction(connection, self.engine, self.headers)
            return await work(last)

        try:
            result = await self.client.run(self.database.write(run, committing=self.client.let_go))
        except asyncpg.PostgresError as error:
            # Of a deferred constraint, at the commit; or of a statement that only locks or reads.
            raise_as(refused_commit(error, last.planned if last is not None else (), self.engine), error)
        for resource, written in last.written if last is not None else ():
            await _after_commit(resource, written)
        return result

    def _alone(self, write: PreparedWrite, returning: Node | None) -> WriteStatements | None:
        """The statements of a write that is one of them, and so its own transaction."""
        hooks = write.resource.hooks
        if write.planned is None or write.is_hooked or hooks.after_commit is not None:
            return None
        statements = self.engine.write_statements(msgspec.structs.replace(write.planned.plan, returning=returning))
        return statements if statements.is_single else None

    async def _run_alone(self, write: PreparedWrite, statements: WriteStatements) -> Outcome:
        planned = write.planned
        assert planned is not None
        return await self.client.run_statement(
            self.database.write_statement(lambda one: _run_told(one, planned, statements, self.engine))
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


def returned(write: PreparedWrite, read: PreparedRead) -> Node | None:
    """What the write's own statement can give back of the answer: all of it, where that is one row and nothing else,
    and no custom code writes after it."""
    return read.plan.node if read.compiled.is_one_row and not write.is_hooked else None


def _answer_of(row: Row, read: PreparedRead) -> ReadResult:
    """One row, and no included resources."""
    return result_of(read, [[row], *([] for _ in list(nodes(read.plan.node))[1:])])


async def _after_commit(resource: Resource, written: list[Written]) -> None:
    after_commit = resource.hooks.after_commit
    if after_commit is None:
        return
    try:
        await after_commit(written)
    except (Exception, asyncio.CancelledError):
        log.exception("after_commit of %s failed; what was written stands", resource.type)


async def _run_told(
    connection: Connection, write: PlannedWrite, statements: WriteStatements, engine: Engine
) -> Outcome:
    """A write, of which the database's refusal is an answer."""
    try:
        return await run_write(connection, write, write.values, statements)
    except Exception as error:
        raise_as(refused_write(error, write, engine), error)


async def run_write(
    connection: Connection, write: PlannedWrite, values: Values, statements: WriteStatements
) -> Outcome:
    """Writes the row and its links.

    Raises ResourceNotFound, RelatedNotFound, RequiredLink, AttributeFault.
    """
    plan, row = write.plan, None
    row_id = None if plan.id_slot is None else values[plan.id_slot]
    if plan.owner is not None and statements.owner is not None:
        owner_id = values[plan.owner.slot]
        if await connection.fetchval(statements.owner.sql, owner_id) is None:
            raise resource_not_found(plan.owner.resource.type, str(owner_id))
    for joined in statements.joined:
        await connection.fetch(joined.sql, *arguments(joined, values))
    related = {
        place: await connection.fetch(first.sql, *arguments(first, values))
        for place, (link, one) in enumerate(zip(plan.links, statements.links, strict=True))
        if link.is_target_first and (first := one.lock) is not None
    }
    if statements.lock is not None:
        locked = await connection.fetchrow(statements.lock.sql, *arguments(statements.lock, values))
        if locked is None:
            raise resource_not_found(plan.resource.type, str(row_id), write.id_pointer)
        _check_unchanged(write, locked)
    if statements.row is not None:
        row = await _write_row(connection, write, values, statements)
        row_id = row[0]
    for place, (link, link_statements) in enumerate(zip(plan.links, statements.links, strict=True)):
        try:
            await _write_link(connection, write, values, link, link_statements, row_id, related.get(place))
        except asyncpg.PostgresError as error:
            # Its rows are other resources', and only the linkage stands in the document.
            raise_rule(error, write.pointers[link.slot])
            raise
    # A term that is computed in SQL may count what is linked.
    return Outcome(row_id, None if plan.links else row)


async def _write_row(
    connection: Connection, write: PlannedWrite, values: Values, statements: WriteStatements
) -> asyncpg.Record:
    """The row as the statement returns it, its id first. Raises ResourceNotFound."""
    statement = statements.row
    assert statement is not None
    row = await connection.fetchrow(statement.sql, *arguments(statement, values))
    if row is None and statements.skip_taken is not None:
        row = await _insert_past_taken(connection, values, statement, statements.skip_taken)
    if row is None:
        id_slot = write.plan.id_slot
        id_text = "" if id_slot is None else str(values[id_slot])
        raise resource_not_found(write.plan.resource.type, id_text, write.id_pointer)
    return row


async def _insert_past_taken(
    connection: Connection, values: Values, insert: Statement, skip_taken: Statement
) -> asyncpg.Record:
    """The sequence offered an id that a client had taken: moves it to the end of what is taken there, and
    inserts again."""
    for _ in range(10):
        await connection.fetchval(skip_taken.sql)
        row = await connection.fetchrow(insert.sql, *arguments(insert, values))
        if row is not None:
            return row
    raise RuntimeError("no free id after 10 moves of the sequence")


def _check_unchanged(write: PlannedWrite, row: Row) -> None:
    """Read-only attributes that were sent must have the value that they have. row: of a node of those attributes."""
    node = node_of(write.plan.resource, tuple(sent.attribute for sent in write.plan.unchanged))
    raise_all(
        [
            AttributeFault(
                f"{quoted(sent.attribute.name)} is read-only: leave it out, or send the value it has.",
                pointer=write.pointers[sent.slot],
            )
            for sent, value in zip(write.plan.unchanged, shown_values(node, row), strict=True)
            if value != write.values[sent.slot]
        ]
    )


async def _write_link(
    connection: Connection,
    write: PlannedWrite,
    values: Values,
    link: LinkWrite,
    statements: LinkStatements,
    row_id: Any,
    rows: Sequence[Row] | None,
) -> None:
    """rows: the related rows, (id, key or null), where they are locked already."""

    async def run(statement: Statement) -> list[asyncpg.Record]:
        return await connection.fetch(statement.sql, *arguments(statement, values, keys=leaving, row_id=row_id))

    leaving: list[Any] = []
    wanted: list[Any] = values[link.slot]
    named = frozenset(wanted)
    if rows is None:
        rows = [] if statements.lock is None else await run(statements.lock)
    if link.mode != "remove":
        _check_there(write, link, wanted, {row[0] for row in rows})
    leaving = [row[0] for row in rows if _leaves(link, row, row_id, named)]
    if leaving and not link.is_detachable:
        raise _required_link(write, link, leaving)
    # Rows of a link table are not locked: whether any leaves is not known.
    if statements.detach is not None and (leaving or link_of(link.relationship) is not None):
        await run(statements.detach)
    if statements.attach is not None and wanted:
        await run(statements.attach)


def _check_there(write: PlannedWrite, link: LinkWrite, wanted: Sequence[Any], there: set[Any]) -> None:
    """Raises RelatedNotFound of each that is not there."""
    pointers = write.item_pointers[link.slot]
    errors = Errors()
    errors.extend(
        related_not_found(link.target, str(id_value), pointer)
        for id_value, pointer in zip(wanted, pointers, strict=True)
        if id_value not in there
    )
    raise_all(errors)


def _leaves(link: LinkWrite, row: Row, row_id: Any, named: frozenset[Any]) -> bool:
    """Whether a locked row, (id, key), loses its link."""
    return link.mode != "add" and row[1] == row_id and (row[0] in named) == (link.mode == "remove")


def _required_link(write: PlannedWrite, link: LinkWrite, leaving: Sequence[Any]) -> RequiredLink:
    """Rows would be left without a key that they must have."""
    shown = ", ".join(str(id_value) for id_value in leaving[:5])
    detail = f"{link.target.type} {shown} would be left without a required relationship: delete or move first."
    return RequiredLink(detail, pointer=write.pointers[link.slot])
