"""Implements the commands other than serve. What comes in: settings, and the command's own arguments. What goes out:
lines on standard output, and an exit code. All functions raise StartError, EmbeddedError, MigrationError.

An embedded database runs while the command runs. If a server already runs it, the command connects to that one.
"""

from __future__ import annotations

import asyncio
import dataclasses
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn, TypeAlias, TypeVar

import asyncpg
import click
import msgspec

import migrations
from migrations import Migration
from querybuild.principal import ANONYMOUS
from server.authentication.authenticator import Authenticator, has_authentication
from server.describing.document import describe
from server.embedded import dumps
from server.embedded import postgres as embedded
from server.engine import Engine
from server.observing.logs import configure_logging
from server.schema.fault import Fault, shown
from server.schema.live_ids import check_id_rows, warn_of_ids
from server.schema.live_schema import LiveSchema
from server.schema.live_versions import check_versions
from server.settings import Settings, SettingsError, StartError
from server.settings.served import BUILT_IN, built_in_hint, is_built_in, misfit
from server.startup import migrating
from server.startup.access_table import OPEN, AccessRow, access_rows, closed_line, closed_types
from server.startup.start import compare, connected, declarations, prepare_database, say
from server.tools.advising import index_advisor
from server.tools.advising.index_advisor import Suggestion
from server.tools.console.commands import print_error
from server.tools.console.lines import room, wrapped
from server.tools.console.progress import clear_line, step
from server.tools.explaining.explanation import Explanation, principal_of_file
from server.tools.explaining.explanation import explain as explain_url

Connection: TypeAlias = "asyncpg.Connection[Any]"
Result = TypeVar("Result")


def migrate_up(settings: Settings, *, dry_run: bool = False) -> None:
    """Apply pending migrations. dry_run: print the SQL that would run, and change nothing."""
    configure_logging(settings)
    if not dry_run:
        migrating.refuse_pooler(settings)
    wait = migrating.lock_wait(settings)

    async def work(connection: Connection, url: str) -> None:
        if dry_run:
            scripts = [
                await migrations.script(connection, migration_set.files, lock_wait=wait, table=migration_set.table)
                for migration_set in migrating.migration_sets(settings)
            ]
            script = "\n".join(filter(None, scripts))
            print(script or "-- nothing to apply", end="" if script else "\n")
        elif not await migrating.apply(connection, url, settings, say):
            print("nothing to apply")

    _with_connection(settings, work, creates=not dry_run)


def migrate_status(settings: Settings, *, check: bool = False) -> int:
    """List the migrations. check: the exit code is 1 if a file is pending."""
    sets = migrating.migration_sets(settings)

    async def work(connection: Connection, _: str) -> int:
        is_pending = False
        for migration_set in sets:
            state = await migration_set.status(connection)
            for migration in state.applied:
                print(f"applied  {migration_set.prefix}{migration.name}")
            for migration in state.pending:
                print(f"pending  {migration_set.prefix}{migration.name}")
            for row in state.ahead:
                breaks = " (breaks older servers)" if row.breaks_older_servers else ""
                print(f"ahead    {migration_set.prefix}{row.name}{breaks}")
            is_pending |= bool(state.pending)
        return int(check and is_pending)

    return _with_connection(settings, work)


def migrate_verify(settings: Settings) -> int:
    """Compare the applied migrations with the folder. Prints a line for each difference. Then the exit code is 1."""
    sets = migrating.migration_sets(settings)

    async def work(connection: Connection, _: str) -> int:
        faults, applied, known = list[str](), 0, 0
        for migration_set in sets:
            of_set = await migrations.verify(connection, migration_set.files, migration_set.table)
            if not of_set:
                state = await migration_set.status(connection)
                applied, known = applied + len(state.applied), known + len(migration_set.files)
                of_set = tuple(
                    f"{row.name} was applied to this database and is not in the folder" for row in state.ahead
                )
            faults += [f"{migration_set.prefix}{fault}" for fault in of_set]
        for fault in faults:
            print(fault)
        if not faults:
            print(f"{_counted(applied, 'applied file')} of {known} as on disk")
        return int(bool(faults))

    return _with_connection(settings, work)


def migrate_new(settings: Settings, name: str) -> None:
    """Create the next file in the user's own folder, and print its path."""
    if settings.migrations is None:
        raise StartError(
            "say where with --migrations FOLDER: the migrations of the built-in resources are not yours to add to"
        )
    print(migrations.new(settings.migrations, name))


def seed(settings: Settings) -> None:
    """Load the sample rows into an empty database, like `serve --demo`."""
    configure_logging(settings)
    declared = declarations(settings)
    with _database_url(settings, say, creates=True) as url:
        asyncio.run(prepare_database(url, msgspec.structs.replace(settings, demo=True), declared))


class CheckReport(msgspec.Struct, frozen=True):
    """The result of `check`, which `check --json` prints. pending: files that are not applied. faults: differences
    between declarations and tables. warnings: problems that rows may cause. suggestions: indexes. access: who may do
    what. closed: the types that nobody may use."""

    fits: bool
    pending: tuple[str, ...]
    faults: tuple[str, ...]
    warnings: tuple[str, ...]
    suggestions: tuple[Suggestion, ...]
    access: tuple[AccessRow, ...]
    closed: tuple[str, ...]


def check(settings: Settings, *, as_json: bool = False) -> int:
    """Compare the declarations with the live tables. The exit code is 1 if they do not fit. Suggestions leave it 0."""
    declared = declarations(settings)
    catalog, is_authenticated = declared.catalog, has_authentication(settings, declared.authenticate)
    access = access_rows(catalog, is_authenticated=is_authenticated)
    closed = closed_types(catalog, is_authenticated=is_authenticated)
    sets = migrating.migration_sets(settings)

    async def work(connection: Connection, _: str) -> tuple[CheckReport, Sequence[Fault]]:
        pending = tuple(
            [
                migration_set.prefix + migration.name
                for migration_set in sets
                for migration in (await migration_set.status(connection)).pending
            ]
        )
        with step("comparing the declarations with the database") as show:
            schema = await compare(connection, settings, declared)
            # With row_security, the server's own role need not be able to read the tables.
            unenforced = {} if settings.has_row_security else schema.unenforced_keys
            faults = tuple(map(str, schema.faults)) or await check_id_rows(connection, unenforced, show)
            if schema.catalog is not None and not settings.has_row_security:
                faults += await check_versions(connection, schema.catalog, show)
            if not pending:
                faults += await migrating.key_faults(connection, settings)
            warnings = schema.warnings
            if not faults and not settings.has_row_security:
                warnings += await warn_of_ids(connection, catalog, show)
            show("looking for missing indexes")
            suggestions = await index_advisor.suggest(connection, catalog)
        return CheckReport(not faults, pending, faults, warnings, suggestions, access, closed), schema.faults

    report, faults = _with_connection(settings, work)
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(report)).decode())
    else:
        _print_checked(report, *(shown(faults) if faults else (report.faults, ())))
        if not report.fits and is_built_in(settings):
            print(BUILT_IN)
    return int(not report.fits)


def _print_checked(report: CheckReport, faults: Sequence[str], grants: Sequence[str]) -> None:
    for name in report.pending:
        _print_row("pending", f"{name} is not applied")
    for fault in faults:
        _print_row("fault", fault)
    for grant in grants:
        _print_row("", grant)
    for warning in report.warnings:
        _print_row("warning", warning)
    missing = [suggestion for suggestion in report.suggestions if suggestion.rank == "missing"]
    for proposed in missing:
        _print_row("missing", f"{proposed.sql}  -- {proposed.reason}")
    for proposed in report.suggestions[len(missing) :]:
        _print_row(
            "consider",
            f"{proposed.table}: {proposed.columns[0]}{' descending' * proposed.descends}  -- {proposed.reason}",
        )
    if report.closed or any(row.rows != OPEN for row in report.access):
        _print_access(report.access)
    if report.closed:
        print(closed_line(report.closed))
    verdict = "the declarations fit the database" if report.fits else "the declarations do not fit the database"
    considered = len(report.suggestions) - len(missing)
    where = " (their SQL: --json)" if considered else ""
    print(f"{verdict}; {_counted(len(missing), 'index', 'indexes')} missing, {considered} to consider{where}")


_COLOURS = {"pending": "red", "fault": "red", "warning": "yellow", "missing": "yellow"}


def _print_row(kind: str, text: str) -> None:
    first, *others = wrapped(text, room() - 10)
    click.echo(f"{click.style(f'{kind:8}', fg=_COLOURS.get(kind), bold=True)}  {first}")
    for line in others:
        click.echo(f"{'':10}{line}")


def _print_access(rows: Sequence[AccessRow]) -> None:
    """Print who may do what, as a table."""
    cells = [("resource", "actions", "for", "rows")]
    for row in rows:
        check = f"; written rows: {row.check}" if row.check else ""
        cells.append((row.what, ", ".join(row.actions) or "-", row.to, row.rows + check))
    widths = [max(len(cell[column]) for cell in cells) for column in range(3)]
    for cell in cells:
        print("  ".join([*(text.ljust(width) for text, width in zip(cell, widths, strict=False)), cell[-1]]))


def inspect(settings: Settings, *, schema: tuple[str, ...], only: tuple[str, ...], skip: tuple[str, ...]) -> None:
    """Print declarations for the tables of a database. Remarks go to standard error."""
    # Imported here: only this command needs it.
    from server.tools.inspecting import report as inspecting
    from server.tools.inspecting.catalog.choosing import TableChoice

    async def work(connection: Connection, _: str) -> inspecting.Report:
        with step("inspecting the database") as show:
            return await inspecting.report_on(connection, settings, TableChoice(schema, only, skip), show)

    if settings.database_url is None and settings.data_dir is None:
        raise StartError("inspect is for a database with tables: say where it is with --database-url")
    report = _with_connection(settings, work)
    click.echo(report.text, nl=False)
    sys.stdout.flush()
    for remark in report.remarks:
        _say_on_stderr(remark)


def explain(
    settings: Settings, url: str, *, claims: str | None = None, analyze: bool = True, as_json: bool = False
) -> int:
    """Print the stages of a read. claims: a file with the claims of the principal. analyze: whether the read is run.
    The exit code is 1 if the server would answer with an error."""
    declared = declarations(settings)
    principal = ANONYMOUS if claims is None else principal_of_file(Path(claims), settings)

    async def work(connection: Any, _: str) -> Explanation:
        with step("running the read" if analyze else "planning the read"):
            schema = await compare(connection, settings, declared)
            if schema.faults:
                raise misfit(chain(*shown(schema.faults)), settings)
            engine = Engine(settings, declared.catalog, schema, Authenticator(settings, custom=declared.authenticate))
            try:
                return await explain_url(connection, engine, url, principal, is_run=analyze, has_lines=not as_json)
            finally:
                engine.authenticator.close()

    explanation = _with_connection(settings, work)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(explanation.document(), enc_hook=str)))
    else:
        _print_explanation(explanation)
    return int(bool(explanation.errors))


def _print_explanation(explanation: Explanation) -> None:
    width = room() - 4
    for section in explanation.sections():
        click.secho(section.title, bold=True)
        for line in section.lines:
            for part in wrapped(line, width):
                click.echo(f"    {part}" if part else "")
        click.echo()
    for error in explanation.errors:
        print_error(str(error))
    if explanation.hint:
        click.echo(explanation.hint, err=True)


def openapi(settings: Settings) -> None:
    """Print the OpenAPI document as it is without credentials."""
    declared = declarations(settings)
    custom = [handler.openapi for _, handler in declared.routes]
    authenticator = Authenticator(settings, custom=declared.authenticate)
    engine = Engine(settings, declared.catalog, LiveSchema(), authenticator)
    described = describe(engine, engine.context_of(ANONYMOUS), custom)
    print(msgspec.json.format(msgspec.json.encode(described)).decode())
    if hint := built_in_hint(settings):
        _say_on_stderr(hint)


def token(
    settings: Settings,
    *,
    development: bool,
    subject: str | None,
    role: tuple[str, ...],
    scope: tuple[str, ...],
    claim: tuple[str, ...],
    secret_file: str | None,
    expires_in: int,
) -> None:
    """Print a token for development."""
    secret = settings.auth_secret_file if secret_file is None else Path(secret_file)
    if subject is None or secret is None or not development or settings.auth_audience is None:
        raise SettingsError(tuple(_token_lacks(settings, secret, subject, is_confirmed=development)))
    # Imported here: PyJWT and the cryptography behind it take 20 MB and 50 ms.
    from server.authentication.development import NewToken, sign_token

    token = NewToken(subject, role, scope, dict(map(_claim, claim)), expires_in)
    print(sign_token(token, settings, secret))


def _token_lacks(settings: Settings, secret: Path | None, subject: str | None, *, is_confirmed: bool) -> Iterator[str]:
    """Yield a message for each thing that a token needs and that was not given."""
    if not is_confirmed:
        yield (
            "add --development: who has the secret can be anybody, so tokens of this command are only for development"
        )
    if subject is None:
        yield "add --subject NAME: the sub of the token"
    if secret is None:
        yield "there is no secret: name its file with --secret-file, or set auth_secret_file as the server has it"
    if settings.auth_audience is None:
        yield "set auth_audience as the server has it (WATERSPOUT_AUTH_AUDIENCE): a token is for one server"


def _claim(text: str) -> tuple[str, Any]:
    """Read `name=json`. Raises StartError."""
    name, mark, value = text.partition("=")
    try:
        if name and mark:
            return name, msgspec.json.decode(value)
    except msgspec.DecodeError:
        pass
    raise StartError(f"--claim {text!r}: expected a name and JSON, such as 'level=3' or 'tenant=\"acme\"'")


def dump(settings: Settings, file: str) -> None:
    """Write the whole embedded database into a file. `-` is standard output."""
    _refuse_url(settings, "pg_dump --format=custom URL > FILE")
    if file == "-" and sys.stdout.isatty():
        raise StartError("a dump is not for a terminal: name a file, or send standard output to one")
    with _database_url(settings, _say_on_stderr) as url, step("writing the dump"):
        dumps.dump(url, None if file == "-" else Path(file))


def restore(settings: Settings, file: str) -> None:
    """Fill an empty embedded database from a dump whose migrations this server knows."""
    _refuse_url(settings, "pg_restore --no-owner --dbname URL FILE")
    configure_logging(settings)
    known, path = migrating.migration_sets(settings)[0], Path(file)
    pending = _check_dump(path, known)

    async def work(connection: Connection, url: str) -> None:
        await dumps.check_empty(connection)
        with step("restoring the dump"):
            dumps.restore(url, path)
            # Statistics are not in a dump.
            await connection.execute("ANALYZE")

    _with_connection(settings, work, creates=True)
    print(f"restored {path}")
    if pending:
        print(f"its schema is behind: the next serve, or migrate up, applies {known.names(pending)}")


def _check_dump(path: Path, known: migrating.MigrationSet) -> tuple[Migration, ...]:
    """Check the migrations in a dump. Return those that must be applied after a restore. Raises StartError,
    MigrationError."""
    record = dumps.applied_migrations(path)
    if known.files and not record:
        raise StartError(f"{path} has no record of migrations: it is of another schema than this server's")
    state = migrations.compare(known.files, record)
    migrating.check_schema_status(dataclasses.replace(state, pending=()), known)
    return state.pending


def _refuse_url(settings: Settings, tool: str) -> None:
    if settings.database_url is not None:
        raise StartError(f"this is only for the embedded database; for your own PostgreSQL use its tools: {tool}")


def _say_on_stderr(line: str) -> None:
    clear_line()
    print(line, file=sys.stderr, flush=True)


def _counted(count: int, noun: str, many: str = "") -> str:
    return f"{count} {noun if count == 1 else many or noun + 's'}"


def _with_connection(
    settings: Settings, work: Callable[[Connection, str], Coroutine[Any, Any, Result]], *, creates: bool = False
) -> Result:
    async def run(url: str) -> Result:
        async with connected(url, settings) as connection:
            return await work(connection, url)

    # Standard output only has the result of the command.
    with _database_url(settings, say if creates else _say_on_stderr, creates=creates) as url:
        return asyncio.run(run(url))


@contextmanager
def _database_url(settings: Settings, say: Callable[[str], None], *, creates: bool = False) -> Iterator[str]:
    """Return a context manager with the URL of the database. creates: whether an embedded database is created if there
    is none. say: is called with lines for the user."""
    with ExitStack() as cleanup:
        # A signal must not leave the embedded database running, nor half a dump.
        cleanup.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, _end))
        yield settings.database_url or _embedded_url(settings.data_dir, say, cleanup, creates=creates)


def _embedded_url(given: Path | None, say: Callable[[str], None], cleanup: ExitStack, *, creates: bool) -> str:
    data_dir = given or embedded.default_data_dir()
    if not creates and not embedded.has_cluster(data_dir):
        raise StartError(
            f"there is no embedded database in {data_dir}: `waterspout serve` makes one, --data-dir names another "
            "folder, and --database-url your own database"
        )
    try:
        with step("starting PostgreSQL"):
            server = embedded.start(data_dir, say=say)
    except embedded.FolderInUse:
        running = embedded.running_dsn(data_dir)
        if running is None:
            raise
        return running
    cleanup.callback(_stop, server)
    return server.dsn


def _stop(server: embedded.EmbeddedServer) -> None:
    with step("stopping PostgreSQL"):
        server.stop()


def _end(number: int, _: object) -> NoReturn:
    raise SystemExit(128 + number)
