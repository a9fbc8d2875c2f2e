"""The protocols of systemd, over real sockets and without a database."""

import fcntl
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path

import pytest

from server.processes import systemd


@pytest.fixture(autouse=True)
def _outside_systemd(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Yield a socket that listens at NOTIFY_SOCKET."""
    name = str(tmp_path / "notify") if request.param == "path" else f"@waterspout-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(name.replace("@", "\0", 1))
        receiver.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        yield receiver


def test_fields_are_sent_as_lines_in_their_order(manager: socket.socket) -> None:
    assert systemd.notify(READY=1, STATUS="answers on http://127.0.0.1:8080 · ü", MAINPID=4711)
    assert manager.recv(4096).decode() == "READY=1\nSTATUS=answers on http://127.0.0.1:8080 · ü\nMAINPID=4711"


def test_a_value_cannot_begin_another_field(manager: socket.socket) -> None:
    assert systemd.notify(STATUS="a reload failed: line 1\nMAINPID=1\r\nREADY=1", WATCHDOG=1)
    assert manager.recv(4096) == b"STATUS=a reload failed: line 1 MAINPID=1 READY=1\nWATCHDOG=1"


def test_reloading_is_sent_with_the_time(manager: socket.socket) -> None:
    before = time.monotonic_ns() // 1000
    assert systemd.notify(RELOADING=1)
    first, second = manager.recv(4096).decode().split("\n")
    name, _, microseconds = second.partition("=")
    assert (first, name) == ("RELOADING=1", "MONOTONIC_USEC")
    assert before <= int(microseconds) <= time.monotonic_ns() // 1000


@pytest.mark.parametrize(
    "address",
    [None, "", "relative", "vsock:2:1", "/nowhere/notify", "/" + "a" * 300, "@waterspout-nobody", "/dev/null"],
)
def test_nothing_is_raised_if_nobody_listens(address: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if address is not None:
        monkeypatch.setenv("NOTIFY_SOCKET", address)
    assert systemd.notify(READY=1) is False


def test_a_manager_that_does_not_read_does_not_block(manager: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systemd, "NOTIFY_SECONDS", 0.01)
    told = list(takewhile(bool, (systemd.notify(WATCHDOG=1) for _ in range(100_000))))
    assert 0 < len(told) < 100_000


@pytest.mark.parametrize(
    ("microseconds", "pid", "seconds"),
    [
        (None, None, None),
        ("30000000", None, 30.0),
        ("30000000", "own", 30.0),
        ("500000", "own", 0.5),
        ("30000000", "1", None),
        ("30000000", "", 30.0),
        ("0", "own", None),
        ("-5", "own", None),
        ("soon", "own", None),
        ("", None, None),
    ],
)
def test_watchdog(
    microseconds: str | None, pid: str | None, seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if microseconds is not None:
        monkeypatch.setenv("WATCHDOG_USEC", microseconds)
    if pid is not None:
        monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()) if pid == "own" else pid)
    assert systemd.watchdog_seconds() == seconds


TAKE = """
import os, sys
os.environ.setdefault("LISTEN_PID", str(os.getpid()))
from server.processes import systemd
from server.settings import StartError
try:
    found = systemd.listening_sockets()
except StartError as error:
    sys.exit(str(error))
for name, sockets in found.items():
    for one in sockets:
        print(name, one.fileno(), one.getsockname(), one.getblocking(), os.get_inheritable(one.fileno()))
print([name for name in os.environ if name.startswith("LISTEN_")], systemd.listening_sockets())
"""


def take(descriptors: Sequence[int], **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program that finds these as its descriptors 3, 4 ... and prints what it got."""
    # First out of each other's way, as they may have each other's places.
    copies = [fcntl.fcntl(one, fcntl.F_DUPFD, 100) for one in descriptors]
    moves = "".join(f"os.dup2({one}, {place}, True);" for place, one in enumerate(copies, systemd.FIRST_DESCRIPTOR))
    try:
        return subprocess.run(
            [
                sys.executable,
                "-c",
                f"import os, sys; {moves} os.execv(sys.executable, [sys.executable, '-c', sys.argv[1]])",
                TAKE,
            ],
            env={"LISTEN_FDS": str(len(copies)), **variables},
            cwd=Path(__file__).parents[3],
            pass_fds=copies,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        for copy in copies:
            os.close(copy)


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as one:
        yield one


def test_sockets_are_found_by_name_and_only_once(listening: socket.socket, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as admin, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(tmp_path / "s"))
        unix.listen()
        opened = [one.fileno() for one in (listening, admin, unix)]
        taken = take(opened, LISTEN_FDNAMES="waterspout.socket:admin:waterspout.socket")
        expected = [
            f"waterspout.socket 3 {listening.getsockname()} False False",
            f"waterspout.socket 5 {tmp_path}/s False False",
            f"admin 4 {admin.getsockname()} False False",
            "[] {}",
        ]
    assert taken.stdout.splitlines() == expected, taken.stderr


def test_a_socket_without_a_name_is_unknown(listening: socket.socket) -> None:
    taken = take([listening.fileno()])
    assert taken.stdout.splitlines() == [f"unknown 3 {listening.getsockname()} False False", "[] {}"], taken.stderr


@pytest.mark.parametrize(
    "variables", [{"LISTEN_PID": "1"}, {"LISTEN_PID": ""}, {"LISTEN_FDS": "x"}, {"LISTEN_FDS": ""}]
)
def test_sockets_for_another_process_are_not_used(variables: dict[str, str], listening: socket.socket) -> None:
    taken = take([listening.fileno()], **variables)
    assert taken.stdout.splitlines() == ["[] {}"], taken.stderr


def test_a_descriptor_that_is_not_a_listening_socket_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_connection(one.getsockname()) as connection:
        refused = take([connection.fileno()])
    assert (refused.returncode, refused.stderr) == (
        1,
        "descriptor 3 from systemd is no listening stream socket: the socket unit needs ListenStream= and Accept=no\n",
    )
    with (tmp_path / "file").open("w") as file:
        refused = take([file.fileno()])
    assert refused.stderr == "descriptor 3 from systemd is no socket: Socket operation on non-socket\n"


def test_no_socket_without_systemd() -> None:
    assert systemd.listening_sockets() == {}
