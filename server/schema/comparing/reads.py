"""Compares declarations with the columns, indexes and privileges that reads need. What comes in: declarations and the
tables of `live_tables.py`. What goes out: messages that say what does not match and what to do.

It must not know: requests, how the tables were read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from querybuild.declarations.catalog import Everywhere
from querybuild.declarations.database_types.names import declared_as
from querybuild.declarations.resource import Attribute, Relationship, Resource, ToOne, link_of, own_key_of
from querybuild.declarations.types import OPAQUE, ColumnType
from querybuild.errors import listed, quoted
from server.schema.comparing.keys import (
    columns_of_others,
    hidden_type,
    id_faults,
    missing,
    nullability_faults,
    reference_faults,
    type_faults,
)
from server.schema.comparing.privileges import read_privileges, type_privileges
from server.schema.live_tables import FoundTables, LiveColumn, LiveTable


def table_faults(resource: Resource, table: LiveTable) -> Iterator[str]:
    """Return the faults of the id of a resource, and what keeps the role from reading its table."""
    yield from id_faults(resource, table)
    yield from read_privileges(table, (*resource.id.key.columns, *_read_columns_of(resource)))
    for name, column_type in zip(resource.id.key.columns, resource.id.key.types, strict=True):
        yield from type_privileges(table, name, column_type, is_id=True)


def relationship_faults(
    resource: Resource,
    relationship: Relationship,
    target: Resource,
    tables: FoundTables,
    everywhere: Sequence[Everywhere],
) -> Iterator[str]:
    """Return what does not match between a relationship and its columns, or keeps the role from reading them."""
    own, theirs = tables[resource.schema, resource.table], tables[target.schema, target.table]
    if link_of(relationship) is not None:
        yield from _link_faults(resource, relationship, target, tables, everywhere)
    elif isinstance(relationship, ToOne) and relationship.is_own_key:
        if own is not None:
            yield from _key_faults(relationship, relationship.own_columns, own, target, theirs)
            yield from nullability_faults(relationship, own.columns)
    elif theirs is not None:
        columns = relationship.foreign_columns
        yield from _key_faults(relationship, columns, theirs, resource, own)
        if theirs.may_use_schema:
            yield from read_privileges(theirs, columns)
        if not relationship.is_to_many and theirs.may_repeat(*columns):
            yield f"the table {quoted(target.table)} has no unique index on {listed(columns)}"


def everywhere_faults(table: LiveTable, everywhere: Sequence[Everywhere]) -> Iterator[str]:
    """Return what keeps the rules of all tables from one of them."""
    for rule in everywhere:
        name, declared = rule.attribute.column_name, rule.attribute.type
        column = table.columns.get(name)
        if table.name in rule.without:
            continue
        if column is None:
            yield f"the table {quoted(table.name)} has no column {quoted(name)}, which the rule of all tables needs"
        elif column.type not in declared.sql_names:
            yield f"the column {quoted(name)} of the rule of all tables is {column.type} in {quoted(table.name)}"
        else:
            yield from read_privileges(table, (name,))


def no_table(schema: str | None, name: str) -> str:
    """Return the reason that a declared table does not exist."""
    before, _, own_name = name.rpartition(".")
    hint = f". Write its schema apart: {own_name!r}, schema={before!r}" if before and not schema else ""
    where = f"schema {quoted(schema)}" if schema else "database"
    return f"there is no table {quoted(name)} in the {where}{hint}"


def _link_faults(
    resource: Resource,
    relationship: Relationship,
    target: Resource,
    tables: FoundTables,
    everywhere: Sequence[Everywhere],
) -> Iterator[str]:
    link = link_of(relationship)
    assert link is not None
    links = tables[link.schema, link.table]
    if links is None:
        yield no_table(link.schema, link.table)
        return
    yield from type_faults(link.source_columns, link.table, links, resource)
    yield from type_faults(link.target_columns, link.table, links, target)
    columns = tuple(dict.fromkeys((*link.source_columns, *link.target_columns)))
    yield from read_privileges(links, columns)
    yield from everywhere_faults(links, everywhere)
    if links.may_repeat(*columns, *[rule.attribute.column_name for rule in everywhere]):
        yield f"the table {quoted(link.table)} has no unique index on {listed(columns)}"


def _key_faults(
    relationship: Relationship,
    columns: tuple[str, ...],
    table: LiveTable,
    referenced: Resource,
    theirs: LiveTable | None,
) -> Iterator[str]:
    """Return the faults of the columns with a key. table: the one that has them. theirs: that of the resource that they
    refer to."""
    if relationship.references:
        yield from reference_faults(columns, table, theirs, relationship.referenced_columns)
        if theirs is not None and theirs.may_use_schema:
            yield from read_privileges(theirs, (*referenced.id.key.columns, *relationship.referenced_columns))
    else:
        yield from type_faults(columns, table.name, table, referenced)


def _read_columns_of(resource: Resource) -> Iterator[str]:
    """Return the columns of its own table that reads of a resource use."""
    for attribute in resource.attributes:
        if attribute.is_stored:
            yield attribute.column_name
    for relationship in resource.relationships:
        if (own := own_key_of(relationship)) is not None:
            yield from own.own_columns


def attribute_faults(resource: Resource, attribute: Attribute, table: LiveTable) -> Iterator[str]:
    """Return what does not match between a stored attribute and its column."""
    column = table.columns.get(attribute.column_name)
    if column is None:
        yield from missing(attribute.column_name, resource.table, table.columns)
        return
    is_filled = resource.hooks.before_create is not None or "create" not in resource.methods
    is_filled = is_filled or attribute.filled or attribute.column_name in columns_of_others(resource)
    version = resource.declared_version
    is_filled = is_filled or (version is not None and version.column == attribute.column_name)
    yield from _column_faults(attribute, column, is_filled=is_filled)
    yield from type_privileges(table, attribute.column_name, attribute.type)


def _column_faults(attribute: Attribute, column: LiveColumn, *, is_filled: bool) -> Iterator[str]:
    """Return the faults of a column. is_filled: whether clients do not create such resources, or custom code or a
    trigger may set the attributes that a client leaves out."""
    names = attribute.type.sql_names
    if attribute.type is not OPAQUE and column.type not in names:
        yield type_fault(attribute.type, "column", column.type)
    elif column.hidden_schema and attribute.type.comparison.is_of_extension:
        other = "TEXT" if column.type == "citext" else "OPAQUE"
        yield f"{hidden_type(f'its type {column.type}', column.hidden_schema)}, or declare it as {other}"
    if attribute.nullable and column.is_not_null:
        yield "it is declared nullable, and its column is NOT NULL"
    if not (attribute.nullable or column.is_not_null or column.shows_not_null):
        yield "it is not declared nullable, and its column is"
    must_be_sent = column.is_not_null and not column.has_default and not is_filled
    if must_be_sent and not attribute.required and attribute.is_writable(on_create=True):
        yield (
            "it is not required on create, and its column is NOT NULL without a default: declare required=True, or "
            "filled=True if a trigger fills it"
        )


def type_fault(declared: ColumnType, what: str, sql_name: str) -> str:
    """Return the message about a column or a term (`what`) of another type. sql_name: its type."""
    return f"it is declared as {declared.name}, and its {what} is {sql_name}: declare it as {declared_as(sql_name)}"
