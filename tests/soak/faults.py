"""The faults of a soak run. In: the database, the network to it, and the server's processes. Out: functions, each of
which causes one fault and returns when it is over."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable

import asyncpg
import psutil

from tests.faults.cluster import Cluster
from tests.faults.network import Network
from tests.soak.client import USERS
from tests.waiting import until

DATABASE = "soak"
ROWS = f"""
    INSERT INTO groups (name) VALUES ('all');
    INSERT INTO users (first_name, last_name, group_id) SELECT 'Ada', 'Byron', 1 FROM generate_series(1, {USERS});
    INSERT INTO computers (name, owner_id)
        SELECT users || '-' || part, users FROM generate_series(1, {USERS}) users, generate_series(1, 3) part;
"""

Fault = Callable[[], Awaitable[None]]


class Faults:
    """The faults by name. server: the process id of the master. kill_second: kills another server and starts it."""

    def __init__(self, cluster: Cluster, network: Network, server: int, kill_second: Fault) -> None:
        self._kill_second = kill_second
        self._cluster = cluster
        self._network = network
        self._server = psutil.Process(server)

    def of_the_database(self) -> dict[str, Fault]:
        return {
            "PostgreSQL restarted": self._cluster.restart,
            "PostgreSQL crashed": lambda: self._cluster.restart(signal.SIGQUIT),
            "PostgreSQL frozen for 1.5 s": self._frozen,
            "backends terminated": self._terminated,
            "connections reset": self._reset,
            "connections refused for 1 s": self._refused,
            "packets lost for 3 s": self._dropped,
            "a table locked for 2 s": self._locked,
            "read-only for 1 s": self._read_only,
            "another server killed": self._kill_second,
        }

    def of_the_server(self) -> dict[str, Fault]:
        return {
            "server reloaded": self._reloaded,
            "worker killed": self._killed,
            "worker frozen": self._stopped,
        }

    async def _frozen(self) -> None:
        self._cluster.freeze()
        await asyncio.sleep(1.5)
        self._cluster.thaw()

    async def _terminated(self) -> None:
        await self._cluster.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1 AND pid <> pg_backend_pid()",
            DATABASE,
        )

    async def _reset(self) -> None:
        self._network.reset()

    async def _refused(self) -> None:
        self._network.refuse()
        self._network.reset()
        await asyncio.sleep(1)
        await self._network.open()

    async def _dropped(self) -> None:
        self._network.drop()
        await asyncio.sleep(3)
        self._network.mend()

    async def _locked(self) -> None:
        connection = await asyncpg.connect(self._cluster.url(DATABASE))
        try:
            async with connection.transaction():
                await connection.execute("LOCK TABLE computers IN ACCESS EXCLUSIVE MODE")
                await asyncio.sleep(2)
        finally:
            await connection.close()

    async def _read_only(self) -> None:
        for value in ("on", "off"):
            await self._cluster.run_all(f"ALTER DATABASE {DATABASE} SET default_transaction_read_only = {value}")
            await self._terminated()
            if value == "on":
                await asyncio.sleep(1)

    async def _reloaded(self) -> None:
        before = set(self.workers())
        self._server.send_signal(signal.SIGHUP)
        await until(lambda: before.isdisjoint(self.workers()))

    async def _killed(self) -> None:
        worker = self.workers()[0]
        os.kill(worker, signal.SIGKILL)
        await self._until_replaced(worker)

    async def _stopped(self) -> None:
        """Stop a worker as if its event loop hung. The server replaces it."""
        worker = self.workers()[0]
        os.kill(worker, signal.SIGSTOP)
        await self._until_replaced(worker)

    async def _until_replaced(self, worker: int) -> None:
        await until(lambda: len(self.workers()) == WORKERS and worker not in self.workers())

    def workers(self) -> list[int]:
        """Return the workers, which are the children of the server's children."""
        return [worker.pid for generation in self._server.children() for worker in _children(generation)]


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children()
    except psutil.NoSuchProcess:
        return []


WORKERS = 2
