"""Makes the sets of rows that a request touches. What comes in: a resource, or a relationship of rows. What goes out:
Rows, with the criteria of the context.

Nothing else makes Rows for a request. Whoever hides rows from a request does it here, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import msgspec

from querybuild.catalog import Catalog
from querybuild.plan import ColumnRef, Condition, CustomTest, Exists, IdIs, InScope, LinkRows, Logic, Pair, Rows, Test
from querybuild.query import Context
from querybuild.resource import Relationship, Resource, link_of, own_key_of

ANY_ROW = "row"
"""The alias that the criteria of a context are planned with."""


def open_rows(
    resource: Resource,
    alias: str,
    context: Context,
    parent: str = "",
    pairs: tuple[Pair, ...] = (),
    through: LinkRows | None = None,
) -> Rows:
    """The rows of a resource that the context lets a request see."""
    criteria = context.criteria.by_type.get(resource.type, ())
    if criteria:
        criteria = moved(criteria, ANY_ROW, alias)
    return Rows(resource, alias, parent, pairs, through, criteria)


def open_written(resource: Resource, context: Context) -> Rows:
    """The rows of a resource that the context lets a request write, or refer to. Statements that write call a table by
    its own name."""
    return open_rows(resource, resource.table, context)


def hides(resource: Resource, context: Context) -> bool:
    """Whether the context may hide rows of the resource."""
    return resource.type in context.criteria.by_type


def open_related(
    relationship: Relationship,
    resource: Resource,
    parent: str,
    aliases: Sequence[str],
    catalog: Catalog,
    context: Context,
) -> Rows:
    """The rows at the other end of a relationship of the resource. parent: the alias of its rows. aliases: that of the
    related rows, and before it that of the link table, if there is one."""
    target, alias = catalog.target(relationship), aliases[-1]
    own, link = own_key_of(relationship), link_of(relationship)
    if link is not None:
        near, far = (resource.id.column, link.source), (link.target, target.id.column)
        return open_rows(target, alias, context, parent, through=LinkRows(link, aliases[0], (near,), (far,)))
    pair = (resource.id.column, relationship.foreign_key) if own is None else (own.column_name, target.id.column)
    return open_rows(target, alias, context, parent, (pair,))


def open_owners(
    relationship: Relationship, resource: Resource, alias: str, related: str, catalog: Catalog, context: Context
) -> Rows:
    """The rows of the resource that have a relationship, attached to its related rows. related: the alias of these."""
    target = open_related(relationship, resource, alias, [alias, related], catalog, context)
    return leading_rows(open_rows(resource, alias, context), target, related, alias)


def leading_rows(source: Rows, target: Rows, parent: str, alias: str) -> Rows:
    """The rows that a relationship leads from, attached to those that it leads to. target: as it is attached to the
    source. parent: the alias of the rows that it leads to. alias: of those that it leads from."""
    rows, through = moved_rows(source, alias), target.through
    if through is None:
        return attached_rows(rows, parent, _turned(target.pairs))
    links = LinkRows(through.link, f"l{alias}", _turned(through.far), _turned(through.near))
    return msgspec.structs.replace(rows, parent=parent, pairs=(), through=links)


def with_conditions(rows: Rows, conditions: tuple[Condition, ...]) -> Rows:
    """Those of the rows that meet these conditions, in no order."""
    return msgspec.structs.replace(rows, conditions=conditions, joins=(), order=(), limit=None, offset=None, place=None)


def _turned(pairs: tuple[Pair, ...]) -> tuple[Pair, ...]:
    return tuple([(far, near) for near, far in pairs])


def attached_rows(rows: Rows, parent: str, pairs: tuple[Pair, ...]) -> Rows:
    """The same rows, attached to other ones by equal columns."""
    return msgspec.structs.replace(rows, parent=parent, pairs=pairs, through=None)


def moved_rows(rows: Rows, alias: str) -> Rows:
    """The same rows under another alias."""
    return msgspec.structs.replace(rows, alias=alias, criteria=moved(rows.criteria, rows.alias, alias))


def moved(conditions: tuple[Condition, ...], alias: str, other: str) -> tuple[Condition, ...]:
    """The same conditions about the rows of another alias."""
    return tuple([_moved(condition, alias, other) for condition in conditions])


def _moved(condition: Condition, alias: str, other: str) -> Condition:
    match condition:
        case Test(left=left, right=right):
            there = None if right is None else _moved_column(right, alias, other)
            return msgspec.structs.replace(condition, left=_moved_column(left, alias, other), right=there)
        case CustomTest(left=left):
            return msgspec.structs.replace(condition, left=_moved_column(left, alias, other))
        case Logic(items=items):
            return msgspec.structs.replace(condition, items=moved(items, alias, other))
        case Exists(rows=rows):
            inner = moved(rows.conditions, alias, other)
            rows = msgspec.structs.replace(_attached_to(rows, alias, other), conditions=inner)
            return msgspec.structs.replace(condition, rows=rows)
        case InScope():
            return condition
        case IdIs():
            return msgspec.structs.replace(condition, alias=other) if condition.alias == alias else condition
        case _:
            assert_never(condition)


def _moved_column(column: ColumnRef, alias: str, other: str) -> ColumnRef:
    rows = None if column.rows is None else _attached_to(column.rows, alias, other)
    return ColumnRef(other if column.alias == alias else column.alias, column.attribute, rows)


def _attached_to(rows: Rows, alias: str, other: str) -> Rows:
    return msgspec.structs.replace(rows, parent=other) if rows.parent == alias else rows
