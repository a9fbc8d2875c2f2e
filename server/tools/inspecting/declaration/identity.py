"""Chooses the id of a table: its primary key, or another key.

What comes in: a table, and the hints about it. What goes out: the Id, or why the table cannot be served.
It must not know: other tables, files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from querybuild.declarations.id_types import NO_IDS
from querybuild.declarations.resource import Id
from querybuild.declarations.types import BIGINT, ColumnType
from querybuild.errors import listed, nearest, quoted
from server.schema.live_tables import RELATION_KINDS
from server.tools.inspecting.catalog.model import VIEWS, InspectedTable, Type
from server.tools.inspecting.declaration.column_types import column_type_of
from server.tools.inspecting.hints import TableHints, quoted_key, quoted_text


class Identity(msgspec.Struct, frozen=True):
    """The id of a table: its columns, and its declaration."""

    columns: tuple[str, ...]
    id: Id

    @property
    def is_composite(self) -> bool:
        """Whether it has several columns."""
        return len(self.columns) > 1


class NoIdentity(msgspec.Struct, frozen=True):
    """Why a table has no id. advice: what would help, for this table."""

    reason: str
    advice: str = ""


def identity_of(table: InspectedTable, hints: TableHints) -> Identity | NoIdentity:
    """Return the id of a table, or the reason why it has none, with what would help."""
    identity = _identity_of(table, hints)
    return NoIdentity(identity) if isinstance(identity, str) else identity


def _identity_of(table: InspectedTable, hints: TableHints) -> Identity | NoIdentity | str:
    if not table.is_populated:
        return f"it has no rows yet: REFRESH MATERIALIZED VIEW {table.full_name}"
    columns = hints.id_columns or table.key
    if table.shown_key and not hints.id_columns and not table.has_children:
        are_ids = all(is_id_type(table.column(name).type) for name in columns)
        columns = columns if are_ids and table.kind != "p" else table.shown_key
    known = {column.name: column for column in table.columns}
    if unknown := [name for name in columns if name not in known]:
        near = nearest(unknown[0], known)
        return f"the hints name its id {listed(map(quoted, unknown))}, and it has no such column.{near}"
    if not columns:
        return _no_key(table)
    if not any(column.may_select for column in table.columns):
        return f"the role may not read it: {table.grant('SELECT')}"
    if denied := [name for name in columns if not known[name].may_select]:
        return f"the role may not read its key: {table.grant('SELECT', *denied)}"
    types = [column_type_of(known[name].type) for name in columns]
    for name in columns:
        if not is_id_type(known[name].type):
            return (
                f"its key {quoted(name)} is {known[name].type.shown}, which no id can have: name another key in the "
                "hints, or add one"
            )
    return Identity(columns, _id(table, columns, types))


def is_id_type(live_type: Type) -> bool:
    """Return whether a column of a type can be part of an id. PostgreSQL does not compare a domain over an enum."""
    return column_type_of(live_type).id_type is not NO_IDS and not (live_type.labels and live_type.domains)


def _id(table: InspectedTable, columns: tuple[str, ...], types: list[ColumnType]) -> Id:
    arguments: dict[str, Any] = {}
    if len(columns) > 1:
        arguments["columns"] = columns
        if any(column_type is not BIGINT for column_type in types):
            arguments["types"] = tuple(types)
    else:
        arguments |= {"column": columns[0], "type": types[0]}
    if not _is_enforced(table, columns) and (not table.has_children or columns == table.shown_key):
        arguments["unique"] = True
    return Id(**arguments)


def _is_enforced(table: InspectedTable, columns: tuple[str, ...]) -> bool:
    """Return whether a constraint keeps these columns unique, of the table or of the one that a view shows."""
    if table.kind in VIEWS:
        return table.shows_rows_once and columns == table.shown_key
    return not table.has_children and any(set(unique) <= set(columns) for unique in table.unique)


_UNKNOWN = {
    "empty": "it has no rows that would show which key they have",
    "slow": "it is too slow to look at its rows for a key",
    "refused": "its rows cannot be read, to look for a key",
}
"""Why the rows of a table say nothing about a key -> the reason."""


def _no_key(table: InspectedTable) -> NoIdentity | str:
    if not table.columns:
        return "it has no columns"
    known = [column.name for column in table.columns if column.may_select and is_id_type(column.type)]
    kind = RELATION_KINDS[table.kind]
    if table.kind in VIEWS and not known:
        return f"no column of the {kind} can be an id: add the key of its rows"
    left = [name for name in known if (name,) not in table.disproved]
    advice = f"[tables.{quoted_key(table.full_name)}]: id = {_example(table, left, known)}" if known else ""
    if table.kind in VIEWS:
        unknown = _UNKNOWN.get(table.why_unknown, f"no column of the {kind} is known to be a key")
        return NoIdentity(f"{unknown}: name one in the hints", advice)
    if table.has_children:
        return NoIdentity(
            "other tables inherit from it, so that no index keeps its key unique: name its key in the hints", advice
        )
    helping = "add a primary key, or a unique index over columns that are NOT NULL"
    if not advice:
        return f"it has no key: {helping}"
    return NoIdentity(f"it has no key: {helping}, or name columns in the hints that are unique", advice)


def _example(table: InspectedTable, left: Sequence[str], known: Sequence[str]) -> str:
    """Return the columns of a key that the rows may have, as TOML. left: the columns that can be an id and that are not
    known to be repeated. known: those that can be an id."""
    usual = ("id", f"{table.name}_id", f"{table.name.removesuffix('s')}_id")
    chosen = next((name for name in usual if name in left), left[0] if left else "")
    if chosen:
        return quoted_text(chosen)
    return "[" + ", ".join(map(quoted_text, known[:2])) + "]"
