"""Databases for the tests of this folder: an empty one for each test, and one with the built-in tables for each
module."""

import asyncio
import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import asyncpg
import pytest
from tornado.ioloop import IOLoop

import migrations

Connect = Callable[[str], Awaitable[asyncpg.Connection]]


@pytest.fixture
def database(postgres_url: str) -> Iterator[str]:
    """Yield the URL of an empty database."""
    with new_database(postgres_url) as url:
        yield url


@pytest.fixture(scope="module")
def catalog_url(postgres_url: str) -> Iterator[str]:
    """Yield the URL of a database with the tables of the built-in catalog."""
    with new_database(postgres_url) as url:
        asyncio.run(apply_built_in(url))
        yield url


@pytest.fixture
def connect(io_loop: IOLoop) -> Iterator[Connect]:
    """Yield a function that connects to a URL. The connections are closed after the test."""
    opened: list[asyncpg.Connection] = []

    async def connect(url: str) -> asyncpg.Connection:
        opened.append(await asyncpg.connect(url))
        return opened[-1]

    yield connect
    for conn in opened:
        io_loop.run_sync(conn.close)


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that creates a folder with these files, given as text or bytes."""

    def folder(files: dict[str, str | bytes]) -> Path:
        path = tmp_path / uuid.uuid4().hex
        path.mkdir()
        for name, text in files.items():
            (path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return folder


@contextmanager
def new_database(server_url: str) -> Iterator[str]:
    name = f"waterspout_test_{uuid.uuid4().hex}"
    asyncio.run(execute(server_url, f"CREATE DATABASE {name}"))
    try:
        yield re.sub(r"^(\w+://[^/?]*)(?:/[^?]*)?", rf"\1/{name}", server_url)
    finally:
        asyncio.run(execute(server_url, f"DROP DATABASE {name} WITH (FORCE)"))


async def apply_built_in(url: str) -> None:
    async with connected(url) as conn:
        await migrations.up(conn, migrations.load(migrations.BUILT_IN))


async def execute(url: str, sql: str) -> None:
    async with connected(url) as conn:
        await conn.execute(sql)


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection]:
    conn = await asyncpg.connect(url)
    try:
        yield conn
    finally:
        await conn.close()
