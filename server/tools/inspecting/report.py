"""Does what `waterspout inspect` and `serve --inspect` do with a connection: the text of a module, or the resources.

It must not know: the command line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeAlias

import asyncpg
import msgspec

from querybuild.declarations.catalog import Catalog, CatalogError
from querybuild.errors import quoted
from server.postgres.row_security.roles import roles_of
from server.schema.fault import Fault
from server.schema.live_schema import LiveSchema, read_live_schema
from server.settings import Settings, StartError
from server.tools.advising import index_advisor
from server.tools.inspecting.catalog.choosing import TableChoice
from server.tools.inspecting.catalog.looking import Show
from server.tools.inspecting.catalog.model import InspectedDatabase
from server.tools.inspecting.catalog.reading import read_database
from server.tools.inspecting.catalog.role_privileges import with_privileges_of
from server.tools.inspecting.catalog.routines import with_routines
from server.tools.inspecting.catalog.view_keys import with_view_keys
from server.tools.inspecting.catalog.view_rights import with_rights_below
from server.tools.inspecting.declaration.functions import refused_functions, with_functions
from server.tools.inspecting.declaration.identity import is_id_type
from server.tools.inspecting.declaration.resources import declare
from server.tools.inspecting.fitting import faults_of, without
from server.tools.inspecting.hints import load_hints
from server.tools.inspecting.inspected import Inspection
from server.tools.inspecting.text.module import python_module

Connection: TypeAlias = "asyncpg.Connection[Any]"


ROUNDS = 8
"""What is left out may be the target of a relationship whose fault comes first. In the last round, a resource with a
fault is left out as a whole."""


class Report(msgspec.Struct, frozen=True):
    """The result of the command. text: of the module. remarks: lines for the user."""

    text: str
    remarks: tuple[str, ...]


class Compared(msgspec.Struct, frozen=True, eq=False):
    """An inspection. catalog, schema: its resources, and what comparing them with the tables found; None if there are
    no resources, or if they still do not fit."""

    inspection: Inspection
    catalog: Catalog | None = None
    schema: LiveSchema | None = None


async def inspect_database(
    connection: Connection, settings: Settings, choice: TableChoice | None = None, show: Show = lambda _: None
) -> Compared:
    """Return the declarations of the tables. choice: what the command line says, which comes before the hints. show: is
    called with what is done next.

    Raises StartError, and asyncpg's errors.
    """
    given, hints = choice or TableChoice(), load_hints(settings.hints)
    chosen = hints.choice(given.schemas, given.only, given.skip)
    roles = roles_of(settings)
    database = await with_routines(connection, chosen, await read_database(connection, chosen, roles))
    if unknown := given.unknown(database):
        raise StartError("\n".join(unknown))
    if not database.tables:
        raise StartError("\n".join([_no_table(database), *hints.unknown_names(database)]))
    if roles:
        database = await with_privileges_of(connection, database, roles)
    hinted = {name for name, table_hints in hints.tables.items() if table_hints.id_columns}
    database = await with_view_keys(connection, database, is_id_type, hinted, settings.view_seconds, show)
    show("comparing the declarations with the tables")
    if not roles:
        database = await with_rights_below(connection, database)
    routines, inspection = database.routines, declare(database, hints)
    refused: dict[str, str] = {}
    for number in range(ROUNDS if inspection.inspected else 0):
        whole = with_functions(inspection, routines, hints, refused, has_roles=settings.has_row_security)
        catalog, faults = _catalog_of(whole)
        if catalog is not None:
            schema = await read_live_schema(connection, catalog, is_read_only=settings.read_only, roles=roles)
            if not schema.faults:
                return Compared(whole, catalog, schema)
            faults = schema.faults
        refused |= refused_functions(whole, faults)
        is_last = number == ROUNDS - 1
        inspection = without(inspection, [fault.of_resource for fault in faults] if is_last else faults)
        if not inspection.inspected:
            break
    return Compared(with_functions(inspection, routines, hints, refused, has_roles=settings.has_row_security))


def _no_table(database: InspectedDatabase) -> str:
    if not database.names:
        return "the database has no tables: check that database_url names the right one"
    return "no table of the database is chosen: check --schema, --only, --skip and the hints"


async def report_on(
    connection: Connection, settings: Settings, choice: TableChoice, show: Show = lambda _: None
) -> Report:
    """Return the module and the remarks of the command. show: as for `inspect_database`. Raises StartError, and
    asyncpg's errors."""
    name: str = await connection.fetchval("SELECT current_database()")
    compared = await inspect_database(connection, settings, choice, show)
    inspection, indexes = compared.inspection, tuple[str, ...]()
    if inspection.inspected:
        suggestions = await index_advisor.suggest(connection, compared.catalog or _catalog(inspection))
        indexes = tuple(
            [f"{suggestion.sql}  -- {suggestion.reason}" for suggestion in suggestions if suggestion.rank == "missing"]
        )
    return Report(python_module(inspection, name), (*inspection.remarks, *_indexes(indexes), summary(inspection, name)))


def _indexes(lines: tuple[str, ...]) -> tuple[str, ...]:
    return tuple([f"missing index: {line}" for line in lines])


def summary(inspection: Inspection, database: str) -> str:
    """Return one line about an inspection."""
    functions = f" and {_counted(len(inspection.functions), 'function')}" if inspection.functions else ""
    counts = [
        f"{_counted(len(inspection.inspected), 'resource')}{functions} of the database {quoted(database)}",
        _counted(inspection.links, "link table") if inspection.links else "",
        f"{len(inspection.not_served)} not served" if inspection.not_served else "",
        f"{_counted(len(inspection.not_called), 'function')} without a route" if inspection.not_called else "",
        f"left out: {_listed(inspection.left_out)}" if inspection.left_out else "",
    ]
    return "; ".join(filter(None, counts))


def _listed(kinds: Sequence[str]) -> str:
    return ", ".join([_counted(count, kind) for kind, count in sorted(Counter(kinds).items())])


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


async def inspected_catalog(
    connection: Connection, settings: Settings, show: Show = lambda _: None
) -> tuple[Catalog, Compared]:
    """Return the catalog of `serve --inspect`, and how it was found. show: as for `inspect_database`. Raises
    StartError, and asyncpg's errors."""
    compared = await inspect_database(connection, settings, show=show)
    if not compared.inspection.inspected:
        raise StartError("no table of the database can be served: `waterspout inspect` says why")
    return compared.catalog or _catalog(compared.inspection), compared


def _catalog_of(inspection: Inspection) -> tuple[Catalog | None, Sequence[Fault]]:
    """Return the catalog, or the faults of single declarations, which are left out. Raises StartError for others, such
    as two types of one name."""
    try:
        return Catalog(inspection.declarations), ()
    except CatalogError as error:
        faults = faults_of(error)
        if any(fault.resource or fault.function for fault in faults):
            return None, faults
        advice = "give types, paths and fields other names in the hints"
        raise StartError(f"the tables cannot be declared: {advice}\n{error}") from error


def _catalog(inspection: Inspection) -> Catalog:
    """Return the catalog. Raises StartError."""
    catalog, faults = _catalog_of(inspection)
    if catalog is None:
        raise StartError("\n".join(["the tables cannot be declared", *map(str, faults)]))
    return catalog
