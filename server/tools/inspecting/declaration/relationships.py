"""Declares relationships, and names them after their keys.

What comes in: References and link tables of one resource. What goes out: ToOne and ToMany with what differs from the
defaults. It must not know: columns that are no keys, files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from querybuild.declarations.resource import RELATIONSHIP_METHODS, Link, Relationship, ToMany, ToOne
from querybuild.errors import listed, quoted
from server.tools.inspecting.catalog.model import DELETE, INSERT, VIEWS, InspectedColumn, InspectedTable
from server.tools.inspecting.declaration.attributes import must_be_sent
from server.tools.inspecting.declaration.names_taken import Names
from server.tools.inspecting.declaration.naming import plural, snake_case
from server.tools.inspecting.declaration.references import Ends, InspectedReference, Served

READ_ONLY = frozenset({"read"})

MAX_REVERSE = 40
"""How long the name of the relationship at the other side of a key may be."""


Methods = Mapping[int, frozenset[str]]
"""The methods of each resource, by the oid of its table."""


def stem_of(reference: InspectedReference) -> str:
    """Return the name of a key without what it refers to: `customer` for `customer_id`. A key of several columns has
    the name of the only one that is called otherwise than what it refers to, or else of its target."""
    pairs = list(zip(reference.columns, reference.references, strict=True))
    if len(pairs) > 1:
        pairs = [pair for pair in pairs if pair[0] != pair[1]]
        if len(pairs) != 1:
            return reference.target.type
    name, referred = [snake_case(column) for column in pairs[0]]
    words, last = name.split("_"), referred.split("_")[-1]
    if len(words) > 1 and words[-1] in (last, "id", "fk", "uuid"):
        return "_".join(words[:-1])
    # Without separators: `shiptoaddressid` to `addressid` of the type `address`.
    flat = reference.target.type.replace("_", "")
    for end in (f"{flat}id", f"{flat}_id"):
        if name.endswith(end):
            start = name.removesuffix(end).strip("_")
            return f"{start}_{reference.target.type}" if start else reference.target.type
    if name.endswith("id") and len(name) > 4 and (last == "id" or (referred.endswith("id") and "_" not in name)):
        return name.removesuffix("id").strip("_")
    return name


def to_one(reference: InspectedReference, own: Served, names: Names, methods: Methods) -> ToOne:
    """Return the relationship of a key in the resource's own row."""
    stem, target = stem_of(reference), reference.target
    column = reference.columns[0] if len(reference.columns) == 1 else ""
    candidates = (stem, target.type, f"{own.type}_{stem}", snake_case(column or stem))
    name = names.take(f"the relationship over {listed(map(quoted, reference.columns))}", candidates, column=column)
    columns = [reference.source.column(name) for name in reference.columns]
    arguments: dict[str, Any] = {}
    if not column:
        arguments["columns"] = reference.columns
    elif column != f"{name}_id":
        arguments["column"] = column
    if not reference.is_to_id:
        arguments["references"] = _names(reference.references)
    if all(own_column.is_not_null for own_column in columns):
        arguments["nullable"] = False
    open_methods = methods[own.table.oid]
    can_create, can_update = _ways(columns, own)
    if reference.is_part_of_id(own.identity) or ("create" in open_methods and not can_create):
        arguments["methods"] = READ_ONLY
    elif "update" in open_methods and not can_update:
        arguments |= {"updatable": False} if "create" in open_methods else {"methods": READ_ONLY}
    if "create" in open_methods and "nullable" in arguments:
        if "methods" in arguments:
            arguments["required"] = False
        elif not any(must_be_sent(own.table, own_column) for own_column in columns):
            is_trigger = not any(own_column.has_default or own_column.has_default_below for own_column in columns)
            arguments |= {"filled": True} if is_trigger else {"required": False}
    if column and columns[0].comment:
        arguments["description"] = columns[0].comment
    return ToOne(name, target.type, **arguments)


def _ways(columns: Iterable[InspectedColumn], own: Served) -> tuple[bool, bool]:
    """Return whether a create, and whether an update, may write the columns of a key. The id is not written, but the
    parts of one are, by a create."""
    is_free = not any(column.is_fixed for column in columns)
    has_id = any(column.name in own.identity.columns for column in columns)
    can_create = is_free and (own.identity.is_composite or not has_id) and all(column.may_insert for column in columns)
    return can_create, is_free and (has_id or all(column.may_update for column in columns))


def reverse(
    reference: InspectedReference,
    source: Served,
    own_names: tuple[str, str],
    is_only: bool,
    names: Names,
    methods: Methods,
) -> Relationship:
    """Return the relationship at the other side of a key. own_names: the name of the relationship at its own side, and
    that without hints. is_only: whether no other key of that table refers to this one."""
    target = reference.target
    place = f"the relationship from {source.table.full_name} ({', '.join(reference.columns)})"
    candidates, unhinted = [_reverse_names(reference, source, own_name, is_only) for own_name in own_names]
    name = names.take(place, candidates, unhinted=unhinted)
    arguments: dict[str, Any] = {"foreign_key": _names(reference.columns)}
    if not reference.is_to_id:
        arguments["references"] = _names(reference.references)
    columns = [source.table.column(name) for name in reference.columns]
    may_lock = target.table.may_lock and source.table.may_lock
    is_closed = not may_lock or any(
        column.is_fixed or not column.may_update or column.name in source.identity.columns for column in columns
    )
    is_stated = _is_changed(target, methods) or _is_denied(target.table)
    if reference.is_part_of_id(source.identity):
        arguments["methods"] = READ_ONLY
    elif is_closed and is_stated and "update" in methods[source.table.oid]:
        # A new resource can be created below its owner, with its id.
        is_added = source.identity.is_composite and not reference.is_unique and "create" in methods[source.table.oid]
        can_add = is_added and target.table.may_lock and all(column.may_insert for column in columns)
        arguments["methods"] = frozenset({"read", "add"}) if can_add else READ_ONLY
    make = ToOne if reference.is_unique else ToMany
    return make(name, source.type, **arguments)


def _reverse_names(reference: InspectedReference, source: Served, to_one_name: str, is_only: bool) -> tuple[str, ...]:
    target = reference.target
    what = source.type if reference.is_unique else plural(source.type)
    # The whole name is unique if the short one is not.
    by = (_short(what, to_one_name), f"{what}_by_{to_one_name}")
    if source.table.oid == target.table.oid:
        return ("children", *by) if to_one_name == "parent" and not reference.is_unique else by
    return (what, *by) if is_only or to_one_name == target.type else by


def _short(what: str, to_one_name: str) -> str:
    """Return `orders_by_customer`. A long name loses words in the middle of what it is by, and then first words of its
    own."""
    words = to_one_name.split("_")
    while len(f"{what}_by_{'_'.join(words)}") > MAX_REVERSE and len(words) > 2:
        del words[1]
    by = "_".join(words)
    while len(f"{what}_by_{by}") > MAX_REVERSE and "_" in what:
        what = what.partition("_")[2]
    return f"{what}_by_{by}"


def through(ends: Ends, own: InspectedReference, other: InspectedReference, names: Names, methods: Methods) -> ToMany:
    """Return the many-to-many relationship of a link table, from one of its ends."""
    many = plural(other.target.type)
    link_name = plural(snake_case(ends.table.name))
    if own.target.table.oid == other.target.table.oid:
        candidates: tuple[str, ...] = (f"{stem_of(other)}_{many}", f"{many}_by_{stem_of(own)}")
    else:
        candidates = (many, link_name, f"{many}_through_{link_name}")
    name = names.take(f"the relationship through {ends.table.full_name}", candidates)
    schema = None if ends.table.is_default else ends.table.schema
    link = Link(ends.table.name, _names(own.columns), _names(other.columns), schema=schema)
    arguments: dict[str, Any] = {"through": link}
    open_methods = _link_methods(ends)
    is_stated = _is_changed(own.target, methods) or any(
        _is_denied(reference.target.table) for reference in (own, other)
    )
    if is_stated and open_methods < RELATIONSHIP_METHODS:
        arguments["methods"] = open_methods
    return ToMany(name, other.target.type, **arguments)


def _is_changed(served: Served, methods: Methods) -> bool:
    """Return whether requests create or update a resource. If not, its relationships need no methods of their own."""
    return bool(methods[served.table.oid] & {"create", "update"})


def _is_denied(table: InspectedTable) -> bool:
    """Return whether a missing privilege keeps links of the rows of a table from being written. Rows of views are not
    always locked."""
    return table.kind not in VIEWS and not table.may_lock


def _link_methods(ends: Ends) -> frozenset[str]:
    """Return what requests may do with links. The rows of a table with other columns that need a value are only created
    as its own resources, but any of them may be removed."""
    table, keys = ends.table, {*ends.one.columns, *ends.other.columns}
    if not (ends.one.target.table.may_lock and ends.other.target.table.may_lock):
        return READ_ONLY
    can_remove = bool(table.allowed_writes & DELETE) and table.may_delete
    can_add = (
        bool(table.allowed_writes & INSERT)
        and all(column.may_insert and not column.is_fixed for column in table.columns if column.name in keys)
        and not any(must_be_sent(table, column) for column in table.columns if column.name not in keys)
        and not any(column.denied_sequences for column in table.columns)
    )
    if can_add and can_remove:
        return RELATIONSHIP_METHODS
    return READ_ONLY | ({"add"} if can_add else set()) | ({"remove"} if can_remove else set())


def _names(columns: tuple[str, ...]) -> Any:
    """Return one name as a text, several as a tuple."""
    return columns[0] if len(columns) == 1 else columns
