"""Runs the writes of a request in one transaction, with the custom code around them.

Nothing here writes SQL, and nothing encodes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

import asyncpg
import msgspec

from querybuild.declarations.hooks import Written
from querybuild.declarations.resource import Resource
from querybuild.errors import (
    ApiError,
    Errors,
    IdConflict,
    ResourceNotFound,
    quoted,
    raise_all,
    resource_not_found,
)
from querybuild.planning.changes import PlannedWrite
from querybuild.planning.context import Context, check_action
from querybuild.planning.page_values import Values
from querybuild.planning.plan import Node
from querybuild.planning.rows import Row
from querybuild.planning.writes.bulk import PlannedBulk
from querybuild.planning.writes.shared_columns import agree, disagreement
from querybuild.planning.writes.write_plan import ExpectedLinkage, LockStrength, WritePlan
from querybuild.query import Change, Lid, VersionMatch
from querybuild.sql.statement import Statement
from querybuild.sql.writes.free_ids import FreeIdStatements
from querybuild.sql.writes.modify import WriteStatements, rows_per_insert
from serializers.decode import with_id
from serializers.pointers import member_pointer, slot_pointer
from serializers.tags import version_of_related
from server.engine import Engine
from server.errors import RAISED, Conflict, PreconditionUnsupported
from server.execution.arguments import Arguments
from server.execution.refusals import is_refusal
from server.execution.unfit_values import unfit_value
from server.execution.versions import read_linkage_version
from server.execution.writes.answers import Answer
from server.execution.writes.batches import batches, groups
from server.execution.writes.bulk import BulkRows
from server.execution.writes.free_ids import draw_free_ids
from server.execution.writes.hooks import Writing, run_before, run_hook
from server.execution.writes.locks import fetch_locked, fetch_only, lock_related, lock_rows
from server.execution.writes.outcomes import WrittenRow, check_row, precondition_failed, written, written_row
from server.execution.writes.rule_checks import RuleChecks
from server.execution.writes.sequence import run_sequence
from server.postgres.connection import PostgresConnection
from server.postgres.driver_errors import unknown_character
from server.preparing.reads import ReadShape
from server.preparing.writes import PreparedRows, PreparedWrite

Result = TypeVar("Result")


class NotAllWritten(Exception):
    """One of the rows to create was refused or is missing. The transaction is rolled back."""


class Transaction:
    """The writes of one request in their transaction: the ids that were made under a lid, and all that was planned and
    written so far. is_sequence_exhausted: whether a sequence of ids has no further number, so that free numbers are
    looked for. checks_sent: whether the rules look at the sent values before each write, because a constraint has
    refused one of them."""

    def __init__(
        self,
        connection: PostgresConnection,
        engine: Engine,
        context: Context,
        headers: Mapping[str, str],
        is_sequence_exhausted: bool = False,
        checks_sent: bool = False,
    ) -> None:
        self.connection = connection
        self.engine = engine
        self.context = context
        self.planned: list[PlannedWrite] = []
        self.written: list[tuple[Resource, list[Written]]] = []
        self._writing = Writing(connection, headers, context)
        self._checks = RuleChecks(connection, engine, context)
        self._is_sequence_exhausted = is_sequence_exhausted
        self._checks_sent = checks_sent
        self._ids: dict[Lid, Any] = {}
        self._most_bytes = engine.settings.max_answer_bytes
        connection.count_received()

    def forget(self) -> None:
        """Forget what was planned and written so far, if nothing needs it. An import has any number of rows."""
        self.planned.clear()
        self.written.clear()

    async def run(self, writes: Sequence[PreparedWrite], answer: Answer[Result]) -> Result:
        """Run the writes, and return what the request is answered with.

        Raises ResourceNotFound, Forbidden, Unauthenticated, RelatedNotFound, RequiredLink, AttributeFault, Conflict,
        BodyValueRefused, and what the custom code raises.
        """
        if len(writes) > 1:
            await self._lock_rows(writes, answer)
        begin = 0
        for batch in batches(writes):
            indexes = range(begin, begin + len(batch))
            bulk = batch[0].bulk
            try:
                if bulk is not None:
                    answer.add_count(await self._run_bulk(batch[0], bulk))
                else:
                    if batch[0].looked_for is None:
                        outcomes = await self._run_batch(batch, answer.shown(begin))
                    else:
                        outcomes = await self._create_or_update(batch)
                    await answer.add(indexes, outcomes, self.connection)
            except RAISED as error:
                answer.refused(error, indexes)
                raise
            begin = indexes.stop
        return answer.result

    async def _lock_rows(self, writes: Sequence[PreparedWrite], answer: Answer[Result]) -> None:
        """Lock the rows of several writes. A value that the database cannot store is that of one of them."""
        planned = {index: write.planned for index, write in enumerate(writes) if write.planned is not None}
        try:
            await lock_rows(self.connection, self.engine, self.context.values, planned.values())
        except asyncpg.DataError as error:
            for index, write in planned.items():
                if (unfit := unfit_value(error, write, self.engine)) is not None:
                    answer.refused(unfit, range(index, index + 1))
                    try:
                        raise unfit from error
                    finally:
                        del unfit  # a frame that refers to the error that it raises is a reference cycle
            raise

    async def create_rows(self, rows: PreparedRows, shown: Node) -> Sequence[Row]:
        """Create rows, and return what `shown` has of them, in their order. They must be all that the transaction
        writes. Raises NotAllWritten."""
        statement = self.engine.statements.of_write(rows.plan, shown).row
        assert statement is not None
        values = list(zip(*Arguments(tuple(rows.columns)).of(statement), strict=True))
        created: Sequence[Row] = ()
        try:
            created = await self._fetch_rows(rows.plan, shown, statement, values)
        except Exception as error:
            if not _is_refused_together(error):
                raise
        if len(created) < len(values) or any(row[0] is None for row in created):
            raise NotAllWritten
        return created

    async def _run_batch(self, writes: Sequence[PreparedWrite], shown: Node | None) -> list[WrittenRow]:
        """Run writes of one kind and one resource, none of which needs an id that another of them makes."""
        first = writes[0]
        after = first.resource.hooks.after(first.change.kind)
        if after is not None or (shown is not None and shown.rows.criteria):
            # The hook may change the rows, so they are read after it. RETURNING would show a row that may not be read.
            shown = None
        writes, planned = await self._plan(writes)
        self.planned += planned
        outcomes = await self._write(planned, shown, is_checked=after is None)
        done = [Written(write.change, outcome.id) for write, outcome in zip(writes, outcomes, strict=True)]
        for row in done:
            if row.change.kind == "create" and row.change.lid is not None:
                self._ids[Lid(first.resource.type, row.change.lid)] = row.id
        self.written.append((first.resource, done))
        if after is not None:
            await run_hook(after, self.connection, self._writing, done)
            await self._checks.check_written(planned, outcomes)
        if shown is not None:
            return outcomes
        return [WrittenRow(outcome.id, None, is_update=outcome.is_update) for outcome in outcomes]

    async def _run_bulk(self, write: PreparedWrite, bulk: PlannedBulk) -> int:
        """Write the rows that a filter finds, and return how many they are. Raises TooManyChanges."""
        resource, change = write.resource, msgspec.structs.replace(write.change, bulk=None)
        rows = BulkRows(self.connection, self.engine, self.context.values, bulk)
        if self._checks_sent and bulk.write is not None:
            await self._checks.check_sent(bulk.write, rows.sent)
        ids = None if write.is_hooked else await rows.write()
        if ids is None:
            ids = await rows.lock()
            changes = [msgspec.structs.replace(change, id=str(row_id)) for row_id in ids]
            if changes:
                await self._run_batch([PreparedWrite(resource, each, None) for each in changes], None)
            return len(ids)
        if not ids:
            return 0
        assert bulk.write is not None
        self.planned.append(bulk.write)
        done = [Written(msgspec.structs.replace(change, id=str(row_id)), row_id) for row_id in ids]
        self.written.append((resource, done))
        await self._checks.check_written([bulk.write] * len(ids), [WrittenRow(row_id, None) for row_id in ids])
        return len(ids)

    async def _create_or_update(self, batch: Sequence[PreparedWrite]) -> list[WrittenRow]:
        """Update the rows that have the unique values of creates, and create the others. If one of several is refused,
        they run one after the other. Raises IdConflict."""
        if len(batch) > 1:
            planned, done, ids = len(self.planned), len(self.written), dict(self._ids)
            savepoint = self.connection.transaction()
            await savepoint.start()
            try:
                outcomes = await self._create_or_update_all(batch)
            except RAISED:
                outcomes = None
            if outcomes is not None:
                await savepoint.commit()
                return outcomes
            await savepoint.rollback()
            del self.planned[planned:], self.written[done:]
            self._ids = ids
        return [await self._create_or_update_one(write) for write in batch]

    async def _create_or_update_all(self, batch: Sequence[PreparedWrite]) -> list[WrittenRow] | None:
        """Return the rows, or None if two of the writes are of one row."""
        row_ids = await self._find_rows(batch)
        updates = {index: row_id for index, row_id in enumerate(row_ids) if row_id is not None}
        if len(set(updates.values())) < len(updates):
            return None
        creates = [index for index in range(len(batch)) if index not in updates]
        outcomes: dict[int, WrittenRow] = {}
        for indexes, writes in (
            (creates, [_as_create(batch[index]) for index in creates]),
            ([*updates], [self._as_update(batch[index], row_id) for index, row_id in updates.items()]),
        ):
            if writes:
                outcomes.update(zip(indexes, await self._run_batch(writes, None), strict=True))
        return [self._known(batch[index], outcomes[index], index in updates) for index in range(len(batch))]

    async def _create_or_update_one(self, write: PreparedWrite) -> WrittenRow:
        [row_id] = await self._find_rows([write])
        if row_id is None:
            savepoint = self.connection.transaction()
            await savepoint.start()
            try:
                [created] = await self._run_batch([_as_create(write)], None)
            except Conflict:
                # Another client may have created it meanwhile. If the principal may not read it, it stays a conflict.
                await savepoint.rollback()
                [row_id] = await self._find_rows([write])
                if row_id is None:
                    raise
            else:
                await savepoint.commit()
                return created
        [updated] = await self._run_batch([self._as_update(write, row_id)], None)
        return self._known(write, updated, is_update=True)

    def _as_update(self, write: PreparedWrite, row_id: Any) -> PreparedWrite:
        """Return the update of the row that has the unique values of a create. Raises IdConflict, Forbidden,
        Unauthenticated."""
        resource, create, planned = write.resource, write.change, write.looked_for
        assert planned is not None
        slot = planned.plan.id_slot
        if create.id is not None and (slot is None or planned.values[slot] != row_id):
            detail = f"The {resource.type} with these values has another id."
            raise IdConflict(detail, pointer=member_pointer(create.pointer, "id"))
        check_action(resource, "update", self.context)
        update = msgspec.structs.replace(create, on_conflict=None, kind="update", id=str(row_id), lid=None)
        return PreparedWrite(resource, update, None)

    def _known(self, write: PreparedWrite, row: WrittenRow, is_update: bool) -> WrittenRow:
        """Return the written row. If it is an update, later writes know its id by the lid of the create."""
        if is_update and write.change.lid is not None:
            self._ids[Lid(write.resource.type, write.change.lid)] = row.id
        return msgspec.structs.replace(row, is_update=is_update)

    async def _find_rows(self, writes: Sequence[PreparedWrite]) -> list[Any]:
        """Lock the rows that have the unique values of creates, and return their ids, each of which may be None."""
        planned = [write.looked_for for write in writes if write.looked_for is not None]
        met = self.engine.statements.of_write(planned[0].plan, None).met
        assert met is not None
        values = [self._arguments(each).of(met) for each in planned]
        if len(values) == 1:
            # A batch cannot be cancelled, and this may wait for a lock.
            return [row[0] for row in await fetch_locked(self.connection, met, values[0])]
        for _ in range(2 if met.decides_again else 1):
            rows = await self.connection.fetch_batch(met.sql, values, self._most_bytes)
        return [row[0] for row in rows]

    async def _plan(self, writes: Sequence[PreparedWrite]) -> tuple[Sequence[PreparedWrite], list[PlannedWrite]]:
        """Return the plans of the writes. Some can only be made here: the row has to be found, or custom code may
        change the write."""
        planned = [write.planned for write in writes if write.planned is not None]
        if len(planned) == len(writes):
            return writes, planned
        first, errors = writes[0], Errors()
        changes = [await self._with_target(write, errors) for write in writes]
        before = first.resource.hooks.before(first.change.kind)
        if before is not None:
            raise_all(errors)
            changes = await run_before(before, self.connection, self._writing, changes)
        planned = [self.engine.writes.plan(first.resource, change, self.context, errors) for change in changes]
        raise_all(errors)
        changed = zip(writes, changes, strict=True)
        return [msgspec.structs.replace(write, change=change) for write, change in changed], planned

    async def _with_target(self, write: PreparedWrite, errors: list[ApiError]) -> Change:
        """Return the change of a related resource with its id. The related row is locked. Appends to errors. Raises
        ResourceNotFound if the resource of the path does not exist, or has no related resource."""
        related, change = write.related, write.change
        if related is None:
            return change
        takes_away = change.kind == "delete" or change.relationships
        strength = LockStrength.UPDATE if takes_away else LockStrength.NO_KEY_UPDATE
        path_id = write.path_id
        try:
            row_id = await lock_related(self.connection, self.engine, self.context.values, related, path_id, strength)
        except Exception as error:
            if unknown_character(error) is None:
                raise
            raise resource_not_found(related.owners.resource.type, str(path_id)) from error
        if row_id is None:
            owner = f"The {related.owners.resource.type} {quoted(str(write.path_id))}"
            raise ResourceNotFound(f"{owner} has no {quoted(related.relationship.name)} to write.")
        change = msgspec.structs.replace(change, match=_match_of_row(change.match, str(row_id)))
        return with_id(change, str(row_id), errors, of="the related resource")

    async def _write(
        self, planned: Sequence[PlannedWrite], shown: Node | None, *, is_checked: bool
    ) -> list[WrittenRow]:
        """Run writes. is_checked: whether the rows are as the rules demand after them, not only after custom code."""
        outcomes: list[WrittenRow] = []
        for group, batch in groups(planned, lambda plan: self.engine.statements.of_write(plan, shown)):
            for write in group if self._checks_sent else ():
                await self._checks.check_sent(write, self._arguments(write))
            rows = None if batch is None else await self._run_rows(batch, shown)
            if batch is not None and rows is not None:
                outcomes += [written_row(batch[0].plan, row) for row in rows]
                if is_checked:
                    await self._checks.check_written(group, outcomes[-len(group) :])
                continue
            for write in group:
                outcomes.append(await self._run_one(write, self.engine.statements.of_write(write.plan, shown)))
                if is_checked:
                    await self._checks.check_written([write], outcomes[-1:])
        return outcomes

    async def _run_rows(self, group: Sequence[PlannedWrite], shown: Node | None) -> Sequence[Row] | None:
        """Run writes with the same plan as a batch, and return their rows. Returns None if one of them fails: then
        none was written. The driver does not report which one failed, so they have to run in sequence."""
        plan = group[0].plan
        statements = self.engine.statements.of_write(plan, shown)
        statement = statements.row
        assert statement is not None
        values = [self._arguments(write).of(statement) for write in group]
        rows = await self._all_or_none(len(group), lambda: self._fetch_rows(plan, shown, statement, values))
        if rows is None and statements.free_ids is not None:
            rows = await self._run_with_free_ids(group, statements.free_ids)
        return rows

    async def _run_with_free_ids(
        self, group: Sequence[PlannedWrite], statements: FreeIdStatements
    ) -> Sequence[Row] | None:
        """Create the rows if clients have taken some of the ids that the default offers, and return them."""
        numbers = await draw_free_ids(self.connection, group[0].plan.resource, statements, len(group))
        if numbers is None:
            return None
        insert = statements.insert
        numbered = zip(group, numbers, strict=True)
        values = [self._arguments(write).of(insert, row=number) for write, number in numbered]
        return await self._all_or_none(len(group), lambda: self.connection.fetchmany(insert.sql, values))

    async def _all_or_none(self, count: int, send: Callable[[], Awaitable[Sequence[Row]]]) -> Sequence[Row] | None:
        """Return `count` rows, or None if one is refused or missing. Then nothing was written."""
        savepoint = self.connection.transaction()
        await self.connection.queue(savepoint.start())
        rows: Sequence[Row] = ()
        try:
            rows = await send()
        except Exception as error:
            if not _is_refused_together(error):
                raise
        if len(rows) < count or any(row[0] is None for row in rows):
            await savepoint.rollback()
            return None
        await self.connection.queue(savepoint.commit())
        return rows

    async def _fetch_rows(
        self, plan: WritePlan, shown: Node | None, statement: Statement, values: Sequence[Sequence[Any]]
    ) -> Sequence[Row]:
        """Return the row of each write. One statement creates several new rows."""
        rows: list[Row] = []
        begin = 0
        for size in rows_per_insert(plan):
            end = len(values) - (len(values) - begin) % size
            if begin < end:
                sql = statement.sql if size == 1 else self.engine.statements.of_rows(plan, size, shown)
                joined = [list(chain.from_iterable(values[first : first + size])) for first in range(begin, end, size)]
                rows += await self.connection.fetch_batch(sql, joined, self._most_bytes)
            begin = end
        return rows

    async def _run_one(self, write: PlannedWrite, statements: WriteStatements) -> WrittenRow:
        sent = self._arguments(write)
        if write.has_lids:
            write = msgspec.structs.replace(write, values=sent.request)
            check_agreements(write)
        if write.plan.linkage is not None:
            await self._check_linkage(write, write.plan.linkage, statements, sent)
        outcome = await run_sequence(
            self.connection,
            write,
            statements,
            sent,
            self.engine,
            self.context.principal,
            is_sequence_exhausted=self._is_sequence_exhausted,
        )
        row = written(outcome, self.context.principal)
        self.connection.check_received(self._most_bytes)
        return row

    async def _check_linkage(
        self, write: PlannedWrite, expected: ExpectedLinkage, statements: WriteStatements, sent: Arguments
    ) -> None:
        """Check under the lock of the row that its linkage has the version that the write demands. Raises
        PreconditionFailed, ResourceNotFound, Forbidden, Unauthenticated."""
        await lock_rows(self.connection, self.engine, self.context.values, [write])
        there, slot = statements.there, write.plan.id_slot
        assert there is not None
        assert slot is not None
        row = await fetch_only(self.connection, there, sent.of(there), write.id_pointer)
        if (unwritten := check_row(write, statements, row)) is not None:
            written(unwritten, self.context.principal)
        shape = ReadShape("linkage", write.plan.resource, expected.relationship)
        # Whoever may not read the links must not find out by guesses which they are.
        self.engine.reads.check(shape, self.context)
        linkage = self.engine.reads.prepare_linkage(shape, self.context)
        version = await read_linkage_version(self.connection, linkage, self.context, sent.request[slot])
        if version is None:
            raise PreconditionUnsupported("There are too many links for a tag.", header="If-Match")
        if version not in sent.request[expected.slot]:
            raise precondition_failed(write, expected.slot)

    def _arguments(self, write: PlannedWrite) -> Arguments:
        """Return the values of a write, with the ids of resources that were created under a lid."""
        values: Values = write.values
        if write.has_lids:
            values = tuple([self._resolved(value) for value in values])
        return Arguments(values, self.context.values)

    def _resolved(self, value: Any) -> Any:
        if isinstance(value, Lid):
            return self._ids[value]
        return [self._resolved(item) for item in value] if isinstance(value, list) else value


def _as_create(write: PreparedWrite) -> PreparedWrite:
    """Return the create that `onConflict` may make an update, as one that cannot."""
    return PreparedWrite(write.resource, msgspec.structs.replace(write.change, on_conflict=None), None)


def _is_refused_together(error: Exception) -> bool:
    """Return whether several writes were refused, of which each may be possible: ON CONFLICT cannot update a row
    twice, and uniform updates read the columns that some of them leave out, for which the role may lack the right."""
    return is_refusal(error) or isinstance(
        error, (asyncpg.CardinalityViolationError, asyncpg.InsufficientPrivilegeError)
    )


def check_agreements(write: PlannedWrite) -> None:
    """Check that fields with a column in common have the same value for it, when all ids are known. Raises IdConflict,
    RelationshipFault."""
    pointers = [slot_pointer(write, slot) for slot in range(len(write.values))] if write.agreements else []
    plan, errors = write.plan, Errors()
    for agreement in write.agreements:
        if not agree(agreement, write.values):
            path = write.pointer if plan.kind == "create" else None
            errors.append(disagreement(agreement, pointers, plan.id_slot, path))
    raise_all(errors)


def _match_of_row(match: VersionMatch | None, id_text: str) -> VersionMatch | None:
    """Return what the version of a related row must be. The versions that were sent name the row too."""
    if match is None or match.versions is None:
        return match
    prefix = version_of_related(id_text, "")
    versions = [version.removeprefix(prefix) for version in match.versions if version.startswith(prefix)]
    return msgspec.structs.replace(match, versions=frozenset(versions))
