"""Decides what became of a write: its row was written, is absent or has changed, or the write was cancelled.

Refusals with a driver's exception are translated in `refusals.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_never

import msgspec

from querybuild.errors import (
    ApiError,
    AttributeFault,
    RelationshipFault,
    ResourceNotFound,
    listed,
    not_allowed,
    quoted,
    raise_all,
    resource_not_found,
)
from querybuild.planning.changes import PlannedWrite
from querybuild.planning.plan import node_of
from querybuild.planning.rows import Row
from querybuild.planning.writes.write_plan import Expected, LinkWrite, WritePlan
from querybuild.principal import Principal
from querybuild.sql.statement import Statement
from querybuild.sql.writes.modify import WriteStatements
from serializers.pointers import slot_pointer
from serializers.resource_objects import shown_values
from server.errors import NotWritten, PreconditionFailed
from server.execution.arguments import Arguments
from server.execution.refusals import not_written
from server.execution.writes.locks import fetch_only
from server.postgres.connection import PostgresConnection


class WrittenRow(msgspec.Struct, frozen=True):
    """The write was done. id: of its row. row: what the row's statement returned of it; None if it has to be read.
    related: the ids of the related rows that each link has changed, if they have to be checked. is_update: whether a
    create has updated a row that was there."""

    id: Any
    row: Row | None
    related: Sequence[tuple[LinkWrite, Sequence[Any]]] = ()
    is_update: bool = False


def written_row(plan: WritePlan, row: Row) -> WrittenRow:
    """Return what became of a write. row: what its statement returned."""
    return WrittenRow(row[0], row, is_update=plan.conflict is not None and bool(row[-1]))


class AbsentRow(msgspec.Struct, frozen=True):
    """The row is not there, or hidden. there: finds the row, with these values; None if that was looked for already."""

    write: PlannedWrite
    there: Statement | None = None
    values: Sequence[Any] = ()


class ForbiddenRow(msgspec.Struct, frozen=True):
    """The row is there, but the principal may not write it."""

    write: PlannedWrite


class ChangedRow(msgspec.Struct, frozen=True):
    """The row does not have the values that the write requires."""

    errors: list[ApiError]


class CancelledWrite(msgspec.Struct, frozen=True):
    """The row is there, and was not written: a trigger or a policy cancelled the write."""

    write: PlannedWrite


Outcome = WrittenRow | AbsentRow | ForbiddenRow | ChangedRow | CancelledWrite
"""What became of a write. PostgreSQL's own refusals are exceptions."""


class Missing(ResourceNotFound):
    """The row of a write is absent. After the rollback it may be there: then a trigger had hidden it, and cancelled the
    write."""

    def __init__(self, absent: AbsentRow) -> None:
        plan = absent.write.plan
        assert plan.id_slot is not None
        fault = resource_not_found(plan.resource.type, str(absent.write.values[plan.id_slot]), absent.write.id_pointer)
        super().__init__(fault.detail, pointer=fault.pointer)
        self.absent = absent

    def cancelled(self) -> NotWritten:
        """Return the error if the row is there after all."""
        error = not_written(self.absent.write)
        error.pointer = error.pointer or self.pointer
        return error


def written(outcome: Outcome, principal: Principal) -> WrittenRow:
    """Return the outcome if the write was done. Raises ResourceNotFound, Forbidden, Unauthenticated, AttributeFault,
    NotWritten."""
    match outcome:
        case WrittenRow():
            return outcome
        case AbsentRow():
            raise Missing(outcome)
        case ForbiddenRow(write=write):
            plan = write.plan
            raise not_allowed(
                principal, f"You may not {plan.kind} this {plan.resource.type}.", pointer=write.id_pointer
            )
        case ChangedRow(errors=errors):
            raise_all(errors)
            raise AssertionError("a row has changed, and no value of it")
        case CancelledWrite(write=write):
            raise not_written(write)
        case _:
            assert_never(outcome)


def check_row(write: PlannedWrite, statements: WriteStatements, row: Row | None) -> AbsentRow | ForbiddenRow | None:
    """Return the outcome if the row of a write is not there, or may not be written. row: as the statement `lock` or
    `there` returned it."""
    if row is None:
        return AbsentRow(write)
    return ForbiddenRow(write) if statements.has_rights and not row[-1] else None


def check_precondition(write: PlannedWrite, sent: Arguments, row: Row) -> ChangedRow | None:
    """Compare the values that the row must have with those of the locked row, and the columns that must be kept. sent:
    with the write's values."""
    plan = write.plan
    node = node_of(plan.rows, tuple(expected.attribute for expected in plan.precondition))
    values = shown_values(node, row) if plan.precondition else ()
    for expected, value in zip(plan.precondition, values, strict=True):
        if expected.is_version and value not in sent.value_of(expected.slot):
            return ChangedRow([precondition_failed(write, expected.slot.index)])
    errors: list[ApiError] = [
        _read_only(expected, write)
        for expected, value in zip(plan.precondition, values, strict=True)
        if not expected.is_version
        and (value if expected.relationship is None or value is None else str(value)) != sent.value_of(expected.slot)
    ]
    for kept, is_same in zip(write.plan.kept, row[node.width :], strict=False):
        if not is_same:
            names = listed(kept.names)
            detail = f"It would change {names} too, which has a column in common: send values that agree for both."
            errors.append(RelationshipFault(detail, pointer=slot_pointer(write, kept.assignment.slot)))
    return ChangedRow(errors) if errors else None


def precondition_failed(write: PlannedWrite, slot: int) -> PreconditionFailed:
    """Return the error of a write whose row or linkage has another version than it demands. slot: of the versions."""
    plan, pointer = write.plan, slot_pointer(write, slot)
    what = f"The {plan.resource.type}" if plan.linkage is None else f"The linkage of this {plan.resource.type}"
    detail = f"{what} has changed since it was read, so nothing was written: read it again."
    return PreconditionFailed(detail, pointer=pointer or None, header=None if pointer else "If-Match")


def _read_only(expected: Expected, write: PlannedWrite) -> ApiError:
    fault = AttributeFault if expected.relationship is None else RelationshipFault
    name = quoted((expected.relationship or expected.attribute).name)
    pointer = slot_pointer(write, expected.slot.index) if expected.slot.source == "request" else write.pointer
    return fault(f"{name} is read-only: leave it out, or send the value it has.", pointer=pointer)


async def decide(
    connection: PostgresConnection, write: PlannedWrite, statements: WriteStatements, sent: Arguments, row: Row | None
) -> Outcome:
    """Return the outcome of a write whose statement returned this row."""
    if row is not None and row[0] is not None:
        return written_row(write.plan, row)
    there, statement = statements.there, statements.row
    if there is None or statement is None or statements.lock is not None:
        return CancelledWrite(write)
    values = sent.of(there)
    for _ in range(2):
        if await connection.fetchval(there.sql, *values) is None:
            return AbsentRow(write, there, values)
        # Another client may have created the row after the statement. The second one sees it.
        row = await fetch_only(connection, statement, sent.of(statement), write.id_pointer)
        if row is not None and row[0] is not None:
            return written_row(write.plan, row)
    return CancelledWrite(write)
