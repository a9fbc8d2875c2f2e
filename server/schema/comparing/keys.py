"""Compares ids and keys with the columns of the live tables. What comes in: declarations and the tables of
`live_tables.py`. What goes out: a message for each that does not match.

It must not know: requests, how the tables were read.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence

import msgspec

from querybuild.declarations.database_types.texts import CITEXT
from querybuild.declarations.resource import Relationship, Resource, ToOne, link_of, own_key_of
from querybuild.declarations.terms import quote_ident
from querybuild.declarations.types import BIGINT, INT, SMALLINT, ColumnType
from querybuild.errors import listed, nearest, quoted
from server.schema.live_tables import Columns, FoundTables, LiveColumn, LiveTable

_INTEGERS: dict[str, ColumnType] = {"int2": SMALLINT, "int4": INT, "int8": BIGINT}
"""Of these, an index of one finds the values of another."""


def type_faults(names: tuple[str, ...], table_name: str, table: LiveTable, referenced: Resource) -> Iterator[str]:
    """Return the faults of a key. referenced: the resource whose ids are in the columns."""
    for name, part_type in zip(names, referenced.id.key.types, strict=True):
        yield from _key_column_faults(name, table_name, table, part_type)


def reference_faults(
    names: tuple[str, ...], table: LiveTable, referenced: LiveTable | None, referenced_names: tuple[str, ...]
) -> Iterator[str]:
    """Return the faults of a key that refers to other columns than the id. referenced: the table of these."""
    if referenced is None:
        return
    for name, other in zip(names, referenced_names, strict=True):
        column, unique = table.columns.get(name), referenced.columns.get(other)
        if column is None:
            yield from missing(name, table.name, table.columns)
        if unique is None:
            yield from missing(other, referenced.name, referenced.columns)
        if column is not None and unique is not None and not is_alike(column.type, unique.type):
            refers = f"it refers to {quoted(other)}, which is {unique.type}"
            yield f"its column {quoted(name)} is {column.type}, and {refers}"
        if column is not None:
            yield from _collation_faults(name, column)
    if referenced.may_repeat(*referenced_names):
        yield f"the table {quoted(referenced.name)} has no unique index on {listed(referenced_names)}"


def is_alike(column: str, other: str) -> bool:
    """Return whether columns of two types of PostgreSQL can be compared with an index."""
    return column == other or {column, other} <= _INTEGERS.keys()


def _are_integers(column: str, id_type: ColumnType) -> bool:
    return {column, *id_type.sql_names} <= _INTEGERS.keys()


def with_key_types(resources: Sequence[Resource], tables: FoundTables) -> list[Resource]:
    """Return the resources with the types of the columns that are other integers than the ids to which they refer.
    tables: the tables of all resources."""
    by_type = {resource.type: resource for resource in resources}
    changed: list[Resource] = []
    for resource in resources:
        relationships = [
            _with_types(relationship, resource, by_type[relationship.target], tables)
            for relationship in resource.relationships
        ]
        changed.append(with_relationships(resource, relationships))
    return changed


def with_relationships(resource: Resource, relationships: Sequence[Relationship]) -> Resource:
    """Return the resource with these relationships. It is the same object if all of them are the same."""
    is_same = all(map(operator.is_, relationships, resource.relationships))
    return resource if is_same else msgspec.structs.replace(resource, relationships=tuple(relationships))


def _with_types(relationship: Relationship, resource: Resource, target: Resource, tables: FoundTables) -> Relationship:
    link, own = link_of(relationship), own_key_of(relationship)
    if relationship.references:
        # Its columns are only compared with other columns.
        return relationship
    if link is not None:
        table = tables[link.schema, link.table]
        source_types = _other_types(link.source_columns, table, resource)
        target_types = _other_types(link.target_columns, table, target)
        if not source_types and not target_types:
            return relationship
        through = msgspec.structs.replace(link, source_types=source_types, target_types=target_types)
        return msgspec.structs.replace(relationship, through=through)
    if own is not None:
        types = _other_types(own.own_columns, tables[resource.schema, resource.table], target)
    else:
        types = _other_types(relationship.foreign_columns, tables[target.schema, target.table], resource)
    return msgspec.structs.replace(relationship, key_types=types) if types else relationship


def _other_types(names: tuple[str, ...], table: LiveTable | None, referenced: Resource) -> tuple[ColumnType, ...]:
    """Return the types of columns that refer to a resource. Empty if they are those of its id."""
    id_types = referenced.id.key.types
    if table is None:
        return ()
    stored = [table.columns[name].type for name in names]
    types = [
        _INTEGERS[column_type] if _are_integers(column_type, of) else of
        for column_type, of in zip(stored, id_types, strict=True)
    ]
    return () if all(map(operator.is_, types, id_types)) else tuple(types)


def _key_column_faults(name: str, table_name: str, table: LiveTable, id_type: ColumnType) -> Iterator[str]:
    column = table.columns.get(name)
    if column is None:
        yield from missing(name, table_name, table.columns)
    elif column.type not in id_type.sql_names and not _are_integers(column.type, id_type):
        yield f"its column {quoted(name)} is {column.type}, and the id it holds is {id_type.sql_names[0]}"
    elif column.type == "citext" and id_type is not CITEXT:
        # It would match ids that differ in case.
        yield f"its column {quoted(name)} is citext, and the id it holds is not: make both of one type, text"
    else:
        yield from _collation_faults(name, column)


def _collation_faults(name: str, column: LiveColumn) -> Iterator[str]:
    """Return the fault of a key column in which texts that differ can be equal: one row would have several URLs."""
    if column.has_nondeterministic_collation:
        what = f"its column {quoted(name)} has a collation that is not deterministic, so texts that differ can be equal"
        yield f'{what}: ALTER COLUMN {quote_ident(name)} TYPE text COLLATE "default"'


def id_faults(resource: Resource, table: LiveTable) -> Iterator[str]:
    """Return the faults of the columns of an id."""
    key = resource.id.key
    faults = [
        fault
        for name, part_type in zip(key.columns, key.types, strict=True)
        for fault in _id_column_faults(resource, table, name, part_type)
    ]
    yield from faults
    if not faults and not resource.id.unique and table.may_repeat(*key.columns):
        yield f"the table {quoted(resource.table)} has no unique index on {listed(key.columns)}"


def _id_column_faults(resource: Resource, table: LiveTable, name: str, part_type: ColumnType) -> Iterator[str]:
    column = table.columns.get(name)
    if column is None:
        yield from missing(name, resource.table, table.columns)
    elif column.type not in part_type.sql_names:
        what = f"the part {quoted(name)} of the id" if resource.id.key.is_composite else "the id"
        yield f"{what} is declared as {part_type.name}, and its column is {column.type}"
    elif column.type == "citext" and part_type is not CITEXT:
        # An id must have one spelling, because it is part of a URL.
        yield "its column is citext, and two texts that differ cannot be one id: declare it as CITEXT"
    elif column.hidden_schema and part_type.comparison.is_of_extension:
        yield hidden_type(f"the type {column.type} of its column {quoted(name)}", column.hidden_schema)
    elif column.type == "enum" and column.is_domain:
        yield f"its column {quoted(name)} is a domain over an enum, which PostgreSQL cannot compare: make it the enum"
    elif column.has_nondeterministic_collation:
        yield from _collation_faults(name, column)
    elif resource.id.unique or table.may_repeat(*resource.id.key.columns):
        return
    elif table.unique is not None and not column.is_not_null and table.kind != "m":
        yield f"its column {quoted(name)} may be null, and an id is not: make it NOT NULL"


def nullability_faults(relationship: ToOne, columns: Columns) -> Iterator[str]:
    """Return the fault of a to-one that is not nullable as its columns are."""
    live_columns = [columns[name] for name in relationship.own_columns if name in columns]
    are_not_null = all(column.is_not_null for column in live_columns)
    are_shown = any(column.shows_not_null for column in live_columns)
    is_known = len(live_columns) == len(relationship.own_columns) and not are_shown
    if is_known and relationship.nullable == are_not_null:
        declared, live = ("nullable", "NOT NULL") if relationship.nullable else ("not nullable", "nullable")
        what = "its column is" if len(live_columns) == 1 else "its columns are" if are_not_null else "a column of it is"
        yield f"it is declared {declared}, and {what} {live}"


def columns_of_others(resource: Resource) -> set[str]:
    """Return the columns of an id with several columns that a create may set otherwise than by an attribute."""
    id_columns = set(resource.id.key.columns) if resource.id.key.is_composite else set[str]()
    keys = [own.own_columns for own in map(own_key_of, resource.relationships) if own is not None]
    return id_columns if resource.client_ids else {name for columns in keys for name in columns} & id_columns


def hidden_type(what: str, schema: str) -> str:
    """Return the message about a type whose operators statements cannot name. what: the type, in words."""
    return (
        f"{what} is in the schema {quoted(schema)}, which is not in the search path: PostgreSQL would not find the "
        "operators of the type. Add the schema to the role's search_path"
    )


def missing(column: str, table: str, columns: Columns) -> Iterator[str]:
    """Return the fault of a column that does not exist."""
    if column not in columns:
        yield f"the table {quoted(table)} has no column {quoted(column)}.{nearest(column, columns)}"
