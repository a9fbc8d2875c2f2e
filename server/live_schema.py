"""The catalogue held against the live tables. What comes in: a connection and the Catalog. What goes out: a
line for each declaration that the tables do not bear out, and the constraints, by which a refused write finds
the field that it was about.

It must not know: requests, statements of the query builder.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import asyncpg
import msgspec

from querybuild.errors import listed, nearest, quoted
from querybuild.resource import Attribute, Catalog, Relationship, Resource, ToOne, link_of
from querybuild.types import OPAQUE

_COLUMNS = """
SELECT a.attname AS name,
       CASE WHEN b.typtype = 'e' THEN 'enum'
            WHEN e.typtype = 'e' THEN '_enum'
            WHEN b.typelem <> 0 AND b.typcategory = 'A' THEN '_' || e.typname
            ELSE b.typname END AS type,
       a.attnotnull OR d.typnotnull AS is_not_null,
       a.atthasdef OR a.attidentity <> '' OR d.typdefault IS NOT NULL AS has_default
FROM pg_attribute a
JOIN pg_type d ON d.oid = a.atttypid
JOIN pg_type b ON b.oid = CASE WHEN d.typtype = 'd' THEN (
    WITH RECURSIVE base AS (
        SELECT d.typbasetype AS oid
        UNION ALL
        SELECT t.typbasetype FROM pg_type t JOIN base ON t.oid = base.oid WHERE t.typtype = 'd'
    ) SELECT base.oid FROM base JOIN pg_type t ON t.oid = base.oid WHERE t.typtype <> 'd' LIMIT 1
) ELSE d.oid END
LEFT JOIN pg_type e ON e.oid = b.typelem
WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped
"""

_CONSTRAINTS = """
SELECT n.nspname AS schema, r.relname AS table, c.conname AS name,
       ARRAY(SELECT a.attname FROM unnest(c.conkey) WITH ORDINALITY k(number, place)
             JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.number ORDER BY k.place) AS columns
FROM pg_constraint c JOIN pg_class r ON r.oid = c.conrelid JOIN pg_namespace n ON n.oid = r.relnamespace
WHERE c.conrelid = ANY($1::oid[])
UNION ALL
SELECT n.nspname, r.relname, x.relname,
       ARRAY(SELECT a.attname FROM unnest(i.indkey::int2[]) WITH ORDINALITY k(number, place)
             JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number ORDER BY k.place)
FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_class r ON r.oid = i.indrelid
JOIN pg_namespace n ON n.oid = r.relnamespace
WHERE i.indisunique AND i.indrelid = ANY($1::oid[])
"""


class Column(msgspec.Struct, frozen=True):
    type: str
    is_not_null: bool
    has_default: bool


class Constraint(msgspec.Struct, frozen=True):
    """schema, table: of the rows that the constraint is about. columns: its own, in its order; none of an
    expression."""

    schema: str
    table: str
    name: str
    columns: tuple[str, ...]


Columns = dict[str, Column]
Constraints = dict[tuple[str, str, str], Constraint]


class LiveSchema(msgspec.Struct, frozen=True):
    """faults: lines for a person. constraints: by (schema, table, name)."""

    faults: tuple[str, ...]
    constraints: Constraints


async def read_live_schema(connection: asyncpg.Connection[Any], catalog: Catalog) -> LiveSchema:
    """Looks every declared table up, the way the statements will: with its schema where one is declared."""
    oids: dict[tuple[str | None, str], int | None] = {}
    columns: dict[int, Columns] = {}
    for schema, table in dict.fromkeys(_tables(catalog)):
        oid = oids[schema, table] = await _oid(connection, schema, table)
        if oid is not None and oid not in columns:
            rows = await connection.fetch(_COLUMNS, oid)
            columns[oid] = {row["name"]: Column(row["type"], row["is_not_null"], row["has_default"]) for row in rows}
    found = {place: None if oid is None else columns[oid] for place, oid in oids.items()}
    constraints = await connection.fetch(_CONSTRAINTS, list(columns))
    return LiveSchema(
        faults=tuple(fault for resource in catalog for fault in _faults(catalog, resource, found)),
        constraints={
            (row["schema"], row["table"], row["name"]): Constraint(
                row["schema"], row["table"], row["name"], tuple(row["columns"])
            )
            for row in constraints
        },
    )


def _tables(catalog: Catalog) -> Iterator[tuple[str | None, str]]:
    for resource in catalog:
        yield resource.schema, resource.table
        for relationship in resource.relationships:
            link = link_of(relationship)
            if link is not None:
                yield link.schema, link.table


async def _oid(connection: asyncpg.Connection[Any], schema: str | None, table: str) -> int | None:
    """The table's oid; quote_ident makes to_regclass take the names as they are."""
    sql = "SELECT to_regclass(concat_ws('.', quote_ident($1), quote_ident($2)))::oid"
    oid: int | None = await connection.fetchval(sql, schema, table)
    return oid


Found = dict[tuple[str | None, str], Columns | None]


def _faults(catalog: Catalog, resource: Resource, found: Found) -> Iterator[str]:
    where = f"resource {quoted(resource.type)}: "
    columns = found[resource.schema, resource.table]
    if columns is None:
        yield f"{where}there is no table {quoted(resource.table)} in the database"
        return
    for fault in (*_id_faults(resource, columns), *_attribute_faults(resource, columns)):
        yield where + fault
    for relationship in resource.relationships:
        for fault in _relationship_faults(resource, relationship, catalog.target(relationship), found):
            yield f"{where}relationship {quoted(relationship.name)}: {fault}"


def _relationship_faults(
    resource: Resource, relationship: Relationship, target: Resource, found: Found
) -> Iterator[str]:
    link = link_of(relationship)
    if link is not None:
        links = found[link.schema, link.table]
        if links is None:
            yield f"there is no table {quoted(link.table)} in the database"
            return
        yield from _key_faults(link.source, link.table, links, resource)
        yield from _key_faults(link.target, link.table, links, target)
    elif isinstance(relationship, ToOne) and relationship.is_own_key:
        columns = found[resource.schema, resource.table] or {}
        yield from _key_faults(relationship.column_name, resource.table, columns, target)
        yield from _nullability_faults(relationship, columns)
    else:
        theirs = found[target.schema, target.table]
        if theirs is not None:
            yield from _key_faults(relationship.foreign_key, target.table, theirs, resource)


def _key_faults(name: str, table: str, columns: Columns, holds: Resource) -> Iterator[str]:
    """holds: the resource whose id the column holds."""
    column, id_type = columns.get(name), holds.id.type
    if column is None:
        yield from _missing(name, table, columns)
    elif column.type not in id_type.sql_names:
        yield f"its column {quoted(name)} is {column.type}, and the id it holds is {id_type.sql_names[0]}"


def _missing(column: str, table: str, columns: Columns) -> Iterator[str]:
    if column not in columns:
        yield f"the table {quoted(table)} has no column {quoted(column)}.{nearest(column, columns)}"


def _id_faults(resource: Resource, columns: Columns) -> Iterator[str]:
    column = columns.get(resource.id.column)
    if column is None:
        yield from _missing(resource.id.column, resource.table, columns)
    elif column.type not in resource.id.type.sql_names:
        yield f"the id is declared as {resource.id.type.name}, and its column is {column.type}"


def _attribute_faults(resource: Resource, columns: Columns) -> Iterator[str]:
    for attribute in resource.attributes:
        if not attribute.is_stored:
            continue
        label = f"attribute {quoted(attribute.name)}: "
        column = columns.get(attribute.column_name)
        if column is None:
            yield from (label + fault for fault in _missing(attribute.column_name, resource.table, columns))
            continue
        for fault in _column_faults(attribute, column):
            yield label + fault


def _column_faults(attribute: Attribute, column: Column) -> Iterator[str]:
    names = attribute.type.sql_names
    if attribute.type is not OPAQUE and column.type not in names:
        yield f"it is declared as {attribute.type.name}, and its column is {column.type}, not {listed(names)}"
    if attribute.nullable and column.is_not_null:
        yield "it is declared nullable, and its column is NOT NULL"
    if not attribute.nullable and not column.is_not_null:
        yield "it is not declared nullable, and its column is"
    must_be_sent = column.is_not_null and not column.has_default
    if must_be_sent and not attribute.required and attribute.is_writable(on_create=True):
        yield "it is not required on create, and its column is NOT NULL without a default"


def _nullability_faults(relationship: ToOne, columns: Columns) -> Iterator[str]:
    column = columns.get(relationship.column_name)
    if column is not None and relationship.nullable == column.is_not_null:
        declared, live = ("nullable", "NOT NULL") if relationship.nullable else ("not nullable", "nullable")
        yield f"it is declared {declared}, and its column is {live}"
