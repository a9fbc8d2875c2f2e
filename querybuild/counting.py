"""Finds plans whose exact total can be counted by keys. What comes in: a plan. What goes out: the same plan, which says
so (docs/adr/0021-counted-by-keys.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

import msgspec

from querybuild.plan import (
    ColumnRef,
    Condition,
    CustomTest,
    Exists,
    IdIs,
    Logic,
    ReadPlan,
    Reference,
    References,
    Rows,
    Test,
)


def counted(plan: ReadPlan, references: References) -> ReadPlan:
    """Users who have a computer, and nothing else that is asked of them, are counted by the owners of the computers,
    which foreign keys say are users. It spares PostgreSQL the reading of all users (docs/adr/0021-counted-by-keys.md).
    A computer with the name of its owner is none that can be told by itself.
    """
    match plan.scope, plan.conditions:
        case None, (Exists(rows=Rows(pairs=((near, far),)) as rows) as owned,) if (
            near == plan.node.resource.id.column
            and not plan.node.rows.criteria
            and Reference(rows.resource, far, plan.node.resource) in references
            and rows.parent not in _aliases(owned.conditions)
        ):
            return msgspec.structs.replace(plan, counted_by=owned)
        case _:
            return plan


def _aliases(conditions: tuple[Condition, ...]) -> Iterator[str]:
    """Of the rows that are looked at, but for those that the conditions themselves look for."""
    for condition in conditions:
        match condition:
            case Test(left=left, right=right):
                yield from (_row_of(left), _row_of(left if right is None else right))
            case CustomTest(left=left):
                yield left.alias
            case Logic(items=items):
                yield from _aliases(items)
            case Exists(rows=rows, conditions=inner):
                yield rows.parent
                yield from _aliases(inner)
            case IdIs(alias=alias):
                yield alias
            case _:
                assert_never(condition)


def _row_of(column: ColumnRef) -> str:
    return column.alias if column.rows is None else column.rows.parent
