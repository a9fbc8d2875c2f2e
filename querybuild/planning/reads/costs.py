"""Estimates what a read costs, by what it asks for. What comes in: a query, and its plan. What goes out: the parts of
the cost (docs/query-language.md, "Cost"). It is the same whatever the rules hide, and whatever is in the tables.

It must not know: SQL text, rows, HTTP.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from querybuild.errors import QueryTooCostly, listed
from querybuild.planning.plan import Branch, Node, ReadPlan
from querybuild.query import CountFilter, FieldFilter, FilterNode, Limits, Query, RelationFilter

NODE_COST, STEP_COST, NUMBER_COST, SEARCH_COST = 5, 100, 1000, 100
"""What a filter object or group costs, each relationship that a filter, a sort or a key goes over, each key or number
of groups, and a search. A step inside JSON counts as one over a relationship."""

MANY = 10
"""How many related resources of each a to-many counts as, if `includePage` does not say."""

SHOWN_PARTS = 3
"""How many parts an error names."""


class CostPart(msgspec.Struct, frozen=True):
    """A part of the cost. name: what asks for it. parameter: of the request."""

    name: str
    parameter: str
    cost: int


def costs_of(query: Query, plan: ReadPlan, limits: Limits) -> list[CostPart]:
    """Return the parts of the cost of a read, the costliest first."""
    rows = (query.page.size or limits.max_page_size) if plan.is_collection else 1
    size = "page[limit]" if query.page.family == "offset" else "page[size]"
    parts = [CostPart(f"{size}={query.page.size}" if plan.is_collection else "the resource", size, rows)]
    parts += _includes(plan.node, rows, ())
    parts += _filters("filter", query.filter)
    if query.search is not None:
        parts.append(CostPart("searchText", "searchText", SEARCH_COST))
    if query.near is not None:
        parts.append(CostPart("nearTo", query.near.parameter, SEARCH_COST))
    for choice in query.choices:
        parts += _filters(choice.parameters[0], choice.filter)
    steps = sum([key.path.count(".") + key.is_count for key in query.sort])
    if query.groups is not None:
        parts += _filters("groupFilter", query.groups.filter)
        paths = [key.path for key in query.groups.by] + [aggregate.path for aggregate in query.groups.aggregates]
        numbers = NUMBER_COST * len(paths) + STEP_COST * sum([path.count(".") for path in paths])
        parts.append(CostPart("the keys and numbers of groups", "groupBy", numbers))
    if steps:
        parts.append(CostPart("sort", "sort", STEP_COST * steps))
    return sorted(parts, key=lambda part: -part.cost)


def check_cost(parts: Sequence[CostPart], max_cost: int) -> None:
    """Raises QueryTooCostly."""
    total = sum([part.cost for part in parts])
    if total > max_cost:
        most = listed([f"{part.name} ({part.cost})" for part in parts[:SHOWN_PARTS]])
        detail = f"The query costs {total}, and at most {max_cost} is allowed. What costs most: {most}."
        raise QueryTooCostly(detail, parameter=parts[0].parameter)


def _includes(node: Node, rows: int, path: tuple[str, ...]) -> Iterator[CostPart]:
    """Yield the cost of each included relationship: the resources that it may show, by the size of the page."""
    for branch in node.branches:
        if branch.is_included:
            own, related = (*path, branch.relationship.name), rows * _many(branch)
            yield CostPart(f"include={'.'.join(own)}", "include", max(rows, related))
            yield from _includes(branch.node, max(rows, related), own)


def _many(branch: Branch) -> int:
    if not branch.relationship.is_to_many:
        return 1
    return MANY if branch.size is None else branch.size


def _filters(parameter: str, nodes: Iterable[FilterNode]) -> Iterator[CostPart]:
    count, steps = _counted(nodes)
    if count:
        yield CostPart(parameter, parameter, NODE_COST * count + STEP_COST * steps)


def _counted(nodes: Iterable[FilterNode]) -> tuple[int, int]:
    """Return how many filter objects and groups there are, and over how many relationships they go."""
    count = steps = 0
    for node in nodes:
        count += 1
        if isinstance(node, FieldFilter):
            steps += node.name.count(".") + (node.field or "").count(".")
            continue
        if isinstance(node, RelationFilter | CountFilter):
            steps += 1 + node.name.count(".")
        inner_count, inner_steps = _counted(node.items)
        count, steps = count + inner_count, steps + inner_steps
    return count, steps
