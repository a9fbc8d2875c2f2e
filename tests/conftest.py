"""The databases of the tests: one PostgreSQL for each run, in it a template with the built-in schema, and a new copy of
the template for each test that needs one.

`make test POSTGRES=url` runs everything on that server instead of the embedded one.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest
from tornado.ioloop import IOLoop

import migrations
from server.embedded import postgres as embedded
from server.embedded.folder import CLUSTER
from server.execution import pacing
from server.processes.memory import COLLECT_AFTER
from tests import catalog
from tests.variables import VARIABLES

_numbers = itertools.count(1)

# As in a running server. With the usual ones the collector took a fifth of the time of the unit tests.
USUAL_THRESHOLDS = gc.get_threshold()
gc.set_threshold(COLLECT_AFTER, 20, 20)

STRATEGY = "" if VARIABLES.get("WATERSPOUT_TEST_POSTGRES") else "STRATEGY file_copy"
"""How a template is copied. Without fsync, copies of whole files take half of the time of copies through the WAL."""


@pytest.fixture
def io_loop() -> Iterator[IOLoop]:
    """Yield a new event loop for each test. The fixture of pytest-tornasync calls make_current, which is deprecated in
    tornado."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield IOLoop(asyncio_loop=loop, make_current=False)  # type: ignore[abstract]
    asyncio.set_event_loop(None)
    end_loop(loop)


def end_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Close an event loop after its tasks have ended. A task that is left would be destroyed during a later test, and
    fail that one."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(_ended(tasks))
    loop.close()
    # The timer that would resume the garbage collector ended with the loop.
    pacing._paused_at = None
    gc.enable()


async def _ended(tasks: Iterable[asyncio.Task[object]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep the collected tests away from the garbage collector, which would look at all of them again and again."""
    gc.collect()
    gc.freeze()
    if not all(item.nodeid.startswith("tests/unit/") for item in session.items):
        # A server that has ended keeps its files open until the collector finds it.
        gc.set_threshold(*USUAL_THRESHOLDS)


def memory() -> str | None:
    """Return a folder in memory, if there is one with enough space. Most tests have their own database. Creating it
    takes 300 ms on a disk and 20 ms in memory."""
    path = "/dev/shm"
    is_fit = os.path.isdir(path) and os.access(path, os.W_OK) and shutil.disk_usage(path).free > 2**31
    return path if is_fit else None


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """Yield the URL of a PostgreSQL whose role may create databases."""
    given = VARIABLES.get("WATERSPOUT_TEST_POSTGRES")
    if given:
        yield given
        return
    folder = Path(tempfile.mkdtemp(prefix="waterspout-test-", dir=memory()))
    # If root runs the tests, PostgreSQL runs as another user, who needs access.
    folder.chmod(0o755)
    data = folder / "data"
    embedded.start(data, say=lambda _: None).stop()
    # The folder is deleted afterwards. With fsync, half of the tests' time would be waiting for the disk.
    with (data / CLUSTER / "postgresql.conf").open("a") as settings:
        settings.write("\nfsync = off\nsynchronous_commit = off\nfull_page_writes = off\n")
        # Its workers belong to a superuser, so a DROP DATABASE WITH (FORCE) of an ordinary role cannot end them.
        settings.write("autovacuum = off\n")
        # The folder may be in memory, and there is one for each process of the tests.
        settings.write("max_wal_size = 256MB\n")
    with embedded.start(data, say=lambda _: None) as server:
        yield server.dsn
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def postgres_version(postgres_url: str) -> int:
    """Return the major version of the PostgreSQL of the tests."""

    async def major() -> int:
        connection = await asyncpg.connect(postgres_url)
        try:
            return connection.get_server_version().major
        finally:
            await connection.close()

    return asyncio.run(major())


def on_server(url: str, *statements: str) -> None:
    async def run() -> None:
        connection = await asyncpg.connect(url)
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()

    asyncio.run(run())


def with_database(url: str, name: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


@pytest.fixture(scope="session")
def administer(postgres_url: str) -> Iterator[Callable[[str], object]]:
    """Yield a function that runs a statement on the server. All calls use one connection, because connecting takes as
    long as creating a database."""
    loop = asyncio.new_event_loop()
    connection = loop.run_until_complete(asyncpg.connect(postgres_url))
    yield lambda statement: loop.run_until_complete(connection.execute(statement))
    loop.run_until_complete(connection.close())
    loop.close()


@contextmanager
def cloned(administer: Callable[[str], object], url: str, name: str, template: str) -> Iterator[str]:
    """Yield the URL of a copy of the template, which is dropped afterwards."""
    administer(f"CREATE DATABASE {name} TEMPLATE {template} {STRATEGY}")
    yield with_database(url, name)
    administer(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def template(postgres_url: str) -> Iterator[str]:
    """Yield the name of a database with the built-in schema."""
    name = f"waterspout_template_{os.getpid()}"
    on_server(postgres_url, f"DROP DATABASE IF EXISTS {name}", f"CREATE DATABASE {name}")

    async def migrate() -> None:
        connection = await asyncpg.connect(with_database(postgres_url, name))
        try:
            await migrations.up(connection, migrations.load(migrations.BUILT_IN))
        finally:
            await connection.close()

    asyncio.run(migrate())
    yield name
    on_server(postgres_url, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def database_url(administer: Callable[[str], object], postgres_url: str, template: str) -> Iterator[str]:
    """Yield the URL of a new database with the built-in schema and no rows."""
    with cloned(administer, postgres_url, f"waterspout_test_{os.getpid()}_{next(_numbers)}", template) as url:
        yield url


@pytest.fixture(scope="session")
def corner_template(postgres_url: str) -> Iterator[str]:
    """Yield the name of a database with the tables of `tests/catalog.py`."""
    name = f"waterspout_corner_template_{os.getpid()}"
    on_server(postgres_url, f"DROP DATABASE IF EXISTS {name}", f"CREATE DATABASE {name}")
    on_server(with_database(postgres_url, name), catalog.DDL)
    yield name
    on_server(postgres_url, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def corner_url(administer: Callable[[str], object], postgres_url: str, corner_template: str) -> Iterator[str]:
    """Yield the URL of a new database with the tables of `tests/catalog.py` and no rows."""
    with cloned(administer, postgres_url, f"waterspout_corner_{os.getpid()}_{next(_numbers)}", corner_template) as url:
        yield url


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give each async test a loop of its own, also one that asks for none: pytest-tornasync would take the current
    loop, and from Python 3.12 on there may be none."""
    is_async = isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj)
    if is_async and "io_loop" not in item.fixturenames:
        item.fixturenames.insert(0, "io_loop")
