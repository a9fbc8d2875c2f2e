"""Starts PostgreSQL with the rows, and servers on it, each on its cores. It returns a database URL, ports, and the
processor time and memory of the processes. Every server gets the same core; PostgreSQL and the load share the others.
It must not know a request.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import msgspec
import psutil  # type: ignore[import-untyped]  # it has no hints of its own

import migrations
from bench.rows import SMALL, keep_copies, load_rows
from server.embedded import postgres as embedded

ROOT = Path(__file__).parents[1]
"""The clone. `python -m bench.floor` finds its modules there."""

POOL_SIZE = 10
READY_SECONDS = IDLE_SECONDS = 60.0
_SAMPLE_SECONDS = 0.1
HAS_PINS = hasattr(os, "sched_setaffinity")
SETTINGS = ("server_version", "fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "jit")

Result = TypeVar("Result")
Cpus = frozenset[int]


class Cores(msgspec.Struct, frozen=True):
    """The cores of the server, and those of PostgreSQL and the load."""

    server: Cpus
    others: Cpus

    @property
    def both(self) -> Cpus:
        """Two cores, for two workers, PostgreSQL and the load together."""
        return frozenset(sorted(self.server | self.others)[:2])


class Processes(msgspec.Struct, frozen=True):
    """A process and its children."""

    pid: int

    def all(self) -> list[Any]:
        """Return the processes that still run."""
        with suppress(psutil.NoSuchProcess):
            first = psutil.Process(self.pid)
            return [first, *first.children(recursive=True)]
        return []

    def cpu_seconds(self) -> float:
        """Return the processor time so far, in user and kernel mode, including processes that have ended."""
        total = 0.0
        for process in self.all():
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                ended = getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
                total += times.user + times.system + ended
        return total

    def wait_until_idle(self) -> None:
        """Wait until the processes use almost no processor time, at most IDLE_SECONDS."""
        end, used = time.monotonic() + IDLE_SECONDS, self.cpu_seconds()
        while time.monotonic() < end:
            time.sleep(_SAMPLE_SECONDS)
            before, used = used, self.cpu_seconds()
            if used - before < _SAMPLE_SECONDS / 4:
                return

    def memory_mb(self) -> float:
        """Resident memory; shared memory counts once if the system reports it."""
        total = 0.0
        for process in self.all():
            with suppress(psutil.Error):
                full = process.memory_full_info()
                total += getattr(full, "pss", 0) or full.rss
        return total / 1e6

    def pin(self, cpus: Cpus) -> None:
        """Bind the processes to these cores."""
        if HAS_PINS:
            for process in self.all():
                with suppress(psutil.NoSuchProcess):
                    process.cpu_affinity(sorted(cpus))


class Running(msgspec.Struct, frozen=True):
    """A server on a port of the loopback interface. name: one word. label: for people."""

    name: str
    label: str
    port: int
    processes: Processes

    @property
    def url(self) -> str:
        """The URL of the server."""
        return f"http://127.0.0.1:{self.port}"


class Rows(msgspec.Struct, frozen=True):
    """A database with rows, and its PostgreSQL."""

    url: str
    users: int
    processes: Processes

    def run(self, work: Callable[[asyncpg.Connection[Any]], Awaitable[Result]]) -> Result:
        """Run an async function on a new connection."""

        async def connected() -> Result:
            async with _connection(self.url) as connection:
                return await work(connection)

        return asyncio.run(connected())


@asynccontextmanager
async def _connection(url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


def choose_cores() -> Cores:
    """Return the first core for the server, the others for PostgreSQL and the load. A single core is shared by all."""
    known = os.sched_getaffinity(0) if HAS_PINS else range(os.cpu_count() or 1)
    first, *rest = sorted(known)
    return Cores(frozenset({first}), frozenset(rest or {first}))


def pin_own(cpus: Cpus) -> None:
    """Pin this process and the processes that it starts from now on."""
    if HAS_PINS:
        os.sched_setaffinity(0, cpus)


@contextmanager
def database(cores: Cores) -> Iterator[Rows]:
    """Start the embedded PostgreSQL in a separate folder, with the smaller rows. This process, and those that it
    starts from now on, run on the other cores. Raises EmbeddedError.
    """
    pin_own(cores.others)
    with tempfile.TemporaryDirectory(prefix="waterspout-bench-") as folder:
        # As root PostgreSQL runs as another user, who must be able to enter the folder.
        Path(folder).chmod(0o755)
        with embedded.start(Path(folder, "data"), say=lambda _: None) as server:
            yield _filled(server.dsn, SMALL)


def larger(rows: Rows, users: int) -> Rows:
    """Create another database beside `rows`."""
    name = f"rows_{users}"

    async def create(connection: asyncpg.Connection[Any]) -> None:
        await connection.execute(f"CREATE DATABASE {name}")

    rows.run(create)
    parts = urlsplit(rows.url)
    return _filled(urlunsplit(parts._replace(path=f"/{name}")), users)


def _filled(url: str, users: int) -> Rows:
    async def fill(connection: asyncpg.Connection[Any]) -> int:
        await migrations.up(connection, migrations.load(migrations.BUILT_IN))
        await load_rows(connection, users)
        if users == SMALL:
            await keep_copies(connection)
        return int(await connection.fetchval("SELECT pg_backend_pid()"))

    async def own() -> int:
        async with _connection(url) as connection:
            backend = await fill(connection)
            return int(psutil.Process(backend).ppid())

    return Rows(url, users, Processes(asyncio.run(own())))


def database_settings(rows: Rows) -> dict[str, str]:
    """Return the settings that make writes durable, and the size of the shared memory."""

    async def shown(connection: asyncpg.Connection[Any]) -> dict[str, str]:
        return {name: await connection.fetchval(f"SHOW {name}") for name in SETTINGS}

    return rows.run(shown)


def server_command(url: str, workers: int = 1, *, has_stages: bool = False) -> list[str]:
    """Return the command that starts this server. has_stages: whether answers tell the time of each stage. On addresses
    of a network they do not by default."""
    timing = "--server-timing" if has_stages else "--no-server-timing"
    options = ["--port", "0", "--workers", str(workers), "--pool-size", str(POOL_SIZE), timing]
    return [sys.executable, "-m", "server", "serve", "--database-url", url, *options]


def floor_command(url: str, *, is_plain: bool = False) -> list[str]:
    """Return the command that starts a floor."""
    options = ["--database-url", url, "--pool-size", str(POOL_SIZE), *(["--plain"] if is_plain else [])]
    return [sys.executable, "-m", "bench.floor", *options]


def free_port() -> int:
    """Return a free port of the loopback interface."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class StartFailed(Exception):
    """A server ended, or did not answer in time. The message contains the end of its output."""


@contextmanager
def running(
    name: str,
    label: str,
    command: list[str],
    cpus: Cpus,
    *,
    port: int = 0,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Running]:
    """Run a server on its core, in the clone. Its log goes to a file, as in production. port: where it will answer, or
    0 for one that prints its address. Raises StartFailed.
    """
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command,
            stdout=log if port else subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, **(environment or {})},
            cwd=ROOT,
            preexec_fn=lambda: pin_own(cpus),
        )
        try:
            if port:
                _wait_for(process, port)
            own = port or _announced_port(process)
            yield Running(name, label, own, Processes(process.pid))
        except StartFailed as error:
            log.seek(0)
            raise StartFailed(f"{error}\n{log.read()[-2000:].decode(errors='replace')}") from None
        finally:
            _end(process)


def _announced_port(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"is ready on http://\S+:(\d+)", line):
            return int(found[1])
    raise StartFailed(f"{' '.join(map(str, process.args))} ended before it was ready")  # type: ignore[arg-type]


def _wait_for(process: subprocess.Popen[str], port: int) -> None:
    end = time.monotonic() + READY_SECONDS
    while time.monotonic() < end and process.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise StartFailed(f"{process.args!r} does not answer on port {port}")


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
