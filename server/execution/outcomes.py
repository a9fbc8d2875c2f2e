"""Decides what became of a write: its row was written, is absent, has changed, or the write was refused.

Refusals with a driver's exception are translated in `refusals.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from querybuild.changes import PlannedWrite
from querybuild.errors import AttributeFault, ResourceNotFound, quoted, raise_all, resource_not_found
from querybuild.modify import WriteStatements
from querybuild.plan import Statement, node_of
from querybuild.rows import Row
from serializers.encode import shown_values
from serializers.pointers import slot_pointer
from server.errors import NotWritten
from server.execution.arguments import Arguments
from server.execution.refusals import not_written
from server.postgres.connection import Connection


class Outcome(msgspec.Struct, frozen=True):
    """A write that was done. id: of its row. row: what the row's statement returned of it; None if the row has to be
    read."""

    id: Any
    row: Row | None


class Missing(ResourceNotFound):
    """The row of a write is absent, inside the transaction of the write. there: finds the row."""

    def __init__(self, write: PlannedWrite, there: Statement, values: Sequence[Any]) -> None:
        found = absent(write)
        super().__init__(found.detail, pointer=found.pointer)
        self.there = there
        self.values = values
        self._write = write

    def refused(self) -> NotWritten:
        """Return the error if the row is there, and its write was cancelled."""
        answer = not_written(self._write)
        answer.pointer = answer.pointer or self.pointer
        return answer


def absent(write: PlannedWrite) -> ResourceNotFound:
    """Return the error for a row that is not there, or hidden."""
    plan = write.plan
    assert plan.id_slot is not None
    return resource_not_found(plan.resource.type, str(write.values[plan.id_slot]), write.id_pointer)


def check_unchanged(write: PlannedWrite, row: Row) -> None:
    """Check the read-only attributes that were sent. row: their values, locked. Raises AttributeFault if one has
    changed."""
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


async def unwritten(
    connection: Connection, write: PlannedWrite, statements: WriteStatements, sent: Arguments
) -> ResourceNotFound | NotWritten:
    """Return the error for a statement that has written no row: the row is absent, or a trigger cancelled the write."""
    there = statements.there
    if there is None or statements.lock is not None:
        return not_written(write)
    values = sent.of(there)
    found = await connection.fetchval(there.sql, *values)
    return Missing(write, there, values) if found is None else not_written(write)
