"""The whole server over a real socket, with a separate database for each test."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import asyncpg
import msgspec
import pytest
from tornado.httpclient import AsyncHTTPClient
from tornado.httputil import HTTPHeaders
from tornado.ioloop import IOLoop
from tornado.netutil import bind_sockets

import migrations
from querybuild.declarations.catalog import Catalog
from server.app import Routes, make_app, make_server
from server.authentication.authenticator import Authenticator, Custom
from server.http.transport.connections import Server
from server.postgres.connection import PostgresConnection
from server.postgres.database import Database
from server.postgres.opening import open_alone, open_database
from server.postgres.row_security.roles import roles_of
from server.processes.timeouts import enforce_timeouts
from server.resources import built_in
from server.schema import live_references
from server.schema.live_schema import LiveSchema, read_live_schema
from server.settings import Settings
from server.startup.start import declarations
from tests.catalog import CATALOG
from tests.conftest import memory, on_server, with_database
from tests.faults.cluster import Cluster
from tests.http import rows, supabase
from waterspout import CustomHandler

MEDIA_TYPE = "application/vnd.api+json"


class Answer(msgspec.Struct):
    status: int
    headers: HTTPHeaders
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)

    @property
    def errors(self) -> list[dict[str, Any]]:
        """The error objects without their ids, which differ from run to run."""
        return [{name: value for name, value in error.items() if name != "id"} for error in self.document["errors"]]

    @property
    def ids(self) -> list[str]:
        return [resource["id"] for resource in self.document["data"]]


class Api:
    """A running server and a client for it. `database_url` is for tests that look into the database, `app` for tests
    that call the server directly. There is no `app` if the server runs in another process."""

    app: Routes

    def __init__(self, port: int, database_url: str) -> None:
        self.port = port
        self.database_url = database_url
        self._client = AsyncHTTPClient(force_instance=True, defaults={"request_timeout": 30})
        self._idle: list[asyncpg.Connection[Any]] = []

    async def request(
        self, method: str, path: str, document: Any = None, *, headers: dict[str, str] | None = None, body: Any = None
    ) -> Answer:
        """Send a request. document: sent as JSON with the JSON:API media type. body: sent as it is."""
        sent = dict(headers or {})
        if document is not None:
            body = json.dumps(document)
            sent.setdefault("Content-Type", MEDIA_TYPE)
        response = await self._client.fetch(
            f"http://127.0.0.1:{self.port}{path}",
            method=method,
            body=body,
            headers=sent,
            raise_error=False,
            allow_nonstandard_methods=True,
            follow_redirects=False,
        )
        return Answer(response.code, response.headers, response.body or b"")

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.request("GET", path, headers=headers)

    async def filter(self, path: str, filters: Any) -> Answer:
        return await self.get(f"{path}?filter={quote(json.dumps(filters))}")

    async def post(self, path: str, document: Any) -> Answer:
        return await self.request("POST", path, document)

    async def patch(self, path: str, document: Any) -> Answer:
        return await self.request("PATCH", path, document)

    async def delete(self, path: str, document: Any = None) -> Answer:
        return await self.request("DELETE", path, document)

    async def create(self, path: str, type_name: str, attributes: Any = None, **relationships: Any) -> str:
        """Create a resource and return its id. Each relationship is its linkage: `group={"type": "group", "id":
        "1"}`."""
        data: dict[str, Any] = {"type": type_name, "attributes": attributes or {}}
        if relationships:
            data["relationships"] = {name: {"data": linkage} for name, linkage in relationships.items()}
        answer = await self.post(path, {"data": data})
        assert answer.status == 201, answer.body
        created: str = answer.document["data"]["id"]
        return created

    async def sql(self, statement: str, *values: Any) -> list[asyncpg.Record]:
        """Run a statement on a connection that is kept, because connecting takes half of the time."""
        connection = self._idle.pop() if self._idle else None
        if connection is None or connection.is_closed():
            connection = await asyncpg.connect(self.database_url, statement_cache_size=0)
        try:
            rows: list[asyncpg.Record] = await connection.fetch(statement, *values)
        except BaseException:
            connection.terminate()
            raise
        self._idle.append(connection)
        return rows

    async def close(self) -> None:
        self._client.close()
        for connection in self._idle:
            connection.terminate()
        # Closed sockets are gone in the next turn of the event loop.
        await asyncio.sleep(0)


_shops = itertools.count(1)
Serve = Callable[..., Api]
Start = Callable[..., Awaitable[Api]]
Sent = list[str]


_SCHEMAS: dict[Any, LiveSchema] = {}
_ROWS = " UNION ALL ".join(
    f"SELECT '{table}' || xmin || ctid FROM {table} WHERE {key} >= 16384"
    for table, key in (
        ("pg_attribute", "attrelid"),
        ("pg_class", "oid"),
        ("pg_constraint", "oid"),
        ("pg_index", "indexrelid"),
        ("pg_proc", "oid"),
        ("pg_type", "oid"),
    )
)
_SCHEMA_MARK = f"SELECT md5(string_agg(x, '' ORDER BY x)) FROM ({_ROWS}) r(x)"
"""Equal in each clone of a template, until a definition is changed there. 16384 is the first oid that PostgreSQL does
not use itself."""


async def live_schema(url: str, settings: Settings, catalog: Catalog) -> LiveSchema:
    """Read the live schema as the server does, once for all equal databases: it takes a third of the time of a small
    test."""
    connection = await open_alone(url, settings)
    try:
        roles = roles_of(settings)
        key = (tuple(catalog), roles, live_references.MIN_REFERENCE_BYTES, await connection.fetchval(_SCHEMA_MARK))
        if key not in _SCHEMAS:
            _SCHEMAS[key] = await read_live_schema(connection, catalog, roles=roles)
    finally:
        await connection.close()
    return _SCHEMAS[key]


async def create_server_tables(url: str) -> None:
    """Apply the migrations of the server itself."""
    connection = await asyncpg.connect(url)
    try:
        await migrations.up(connection, migrations.load(migrations.SERVER), table=migrations.SERVER_TABLE)
    finally:
        await connection.close()


class Servers:
    """The servers of one test, started and stopped in its event loop."""

    def __init__(self) -> None:
        self._running: list[tuple[Server, Database, Api]] = []
        self._timeout_tasks: list[asyncio.Task[None]] = []

    async def start(
        self,
        url: str,
        catalog: Catalog,
        routes: Sequence[tuple[str, type[CustomHandler]]] = (),
        authenticate: Custom | None = None,
        **settings: Any,
    ) -> Api:
        """Start a server. authenticate: the function AUTHENTICATE. The other keywords are settings."""
        chosen = Settings(**({"acquire_timeout_seconds": 30.0} | settings))
        if chosen.keeps_answers:
            await create_server_tables(url)
        schema = await live_schema(url, chosen, catalog)
        assert not schema.faults, schema.faults
        depends = schema.plans_depend_on_role
        database = await open_database(url, chosen, chosen.pool_size, plans_depend_on_role=depends)
        patterns = [(re.compile(pattern), handler) for pattern, handler in routes]
        authenticator = Authenticator(chosen, custom=authenticate)
        app = make_app(chosen, catalog, schema, database, patterns, authenticator)
        self._timeout_tasks += [asyncio.ensure_future(work()) for _, work in authenticator.tasks]
        server = make_server(app, chosen)
        self._timeout_tasks.append(asyncio.ensure_future(enforce_timeouts([server], app.running, chosen)))
        sockets = bind_sockets(0, "127.0.0.1")
        server.add_sockets(sockets)
        api = Api(sockets[0].getsockname()[1], url)
        api.app = app
        self._running.append((server, database, api))
        return api

    async def stop(self) -> None:
        for task in self._timeout_tasks:
            task.cancel()
        for server, database, api in self._running:
            await api.close()
            api.app.engine.authenticator.close()
            server.stop()
            await server.close_all_connections()
            await database.close()


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """Return the statements that servers started after this send to the database, except BEGIN and COMMIT."""
    statements: Sent = []

    class Logged(PostgresConnection):
        def statement_finished(self, query: str, begin: float) -> None:
            super().statement_finished(query, begin)
            statements.append(query)

    monkeypatch.setattr("server.postgres.opening.PostgresConnection", Logged)
    return statements


@pytest.fixture
def start(io_loop: IOLoop) -> Iterator[Start]:
    """Starts servers from within a test."""
    servers = Servers()
    yield servers.start
    io_loop.run_sync(servers.stop)


@pytest.fixture
def serve(io_loop: IOLoop, start: Start) -> Serve:
    """Starts servers from outside of the event loop: `serve(url, catalog=..., page_size=5)`; keywords are settings."""

    def served(url: str, catalog: Catalog | None = None, **settings: Any) -> Api:
        return io_loop.run_sync(lambda: start(url, catalog or built_in(), **settings))

    return served


Inspected = Callable[..., Awaitable[Api]]


@pytest.fixture
def inspected(start: Start, database_url: str) -> Inspected:
    """Serves tables as `inspect` or a catalog declares them: `await inspected("CREATE TABLE ...")`; keywords are
    settings."""

    async def served(sql: str, catalog: Catalog | None = None, **settings: Any) -> Api:
        connection = await asyncpg.connect(database_url)
        await connection.execute(f"DROP SCHEMA public CASCADE; CREATE SCHEMA public; {sql}")
        await connection.close()
        return await start(database_url, catalog or await asyncio.to_thread(from_tables, database_url), **settings)

    return served


def from_tables(url: str) -> Catalog:
    """Return what `inspect` declares for the tables of a database."""
    return declarations(Settings(database_url=url, inspect=True)).catalog


@pytest.fixture
def api(serve: Serve, database_url: str) -> Api:
    """Return the built-in resources over an empty database, with default settings."""
    return serve(database_url)


@contextmanager
def filled(postgres_url: str, name: str, template: str, inserts: str) -> Iterator[str]:
    """Yield the URL of a database that is cloned from a template and filled with rows."""
    name = f"{name}_{os.getpid()}"
    url = with_database(postgres_url, name)
    on_server(postgres_url, f"DROP DATABASE IF EXISTS {name}", f"CREATE DATABASE {name} TEMPLATE {template}")
    on_server(url, inserts)
    yield url
    on_server(postgres_url, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def rows_url(postgres_url: str, template: str) -> Iterator[str]:
    """Yield the URL of a database with the rows of `tests/http/rows.py`, one for the whole run, for tests that only
    read."""
    with filled(postgres_url, "waterspout_rows", template, rows.ROWS) as url:
        yield url


@pytest.fixture(scope="session")
def reader_port(rows_url: str) -> Iterator[int]:
    with rows.reading_server(rows_url, built_in()) as port:
        yield port


@pytest.fixture
def reader(io_loop: IOLoop, reader_port: int, rows_url: str) -> Iterator[Api]:
    """Yield the built-in resources over `rows_url` with default settings, one server for the whole run, for tests that
    only read."""
    api = Api(reader_port, rows_url)
    yield api
    io_loop.run_sync(api.close)


@pytest.fixture(scope="session")
def corner_rows_url(postgres_url: str, corner_template: str) -> Iterator[str]:
    """Like `rows_url`, for the resources of `tests/catalog.py`."""
    with filled(postgres_url, "waterspout_corner_rows", corner_template, rows.CORNER_ROWS) as url:
        yield url


@pytest.fixture(scope="session")
def corner_reader_port(corner_rows_url: str) -> Iterator[int]:
    with rows.reading_server(corner_rows_url, CATALOG) as port:
        yield port


@pytest.fixture
def corner_reader(io_loop: IOLoop, corner_reader_port: int, corner_rows_url: str) -> Iterator[Api]:
    """Like `reader`, for the resources of `tests/catalog.py`."""
    api = Api(corner_reader_port, corner_rows_url)
    yield api
    io_loop.run_sync(api.close)


@pytest.fixture(scope="session")
def shop_cluster() -> Iterator[Cluster]:
    """Yield a PostgreSQL with the roles, tables and policies of `tests/http/supabase.py`, in the database `template`.
    The role of the embedded one may not create roles."""
    with tempfile.TemporaryDirectory(prefix="waterspout-test-", dir=memory()) as folder:
        os.chmod(folder, 0o755)
        cluster = Cluster(Path(folder, "cluster"))
        cluster.create()
        cluster.start()
        on_server(cluster.url(), "CREATE DATABASE template", supabase.CREATE_ROLES)
        on_server(cluster.url("template"), supabase.SCHEMA)
        yield cluster
        cluster.stop()


@pytest.fixture
def shop_url(shop_cluster: Cluster) -> Iterator[str]:
    """Yield the URL of a new database with the tables, policies and rows of `tests/http/supabase.py`, for a
    superuser."""
    name = f"shop_{next(_shops)}"
    on_server(shop_cluster.url(), f"CREATE DATABASE {name} TEMPLATE template STRATEGY file_copy")
    yield shop_cluster.url(name)
    on_server(shop_cluster.url(), f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def open_shop(start: Start, shop_url: str) -> supabase.Open:
    """Start servers with row security: `await open_shop(pool_size=1)`; keywords are settings."""

    async def opened(
        routes: supabase.Routing = (), catalog: Catalog = supabase.CATALOG, url: str | None = None, **settings: Any
    ) -> supabase.Shop:
        url = supabase.as_authenticator(url or shop_url)
        return supabase.Shop(await start(url, catalog, routes, **(supabase.SETTINGS | settings)), shop_url)

    return opened


@pytest.fixture
def shop(io_loop: IOLoop, open_shop: supabase.Open) -> supabase.Shop:
    """Return a server with row security."""
    return io_loop.run_sync(open_shop)
