"""What the commands other than serve do. What comes in: settings, and what a command was given besides. What goes out:
lines on standard output; the exit code, where it says something. All raise StartError, EmbeddedError, MigrationError.

An embedded database is started for as long as the command takes, unless a server runs it already: then the command goes
to that one.
"""

from __future__ import annotations

import asyncio
import dataclasses
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeAlias, TypeVar

import asyncpg
import msgspec

import migrations
from migrations import Migration
from server.embedded import dumps
from server.embedded import postgres as embedded
from server.observing.logs import configure_logging
from server.schema import index_advisor
from server.schema.index_advisor import Suggestion
from server.schema.live_ids import check_id_rows
from server.schema.live_schema import read_live_schema
from server.settings import Settings, StartError
from server.startup import migrating
from server.startup.start import connected, declarations, known_migrations, prepare_database, say

Connection: TypeAlias = "asyncpg.Connection[Any]"
Result = TypeVar("Result")


def migrate_up(settings: Settings, *, dry_run: bool = False) -> None:
    """dry_run: writes the SQL that would run, and changes nothing."""
    configure_logging(settings)
    if not dry_run:
        migrating.refuse_pooler(settings)
    files = known_migrations(settings)

    async def work(connection: Connection, url: str) -> None:
        if dry_run:
            script = await migrations.script(connection, files, lock_wait=migrating.lock_wait(settings))
            print(script or "-- nothing to apply", end="" if script else "\n")
        elif not await migrating.apply(connection, url, settings, files, say):
            print("nothing to apply")

    _with_connection(settings, work, makes=not dry_run)


def migrate_status(settings: Settings, *, check: bool = False) -> int:
    """check: the exit code is 1 when there is something to apply."""
    files = known_migrations(settings)

    async def work(connection: Connection, _: str) -> int:
        state = await migrations.status(connection, files)
        for migration in state.applied:
            print(f"applied  {migration.name}")
        for migration in state.pending:
            print(f"pending  {migration.name}")
        for row in state.ahead:
            print(f"ahead    {row.name}" + (" (breaks older servers)" if row.breaks_older_servers else ""))
        return int(check and bool(state.pending))

    return _with_connection(settings, work)


def migrate_verify(settings: Settings) -> int:
    """Exit code 1 when the folder and the database do not go together; a line for each reason."""
    files = known_migrations(settings)

    async def work(connection: Connection, _: str) -> int:
        faults = await migrations.verify(connection, files)
        if not faults:
            state = await migrations.status(connection, files)
            faults = tuple(f"{row.name} was applied to this database and is not in the folder" for row in state.ahead)
        for fault in faults:
            print(fault)
        if not faults:
            print(f"{_counted(len(state.applied), 'applied file')} of {len(files)} as on disk")
        return int(bool(faults))

    return _with_connection(settings, work)


def migrate_new(settings: Settings, name: str) -> None:
    """Begins the next file of a folder of one's own, and prints its path."""
    if settings.migrations is None:
        raise StartError(
            "say where with --migrations FOLDER: the migrations of the built-in resources are not yours to add to"
        )
    print(migrations.new(settings.migrations, name))


def seed(settings: Settings) -> None:
    """Loads the sample rows into an empty database, as `serve --demo` does. Raises as `serve`."""
    configure_logging(settings)
    catalog = declarations(settings).catalog
    with _reached(settings, say, makes=True) as url:
        asyncio.run(prepare_database(url, msgspec.structs.replace(settings, demo=True), catalog))


class Checked(msgspec.Struct, frozen=True):
    """What `check --json` prints. pending: files that are not applied. faults: where declarations and tables differ.
    warnings: what the tables do not say. suggestions: of indexes."""

    fits: bool
    pending: tuple[str, ...]
    faults: tuple[str, ...]
    warnings: tuple[str, ...]
    suggestions: tuple[Suggestion, ...]


def check(settings: Settings, *, as_json: bool = False) -> int:
    """Holds the declarations against the live tables. Exit code 1 when they do not fit; suggestions leave it 0."""
    catalog = declarations(settings).catalog
    files = known_migrations(settings)

    async def work(connection: Connection, _: str) -> Checked:
        pending = tuple(migration.name for migration in (await migrations.status(connection, files)).pending)
        schema = await read_live_schema(connection, catalog, is_read_only=settings.read_only)
        faults = schema.faults or await check_id_rows(connection, schema.unenforced_keys)
        suggestions = await index_advisor.suggest(connection, catalog)
        return Checked(not faults, pending, faults, schema.warnings, suggestions)

    found = _with_connection(settings, work)
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(found)).decode())
    else:
        _print_checked(found)
    return int(not found.fits)


def _print_checked(found: Checked) -> None:
    for name in found.pending:
        print(f"pending   {name} is not applied")
    for fault in found.faults:
        print(f"fault     {fault}")
    for warning in found.warnings:
        print(f"warning   {warning}")
    for suggestion in found.suggestions:
        columns = ", ".join(suggestion.columns)
        print(f"{suggestion.rank:8}  {suggestion.table} ({columns}): {suggestion.reason}\n          {suggestion.sql}")
    missing = sum(suggestion.rank == "missing" for suggestion in found.suggestions)
    verdict = "the declarations fit the database" if found.fits else "the declarations do not fit the database"
    count = _counted(missing, "index", "indexes")
    print(f"{verdict}; {count} missing, {len(found.suggestions) - missing} to consider")


def dump(settings: Settings, file: str) -> None:
    """Writes all of the embedded database into a file; `-` is standard output."""
    _refuse_url(settings, "pg_dump --format=custom URL > FILE")
    if file == "-" and sys.stdout.isatty():
        raise StartError("a dump is not for a terminal: name a file, or send standard output to one")
    with _reached(settings, _say_beside) as url:
        dumps.dump(url, None if file == "-" else Path(file))


def restore(settings: Settings, file: str) -> None:
    """Fills an empty embedded database from a dump whose migrations this server knows."""
    _refuse_url(settings, "pg_restore --no-owner --dbname URL FILE")
    configure_logging(settings)
    files, path = known_migrations(settings), Path(file)
    pending = _check_dump(path, files)

    async def work(connection: Connection, url: str) -> None:
        await dumps.check_empty(connection)
        dumps.restore(url, path)
        # Statistics are not in a dump.
        await connection.execute("ANALYZE")

    _with_connection(settings, work, makes=True)
    print(f"restored {path}")
    if pending:
        print(f"its schema is behind: the next serve, or migrate up, applies {migrating.names(pending)}")


def _check_dump(path: Path, files: Sequence[Migration]) -> tuple[Migration, ...]:
    """The files that are to be applied to what is in a dump. Raises StartError, MigrationError."""
    record = dumps.applied_migrations(path)
    if files and not record:
        raise StartError(f"{path} has no record of migrations: it is of another schema than this server's")
    state = migrations.compare(files, record)
    migrating.check_schema_status(dataclasses.replace(state, pending=()), files)
    return state.pending


def _refuse_url(settings: Settings, tool: str) -> None:
    if settings.database_url is not None:
        raise StartError(f"this is for the embedded database alone; a PostgreSQL of your own has its tools: {tool}")


def _say_beside(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _counted(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


def _with_connection(
    settings: Settings, work: Callable[[Connection, str], Coroutine[Any, Any, Result]], *, makes: bool = False
) -> Result:
    async def run(url: str) -> Result:
        async with connected(url, settings) as connection:
            return await work(connection, url)

    # Standard output is for what was asked for.
    with _reached(settings, say if makes else _say_beside, makes=makes) as url:
        return asyncio.run(run(url))


@contextmanager
def _reached(settings: Settings, tell: Callable[[str], None], *, makes: bool = False) -> Iterator[str]:
    """The URL of the database. makes: whether an embedded one that is not there yet is made."""
    with ExitStack() as cleanup:
        # A signal must not leave the embedded database running, nor half a dump.
        cleanup.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, _end))
        yield settings.database_url or _embedded_url(settings.data_dir, tell, cleanup, makes=makes)


def _embedded_url(given: Path | None, tell: Callable[[str], None], cleanup: ExitStack, *, makes: bool) -> str:
    data_dir = given or embedded.default_data_dir()
    if not makes and not embedded.has_cluster(data_dir):
        raise StartError(
            f"there is no database in {data_dir}: `waterspout serve` makes one, or name another folder with --data-dir"
        )
    try:
        server = embedded.start(data_dir, say=tell)
    except embedded.FolderInUse:
        running = embedded.running_dsn(data_dir)
        if running is None:
            raise
        return running
    cleanup.callback(server.stop)
    return server.dsn


def _end(number: int, _: object) -> NoReturn:
    raise SystemExit(128 + number)
