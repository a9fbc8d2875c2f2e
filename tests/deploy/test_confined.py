"""The server under the restrictions of its own unit: files, user, capabilities, system calls."""

from __future__ import annotations

import ctypes.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.programs import ROOT, SERVER, confined, needs_systemd, serving

PROGRAMS = (str(ROOT), sys.prefix, sys.base_prefix)

pytestmark = [
    needs_systemd,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can take from a program what systemd takes"),
    pytest.mark.skipif(ctypes.util.find_library("seccomp") is None, reason="libseccomp is not installed"),
]

# Each attempt and the error that it gets. None: it has to succeed.
ATTEMPTS = {
    "open('/etc/waterspout', 'w')": "EROFS",
    "open('/usr/local/bin/waterspout', 'w')": "EROFS",
    "os.stat(sys.argv[2])": "ENOENT",
    "open('/tmp/program', 'w').close()": None,
    "os.chmod('/tmp/program', 0o700)": None,
    "os.execv('/tmp/program', ['program'])": "EACCES",
    "open('/var/lib/waterspout/state', 'w').close()": None,
    "os.chmod('/var/lib/waterspout/state', 0o700)": None,
    "os.execv('/var/lib/waterspout/state', ['program'])": "EACCES",
    "open('/run/waterspout/state', 'w').close()": None,
    "open('/proc/sys/kernel/hostname')": "ENOENT",
    "os.kill(1, 0)": "EPERM",
    "os.setuid(0)": "EPERM",
    "os.chown('/tmp/program', 0, 0)": "EPERM",
    "os.nice(-1)": "EPERM",
    "os.sched_setaffinity(0, {0})": "EPERM",
    "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)": "EPERM",
    "socket.socket(socket.AF_INET6)": None,
    "called('unshare', 0x10000000)": "EPERM",
    "called('mount', b'none', b'/tmp', b'tmpfs', 0, None)": "EPERM",
    "called('ptrace', 0, 0, None, None)": "EPERM",
    "mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)": "EPERM",
}

PROBE = """
import ctypes, errno, json, mmap, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def called(name, *arguments):
    if getattr(libc, name)(*arguments) == -1:
        raise OSError(ctypes.get_errno(), name)
def tried(attempt):
    try:
        eval(attempt)
    except OSError as error:
        return errno.errorcode[error.errno]
print(json.dumps({attempt: tried(attempt) for attempt in json.loads(sys.argv[1])}))
"""


def test_the_restrictions_are_there(database_url: str, tmp_path: Path) -> None:
    """Without this the next test would prove nothing. The folder is visible to other users."""
    command = [
        *confined(database_url, *PROGRAMS),
        sys.executable,
        "-c",
        PROBE,
        json.dumps(list(ATTEMPTS)),
        str(tmp_path),
    ]
    probed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert json.loads(probed.stdout or "null") == ATTEMPTS, probed.stderr


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_server_runs_under_them(database_url: str, workers: str) -> None:
    command = [*confined(database_url, *PROGRAMS), *SERVER, "serve", "--port", "0", "--workers", workers]
    with serving(command) as server:
        assert server.get("/-/ready")[0] == 200
        assert json.loads(server.get("/users")[1])["data"] == []
