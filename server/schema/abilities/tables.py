"""Finds out what PostgreSQL can do with the tables of resources: plain tables can do everything, and views cannot.

What comes in: a connection, resources and the tables of `live_tables.py`. What goes out: the resources with this. It
must not know: requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import asyncpg
import msgspec

from querybuild.declarations.resource import Relationship, Resource, TableAbilities, link_of
from querybuild.declarations.terms import quote_ident
from server.schema.abilities.side_effects import SideEffects, read_side_effects
from server.schema.abilities.versions import read_versions, with_read_only_version
from server.schema.comparing.keys import with_relationships
from server.schema.comparing.privileges import written_columns
from server.schema.live_ids import UnenforcedKeys
from server.schema.live_statements import Trial, is_gone
from server.schema.live_tables import INSERT, UPDATE, FoundTables, LiveTable, QualifiedName

_CANNOT = (
    asyncpg.FeatureNotSupportedError,
    asyncpg.InvalidColumnReferenceError,
    asyncpg.ObjectNotInPrerequisiteStateError,
    asyncpg.WrongObjectTypeError,
)
"""What PostgreSQL raises for a lock or an ON CONFLICT that a table or view does not have."""


async def with_abilities(
    connection: asyncpg.Connection[Any],
    resources: Sequence[Resource],
    found_tables: FoundTables,
    unenforced_keys: UnenforcedKeys,
    roles: Sequence[str],
) -> list[Resource]:
    """Return the resources with what PostgreSQL can do with their tables. found_tables: these tables. roles: those of
    the requests, if it is not the server's own."""
    tables = {
        resource: table
        for resource in resources
        if (table := found_tables[resource.schema, resource.table]) is not None
    }
    locks = {
        resource: _lock(resource, table) for resource, table in tables.items() if table.kind not in ("r", "p", "m")
    }
    no_locks = {resource for resource, table in tables.items() if table.kind == "m"} | await _refused(connection, locks)
    conflicts = {
        resource: _conflict(resource, table)
        for resource, table in tables.items()
        if _needs_conflicts_of_id(resource, table)
    }
    no_conflicts = await _refused(connection, conflicts)
    same = await _same_columns(connection, {resource: table for resource, table in tables.items() if table.kind == "v"})
    oids = {name: table.oid for name, table in found_tables.items() if table is not None}
    side_effects = await read_side_effects(connection, list(oids.values()))
    by_name = {name: side_effects[oid] for name, oid in oids.items()}
    versions = await read_versions(connection, tables, roles)
    nothing = SideEffects()
    abilities = {
        resource: TableAbilities(
            locks_rows=resource not in no_locks,
            has_conflicts_of_id=resource not in no_conflicts,
            same_columns=same.get(resource, ()),
            **msgspec.structs.asdict(by_name.get((resource.schema, resource.table), nothing)),
            has_unique_ids=(resource.type, "") not in unenforced_keys,
            version=versions.get(resource),
            **(_of_table(tables[resource]) if resource in tables else {}),
        )
        for resource in resources
    }
    return [
        with_relationships(
            with_read_only_version(resource)
            if resource.abilities == abilities[resource]
            else with_read_only_version(msgspec.structs.replace(resource, abilities=abilities[resource])),
            [_with_link_abilities(relationship, by_name, found_tables) for relationship in resource.relationships],
        )
        for resource in resources
    ]


def _of_table(table: LiveTable) -> dict[str, Any]:
    """Return the fields of TableAbilities that the table alone tells."""
    return {
        "cancels_writes": table.cancels_writes,
        "has_policies": table.has_policies,
        "has_rules": table.has_rules,
        "is_view": not table.is_table,
        "unique_keys": table.unique_keys,
        # PostgreSQL cannot return `xmax` of partitions.
        "tells_updates": table.kind == "r",
        "indexed": table.indexed,
        "knn_indexed": table.knn_indexed,
        "null_columns": table.null_columns,
    }


def _with_link_abilities(
    relationship: Relationship, by_name: Mapping[QualifiedName, SideEffects], tables: FoundTables
) -> Relationship:
    """Return the relationship, with what can tell how the rows of its link table are written, and its indexes."""
    link = link_of(relationship)
    if link is None or (table := tables.get(name := (link.schema, link.table))) is None or name not in by_name:
        return relationship
    merged = by_name[name].merged
    if (link.merged, link.indexed) == (merged, table.indexed):
        return relationship
    link = msgspec.structs.replace(link, merged=merged, indexed=table.indexed)
    return msgspec.structs.replace(relationship, through=link)


def _lock(resource: Resource, table: LiveTable) -> str:
    return f"SELECT {quote_ident(resource.id.key.columns[0])} FROM {table.quoted_name} FOR KEY SHARE"


def _needs_conflicts_of_id(resource: Resource, table: LiveTable) -> bool:
    """Return whether ON CONFLICT must name the id, and no index of the table shows that it can. Only resources whose
    ids are chosen by clients and by a sequence need this."""
    is_used = resource.client_ids and "create" in resource.methods and resource.id_type.is_number
    return is_used and bool(table.allowed_writes & INSERT) and not table.has_unique(*resource.id.key.columns)


def _conflict(resource: Resource, table: LiveTable) -> str:
    column = quote_ident(resource.id.key.columns[0])
    return f"INSERT INTO {table.quoted_name} ({column}) VALUES (DEFAULT) ON CONFLICT ({column}) DO NOTHING"


async def _same_columns(
    connection: asyncpg.Connection[Any], views: Mapping[Resource, LiveTable]
) -> dict[Resource, tuple[tuple[str, str], ...]]:
    """Return the pairs of columns of which PostgreSQL writes only one, because they are the same column of a table. A
    view with INSTEAD OF triggers may write both."""
    writes = {(view, sql): names for view, table in views.items() for sql, names in _writes(view, table)}
    refused = await Trial(connection).refused({key: key[1](views[key[0]], names) for key, names in writes.items()})
    columns_of_each: dict[Resource, tuple[tuple[str, str], ...]] = {}
    for resource, sql in refused:
        table, names = views[resource], writes[resource, sql]
        if await _sets_twice(connection, sql(table, names)):
            pairs = [(name, other) for index, name in enumerate(names) for other in names[:index]]
            twice = [pair for pair in pairs if await _sets_twice(connection, sql(table, pair))]
            # The first of several columns that are the same comes first.
            columns_of_each[resource] = tuple(dict(twice[::-1]).items())
    return columns_of_each


_Sql = Callable[[LiveTable, Sequence[str]], str]


def _writes(resource: Resource, table: LiveTable) -> Iterator[tuple[_Sql, Sequence[str]]]:
    """Yield the statements that write a view, with the columns that a request may set."""
    for method, event, sql in (("create", INSERT, _insert), ("update", UPDATE, _update)):
        names = sorted(written_columns(resource, on_create=method == "create") & table.columns.keys())
        if method in resource.methods and table.allowed_writes & event and len(names) > 1:
            yield sql, names


def _insert(table: LiveTable, names: Sequence[str]) -> str:
    listed = ",".join(map(quote_ident, names))
    return f"INSERT INTO {table.quoted_name} ({listed}) SELECT {listed} FROM {table.quoted_name}"


def _update(table: LiveTable, names: Sequence[str]) -> str:
    return f"UPDATE {table.quoted_name} SET " + ",".join([f"{name}={name}" for name in map(quote_ident, names)])


async def _sets_twice(connection: asyncpg.Connection[Any], sql: str) -> bool:
    """Return whether a statement sets a column of a table twice."""
    try:
        await connection.execute(f"EXPLAIN {sql}")
    except asyncpg.PostgresError as error:
        return isinstance(error, asyncpg.PostgresSyntaxError)
    return False


async def _refused(connection: asyncpg.Connection[Any], statements: dict[Resource, str]) -> set[Resource]:
    """Return the resources whose statements PostgreSQL cannot execute. Other errors say nothing about that: a missing
    privilege, the server of a foreign table that is down or has no such table."""
    refused = set()
    for resource in await Trial(connection).refused(statements):
        try:
            await connection.execute(f"EXPLAIN {statements[resource]}")
        except _CANNOT:
            refused.add(resource)
        except asyncpg.PostgresError as error:
            if is_gone(error):
                raise
    return refused
