"""Plans the list of the resources that are nearest to a value. What comes in: a Near. What goes out: a condition, the
distance of each row as a sort key, and where the nearest rows are found.

It must not know: SQL text, rows, HTTP.
"""

from __future__ import annotations

from typing import Any

import msgspec

from querybuild.declarations.database_types.distances import Measure, measure_of
from querybuild.declarations.operators import OperatorRow, find_operator
from querybuild.declarations.resource import Attribute, Resource
from querybuild.declarations.values import ValueFault
from querybuild.errors import ParameterError, listed, nearest, quoted
from querybuild.parse import NEAR_TO
from querybuild.planning.conditions import ConditionPlanner
from querybuild.planning.row_plan import ColumnRef, Condition, Distance, Nearest, OrderKey, Test
from querybuild.query import FieldFilter, Near, Source


class PlannedNear(msgspec.Struct, frozen=True):
    """condition: of the rows that have a distance. distance: the key that has the nearest first."""

    condition: Condition
    distance: OrderKey
    nearest: Nearest


def plan_near(near: Near, resource: Resource, alias: str, conditions: ConditionPlanner) -> PlannedNear | None:
    """Plan the nearest rows. conditions: those of the read, which have the values. Appends ParameterError to their
    errors and returns None if it is invalid."""
    limits = conditions.limits
    known: dict[str, tuple[Attribute, Measure]] = {
        other.name: (other, measure)
        for other in resource.attributes
        if other.is_filterable and (measure := measure_of(other, has_trigrams=limits.has_trigrams)) is not None
    }
    if near.name not in known:
        detail = f"{resource.type} has no attribute {quoted(near.name)} with a distance.{nearest(near.name, known)}"
        conditions.errors.append(ParameterError(f"{detail} There are: {listed(known)}.", parameter=near.parameter))
        return None
    attribute, measure = known[near.name]

    def read(text: Any) -> list[Any]:
        if "\0" in text:
            raise ValueFault("a text without U+0000")
        value = attribute.type.json.from_text(text)
        if value != value or value in (float("inf"), float("-inf")):
            raise ValueFault("a finite number")
        return [value]

    try:
        [slot] = conditions.slots(near_filter(near), read, attribute, "one")
    except ValueFault as error:
        detail = f"The value for {quoted(near.name)} must be {error}, not {quoted(near.text)}."
        conditions.errors.append(ParameterError(detail, parameter=near.parameter))
        return None
    conditions.checked.add(near.index)
    column = ColumnRef(alias, attribute)
    distance = ColumnRef(alias, attribute, derived=Distance(slot, measure))
    is_there = find_operator(attribute, "isnot")
    assert isinstance(is_there, OperatorRow)
    condition = Test(is_there, column if measure.is_strict else distance, "null")
    abilities = resource.abilities
    indexed = abilities.indexed if measure.is_ordered else abilities.knn_indexed
    is_indexed = attribute.sql is None and attribute.column_name in indexed
    planned = Nearest(column, slot, measure, is_indexed)
    return PlannedNear(condition, OrderKey(distance, False, False), planned)


def near_filter(near: Near) -> FieldFilter:
    """Return the value as that of a filter, for errors that only the database finds."""
    return FieldFilter(near.name, NEAR_TO, near.text, None, True, Source(near.parameter), near.index)
