"""Plans writes of many rows: those that a filter finds. What comes in: a `Change` with a `Bulk`. What goes out: the
rows, and what is written to each of them.

It must not know: SQL text, rows, HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from querybuild.declarations.resource import Resource
from querybuild.errors import ApiError
from querybuild.filters import SentFilter, sent_filters
from querybuild.planning.changes import PlannedWrite
from querybuild.planning.conditions import ConditionPlanner
from querybuild.planning.context import Context, View
from querybuild.planning.page_values import Values
from querybuild.planning.row_plan import Rows
from querybuild.planning.rowsets import with_conditions, with_rights
from querybuild.planning.writes.write_plan import WritePlan
from querybuild.query import Bulk, ChangeKind, Limits


class BulkPlan(msgspec.Struct, frozen=True, cache_hash=True):
    """The plan of a write of many rows. rows: those that the filter finds and that may be written. write: what is
    written to each of them; None if it is only known when custom code has seen the rows."""

    kind: ChangeKind
    rows: Rows
    write: WritePlan | None


class PlannedBulk(msgspec.Struct, frozen=True, eq=False):
    """The plan of a write of many rows, with its values. values: those of the write, and after them those of the
    filter. filters: the objects of the filter. sent: what the client asks for. write: as in the plan, with its
    values."""

    plan: BulkPlan
    values: Values
    filters: Sequence[SentFilter]
    sent: Bulk
    write: PlannedWrite | None


def plan_bulk(
    kind: ChangeKind,
    sent: Bulk,
    resource: Resource,
    view: View,
    context: Context,
    limits: Limits,
    write: PlannedWrite | None,
    errors: list[ApiError],
) -> PlannedBulk:
    """Plan the rows of a write: of those that the filter finds, those that the principal may read and write. Appends
    FilterError to errors. The plan is only valid if there are none."""
    planner = ConditionPlanner(view.catalog, context, limits, errors)
    if write is not None:
        # Some statements have the values of both.
        planner.values += write.values
    rows = with_rights(planner.open(resource), context, kind)
    rows = with_conditions(rows, planner.plan(sent.filter, resource, rows.alias))
    plan = BulkPlan(kind, rows, None if write is None else write.plan)
    filters = sent_filters(sent.filter, planner.value_slots, planner.checked)
    return PlannedBulk(plan, tuple(planner.values), filters, sent, write)
