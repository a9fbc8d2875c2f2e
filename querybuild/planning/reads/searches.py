"""Plans the search for words in the texts of a list. What comes in: a Search. What goes out: a condition, and the rank
of each row.

It must not know: SQL text, rows, HTTP.
"""

from __future__ import annotations

from typing import Any

import msgspec

from querybuild.declarations.database_types.searches import search_text, searchable_parts, searched
from querybuild.declarations.operators import SEARCH
from querybuild.declarations.resource import Resource
from querybuild.declarations.values import ValueFault
from querybuild.errors import ParameterError, quoted
from querybuild.parse import SEARCH_TEXT
from querybuild.planning.conditions import ConditionPlanner
from querybuild.planning.row_plan import ColumnRef, Condition, OrderKey, Rank, Test
from querybuild.query import FieldFilter, Search, Source


class PlannedSearch(msgspec.Struct, frozen=True):
    """condition: of the rows that are found. rank: the key that has the best first."""

    condition: Condition
    rank: OrderKey


def plan_search(search: Search, resource: Resource, alias: str, conditions: ConditionPlanner) -> PlannedSearch | None:
    """Plan a search. conditions: those of the read, which have the values. Appends ParameterError to their errors and
    returns None if it is invalid."""
    parts = searchable_parts(resource)
    if not parts:
        detail = f"No attribute of {resource.type} is searchable: use a filter."
        conditions.errors.append(ParameterError(detail, parameter=SEARCH_TEXT))
        return None
    words = searched(parts)
    node = FieldFilter(SEARCH_TEXT, SEARCH.name, search.text, None, True, Source(SEARCH_TEXT), search.index)
    try:
        slots = conditions.slots(node, _read, words, "one")
    except ValueFault as error:
        detail = f"Expected {error}, not {quoted(search.text)}."
        conditions.errors.append(ParameterError(detail, parameter=SEARCH_TEXT))
        return None
    rank = ColumnRef(alias, searched(parts, is_rank=True), derived=Rank(slots[0]))
    return PlannedSearch(Test(SEARCH, ColumnRef(alias, words), "value", slots), OrderKey(rank, True, False))


def _read(text: Any) -> list[Any]:
    return [search_text(text)]
