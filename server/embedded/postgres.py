"""The embedded PostgreSQL of the default run.

In: a data folder. Out: a running PostgreSQL 18 with an empty database, its DSN, and the means to stop it.
It must not know the schema, the server's settings, or an event loop: it starts before any, and before forks.

    server = start(default_data_dir(), say=print)
    server.dsn                   # postgresql://waterspout@/waterspout?host=/...&port=5432
    server.tend()                # some times a second: starts PostgreSQL again when it has ended
    server.stop()

`folder` answers for the folder and its lock, `cluster` for PostgreSQL's programs, `watch` for a postmaster that ends
by itself.
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
from server.embedded.watch import Watch

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
    """A running PostgreSQL; also a context manager that stops it.

    `dsn` is a URL for asyncpg and for libpq: database and role `waterspout`, over the private socket. The
    role owns the database and may create others; it is no superuser. Only the OS users of this process and of
    PostgreSQL may connect. `started_in_seconds` is the time that `start` took.
    """

    def __init__(self, dsn: str, started_in_seconds: float, watch: Watch, cleanup: ExitStack) -> None:
        self.dsn = dsn
        self.started_in_seconds = started_in_seconds
        self._watch = watch
        self._cleanup = cleanup
        self._pid = os.getpid()

    def tend(self) -> None:
        """Look whether PostgreSQL runs, and start it again on the same data when it has ended by itself.

        It takes microseconds, and some milliseconds for a start, whose recovery goes on behind it. Call it a few
        times a second in the process that called `start`, from one thread, until `stop`. Raises StartFailed when
        PostgreSQL does not start any more.
        """
        self._watch.look()

    def stop(self) -> None:
        """Shut PostgreSQL down (some milliseconds, at most about 80 s) and let go of the folder.

        A second call does nothing, nor does a call in a forked child.
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
    """Start PostgreSQL on `data_dir`, made if missing; `say` gets what a person should know, line by line.

    The first start takes about a second, later ones 0.02 s; after a crash it takes as long as recovery does,
    at most 10 minutes. As root PostgreSQL runs as a system user. Raises EmbeddedError; nothing runs on then.
    """
    began = time.perf_counter()
    try:
        data_dir = data_dir.expanduser().resolve()
        with ExitStack() as cleanup:
            dsn, watch = _start(data_dir, cleanup, say)
            return EmbeddedServer(dsn, time.perf_counter() - began, watch, cleanup.pop_all())
    except OSError as error:
        raise EmbeddedError(f"the data folder {data_dir} cannot be used: {error}; {folder.ELSEWHERE}") from error


def running_dsn(data_dir: Path) -> str | None:
    """The DSN of the PostgreSQL that another process of ours runs on the folder; None where none is running."""
    try:
        socket_dir = cluster.running_socket(data_dir.expanduser().resolve())
    except OSError as error:
        raise EmbeddedError(f"the data folder {data_dir} cannot be read: {error}") from error
    return None if socket_dir is None else _dsn(socket_dir)


def has_cluster(data_dir: Path) -> bool:
    """Whether a start would find a database there. Raises EmbeddedError."""
    try:
        return (data_dir.expanduser().resolve() / folder.CLUSTER).is_dir()
    except OSError as error:
        raise EmbeddedError(f"the data folder {data_dir} cannot be read: {error}") from error


def program(name: str) -> str:
    """The path of one of PostgreSQL's programs, such as pg_dump. Raises SoftwareMissing."""
    path = cluster.find_software() / "bin" / name
    if not path.is_file():
        raise SoftwareMissing(f"this installation of the embedded PostgreSQL has no {name}")
    return str(path)


def _start(data_dir: Path, cleanup: ExitStack, say: Say) -> tuple[str, Watch]:
    wheel = cluster.find_software()
    account = folder.account_for(data_dir)
    folder.check_folder(data_dir, account)
    folder.make_folder(data_dir, account)
    cleanup.callback(folder.FolderLock(data_dir).release)
    # Again, now that nobody else can be at work in it: it may have been made since.
    folder.check_folder(data_dir, account)
    cluster.check_major(data_dir)
    folder.write_marker(data_dir, cluster.MAJOR)
    if account.is_other:
        say(f"started as root: PostgreSQL runs as the system user {account.name}")
    cluster.stop_leftover(data_dir, say)
    software = cluster.reachable_software(wheel, data_dir, account)
    if not (data_dir / folder.CLUSTER).exists():
        say(f"making a new database in {data_dir}")
        cluster.create(data_dir, software, account)
    return _run_cluster(data_dir, software, account, cleanup, say)


def _run_cluster(data_dir: Path, software: Path, account: Account, cleanup: ExitStack, say: Say) -> tuple[str, Watch]:
    socket_dir = folder.socket_folder(data_dir, account, cleanup)
    settings = cluster.write_access(data_dir, [folder.own_name(), account.name]) | cluster.run_settings(socket_dir)
    made = cluster.Cluster(data_dir, socket_dir, software, account, settings)
    watch = Watch(made, cluster.run(made, say))
    cleanup.callback(watch.stop)
    return _dsn(socket_dir), watch


def _dsn(socket_dir: Path) -> str:
    return f"postgresql://{cluster.ROLE}@/{cluster.ROLE}?host={quote(str(socket_dir))}&port=5432"
