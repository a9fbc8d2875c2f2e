"""A PostgreSQL for this package, which tests may stop and kill, and the same event loop as the server uses."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import uvloop
from tornado.ioloop import IOLoop

import migrations
from server.resources import built_in
from tests.conftest import end_loop, memory, on_server
from tests.faults.cluster import Cluster
from tests.faults.load import ROWS
from tests.faults.network import Network
from tests.http.conftest import Api, Start, start  # noqa: F401  (a fixture)

_numbers = itertools.count(1)

FAST = {
    "network_timeout_seconds": 0.5,
    "statement_timeout_seconds": 1.0,
    "acquire_timeout_seconds": 1.0,
    # Locks of a client that is gone stay until then, because PostgreSQL does not notice its end.
    "idle_transaction_timeout_seconds": 0.5,
}

Serve = Callable[..., Awaitable[Api]]


@pytest.fixture
def io_loop() -> Iterator[IOLoop]:
    loop = uvloop.new_event_loop()
    yield IOLoop(asyncio_loop=loop, make_current=False)  # type: ignore[abstract]
    with warnings.catch_warnings():
        # A failed test leaves transports open. If this warning is an error, uvloop never closes them.
        warnings.simplefilter("ignore", ResourceWarning)
        end_loop(loop)


@pytest.fixture(scope="session")
def faults_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="waterspout-faults-", dir=memory()))
    # PostgreSQL runs as another user where we are root.
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


class Shop:
    """The built-in tables with the rows of a `Load`, in a separate database."""

    def __init__(self, cluster: Cluster, database: str, role: str = "postgres") -> None:
        self.cluster = cluster
        self.database = database
        self.role = role

    @property
    def url(self) -> str:
        return self.cluster.url(self.database).replace("//postgres@", f"//{self.role}@")

    def through(self, port: int) -> str:
        return self.url.replace(f":{self.cluster.port}/", f":{port}/")

    async def names(self) -> Counter[str]:
        """Return how often each name exists."""
        found = await self.cluster.run("SELECT name FROM groups", database=self.database)
        return Counter(name for (name,) in found)


@pytest.fixture(scope="session")
def shared_cluster(faults_folder: Path) -> Iterator[Cluster]:
    made = Cluster(faults_folder / "shared")
    made.create()
    made.start()
    stocked(made)
    yield made
    made.stop()


def stocked(cluster: Cluster) -> Shop:
    """Return the tables and the rows, in the database `shop`."""
    on_server(cluster.url(), "CREATE DATABASE shop")
    asyncio.run(_migrate(cluster.url("shop")))
    on_server(cluster.url("shop"), ROWS)
    return Shop(cluster, "shop")


async def _migrate(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await migrations.up(connection, migrations.load(migrations.BUILT_IN))
    finally:
        await connection.close()


@pytest.fixture
def shop(shared_cluster: Cluster) -> Iterator[Shop]:
    name = f"shop_{next(_numbers)}"
    # PostgreSQL logs 32 values of a sequence in advance. A copied sequence continues with the logged values, so after a
    # crash it would return the same ids again, unless there was a checkpoint.
    on_server(shared_cluster.url(), f"CREATE DATABASE {name} TEMPLATE shop STRATEGY file_copy", "CHECKPOINT")
    yield Shop(shared_cluster, name)
    on_server(shared_cluster.url(), f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def clerk(shop: Shop) -> Iterator[Shop]:
    """Yield the shop for a user who is not a superuser."""
    on_server(
        shop.url,
        "CREATE ROLE clerk LOGIN",
        "GRANT ALL ON ALL TABLES IN SCHEMA public TO clerk",
        "GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO clerk",
    )
    yield Shop(shop.cluster, shop.database, "clerk")
    on_server(shop.url, "DROP OWNED BY clerk CASCADE", "DROP ROLE clerk")


@pytest.fixture
def network(io_loop: IOLoop, shop: Shop) -> Iterator[Network]:
    """Yield the network between the server and the shop."""
    made = Network(shop.cluster.port)
    io_loop.run_sync(made.open)
    yield made
    io_loop.run_sync(made.close)


@pytest.fixture
def serve_fast(start: Start) -> Serve:  # noqa: F811  (a fixture)
    """Starts a server with short timeouts; keywords are settings."""

    async def served(url: str, **settings: Any) -> Api:
        return await start(url, built_in(), **(FAST | settings))

    return served
