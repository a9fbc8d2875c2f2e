"""Finds the keys and foreign keys of views through the tables that they show.

A view that shows each row of one table once has that table's key. For other views, such as joins, the rows are looked
at: the key of one of the tables may be unique in them.
It must not know: resources, names.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import Any, TypeAlias

import asyncpg
import msgspec

from server.tools.inspecting.catalog.looking import Found, Looks, Show
from server.tools.inspecting.catalog.model import (
    VIEWS,
    ForeignKey,
    InspectedColumn,
    InspectedDatabase,
    InspectedTable,
    Type,
)

Connection: TypeAlias = "asyncpg.Connection[Any]"

_MOMENTS = {"timestamp", "timestamptz"}


async def with_view_keys(
    connection: Connection,
    database: InspectedDatabase,
    is_id: Callable[[Type], bool],
    hinted: Container[str] = frozenset(),
    seconds: float = 30.0,
    show: Show = lambda _: None,
) -> InspectedDatabase:
    """Return the database with the keys of its views, of partitioned tables whose primary key is no id, and of tables
    with inheriting tables. Reads rows of those whose keys no constraint guarantees.

    is_id: whether a column of a type can be part of an id. hinted: the names of tables whose keys are known. seconds:
    how long rows are read in all. show: called with what is looked at.
    """
    by_oid = {table.oid: table for table in database.tables}
    looked_at = [table for table in database.tables if _is_uncertain(table)]
    looks = Looks(connection, seconds, len(looked_at), show)
    for table in database.tables:
        is_hinted = table.full_name in hinted or f"{table.schema}.{table.name}" in hinted
        if _is_uncertain(table):
            looks.begin(table)
        # In the order of creation a view comes after what it shows, except after CREATE OR REPLACE VIEW.
        if table.kind in VIEWS and table.is_populated:
            by_oid[table.oid] = await _with_key(looks, table, by_oid, is_id, is_hinted=is_hinted)
        elif table.kind == "p" and not is_hinted:
            by_oid[table.oid] = await _with_part_of_key(looks, table, is_id)
        elif table.has_children and table.primary_key and not is_hinted:
            outcome = await looks.key(table, table.primary_key)
            by_oid[table.oid] = _with_found(table, table.primary_key, outcome)
    return msgspec.structs.replace(database, tables=tuple([by_oid[table.oid] for table in database.tables]))


def _is_uncertain(table: InspectedTable) -> bool:
    return (table.kind in VIEWS and not table.shows_rows_once) or table.kind == "p" or table.has_children


def _with_found(table: InspectedTable, columns: tuple[str, ...], outcome: Found) -> InspectedTable:
    """Return the table with what its rows say about a key."""
    if outcome == "unique":
        return msgspec.structs.replace(table, shown_key=columns)
    if outcome == "repeated":
        return msgspec.structs.replace(table, disproved=(*table.disproved, columns))
    return msgspec.structs.replace(table, why_unknown=outcome)


async def _with_key(
    looks: Looks,
    table: InspectedTable,
    by_oid: dict[int, InspectedTable],
    is_id: Callable[[Type], bool],
    *,
    is_hinted: bool,
) -> InspectedTable:
    shown = _shown(table, by_oid)
    table = msgspec.structs.replace(
        table,
        columns=tuple([_as_shown(table, column, by_oid, shown) for column in table.columns]),
        foreign_keys=tuple(_foreign_keys(shown, by_oid)),
    )
    if is_hinted:
        return table
    readable = {column.name for column in table.columns if column.may_select}
    candidates = list(_candidates(shown, by_oid))
    if table.grouped:
        candidates = await _grouped_candidates(looks, table, shown, candidates, readable)
    # Last are the keys with a column that cannot be part of an id: if one of them is chosen, a message says why.
    candidates.sort(key=lambda columns: not all(is_id(table.column(name).type) for name in columns))
    for columns in candidates:
        if not readable.issuperset(columns):
            continue
        table = _with_found(table, columns, "unique" if table.shows_rows_once else await looks.key(table, columns))
        # If one look finds no rows, or takes too long, the next one does too.
        if table.shown_key or table.why_unknown:
            break
    return table


async def _with_part_of_key(looks: Looks, table: InspectedTable, is_id: Callable[[Type], bool]) -> InspectedTable:
    """Return a partitioned table with the part of its primary key that is unique by itself. The other parts are in the
    key because PostgreSQL has no unique index without the partition key."""
    parts = [table.column(name) for name in table.primary_key]
    numbered = [part for part in parts if part.has_default and part.type.name in ("int2", "int4", "int8")]
    # A timestamp is in the key because the table is partitioned by it, not because it identifies a row.
    if all(is_id(part.type) and part.type.name not in _MOMENTS for part in parts) or len(numbered) != 1:
        return table
    columns = (numbered[0].name,)
    is_unique = numbered[0].may_select and await looks.key(table, columns) == "unique"
    return msgspec.structs.replace(table, shown_key=columns) if is_unique else table


_Shown = dict[int, dict[str, str]]
"""By the oid of a table, the column of the view that shows each column."""


def _shown(table: InspectedTable, by_oid: dict[int, InspectedTable]) -> _Shown:
    shown: _Shown = {}
    for column in table.columns:
        origin = _table_column(column.origin, by_oid)
        if origin is not None:
            shown.setdefault(origin[0].oid, {}).setdefault(origin[1], column.name)
    return shown


def _as_shown(
    table: InspectedTable, column: InspectedColumn, by_oid: dict[int, InspectedTable], shown: _Shown
) -> InspectedColumn:
    """Return the column of a view that can be written, with what its table says of it. If the view shows a column
    twice, only the first one is written: PostgreSQL refuses a statement that writes both."""
    origin = _table_column(column.origin, by_oid) if table.shows_rows_once else None
    if origin is None:
        return column
    base, name = origin
    below, is_plain = base.column(name), _is_plain(table, column.origin, by_oid)
    return msgspec.structs.replace(
        column,
        has_default_below=below.has_default or base.is_set_by_trigger(name),
        denied_sequences=below.denied_sequences if table.is_plain else (),
        is_generated=is_plain and below.is_generated,
        is_computed=column.is_computed or shown[base.oid][name] != column.name,
        is_not_null=column.is_not_null or (is_plain and below.is_not_null),
    )


def _is_plain(table: InspectedTable, origin: tuple[int, int] | None, by_oid: dict[int, InspectedTable]) -> bool:
    """Return whether a view, and each view that it shows, is written without rules and triggers of its own."""
    while table.is_plain and origin is not None:
        table = by_oid[origin[0]]
        if table.kind not in VIEWS:
            return True
        origin = next(column.origin for column in table.columns if column.number == origin[1])
    return False


def _foreign_keys(shown: _Shown, by_oid: dict[int, InspectedTable]) -> Iterator[ForeignKey]:
    """Yield the foreign keys of one column that the view shows. It may show a table twice, so that several columns need
    not be of one row."""
    for oid, columns in shown.items():
        for key in by_oid[oid].foreign_keys:
            if len(key.columns) == 1 and key.columns[0] in columns:
                yield ForeignKey(key.name, (columns[key.columns[0]],), key.target, key.references)


def _candidates(shown: _Shown, by_oid: dict[int, InspectedTable]) -> Iterator[tuple[str, ...]]:
    """Yield the columns of the view that show the whole key of a table, in the order of the view's columns."""
    for oid, columns in shown.items():
        key = by_oid[oid].key
        if key and columns.keys() >= set(key):
            yield tuple([columns[name] for name in key])


async def _grouped_candidates(
    looks: Looks,
    table: InspectedTable,
    shown: _Shown,
    candidates: list[tuple[str, ...]],
    readable: set[str],
) -> list[tuple[str, ...]]:
    """Return the columns that may be the key of a view that groups: first the key of a table by which it groups, if
    there are rows to look at. Then all columns by which it groups, without those that depend on such a key."""
    grouped = set(table.grouped)
    keys = [columns for columns in candidates if grouped.issuperset(columns)]
    dependent = {
        name
        for columns in shown.values()
        if any(set(key) <= set(columns.values()) for key in keys)
        for name in columns.values()
    }
    least = tuple([name for name in table.grouped if name not in dependent.difference(*keys)])
    has_rows = bool(keys) and readable.issuperset(keys[0]) and await looks.has_rows(table)
    return list(dict.fromkeys([*(keys if has_rows else ()), least, table.grouped, *candidates]))


def _table_column(
    origin: tuple[int, int] | None, by_oid: dict[int, InspectedTable]
) -> tuple[InspectedTable, str] | None:
    """Follow a column of a view through other views to the table that has it. None if that is not inspected, or if a
    view shows itself, which CREATE OR REPLACE VIEW allows."""
    followed: set[tuple[int, int]] = set()
    while origin is not None and origin not in followed and (table := by_oid.get(origin[0])) is not None:
        followed.add(origin)
        column = next((candidate for candidate in table.columns if candidate.number == origin[1]), None)
        if column is None:
            return None
        if table.kind not in VIEWS:
            return table, column.name
        origin = column.origin
    return None
