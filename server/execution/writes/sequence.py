"""Runs the statements of one write in their order, inside its transaction.

Nothing here writes SQL, and nothing encodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg

from querybuild.errors import ApiError, not_allowed, raise_as, related_not_found, resource_not_found, unreferable
from querybuild.planning.changes import PlannedWrite
from querybuild.planning.page_values import Values
from querybuild.planning.rows import Row
from querybuild.planning.writes.shared_columns import part_of
from querybuild.planning.writes.write_plan import LinkWrite
from querybuild.principal import Principal
from querybuild.sql.writes.modify import TargetStatement, WriteStatements
from serializers.pointers import slot_pointer
from server.engine import Engine
from server.execution.arguments import Arguments
from server.execution.refusals import translate_write_error
from server.execution.writes.free_ids import insert_with_free_id
from server.execution.writes.links import LinkTask, write_link
from server.execution.writes.locks import fetch_locked, fetch_locked_row, fetch_only, repeated_id
from server.execution.writes.outcomes import (
    AbsentRow,
    ChangedRow,
    ForbiddenRow,
    Missing,
    Outcome,
    WrittenRow,
    check_precondition,
    check_row,
    decide,
)
from server.postgres.connection import PostgresConnection
from server.postgres.rules import raise_rule
from server.postgres.wire.pipeline import PipelinedStatement


async def run_sequence(
    connection: PostgresConnection,
    write: PlannedWrite,
    statements: WriteStatements,
    sent: Arguments,
    engine: Engine,
    principal: Principal,
    *,
    is_sequence_exhausted: bool,
) -> Outcome:
    """Write the row and its links. sent: with the write's values. principal: who writes. is_sequence_exhausted: whether
    the sequence of the id has no further number.

    Raises ResourceNotFound, Forbidden, Unauthenticated, RelatedNotFound, RequiredLink, AttributeFault, NotWritten,
    Conflict and BodyValueRefused.
    """
    try:
        return await _Sequence(connection, write, statements, sent, principal, is_sequence_exhausted).run()
    except Exception as error:
        raise_as(translate_write_error(error, write, engine), error)


def implied_id(target: TargetStatement, values: Values) -> str | None:
    """Return the id of the row that a key refers to, from the values of its columns. Return None if one is null."""
    types = target.resource.id.key.types
    texts = [
        part_of(assignment, values[assignment.slot], part)
        for assignment, part in zip(target.parts, types, strict=False)
    ]
    return None if None in texts else ",".join([str(text) for text in texts])


class _Sequence:
    """The statements of one write. The order of the locks is that of `querybuild/sql/writes/locks.py`."""

    def __init__(
        self,
        connection: PostgresConnection,
        write: PlannedWrite,
        statements: WriteStatements,
        sent: Arguments,
        principal: Principal,
        is_sequence_exhausted: bool,
    ) -> None:
        self._connection = connection
        self._write = write
        self._plan = write.plan
        self._statements = statements
        self._sent = sent
        self._principal = principal
        self._is_sequence_exhausted = is_sequence_exhausted
        # The statement that locks the row, if it was pipelined.
        self._locked: PipelinedStatement | None = None
        # The related rows of links that were locked before the row, by the index of the link.
        self._related: dict[int, Sequence[Row]] = {}

    async def run(self) -> Outcome:
        plan, statements = self._plan, self._statements
        row_id = None if plan.id_slot is None else self._sent.request[plan.id_slot]
        row, is_update = None, False
        await self._lock_owner()
        for joined in statements.joined:
            await self._connection.pipeline(joined.sql, self._sent.of(joined))
        await self._lock_related(None, is_limited=False)
        if (unwritten := await self._lock_row()) is not None:
            return unwritten
        for target in statements.targets:
            await self._check_target(target)
        if statements.is_limited:
            # The write may hide related rows, or show them. So they are looked for before.
            await self._lock_related(row_id, is_limited=True)
        if statements.row is not None:
            outcome = await self._write_row(row_id)
            self._check_locked()
            if not isinstance(outcome, WrittenRow):
                return outcome
            row_id, row, is_update = outcome.id, outcome.row, outcome.is_update
        try:
            related = await self._write_links(row_id)
        except ApiError:
            # Whatever is wrong with the links: an answer about the row itself comes first.
            await self._settle_locked()
            raise
        await self._settle_locked()
        # Links may change attributes that SQL computes. Then the row has to be read again.
        return WrittenRow(row_id, None if plan.links else row, related, is_update)

    async def _lock_owner(self) -> None:
        owner, statement = self._plan.owner, self._statements.owner
        if owner is None or statement is None:
            return
        locked = await fetch_locked_row(self._connection, statement, self._sent.of(statement))
        if locked is not None and owner.rows.rights and not locked[-1]:
            raise not_allowed(self._principal, f"You may not update this {owner.resource.type}.")
        if locked is None:
            raise resource_not_found(owner.resource.type, str(self._sent.request[owner.slot]))

    async def _lock_related(self, row_id: Any, *, is_limited: bool) -> None:
        """Lock the related rows of links before the row. is_limited: all of them; else those of link tables whose
        targets are locked first."""
        for index, (link, statements) in enumerate(zip(self._plan.links, self._statements.links, strict=True)):
            lock = statements.lock
            if lock is not None and index not in self._related and (is_limited or link.is_target_first):
                self._related[index] = await fetch_locked(self._connection, lock, self._sent.of(lock, row=row_id))

    async def _lock_row(self) -> AbsentRow | ForbiddenRow | ChangedRow | None:
        lock = self._statements.lock
        if lock is None:
            return None
        if not (self._statements.has_rights or self._plan.precondition or self._plan.kept or lock.decides_again):
            self._locked = await self._connection.pipeline(lock.sql, self._sent.of(lock))
            return None
        locked = await fetch_locked_row(self._connection, lock, self._sent.of(lock), self._write.id_pointer)
        if locked is None:
            return self._absent()
        unwritten = check_row(self._write, self._statements, locked)
        return check_precondition(self._write, self._sent, locked) if unwritten is None else unwritten

    async def _settle_locked(self) -> None:
        """Execute the statement that locks the row, if it is still waiting for another one. Raises Missing."""
        if self._locked is not None:
            await self._connection.settle()
            self._check_locked()

    def _check_locked(self) -> None:
        """Check that there is one row, if the statement that locks it was pipelined. Raises Missing, AmbiguousIds."""
        locked = self._locked
        if locked is None or locked.tag is None:
            return
        if not locked.count:
            raise Missing(self._absent())
        if locked.count > 1:
            assert self._plan.id_slot is not None
            raise repeated_id(self._sent.request[self._plan.id_slot], self._write.id_pointer)

    def _absent(self) -> AbsentRow:
        """Return the outcome if the row could not be locked. A policy may allow that it is read all the same, which
        matters if the row itself is written."""
        plan, there = self._plan, self._statements.there
        if there is None or plan.links or not plan.resource.abilities.cancels_writes:
            return AbsentRow(self._write)
        return AbsentRow(self._write, there, self._sent.of(there))

    async def _check_target(self, target: TargetStatement) -> None:
        """Check that a key is that of an existing row that is not hidden. A new row may refer to itself. Raises
        RelatedNotFound, and RelationshipFault if the row has none of the values that the key refers to."""
        plan, values = self._plan, self._sent.request
        key = implied_id(target, values) if target.parts else values[target.slot]
        is_itself = plan.kind == "create" and plan.id_slot is not None and values[plan.id_slot] == key
        if key is None or (is_itself and target.resource is plan.resource):
            return
        pointer = slot_pointer(self._write, target.slot)
        row = await fetch_locked_row(self._connection, target.lock, self._sent.of(target.lock), pointer)
        self._check_locked()
        if row is None:
            raise related_not_found(target.resource.type, str(key), pointer)
        if target.is_looked_up and not row[1]:
            raise unreferable(target.resource.type, str(key), pointer)

    async def _write_row(self, row_id: Any) -> Outcome:
        """Run the statement of the row. A row that a trigger deletes and keeps is not returned."""
        statements, connection, sent = self._statements, self._connection, self._sent
        statement, there, free_ids = statements.row, statements.there, statements.free_ids
        assert statement is not None
        if statements.keeps_row and there is not None:
            visible = await fetch_only(connection, there, sent.of(there), self._write.id_pointer)
            if (unwritten := check_row(self._write, statements, visible)) is not None:
                return unwritten
            await connection.execute(statement.sql, *sent.of(statement))
            return WrittenRow(row_id, None)
        row = None
        if free_ids is None or not self._is_sequence_exhausted:
            row = await fetch_only(connection, statement, sent.of(statement), self._write.id_pointer)
        if row is None and free_ids is not None:
            row = await insert_with_free_id(
                connection, self._plan, sent, statement, free_ids, is_sequence_exhausted=self._is_sequence_exhausted
            )
        return await decide(connection, self._write, statements, sent, row)

    async def _write_links(self, row_id: Any) -> list[tuple[LinkWrite, Sequence[Any]]]:
        """Write the links, and return the related rows that have to be checked."""
        to_write: list[tuple[LinkWrite, Sequence[Any]]] = []
        for index, (link, statements) in enumerate(zip(self._plan.links, self._statements.links, strict=True)):
            related, write = self._related.get(index), self._write
            task = LinkTask(self._connection, write, link, statements, self._sent, row_id, self._principal)
            try:
                changed = await write_link(task, related, self._check_locked)
                if link.checked is not None and changed:
                    to_write.append((link, changed))
            except (asyncpg.PostgresError, asyncpg.PostgresWarning) as error:
                if self._locked is not None and self._locked.is_refused:
                    raise
                # Its rows are other resources', and only the linkage stands in the document.
                raise_rule(error, slot_pointer(self._write, link.slot))
                raise
        return to_write
