"""Checks what the name of a column's type does not say: the fields of composite types, and whether PostgreSQL was built
with the type.

What comes in: a connection, resources and their tables. What goes out: a Fault for each difference. It must not know:
requests.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import asyncpg
import msgspec

from querybuild.declarations.database_types.names import declared_as
from querybuild.declarations.database_types.texts import XML
from querybuild.declarations.resource import Attribute, Resource
from querybuild.declarations.types import OPAQUE, ColumnType
from querybuild.errors import listed, quoted
from server.schema.fault import Fault
from server.schema.live_tables import TYPE_NAME, FoundTables, LiveTable

# Not to_regtype for a type with a schema: it fails if the role may not use the schema.
_FIELDS = f"""
SELECT w.place - 1 AS place, f.attname::text AS name, {TYPE_NAME} AS type,
       CASE WHEN cardinality(parse_ident(w.type)) = 2
            THEN parse_ident(w.type) = ARRAY[n.nspname, c.typname]::text[]
            ELSE c.oid = to_regtype(w.type)::oid END AS is_named
FROM unnest($1::oid[], $2::text[], $3::text[]) WITH ORDINALITY w(oid, name, type, place)
JOIN pg_attribute a ON a.attrelid = w.oid AND a.attname = w.name
JOIN pg_type d ON d.oid = a.atttypid
JOIN pg_type c ON c.oid = CASE WHEN d.typtype = 'd' THEN d.typbasetype WHEN d.typcategory = 'A' THEN d.typelem
                          ELSE d.oid END
JOIN pg_namespace n ON n.oid = c.typnamespace
JOIN pg_attribute f ON f.attrelid = c.typrelid AND f.attnum > 0 AND NOT f.attisdropped
JOIN pg_type t ON t.oid = f.atttypid
JOIN pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
LEFT JOIN pg_type e ON e.oid = b.typelem
ORDER BY w.place, f.attnum
"""


class _Stored(msgspec.Struct, frozen=True):
    """An attribute with a column."""

    resource: Resource
    attribute: Attribute
    table: LiveTable

    @property
    def type(self) -> ColumnType:
        """Its type, or that of the elements of its arrays."""
        return self.attribute.type.element or self.attribute.type

    def fault(self, reason: str) -> Fault:
        """Return a fault of it."""
        return Fault(reason, self.resource.type, attribute=self.attribute.name)


async def value_faults(
    connection: asyncpg.Connection[Any], resources: Iterable[Resource], tables: FoundTables
) -> list[Fault]:
    """Return the faults of the stored attributes of resources. tables: their tables."""
    stored = [
        _Stored(resource, attribute, table)
        for resource in resources
        for attribute in resource.attributes
        if (table := tables[resource.schema, resource.table]) is not None
        and attribute.is_stored
        and attribute.column_name in table.columns
    ]
    faults = await _composite_faults(connection, [value for value in stored if value.type.fields])
    of_xml = [value for value in stored if value.type is XML]
    if of_xml and not await _has_xml(connection):
        faults += [value.fault("this PostgreSQL is built without XML: declare it as OPAQUE") for value in of_xml]
    return faults


async def _composite_faults(connection: asyncpg.Connection[Any], stored: Sequence[_Stored]) -> list[Fault]:
    if not stored:
        return []
    oids, names = [value.table.oid for value in stored], [value.attribute.column_name for value in stored]
    rows: defaultdict[int, list[asyncpg.Record]] = defaultdict(list)
    for row in await connection.fetch(_FIELDS, oids, names, [value.type.sql_type for value in stored]):
        rows[row["place"]].append(row)
    return [
        value.fault(reason) for place, value in enumerate(stored) for reason in _field_faults(value.type, rows[place])
    ]


def _field_faults(declared: ColumnType, rows: list[asyncpg.Record]) -> Iterator[str]:
    """Yield the faults of a composite type. rows: those of _FIELDS; none if the column has another type."""
    live, fields = {row["name"]: row["type"] for row in rows}, dict(declared.fields)
    if rows and not rows[0]["is_named"]:
        yield f"the type of its column is not the one that {declared.sql_type} names: declare its schema"
        return
    if missing := [name for name in live if name not in fields]:
        yield f"the type {declared.name} also has the fields {listed(map(quoted, missing))}: declare all of them"
    for name, field in fields.items() if rows else ():
        if name not in live:
            yield f"the type {declared.name} has no field {quoted(name)}: there are {listed(map(quoted, live))}"
        elif field is not OPAQUE and live[name] not in field.sql_names:
            what = f"its field {quoted(name)} is declared as {field.name}, and it is {live[name]}"
            yield f"{what}: declare it as {declared_as(live[name])}"


async def _has_xml(connection: asyncpg.Connection[Any]) -> bool:
    try:
        await connection.fetchval("SELECT CAST(CAST($1 AS TEXT) AS xml) IS NULL", "<a/>")
    except asyncpg.FeatureNotSupportedError:
        return False
    return True
