"""Finds the columns of tables that views show, so that a constraint of such a table is known to be about a field.

What comes in: a connection and the oids of relations. It must not know: declarations, requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg

# The rule of a view names the column behind each of its own (TargetEntry in src/include/nodes/primnodes.h). A name that
# also belongs to a subquery of the view is not certain.
_COLUMNS = """
WITH RECURSIVE entry AS MATERIALIZED (
    SELECT r.ev_class AS view, m[1] AS name, min(m[2])::oid AS oid, min(m[3])::int2 AS number
    FROM pg_rewrite r CROSS JOIN regexp_matches(r.ev_action::text,
        ':resname ([A-Za-z_][A-Za-z0-9_]*) :ressortgroupref [0-9]+ :resorigtbl ([0-9]+) :resorigcol ([0-9]+)', 'g') m
    WHERE r.rulename = '_RETURN' AND r.ev_type = '1' AND r.ev_class >= 16384
    AND EXISTS (SELECT FROM pg_class v WHERE v.oid = ANY($1::oid[]) AND v.relkind = 'v')
    GROUP BY 1, 2 HAVING count(*) = 1
), origin AS (
    SELECT view AS shown, name AS shown_name, oid, number FROM entry WHERE view = ANY($1::oid[])
    UNION ALL
    SELECT o.shown, o.shown_name, e.oid, e.number FROM origin o
    JOIN pg_attribute a ON a.attrelid = o.oid AND a.attnum = o.number
    JOIN entry e ON e.view = o.oid AND e.name = a.attname
)
SELECT o.shown::int8 AS view, o.shown_name AS name, n.nspname AS schema, c.relname AS table, c.oid::int8 AS oid,
       a.attname AS column
FROM origin o JOIN pg_class c ON c.oid = o.oid AND c.relkind IN ('r', 'p') JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = o.oid AND a.attnum = o.number
"""

ShownColumns = Mapping[tuple[str, str], Mapping[str, str]]
"""(schema, table) -> the name of each of its columns that a view shows, and the name that it has there."""


async def read_shown_columns(
    connection: asyncpg.Connection[Any], oids: Sequence[int]
) -> tuple[Mapping[int, ShownColumns], set[int]]:
    """Return the columns of tables that these views show, by the oid of the view, and the oids of the tables. Relations
    that are no views are ignored."""
    shown: dict[int, dict[tuple[str, str], dict[str, str]]] = {}
    tables: set[int] = set()
    for row in await connection.fetch(_COLUMNS, oids) if oids else ():
        columns = shown.setdefault(row["view"], {}).setdefault((row["schema"], row["table"]), {})
        columns.setdefault(row["column"], row["name"])
        tables.add(row["oid"])
    return shown, tables
