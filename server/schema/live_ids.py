"""Finds the ids that no constraint keeps unique and not null. For `check` it also looks for rows that break this, and
for ids that no path can name.

At startup only constraints are read, because reading all rows of a view may take minutes.
It must not know: requests.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import asyncpg
import msgspec

from querybuild.declarations.catalog import Catalog
from querybuild.declarations.terms import quote_ident
from querybuild.errors import listed, quoted
from server.schema.live_statements import is_gone
from server.schema.live_tables import RELATION_KINDS, FoundTables, LiveTable
from server.schema.live_views import HAS_NO_NULLS

# An automatically updatable view shows each row of its one table once. Its rule names the table column behind each
# view column (TargetEntry in src/include/nodes/primnodes.h).
_ORIGINS = """
SELECT given.key, given.place, found[1]::oid::int8 AS oid, a.attname::text AS name
FROM unnest($1::int4[], $2::oid[], $3::text[]) WITH ORDINALITY AS given (key, oid, name, place)
JOIN pg_rewrite r ON r.ev_class = given.oid AND r.rulename = '_RETURN'
CROSS JOIN regexp_matches(
    r.ev_action::text,
    ':resname ' || given.name || ' :ressortgroupref [0-9]+ :resorigtbl ([0-9]+) :resorigcol ([0-9]+)', 'g'
) found
JOIN pg_attribute a ON a.attrelid = found[1]::oid AND a.attnum = found[2]::int2
WHERE pg_relation_is_updatable(r.ev_class, false) <> 0
ORDER BY given.place
"""
_KEYS = f"""
SELECT k.key FROM (
    SELECT given.key, given.oid, given.is_id, array_agg(a.attnum) AS numbers,
           bool_and({HAS_NO_NULLS}) AS are_not_null
    FROM unnest($1::int4[], $2::oid[], $3::text[], $4::bool[]) AS given (key, oid, name, is_id)
    JOIN pg_attribute a ON a.attrelid = given.oid AND a.attname = given.name AND NOT a.attisdropped
    GROUP BY given.key, given.oid, given.is_id
) k JOIN pg_class c ON c.oid = k.oid
WHERE (k.are_not_null OR NOT k.is_id) AND c.relkind IN ('r', 'p', 'm')
AND NOT EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = c.oid AND c.relkind = 'r')
AND EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid
            AND i.indpred IS NULL AND i.indexprs IS NULL
            AND (i.indkey::int2[])[0:i.indnkeyatts - 1] OPERATOR(pg_catalog.<@) k.numbers)
"""
_PLAIN_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
"""A name that is not escaped in the text of a rule."""


class UnenforcedKey(msgspec.Struct, frozen=True):
    """Columns whose values must be unique, without a constraint that enforces this. They are an id, or the key of a
    to-one relationship in its target's rows. where: the declaration, in words. is_declared: whether the declaration
    says that the values are unique."""

    where: str
    table: LiveTable
    columns: tuple[str, ...]
    is_id: bool
    is_declared: bool = False


UnenforcedKeys = dict[tuple[str, str], UnenforcedKey]
"""(type, relationship) -> column; the relationship is empty for an id."""


async def find_unenforced_keys(
    connection: asyncpg.Connection[Any], catalog: Catalog, tables: FoundTables
) -> UnenforcedKeys:
    """Return the ids and keys that no constraint keeps unique. tables: the tables of the declarations. Missing tables
    are skipped: they are reported elsewhere."""
    known = {
        key: unenforced
        for key, unenforced in _unique_columns(catalog, tables)
        if set(unenforced.columns) <= unenforced.table.columns.keys()
    }
    enforced = await _find_enforced(connection, list(known.values()))
    return {key: unenforced for number, (key, unenforced) in enumerate(known.items()) if number not in enforced}


def _unique_columns(catalog: Catalog, tables: FoundTables) -> Iterator[tuple[tuple[str, str], UnenforcedKey]]:
    for resource in catalog:
        where = f"resource {quoted(resource.type)}"
        if (table := tables[resource.schema, resource.table]) is not None:
            key = UnenforcedKey(where, table, resource.id.key.columns, True, resource.id.unique)
            yield (resource.type, ""), key
        for relationship in resource.relationships:
            target = catalog.target(relationship)
            theirs = tables[target.schema, target.table]
            if relationship.foreign_key and not relationship.is_to_many and theirs is not None:
                label = f"{where}: relationship {quoted(relationship.name)}"
                yield (
                    (resource.type, relationship.name),
                    UnenforcedKey(label, theirs, relationship.foreign_columns, False),
                )


async def _find_enforced(connection: asyncpg.Connection[Any], keys: Sequence[UnenforcedKey]) -> set[int]:
    """Return the places of the keys that a constraint enforces. Columns of views are followed to their tables."""
    enforced: set[int] = set()
    columns = {number: [(key.table.oid, name) for name in key.columns] for number, key in enumerate(keys)}
    while columns:
        numbers, oids, names = _flat(columns)
        rows = await connection.fetch(_KEYS, numbers, oids, names, [keys[number].is_id for number in numbers])
        enforced |= {row["key"] for row in rows}
        columns = await _origins(connection, {number: own for number, own in columns.items() if number not in enforced})
    return enforced


_KeyColumns = dict[int, list[tuple[int, str]]]
"""The place of a key -> the oid of the table, and the name, of each of its columns."""


def _flat(columns: _KeyColumns) -> tuple[list[int], list[int], list[str]]:
    flat = [(number, oid, name) for number, own in columns.items() for oid, name in own]
    return [number for number, _, _ in flat], [oid for _, oid, _ in flat], [name for _, _, name in flat]


async def _origins(connection: asyncpg.Connection[Any], columns: _KeyColumns) -> _KeyColumns:
    """Return the columns that those of views show, for the keys whose columns all come from one table."""
    plain = {number: own for number, own in columns.items() if all(_PLAIN_NAME.fullmatch(name) for _, name in own)}
    origins: dict[int, list[asyncpg.Record]] = {}
    for row in await connection.fetch(_ORIGINS, *_flat(plain)) if plain else ():
        origins.setdefault(row["key"], []).append(row)
    return {
        number: [(row["oid"], row["name"]) for row in rows]
        for number, rows in origins.items()
        # If a subquery of the view has a column of this name too, there are more rows.
        if len({row["place"] for row in rows}) == len(rows) == len(plain[number])
        and len({row["oid"] for row in rows}) == 1
    }


def format_warnings(unenforced_keys: UnenforcedKeys) -> tuple[str, ...]:
    """Return one warning for each column whose declaration does not say that it is unique."""
    return tuple(_warning(key) for key in unenforced_keys.values() if not key.is_declared)


def _warning(key: UnenforcedKey) -> str:
    names = "its ids unique and not null" if key.is_id else f"{_columns(key)} unique"
    return (
        f"{key.where}: no constraint of the {_name(key.table)} keeps {names}: an answer with a row that breaks this is "
        "a 409; `waterspout check` looks for such rows"
    )


def _columns(key: UnenforcedKey) -> str:
    return listed(map(quoted, key.columns))


def _name(table: LiveTable) -> str:
    return f"{'inherited table' if table.has_children else RELATION_KINDS[table.kind]} {quoted(table.name)}"


async def check_id_rows(
    connection: asyncpg.Connection[Any], unenforced_keys: UnenforcedKeys, show: Callable[[str], None] = lambda _: None
) -> tuple[str, ...]:
    """Return messages for each column whose rows are not unique, or have a null id. Reads all rows. show: is called
    with what is done next."""
    faults = list[str]()
    for number, key in enumerate(unenforced_keys.values(), 1):
        show(f"checking the ids of {_name(key.table)}, {number} of {len(unenforced_keys)}")
        faults += await _id_faults(connection, key)
    return tuple(faults)


async def _id_faults(connection: asyncpg.Connection[Any], key: UnenforcedKey) -> list[str]:
    columns, what = [quote_ident(name) for name in key.columns], "the id" if key.is_id else f"the {_columns(key)}"
    where, text = f"{key.where}: the {_name(key.table)} has", "||','||".join([f"{column}::text" for column in columns])
    groups = f"SELECT {text} AS value, count(*) AS size FROM {key.table.quoted_name} GROUP BY {','.join(columns)}"
    sql = f"""
        SELECT coalesce(sum(size) FILTER (WHERE value IS NULL), 0)::int8 AS nulls,
               count(*) FILTER (WHERE value IS NOT NULL) AS repeated,
               min(ARRAY[value COLLATE "C", size::text]) FILTER (WHERE value IS NOT NULL) AS example
        FROM ({groups}) one WHERE size > 1 OR value IS NULL"""
    try:
        row = await connection.fetchrow(sql)
    except asyncpg.PostgresError as error:
        if is_gone(error):
            raise
        return [f"{key.where}: the rows of the {_name(key.table)} cannot be read: {error.args[0]}"]
    assert row is not None
    faults = []
    if key.is_id and row["nulls"]:
        number = "1 row" if row["nulls"] == 1 else f"{row['nulls']} rows"
        faults.append(f"{where} {number} whose id is null: exclude these rows, or declare another column as the id")
    if row["repeated"]:
        value, size = row["example"]
        more = f", and repeats {row['repeated'] - 1} more" if row["repeated"] > 1 else ""
        faults.append(f"{where} {size} rows with {what} {quoted(value)}{more}: one is allowed")
    return faults


async def warn_of_ids(
    connection: asyncpg.Connection[Any], catalog: Catalog, show: Callable[[str], None] = lambda _: None
) -> tuple[str, ...]:
    """Return a warning for each resource with ids that no path can name: the empty text, `.` and `..`. Browsers and
    proxies remove such segments. show: is called with what is done next."""
    resources = [each for each in catalog if each.id_type.read_part is not None]
    warnings = []
    for number, resource in enumerate(resources, 1):
        show(f"looking for ids that no path can name, {number} of {len(resources)}")
        table = ".".join([quote_ident(name) for name in (resource.schema, resource.table) if name is not None])
        sql = f"SELECT count(*) FROM {table} WHERE {quote_ident(resource.id.column)}::text IN ('', '.', '..')"
        try:
            count = await connection.fetchval(sql)
        except asyncpg.PostgresError as error:
            if is_gone(error):
                raise
            warnings.append(f"resource {quoted(resource.type)}: its ids cannot be read: {error.args[0]}")
            continue
        if count:
            rows = "1 row has" if count == 1 else f"{count} rows have"
            warnings.append(
                f"resource {quoted(resource.type)}: {rows} an id that no path can name (the empty text, “.” or “..”): "
                "lists show them, and a client cannot ask for one of them"
            )
    return tuple(warnings)
