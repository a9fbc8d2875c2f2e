"""Compares the declared version of a resource with the column of its table.

It must not know: requests, how the tables were read.
"""

from __future__ import annotations

from collections.abc import Iterator

from querybuild.declarations.database_types.versions import VERSION_TYPES, can_be_counted, has_versions, is_counted
from querybuild.declarations.resource import Resource
from querybuild.errors import quoted
from server.schema.comparing.keys import missing
from server.schema.comparing.privileges import read_privileges
from server.schema.live_tables import LiveTable


def version_faults(resource: Resource, table: LiveTable, *, is_read_only: bool) -> Iterator[str]:
    """Return what does not match between the declared version and its column, or keeps the role from using it.
    is_read_only: whether nothing is written."""
    declared = resource.declared_version
    if declared is None:
        return
    column = table.columns.get(declared.column)
    if column is None:
        yield from (f"version: {reason}" for reason in missing(declared.column, resource.table, table.columns))
        return
    where = f"version: the column {quoted(declared.column)}"
    if not has_versions(column.type):
        yield f"{where} is {column.type}: a version is {VERSION_TYPES}"
        return
    yield from read_privileges(table, (declared.column,))
    if is_read_only or not is_counted(declared, column.type):
        return
    if not can_be_counted(column.type):
        yield f'{where} is {column.type}, and the server can only count whole numbers: declare by="database"'
    elif column.is_generated or column.is_computed:
        yield f'{where} is computed by the database, so the server cannot count it: declare by="database"'
