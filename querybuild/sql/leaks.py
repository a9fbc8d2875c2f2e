"""Tells which conditions could tell what is in hidden rows: they may fail for some rows, or take much longer for them.
What comes in: conditions of a plan.

It must not know: SQL text, values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from querybuild.declarations.operators import JSONB_CONTAINS
from querybuild.planning.row_plan import Condition, CustomTest, Slot, Test, conditions_within


def patterns(conditions: Iterable[Condition]) -> Iterator[Slot]:
    """Yield the slots of regular expressions."""
    for condition in conditions_within(conditions):
        if isinstance(condition, Test) and condition.form == "value" and condition.operator.is_pattern:
            yield from condition.slots


def is_leaky(condition: Condition) -> bool:
    """Return whether a condition may fail for some rows, or may take much longer for them."""
    return any(map(_has_leaky_operator, conditions_within((condition,))))


def _has_leaky_operator(condition: Condition) -> bool:
    match condition:
        case Test(operator=operator, left=left, right=right):
            columns = [left] if right is None else [left, right]
            return operator.is_pattern or any(shown.attribute.sql is not None for shown in columns)
        case CustomTest(operator=operator):
            return operator is not JSONB_CONTAINS
        case _:
            return False
