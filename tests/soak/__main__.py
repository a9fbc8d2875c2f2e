"""`make soak`: clients send requests for some minutes, while the database, the network and the server's own processes
fail every few seconds. A report follows.

The exit status is 0 if every write that was reported as done exists exactly once, no write that was reported as failed
exists, and every request got a correct answer in time. Otherwise it is 1.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import click
import msgspec
import psutil
import uvloop

import migrations
from tests.conftest import memory
from tests.faults.cluster import Cluster
from tests.faults.network import Network
from tests.ready import address_in, port_of
from tests.soak.account import Account, Found, disagreements
from tests.soak.faults import DATABASE, ROWS, WORKERS, Fault, Faults

PROCESSES = 2
WARM_SECONDS, PAUSE_SECONDS = 10.0, (2.0, 5.0)
RECOVERY_SECONDS = 4.0
"""The longest time until the first successful read and write after a fault: PostgreSQL's replay of its log, and two
seconds."""

GROWTH_BYTES, GROWTH_DESCRIPTORS = 32 * 2**20, 10
"""How much one worker, or all workers together, may grow in the second half of the run. No worker is replaced in that
half."""


@click.command()
@click.option("--minutes", default=10.0, show_default=True)
@click.option("--connections", default=32, show_default=True, help="How many clients.")
@click.option("--seed", type=int, help="Of the order of the faults.")
def main(minutes: float, connections: int, seed: int | None) -> None:
    seed = random.SystemRandom().randrange(1000) if seed is None else seed
    click.echo(f"{minutes:g} minutes, {connections} clients, --seed {seed}")
    folder = Path(tempfile.mkdtemp(prefix="waterspout-soak-", dir=memory()))
    folder.chmod(0o755)
    try:
        is_good = uvloop.run(soak(folder, minutes * 60, connections, random.Random(seed)))
    finally:
        shutil.rmtree(folder)
    sys.exit(0 if is_good else 1)


async def soak(folder: Path, seconds: float, connections: int, chance: random.Random) -> bool:
    cluster = Cluster(folder / "cluster")
    cluster.create()
    cluster.start()
    try:
        await _fill(cluster)
        network = Network(cluster.port)
        await network.open()
        url = cluster.url(DATABASE).replace(f":{cluster.port}/", f":{network.port}/")
        async with _served(url, folder) as (pid, port), SecondServer(url, folder) as second:
            faults = Faults(cluster, network, pid, second.kill)
            async with _clients(folder, [port, second.port], connections) as told:
                growth = await _fail(faults, port, seconds, chance)
        await network.close()
        rows = await cluster.run("SELECT id::text, name, serial FROM computers", database=DATABASE)
        return _report(told, [Found(*row) for row in rows]) and growth
    finally:
        cluster.stop()


async def _fill(cluster: Cluster) -> None:
    await cluster.run_all(f"CREATE DATABASE {DATABASE}")
    connection = await asyncpg.connect(cluster.url(DATABASE))
    try:
        await migrations.up(connection, migrations.load(migrations.BUILT_IN))
        await migrations.up(connection, migrations.load(migrations.SERVER), table=migrations.SERVER_TABLE)
        await connection.execute(ROWS)
        await connection.execute("ANALYZE")
    finally:
        await connection.close()


@asynccontextmanager
async def _served(url: str, folder: Path) -> AsyncIterator[tuple[int, int]]:
    """Yield the process id and the port of a server with the default settings, started as an operator starts it."""
    process = await _start(url, folder / "server.log", WORKERS)
    try:
        yield process.pid, await _port(process)
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), 60)
        click.echo((folder / "server.log").read_text()[-20_000:], err=True)


async def _start(url: str, log_path: Path, workers: int, port: int = 0) -> asyncio.subprocess.Process:
    command = ["-m", "server", "serve", "--port", str(port), "--workers", str(workers), "--log-level", "error"]
    with log_path.open("ab") as log:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, *command, "--idempotency", "on", "--database-url", url),
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )


async def _port(process: asyncio.subprocess.Process) -> int:
    assert process.stdout is not None
    address = address_in([(await process.stdout.readline()).decode()])
    assert address is not None
    return port_of(address)


class SecondServer:
    """Another server on the same database, which is killed with all of its processes and started again."""

    port = 0
    _process: asyncio.subprocess.Process

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._log = folder / "second.log"

    async def __aenter__(self) -> SecondServer:
        self._process = await _start(self._url, self._log, 1, self.port)
        self.port = await _port(self._process)
        return self

    async def kill(self) -> None:
        """Kill it, and start it again. If the database is away, it is tried again."""
        os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        while True:
            try:
                await self.__aenter__()
                return
            except AssertionError:
                await asyncio.sleep(PAUSE_SECONDS[0])

    async def __aexit__(self, *_: object) -> None:
        os.killpg(self._process.pid, signal.SIGTERM)
        await asyncio.wait_for(self._process.wait(), 60)


@asynccontextmanager
async def _clients(folder: Path, ports: list[int], connections: int) -> AsyncIterator[list[Account]]:
    """Start client processes. The list is filled with their accounts when they have ended."""
    files = [folder / f"clients-{number}" for number in range(PROCESSES)]
    command = [sys.executable, "-m", "tests.soak.client", ",".join(map(str, ports))]
    count = str(connections // PROCESSES)
    processes = [
        await asyncio.create_subprocess_exec(*command, file.name, count, str(file), stdin=subprocess.PIPE)
        for file in files
    ]
    told: list[Account] = []
    try:
        yield told
    finally:
        for process in processes:
            # Writes with a key are sent until they are answered, through the network of this process.
            await asyncio.wait_for(process.communicate(b""), 120)
    told += [msgspec.json.decode(file.read_bytes(), type=Account) for file in files]


async def _fail(faults: Faults, port: int, seconds: float, chance: random.Random) -> bool:
    """Cause one fault after the other, in the first half also in the server's own processes. Return whether everything
    stayed within its limits."""
    await asyncio.sleep(WARM_SECONDS)
    begin, recoveries = time.monotonic(), defaultdict[str, list[float]](list)
    await _fail_until(begin + seconds / 2, faults.of_the_database() | faults.of_the_server(), port, chance, recoveries)
    # A worker that replaced a killed one has its share of the connections by then.
    await asyncio.sleep(WARM_SECONDS)
    before = _sizes(faults.workers())
    await _fail_until(begin + seconds, faults.of_the_database(), port, chance, recoveries)
    after = _sizes(faults.workers())
    click.echo("\nfault                          times   recovery, median and longest (s)")
    for name, found in sorted(recoveries.items(), key=lambda item: -max(item[1])):
        click.echo(f"{name:30} {len(found):5}   {sorted(found)[len(found) // 2]:6.2f} {max(found):6.2f}")
    click.echo("\nworker    MB half way   at the end    descriptors half way   at the end")
    for pid in before.keys() | after.keys():
        (rss, open_files), (rss_after, open_after) = before.get(pid, (0, 0)), after.get(pid, (0, 0))
        click.echo(f"{pid:<9} {rss / 2**20:11.1f} {rss_after / 2**20:12.1f} {open_files:23} {open_after:12}")
    return (
        max(map(max, recoveries.values())) < RECOVERY_SECONDS
        and before.keys() == after.keys()
        and all(after[pid][0] - rss < GROWTH_BYTES for pid, (rss, _) in before.items())
        # The clients' connections move between the workers.
        and sum(count for _, count in after.values()) - sum(count for _, count in before.values()) <= GROWTH_DESCRIPTORS
    )


async def _fail_until(
    end: float, faults: dict[str, Fault], port: int, chance: random.Random, recoveries: dict[str, list[float]]
) -> None:
    while time.monotonic() < end:
        for name in chance.sample(sorted(faults), len(faults)):
            await asyncio.sleep(chance.uniform(*PAUSE_SECONDS))
            if time.monotonic() > end:
                return
            await faults[name]()
            seconds = await _recovered(port)
            recoveries[name].append(seconds)
            click.echo(f"{time.strftime('%H:%M:%S')} {name}: {seconds:.2f} s until a read and a write were done")


async def _recovered(port: int) -> float:
    """Return the seconds until a read and a write have succeeded. Both begin now and are repeated when they fail."""
    begin = time.monotonic()
    computer = {"data": {"type": "computer", "attributes": {"name": f"probe-{begin}"}}}
    await _until_done(port, "GET", "/users/1?include=computers", b"")
    await _until_done(port, "POST", "/computers", json.dumps(computer).encode())
    return time.monotonic() - begin


async def _until_done(port: int, method: str, path: str, body: bytes) -> None:
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(body)}\r\n"
    head += "Content-Type: application/vnd.api+json\r\n\r\n"
    while True:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head.encode() + body)
        try:
            if (await reader.read()).startswith(b"HTTP/1.1 20"):
                return
        except OSError:
            pass
        finally:
            writer.close()
        await asyncio.sleep(0.02)


def _sizes(workers: list[int]) -> dict[int, tuple[int, int]]:
    """Return the memory in bytes and the number of descriptors of each process."""
    found = [psutil.Process(pid) for pid in workers]
    return {one.pid: (one.memory_info().rss, one.num_fds()) for one in found}


def _report(told: list[Account], found: list[Found]) -> bool:
    answers = sum((Counter(account.answers) for account in told), Counter[str]())
    click.echo(f"\n{answers.total():,} requests, the longest took {max(one.longest_seconds for one in told):.2f} s")
    for outcome, count in sorted(answers.items()):
        click.echo(f"{count:10,}  {outcome}")
    fates = Counter(fate for account in told for fates in (account.created, account.deleted) for fate in fates.values())
    click.echo(f"\nrows written and deleted: {dict(fates)}")
    wrong = disagreements(told, found)
    for kind, names in wrong.items():
        click.echo(f"{kind + ':':10}{len(names)}  {', '.join(names[:5])}")
    untrue = [what for account in told for what in account.wrong]
    click.echo(f"wrong answers, and none: {len(untrue)}")
    for what in untrue[:10]:
        click.echo(f"  {what}")
    return not (any(wrong.values()) or untrue)


if __name__ == "__main__":
    main()
