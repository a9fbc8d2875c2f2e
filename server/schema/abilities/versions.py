"""Finds out what tells whether a row has changed: a declared column, or `xmin` where a table has it.

What comes in: a connection, resources and the tables of `live_tables.py`. What goes out: the versions of their rows. It
must not know: requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg
import msgspec

from querybuild.declarations.database_types.versions import row_version, system_version
from querybuild.declarations.resource import Resource, RowVersion
from server.schema.live_statements import Trial
from server.schema.live_tables import LiveTable


async def read_versions(
    connection: asyncpg.Connection[Any], tables: Mapping[Resource, LiveTable], roles: Sequence[str]
) -> dict[Resource, RowVersion]:
    """Return the version of the rows of each resource that has one. roles: those of the requests. Each must be able to
    read it."""
    versions: dict[Resource, RowVersion] = {}
    reads: dict[Resource, str] = {}
    for resource, table in tables.items():
        declared = resource.declared_version
        if declared is not None:
            column = table.columns[declared.column]
            versions[resource] = row_version(declared, column.type, is_generated=column.is_generated)
        elif table.is_table:
            # PostgreSQL cannot return it of partitions.
            versions[resource] = system_version(is_returned=table.kind == "r")
            reads[resource] = f"SELECT xmin FROM {table.quoted_name}"
    # A role with privileges on some columns cannot read it, and a table of an extension may have none.
    for role in roles or ("",):
        for resource in await Trial(connection, (role,) if role else ()).refused(reads):
            versions.pop(resource, None)
    return versions


def with_read_only_version(resource: Resource) -> Resource:
    """Return the resource. If the column of its version is an attribute too, no request may write it."""
    version = resource.abilities.version
    names = {
        attribute.name
        for attribute in resource.attributes
        if version is not None and attribute.column_name == version.column
    }
    if not any(
        attribute.name in names and (attribute.creatable or attribute.updatable) for attribute in resource.attributes
    ):
        return resource
    attributes = [
        msgspec.structs.replace(attribute, creatable=False, updatable=False, required=False)
        if attribute.name in names
        else attribute
        for attribute in resource.attributes
    ]
    return msgspec.structs.replace(resource, attributes=tuple(attributes))
