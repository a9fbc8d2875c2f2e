"""Whether the ids of a resource are unique and never null. What comes in: a connection and the Catalog. What goes out:
the resources of which no constraint says so, and, for `check`, what their rows say.

A start looks at constraints only: a view may take minutes to read.
It must not know: requests.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import asyncpg

from querybuild.catalog import Catalog
from querybuild.errors import quoted
from querybuild.resource import Resource
from server.live_tables import KINDS, Found, Table

# A view that PostgreSQL itself can write shows each row of its one table once. Its rule says which column of which
# table each of its own is (TargetEntry in src/include/nodes/primnodes.h).
_ORIGIN = """
SELECT found[1]::oid::int8 AS oid, a.attname::text AS name
FROM pg_rewrite r
CROSS JOIN regexp_matches(
    r.ev_action::text, ':resname ' || $2 || ' :ressortgroupref [0-9]+ :resorigtbl ([0-9]+) :resorigcol ([0-9]+)', 'g'
) found
JOIN pg_attribute a ON a.attrelid = found[1]::oid AND a.attnum = found[2]::int2
WHERE r.ev_class = $1::oid AND r.rulename = '_RETURN' AND pg_relation_is_updatable(r.ev_class, false) <> 0
"""
_IS_KEY = """
SELECT a.attnotnull AND c.relkind IN ('r', 'p')
       AND NOT EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = c.oid AND c.relkind = 'r')
       AND EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid
                   AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum)
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
WHERE a.attrelid = $1::oid AND a.attname = $2 AND NOT a.attisdropped
"""
_PLAIN_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
"""A name that stands in a rule as it is."""

Uncertain = dict[str, Table]
"""Types whose ids no constraint keeps unique and not null, with the table of each."""


async def find_uncertain(connection: asyncpg.Connection[Any], catalog: Catalog, found: Found) -> Uncertain:
    """found: the tables of the declarations. One that is not there is another fault."""
    uncertain: Uncertain = {}
    for resource in catalog:
        table = found[resource.schema, resource.table]
        is_there = table is not None and resource.id.column in table.columns
        if table is not None and is_there and not await _is_key(connection, table.oid, resource.id.column):
            uncertain[resource.type] = table
    return uncertain


async def _is_key(connection: asyncpg.Connection[Any], oid: int, column: str) -> bool:
    while not await connection.fetchval(_IS_KEY, oid, column):
        origins = await connection.fetch(_ORIGIN, oid, column) if _PLAIN_NAME.fullmatch(column) else []
        # More than one: a query inside the view has a column of this name, too.
        if len(origins) != 1:
            return False
        oid, column = origins[0]["oid"], origins[0]["name"]
    return True


def warnings_of(uncertain: Mapping[str, Table]) -> tuple[str, ...]:
    """A line for each."""
    return tuple(
        f"resource {quoted(name)}: no constraint of the {_kind(table)} {quoted(table.name)} keeps its ids unique and "
        "not null: an answer with such rows is a 500; `waterspout check` looks for them"
        for name, table in uncertain.items()
    )


def _kind(table: Table) -> str:
    return "inherited table" if table.kind == "r" else KINDS[table.kind]


async def id_faults(
    connection: asyncpg.Connection[Any], catalog: Catalog, uncertain: Mapping[str, Table]
) -> tuple[str, ...]:
    """What the rows of the uncertain resources say. Reads all of them."""
    faults = [await _id_fault(connection, catalog.by_type[name], table) for name, table in uncertain.items()]
    return tuple(fault for fault in faults if fault)


async def _id_fault(connection: asyncpg.Connection[Any], resource: Resource, table: Table) -> str:
    column = '"' + resource.id.column.replace('"', '""') + '"'
    groups = f"SELECT {column}::text, count(*) FROM {table.quoted_name} GROUP BY {column}"
    row = await connection.fetchrow(f"{groups} HAVING count(*) > 1 OR {column} IS NULL LIMIT 1")
    if row is None:
        return ""
    where = f"resource {quoted(resource.type)}: the {_kind(table)} {quoted(table.name)}"
    if row[0] is None:
        return f"{where} has rows whose id is null: leave them out of it, or declare another column as the id"
    return f"{where} has {row[1]} rows with the id {quoted(row[0])}: an id is of one row"
