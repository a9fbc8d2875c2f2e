"""Checks what the name of a column's type does not say: the fields of composite types, and whether PostgreSQL was built
with the type.

What comes in: a connection, a resource and its table. What goes out: a Fault for each difference. It must not know:
requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import asyncpg

from querybuild.declarations.database_types.names import declared_as
from querybuild.declarations.database_types.texts import XML
from querybuild.declarations.resource import Resource
from querybuild.declarations.types import OPAQUE, ColumnType
from querybuild.errors import listed, quoted
from server.schema.fault import Fault
from server.schema.live_tables import TYPE_NAME, Table

_FIELDS = f"""
SELECT f.attname::text AS name, {TYPE_NAME} AS type, c.oid = to_regtype($3)::oid AS is_named
FROM pg_attribute a
JOIN pg_type d ON d.oid = a.atttypid
JOIN pg_type c ON c.oid = CASE WHEN d.typtype = 'd' THEN d.typbasetype WHEN d.typcategory = 'A' THEN d.typelem
                          ELSE d.oid END
JOIN pg_attribute f ON f.attrelid = c.typrelid AND f.attnum > 0 AND NOT f.attisdropped
JOIN pg_type t ON t.oid = f.atttypid
JOIN pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
LEFT JOIN pg_type e ON e.oid = b.typelem
WHERE a.attrelid = $1::oid AND a.attname = $2
ORDER BY f.attnum
"""


async def value_faults(connection: asyncpg.Connection[Any], resource: Resource, table: Table) -> list[Fault]:
    """Return the faults of the stored attributes of a resource."""
    faults = []
    for attribute in resource.attributes:
        column_type = attribute.type.element or attribute.type
        if not attribute.is_stored or attribute.column_name not in table.columns:
            continue
        found: list[str] = []
        if column_type.fields:
            rows = await connection.fetch(_FIELDS, table.oid, attribute.column_name, column_type.sql_type)
            found = list(_field_faults(column_type, rows))
        elif column_type is XML and not await _has_xml(connection):
            found = ["this PostgreSQL is built without XML: declare it as OPAQUE"]
        faults += [Fault(reason, resource.type, attribute=attribute.name) for reason in found]
    return faults


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
