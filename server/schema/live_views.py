"""Finds the columns of tables that views show, so that a constraint of such a table is known to be about a field, and
that a column of a view is never null.

What comes in: a connection and the oids of relations. It must not know: declarations, requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg
import msgspec

IS_PLAIN_VIEW = """c.relkind = 'v' AND pg_relation_is_updatable(c.oid, false) & 12 = 12
    AND NOT EXISTS (SELECT FROM pg_rewrite w WHERE w.ev_class = c.oid AND w.ev_type <> '1')
    AND NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = c.oid AND t.tgtype & 64 = 64)"""
"""For pg_class `c`: whether it is a view of one table, whose rows PostgreSQL writes without rules and triggers of the
view. Its columns are NOT NULL where those of the table are."""

IS_COMPUTED_IN_VIEW = """c.relkind = 'v' AND pg_relation_is_updatable(c.oid, false) & 20 = 20
    AND NOT pg_column_is_updatable(c.oid, a.attnum, false)
    AND NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = c.oid AND t.tgtype & 64 = 64
                    HAVING bit_or(t.tgtype) & 20 = 20)"""
"""For pg_class `c` and pg_attribute `a`: whether a view can be written, but not this column of it, unless INSTEAD OF
triggers take both inserts and updates."""

HAS_NO_NULLS = """a.attnotnull AND NOT EXISTS (SELECT FROM pg_constraint x WHERE x.conrelid = a.attrelid
    AND x.contype = 'n' AND NOT x.convalidated AND a.attnum = ANY (x.conkey))"""
"""For pg_attribute `a`: whether the column itself is NOT NULL. PostgreSQL 18 sets attnotnull for a constraint that is
NOT VALID, too, and then older rows may have nulls."""

IS_NOT_NULL = f"({HAS_NO_NULLS} OR d.typnotnull AND c.relkind NOT IN ('v', 'm'))"
"""For pg_class `c`, pg_attribute `a` and its type `d`: whether the column cannot be null. In a view, a domain that is
NOT NULL has nulls where an outer join finds no row."""

# The rule of a view names the column behind each of its own (TargetEntry in src/include/nodes/primnodes.h). A name that
# also belongs to a subquery of the view is not certain.
_COLUMNS = f"""
WITH RECURSIVE entry AS MATERIALIZED (
    SELECT r.ev_class AS view, m[1] AS name, min(m[2])::oid AS oid, min(m[3])::int2 AS number
    FROM pg_rewrite r CROSS JOIN regexp_matches(r.ev_action::text,
        ':resname ([A-Za-z_][A-Za-z0-9_]*) :ressortgroupref [0-9]+ :resorigtbl ([0-9]+) :resorigcol ([0-9]+)', 'g') m
    WHERE r.rulename = '_RETURN' AND r.ev_type = '1' AND r.ev_class >= 16384
    AND EXISTS (SELECT FROM pg_class v WHERE v.oid = ANY($1::oid[]) AND v.relkind = 'v')
    GROUP BY 1, 2 HAVING count(*) = 1
), plain AS MATERIALIZED (
    SELECT c.oid FROM pg_class c WHERE c.oid IN (SELECT view FROM entry) AND {IS_PLAIN_VIEW}
), origin AS (
    SELECT view AS shown, name AS shown_name, oid, number, view IN (SELECT p.oid FROM plain p) AS is_plain
    FROM entry WHERE view = ANY($1::oid[])
    UNION ALL
    SELECT o.shown, o.shown_name, e.oid, e.number, o.is_plain AND e.view IN (SELECT p.oid FROM plain p) FROM origin o
    JOIN pg_attribute a ON a.attrelid = o.oid AND a.attnum = o.number
    JOIN entry e ON e.view = o.oid AND e.name = a.attname
)
SELECT o.shown::int8 AS view, o.shown_name AS name, n.nspname AS schema, c.relname AS table, c.oid::int8 AS oid,
       a.attname AS column, o.is_plain AND ({HAS_NO_NULLS} OR d.typnotnull) AS is_not_null,
       o.shown IN (SELECT p.oid FROM plain p) AS view_is_plain
FROM origin o JOIN pg_class c ON c.oid = o.oid AND c.relkind IN ('r', 'p') JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = o.oid AND a.attnum = o.number JOIN pg_type d ON d.oid = a.atttypid
"""

ShownColumns = Mapping[tuple[str, str], Mapping[str, str]]
"""(schema, table) -> the name of each of its columns that a view shows, and the name that it has there."""


class LiveView(msgspec.Struct, frozen=True):
    """What a view shows. columns: of tables. is_plain: whether PostgreSQL itself writes it. nullable: those of its own
    columns that may be null, as far as the columns behind them are certain."""

    columns: ShownColumns
    is_plain: bool
    nullable: frozenset[str]


async def read_views(
    connection: asyncpg.Connection[Any], oids: Sequence[int]
) -> tuple[Mapping[int, LiveView], set[int]]:
    """Return what these views show of tables, by the oid of the view, and the oids of the tables. Relations that are no
    views are ignored."""
    shown: dict[int, dict[tuple[str, str], dict[str, str]]] = {}
    nullable: dict[int, set[str]] = {}
    is_plain: dict[int, bool] = {}
    tables: set[int] = set()
    for row in await connection.fetch(_COLUMNS, oids) if oids else ():
        columns = shown.setdefault(row["view"], {}).setdefault((row["schema"], row["table"]), {})
        columns.setdefault(row["column"], row["name"])
        nullable.setdefault(row["view"], set()).update([] if row["is_not_null"] else [row["name"]])
        is_plain[row["view"]] = row["view_is_plain"]
        tables.add(row["oid"])
    views = {oid: LiveView(columns, is_plain[oid], frozenset(nullable[oid])) for oid, columns in shown.items()}
    return views, tables
