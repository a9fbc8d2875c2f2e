"""What is repeated after a connection broke, what is not, and on which connection."""

from __future__ import annotations

import asyncio
import struct
import threading
import time
from collections.abc import Awaitable, Callable, Iterator

import asyncpg
import pytest
from tornado.ioloop import IOLoop

from server.errors import OutcomeUnknown, SchemaChanged, StatementTimeout, Unavailable
from server.limits.running import CancelScope
from server.postgres.connection import PostgresConnection
from server.postgres.custom_code import CustomCodeDatabase
from server.postgres.database import Database, MisplacedWrite
from server.postgres.opening import open_database
from server.settings import Settings
from tests.conftest import on_server
from tests.faults.conftest import Serve, Shop
from tests.faults.network import Network
from tests.http.people import document
from tests.waiting import until

pytestmark = pytest.mark.alone

SECONDS = 10.0
IMPATIENT = {"network_timeout_seconds": 0.3, "statement_timeout_seconds": 0.5, "acquire_timeout_seconds": 5.0}
Open = Callable[..., Awaitable[Database]]


@pytest.fixture
def open_fast(io_loop: IOLoop) -> Iterator[Open]:
    """Opens a database with five connections, without a server; keywords are settings."""
    made: list[Database] = []

    async def opened(url: str, **settings: float) -> Database:
        made.append(await open_database(url, Settings(**(IMPATIENT | settings)), 5))
        return made[-1]

    yield opened
    for database in made:
        io_loop.run_sync(database.close)


async def pid_of(connection: PostgresConnection) -> int:
    return int(await connection.fetchval("SELECT pg_backend_pid()"))


async def fill(database: Database) -> set[int]:
    """Open all connections of the pool. Returns the ids of their backends."""
    together = asyncio.Barrier(5)

    async def work(connection: PostgresConnection) -> int:
        await together.wait()
        return await pid_of(connection)

    return set(await asyncio.gather(*(database.read(work, is_snapshot=False) for _ in range(5))))


def terminate_all(shop: Shop) -> None:
    """Terminate the backends while the event loop stands still, so that it cannot notice."""
    backends = f"FROM pg_stat_activity WHERE datname = '{shop.database}'"
    wait = f"DO $$ BEGIN WHILE EXISTS (SELECT {backends}) LOOP PERFORM pg_stat_clear_snapshot(); END LOOP; END $$"
    ended = (f"SELECT pg_terminate_backend(pid) {backends}", wait)
    thread = threading.Thread(target=on_server, args=(shop.cluster.url(), *ended))
    thread.start()
    thread.join()


@pytest.mark.parametrize("is_snapshot", [False, True])
async def test_all_connections_are_dead_at_once(shop: Shop, open_fast: Open, is_snapshot: bool) -> None:
    """A read that got one of them gets none of the others in its second attempt."""
    database = await open_fast(shop.url)
    old = await fill(database)
    assert len(old) == 5
    terminate_all(shop)
    found = await asyncio.gather(*(database.read(pid_of, is_snapshot=is_snapshot) for _ in range(5)))
    assert old.isdisjoint(found)


@pytest.mark.parametrize("is_snapshot", [False, True])
async def test_one_read_after_another_on_dead_connections(shop: Shop, open_fast: Open, is_snapshot: bool) -> None:
    database = await open_fast(shop.url)
    old = await fill(database)
    terminate_all(shop)
    for _ in range(5):
        assert await database.read(pid_of, is_snapshot=is_snapshot) not in old


async def test_a_write_on_a_dead_connection(shop: Shop, open_fast: Open) -> None:
    """Its BEGIN fails, so the transaction begins on another connection. A statement that is its own transaction was
    sent, and is not sent again. PostgreSQL reports if it had ended before."""
    database = await open_fast(shop.url)
    old = await fill(database)
    terminate_all(shop)
    assert await database.write(pid_of) not in old
    await fill(database)
    terminate_all(shop)
    with pytest.raises(Unavailable):
        await database.write_statement(pid_of)
    assert await database.write_statement(pid_of) > 0


async def test_between_two_statements_of_a_transaction(shop: Shop, open_fast: Open) -> None:
    """The driver notices it before the second statement is sent."""
    database = await open_fast(shop.url)
    broken: list[int] = []

    async def work(connection: PostgresConnection) -> int:
        if not broken:
            broken.append(await pid_of(connection))
            await shop.cluster.run("SELECT pg_terminate_backend($1)", broken[0])
            await until(connection.is_closed)
        return await pid_of(connection)

    assert await database.read(work, is_snapshot=True) not in broken
    broken.clear()
    with pytest.raises(Unavailable):
        await database.write(work)


async def test_a_backend_is_terminated_while_a_write_waits(shop: Shop, serve_fast: Serve) -> None:
    """PostgreSQL reports its end before the write is done, so nothing of it was written."""
    api = await serve_fast(shop.url, statement_timeout_seconds=SECONDS)
    assert (await api.patch("/groups/1", document("group", {"name": "one"}, id="1"))).status == 200
    holder = await asyncpg.connect(shop.url)
    try:
        await holder.execute("BEGIN; SELECT FROM groups WHERE id = 1 FOR UPDATE")
        writing = asyncio.ensure_future(api.patch("/groups/1", document("group", {"name": "two"}, id="1")))
        end = (
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))"
        )
        await until(lambda: holder.fetchval(end))
        answer = await writing
        assert (answer.status, answer.errors[0]["code"], answer.headers["Retry-After"]) == (503, "unavailable", "1")
    finally:
        await holder.close()
    assert [row[0] for row in await api.sql("SELECT name FROM groups")] == ["one"]


async def test_a_kept_connection_that_postgresql_has_ended(shop: Shop, open_fast: Open) -> None:
    """Then the driver refuses to send anything, so the write can be sent on another connection."""
    sent, goodbye = 0, b"SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0"
    network = Network(shop.cluster.port)
    await network.open()
    try:
        database = await open_fast(shop.through(network.port))
        await database.write_statement(pid_of)
        network.say(b"E" + struct.pack("!I", 4 + len(goodbye)) + goodbye)

        async def insert(connection: PostgresConnection) -> str:
            nonlocal sent
            sent += 1
            return await connection.execute("INSERT INTO groups (name) VALUES ($1)", "once")

        await network.heard()
        assert await database.write_statement(insert) == "INSERT 0 1"
    finally:
        await network.close()
    assert sent == 2
    assert (await shop.names())["once"] == 1


@pytest.mark.parametrize("door", ["read", "write_statement"])
async def test_values_that_the_driver_refuses(shop: Shop, open_fast: Open, door: str) -> None:
    """PostgreSQL has already parsed the statement, and would keep its tables locked until the next statement."""
    database = await open_fast(shop.url)

    async def work(connection: PostgresConnection) -> None:
        await connection.fetch("SELECT FROM groups WHERE id = $1", "one")

    with pytest.raises(SchemaChanged):
        await (database.write_statement(work) if door == "write_statement" else database.read(work, is_snapshot=False))
    states = "SELECT state FROM pg_stat_activity WHERE datname = $1 AND application_name = 'waterspout'"
    assert [row[0] for row in await shop.cluster.run(states, shop.database)] == ["idle"]


class TestSilence:
    """PostgreSQL does not answer."""

    async def test_of_a_read(self, shop: Shop, network: Network, open_fast: Open) -> None:
        database = await open_fast(shop.through(network.port))
        await database.read(pid_of, is_snapshot=False)
        network.swallow()
        begin = time.monotonic()
        with pytest.raises(StatementTimeout):
            await database.read(pid_of, is_snapshot=False)
        assert 0.7 < time.monotonic() - begin < 1.5

    async def test_of_a_read_of_custom_code(self, shop: Shop, network: Network, open_fast: Open) -> None:
        database = CustomCodeDatabase(await open_fast(shop.through(network.port)), CancelScope(), "read")
        await database.read(pid_of)
        network.swallow()
        with pytest.raises(StatementTimeout):
            await database.read(pid_of)

    async def test_of_a_write(self, shop: Shop, network: Network, open_fast: Open) -> None:
        """A write of one statement, and one in a transaction, where it is certain that nothing was written."""
        database = await open_fast(shop.through(network.port))
        for _ in range(2):
            await asyncio.gather(database.write_statement(pid_of), database.write(pid_of))
        network.swallow()
        single, double = await asyncio.gather(
            database.write_statement(pid_of), database.write(pid_of), return_exceptions=True
        )
        assert isinstance(single, OutcomeUnknown)
        assert isinstance(double, StatementTimeout)

    async def test_of_a_commit(self, shop: Shop, network: Network, open_fast: Open) -> None:
        database = await open_fast(shop.through(network.port))

        async def work(connection: PostgresConnection) -> None:
            await pid_of(connection)
            network.swallow()

        with pytest.raises(OutcomeUnknown):
            await database.write(work)

    @pytest.mark.parametrize("is_snapshot", [False, True])
    async def test_after_a_client_has_gone(
        self, shop: Shop, network: Network, open_fast: Open, is_snapshot: bool
    ) -> None:
        """The server waits for its connection only as long as the network may be silent."""
        database = await open_fast(shop.through(network.port), statement_timeout_seconds=SECONDS)
        is_sent = asyncio.Event()

        async def work(connection: PostgresConnection) -> None:
            network.swallow()
            is_sent.set()
            await connection.execute("SELECT pg_sleep(100)")

        reading = asyncio.ensure_future(database.read(work, is_snapshot=is_snapshot))
        await is_sent.wait()
        await asyncio.sleep(0)
        gone = time.monotonic()
        reading.cancel()
        await asyncio.wait([reading])
        assert reading.cancelled()
        assert 0.2 < time.monotonic() - gone < 2.0
        network.mend()
        assert await database.read(pid_of, is_snapshot=is_snapshot) > 0

    async def test_a_connection_whose_client_has_gone_is_used_again(self, shop: Shop, open_fast: Open) -> None:
        """PostgreSQL cancels the statement when it is asked to."""
        database = await open_fast(shop.url, statement_timeout_seconds=SECONDS)
        pid = await database.read(pid_of, is_snapshot=False)
        reading = asyncio.ensure_future(
            database.read(lambda connection: connection.execute("SELECT pg_sleep(100)"), is_snapshot=False)
        )
        at_work = "SELECT FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(100)'"
        await until(lambda: shop.cluster.run(at_work))
        reading.cancel()
        await asyncio.wait([reading])
        assert await database.read(pid_of, is_snapshot=False) == pid


async def test_an_insert_in_a_custom_read_is_refused_even_when_the_connection_breaks(
    shop: Shop, open_fast: Open
) -> None:
    """It is never committed, so a repetition cannot do it twice."""
    database = await open_fast(shop.url)
    held = CustomCodeDatabase(database, CancelScope(), "read")
    tried = 0

    async def work(connection: PostgresConnection) -> None:
        nonlocal tried
        tried += 1
        if tried == 1:
            await shop.cluster.run("SELECT pg_terminate_backend($1)", await pid_of(connection))
        await connection.execute("INSERT INTO groups (name) VALUES ('once')")

    with pytest.raises(MisplacedWrite):
        await held.read(work, is_snapshot=False)
    assert tried == 2
    assert "once" not in await shop.names()
