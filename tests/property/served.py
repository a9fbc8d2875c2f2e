"""Runs a server with its own database for many examples, and a client that sends bytes unchanged.

What comes in: a PostgreSQL, a Catalog, the SQL of its tables. What goes out: a Served. Its methods are synchronous,
because hypothesis calls a test function many times, without an event loop.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Any, Literal, TypeVar
from urllib.parse import quote, urlencode

import asyncpg
import msgspec
import pytest
from tornado.netutil import bind_sockets

import migrations
from querybuild.declarations.catalog import Catalog
from server.app import make_app, make_server
from server.engine import Engine
from server.http.transport.connections import Server
from server.postgres.database import Database
from server.postgres.opening import open_database
from server.schema import live_references, live_schema
from server.schema.live_schema import LiveSchema
from server.settings import Settings
from tests.conftest import on_server, with_database
from tests.principals import trust_headers
from waterspout import ANYONE, Allow

MEDIA_TYPE = "application/vnd.api+json"
PUBLIC_URL = "http://api.example.org"

Headers = tuple[tuple[str, str], ...]
Criteria = Mapping[str, Any]
"""Filters as JSON trees, by the type whose rows they select. Other rows are hidden."""
NO_CRITERIA: Criteria = MappingProxyType({})
Result = TypeVar("Result")
_numbers = itertools.count(1)


class Answer(msgspec.Struct, frozen=True):
    """An answer. headers: their names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)

    @property
    def ids(self) -> list[str]:
        return [resource["id"] for resource in self.document["data"]]


class _Client:
    """One persistent connection. It sends requests unchecked and unencoded, and only adds the length."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, method: str, target: bytes, headers: Headers, body: bytes | None) -> Answer:
        """Send a request and read its answer. The connection is kept unless the answer closes it. Then no answer to the
        next request is a failure."""
        lines = [f"{name}: {value}".encode() for name, value in (("Host", "localhost"), *headers)]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}".encode())
        head = b"\r\n".join((method.encode() + b" " + target + b" HTTP/1.1", *lines))
        text = head + b"\r\n\r\n" + (body or b"")
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            return await self._sent(text, method)
        except (OSError, EOFError) as error:
            await self.close()
            raise AssertionError(f"no whole answer to {text[:5000]!r}") from error

    async def _sent(self, text: bytes, method: str) -> Answer:
        assert self._streams is not None
        reader, writer = self._streams
        writer.write(text)
        answer = await _read(reader, has_body=method != "HEAD")
        if answer.headers.get("connection") == "close" or "content-length" not in answer.headers:
            await self.close()
        return answer

    async def close(self) -> None:
        if self._streams is not None:
            writer = self._streams[1]
            self._streams = None
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


async def _read(reader: asyncio.StreamReader, *, has_body: bool) -> Answer:
    start, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[:-2]
    pairs = [line.split(": ", 1) for line in lines]
    headers = {name.lower(): value for name, value in pairs}
    if has_body and headers.get("transfer-encoding") == "chunked":
        return Answer(int(start.split()[1]), headers, await _read_chunks(reader))
    length = int(headers.get("content-length", "0")) if has_body else 0
    return Answer(int(start.split()[1]), headers, await reader.readexactly(length))


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int(await reader.readline(), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readline()
    return body


class Served:
    """A running server. It is for one thread only."""

    engine: Engine

    def __init__(self, loop: asyncio.AbstractEventLoop, url: str) -> None:
        self._loop = loop
        self._url = url
        self._server: Server | None = None
        self._database: Database | None = None
        self._client: _Client | None = None
        self._own: asyncpg.Connection[asyncpg.Record] | None = None

    @property
    def port(self) -> int:
        assert self._client is not None
        return self._client.port

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._loop.run_until_complete(work)

    def sql(self, *statements: tuple[Any, ...]) -> list[asyncpg.Record]:
        """Run statements, each with its values. Return the rows of the last one."""

        async def fetch() -> list[asyncpg.Record]:
            if self._own is None:
                self._own = await asyncpg.connect(self._url)
            found = [await self._own.fetch(*statement) for statement in statements]
            return list(found[-1])

        return self.run(fetch())

    def execute(self, script: str) -> None:
        """Run a text of several statements."""

        async def run() -> None:
            if self._own is None:
                self._own = await asyncpg.connect(self._url)
            await self._own.execute(script)

        self.run(run())

    def raw(self, method: str, target: bytes, headers: Headers = (), body: bytes | None = None) -> Answer:
        assert self._client is not None
        return self.run(self._client.send(method, target, headers, body))

    def get(self, path: str, *pairs: tuple[str, str]) -> Answer:
        """Send a GET. pairs: of the query string, not yet encoded."""
        query = "?" + urlencode(pairs, quote_via=quote) if pairs else ""
        return self.raw("GET", (path + query).encode())

    def follow(self, link: str) -> Answer:
        """Send a GET to a link of an answer."""
        assert link.startswith(PUBLIC_URL)
        return self.raw("GET", link.removeprefix(PUBLIC_URL).encode())

    def write(self, method: str, path: str, document: Any) -> Answer:
        body = json.dumps(document).encode()
        return self.raw(method, path.encode(), (("Content-Type", MEDIA_TYPE),), body)

    async def start(self, catalog: Catalog, idempotency: Literal["on", "off"]) -> None:
        self._settings = Settings(
            public_url=PUBLIC_URL, acquire_timeout_seconds=30.0, max_filter_depth=12, idempotency=idempotency
        )
        self._database = await open_database(self._url, self._settings, 2)
        self._app = make_app(self._settings, catalog, LiveSchema(), self._database)
        await self._use(catalog)
        self._server = make_server(self._app, self._settings)
        sockets = bind_sockets(0, "127.0.0.1")
        self._server.add_sockets(sockets)
        self._client = _Client(sockets[0].getsockname()[1])

    def use(self, catalog: Catalog) -> None:
        """Serve this catalog over the same tables."""
        self.run(self._use(catalog))

    async def _use(self, catalog: Catalog) -> None:
        assert self._database is not None
        async with self._database.connection() as connection:
            with pytest.MonkeyPatch.context() as patch:
                # Count rows by keys even in small tables.
                patch.setattr(live_references, "MIN_REFERENCE_BYTES", 0)
                schema = await live_schema.read_live_schema(connection, catalog)
        assert not schema.faults, schema.faults
        self.engine = self._app.engine = Engine(self._settings, catalog, schema)
        trust_headers(self.engine)

    async def stop(self) -> None:
        if self._client is not None:
            await self._client.close()
        if self._own is not None:
            await self._own.close()
        if self._server is not None:
            self._server.stop()
            await self._server.close_all_connections()
        if self._database is not None:
            await self._database.close()


class Target:
    """A server and its catalog."""

    def __init__(self, server: Served, catalog: Catalog) -> None:
        self.server = server
        self.catalog = catalog


def ruled(catalog: Catalog, criteria: Criteria) -> Catalog:
    """Return the catalog with rules: everybody may do everything with the rows that meet the criteria."""
    return Catalog(
        [
            msgspec.structs.replace(one, access=(Allow(ANYONE, "all", rows=criteria[one.type]),))
            if one.type in criteria
            else one
            for one in catalog
        ]
    )


@contextmanager
def served(
    postgres_url: str,
    catalog: Catalog,
    ddl: str = "",
    criteria: Criteria = NO_CRITERIA,
    *,
    idempotency: Literal["on", "off"] = "off",
) -> Iterator[Served]:
    """Serve the catalog with a new database. ddl: further tables besides the built-in ones. criteria: those of its
    rules. idempotency: the setting."""
    name = f"waterspout_property_{os.getpid()}_{next(_numbers)}"
    on_server(postgres_url, f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' {_locale(postgres_url)}")
    url = with_database(postgres_url, name)
    loop = asyncio.new_event_loop()
    server = Served(loop, url)
    try:
        server.run(_make_tables(url, ddl))
        server.run(server.start(ruled(catalog, criteria), idempotency))
        yield server
    finally:
        server.run(server.stop())
        loop.close()
        on_server(postgres_url, f"DROP DATABASE {name} WITH (FORCE)")


def _locale(postgres_url: str) -> str:
    """Return the locale with the order of the embedded database: by code points, with the case of every letter. It
    works on any server."""

    async def version() -> int:
        connection = await asyncpg.connect(postgres_url)
        try:
            return int(connection.get_server_version().major)
        finally:
            await connection.close()

    if asyncio.run(version()) >= 17:
        return "LOCALE 'C' LOCALE_PROVIDER builtin BUILTIN_LOCALE 'C.UTF-8'"
    return "LC_COLLATE 'C' LC_CTYPE 'C.UTF-8' LOCALE_PROVIDER libc"


async def _make_tables(url: str, ddl: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await migrations.up(connection, migrations.load(migrations.BUILT_IN))
        await migrations.up(connection, migrations.load(migrations.SERVER), table=migrations.SERVER_TABLE)
        if ddl:
            await connection.execute(ddl)
    finally:
        await connection.close()
