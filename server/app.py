"""make_app, and the order of start and stop. What comes in: settings. What goes out: a tornado Application and
listening sockets that it answers on, until a signal.

Order of start: declarations, database (the embedded one in the parent process), migrations, check of the
declarations against the tables, sample rows, sockets, workers. Of stop: sockets, requests in flight, pool,
embedded database.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn, TypeVar
from urllib.parse import unquote_to_bytes

import asyncpg
import msgspec
import uvloop
from tornado.httputil import (
    HTTPMessageDelegate,
    HTTPServerRequest,
)
from tornado.netutil import bind_sockets, bind_unix_socket
from tornado.routing import Router
from tornado.web import Application

import migrations
from querybuild.catalog import Catalog
from server import embedded, memory, workers
from server.database import Database, open_database
from server.declarations import Declarations, load_declarations
from server.engine import Engine
from server.exchange import Server
from server.handlers import HANDLERS, CustomHandler, NotFoundHandler
from server.handlers.base import Handler, Running
from server.live_schema import Constraints, read_live_schema
from server.logs import AccessLog, configure_logging
from server.resources import built_in
from server.resources.demo import load_demo
from server.routes import Route, Shape, match_route
from server.settings import Settings, StartError

log = logging.getLogger("server")

Result = TypeVar("Result")
CustomRoutes = Sequence[tuple[re.Pattern[str], type[CustomHandler]]]
_DATABASE_ERRORS = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)

BODY_BYTES = 2**62
"""No bound: the handlers have theirs, and answer with a document what tornado would answer with a bare 400."""

IDLE_CONNECTION_SECONDS = 3600
STOP_SECONDS = 25.0
"""How long requests in flight may take after SIGTERM; the parent kills a worker that takes longer than its own
limit."""


class Routes(Router):
    """Path -> handler, by the engine's catalogue. The engine is taken once a request, so a new one is a
    swapped reference."""

    def __init__(self, engine: Engine, database: Database, routes: CustomRoutes) -> None:
        self.engine = engine
        self.routes = routes
        self.database = database
        self.running = Running()
        self.application = Application(log_function=AccessLog(engine.settings.log_format))

    def find_handler(self, request: HTTPServerRequest, **_: Any) -> HTTPMessageDelegate:
        for pattern, handler in self.routes:
            found = pattern.fullmatch(request.path)
            if found is not None:
                arguments = [unquote_to_bytes(group or "") for group in found.groups()]
                return self._delegate(request, handler, Route(Shape.CUSTOM, request.path), arguments)
        route = match_route(request.path, self.engine.catalog, self.engine.fixed_paths)
        return self._delegate(request, NotFoundHandler if route is None else HANDLERS[route.shape], route)

    def _delegate(
        self,
        request: HTTPServerRequest,
        handler: type[Handler],
        route: Route | None,
        arguments: list[bytes] | None = None,
    ) -> HTTPMessageDelegate:
        context = {"engine": self.engine, "database": self.database, "route": route, "running": self.running}
        return self.application.get_handler_delegate(request, handler, context, path_args=arguments)


def make_app(
    settings: Settings, catalog: Catalog, constraints: Constraints, database: Database, routes: CustomRoutes = ()
) -> Routes:
    """What an HTTPServer answers with."""
    return Routes(Engine(settings, catalog, constraints), database, routes)


def make_server(app: Routes, settings: Settings) -> Server:
    """Bodies are measured by the handlers, which answer with a document; tornado's own limit would be a bare 400."""
    return Server(
        app,
        max_body_size=BODY_BYTES,
        # Twice ours, and room for a URL: tornado closes the connection over its limit without a word.
        max_header_size=2 * settings.max_header_bytes + settings.max_url_bytes,
    )


def serve(settings: Settings) -> None:
    """Answers requests until SIGTERM or SIGINT. Raises StartError, EmbeddedError, MigrationError."""
    configure_logging(settings)
    declared = _declarations(settings)
    with ExitStack() as cleanup:
        # Until there is a loop to end in order, a signal ends the start, and what was started is stopped.
        signal.signal(signal.SIGTERM, _end_start)
        url, tend = _database(settings, cleanup)
        constraints = uvloop.run(_prepare_database(url, settings, declared.catalog))
        sockets = _listen(settings, cleanup)
        ready = _Ready(f"waterspout is ready on {_address(settings, sockets)}")

        def work(own: list[socket.socket], _: int, own_tend: workers.Tend | None = None) -> None:
            uvloop.run(_answer(own, url, settings, declared, constraints, ready, own_tend))

        if settings.workers == 1:
            work(sockets, 0, tend)
        else:
            workers.run(sockets, settings.workers, work, tend=tend)


def migrate_up(settings: Settings) -> None:
    configure_logging(settings)

    async def work(connection: asyncpg.Connection[Any]) -> None:
        applied = await migrations.up(connection, _migrations(settings), say=_say)
        if not applied:
            print("nothing to apply")

    _with_connection(settings, work)


def migrate_status(settings: Settings) -> None:
    async def work(connection: asyncpg.Connection[Any]) -> None:
        state = await migrations.status(connection, _migrations(settings))
        for label, found in (("applied", state.applied), ("pending", state.pending)):
            for migration in found:
                print(f"{label}  {migration.name}")
        for number in state.ahead:
            print(f"ahead    {number:04}")

    _with_connection(settings, work)


def seed(settings: Settings) -> None:
    """Loads the sample rows into an empty database, as `serve --demo` does. Raises as `serve`."""
    configure_logging(settings)
    with ExitStack() as cleanup:
        url, _ = _database(settings, cleanup)
        asyncio.run(
            _prepare_database(url, msgspec.structs.replace(settings, demo=True), _declarations(settings).catalog)
        )


def _with_connection(settings: Settings, work: Callable[[asyncpg.Connection[Any]], Coroutine[Any, Any, None]]) -> None:
    async def run(url: str) -> None:
        async with _connected(url, settings) as connection:
            await work(connection)

    with ExitStack() as cleanup:
        asyncio.run(run(_database(settings, cleanup)[0]))


def _database(settings: Settings, cleanup: ExitStack) -> tuple[str, workers.Tend | None]:
    """The URL of the given database, or of the embedded one, started; and what keeps the embedded one up."""
    if settings.database_url is not None:
        return settings.database_url, None
    server = embedded.start(settings.data_dir or embedded.default_data_dir(), say=_say)
    cleanup.callback(server.stop)
    return server.dsn, server.tend


def _say(line: str) -> None:
    print(line, flush=True)


def _declarations(settings: Settings) -> Declarations:
    """Raises StartError."""
    found = Declarations(built_in()) if settings.resources is None else load_declarations(settings.resources)
    path = settings.operations_path
    taken = [resource for resource in found.catalog if path and f"{path}/".startswith(f"{resource.path}/")]
    if taken:
        raise StartError(f"operations_path {path} is below the collection {taken[0].path}: choose another")
    return found


def _migrations(settings: Settings) -> tuple[migrations.Migration, ...]:
    """Of the given folder, else the built-in ones; whoever brings resources of their own brings their schema
    as well, or none."""
    if settings.migrations is not None:
        return migrations.load(settings.migrations)
    return migrations.load(migrations.BUILT_IN) if settings.resources is None else ()


@asynccontextmanager
async def _connected(url: str, settings: Settings) -> AsyncIterator[asyncpg.Connection[Any]]:
    """A connection for the work of a start. Raises StartError when there is none to be had."""
    try:
        connection = await asyncpg.connect(url, timeout=settings.connect_timeout_seconds)
    except (*_DATABASE_ERRORS, asyncpg.TargetServerAttributeNotMatched) as error:
        raise StartError(f"the database cannot be reached: {error or type(error).__name__}") from error
    try:
        yield connection
    except _DATABASE_ERRORS as error:
        raise StartError(f"the database is not as this server needs it: {error or type(error).__name__}") from error
    finally:
        await connection.close()


async def _prepare_database(url: str, settings: Settings, catalog: Catalog) -> Constraints:
    """Migrations, sample rows, and the check of the declarations against the tables, whose constraints it gives.

    Raises StartError, MigrationError.
    """
    async with _connected(url, settings) as connection:
        found = _migrations(settings)
        if settings.database_url is None or settings.migrate:
            await migrations.up(connection, found, say=_say)
        state = await migrations.status(connection, found)
        if state.pending:
            names = ", ".join(migration.name for migration in state.pending)
            raise StartError(
                f"the schema is behind: {names} not applied; run `waterspout migrate up`, or add --migrate"
            )
        if state.ahead and found:
            log.warning("the schema is ahead of this server: %s", ", ".join(f"{number:04}" for number in state.ahead))
        schema = await read_live_schema(connection, catalog)
        if schema.faults:
            raise StartError("the declarations do not fit the database:\n" + "\n".join(schema.faults))
        if settings.demo and settings.resources is not None:
            raise StartError("the sample rows are of the built-in resources: leave out --demo or --resources")
        if settings.demo:
            count = await load_demo(connection)
            _say(f"loaded {count} sample rows" if count else "the database is not empty: no sample rows were loaded")
        return schema.constraints


def _end_start(number: int, _: object) -> NoReturn:
    raise SystemExit(128 + number)


def _listen(settings: Settings, cleanup: ExitStack) -> list[socket.socket]:
    try:
        if settings.unix_socket is not None:
            sockets = [_listen_at(settings.unix_socket, cleanup)]
        else:
            sockets = bind_sockets(settings.port, settings.host)
    except (OSError, ValueError) as error:
        where = settings.unix_socket or f"{settings.host}:{settings.port}"
        raise StartError(f"cannot listen on {where}: {getattr(error, 'strerror', None) or error}") from error
    for listening in sockets:
        cleanup.callback(listening.close)
    return sockets


def _listen_at(path: Path, cleanup: ExitStack) -> socket.socket:
    """A Unix socket; one that nobody answers on any more is replaced, a live one is not taken over."""
    if path.is_socket():
        with socket.socket(socket.AF_UNIX) as other, suppress(ConnectionRefusedError):
            other.connect(str(path))
            raise StartError(f"cannot listen on {path}: another server answers there")
    listening = bind_unix_socket(str(path), mode=0o660)
    cleanup.callback(path.unlink, missing_ok=True)
    return listening


def _address(settings: Settings, sockets: list[socket.socket]) -> str:
    if settings.unix_socket is not None:
        return f"unix:{settings.unix_socket}"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{sockets[0].getsockname()[1]}"


class _Ready:
    """The line that tells that the server answers: said once, by the first worker that does."""

    def __init__(self, line: str) -> None:
        self._line = line
        # One byte for all the forked workers, which one of them reads.
        self._turn, write = os.pipe()
        os.write(write, b"1")
        os.close(write)

    def say(self) -> None:
        if os.read(self._turn, 1):
            _say(self._line)


async def _answer(
    sockets: list[socket.socket],
    url: str,
    settings: Settings,
    declared: Declarations,
    constraints: Constraints,
    ready: _Ready,
    tend: workers.Tend | None,
) -> None:
    """One worker: answers on the sockets until a signal, or until `tend` raises, then lets the requests in flight
    finish."""
    database = await open_database(url, settings, max(1, settings.pool_size // settings.workers))
    app = make_app(settings, declared.catalog, constraints, database, declared.routes)
    server = make_server(app, settings)
    server.add_sockets([socket.socket(fileno=socket.dup(own.fileno())) for own in sockets])
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    memory.settle()
    idle = asyncio.create_task(server.idle.sweep(IDLE_CONNECTION_SECONDS))
    ready.say()
    try:
        await _tend_until(stop, tend)
    finally:
        idle.cancel()
        server.stop()
        for own in sockets:
            # What is open still would go on taking connections, which nobody answers.
            own.close()
        await _finish(app, server, database)


async def _tend_until(stop: asyncio.Event, tend: workers.Tend | None) -> None:
    while tend is not None and not stop.is_set():
        tend()
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), workers.TEND_SECONDS)
    await stop.wait()


async def _finish(app: Routes, server: Server, database: Database) -> None:
    """The requests in flight, then the connections, then the pool."""
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await app.running.finished()
            await server.close_all_connections()
            await database.close()
    except TimeoutError:
        database.terminate()
