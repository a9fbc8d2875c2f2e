"""Runs a PostgreSQL that a test may stop, kill, freeze and copy. In: a folder. Out: its URL. Its programs are those of
the embedded one. It listens on a port of 127.0.0.1 and trusts every connection."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import asyncpg
import psutil

from server.embedded import cluster as clusters
from server.embedded.folder import account_for, make_private
from tests.ports import free_port
from tests.waiting import wait_until

DEADLINE_SECONDS = 60.0
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "max_connections": "40",
    "shared_buffers": "16MB",
    "wal_level": "replica",
    "max_wal_size": "64MB",
    "min_wal_size": "32MB",
    # A standby cancels conflicting statements at once.
    "max_standby_streaming_delay": "0",
    "wal_receiver_status_interval": "1",
    "wal_retrieve_retry_interval": "100ms",
}


class Cluster:
    def __init__(self, folder: Path, software: Path | None = None) -> None:
        """folder: with a unique name, below one that every user may enter. software: of another PostgreSQL."""
        self.folder = folder
        self._account = account_for(folder)
        software = software or clusters.reachable_software(clusters.find_software(), folder, self._account)
        self._programs = software / "bin"
        self._postmaster: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}?sslmode=disable"

    @property
    def _log(self) -> Path:
        """It is outside of the data, because a copy begins with an empty folder."""
        return self.folder.with_name(f"{self.folder.name}.log")

    def create(self, *flags: str) -> None:
        """flags: those of initdb."""
        make_private(self.folder, self._account)
        self._run("initdb", "--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", *flags)

    def copy_to(self, folder: Path) -> Cluster:
        """Create a standby, without starting it."""
        made = Cluster(folder)
        make_private(folder, made._account)
        made._run("pg_basebackup", "--write-recovery-conf", "--checkpoint=fast", "--no-sync", "-d", self.url())
        return made

    def start(self, **settings: str) -> None:
        """Start it and wait until it accepts connections."""
        flags = [f"--{name}={value}" for name, value in (SETTINGS | settings).items()]
        place = [f"--port={self.port}", "--listen_addresses=127.0.0.1", "--unix_socket_directories="]
        self._postmaster = self._launch("postgres", *place, *flags)
        wait_until(self._is_ready)

    def _is_ready(self) -> bool:
        assert self._postmaster is not None
        assert self._postmaster.poll() is None, self._log.read_text()
        return clusters.is_ready(self._postmaster, self.folder)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT: at once, after a message to every client. SIGQUIT: as in a crash."""
        if self._postmaster is not None:
            with suppress(psutil.NoSuchProcess):
                self.thaw()
            self._postmaster.send_signal(how)
            self._postmaster.wait(DEADLINE_SECONDS)
            self._postmaster = None

    async def restart(self, how: signal.Signals = signal.SIGINT) -> None:
        await asyncio.to_thread(self.stop, how)
        await asyncio.to_thread(self.start)

    def freeze(self) -> None:
        """Stop its processes. The system still accepts what is sent to them."""
        for process in self._processes():
            process.suspend()

    def thaw(self) -> None:
        for process in self._processes():
            process.resume()

    def _processes(self) -> list[psutil.Process]:
        assert self._postmaster is not None
        postmaster = psutil.Process(self._postmaster.pid)
        return [postmaster, *postmaster.children()]

    @property
    def is_running(self) -> bool:
        return self._postmaster is not None and self._postmaster.poll() is None

    async def run(self, sql: str, *values: object, database: str = "postgres") -> list[asyncpg.Record]:
        connection = await asyncpg.connect(self.url(database))
        try:
            rows: list[asyncpg.Record] = await connection.fetch(sql, *values)
            return rows
        finally:
            await connection.close()

    async def run_all(self, sql: str, *, database: str = "postgres") -> None:
        """Run several statements at once."""
        connection = await asyncpg.connect(self.url(database))
        try:
            await connection.execute(sql)
        finally:
            await connection.close()

    def _run(self, program: str, *flags: str) -> None:
        process = self._launch(program, *flags)
        assert process.wait(DEADLINE_SECONDS) == 0, self._log.read_text()

    def _launch(self, program: str, *flags: str) -> subprocess.Popen[bytes]:
        account = self._account
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [str(self._programs / program), "-D", str(self.folder), *flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"},
                start_new_session=True,
                user=account.uid if account.is_other else None,
                group=account.gid if account.is_other else None,
                extra_groups=[] if account.is_other else None,
            )
