"""Finds out what PostgreSQL can do with the relations of resources: tables can do everything, and views cannot.

What comes in: a connection, the Catalog and the tables of `live_tables.py`. What goes out: the Catalog with this. It
must not know: requests.
"""

from __future__ import annotations

from typing import Any

import asyncpg
import msgspec

from querybuild.declarations.catalog import Catalog
from querybuild.declarations.resource import Relation, Resource
from querybuild.declarations.terms import quote_ident
from querybuild.declarations.types import SEQUENCE_TYPES
from server.schema.live_tables import INSERT, FoundTables, Table

_CANNOT = (
    asyncpg.FeatureNotSupportedError,
    asyncpg.InvalidColumnReferenceError,
    asyncpg.ObjectNotInPrerequisiteStateError,
    asyncpg.WrongObjectTypeError,
)
"""What PostgreSQL raises for a lock or an ON CONFLICT that a relation does not have."""


async def with_relations(connection: asyncpg.Connection[Any], catalog: Catalog, found: FoundTables) -> Catalog:
    """Return the Catalog with what PostgreSQL can do with the relations. It is the same object if that is everything.
    found: the tables of all resources."""
    relations = {one: await _relation_of(connection, one, found[one.schema, one.table]) for one in catalog}
    if all(relation == one.relation for one, relation in relations.items()):
        return catalog
    return catalog.with_resources(
        [msgspec.structs.replace(one, relation=relation) for one, relation in relations.items()]
    )


async def _relation_of(connection: asyncpg.Connection[Any], resource: Resource, table: Table | None) -> Relation:
    if table is None:
        return resource.relation
    return Relation(
        locks_rows=await _can_lock(connection, resource, table),
        has_conflicts_of_id=await _has_conflicts_of_id(connection, resource, table),
    )


async def _can_lock(connection: asyncpg.Connection[Any], resource: Resource, table: Table) -> bool:
    if table.kind in ("r", "p"):
        return True
    column = quote_ident(resource.id.key.columns[0])
    return table.kind != "m" and await _can(connection, f"SELECT {column} FROM {table.quoted_name} FOR KEY SHARE")


async def _has_conflicts_of_id(connection: asyncpg.Connection[Any], resource: Resource, table: Table) -> bool:
    """Return whether ON CONFLICT can name the id. Only resources whose ids are chosen by clients and by a sequence need
    this."""
    is_used = resource.client_ids and "create" in resource.methods and resource.id.type in SEQUENCE_TYPES
    if not is_used or not table.allowed_writes & INSERT or table.has_unique(*resource.id.key.columns):
        return True
    column = quote_ident(resource.id.key.columns[0])
    insert = f"INSERT INTO {table.quoted_name} ({column}) VALUES (DEFAULT)"
    return await _can(connection, f"{insert} ON CONFLICT ({column}) DO NOTHING")


async def _can(connection: asyncpg.Connection[Any], sql: str) -> bool:
    """Return whether PostgreSQL can execute a statement. A missing privilege says nothing about that."""
    try:
        async with connection.transaction():
            await connection.execute(f"EXPLAIN {sql}")
    except _CANNOT:
        return False
    except asyncpg.InsufficientPrivilegeError:
        return True
    return True
