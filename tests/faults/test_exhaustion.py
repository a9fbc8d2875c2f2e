"""PostgreSQL runs, but lacks connections, disk space, a lock or its host name."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tornado.ioloop import IOLoop

from server.embedded.folder import account_for
from tests.conftest import end_loop, on_server
from tests.faults.cluster import DEADLINE_SECONDS, Cluster
from tests.faults.conftest import Serve, Shop, stocked
from tests.faults.load import at_work, settled

pytestmark = pytest.mark.alone

RECOVERY_SECONDS = 2.0
WRITES_LATER = [("create", 503, "unavailable"), ("operations", 503, "unavailable")]


async def test_a_pool_that_cannot_grow_serves_with_its_connections(clerk: Shop, serve_fast: Serve) -> None:
    """The pool wants ten connections and gets two. They are enough for four clients."""
    await clerk.cluster.run("ALTER ROLE clerk CONNECTION LIMIT 2")
    api = await serve_fast(clerk.url)
    async with at_work(api) as load:
        await load.until_good(time.monotonic(), times=30)
    assert {one.outcome[0] for one in load.answers} == {200, 201}
    await settled(load, clerk.names)


async def test_postgresql_accepts_no_connection(clerk: Shop, serve_fast: Serve) -> None:
    """Other clients have all connections."""
    api = await serve_fast(clerk.url)
    async with at_work(api) as load:
        await clerk.cluster.run("ALTER ROLE clerk CONNECTION LIMIT 0")
        begin = time.monotonic()
        await load.until_good(begin, times=10)
        ended = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = 'clerk'"
        await clerk.cluster.run(ended)
        busy = [(client, 503, "busy") for client in load.clients]
        await load.until_answered(begin, *busy)
        await clerk.cluster.run("ALTER ROLE clerk CONNECTION LIMIT 2")
        up = time.monotonic()
        await load.until_good(up)
    assert load.recovery_seconds(up) < RECOVERY_SECONDS
    await settled(load, clerk.names)


@contextmanager
def mounted(folder: Path, megabytes: int) -> Iterator[Path]:
    """Yield a mounted small disk."""
    folder.mkdir()
    owner = account_for(folder)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=700,uid={owner.uid},gid={owner.gid}"]
    if subprocess.run([*mount, "tmpfs", str(folder)], check=False, capture_output=True).returncode != 0:
        folder.rmdir()
        pytest.skip("a file system has to be mounted, which takes root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
        folder.rmdir()


@pytest.fixture
def disk(shared_cluster: Cluster, faults_folder: Path) -> Iterator[Path]:
    """Yield a disk with 2 MB, as the tablespace `small`."""
    with mounted(faults_folder / "disk", 2) as folder:
        on_server(shared_cluster.url(), f"CREATE TABLESPACE small LOCATION '{folder}'")
        yield folder
        on_server(shared_cluster.url(), "DROP TABLESPACE small")


def fill(disk: Path) -> Path:
    """Fill all the space that is left."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass
    return filler


async def test_the_disk_is_full(disk: Path, shop: Shop, serve_fast: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """Reads still work. The data is on the full disk, the WAL is not. The log says what is missing."""
    await shop.cluster.run("ALTER TABLE groups SET TABLESPACE small", database=shop.database)
    api = await serve_fast(shop.url)
    async with at_work(api) as load:
        filler = fill(disk)
        full = time.monotonic()
        await load.until_answered(full, *WRITES_LATER)
        assert {one.outcome for one in load.answers if one.client in ("read", "include")} == {(200, "")}
        filler.unlink()
        up = time.monotonic()
        await load.until_good(up)
    assert load.recovery_seconds(up) < RECOVERY_SECONDS
    await settled(load, shop.names)
    assert "PostgreSQL lacks what a request needs: could not extend file" in caplog.text
    assert "No space left on device" in caplog.text


SMALL_LOG = {"min_wal_size": "2MB", "max_wal_size": "4MB"}


@pytest.fixture
def small_log(faults_folder: Path) -> Iterator[tuple[Shop, Path]]:
    """Yield a PostgreSQL whose WAL has a separate disk of 16 MB."""
    with mounted(faults_folder / "log", 16) as disk:
        cluster = Cluster(faults_folder / "small-log")
        cluster.create("--wal-segsize=1", f"--waldir={disk / 'wal'}")
        cluster.start(**SMALL_LOG)
        try:
            yield stocked(cluster), disk
        finally:
            cluster.stop()
            shutil.rmtree(cluster.folder)


async def test_the_disk_of_the_wal_is_full(small_log: tuple[Shop, Path], serve_fast: Serve) -> None:
    """PostgreSQL crashes and cannot recover without disk space, so it ends. Whoever supervises it starts it again."""
    shop, disk = small_log
    api = await serve_fast(shop.url)
    async with at_work(api) as load:
        await load.until_good(time.monotonic())
        filler = fill(disk)
        async with asyncio.timeout(DEADLINE_SECONDS):
            while shop.cluster.is_running:
                with suppress(asyncpg.PostgresError, OSError):
                    await shop.cluster.run("SELECT pg_logical_emit_message(true, 'test', repeat('0', 1000000))")
        await load.until_answered(time.monotonic(), *[(client, 503, "unavailable") for client in load.clients])
        filler.unlink()
        await asyncio.to_thread(shop.cluster.start, **SMALL_LOG)
        up = time.monotonic()
        await load.until_good(up)
    assert load.recovery_seconds(up) < RECOVERY_SECONDS
    await settled(load, shop.names)


async def test_a_lock_is_held_for_long(shop: Shop, serve_fast: Serve) -> None:
    """Requests that need the lock fail after the time of a statement. Others fail when no connection becomes free."""
    api = await serve_fast(shop.url, pool_size=3, max_requests_per_client=3, acquire_timeout_seconds=0.3)
    async with at_work(api) as load:
        holder = await asyncpg.connect(shop.url)
        try:
            await holder.execute("BEGIN; LOCK TABLE groups IN ACCESS EXCLUSIVE MODE")
            locked = time.monotonic()
            slow = [(client, 504, "statement_timeout") for client in ("include", "create", "operations")]
            await load.until_answered(locked, *slow, ("read", 503, "busy"))
        finally:
            await holder.close()
        up = time.monotonic()
        await load.until_good(up)
    assert load.recovery_seconds(up) < RECOVERY_SECONDS
    assert load.longest_seconds() < 2.5
    await settled(load, shop.names)


class Names:
    """Host names, as the system resolves them."""

    def __init__(self) -> None:
        self.are_gone = False
        self._found = socket.getaddrinfo

    def find(self, host: Any, *values: Any, **options: Any) -> Any:
        if host != "database.test":
            return self._found(host, *values, **options)
        if self.are_gone:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self._found("127.0.0.1", *values, **options)


class TestNames:
    @pytest.fixture
    def io_loop(self) -> Iterator[IOLoop]:
        """Yield an asyncio loop, whose resolver a test can disable."""
        loop = asyncio.new_event_loop()
        yield IOLoop(asyncio_loop=loop, make_current=False)  # type: ignore[abstract]
        end_loop(loop)

    async def test_the_host_name_does_not_resolve(
        self, shop: Shop, serve_fast: Serve, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Open connections still work."""
        names = Names()
        monkeypatch.setattr(socket, "getaddrinfo", names.find)
        api = await serve_fast(shop.url.replace("@127.0.0.1:", "@database.test:"))
        async with at_work(api) as load:
            names.are_gone = True
            begin = time.monotonic()
            await load.until_good(begin, times=20)
            assert {one.outcome[0] for one in load.answers} == {200, 201}
            ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1"
            await shop.cluster.run(ended, shop.database)
            await load.until_answered(begin, *[(client, 503, "unavailable") for client in load.clients])
            names.are_gone = False
            up = time.monotonic()
            await load.until_good(up)
        assert load.recovery_seconds(up) < RECOVERY_SECONDS
        await settled(load, shop.names)
