"""Names the list that a cursor is bound to. What comes in: a query, and what the path names. What goes out: a text
without values.
"""

from __future__ import annotations

from typing import Any

from querybuild.declarations.function import Call
from querybuild.declarations.resource import Resource
from querybuild.filters import COUNT, vals_of
from querybuild.planning.row_plan import RelatedScope
from querybuild.query import CountFilter, FieldFilter, FilterGroup, FilterNode, GroupQuery, Query, RelationFilter
from querybuild.shortcuts import Knows

QUERY = Knows(
    Query, used=("filter", "sort", "groups", "search"), ignored=("page", "include", "fields", "choices", "near", "form")
)
"""What the name of a list knows of a query. The page is one of the list's, and shows its rows in some way. The nearest
rows have no cursors."""


def list_name(query: Query, resource: Resource, scope: RelatedScope | None = None, call: Call | None = None) -> str:
    """Return a name of the list that a cursor is bound to: the collection, relationship or function, the sort, and the
    names and operators of the filter. The id of the parent and the values of filter and call are not included."""
    relation = None if scope is None else (scope.parent.type, scope.relationship.name)
    if call is not None:
        relation = (call.function.route_path, ",".join(call.names))
    sort = [(key.path, key.is_descending, *[COUNT] * key.is_count) for key in query.sort]
    others = QUERY.others(query)
    if query.search is not None:
        others = (*others, "search")
    if query.groups is not None:
        others = (*others, _group_names(query.groups))
    return repr((resource.type, relation, sort, [_without_values(node) for node in query.filter], *others))


def list_vals(query: Query) -> list[Any]:
    """Return the values of a list, in the order in which they are parsed."""
    vals = vals_of(query.filter)
    if query.search is not None:
        vals.append(query.search.text)
    if query.groups is not None:
        vals += vals_of(query.groups.filter)
        vals += [] if query.groups.time_zone is None else [query.groups.time_zone]
    return vals


def _group_names(groups: GroupQuery) -> tuple[object, ...]:
    """Return what groups are asked for, without values."""
    by = [(key.name, key.path) for key in groups.by]
    numbers = [
        (aggregate.name, aggregate.function, aggregate.path, aggregate.is_distinct) for aggregate in groups.aggregates
    ]
    return by, numbers, groups.time_zone is not None, [_without_values(node) for node in groups.filter]


def _without_values(node: FilterNode) -> tuple[object, ...]:
    """Return a filter without its values."""
    match node:
        case FieldFilter():
            return node.name, node.op, node.field, node.is_text
        case CountFilter():
            return node.name, COUNT, node.test.op, node.test.is_text, [_without_values(item) for item in node.items]
        case RelationFilter():
            return node.name, node.op, [_without_values(item) for item in node.items]
        case FilterGroup():
            return node.op, [_without_values(item) for item in node.items]
