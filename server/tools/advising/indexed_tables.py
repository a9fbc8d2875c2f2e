"""Reads the tables of the database that may have indexes, and the indexes that they have.

What comes in: a connection, and the names of tables as they are declared. What goes out: `IndexedTable`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import asyncpg
import msgspec

from querybuild.declarations.terms import quote_ident
from server.schema.live_statements import TOGETHER
from server.schema.live_tables import PARTITION_KEY, parse_partition_key

SMALL_TABLE_ROWS = 1000

# PostgreSQL has no indexes on virtual generated columns (attgenerated is v). to_regclass fails for a schema that the
# role may not use.
_TABLES = f"""
SELECT given.schema AS given_schema, given.name AS given_name, c.oid, n.nspname AS schema, c.relname AS name,
       c.relkind = 'p' AS is_partitioned, c.reltuples::float8 AS rows,
       c.relispopulated AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')
           AS is_countable,
       ARRAY(SELECT attname FROM pg_attribute
             WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped AND attgenerated <> 'v') AS columns,
       ARRAY(SELECT attname FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
             WHERE attrelid = c.oid AND attnum > 0 AND attgenerated <> 'v'
             AND coalesce(nullif(typbasetype, 0), t.oid) IN ('text'::regtype, 'varchar'::regtype)) AS texts,
       {PARTITION_KEY} AS partition_key
FROM unnest($1::text[], $2::text[]) AS given (schema, name)
JOIN pg_class c ON c.oid = CASE WHEN given.schema IS NULL THEN to_regclass(quote_ident(given.name))::oid ELSE (
    SELECT r.oid FROM pg_class r JOIN pg_namespace s ON s.oid = r.relnamespace
    WHERE s.nspname = given.schema AND r.relname = given.name) END
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'm')
"""

# options: 1 is DESC, 2 is NULLS FIRST. A partial index WHERE column IS NOT NULL finds every value that is not null.
_INDEXES = """
SELECT i.indrelid AS oid, n.nspname AS schema, x.relname AS name, m.amname AS method,
       i.indisvalid AND i.indisready AS is_valid, i.indisunique AS is_unique, i.indoption::int2[] AS options,
       i.indpred IS NULL AS is_total,
       pg_get_expr(i.indpred, i.indrelid) IS NOT DISTINCT FROM format('(%I IS NOT NULL)', columns.names[1])
           OR i.indpred IS NULL AS covers_not_null,
       columns.names AS columns
FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_namespace n ON n.oid = x.relnamespace
JOIN pg_am m ON m.oid = x.relam
CROSS JOIN LATERAL (
    SELECT array_agg(coalesce(a.attname, '') ORDER BY k.position) AS names
    FROM unnest(i.indkey::int2[]) WITH ORDINALITY k (number, position)
    LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
    WHERE k.position <= i.indnkeyatts
) columns
WHERE i.indrelid = ANY($1::oid[])
"""


class Index(msgspec.Struct, frozen=True):
    """An index of a table. columns: the name of each, empty for an expression. is_total: whether it has every row.
    covers_not_null: whether it has every row whose first column is not null. descends: whether its order is that of
    ORDER BY x DESC NULLS LAST."""

    schema: str
    name: str
    method: str
    columns: tuple[str, ...]
    is_valid: bool
    is_unique: bool
    is_total: bool
    covers_not_null: bool
    descends: bool


class IndexedTable(msgspec.Struct, frozen=True):
    """A table that may have indexes. rows: the estimate of PostgreSQL, counted below SMALL_TABLE_ROWS. columns: those
    that an index can be on. texts: those of them that are `text` or `varchar`. partition_key: as in
    `live_tables.Table`."""

    schema: str
    name: str
    columns: frozenset[str]
    texts: frozenset[str]
    rows: int
    is_partitioned: bool
    partition_key: frozenset[str] | None
    indexes: tuple[Index, ...]


async def indexed_tables(
    connection: asyncpg.Connection[Any], declared: list[tuple[str | None, str]]
) -> dict[tuple[str | None, str], IndexedTable]:
    """Return the tables that may have indexes, by their names in the declarations."""
    schemas, names = [schema for schema, _ in declared], [name for _, name in declared]
    rows = await connection.fetch(_TABLES, schemas, names)
    indexes: defaultdict[int, list[Index]] = defaultdict(list)
    for row in await connection.fetch(_INDEXES, [row["oid"] for row in rows]):
        indexes[row["oid"]].append(_index(row))
    counts = await _count_few(connection, rows)
    return {
        (row["given_schema"], row["given_name"]): IndexedTable(
            schema=row["schema"],
            name=row["name"],
            columns=frozenset(row["columns"]),
            texts=frozenset(row["texts"]),
            rows=counts.get(row["oid"], max(0, int(row["rows"]))),
            is_partitioned=row["is_partitioned"],
            partition_key=parse_partition_key(row["partition_key"]),
            indexes=tuple(indexes[row["oid"]]),
        )
        for row in rows
    }


async def _count_few(connection: asyncpg.Connection[Any], tables: Sequence[asyncpg.Record]) -> dict[int, int]:
    """Count the rows of tables that have few, by oid. Statistics may be old or missing, and counting so few rows is
    fast."""
    small = {row["oid"]: row for row in tables if row["rows"] < SMALL_TABLE_ROWS and row["is_countable"]}
    names = {oid: f"{quote_ident(row['schema'])}.{quote_ident(row['name'])}" for oid, row in small.items()}
    oids, counts = list(names), list[int]()
    for start in range(0, len(oids), TOGETHER):
        part = [
            f"(SELECT count(*) FROM (SELECT FROM {names[oid]} LIMIT {SMALL_TABLE_ROWS}) few)"
            for oid in oids[start : start + TOGETHER]
        ]
        counts += await connection.fetchval(f"SELECT ARRAY[{','.join(part)}]")
    return dict(zip(oids, counts, strict=True))


def _index(row: asyncpg.Record) -> Index:
    return Index(
        schema=row["schema"],
        name=row["name"],
        method=row["method"],
        columns=tuple(row["columns"]),
        is_valid=row["is_valid"],
        is_unique=row["is_unique"],
        is_total=row["is_total"],
        covers_not_null=row["covers_not_null"],
        descends=row["options"][0] == 1,
    )
