"""Checks that written rows are as the rules demand.

The conditions are planned in `querybuild/planning/rules.py`. Nothing here writes SQL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from querybuild.errors import not_allowed
from querybuild.planning.changes import PlannedWrite
from querybuild.planning.context import Context
from querybuild.planning.row_plan import Rows
from querybuild.planning.writes.write_plan import WritePlan
from querybuild.sql.writes.sent_checks import compile_sent_check
from serializers.pointers import slot_pointer
from server.engine import Engine
from server.execution.arguments import Arguments, repeated
from server.execution.writes.outcomes import WrittenRow
from server.postgres.connection import PostgresConnection


class RuleFault(msgspec.Struct, frozen=True):
    """What an error says of a written row that must not be as it is. pointer: to what has written it."""

    pointer: str
    detail: str


class RuleChecks:
    """The checks of one transaction."""

    def __init__(self, connection: PostgresConnection, engine: Engine, context: Context) -> None:
        self._connection = connection
        self._engine = engine
        self._context = context
        self._has_checks = bool(context.access.check_create or context.access.check_update)

    async def check_written(self, planned: Sequence[PlannedWrite], outcomes: Sequence[WrittenRow]) -> None:
        """Check that the rules allow the written rows as they are now. This is before the next write: a row that must
        not be may give rights to write others, and could be changed again. Raises Forbidden, Unauthenticated."""
        if not self._has_checks:
            return
        for rows, by_id in _checked(planned, outcomes).items():
            if (wrong := await self._first_wrong(rows, list(by_id))) is not None:
                fault = by_id[wrong]
                raise not_allowed(self._context.principal, fault.detail, pointer=fault.pointer)

    async def check_sent(self, write: PlannedWrite, sent: Arguments) -> None:
        """Check that the rules may allow the values that a write sends. sent: with these values. Raises Forbidden,
        Unauthenticated."""
        statement = compile_sent_check(write.plan)
        if statement is None:
            return
        if not await self._connection.fetchval(statement.sql, *sent.of(statement)):
            raise not_allowed(self._context.principal, _wrong_values(write.plan), pointer=write.pointer)

    async def _first_wrong(self, checked: Rows, ids: list[Any]) -> Any:
        """Return the first id of a row that must not be as it is, or None if all are right."""
        statement = self._engine.statements.of_check(checked)
        values = Arguments(context=self._context.values).of(statement, keys=repeated(ids))
        wrong = {row[0] for row in await self._connection.fetch(statement.sql, *values)}
        return next((row_id for row_id in ids if row_id in wrong), None)


def _wrong_values(plan: WritePlan) -> str:
    return f"You may not {plan.kind} this {plan.resource.type} with these values."


def _checked(planned: Sequence[PlannedWrite], outcomes: Sequence[WrittenRow]) -> dict[Rows, dict[Any, RuleFault]]:
    """Return the ids of the written rows by the rows that they must be among."""
    checked: dict[Rows, dict[Any, RuleFault]] = {}
    for write, outcome in zip(planned, outcomes, strict=True):
        plan = write.plan
        if plan.checked is not None:
            checked.setdefault(plan.checked, {})[outcome.id] = RuleFault(write.pointer, _wrong_values(plan))
        owner = plan.owner
        if owner is not None and owner.checked is not None:
            detail = f"You may not update this {owner.resource.type} like this."
            checked.setdefault(owner.checked, {})[write.values[owner.slot]] = RuleFault(write.pointer, detail)
        for link, ids in outcome.related:
            assert link.checked is not None
            pointer, known = slot_pointer(write, link.slot), checked.setdefault(link.checked, {})
            for row_id in ids:
                known[row_id] = RuleFault(pointer, f"You may not update {link.target.type} {row_id} with these values.")
    return checked
