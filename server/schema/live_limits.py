"""Reads the limits in the types of columns: the length of `varchar(8)` and `char(8)`, the digits of `numeric(12,2)`,
and domains, which check values. Finds the rules whose values do not fit."""

from __future__ import annotations

from typing import Any

import asyncpg

from querybuild.declarations.attributes import Checks, Limit, checks_within
from querybuild.declarations.catalog import Catalog, CatalogError
from querybuild.declarations.resource import Attribute
from querybuild.planning.context import View
from querybuild.planning.rules import read_rules
from server.schema.fault import Fault
from server.schema.live_tables import FoundTables

# Follows each column's type through domains and arrays to its base type. A domain has its own modifier.
_LIMITS = """
WITH RECURSIVE part AS (
    SELECT a.attrelid AS oid, a.attname::text AS name, a.atttypid AS type, a.atttypmod AS modifier,
           ARRAY[]::oid[] AS domains
    FROM pg_attribute a WHERE a.attrelid = ANY($1::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT p.oid, p.name, CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.typelem END,
           CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE p.modifier END,
           CASE WHEN t.typtype = 'd' THEN p.domains || t.oid ELSE p.domains END
    FROM part p JOIN pg_type t ON t.oid = p.type WHERE t.typtype = 'd' OR t.typelem <> 0 AND t.typcategory = 'A'
)
SELECT p.oid::int8, p.name, t.typname::text AS type, p.modifier,
       ARRAY(SELECT d.typname::text FROM pg_type d WHERE d.oid = ANY(p.domains) ORDER BY 1) AS domains
FROM part p JOIN pg_type t ON t.oid = p.type
WHERE NOT (t.typtype = 'd' OR t.typelem <> 0 AND t.typcategory = 'A')
AND (p.domains <> '{}' OR p.modifier >= 0 AND t.typname IN ('varchar', 'bpchar', 'numeric'))
"""

Limits = dict[Attribute, Limit]
ColumnLimits = dict[tuple[str | None, str, str], Limit]
"""(schema, table, column) -> its limit. Schema and table are as declared."""


async def read_column_limits(connection: asyncpg.Connection[Any], tables: FoundTables) -> ColumnLimits:
    """Return the limits of the columns that have any."""
    names = {name: table.oid for name, table in tables.items() if table is not None}
    rows: dict[int, list[asyncpg.Record]] = {}
    for row in await connection.fetch(_LIMITS, list(set(names.values()))):
        rows.setdefault(row["oid"], []).append(row)
    return {
        (*name, row["name"]): parse_limit(row["type"], row["modifier"], tuple(row["domains"]))
        for name, oid in names.items()
        for row in rows.get(oid, ())
    }


def limits_of(catalog: Catalog, limits: ColumnLimits) -> Limits:
    """Return the limits of the stored attributes whose columns have any."""
    return {
        attribute: limit
        for resource in catalog
        for attribute in resource.attributes
        if attribute.is_stored
        and (limit := limits.get((resource.schema, resource.table, attribute.column_name))) is not None
    }


def parse_limit(type_name: str, modifier: int, domains: tuple[str, ...]) -> Limit:
    """Return the limit of a type. modifier: pg_attribute.atttypmod, -1 for none.

    >>> parse_limit("numeric", 786438, ())
    Limit(domains=(), characters=None, digits=12, scale=2)
    """
    characters = modifier - 4 if modifier >= 4 and type_name in ("varchar", "bpchar") else None
    if modifier < 4 or type_name != "numeric":
        return Limit(domains=domains, characters=characters)
    # As in numeric_typmod_scale of src/backend/utils/adt/numeric.c: the scale has 11 bits and a sign.
    packed = modifier - 4
    return Limit(domains=domains, digits=packed >> 16 & 0xFFFF, scale=((packed & 0x7FF) ^ 1024) - 1024)


def checks_of_limits(limits: Limits) -> Checks:
    """Return all checks of the attributes whose columns have limits."""
    return {attribute: checks_within(attribute, limit) for attribute, limit in limits.items()}


def rule_faults(catalog: Catalog, limits: Limits) -> list[Fault]:
    """Return a Fault for each filter or value of a rule that does not fit the columns. catalog: with the types that
    only the tables know."""
    try:
        read_rules(View(catalog, checks_of_limits(limits)))
    except CatalogError as error:
        return [Fault(line) for line in str(error).splitlines()]
    return []
