"""Reads the tables of a database from the system catalog, with one query for each kind of thing, whatever their number.

What comes in: a connection and the choice of tables. What goes out: a Database.
It must not know: resources, names, files.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import asyncpg
import msgspec

from server.schema.live_views import IS_COMPUTED_IN_VIEW, IS_NOT_NULL, IS_PLAIN_VIEW
from server.tools.inspecting.catalog.choosing import TableChoice, full_name_of
from server.tools.inspecting.catalog.model import (
    DELETE,
    INSERT,
    UNSUPPORTED,
    UPDATE,
    Check,
    ForeignKey,
    InspectedColumn,
    InspectedDatabase,
    InspectedTable,
    LeftOut,
    Trigger,
    Type,
)
from server.tools.inspecting.catalog.role_privileges import usable_schemas
from server.tools.inspecting.catalog.view_columns import Shown, shown_columns

Connection: TypeAlias = "asyncpg.Connection[Any]"

# is_default: only `public` is left out of declarations, because other search paths differ between roles.
_TABLES = f"""
SELECT c.oid::int8 AS oid, current_user::text AS role, n.nspname AS schema, c.relname AS name, c.relkind::text AS kind,
       n.nspname = 'public' AND pg_table_is_visible(c.oid) AS is_default,
       coalesce(obj_description(c.oid, 'pg_class'), '') AS comment,
       CASE WHEN c.relispartition THEN 'a partition'
            WHEN EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = c.oid) THEN 'inherits' ELSE '' END AS parted,
       EXISTS (SELECT FROM pg_depend d WHERE (d.classid, d.objid, d.deptype)
               = ('pg_class'::regclass, c.oid, 'e'::"char")) AS is_of_extension,
       c.relkind = 'r' AND EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = c.oid) AS has_children,
       c.relrowsecurity AS is_guarded, c.relispopulated AS is_populated,
       coalesce(w.fdwhandler = 0, false) AS has_no_handler,
       CASE WHEN w.fdwhandler = 0 THEN 0 ELSE pg_relation_is_updatable(c.oid, true) END AS allowed_writes,
       (SELECT coalesce(bit_or(CASE one.ev_type WHEN '2' THEN 4 WHEN '3' THEN 8 ELSE 16 END), 0) FROM (
           SELECT r.ev_type FROM pg_rewrite r WHERE r.ev_class = c.oid AND r.ev_type IN ('2', '3', '4')
           GROUP BY r.ev_type HAVING bool_or(r.is_instead) AND NOT bool_or(r.ev_action::text LIKE '%:returningList (%')
       ) one) AS writes_without_returning,
       c.relkind = 'v' AND pg_relation_is_updatable(c.oid, false) <> 0 AS shows_rows_once,
       {IS_PLAIN_VIEW} AS is_plain,
       has_schema_privilege(n.oid, 'USAGE') AS may_use_schema,
       has_table_privilege(c.oid, 'DELETE') AS may_delete,
       has_any_column_privilege(c.oid, 'UPDATE') AS may_lock
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_foreign_table t ON t.ftrelid = c.oid LEFT JOIN pg_foreign_server s ON s.oid = t.ftserver
LEFT JOIN pg_foreign_data_wrapper w ON w.oid = s.srvfdw
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
"""

# Of a table that was analyzed, and has enough rows.
_HAS_FEW_VALUES = """c.reltuples >= 100 AND EXISTS (
           SELECT FROM pg_stats s JOIN pg_namespace n ON n.nspname = s.schemaname
           WHERE n.oid = c.relnamespace AND s.tablename = c.relname AND s.attname = a.attname
           AND s.n_distinct BETWEEN 2 AND 20 AND s.avg_width <= 40
       )"""

_COLUMNS = f"""
SELECT a.attrelid::int8 AS oid, a.attname AS name, a.attnum::int4 AS number, a.atttypid::int8 AS type,
       a.atttypmod AS modifier, format_type(a.atttypid, a.atttypmod) AS shown,
       {IS_NOT_NULL} AS is_not_null,
       a.atthasdef OR a.attidentity <> '' OR d.typdefault IS NOT NULL AS has_default,
       a.attidentity = 'a' OR a.attgenerated <> '' AS is_generated,
       {IS_COMPUTED_IN_VIEW} AS is_computed,
       NOT EXISTS (SELECT FROM pg_collation k WHERE k.oid = a.attcollation AND NOT k.collisdeterministic)
           AS is_deterministic,
       {_HAS_FEW_VALUES} AS has_few_values,
       a.attndims::int4 AS dimensions, coalesce(col_description(a.attrelid, a.attnum), '') AS comment,
       has_column_privilege(c.oid, a.attnum, 'SELECT') AS may_select,
       has_column_privilege(c.oid, a.attnum, 'INSERT') AS may_insert,
       has_column_privilege(c.oid, a.attnum, 'UPDATE') AS may_update
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_type d ON d.oid = a.atttypid
WHERE a.attrelid = ANY($1::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attrelid, a.attnum
"""

_SEQUENCES = """
SELECT f.adrelid::int8 AS oid, f.adnum::int4 AS number,
       array_agg(format('%I.%I', n.nspname, s.relname) ORDER BY 1) AS names
FROM pg_attrdef f
JOIN pg_depend p ON (p.classid, p.objid, p.refclassid) = ('pg_attrdef'::regclass, f.oid, 'pg_class'::regclass)
JOIN pg_class s ON s.oid = p.refobjid JOIN pg_namespace n ON n.oid = s.relnamespace
WHERE f.adrelid = ANY($1::oid[])
AND CASE WHEN s.relkind = 'S' THEN NOT has_sequence_privilege(s.oid, 'USAGE, UPDATE') END
GROUP BY f.adrelid, f.adnum
"""

_TYPES = """
WITH RECURSIVE part AS (
    SELECT unnest($1::oid[]) AS oid
    UNION
    SELECT below.oid FROM part p JOIN pg_type t ON t.oid = p.oid CROSS JOIN LATERAL (
        SELECT CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.typelem END AS oid
        WHERE t.typtype = 'd' OR t.typelem <> 0 AND t.typcategory = 'A'
        UNION ALL
        SELECT a.atttypid FROM pg_attribute a
        WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
    ) below
)
SELECT t.oid::int8 AS oid, t.typname AS name, t.typtype::text AS kind, format_type(t.oid, NULL) AS shown,
       t.typbasetype::int8 AS base, t.typtypmod AS modifier,
       CASE WHEN t.typelem <> 0 AND t.typcategory = 'A' THEN t.typelem::int8 END AS element,
       ARRAY(SELECT e.enumlabel::text FROM pg_enum e WHERE e.enumtypid = t.oid ORDER BY e.enumsortorder) AS labels,
       CASE WHEN n.nspname = 'public' AND pg_type_is_visible(t.oid) THEN '' ELSE n.nspname END AS schema,
       CASE WHEN t.typtype = 'c' THEN ARRAY(
           SELECT ROW(a.attname::text, a.atttypid::int8) FROM pg_attribute a
           WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
       ) ELSE '{}' END AS fields,
       ARRAY(SELECT pg_get_expr(c.conbin, 0) FROM pg_constraint c
             WHERE c.contypid = t.oid AND c.contype = 'c' AND c.convalidated ORDER BY c.conname) AS checks
FROM part p JOIN pg_type t ON t.oid = p.oid JOIN pg_namespace n ON n.oid = t.typnamespace
"""

_UNIQUE = """
SELECT i.indrelid::int8 AS oid, i.indisprimary AS is_primary,
       ARRAY(SELECT a.attname::text FROM unnest(i.indkey::int2[]) WITH ORDINALITY k (number, place)
             JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
             WHERE k.place <= i.indnkeyatts ORDER BY k.place) AS columns
FROM pg_index i
WHERE i.indrelid = ANY($1::oid[]) AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
ORDER BY i.indrelid, i.indexrelid
"""

# A foreign key to a partitioned table also has rows for each partition, which have a parent.
_CONSTRAINTS = """
SELECT c.conrelid::int8 AS oid, c.contype::text AS kind, c.conname AS name, c.confrelid::int8 AS target,
       ARRAY(SELECT a.attname::text FROM unnest(c.conkey) WITH ORDINALITY k (number, place)
             JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.number ORDER BY k.place) AS columns,
       ARRAY(SELECT a.attname::text FROM unnest(c.confkey) WITH ORDINALITY k (number, place)
             JOIN pg_attribute a ON a.attrelid = c.confrelid AND a.attnum = k.number ORDER BY k.place) AS references,
       CASE WHEN c.contype = 'c' THEN pg_get_expr(c.conbin, c.conrelid) END AS expression
FROM pg_constraint c
WHERE c.conrelid = ANY($1::oid[]) AND (c.contype = 'f' AND c.conparentid = 0 OR c.contype = 'c' AND c.convalidated)
ORDER BY c.conrelid, c.conname
"""

# A key that all partitions have, one by one, is as good as one of their table.
_PARTITION_KEYS = """
SELECT p.oid, min(p.name) AS name, p.target, p.columns, p.references,
       count(*) >= (SELECT count(*) FROM pg_inherits i WHERE i.inhparent = p.oid) AS is_of_all FROM (
    SELECT i.inhparent::int8 AS oid, c.conname::text AS name, c.confrelid::int8 AS target,
           ARRAY(SELECT a.attname::text FROM unnest(c.conkey) WITH ORDINALITY k (number, place)
                 JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.number ORDER BY k.place) AS columns,
           ARRAY(SELECT a.attname::text FROM unnest(c.confkey) WITH ORDINALITY k (number, place)
                 JOIN pg_attribute a ON a.attrelid = c.confrelid AND a.attnum = k.number ORDER BY k.place) AS references
    FROM pg_inherits i JOIN pg_class parent ON parent.oid = i.inhparent AND parent.relkind = 'p'
    JOIN pg_constraint c ON c.conrelid = i.inhrelid AND c.contype = 'f' AND c.conparentid = 0
    WHERE i.inhparent = ANY($1::oid[])
) p GROUP BY p.oid, p.target, p.columns, p.references
ORDER BY p.oid, min(p.name)
"""

_TRIGGERS = """
SELECT t.tgrelid::int8 AS oid, t.tgname AS name, t.tgtype::int4 AS type, p.prosrc AS source,
       encode(t.tgargs, 'escape') AS arguments
FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
WHERE t.tgrelid = ANY($1::oid[]) AND NOT t.tgisinternal AND t.tgenabled <> 'D' AND t.tgtype & 1 = 1
ORDER BY t.tgrelid, t.tgname
"""

_VIEWS = """
SELECT r.ev_class::int8 AS oid, r.ev_action::text AS action FROM pg_rewrite r
WHERE r.ev_class = ANY($1::oid[]) AND r.rulename = '_RETURN'
"""

_TRIGGER_EVENTS = {4: INSERT, 8: DELETE, 16: UPDATE}


async def read_database(connection: Connection, choice: TableChoice, roles: Sequence[str] = ()) -> InspectedDatabase:
    """Read the tables of the choice. roles: one of them must be able to use the schema of a table, instead of the
    server's own. Raises asyncpg's errors."""
    rows = [dict(row) for row in await connection.fetch(_TABLES)]
    rows.sort(key=lambda row: (row["schema"] != "public", row["schema"], row["name"]))
    if roles:
        usable = await usable_schemas(connection, roles)
        rows = [row | {"may_use_schema": row["schema"] in usable} for row in rows]
    left_out: list[LeftOut] = []
    kept: list[Mapping[str, Any]] = []
    for row in rows:
        if not choice.has_schema(row["schema"]):
            continue
        if (reason := choice.reason_against(row)) is None:
            kept.append(row)
        else:
            left_out.append(reason)
    oids = [row["oid"] for row in kept]
    facts = await _facts(connection, oids, [row["oid"] for row in kept if row["kind"] in ("v", "m")])
    names = tuple([(row["schema"], row["name"]) for row in rows])
    full_names = {row["oid"]: full_name_of(row) for row in rows}
    tables = tuple([_table(row, facts[row["oid"]]) for row in kept])
    return InspectedDatabase(tables, tuple(left_out), names, full_names=full_names)


_Facts = dict[str, list[Any]]


async def _facts(connection: Connection, oids: list[int], views: list[int]) -> Mapping[int, _Facts]:
    """Return the columns, indexes, constraints and triggers of each table."""
    facts: defaultdict[int, _Facts] = defaultdict(lambda: defaultdict(list))
    columns = await connection.fetch(_COLUMNS, oids)
    types = await read_types(connection, {row["type"] for row in columns})
    denied = {(row["oid"], row["number"]): row["names"] for row in await connection.fetch(_SEQUENCES, oids)}
    shown = {row["oid"]: shown_columns(row["action"]) for row in await connection.fetch(_VIEWS, views)}
    for row in columns:
        place = row["oid"], row["number"]
        view = shown.get(row["oid"], Shown())
        origin = view.origins.get(row["number"])
        column = _column(row, types, tuple(denied.get(place, ())), origin)
        facts[row["oid"]]["columns"].append(column)
        if column.number in view.grouped:
            facts[row["oid"]]["grouped"].append(column.name)
    for row in await connection.fetch(_UNIQUE, oids):
        facts[row["oid"]]["primary" if row["is_primary"] else "unique"].append(tuple(row["columns"]))
    for row in await connection.fetch(_CONSTRAINTS, oids):
        columns_of, name = tuple(row["columns"]), row["name"]
        constraint = (
            Check(name, columns_of, row["expression"])
            if row["kind"] == "c"
            else ForeignKey(name, columns_of, row["target"], tuple(row["references"]))
        )
        facts[row["oid"]][row["kind"]].append(constraint)
    for row in await connection.fetch(_PARTITION_KEYS, oids):
        key = ForeignKey(row["name"], tuple(row["columns"]), row["target"], tuple(row["references"]))
        facts[row["oid"]]["f" if row["is_of_all"] else "partial"].append(key)
    for row in await connection.fetch(_TRIGGERS, oids):
        facts[row["oid"]]["triggers"].append(_trigger(row))
    return facts


def _table(row: Mapping[str, Any], facts: _Facts) -> InspectedTable:
    primary = facts["primary"][0] if facts["primary"] else ()
    # The unique indexes of a table with inheriting tables do not cover the rows of these.
    unique = () if row["has_children"] else (*facts["primary"], *facts["unique"])
    return InspectedTable(
        columns=tuple(facts["columns"]),
        primary_key=primary,
        unique=unique,
        grouped=tuple(facts["grouped"]),
        foreign_keys=tuple(facts["f"]),
        partial_keys=tuple(facts["partial"]),
        checks=tuple(facts["c"]),
        triggers=tuple(facts["triggers"]),
        allowed_writes=row["allowed_writes"] & ~row["writes_without_returning"],
        **{
            name: row[name]
            for name in (
                *("oid", "role", "schema", "name", "kind", "is_default", "comment", "has_children", "is_guarded"),
                *("is_populated", "shows_rows_once", "is_plain", "may_delete", "may_lock", "may_use_schema"),
            )
        },
    )


def _column(
    row: asyncpg.Record, types: Mapping[int, Type], denied: tuple[str, ...], origin: tuple[int, int] | None
) -> InspectedColumn:
    given = types[row["type"]]
    modifier = given.modifier if given.domains else row["modifier"]
    names = (
        *("name", "number", "is_not_null", "has_default", "is_generated", "is_computed", "is_deterministic"),
        *("dimensions", "comment", "has_few_values"),
    )
    return InspectedColumn(
        type=_replaced(given, modifier, row["shown"]),
        denied_sequences=denied,
        origin=origin,
        **{name: row[name] for name in (*names, "may_select", "may_insert", "may_update")},
    )


def _replaced(given: Type, modifier: int, shown: str) -> Type:
    element = given.element and _replaced(given.element, modifier, given.element.shown)
    return msgspec.structs.replace(given, shown=shown, modifier=modifier, element=element)


async def read_types(connection: Connection, oids: Iterable[int]) -> dict[int, Type]:
    """Return the types with these oids, each below its domains."""
    rows = {row["oid"]: row for row in await connection.fetch(_TYPES, list(oids))}
    has_xml = "xml" not in {row["name"] for row in rows.values()} or await _has_xml(connection)
    made: dict[int, Type] = {}

    def of(oid: int) -> Type:
        if oid not in made:
            made[oid] = _type(rows[oid])
        return made[oid]

    def _type(row: asyncpg.Record) -> Type:
        if row["kind"] != "d":
            element = of(row["element"]) if row["element"] is not None else None
            kind = row["kind"] if has_xml or row["name"] != "xml" else UNSUPPORTED
            fields = tuple([(name, of(oid)) for name, oid in row["fields"]])
            labels, schema = tuple(row["labels"]), row["schema"] if fields else ""
            return Type(row["name"], kind, row["shown"], -1, labels, element, schema=schema, fields=fields)
        base = of(row["base"])
        modifier = base.modifier if row["modifier"] < 0 else row["modifier"]
        domains, checks = (row["name"], *base.domains), (*base.checks, *row["checks"])
        facts = {"shown": row["shown"], "modifier": modifier, "domains": domains, "checks": checks}
        return msgspec.structs.replace(base, **facts)

    return {oid: of(oid) for oid in rows}


async def _has_xml(connection: Connection) -> bool:
    """Return whether PostgreSQL is built with XML."""
    try:
        await connection.fetchval("SELECT CAST('<a/>' AS xml) IS NULL")
    except asyncpg.FeatureNotSupportedError:
        return False
    return True


def _trigger(row: asyncpg.Record) -> Trigger:
    events = sum(event for bit, event in _TRIGGER_EVENTS.items() if row["type"] & bit)
    arguments = re.sub(r"\\000|\0", " ", row["arguments"])
    return Trigger(row["name"], bool(row["type"] & 2), bool(row["type"] & 64), events, row["source"], arguments)
