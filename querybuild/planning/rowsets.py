"""Creates the sets of rows that a request touches. What comes in: a resource, or rows and a relationship. What goes
out: Rows, with the criteria of the context.

No other module creates Rows for a request. So this is the only place where rows are hidden from a request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_never

import msgspec

from querybuild.declarations.catalog import Catalog
from querybuild.declarations.function import Returned
from querybuild.declarations.keys import referring
from querybuild.declarations.resource import (
    Link,
    Relationship,
    Resource,
    link_of,
    own_key_of,
    referenced_key,
    referring_key,
)
from querybuild.planning.context import NO_CRITERIA, Context
from querybuild.planning.row_plan import (
    AmongFirst,
    ColumnRef,
    Condition,
    CustomTest,
    Exists,
    Grouping,
    IdIs,
    InScope,
    LinkRows,
    Logic,
    Pair,
    Rows,
    Test,
)
from querybuild.query import ChangeKind

ANY_ROW = "row"
"""The alias in the criteria of a context. It is replaced by the alias of the rows."""

KEY = "the key's row"
"""The alias of the row that a key refers to, also in statements that write, where tables have no alias. No table has
such a name."""


def open_rows(
    resource: Resource,
    alias: str,
    context: Context,
    parent: str = "",
    pair: Pair | None = None,
    through: LinkRows | None = None,
) -> Rows:
    """Return the rows of a resource that the context allows a request to read."""
    criteria = context.access.read.get(resource.type, ())
    if criteria:
        criteria = with_alias(criteria, ANY_ROW, alias)
    return Rows(resource, alias, parent, pair, through, criteria)


def open_groups(resource: Resource, alias: str, grouping: Grouping) -> Rows:
    """Return groups of rows that the context allows a request to read. resource: made for their keys and numbers."""
    return Rows(resource, alias, grouping=grouping)


def open_links(link: Link, alias: str, context: Context) -> tuple[Condition, ...]:
    """Return what the rows of a link table meet for a request. Others do not exist for it."""
    return with_alias(context.access.of_links(link).criteria, ANY_ROW, alias)


def open_named(resource: Resource, context: Context) -> Rows:
    """Return the rows of a resource that a write may refer to. Statements that write have no aliases: the alias is the
    name of the table."""
    return open_rows(resource, resource.table, context)


def open_written(resource: Resource, context: Context, action: ChangeKind) -> Rows:
    """Return the rows of a resource that a request may write, with what the context demands of them for the action. A
    row that is created was not there before."""
    if action == "create":
        return Rows(resource, resource.table)
    return with_rights(open_named(resource, context), context, action)


def with_rights(rows: Rows, context: Context, action: ChangeKind) -> Rows:
    """Return the rows with what the context demands of those that are updated or deleted."""
    access = context.access
    rights = (access.update if action == "update" else access.delete).get(rows.resource.type, ())
    if rights:
        rows = msgspec.structs.replace(rows, rights=with_alias(rights, ANY_ROW, rows.alias))
    return rows


def open_checked(resource: Resource, context: Context, action: ChangeKind) -> Rows | None:
    """Return the rows of a resource that a written row must be one of after the action, as rights. Returns None if it
    may be any row."""
    access = context.access
    checks = access.check_create if action == "create" else access.check_update if action == "update" else NO_CRITERIA
    conditions = checks.get(resource.type, ())
    return (
        Rows(resource, resource.table, rights=with_alias(conditions, ANY_ROW, resource.table)) if conditions else None
    )


def without_rights(rows: Rows) -> Rows:
    """Return the rows as they are for a read."""
    return msgspec.structs.replace(rows, rights=()) if rows.rights else rows


def hides(resource: Resource, context: Context) -> bool:
    """Return whether the context may hide rows of the resource."""
    return resource.type in context.access.read


def may_lack(relationship: Relationship, catalog: Catalog, context: Context) -> bool:
    """Return whether a key may refer to a row that the context hides, or that is not there."""
    own = own_key_of(relationship)
    return (own is not None and own.may_dangle) or hides(catalog.target(relationship), context)


def open_related(
    relationship: Relationship,
    resource: Resource,
    parent: str,
    aliases: Sequence[str],
    catalog: Catalog,
    context: Context,
) -> Rows:
    """Return the related rows of rows of the resource. parent: the alias of these. aliases: that of the related rows,
    after that of the link table, if there is one."""
    target, alias = catalog.target(relationship), aliases[-1]
    own, link = own_key_of(relationship), link_of(relationship)
    if link is not None:
        near = resource.id.key, referring(link.source_columns, resource.id.key, link.source_types)
        far = referring(link.target_columns, target.id.key, link.target_types), target.id.key
        through = LinkRows(link, aliases[0], near, far, open_links(link, aliases[0], context))
        return open_rows(target, alias, context, parent, through=through)
    if own is None:
        theirs = referring_key(relationship, relationship.foreign_columns, resource)
        pair = referenced_key(relationship, resource), theirs
    else:
        pair = referring_key(own, own.own_columns, target), referenced_key(own, target)
    return open_rows(target, alias, context, parent, pair)


def open_key_rows(
    relationship: Relationship, resource: Resource, parent: str, catalog: Catalog, context: Context
) -> Rows | None:
    """Return the rows that a key of the resource's rows refers to, if some of them may be hidden or missing. The key of
    such a row is null. parent: the alias of the resource's rows."""
    if not may_lack(relationship, catalog, context):
        return None
    return open_related(relationship, resource, parent, [KEY], catalog, context)


def open_owners(
    relationship: Relationship, resource: Resource, alias: str, related: str, catalog: Catalog, context: Context
) -> Rows:
    """Return the rows of the resource, attached to the related rows of a relationship. related: the alias of these."""
    target = open_related(relationship, resource, alias, [alias, related], catalog, context)
    return leading_rows(open_rows(resource, alias, context), target, related, alias)


def leading_rows(source: Rows, target: Rows, parent: str, alias: str) -> Rows:
    """Return the source of a relationship, attached to its target. target: as it is attached to the source. parent: the
    alias of the target. alias: the new alias of the source."""
    rows, through = rows_with_alias(source, alias), target.through
    if through is None:
        assert target.pair is not None
        return attached_rows(rows, parent, _inverse(target.pair))
    links = msgspec.structs.replace(
        through,
        alias=f"l{alias}",
        near=_inverse(through.far),
        far=_inverse(through.near),
        criteria=with_alias(through.criteria, through.alias, f"l{alias}"),
    )
    return msgspec.structs.replace(rows, parent=parent, pair=None, through=links)


def with_conditions(rows: Rows, conditions: tuple[Condition, ...]) -> Rows:
    """Return those of the rows that also meet these conditions, without an order."""
    return _unordered(rows, conditions=(*rows.conditions, *conditions))


def without_conditions(rows: Rows) -> Rows:
    """Return the rows with their criteria, without what the request asks for."""
    return _unordered(rows, conditions=())


def _unordered(rows: Rows, **changes: Any) -> Rows:
    return msgspec.structs.replace(rows, joins=(), order=(), keyset=None, limit=None, offset=None, **changes)


def _inverse(pair: Pair) -> Pair:
    near, far = pair
    return far, near


def attached_rows(rows: Rows, parent: str, pair: Pair | None) -> Rows:
    """Return the rows, attached to other rows by a pair of equal keys."""
    return msgspec.structs.replace(rows, parent=parent, pair=pair, through=None)


def rows_with_alias(rows: Rows, alias: str) -> Rows:
    """Return the rows with another alias, as they are for a read, without an order."""
    criteria, conditions = [with_alias(some, rows.alias, alias) for some in (rows.criteria, rows.conditions)]
    return _unordered(rows, alias=alias, criteria=criteria, rights=(), conditions=conditions)


def with_alias(conditions: tuple[Condition, ...], alias: str, other: str) -> tuple[Condition, ...]:
    """Return the conditions with `other` in place of `alias`."""
    return tuple([_with_alias(condition, alias, other) for condition in conditions])


def _with_alias(condition: Condition, alias: str, other: str) -> Condition:
    match condition:
        case Test(left=left, right=right):
            new_right = None if right is None else _column_with_alias(right, alias, other)
            return msgspec.structs.replace(condition, left=_column_with_alias(left, alias, other), right=new_right)
        case CustomTest(left=left):
            return msgspec.structs.replace(condition, left=_column_with_alias(left, alias, other))
        case Logic(items=items):
            return msgspec.structs.replace(condition, items=with_alias(items, alias, other))
        case Exists(rows=rows):
            inner = with_alias(rows.conditions, alias, other)
            rows = msgspec.structs.replace(_attached_to(rows, alias, other), conditions=inner)
            return msgspec.structs.replace(condition, rows=rows)
        case InScope():
            return condition
        case AmongFirst() | IdIs() | Returned():
            return msgspec.structs.replace(condition, alias=other) if condition.alias == alias else condition
        case _:
            assert_never(condition)


def _column_with_alias(column: ColumnRef, alias: str, other: str) -> ColumnRef:
    rows = None if column.rows is None else _attached_to(column.rows, alias, other)
    own = other if column.alias == alias else column.alias
    return msgspec.structs.replace(column, alias=own, rows=rows)


def _attached_to(rows: Rows, alias: str, other: str) -> Rows:
    return msgspec.structs.replace(rows, parent=other) if rows.parent == alias else rows
