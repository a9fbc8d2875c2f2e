"""Plans streamed documents: a `ReadPlan` of a list without pages becomes a `StreamPlan`, a list of reads.

The first read is the primary data. Each further one reads the included resources of one type: the rows at the end of an
include path, each once, without those of the primary data. PostgreSQL finds them by conditions that follow the path
back to the primary rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from querybuild.declarations.catalog import Catalog
from querybuild.declarations.resource import Resource
from querybuild.planning.plan import Branch, Node, ReadPlan, node_of
from querybuild.planning.reads.fetching import linkage_fetch
from querybuild.planning.row_plan import AmongFirst, ColumnRef, Condition, Exists, InScope, Logic, OrderKey, Rows
from querybuild.planning.rowsets import (
    attached_rows,
    leading_rows,
    rows_with_alias,
    with_alias,
    with_conditions,
    without_conditions,
)
from querybuild.shortcuts import Knows

INCLUDED = "i0"
"""The alias of included rows. The rows on the way back to the primary rows are i1, i2, ..."""

READ = Knows(
    ReadPlan,
    used=(
        *("node", "data", "included", "total", "scope", "has_cursors", "has_far_offset", "usual_limit"),
        *("counted_by", "first_rows", "columns"),
    ),
)
PRIMARY = Knows(
    Rows,
    used=("resource", "alias", "criteria", "conditions", "joins", "order", "limit", "offset", "keyset"),
)
NODE = Knows(
    Node,
    used=("rows", "read", "attributes", "computed", "relationships", "keys", "branches", "targets", "version"),
)
BRANCH = Knows(Branch, used=("relationship", "node", "is_included", "fetch", "choice"))
RELATED = Knows(
    Rows, used=("resource", "alias", "parent", "pair", "through", "criteria", "conditions", "joins", "order")
)
"""What a stream knows of a read, and of each of its parts."""


class StreamPart(msgspec.Struct, frozen=True):
    """Resources of one type that are together in the document. read: reads their rows; its branches only have linkage.
    linked: for each branch, the resources that show its linkage. None if all of them do."""

    read: ReadPlan
    linked: tuple[Rows | None, ...]


class StreamPlan(msgspec.Struct, frozen=True):
    """A streamed document. included: by type."""

    data: StreamPart
    included: tuple[StreamPart, ...]


Path = tuple[Branch, ...]
"""The branch at each step from the primary rows to some included ones."""

Occurrence = tuple[Node, Path]
"""A node of the read plan, and the include path to it."""


def can_be_streamed(plan: ReadPlan) -> bool:
    """Return whether a stream knows all that a read asks for."""
    return READ.takes(plan) and PRIMARY.takes(plan.rows) and _takes(plan.node)


def _takes(node: Node) -> bool:
    return NODE.takes(node) and all(
        BRANCH.takes(branch) and RELATED.takes(branch.node.rows) and _takes(branch.node) for branch in node.branches
    )


def plan_stream(plan: ReadPlan, catalog: Catalog) -> StreamPlan:
    """Plan the stream of a list whose page has no size."""
    occurrences: dict[Resource, list[Occurrence]] = {}
    for occurrence in _occurrences(plan.node):
        occurrences.setdefault(occurrence[0].resource, []).append(occurrence)
    included = []
    for resource in sorted(occurrences, key=lambda resource: resource.type):
        led_to = [(node, path) for node, path in occurrences[resource] if path or plan.includes_primary]
        if led_to and not _is_all_primary(plan, resource):
            included.append(_included(plan, led_to, catalog))
    return StreamPlan(_data(plan, occurrences[plan.node.resource]), tuple(included))


def _occurrences(node: Node, path: Path = ()) -> Iterator[Occurrence]:
    """Return the node of the primary resources, and the node at the end of each include path."""
    yield node, path
    for branch in node.branches:
        if branch.is_included:
            yield from _occurrences(branch.node, (*path, branch))


def _is_all_primary(plan: ReadPlan, resource: Resource) -> bool:
    """Return whether the primary data has every resource of that type, so that none is included."""
    is_whole = not plan.rows.conditions and plan.scope is None and not plan.is_linkage
    return is_whole and resource is plan.node.resource


def _data(plan: ReadPlan, occurrences: Sequence[Occurrence]) -> StreamPart:
    rows = msgspec.structs.replace(plan.rows, limit=None)
    node = node_of(rows) if plan.is_linkage else _with_linkage(occurrences, rows)
    # All primary resources are of the first occurrence, so they all show the linkage of its branches.
    linked = tuple(
        [None if _shows(plan.node, branch) else _linked(plan, branch, occurrences) for branch in node.branches]
    )
    return StreamPart(msgspec.structs.replace(plan, node=node, first_rows=None), linked)


def _included(plan: ReadPlan, occurrences: Sequence[Occurrence], catalog: Catalog) -> StreamPart:
    resource = occurrences[0][0].resource
    conditions = [_any([_reached(plan, path, INCLUDED) for _, path in occurrences])]
    if resource is plan.node.resource and not plan.is_linkage:
        conditions.append(Logic("not", (_is_primary(plan, INCLUDED),)))
    rows = with_conditions(_included_rows(occurrences), tuple(conditions))
    columns = [ColumnRef(INCLUDED, attribute) for attribute in catalog.order_of(resource)]
    order = tuple([OrderKey(column, is_descending=False, is_nullable=False) for column in columns])
    node = _with_linkage(occurrences, msgspec.structs.replace(rows, order=order))
    linked = tuple([_linked(plan, branch, occurrences) for branch in node.branches])
    return StreamPart(ReadPlan(node=node, data="collection"), linked)


def _with_linkage(occurrences: Sequence[Occurrence], rows: Rows) -> Node:
    """Return the node of rows that may have several occurrences. It has the linkage of all these."""
    nodes = [node for node, _ in occurrences]
    first = nodes[0]
    branches = {
        branch.relationship: msgspec.structs.replace(
            branch,
            node=node_of(branch.node.rows),
            is_included=False,
            fetch=linkage_fetch(branch.relationship) if branch.choice is None else branch.fetch,
        )
        for node in nodes
        for branch in node.branches
        if branch.relationship in first.relationships
    }
    keys = {key: target for node in nodes for key, target in node.keys_and_targets}
    shown = first.attributes, first.relationships
    targets = tuple([None if key is None else attached_rows(key, rows.alias, key.pair) for key in keys.values()])
    return node_of(rows, *shown, tuple(keys), tuple(branches.values()), targets, first.version)


def _linked(plan: ReadPlan, branch: Branch, occurrences: Sequence[Occurrence]) -> Rows | None:
    """Return the resources that show the linkage of a branch, because an occurrence of them has this branch. None if
    all of them show it."""
    showing = [path for node, path in occurrences if _shows(node, branch)]
    if len(showing) == len(occurrences):
        return None
    return with_conditions(_included_rows(occurrences), (_any([_reached(plan, path, INCLUDED) for path in showing]),))


def _included_rows(occurrences: Sequence[Occurrence]) -> Rows:
    """Return the rows of the type with these occurrences. Each has conditions of its own: see `_reached`."""
    return rows_with_alias(without_conditions(occurrences[0][0].rows), INCLUDED)


def _shows(node: Node, branch: Branch) -> bool:
    return any(shown.relationship is branch.relationship for shown in node.branches)


def _any(conditions: list[Condition]) -> Condition:
    return conditions[0] if len(conditions) == 1 else Logic("or", tuple(conditions))


def _reached(plan: ReadPlan, path: Path, alias: str) -> Condition:
    """Return the condition that a path leads from a primary row to the row `alias`."""
    if not path:
        return _is_primary(plan, alias)
    *before, branch = path
    rows, parents = branch.node.rows, _primary(plan)
    if before:
        source = f"i{len(before)}"
        parents = rows_with_alias(without_conditions(before[-1].node.rows), source)
        parents = with_conditions(parents, (_reached(plan, tuple(before), source),))
    if branch.size is not None:
        first = msgspec.structs.replace(rows, parent=parents.alias)
        return AmongFirst(alias, attached_rows(parents, "", None), first, branch.size)
    own = with_alias(rows.conditions, rows.alias, alias)
    reached = Exists(leading_rows(parents, rows, alias, parents.alias))
    return Logic("and", (reached, *own)) if own else reached


def _is_primary(plan: ReadPlan, alias: str) -> Condition:
    key = plan.node.resource.id.key
    return Exists(attached_rows(_primary(plan), alias, (key, key)))


def _primary(plan: ReadPlan) -> Rows:
    """Return the primary rows, without an order."""
    scope = () if plan.scope is None else (InScope(plan.scope),)
    return with_conditions(plan.rows, scope)
