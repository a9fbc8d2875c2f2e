"""Makes writes uniform, so that one statement writes them all: creates that only differ in columns that are null if
they are not set, because clients leave out what they do not know; and updates that set other columns, because clients
send what they have changed.

It must not know: SQL text, documents.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from operator import attrgetter

import msgspec

from querybuild.planning.changes import PlannedWrite
from querybuild.planning.page_values import Values
from querybuild.planning.writes.write_plan import Assignment, WritePlan
from querybuild.shortcuts import Knows

UNIFORM = Knows(WritePlan, used=("kind", "rows", "id_slot", "assignments", "checked"))
"""What it knows of a plan. With `onConflict`, a column that is not sent is not updated, so null is another value. An
update that sets a column to its own value is like one that does not set it, if nothing looks at which ones it sets."""

PLANS = 256
"""How many plans, and how many sets of plans, are remembered."""


def by_form(planned: Sequence[PlannedWrite]) -> Iterator[list[PlannedWrite]]:
    """Group consecutive writes that `uniform` may make uniform: with the same plan, or with plans that only differ in
    columns that a create or an update may leave out."""
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
    plan, sources = made
    return [
        msgspec.structs.replace(write, plan=plan, values=sources[write.plan].values_of(write.values)) for write in group
    ]


class _Sources(msgspec.Struct, frozen=True):
    """Where a plan has the values of a uniform one. slots: of the values, None for one that it does not have. sent:
    whether an update has the values that others leave out."""

    slots: tuple[int | None, ...]
    sent: tuple[bool, ...] = ()

    def values_of(self, values: Values) -> Values:
        """Return the values for the uniform plan."""
        return (*[None if slot is None else values[slot] for slot in self.slots], *self.sent)


_SOME = Assignment("", 0)
"""Stands for the columns of an update that others may leave out. One that sets none does not write the row at all, so
it is not one of them."""

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
    """Return the plan without the columns that it may leave out, so that those that may be uniform are equal."""
    kept = [assignment for assignment in plan.assignments if not _may_be_left_out(assignment, plan)]
    if len(kept) == len(plan.assignments) or not UNIFORM.takes(plan):
        return plan
    assignments = _unplaced(sorted(kept, key=attrgetter("column")))
    if plan.kind == "update":
        assignments.append(_SOME)
    return msgspec.structs.replace(plan, assignments=tuple(assignments), id_slot=None if plan.id_slot is None else 0)


def _may_be_left_out(assignment: Assignment, plan: WritePlan) -> bool:
    """Return whether other writes of a group may leave out a column: with null in its place in a create, or with its
    own value in an update, which neither triggers nor policies may see."""
    abilities = plan.resource.abilities
    if plan.kind == "create":
        return assignment.column in abilities.null_columns
    return assignment.attribute is not None and "update" in abilities.merged and not abilities.is_view


def _unplaced(assignments: Sequence[Assignment]) -> list[Assignment]:
    """Return the assignments without the places of their values, which are of no matter."""
    return [msgspec.structs.replace(assignment, slot=0) for assignment in assignments]


@lru_cache(PLANS)
def _uniform_plan(plans: frozenset[WritePlan]) -> tuple[WritePlan, dict[WritePlan, _Sources]] | None:
    """Return the plan that sets all columns of these plans, and for each of them where it has the values."""
    by_plan = {plan: _by_columns(plan) for plan in plans}
    merged: dict[Columns, list[Assignment]] = {}
    for own in by_plan.values():
        for columns, assignments in own.items():
            if _unplaced(merged.setdefault(columns, assignments)) != _unplaced(assignments):
                return None
    names = sorted(merged)
    if len({column for columns in names for column in columns}) < sum(map(len, names)):
        return None
    any_plan = next(iter(plans))
    is_update = any_plan.kind == "update"
    optional = [columns for columns in names if is_update and any(columns not in own for own in by_plan.values())]
    # The values, the id of an update, and whether the values that some leave out are sent.
    sent = {columns: len(names) + 1 + index for index, columns in enumerate(optional)}
    placed = [
        msgspec.structs.replace(assignment, slot=slot, sent=sent.get(columns))
        for slot, columns in enumerate(names)
        for assignment in merged[columns]
    ]
    sources = {
        plan: _Sources(
            tuple([own[columns][0].slot if columns in own else None for columns in names])
            + ((plan.id_slot,) if is_update else ()),
            tuple([columns in own for columns in optional]),
        )
        for plan, own in by_plan.items()
    }
    id_slot = any_plan.id_slot
    if id_slot is not None:
        id_slot = sources[any_plan].slots.index(id_slot)
    return msgspec.structs.replace(any_plan, assignments=tuple(placed), id_slot=id_slot), sources
