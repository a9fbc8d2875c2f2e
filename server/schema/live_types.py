"""Finds the live types that the declarations do not know: of OPAQUE attributes, of enums and of arrays of texts. Values
of OPAQUE attributes are compared and sorted by the type, if PostgreSQL can sort it and reports an invalid text as a
data error.

What comes in: a connection and resources. What goes out: the resources with those types. It must not know: requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import asyncpg
import msgspec

from querybuild.declarations.resource import Attribute, Resource
from querybuild.declarations.terms import cast_as
from querybuild.declarations.types import OPAQUE, ColumnType, opaque
from server.schema.live_statements import TermTypes
from server.schema.live_tables import FoundTables, LiveColumn

_NAMES = """
SELECT t.oid::int8 AS oid, format('%I.%I', n.nspname, t.typname) AS name
FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace WHERE t.oid = ANY($1::oid[])
"""

# All operators that filters, sorts and cursors use.
_USES = (
    "SELECT x FROM (SELECT CAST(NULL AS {0}) AS x, CAST(NULL AS {0}) AS y, CAST(NULL AS {0}[]) AS z) s "
    "WHERE x = y AND x <> y AND x < y AND x > y AND x = ANY(z) AND x <> ALL(z) AND x IS DISTINCT FROM y "
    "ORDER BY x DESC, y"
)
_NO_VALUE = "!) no value"


async def with_live_types(
    connection: asyncpg.Connection[Any],
    resources: Sequence[Resource],
    tables: FoundTables,
    terms: TermTypes,
) -> list[Resource]:
    """Return the resources with the live types of those attributes that are compared by them. tables: their tables.
    terms: the types of those attributes that are computed in SQL."""
    oids = {
        (resource.type, attribute.name): _oid_of(resource, attribute, tables, terms)
        for resource in resources
        for attribute in resource.attributes
        if attribute.type is OPAQUE and attribute.compute is None
    }
    names = await _type_names(connection, oids.values())
    known = {oid: name for oid, name in names.items() if await _is_ordered(connection, name)}
    types = {key: opaque(known[oid]) for key, oid in oids.items() if oid in known}
    types |= await _cast_types(connection, resources, tables)
    return [_with_types(resource, types) for resource in resources]


def _oid_of(resource: Resource, attribute: Attribute, tables: FoundTables, terms: TermTypes) -> int:
    table = tables[resource.schema, resource.table]
    if table is None or not attribute.is_stored:
        return terms[resource.type, attribute.name]
    return table.columns[attribute.column_name].type_oid


async def _cast_types(
    connection: asyncpg.Connection[Any], resources: Sequence[Resource], tables: FoundTables
) -> dict[tuple[str, str], ColumnType]:
    """Return the types of attributes that are compared with a cast. PostgreSQL compares no domain over an enum, not
    even with itself, no `varchar[]` with a `text[]`, and no array of a domain over a composite type with one of this
    type."""
    columns = {
        (resource.type, attribute.name): (attribute.type, table.columns[attribute.column_name])
        for resource in resources
        if (table := tables[resource.schema, resource.table]) is not None
        for attribute in resource.attributes
        if attribute.is_stored
    }
    cast = {key: pair for key, pair in columns.items() if _is_enum_domain(*pair) or _is_other_array(*pair)}
    names = await _type_names(connection, [column.type_oid for _, column in cast.values()])
    composites = {
        key: column_type.with_sql(compared=cast_as(f"{column_type.element.sql_type}[]"))
        for key, (column_type, column) in columns.items()
        if column_type.element is not None and column_type.element.fields and column.has_domain_elements
    }
    return composites | {
        key: column_type.with_sql(compared=cast_as(names[column.type_oid]))
        if _is_enum_domain(column_type, column)
        else msgspec.structs.replace(column_type, sql_type=names[column.type_oid])
        for key, (column_type, column) in cast.items()
    }


def _is_enum_domain(declared: ColumnType, column: LiveColumn) -> bool:
    return bool(declared.choices) and column.type == "enum" and column.is_domain


def _is_other_array(declared: ColumnType, column: LiveColumn) -> bool:
    return declared.family == "text[]" and declared.sql.bound is None and column.type != declared.sql_names[0]


def _with_types(resource: Resource, types: Mapping[tuple[str, str], ColumnType]) -> Resource:
    """Return the resource with the types of attributes, which are by its type and their names."""
    if not any((resource.type, attribute.name) in types for attribute in resource.attributes):
        return resource
    attributes = [
        msgspec.structs.replace(attribute, type=types.get((resource.type, attribute.name), attribute.type))
        for attribute in resource.attributes
    ]
    return msgspec.structs.replace(resource, attributes=tuple(attributes))


async def with_live_enums(
    connection: asyncpg.Connection[Any], resources: Sequence[Resource], found_tables: FoundTables
) -> list[Resource]:
    """Return the resources with the names of the types of ids that are enums: SQL converts their texts."""
    tables = {
        each.type: found_tables[each.schema, each.table]
        for each in resources
        if any(t.choices for t in each.id.key.types)
    }
    columns = {
        (resource.type, name): table.columns[name].type_oid
        for resource in resources
        if (table := tables.get(resource.type)) is not None
        for name, column_type in zip(resource.id.key.columns, resource.id.key.types, strict=True)
        if column_type.choices
    }
    names = await _type_names(connection, columns.values())
    changed = list(resources)
    for index, resource in enumerate(resources):
        key = resource.id.key
        if tables.get(resource.type) is None:
            continue
        types = [
            msgspec.structs.replace(column_type, sql_type=names[columns[resource.type, name]])
            if column_type.choices
            else column_type
            for name, column_type in zip(key.columns, key.types, strict=True)
        ]
        own: dict[str, Any] = {"types": tuple(types)} if key.is_composite else {"type": types[0]}
        changed[index] = msgspec.structs.replace(resource, id=msgspec.structs.replace(resource.id, **own))
    return changed


async def _type_names(connection: asyncpg.Connection[Any], oids: Iterable[int]) -> dict[int, str]:
    """Return the names of types for casts, by oid."""
    wanted = set(oids)
    return {row["oid"]: row["name"] for row in await connection.fetch(_NAMES, wanted)} if wanted else {}


async def _is_ordered(connection: asyncpg.Connection[Any], name: str) -> bool:
    """Return whether values of a type can be compared. They cannot if it has no order, if the driver cannot read it,
    such as a composite type without fields, or if an invalid text does not raise a data error, as for types whose
    values are looked up by name."""
    try:
        await connection.prepare(_USES.format(name))
    except (asyncpg.SyntaxOrAccessError, asyncpg.FeatureNotSupportedError, asyncpg.InternalClientError):
        return False
    try:
        await connection.fetchval(f"SELECT CAST(CAST($1 AS TEXT) AS {name}) IS NULL", _NO_VALUE)
    except asyncpg.DataError:
        return True
    except asyncpg.PostgresError as error:
        if isinstance(error, (asyncpg.PostgresConnectionError, asyncpg.OperatorInterventionError)):
            raise
        return False
    return True
