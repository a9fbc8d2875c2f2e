"""Compares ids and keys with the columns of the live tables. What comes in: declarations and the tables of
`live_tables.py`. What goes out: a message for each that does not match.

It must not know: requests, how the tables were read.
"""

from __future__ import annotations

from collections.abc import Iterator

from querybuild.declarations.database_types.texts import CITEXT
from querybuild.declarations.resource import Resource, ToOne, own_key_of
from querybuild.declarations.types import ColumnType
from querybuild.errors import listed, nearest, quoted
from server.schema.live_tables import Columns, Table


def type_faults(names: tuple[str, ...], table_name: str, table: Table, referenced: Resource) -> Iterator[str]:
    """Return the faults of a key. referenced: the resource whose ids are in the columns."""
    for name, part_type in zip(names, referenced.id.key.types, strict=True):
        yield from _key_column_faults(name, table_name, table, part_type)


def reference_faults(
    names: tuple[str, ...], table: Table, referenced: Table | None, referenced_names: tuple[str, ...]
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
        if column is not None and unique is not None and column.type != unique.type:
            refers = f"it refers to {quoted(other)}, which is {unique.type}"
            yield f"its column {quoted(name)} is {column.type}, and {refers}"
    if referenced.may_repeat(*referenced_names):
        yield f"the table {quoted(referenced.name)} has no unique index on {listed(referenced_names)}"


def _key_column_faults(name: str, table_name: str, table: Table, id_type: ColumnType) -> Iterator[str]:
    column = table.columns.get(name)
    if column is None:
        yield from missing(name, table_name, table.columns)
    elif column.type not in id_type.sql_names:
        yield f"its column {quoted(name)} is {column.type}, and the id it holds is {id_type.sql_names[0]}"
    elif column.type == "citext" and id_type is not CITEXT:
        # It would match ids that differ in case.
        yield f"its column {quoted(name)} is citext, and the id it holds is not: make both of one type, text"


def id_faults(resource: Resource, table: Table) -> Iterator[str]:
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


def _id_column_faults(resource: Resource, table: Table, name: str, part_type: ColumnType) -> Iterator[str]:
    column = table.columns.get(name)
    if column is None:
        yield from missing(name, resource.table, table.columns)
    elif column.type not in part_type.sql_names:
        what = f"the part {quoted(name)} of the id" if resource.id.key.is_composite else "the id"
        yield f"{what} is declared as {part_type.name}, and its column is {column.type}"
    elif column.type == "citext" and part_type is not CITEXT:
        # An id must have one spelling, because it is part of a URL.
        yield "its column is citext, and two texts that differ cannot be one id: declare it as CITEXT"
    elif resource.id.unique or table.may_repeat(*resource.id.key.columns):
        return
    elif table.unique is not None and not column.is_not_null and table.kind != "m":
        yield f"its column {quoted(name)} may be null, and an id is not: make it NOT NULL"


def nullability_faults(relationship: ToOne, columns: Columns) -> Iterator[str]:
    """Return the fault of a to-one that is not nullable as its columns are."""
    found = [columns[name] for name in relationship.own_columns if name in columns]
    are_not_null = all(column.is_not_null for column in found)
    if len(found) == len(relationship.own_columns) and relationship.nullable == are_not_null:
        declared, live = ("nullable", "NOT NULL") if relationship.nullable else ("not nullable", "nullable")
        what = "its column is" if len(found) == 1 else "its columns are" if are_not_null else "a column of it is"
        yield f"it is declared {declared}, and {what} {live}"


def columns_of_others(resource: Resource) -> set[str]:
    """Return the columns of an id with several columns that a create may set otherwise than by an attribute."""
    id_columns = set(resource.id.key.columns) if resource.id.key.is_composite else set[str]()
    keys = [own.own_columns for own in map(own_key_of, resource.relationships) if own is not None]
    return id_columns if resource.client_ids else {name for columns in keys for name in columns} & id_columns


def missing(column: str, table: str, columns: Columns) -> Iterator[str]:
    """Return the fault of a column that does not exist."""
    if column not in columns:
        yield f"the table {quoted(table)} has no column {quoted(column)}.{nearest(column, columns)}"
