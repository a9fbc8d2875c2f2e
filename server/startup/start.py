"""Prepares a start: loads the declarations, starts the embedded database, applies migrations, checks the live schema.

What comes in: settings. What goes out: the declarations, and a database that they fit.

It must not know: sockets, processes, HTTP.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from itertools import chain
from typing import Any

import asyncpg

from querybuild.errors import listed
from server.embedded import postgres as embedded
from server.postgres.driver_errors import in_one_line
from server.postgres.hosts import describe_hosts
from server.postgres.opening import open_alone
from server.postgres.row_security.roles import roles_of
from server.postgres.temp_files import check_temp_file_limit
from server.resources import built_in
from server.resources.demo import load_demo
from server.schema.fault import shown
from server.schema.live_schema import LiveSchema, read_live_schema
from server.settings import Settings, StartError
from server.settings.served import is_built_in, misfit
from server.startup import migrating
from server.startup.declarations import Declarations, check_file, extend_python_path, load_declarations
from server.startup.unreachable import unreachable
from server.tools.console.progress import clear_line, step

log = logging.getLogger("server")

Supervise = Callable[[], None]
_DATABASE_ERRORS = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)


def declarations(settings: Settings) -> Declarations:
    """Return the declarations that the settings name, or the built-in ones. Raises StartError."""
    if settings.python_path is not None:
        extend_python_path(settings.python_path)
    if settings.inspect:
        loaded = _inspected(settings)
    else:
        loaded = Declarations(built_in()) if settings.resources is None else load_declarations(settings.resources)
    path = settings.operations_path
    taken = [resource for resource in loaded.catalog if path and f"{path}/".startswith(f"{resource.path}/")]
    if taken:
        raise StartError(f"operations_path {path} is below the collection {taken[0].path}: choose another")
    return loaded


def check_inspect(settings: Settings) -> None:
    """Refuse settings that `inspect` excludes, or lacks. Raises StartError."""
    if not settings.inspect:
        return
    if settings.resources is not None:
        raise StartError("inspect declares the resources itself: leave out --inspect or --resources")
    if settings.database_url is None:
        raise StartError("inspect is for a database with tables: say where it is with --database-url")
    if settings.migrate:
        raise StartError(
            "inspect reads the tables before the start: run `waterspout migrate up`, and leave out --migrate"
        )


def _inspected(settings: Settings) -> Declarations:
    """Return the declarations that the tables of the database give. Raises StartError."""
    check_inspect(settings)
    url = settings.database_url
    assert url is not None
    # Imported here: only these starts need it.
    from server.tools.inspecting.report import inspected_catalog, summary

    async def read() -> Declarations:
        async with connected(url, settings) as connection:
            with step("inspecting the database") as show:
                catalog, compared = await inspected_catalog(connection, settings, show)
            name = await connection.fetchval("SELECT current_database()")
        log.info("inspected: %s", summary(compared.inspection, name))
        for left_out in compared.inspection.not_served:
            log.warning("%s is not served: %s", left_out.full_name, left_out.text)
        for made in compared.inspection.functions:
            for note in made.notes:
                log.warning("the function %s has a route: %s", made.full_name, note)
        return Declarations(catalog, schema=compared.schema)

    return asyncio.run(read())


def open_database_url(settings: Settings, cleanup: ExitStack) -> tuple[str, Supervise | None]:
    """Return the URL of the database in the settings. Without one, start the embedded database, and return its URL and
    the function that supervises it. Raises StartError."""
    check_inspect(settings)
    if settings.resources is not None:
        # Before a database is created for resources that do not exist.
        check_file(settings.resources)
    if settings.database_url is not None:
        return settings.database_url, None
    data_dir = settings.data_dir or embedded.default_data_dir()
    with step("starting PostgreSQL"):
        server = embedded.start(data_dir, say=say)
    cleanup.callback(server.stop)
    log.info("the database is the embedded one, in %s", data_dir.expanduser().absolute())
    return server.dsn, server.supervise


@asynccontextmanager
async def connected(url: str, settings: Settings) -> AsyncIterator[asyncpg.Connection[Any]]:
    """Open a connection for the steps of a start. Raises StartError if the database cannot be reached."""
    try:
        connection = await open_alone(url, settings)
    except (*_DATABASE_ERRORS, asyncpg.TargetServerAttributeNotMatched) as error:
        raise StartError(unreachable(error, url, is_of_user=settings.database_url is not None)) from error
    try:
        yield connection
    except _DATABASE_ERRORS as error:
        reason = in_one_line(error) or type(error).__name__
        raise StartError(f"the database is not usable for this server: {reason}") from error
    finally:
        await connection.close()


async def compare(connection: asyncpg.Connection[Any], settings: Settings, declared: Declarations) -> LiveSchema:
    """Compare the declarations with the live tables, unless they were made of them."""
    return declared.schema or await read_live_schema(
        connection, declared.catalog, is_read_only=settings.read_only, roles=roles_of(settings)
    )


async def prepare_database(
    url: str, settings: Settings, declared: Declarations, *, is_reload: bool = False
) -> LiveSchema:
    """Apply migrations, load sample rows, and check the declarations against the live tables.

    is_reload: apply no migrations, because the old workers would have to use the new schema if the reload fails.

    Raises StartError, MigrationError.
    """
    async with connected(url, settings) as connection:
        if settings.database_url is not None:
            name = await connection.fetchval("SELECT current_database()")
            log.info("the database is %s at %s", name, describe_hosts(url))
            await _log_session(connection)
        if (fault := await check_temp_file_limit(connection, settings)) is not None:
            log.warning("%s", fault)
        if not is_reload and (settings.database_url is None or settings.migrate):
            await migrating.apply(connection, url, settings, say)
        for migration_set in migrating.migration_sets(settings):
            migrating.check_schema_status(await migration_set.status(connection), migration_set)
        if faults := await migrating.key_faults(connection, settings):
            raise StartError("\n".join(faults))
        with step("comparing the declarations with the database"):
            schema = await compare(connection, settings, declared)
        if schema.faults:
            raise misfit(chain(*shown(schema.faults)), settings)
        for warning in schema.warnings:
            log.warning("%s", warning)
        if settings.demo and not is_built_in(settings):
            other = "--inspect" if settings.inspect else "--resources"
            raise StartError(f"the sample rows belong to the built-in resources: leave out --demo or {other}")
        if settings.demo:
            with step("loading the sample rows"):
                count = await load_demo(connection)
            say(f"loaded {count} sample rows" if count else "the database is not empty: no sample rows were loaded")
        return schema


async def _log_session(connection: asyncpg.Connection[Any]) -> None:
    """Say that views, defaults and triggers see another time zone or interval style than in other sessions."""
    zone, style = await connection.fetchrow(  # type: ignore[misc]  # one row
        "SELECT current_setting('timezone'), current_setting('intervalstyle')"
    )
    own = [] if zone.lower() in _UTC else [f"time zone is {zone}"]
    own += [] if style in _USUAL_STYLES else [f"interval style is {style}"]
    if own:
        log.info(
            "the database's %s; sessions of the server have UTC and iso_8601, also for views, defaults and triggers",
            listed(own),
        )


_UTC = frozenset({"utc", "etc/utc", "uct", "etc/uct", "gmt", "etc/gmt", "zulu", "universal", "etc/universal"})
_USUAL_STYLES = frozenset({"postgres", "iso_8601"})
"""That of the server, and PostgreSQL's default, which nobody has chosen."""


def say(line: str) -> None:
    """Write a line for the user to standard output."""
    clear_line()
    # Not print, which may write the line break separately: several processes share this output.
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
