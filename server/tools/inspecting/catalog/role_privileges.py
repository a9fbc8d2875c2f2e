"""Gives the inspected tables the privileges of the roles of requests (`row_security`), because their statements do not
run with the server's own role.

What comes in: a connection, tables, roles. What goes out: the tables. It must not know: declarations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import asyncpg
import msgspec

from server.tools.inspecting.catalog.model import InspectedColumn, InspectedDatabase, InspectedTable

Connection: TypeAlias = "asyncpg.Connection[Any]"

_SCHEMAS = """
SELECT n.nspname AS name FROM pg_namespace n
WHERE EXISTS (SELECT FROM pg_roles r WHERE r.rolname = ANY($1::text[]) AND has_schema_privilege(r.oid, n.oid, 'USAGE'))
"""

_TABLES = """
SELECT c.oid::int8 AS oid, bool_or(has_table_privilege(r.oid, c.oid, 'DELETE')) AS may_delete,
       bool_or(has_any_column_privilege(r.oid, c.oid, 'UPDATE')) AS may_lock
FROM pg_class c CROSS JOIN pg_roles r WHERE c.oid = ANY($1::oid[]) AND r.rolname = ANY($2::text[])
GROUP BY c.oid
"""

_COLUMNS = """
SELECT a.attrelid::int8 AS oid, r.rolname AS role, a.attname AS name,
       has_column_privilege(r.oid, a.attrelid, a.attnum, 'SELECT') AS may_select,
       has_column_privilege(r.oid, a.attrelid, a.attnum, 'INSERT') AS may_insert,
       has_column_privilege(r.oid, a.attrelid, a.attnum, 'UPDATE') AS may_update
FROM pg_attribute a CROSS JOIN pg_roles r
WHERE a.attrelid = ANY($1::oid[]) AND a.attnum > 0 AND NOT a.attisdropped AND r.rolname = ANY($2::text[])
ORDER BY a.attrelid, array_position($2::text[], r.rolname::text), a.attnum
"""


async def usable_schemas(connection: Connection, roles: Sequence[str]) -> set[str]:
    """Return the schemas that one of the roles may use."""
    return {row["name"] for row in await connection.fetch(_SCHEMAS, roles)}


async def with_privileges_of(
    connection: Connection, database: InspectedDatabase, roles: Sequence[str]
) -> InspectedDatabase:
    """Return the database with what one of the roles may do. A resource is read by one role, so the readable columns of
    a table are those of the role that may read most of them."""
    oids = [table.oid for table in database.tables]
    tables = {row["oid"]: row for row in await connection.fetch(_TABLES, oids, roles)}
    columns: defaultdict[int, list[asyncpg.Record]] = defaultdict(list)
    for row in await connection.fetch(_COLUMNS, oids, roles):
        columns[row["oid"]].append(row)
    changed = [
        _changed(table, tables[table.oid], columns[table.oid]) if table.oid in tables else table
        for table in database.tables
    ]
    return msgspec.structs.replace(database, tables=tuple(changed))


def _changed(table: InspectedTable, row: asyncpg.Record, rows: Sequence[asyncpg.Record]) -> InspectedTable:
    readable: dict[str, set[str]] = {each["role"]: set() for each in rows}
    for rights in rows:
        if rights["may_select"]:
            readable[rights["role"]].add(rights["name"])
    reader = max(readable, key=lambda role: len(readable[role]), default=table.role)
    shown, inserted, updated = readable.get(reader, set()), _named(rows, "may_insert"), _named(rows, "may_update")
    return msgspec.structs.replace(
        table,
        columns=tuple([_with(column, shown, inserted, updated) for column in table.columns]),
        role=reader,
        may_delete=row["may_delete"],
        may_lock=row["may_lock"],
    )


def _named(rows: Iterable[asyncpg.Record], privilege: str) -> set[str]:
    return {row["name"] for row in rows if row[privilege]}


def _with(column: InspectedColumn, shown: set[str], inserted: set[str], updated: set[str]) -> InspectedColumn:
    name = column.name
    return msgspec.structs.replace(
        column,
        may_select=name in shown,
        may_insert=name in inserted,
        may_update=name in updated,
        denied_sequences=(),
    )
