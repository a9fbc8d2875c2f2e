"""What is started for a run: PostgreSQL with the rows, the server and the floor, each on its cores. In: nothing but
a choice of cores. Out: a database URL and ports. The server and the floor get the same core; PostgreSQL and the
load share the others.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import msgspec
import psutil  # type: ignore[import-untyped]  # it has no hints of its own

import migrations
from bench.rows import USERS, load_rows
from server import embedded

POOL_SIZE = 10


class Cores(msgspec.Struct, frozen=True):
    server: frozenset[int]
    others: frozenset[int]


class Running(msgspec.Struct, frozen=True):
    """A server that answers on a port of the loopback."""

    port: int
    pid: int

    def cpu_seconds(self) -> float:
        """What it has used of its core so far, in the kernel's name too."""
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)


def choose_cores() -> Cores:
    """The first core for the server, the rest for PostgreSQL and the load; one core is shared by all."""
    first, *rest = sorted(os.sched_getaffinity(0))
    return Cores(frozenset({first}), frozenset(rest or {first}))


@contextmanager
def database(cores: Cores) -> Iterator[str]:
    """The embedded PostgreSQL in a folder of its own, migrated and filled; its URL. This process and what it starts
    from here on run on the other cores."""
    os.sched_setaffinity(0, cores.others)
    with tempfile.TemporaryDirectory(prefix="waterspout-bench-") as folder:
        # As root PostgreSQL runs as another user, who has to reach it.
        Path(folder).chmod(0o755)
        with embedded.start(Path(folder, "data"), say=print) as server:
            asyncio.run(_fill(server.dsn))
            yield server.dsn


async def _fill(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await migrations.up(connection, migrations.load(migrations.BUILT_IN))
        await load_rows(connection)
        # What creates leave behind is vacuumed between the rounds, and not in the middle of one.
        await connection.execute("ALTER TABLE users SET (autovacuum_enabled = false)")
    finally:
        await connection.close()


def forget_created(url: str) -> None:
    """The users as they were loaded, and no dead rows."""

    async def run() -> None:
        connection = await asyncpg.connect(url)
        try:
            await connection.execute("DELETE FROM users WHERE id > $1", USERS)
            await connection.execute("VACUUM users")
        finally:
            await connection.close()

    asyncio.run(run())


def server_command(url: str) -> list[str]:
    options = ["--port", "0", "--workers", "1", "--pool-size", str(POOL_SIZE)]
    return [sys.executable, "-m", "server", "serve", "--database-url", url, *options]


def floor_command(url: str) -> list[str]:
    return [sys.executable, "-m", "bench.floor", "--database-url", url, "--pool-size", str(POOL_SIZE)]


@contextmanager
def running(command: list[str], cores: Cores) -> Iterator[Running]:
    """A server on the server's core. What it logs goes to a file, as it would in earnest."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, cores.server),
        )
        try:
            yield Running(_port(process), process.pid)
        finally:
            process.terminate()
            process.wait(timeout=60)


def _port(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"is ready on http://\S+:(\d+)", line):
            return int(found[1])
    raise RuntimeError(f"{process.args!r} ended before it was ready")
