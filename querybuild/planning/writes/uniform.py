"""Makes creates uniform that only differ in columns that are null if they are not set: clients leave out what they do
not know. Then one statement writes them all.

It must not know: SQL text, documents.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from operator import attrgetter

import msgspec

from querybuild.planning.changes import PlannedWrite
from querybuild.planning.writes.write_plan import Assignment, WritePlan
from querybuild.shortcuts import Knows

UNIFORM = Knows(WritePlan, used=("kind", "rows", "id_slot", "assignments", "checked"))
"""What it knows of a plan. With `onConflict`, a column that is not sent is not updated, so null is another value."""

PLANS = 256
"""How many plans, and how many sets of plans, are remembered."""


def by_form(planned: Sequence[PlannedWrite]) -> Iterator[list[PlannedWrite]]:
    """Group consecutive writes that `uniform` may make uniform: with the same plan, or creates whose plans only differ
    in columns that are null if they are not set."""
    for _, group in groupby(planned, key=lambda write: _form(write.plan)):
        yield list(group)


def uniform(group: Sequence[PlannedWrite]) -> Sequence[PlannedWrite] | None:
    """Return the writes of a group of `by_form` with one plan, which sets all columns that one of them sets. Returns
    None if a column belongs to several of their fields."""
    plans = frozenset([write.plan for write in group])
    if len(plans) == 1:
        return group
    made = _uniform_plan(plans)
    if made is None:
        return None
    plan, slots = made
    return [
        msgspec.structs.replace(
            write,
            plan=plan,
            values=tuple([None if slot is None else write.values[slot] for slot in slots[write.plan]]),
        )
        for write in group
    ]


Columns = tuple[str, ...]
"""The columns of one value. A key may have several."""


def _by_columns(plan: WritePlan) -> dict[Columns, list[Assignment]]:
    """Return the assignments of each value, by their columns."""
    by_slot: dict[int, list[Assignment]] = {}
    for assignment in plan.assignments:
        by_slot.setdefault(assignment.slot, []).append(assignment)
    return {tuple([each.column for each in same]): same for same in by_slot.values()}


@lru_cache(PLANS)
def _form(plan: WritePlan) -> WritePlan:
    """Return the plan without the columns that a create may leave out, so that those that may be uniform are equal."""
    null_columns = plan.resource.abilities.null_columns
    if plan.kind != "create" or not null_columns or not UNIFORM.takes(plan):
        return plan
    kept = [assignment for assignment in plan.assignments if assignment.column not in null_columns]
    assignments = _unplaced(sorted(kept, key=attrgetter("column")))
    return msgspec.structs.replace(plan, assignments=tuple(assignments), id_slot=None if plan.id_slot is None else 0)


def _unplaced(assignments: Sequence[Assignment]) -> list[Assignment]:
    """Return the assignments without the places of their values, which are of no matter."""
    return [msgspec.structs.replace(assignment, slot=0) for assignment in assignments]


@lru_cache(PLANS)
def _uniform_plan(plans: frozenset[WritePlan]) -> tuple[WritePlan, dict[WritePlan, list[int | None]]] | None:
    """Return the plan that sets all columns of these plans, and for each of them the slots that have its values, None
    for a value that it does not have."""
    by_plan = {plan: _by_columns(plan) for plan in plans}
    merged: dict[Columns, list[Assignment]] = {}
    for own in by_plan.values():
        for columns, assignments in own.items():
            if _unplaced(merged.setdefault(columns, assignments)) != _unplaced(assignments):
                return None
    names = sorted(merged)
    if len({column for columns in names for column in columns}) < sum(map(len, names)):
        return None
    placed = [
        msgspec.structs.replace(assignment, slot=slot)
        for slot, columns in enumerate(names)
        for assignment in merged[columns]
    ]
    slots: dict[WritePlan, list[int | None]] = {
        plan: [own[columns][0].slot if columns in own else None for columns in names] for plan, own in by_plan.items()
    }
    any_plan = next(iter(plans))
    id_slot = any_plan.id_slot
    if id_slot is not None:
        id_slot = slots[any_plan].index(id_slot)
    return msgspec.structs.replace(any_plan, assignments=tuple(placed), id_slot=id_slot), slots
