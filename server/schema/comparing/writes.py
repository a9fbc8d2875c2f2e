"""Checks that the live tables allow the writes of the declared methods, and that the role has the privileges. What
comes in: declarations and the tables of `live_tables.py`. What goes out: messages that say what is missing and what to
do.

It must not know: requests, how the tables were read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from querybuild.declarations.catalog import Everywhere
from querybuild.declarations.faults.relationship_faults import MAKE_READ_ONLY
from querybuild.declarations.resource import Attribute, Link, Relationship, Resource, ToOne, link_of, own_key_of
from querybuild.errors import listed, quoted
from server.schema.comparing.privileges import (
    EVENTS,
    is_written,
    key_privileges,
    link_privileges,
    lock_privileges,
    own_keys,
    write_privileges,
)
from server.schema.live_tables import DELETE, INSERT, RELATION_KINDS, FoundTables, LiveColumn, LiveTable

_VERBS = {"create": "inserts", "update": "updates", "delete": "deletes"}


def relationship_faults(
    resource: Resource,
    relationship: Relationship,
    target: Resource,
    tables: FoundTables,
    everywhere: Sequence[Everywhere],
) -> Iterator[str]:
    """Return what the methods of a relationship need, but its table or the role does not allow."""
    link = link_of(relationship)
    own, theirs = tables[resource.schema, resource.table], tables[target.schema, target.table]
    if link is not None:
        links = tables[link.schema, link.table]
        if links is not None:
            yield from _link_faults(resource, relationship, link, links, everywhere)
    elif isinstance(relationship, ToOne) and relationship.is_own_key:
        if own is not None:
            yield from _key_faults(resource, relationship, own, relationship.own_columns)
            if relationship.filled:
                yield from _filled_faults(resource, own, relationship.own_columns)
    elif theirs is not None:
        yield from _key_faults(target, relationship, theirs, relationship.foreign_columns)
        yield from key_privileges(resource, relationship, target, theirs)
    if own is not None and theirs is not None and own_key_of(relationship) is None:
        yield from lock_privileges(resource, relationship, target, own, theirs)


def table_faults(resource: Resource, table: LiveTable) -> Iterator[str]:
    """Return what the methods of a resource need, but its table or the role does not allow."""
    closed = [
        method for method, event in EVENTS.items() if method in resource.methods and not table.allowed_writes & event
    ]
    if closed:
        yield f"{_closed(table, [_VERBS[method] for method in closed])}: take {_code(closed)} out of its `methods`" + (
            ", or give it INSTEAD OF triggers" if table.kind == "v" else ""
        )
    silent = [
        method
        for method, event in EVENTS.items()
        if method in resource.methods and table.writes_without_returning & event
    ]
    if silent:
        verbs = " and ".join(_VERBS[method] for method in silent)
        relation = f"{RELATION_KINDS[table.kind]} {quoted(table.name)}"
        yield (
            f"the {relation} has rules DO INSTEAD for {verbs} that return nothing: give "
            f"them RETURNING, make them triggers, or take {_code(silent)} out of its `methods`"
        )
    if "create" in resource.methods and "create" not in closed:
        yield from _id_faults(resource, table)
    yield from write_privileges(resource, table)


def attribute_faults(resource: Resource, attribute: Attribute, table: LiveTable) -> Iterator[str]:
    """Return the faults of a stored attribute that no request could set, or that no trigger fills."""
    if attribute.filled:
        yield from _filled_faults(resource, table, (attribute.column_name,))
    column = table.columns.get(attribute.column_name)
    ways = _ways(resource, attribute.is_writable(on_create=True), attribute.is_writable(on_create=False))
    if column is not None and ways and (reason := _takes_no_value(column)):
        yield f"its column {reason}: declare {' and '.join(f'{way}=False' for way in ways)}"


def _filled_faults(resource: Resource, table: LiveTable, names: tuple[str, ...]) -> Iterator[str]:
    """Return the faults of columns that are declared to be filled by a trigger, if the table has none that could."""
    if table.kind != "r" or "create" not in resource.methods or table.has_before_insert_trigger:
        return
    for name in names:
        column = table.columns.get(name)
        if column is not None and column.is_not_null and not column.has_default:
            yield (
                f"it is declared as filled, and the table {quoted(table.name)} has no trigger that sees new rows "
                "before they are written"
            )


def _closed(table: LiveTable, verbs: list[str]) -> str:
    return f"the {RELATION_KINDS[table.kind]} {quoted(table.name)} takes no {' and no '.join(verbs)}"


def _code(names: Iterable[str]) -> str:
    return listed(f"`{name}`" for name in names)


def _id_faults(resource: Resource, table: LiveTable) -> Iterator[str]:
    for name in resource.id.key.columns:
        if name in table.columns:
            yield from _id_column_faults(resource, table, name, table.columns[name])


def _id_column_faults(resource: Resource, table: LiveTable, name: str, column: LiveColumn) -> Iterator[str]:
    if resource.client_ids and column.is_generated:
        yield (
            f"clients may choose its id, and the column {quoted(name)} is GENERATED ALWAYS: make it GENERATED BY "
            "DEFAULT, or declare client_ids=False"
        )
    is_chosen = resource.client_ids or any(
        attribute.is_stored and attribute.column_name == name for attribute in resource.attributes
    )
    is_chosen = is_chosen or any(name in own.own_columns for own in own_keys(resource) if "replace" in own.methods)
    # A trigger or custom code may set it. A view may get the default of its table.
    is_filled = table.has_before_insert_trigger or resource.hooks.before_create is not None or table.kind not in "rp"
    if not (column.has_default or is_chosen or is_filled):
        yield (
            f"nothing sets the id of a new resource: give the column {quoted(name)} a default, such as GENERATED BY "
            "DEFAULT AS IDENTITY, declare client_ids=True, or take `create` out of its `methods`"
        )


def _ways(resource: Resource, on_create: bool, on_update: bool) -> list[str]:
    """Return the flags that make an attribute writable."""
    ways = {"creatable": on_create and "create" in resource.methods}
    ways["updatable"] = on_update and "update" in resource.methods
    return [way for way, is_open in ways.items() if is_open]


def _takes_no_value(column: LiveColumn) -> str:
    if column.is_generated:
        return "is GENERATED ALWAYS and takes no value"
    return "is computed by the view and takes no value" if column.is_computed else ""


def _key_faults(
    resource: Resource, relationship: Relationship, table: LiveTable, names: tuple[str, ...]
) -> Iterator[str]:
    """Return the faults of a relationship whose key is in the table: the resource's own, or its target's."""
    for name in names if is_written(resource, relationship) else ():
        column = table.columns.get(name)
        if column is not None and (reason := _takes_no_value(column)):
            yield f"its column {quoted(name)} {reason}: {MAKE_READ_ONLY}"


def _link_faults(
    resource: Resource, relationship: Relationship, link: Link, links: LiveTable, everywhere: Sequence[Everywhere]
) -> Iterator[str]:
    """Return the faults of a relationship with a link table."""
    if not is_written(resource, relationship):
        return
    needed = _link_events(relationship)
    closed = [verb for event, verb in needed.items() if not links.allowed_writes & event]
    if closed:
        yield f"{_closed(links, closed)}: {MAKE_READ_ONLY}"
        return
    keys = {*link.source_columns, *link.target_columns}
    generated = [name for name in keys & links.columns.keys() if links.columns[name].is_generated]
    yield from (f"its column {quoted(name)} is GENERATED ALWAYS: {MAKE_READ_ONLY}" for name in sorted(generated))
    written = keys | {rule.attribute.column_name for rule in everywhere}
    must = [
        name for name, live_column in links.columns.items() if live_column.is_not_null and not live_column.has_default
    ]
    must = [name for name in must if name not in written]
    if must and INSERT in needed and not links.has_before_insert_trigger and keys <= links.columns.keys():
        names = listed(map(quoted, must))
        yield (
            f"the table {quoted(links.name)} has columns besides the two keys that are NOT NULL without a default, "
            f"{names}: give them one, or declare a resource for the table, and here "
            'methods=frozenset({"read", "remove"})'
        )
    yield from link_privileges(links, keys, needed)


def _link_events(relationship: Relationship) -> dict[int, str]:
    events = {}
    if relationship.methods & {"add", "replace"}:
        events[INSERT] = "inserts"
    if relationship.methods & {"remove", "replace"}:
        events[DELETE] = "deletes"
    return events
