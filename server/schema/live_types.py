"""Finds the live types of OPAQUE attributes and of ids that are enums, whose types the declarations do not know. Values
of OPAQUE attributes are compared and sorted by the type, if PostgreSQL can sort it and reports an invalid text as a
data error.

What comes in: a connection and resources. What goes out: the resources with those types. It must not know: requests.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import asyncpg
import msgspec

from querybuild.declarations.resource import Attribute, Resource
from querybuild.declarations.types import OPAQUE, opaque
from server.schema.live_tables import FoundTables

_NAME = """
SELECT format('%I.%I', n.nspname, t.typname) FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace
WHERE t.oid = $1::oid
"""

_COLUMN_TYPE = """
SELECT format('%I.%I', n.nspname, t.typname) FROM pg_attribute a
JOIN pg_type t ON t.oid = a.atttypid JOIN pg_namespace n ON n.oid = t.typnamespace
WHERE a.attrelid = $1::oid AND a.attname = $2
"""

# All operators that filters, sorts and cursors use.
_USES = (
    "SELECT x FROM (SELECT CAST(NULL AS {0}) AS x, CAST(NULL AS {0}) AS y, CAST(NULL AS {0}[]) AS z) s "
    "WHERE x = y AND x <> y AND x < y AND x > y AND x = ANY(z) AND x <> ALL(z) AND x IS DISTINCT FROM y "
    "ORDER BY x DESC, y"
)
_NO_VALUE = "!) no value"

FindType = Callable[[Resource, Attribute], Awaitable[int]]
"""Returns the oid of the type of an attribute that is computed in SQL."""


async def with_live_types(
    connection: asyncpg.Connection[Any], resources: Sequence[Resource], found: FoundTables, find: FindType
) -> list[Resource]:
    """Return the resources with the live types of their OPAQUE attributes. found: their tables."""
    known: dict[int, str | None] = {}

    async def oid_of(resource: Resource, attribute: Attribute) -> int:
        table = found[resource.schema, resource.table]
        if table is None or not attribute.is_stored:
            return await find(resource, attribute)
        return table.columns[attribute.column_name].type_oid

    return [await _with_live_types(connection, resource, oid_of, known) for resource in resources]


async def _with_live_types(
    connection: asyncpg.Connection[Any], resource: Resource, find: FindType, known: dict[int, str | None]
) -> Resource:
    """Return the resource with live types. known: the names of types by oid, None for those that stay OPAQUE."""
    attributes = list(resource.attributes)
    for index, attribute in enumerate(attributes):
        if attribute.type is not OPAQUE or attribute.compute is not None:
            continue
        oid = await find(resource, attribute)
        if oid not in known:
            known[oid] = await _ordered_type(connection, oid)
        if (name := known[oid]) is not None:
            attributes[index] = msgspec.structs.replace(attribute, type=opaque(name))
    is_same = all(one is other for one, other in zip(attributes, resource.attributes, strict=True))
    return resource if is_same else msgspec.structs.replace(resource, attributes=tuple(attributes))


async def with_live_enums(
    connection: asyncpg.Connection[Any], resources: Sequence[Resource], found: FoundTables
) -> list[Resource]:
    """Return the resources with the names of the types of ids that are enums: SQL converts their texts."""
    changed = list(resources)
    for index, resource in enumerate(resources):
        table, key = found[resource.schema, resource.table], resource.id.key
        if table is None or not any(one.choices for one in key.types):
            continue
        types = [
            msgspec.structs.replace(one, sql_type=await connection.fetchval(_COLUMN_TYPE, table.oid, name))
            if one.choices
            else one
            for name, one in zip(key.columns, key.types, strict=True)
        ]
        own: dict[str, Any] = {"types": tuple(types)} if key.is_composite else {"type": types[0]}
        changed[index] = msgspec.structs.replace(resource, id=msgspec.structs.replace(resource.id, **own))
    return changed


async def _ordered_type(connection: asyncpg.Connection[Any], oid: int) -> str | None:
    """Return the name of the type for a cast. Return None if it has no order, if the driver cannot read it, such as a
    composite type without fields, or if an invalid text does not raise a data error, as for types whose values are
    looked up by name."""
    name: str = await connection.fetchval(_NAME, oid)
    try:
        await connection.prepare(_USES.format(name))
    except (asyncpg.SyntaxOrAccessError, asyncpg.FeatureNotSupportedError, asyncpg.InternalClientError):
        return None
    try:
        await connection.fetchval(f"SELECT CAST(CAST($1 AS TEXT) AS {name}) IS NULL", _NO_VALUE)
    except asyncpg.DataError:
        return name
    except asyncpg.PostgresError as error:
        if isinstance(error, (asyncpg.PostgresConnectionError, asyncpg.OperatorInterventionError)):
            raise
        return None
    return name
