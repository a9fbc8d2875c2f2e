"""Starts and stops the embedded PostgreSQL.

What comes in: a data folder. What goes out: a running PostgreSQL 18 with a database, its DSN, and a way to stop it.
It must not know: the schema, the server's settings, an event loop. It starts before any of them, and before forks.

    server = start(default_data_dir(), say=print)
    server.dsn                   # postgresql://waterspout@/waterspout?host=/...&port=5432
    server.supervise()           # call it a few times a second: it restarts PostgreSQL when it has ended
    server.stop()

`folder` handles the data folder and its lock, `cluster` handles PostgreSQL's programs, `supervisor` restarts a
postmaster that has ended by itself.
"""

import os
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

from server.embedded import cluster, folder
from server.embedded.cluster import Say
from server.embedded.folder import (
    Account,
    EmbeddedError,
    FolderClosed,
    FolderInUse,
    FolderRefused,
    SoftwareMissing,
    StartFailed,
    default_data_dir,
)
from server.embedded.supervisor import Supervisor

__all__ = [
    "EmbeddedError",
    "EmbeddedServer",
    "FolderClosed",
    "FolderInUse",
    "FolderRefused",
    "SoftwareMissing",
    "StartFailed",
    "default_data_dir",
    "has_cluster",
    "program",
    "running_dsn",
    "start",
]


class EmbeddedServer:
    """A running PostgreSQL. It is also a context manager that stops it.

    `dsn` is a URL for asyncpg and for libpq: database and role `waterspout`, over the private socket. The
    role owns the database and may create others; it is no superuser. Only the OS users of this process and of
    PostgreSQL may connect. `started_in_seconds` is the time that `start` took.
    """

    def __init__(self, dsn: str, started_in_seconds: float, supervisor: Supervisor, cleanup: ExitStack) -> None:
        self.dsn = dsn
        self.started_in_seconds = started_in_seconds
        self._supervisor = supervisor
        self._cleanup = cleanup
        self._pid = os.getpid()

    def supervise(self) -> None:
        """Check whether PostgreSQL runs, and restart it on the same data when it has ended by itself.

        A check takes microseconds. A start takes some milliseconds, and its recovery goes on in the background. Call
        this a few times a second in the process that called `start`, from one thread, until `stop`. Raises StartFailed
        when PostgreSQL does not start any more.
        """
        self._supervisor.check()

    def stop(self) -> None:
        """Shut PostgreSQL down (some milliseconds, at most about 80 s) and release the folder.

        A second call does nothing. A call in a forked child does nothing either.
        """
        if os.getpid() == self._pid:
            self._cleanup.close()

    def __enter__(self) -> "EmbeddedServer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def start(data_dir: Path, *, say: Say) -> EmbeddedServer:
    """Start PostgreSQL on `data_dir`, which is created if missing. `say` is called with lines for the user.

    The first start takes about a second, later ones 0.02 s. After a crash it takes as long as the recovery, at most 10
    minutes. As root PostgreSQL runs as a system user. Raises EmbeddedError; then nothing is left running.
    """
    began = time.perf_counter()
    try:
        data_dir = data_dir.expanduser().resolve()
        with ExitStack() as cleanup:
            dsn, supervisor = _start(data_dir, cleanup, say)
            return EmbeddedServer(dsn, time.perf_counter() - began, supervisor, cleanup.pop_all())
    except OSError as error:
        raise EmbeddedError(f"the data folder {data_dir} cannot be used: {error}; {folder.ELSEWHERE}") from error


def running_dsn(data_dir: Path) -> str | None:
    """Return the DSN of the PostgreSQL that another waterspout runs on the folder, or None. Raises EmbeddedError."""
    try:
        socket_dir = cluster.running_socket_dir(data_dir.expanduser().resolve())
    except OSError as error:
        raise EmbeddedError(f"the data folder {data_dir} cannot be read: {error}") from error
    return None if socket_dir is None else _dsn(socket_dir)


def has_cluster(data_dir: Path) -> bool:
    """Return whether the folder holds a database. Raises EmbeddedError."""
    try:
        return (data_dir.expanduser().resolve() / folder.CLUSTER).is_dir()
    except OSError as error:
        raise EmbeddedError(f"the data folder {data_dir} cannot be read: {error}") from error


def program(name: str) -> str:
    """Return the path of one of PostgreSQL's programs, such as pg_dump. Raises SoftwareMissing."""
    path = cluster.find_software() / "bin" / name
    if not path.is_file():
        raise SoftwareMissing(f"this installation of the embedded PostgreSQL has no {name}")
    return str(path)


def _start(data_dir: Path, cleanup: ExitStack, say: Say) -> tuple[str, Supervisor]:
    wheel = cluster.find_software()
    account = folder.account_for(data_dir)
    folder.check_folder(data_dir, account)
    folder.make_folder(data_dir, account)
    cleanup.callback(folder.FolderLock(data_dir).release)
    # Again, now that the folder is locked: another process may have created it since.
    folder.check_folder(data_dir, account)
    cluster.check_major_version(data_dir)
    folder.write_marker(data_dir, cluster.MAJOR)
    if account.is_other:
        say(f"started as root: PostgreSQL runs as the system user {account.name}")
    cluster.stop_leftover(data_dir, say)
    software = cluster.reachable_software(wheel, data_dir, account)
    if not (data_dir / folder.CLUSTER).exists():
        say(f"making a new database in {data_dir}")
        cluster.create(data_dir, software, account)
    return _run_cluster(data_dir, software, account, cleanup, say)


def _run_cluster(
    data_dir: Path, software: Path, account: Account, cleanup: ExitStack, say: Say
) -> tuple[str, Supervisor]:
    socket_dir = folder.socket_folder(data_dir, account, cleanup)
    settings = cluster.write_access(data_dir, [folder.os_user_name(), account.name]) | cluster.runtime_settings(
        socket_dir
    )
    made = cluster.Cluster(data_dir, socket_dir, software, account, settings)
    supervisor = Supervisor(made, cluster.run(made, say))
    cleanup.callback(supervisor.stop)
    return _dsn(socket_dir), supervisor


def _dsn(socket_dir: Path) -> str:
    return f"postgresql://{cluster.ROLE}@/{cluster.ROLE}?host={quote(str(socket_dir))}&port=5432"
