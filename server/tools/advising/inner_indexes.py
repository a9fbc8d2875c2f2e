"""Suggests indexes on values inside JSON. Declarations do not tell which paths requests use, so a read tells it.

What comes in: a connection, and the values that a read filters or sorts by. What goes out: a `Suggestion` for each
index that a large table does not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg

from querybuild.declarations.terms import quote_ident
from querybuild.sql.inside_json import InnerValue
from server.tools.advising.index_advisor import (
    SMALL_TABLE_ROWS,
    IndexedTable,
    Suggestion,
    Wanted,
    indexed_tables,
    suggestion,
    taken_names,
)


async def suggest_inner(connection: asyncpg.Connection[Any], found: Sequence[InnerValue]) -> list[Suggestion]:
    """Return the indexes that tables of at least SMALL_TABLE_ROWS rows do not have. It only reads."""
    tables = await indexed_tables(connection, [(one.resource.schema, one.resource.table) for one in found])
    wanted: list[tuple[Wanted, IndexedTable]] = []
    for one in dict.fromkeys(found):
        table = tables.get((one.resource.schema, one.resource.table))
        if table is not None and table.rows >= SMALL_TABLE_ROWS and not await _has_index(connection, one, table):
            wanted.append((_wanted(one), table))
    taken = await taken_names(connection, wanted)
    return [suggestion(want, table, taken) for want, table in wanted]


def _wanted(one: InnerValue) -> Wanted:
    use = ("descending sorts" if one.descends else "sorts") if one.is_sorted else "filters"
    columns = (one.name, *one.resource.id.key.columns) if one.is_sorted else (one.name,)
    where = one.resource.schema, one.resource.table
    # PostgreSQL has statistics of an expression only if an index is on it.
    reason = f"{one.resource.type}.{one.name}: {use}; ANALYZE the table afterwards"
    return Wanted("consider", reason, where, columns, descends=one.descends, expression=one.sql)


async def _has_index(connection: asyncpg.Connection[Any], one: InnerValue, table: IndexedTable) -> bool:
    """Return whether the table has an index for this use. Only PostgreSQL knows whether two expressions are the same,
    so it is asked for a plan that uses an index if there is one."""
    full_name = f"{quote_ident(table.schema)}.{quote_ident(table.name)}"
    order = " DESC NULLS LAST" if one.descends else ""
    use = f"ORDER BY {one.sql}{order}" if one.is_sorted else f"WHERE ({one.sql}) IS NOT NULL"
    transaction = connection.transaction(readonly=True)
    await transaction.start()
    try:
        await connection.execute("SET LOCAL enable_seqscan=off; SET LOCAL enable_sort=off")
        plan = str(await connection.fetchval(f"EXPLAIN (FORMAT JSON) SELECT 1 FROM {full_name} {use}"))
    finally:
        await transaction.rollback()
    return '"Sort Key"' not in plan if one.is_sorted else '"Index Cond"' in plan
