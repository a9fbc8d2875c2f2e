"""Tries how the declared versions change: it writes a row of each resource in a transaction that is rolled back.

What comes in: a connection and the catalog with what is known of the tables. What goes out: messages. It must not know:
requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import asyncpg

from querybuild.declarations.catalog import Catalog
from querybuild.declarations.resource import Resource, RowVersion
from querybuild.declarations.terms import quote_ident
from querybuild.errors import quoted
from server.schema.fault import Fault
from server.schema.live_statements import is_gone

_LOCK_TIMEOUT = "SET LOCAL lock_timeout = '1s'"


async def check_versions(
    connection: asyncpg.Connection[Any], catalog: Catalog, show: Callable[[str], None] = lambda _: None
) -> tuple[str, ...]:
    """Return a message for each declared version that something else changes than the declaration says. show: is called
    with what is done next."""
    faults = [str(fault) for fault in _uncounted(catalog)]
    for resource in catalog:
        version = resource.abilities.version
        if version is None or not version.is_written:
            continue
        show(f"trying the version of {resource.type}")
        try:
            values = await _tried(connection, resource, version)
        except asyncpg.PostgresError as error:
            if is_gone(error):
                raise
            reason: str | None = f"a row cannot be written: {error.args[0]}"
        else:
            reason = _wrong(version, values)
        if reason is not None:
            where = f"version: the column {quoted(version.column)}: "
            faults.append(str(Fault(where + reason, resource.type)))
    return tuple(faults)


def _uncounted(catalog: Catalog) -> Iterator[Fault]:
    """Yield the resources that write rows whose version the server only counts for another resource."""
    counted = {
        (versioned.schema, versioned.table): versioned
        for versioned in catalog
        if versioned.abilities.version and versioned.abilities.version.is_counted
    }
    for resource in catalog:
        other, own = counted.get((resource.schema, resource.table)), resource.abilities.version
        is_written = not resource.methods.isdisjoint({"create", "update"})
        if other is not None and is_written and not (own is not None and own.is_counted):
            yield Fault(f"version: it writes rows of {quoted(other.type)}: declare the same version", resource.type)


async def _tried(connection: asyncpg.Connection[Any], resource: Resource, version: RowVersion) -> list[str | None]:
    """Return the version of a row, and what two writes that set it to itself make of it. Empty if there is no row."""
    names = [resource.table] if resource.schema is None else [resource.schema, resource.table]
    table, column = ".".join(map(quote_ident, names)), quote_ident(version.column)
    key = ",".join(map(quote_ident, resource.id.key.columns))
    condition = f"({key}) IN (SELECT {key} FROM {table} ORDER BY {key} LIMIT 1)"
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute(_LOCK_TIMEOUT)
        values = [row[0] for row in await connection.fetch(f"SELECT {column}::text FROM {table} WHERE {condition}")]
        for _ in values * 2:
            await connection.execute(f"UPDATE {table} SET {column} = {column} WHERE {condition}")
            values += [
                row[0] for row in await connection.fetch(f"SELECT {column}::text FROM {table} WHERE {condition}")
            ]
    finally:
        await transaction.rollback()
    return values


def _wrong(version: RowVersion, values: list[str | None]) -> str | None:
    """Return what is wrong with a version. values: those of a row before, between and after two writes."""
    if len(values) != 3:
        return None
    before, between, after = values
    if version.is_counted:
        return None if before == after else 'a trigger changes it too: declare by="database"'
    if before == between:
        return 'no write changes it: it needs a trigger, or declare it by="server"'
    repeats = "it is the same after two writes of one transaction: take clock_timestamp() instead of now()"
    return repeats if between == after else None
