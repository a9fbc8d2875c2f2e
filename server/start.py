"""What comes before the first request. What comes in: settings. What goes out: the declarations, and a database that
they fit: the embedded one started, migrated, and compared with them.

It must not know: sockets, processes, HTTP.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import asyncpg

import migrations
from querybuild.catalog import Catalog
from server import migrating
from server.declarations import Declarations, extend_python_path, load_declarations
from server.embedded import postgres as embedded
from server.live_schema import LiveSchema, read_live_schema
from server.postgres.database import open_alone
from server.postgres.driver_errors import in_one_line
from server.postgres.hosts import place_of
from server.postgres.temp_files import fault_of_temp_file_limit
from server.resources import built_in
from server.resources.demo import load_demo
from server.settings import Settings, StartError

log = logging.getLogger("server")

Tend = Callable[[], None]
_DATABASE_ERRORS = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)


def declarations(settings: Settings) -> Declarations:
    """Raises StartError."""
    if settings.python_path is not None:
        extend_python_path(settings.python_path)
    found = Declarations(built_in()) if settings.resources is None else load_declarations(settings.resources)
    path = settings.operations_path
    taken = [resource for resource in found.catalog if path and f"{path}/".startswith(f"{resource.path}/")]
    if taken:
        raise StartError(f"operations_path {path} is below the collection {taken[0].path}: choose another")
    return found


def known_migrations(settings: Settings) -> tuple[migrations.Migration, ...]:
    """Of the given folder, else the built-in ones; whoever brings resources of their own brings their schema
    as well, or none."""
    if settings.migrations is not None:
        return migrations.load(settings.migrations)
    return migrations.load(migrations.BUILT_IN) if settings.resources is None else ()


def open_database_url(settings: Settings, cleanup: ExitStack) -> tuple[str, Tend | None]:
    """The URL of the given database, or of the embedded one, started; and what keeps the embedded one up."""
    if settings.database_url is not None:
        return settings.database_url, None
    data_dir = settings.data_dir or embedded.default_data_dir()
    server = embedded.start(data_dir, say=say)
    cleanup.callback(server.stop)
    log.info("the database is the embedded one, in %s", data_dir.expanduser().absolute())
    return server.dsn, server.tend


@asynccontextmanager
async def connected(url: str, settings: Settings) -> AsyncIterator[asyncpg.Connection[Any]]:
    """A connection for the work of a start. Raises StartError when there is none to be had."""
    try:
        connection = await open_alone(url, settings)
    except (*_DATABASE_ERRORS, asyncpg.TargetServerAttributeNotMatched) as error:
        advice = "" if settings.database_url is None else "; where it is, the setting database_url says"
        reason = getattr(error, "strerror", None) or in_one_line(error) or type(error).__name__
        raise StartError(f"the database at {place_of(url)} cannot be reached: {reason}{advice}") from error
    try:
        yield connection
    except _DATABASE_ERRORS as error:
        reason = in_one_line(error) or type(error).__name__
        raise StartError(f"the database is not as this server needs it: {reason}") from error
    finally:
        await connection.close()


async def prepare_database(url: str, settings: Settings, catalog: Catalog, *, is_reload: bool = False) -> LiveSchema:
    """Migrations, sample rows, and the check of the declarations against the tables, as they are.
    is_reload: nothing is migrated, since those who answer still would have to go on with it if what follows is refused.

    Raises StartError, MigrationError.
    """
    async with connected(url, settings) as connection:
        if settings.database_url is not None:
            name = await connection.fetchval("SELECT current_database()")
            log.info("the database is %s at %s", name, place_of(url))
        if (fault := await fault_of_temp_file_limit(connection, settings)) is not None:
            log.warning("%s", fault)
        found = known_migrations(settings)
        if not is_reload and (settings.database_url is None or settings.migrate):
            await migrating.apply(connection, url, settings, found, say)
        migrating.refuse_unfit(await migrations.status(connection, found), found)
        schema = await read_live_schema(connection, catalog, is_read_only=settings.read_only)
        if schema.faults:
            raise StartError("the declarations do not fit the database:\n" + "\n".join(schema.faults))
        for warning in schema.warnings:
            log.warning("%s", warning)
        if settings.demo and settings.resources is not None:
            raise StartError("the sample rows are of the built-in resources: leave out --demo or --resources")
        if settings.demo:
            count = await load_demo(connection)
            say(f"loaded {count} sample rows" if count else "the database is not empty: no sample rows were loaded")
        return schema


def say(line: str) -> None:
    # Not print, which writes the line's end by itself where nothing is buffered: processes share this output.
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
