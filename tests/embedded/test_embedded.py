"""The real embedded PostgreSQL: started, stopped, killed and refused, as root and as an ordinary user."""

import asyncio
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import asyncpg
import psutil
import pytest

from server.embedded import cluster as embedded_cluster
from server.embedded import folder as embedded_folder
from server.embedded.postgres import (
    EmbeddedError,
    EmbeddedServer,
    FolderClosed,
    FolderInUse,
    FolderRefused,
    SoftwareMissing,
    StartFailed,
    default_data_dir,
    start,
)
from server.settings import Settings
from server.startup.start import open_database_url
from tests.conftest import memory
from tests.waiting import wait_until

REPOSITORY = Path(__file__).parents[2]
PSQL = embedded_cluster.find_software() / "bin" / "psql"
IS_ROOT = os.geteuid() == 0
NOBODY = pwd.getpwnam("nobody")

as_root = pytest.mark.skipif(not IS_ROOT, reason="another OS user can be tried by root only")


def wheel_is_open() -> bool:
    """Return whether another user may run the programs of the wheel. Not if only root may enter its folder."""
    who = {"user": NOBODY.pw_uid, "group": NOBODY.pw_gid, "extra_groups": [], "cwd": "/"}
    try:
        return subprocess.run([PSQL, "--version"], capture_output=True, check=False, **who).returncode == 0
    except OSError:
        return False


as_two_users = pytest.mark.skipif(
    not IS_ROOT or not wheel_is_open(), reason="needs root, and a checkout in a folder that other users may enter"
)


def silent(line: str) -> None:
    """Ignore the lines for the user."""


def query(dsn: str, sql: str) -> list[tuple[object, ...]]:
    async def fetch() -> list[tuple[object, ...]]:
        connection = await asyncpg.connect(dsn)
        try:
            return [tuple(row) for row in await connection.fetch(sql)]
        finally:
            await connection.close()

    return asyncio.run(fetch())


def socket_dir(server: EmbeddedServer) -> Path:
    return Path(parse_qs(urlsplit(server.dsn).query)["host"][0])


def postmaster_pid(data_dir: Path) -> int:
    return int((data_dir / "cluster" / "postmaster.pid").read_text().split("\n")[0])


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@contextmanager
def served(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run `served.py` as a process, which is killed at the end."""
    command = [sys.executable, Path(__file__).with_name("served.py"), *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def open_folder() -> Path:
    """Create a temporary folder that PostgreSQL's account may enter (it may not enter those of pytest)."""
    folder = Path(tempfile.mkdtemp(prefix="waterspout-test-", dir=memory())).resolve()
    folder.chmod(0o755)
    return folder


@pytest.fixture
def place() -> Iterator[Path]:
    folder = open_folder()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def used() -> Iterator[Path]:
    """Yield the data folder of a stopped server with the table `kept`. A test must leave it usable."""
    folder = open_folder()
    with start(folder / "data", say=silent) as server:
        query(server.dsn, "CREATE TABLE kept (note text)")
    yield folder / "data"
    shutil.rmtree(folder)


@pytest.fixture
def data_dir(used: Path) -> Path:
    """Return the used folder, with one row in its table."""
    with start(used, say=silent) as server:
        query(server.dsn, "WITH emptied AS (DELETE FROM kept) INSERT INTO kept VALUES ('before')")
    return used


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedServer]:
    """Yield one server for the tests that change nothing."""
    place = open_folder()
    with start(place / "data", say=silent) as running:
        yield running
    shutil.rmtree(place)


def test_first_start_and_second(place: Path) -> None:
    said: list[str] = []
    data_dir = place / "missing" / "parents" / "data"
    parents = {parent: parent.stat().st_mode for parent in data_dir.parents if parent.exists()}
    with start(data_dir, say=said.append) as first:
        query(first.dsn, "CREATE TABLE kept (note text)")
        query(first.dsn, "INSERT INTO kept VALUES ('hello')")
    with start(data_dir, say=said.append) as second:
        assert query(second.dsn, "SELECT note FROM kept") == [("hello",)]
    name = embedded_folder.account_for(data_dir).name
    as_whom = [f"started as root: PostgreSQL runs as the system user {name}"] if IS_ROOT else []
    assert said == [*as_whom, f"making a new database in {data_dir}", *as_whom]
    assert 0 < second.started_in_seconds < first.started_in_seconds
    assert {parent: parent.stat().st_mode for parent in parents} == parents


def test_the_log_of_a_server_says_which_database_it_is(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "server")
    monkeypatch.chdir(data_dir.parent)
    with ExitStack() as cleanup:
        url, _ = open_database_url(Settings(data_dir=Path(data_dir.name)), cleanup)
        assert query(url, "SELECT note FROM kept") == [("before",)]
    assert caplog.messages == [f"the database is the embedded one, in {data_dir}"]


def test_both_clients_connect(server: EmbeddedServer) -> None:
    sql = "SELECT current_user, current_database(), (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)"
    assert query(server.dsn, sql) == [("waterspout", "waterspout", False)]
    shown = subprocess.run([PSQL, "-XAtc", sql, server.dsn], capture_output=True, text=True, check=True)
    assert shown.stdout == "waterspout|waterspout|f\n"


def test_role_may_clone_databases(server: EmbeddedServer) -> None:
    query(server.dsn, "CREATE DATABASE pattern")
    query(server.dsn, "CREATE DATABASE clone TEMPLATE pattern")
    query(server.dsn, "DROP DATABASE clone")
    query(server.dsn, "DROP DATABASE pattern")


def test_text_sorts_by_code_point(server: EmbeddedServer) -> None:
    found = query(
        server.dsn,
        "SELECT datlocprovider, datlocale, pg_encoding_to_char(encoding), 'a' < 'B', upper('ä')"
        " FROM pg_database WHERE datname = 'waterspout'",
    )
    assert found == [(b"b", "C.UTF-8", "UTF8", False, "Ä")]


def test_settings(server: EmbeddedServer) -> None:
    names = ["cluster_name", "fsync", "full_page_writes", "jit", "listen_addresses", "max_connections"]
    names += ["shared_buffers", "synchronous_commit", "TimeZone"]
    found = [query(server.dsn, f"SELECT current_setting('{name}')")[0][0] for name in names]
    assert found == ["waterspout", "on", "on", "off", "", "100", "128MB", "on", "UTC"]


def test_there_is_only_a_private_socket(server: EmbeddedServer) -> None:
    folder = socket_dir(server)
    assert mode(folder) == 0o700
    assert mode(folder / ".s.PGSQL.5432") & 0o777 == 0o700
    postmaster = psutil.Process(postmaster_pid(folder.parent))
    assert postmaster.net_connections(kind="inet") == []
    assert {socket.laddr for socket in postmaster.net_connections(kind="unix")} >= {f"{folder}/.s.PGSQL.5432"}


def test_there_is_no_trust_authentication(server: EmbeddedServer) -> None:
    sql = "SELECT type, database, user_name, auth_method, options FROM pg_hba_file_rules"
    as_superuser = server.dsn.replace("//waterspout@", "//postgres@")
    assert query(as_superuser, sql) == [("local", ["all"], ["all"], "peer", ["map=waterspout"])]


@as_two_users
def test_another_user_is_refused(data_dir: Path) -> None:
    with start(data_dir, say=silent) as server:
        command = [PSQL, "-XAtc", "SELECT 1", server.dsn]
        who = {"user": NOBODY.pw_uid, "group": NOBODY.pw_gid, "extra_groups": [], "cwd": "/"}
        at_folder = subprocess.run(command, capture_output=True, text=True, check=False, **who)
        socket_dir(server).chmod(0o755)
        (socket_dir(server) / ".s.PGSQL.5432").chmod(0o777)
        at_rules = subprocess.run(command, capture_output=True, text=True, check=False, **who)
    assert (at_folder.returncode, at_rules.returncode) == (2, 2)
    assert "Permission denied" in at_folder.stderr
    assert 'Peer authentication failed for user "waterspout"' in at_rules.stderr


def test_ctrl_c_does_not_reach_postgresql(server: EmbeddedServer) -> None:
    pid = postmaster_pid(socket_dir(server).parent)
    assert (os.getsid(pid), os.getpgid(pid)) == (pid, pid)


def test_stop_ends_everything_and_may_be_repeated(data_dir: Path) -> None:
    server = start(data_dir, say=silent)
    pid = postmaster_pid(data_dir)
    server.stop()
    server.stop()
    assert not is_running(pid)
    assert not (data_dir / "cluster" / "postmaster.pid").exists()
    assert list(socket_dir(server).iterdir()) == []
    start(data_dir, say=silent).stop()


def test_stop_in_a_forked_worker_does_nothing(place: Path, data_dir: Path) -> None:
    """It does not remove the temporary folder of the socket either."""
    data_dir.rename(place / ("d" * 100))
    with served("stopped_in_worker", place / ("d" * 100)) as process:
        dsn = line(process)
        assert query(dsn, "SELECT note FROM kept") == [("before",)]
        process.communicate(timeout=60)
    (place / ("d" * 100)).rename(data_dir)


def test_killed_server_leaves_a_postmaster_that_is_replaced(data_dir: Path) -> None:
    said: list[str] = []
    with served("with_worker", data_dir) as process:
        lines = [line(process), line(process)]
        dsn, worker = min(lines), int(max(lines).removeprefix("worker "))
        query(dsn, "INSERT INTO kept VALUES ('committed')")
        leftover = postmaster_pid(data_dir)
        process.kill()
        process.wait()
        assert is_running(leftover)
        assert is_running(worker)
        with start(data_dir, say=said.append) as server:
            assert query(server.dsn, "SELECT note FROM kept") == [("before",), ("committed",)]
            assert not is_running(leftover)
        os.kill(worker, signal.SIGKILL)
    assert said[-1] == f"stopping the PostgreSQL (process id {leftover}) of a server that was killed"


def test_a_killed_postgresql_recovers_after_its_last_statements_end(data_dir: Path) -> None:
    """The backend does not notice the death of its postmaster until its statement ends."""
    with served("alone", data_dir) as process:
        dsn = line(process)
        query(dsn, "INSERT INTO kept VALUES ('committed')")
        busy = "SELECT count(*) FROM generate_series(1, 3000) a, generate_series(1, 3000) b"
        with subprocess.Popen([PSQL, "-Xc", busy, dsn], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
            wait_until(lambda: query(dsn, f"SELECT FROM pg_stat_activity WHERE query = '{busy}' AND state = 'active'"))
            os.kill(postmaster_pid(data_dir), signal.SIGKILL)
            process.kill()
            process.wait()
            with start(data_dir, say=silent) as server:
                assert query(server.dsn, "SELECT note FROM kept") == [("before",), ("committed",)]
    log = (data_dir / "postgresql.log").read_text()
    assert "pre-existing shared memory block" in log
    assert "database system was not properly shut down; automatic recovery in progress" in log


def test_a_reused_process_id_of_a_dead_postmaster(data_dir: Path) -> None:
    account = embedded_folder.account_for(data_dir)
    with subprocess.Popen(["sleep", "60"], cwd="/", user=account.uid if account.is_other else None) as other:
        left = data_dir / "cluster" / "postmaster.pid"
        left.write_text(f"{other.pid}\n{data_dir / 'cluster'}\n1\n5432\n\n\n\nready   \n")
        (data_dir / "socket" / ".s.PGSQL.5432.lock").write_text(left.read_text())
        start(data_dir, say=silent).stop()
        assert other.poll() is None
        other.kill()


def test_interrupted_first_start(place: Path) -> None:
    data_dir = place / "data"
    with served("alone", data_dir) as process:
        wait_until(lambda: list(data_dir.glob("cluster.new-*/global/pg_control")))
        process.kill()
        process.wait()
    assert not (data_dir / "cluster").exists()
    with start(data_dir, say=silent) as server:
        assert query(server.dsn, "SELECT 1") == [(1,)]


def test_a_failed_start_shows_the_output_of_postgresql(data_dir: Path) -> None:
    settings = data_dir / "cluster" / "postgresql.conf"
    before = settings.read_text()
    settings.write_text(before + "\nnonsense = 1\n")
    with pytest.raises(StartFailed, match='unrecognized configuration parameter "nonsense"'):
        start(data_dir, say=silent)
    settings.write_text(before)
    start(data_dir, say=silent).stop()


def test_log_is_rotated(data_dir: Path) -> None:
    log = data_dir / "postgresql.log"
    log.write_text("old\n" * 250_001)
    start(data_dir, say=silent).stop()
    assert log.stat().st_size < 10_000
    assert (data_dir / "postgresql.log.1").read_text() == "old\n" * 250_001


def test_folder_in_use(data_dir: Path) -> None:
    with served("alone", data_dir) as process:
        dsn = line(process)
        with pytest.raises(FolderInUse) as caught:
            start(data_dir, say=silent)
        assert str(caught.value) == (
            f"{data_dir} is in use by another waterspout (process id {process.pid}); stop that one, or choose "
            "another folder with --data-dir, or give --database-url"
        )
        assert query(dsn, "SELECT note FROM kept") == [("before",)]
        assert process.communicate(timeout=60) == ("", None)
    with start(data_dir, say=silent), pytest.raises(FolderInUse):
        start(data_dir, say=silent)


def _foreign_file(folder: Path) -> None:
    (folder / "thesis.txt").write_text("mine")


def _other_major(folder: Path) -> None:
    (folder / "waterspout.json").write_text('{"format":1,"postgresql":17}\n')
    (folder / "cluster").mkdir()
    (folder / "cluster" / "PG_VERSION").write_text("17\n")
    if IS_ROOT:
        os.chown(folder / "cluster", NOBODY.pw_uid, NOBODY.pw_gid)


def _newer_format(folder: Path) -> None:
    (folder / "waterspout.json").write_text('{"format":2,"postgresql":18}\n')


def _foreign_marker(folder: Path) -> None:
    (folder / "waterspout.json").write_text("[]")


@pytest.mark.parametrize(
    ("fill", "message"),
    [
        (_foreign_file, "was not made by waterspout and is not empty (it holds thesis.txt)"),
        (_other_major, "holds data of PostgreSQL 17, this waterspout brings 18"),
        (_newer_format, "has format 2, this waterspout knows 1"),
        (_foreign_marker, "is not a marker of ours"),
    ],
)
def test_folder_refused(place: Path, fill: Callable[[Path], None], message: str) -> None:
    fill(place)
    before = {path: (path.stat().st_mode, path.stat().st_mtime_ns) for path in [*place.rglob("*")]}
    with pytest.raises(FolderRefused) as caught:
        start(place, say=silent)
    assert message in str(caught.value)
    (place / "waterspout.lock").unlink(missing_ok=True)
    assert {path: (path.stat().st_mode, path.stat().st_mtime_ns) for path in place.rglob("*")} == before


def test_folder_is_a_file(place: Path) -> None:
    (place / "data").write_text("")
    with pytest.raises(FolderRefused, match="is not a folder"):
        start(place / "data", say=silent)


def test_folder_below_a_file(place: Path) -> None:
    (place / "file").write_text("")
    with pytest.raises(EmbeddedError, match="cannot be used"):
        start(place / "file" / "data", say=silent)


def test_empty_folder_of_a_volume_is_used(place: Path) -> None:
    (place / "lost+found").mkdir()
    with start(place, say=silent) as server:
        assert query(server.dsn, "SELECT 1") == [(1,)]
    assert mode(place) == 0o755


@pytest.mark.parametrize("name", ["d" * 100, "a, b: ü 'c' \"d\""], ids=["long", "odd"])
def test_path_that_a_socket_cannot_have(place: Path, data_dir: Path, name: str) -> None:
    """The folder was moved to such a path. The server starts there too."""
    data_dir.rename(place / name)
    with start(place / name, say=silent) as server:
        folder = socket_dir(server)
        assert place not in folder.parents
        assert mode(folder) == 0o700
        assert query(server.dsn, "SELECT note FROM kept") == [("before",)]
        subprocess.run([PSQL, "-Xqc", "SELECT 1", server.dsn], stdout=subprocess.DEVNULL, check=True)
    assert not folder.exists()
    (place / name).rename(data_dir)


def test_wheel_is_missing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(SoftwareMissing, match=r"pip install '.\[embedded\]'"):
        start(place / "data", say=silent)
    assert list(place.iterdir()) == []


@as_root
def test_root_does_not_open_a_closed_folder(place: Path) -> None:
    closed = place / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(FolderClosed) as caught:
        start(closed / "data", say=silent)
    assert f"who cannot enter {closed};" in str(caught.value)
    assert (mode(closed), list(closed.iterdir())) == (0o700, [])


@as_root
def test_root_refuses_the_folder_of_another_user(place: Path) -> None:
    os.chown(place, NOBODY.pw_uid, NOBODY.pw_gid)
    with pytest.raises(FolderRefused, match="not to root"):
        start(place, say=silent)
    assert list(place.iterdir()) == []


@as_root
def test_root_keeps_the_account_of_the_cluster(data_dir: Path) -> None:
    cluster = data_dir / "cluster"
    for owner in ("nobody", cluster.owner()):
        subprocess.run(["chown", "-R", owner, cluster], check=True)
        with start(data_dir, say=silent) as server:
            assert psutil.Process(postmaster_pid(data_dir)).username() == owner
            assert query(server.dsn, "SELECT note FROM kept") == [("before",)]


@as_root
def test_what_the_account_owns(server: EmbeddedServer) -> None:
    data_dir = socket_dir(server).parent
    owned = {path.name: path.owner() != "root" for path in data_dir.iterdir()}
    assert {name for name, is_theirs in owned.items() if is_theirs} == {"cluster", "socket"}
    assert (mode(data_dir), mode(data_dir / "cluster")) == (0o711, 0o700)


@as_root
def test_programs_in_a_closed_folder_are_copied(place: Path, data_dir: Path) -> None:
    """As for a virtual environment in the home of root."""
    found = embedded_cluster.find_software()
    closed = place / "closed" / "site-packages"
    shutil.copytree(found, closed / found.parent.name / found.name, ignore=shutil.ignore_patterns("include", "*.a"))
    libraries = found.parent.with_name(f"{found.parent.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, closed / libraries.name)
    closed.parent.chmod(0o700)
    account = embedded_folder.account_for(data_dir)
    software = closed / found.parent.name / found.name
    copy = embedded_cluster.reachable_software(software, data_dir, account)
    assert data_dir in copy.parents
    assert embedded_cluster.reachable_software(software, data_dir, account) == copy
    program = [copy / "bin" / "initdb", "--version"]
    shown = subprocess.run(program, capture_output=True, text=True, check=True, user=account.uid, cwd="/")
    assert shown.stdout.startswith("initdb (PostgreSQL) 18.")
    assert mode(closed.parent) == 0o700


@as_two_users
def test_an_ordinary_user(place: Path) -> None:
    os.chown(place, NOBODY.pw_uid, NOBODY.pw_gid)
    data_dir = place / "data"
    with served("as_user", data_dir, NOBODY.pw_uid, NOBODY.pw_gid) as process:
        assert line(process) == f"making a new database in {data_dir}"
        assert line(process) == "connected as waterspout"
        assert (mode(data_dir), data_dir.owner()) == (0o700, "nobody")
        dsn = line(process)
        with pytest.raises(asyncpg.InvalidAuthorizationSpecificationError, match="Peer authentication failed"):
            query(dsn, "SELECT 1")
        process.communicate(timeout=60)


@as_root
@pytest.mark.skipif(sys.platform != "linux", reason="the folder of Linux")
def test_default_folder_of_root() -> None:
    assert default_data_dir() == Path("/var/lib/waterspout")
