"""Finds what the role may not do through views. PostgreSQL checks privileges on the tables below a view when a
statement is executed: those of the view's owner, or with `security_invoker` those of the role.

What comes in: a connection and tables. What goes out: the tables. It must not know: declarations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import asyncpg
import msgspec

from querybuild.declarations.terms import quote_ident
from server.schema.live_statements import Trial
from server.tools.inspecting.catalog.model import (
    DELETE,
    INSERT,
    UPDATE,
    InspectedColumn,
    InspectedDatabase,
    InspectedTable,
)

Connection: TypeAlias = "asyncpg.Connection[Any]"

_Write = tuple[int, int, tuple[str, ...]]
"""The oid of a view, the event and the columns that it writes."""


async def with_rights_below(connection: Connection, database: InspectedDatabase) -> InspectedDatabase:
    """Return the database without the rights on views that the tables below them do not give."""
    views = {table.oid: table for table in database.tables if table.kind == "v"}
    denied = await _denied(connection, views, [write for view in views.values() for write in _writes(view)])
    single_names: list[_Write] = [
        (oid, event, (name,)) for oid, event, names in denied for name in names if len(names) > 1
    ]
    rights: defaultdict[int, set[tuple[int, str]]] = defaultdict(set)
    for oid, event, names in (*denied, *await _denied(connection, views, single_names)):
        if len(names) < 2:
            rights[oid].add((event, "".join(names)))
    changed = [_without(table, rights[table.oid]) if table.oid in rights else table for table in database.tables]
    return msgspec.structs.replace(database, tables=tuple(changed))


def _writes(view: InspectedTable) -> Iterator[_Write]:
    open_columns = [column for column in view.columns if column.may_select and not column.is_fixed]
    inserted = tuple([column.name for column in open_columns if column.may_insert])
    updated = tuple([column.name for column in open_columns if column.may_update])
    if inserted and view.allowed_writes & INSERT:
        yield view.oid, INSERT, inserted
    if updated and view.allowed_writes & UPDATE:
        yield view.oid, UPDATE, updated
    if view.may_delete and view.allowed_writes & DELETE:
        yield view.oid, DELETE, ()


async def _denied(
    connection: Connection, views: Mapping[int, InspectedTable], writes: Sequence[_Write]
) -> list[_Write]:
    """Return the writes that a missing privilege prevents."""
    statements = {write: _sql(views[write[0]], write) for write in writes}
    denied = []
    for write in await Trial(connection).refused(statements):
        try:
            await connection.execute(f"EXPLAIN {statements[write]}")
        except asyncpg.InsufficientPrivilegeError:
            denied.append(write)
        except asyncpg.PostgresError:
            # It says nothing about privileges. Comparing the declarations with the view finds it.
            pass
    return denied


def _sql(view: InspectedTable, write: _Write) -> str:
    _, event, names = write
    name, columns = f"{quote_ident(view.schema)}.{quote_ident(view.name)}", [quote_ident(column) for column in names]
    if event == DELETE:
        return f"DELETE FROM {name}"
    if event == UPDATE:
        return f"UPDATE {name} SET {','.join([f'{column}={column}' for column in columns])}"
    return f"INSERT INTO {name} ({','.join(columns)}) SELECT {','.join(columns)} FROM {name}"


def _without(view: InspectedTable, denied: set[tuple[int, str]]) -> InspectedTable:
    """Return a view without rights. denied: events with the names of columns; a DELETE has none."""
    columns = tuple([_limited(column, denied) for column in view.columns])
    return msgspec.structs.replace(
        view,
        columns=columns,
        may_delete=view.may_delete and (DELETE, "") not in denied,
        may_lock=view.may_lock and any(column.may_update for column in columns),
    )


def _limited(column: InspectedColumn, denied: set[tuple[int, str]]) -> InspectedColumn:
    may_insert = column.may_insert and (INSERT, column.name) not in denied
    may_update = column.may_update and (UPDATE, column.name) not in denied
    return msgspec.structs.replace(column, may_insert=may_insert, may_update=may_update)
