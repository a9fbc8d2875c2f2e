"""Runs a real pgbouncer in transaction mode. In: a cluster, and the role with which it logs in. Out: its port."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.faults.cluster import Cluster
from tests.ports import free_port
from tests.variables import VARIABLES
from tests.waiting import wait_until

PROGRAM = VARIABLES.get("WATERSPOUT_TEST_PGBOUNCER") or shutil.which(
    "pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/bin"
)
CONFIGURATION = """
[databases]
{database} = host=127.0.0.1 port={to} user={role}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 3
query_wait_timeout = 1
server_login_retry = 0.2
"""


@contextmanager
def pgbouncer(cluster: Cluster, database: str, role: str) -> Iterator[int]:
    """Yield the port of a pgbouncer. It has three backends for all clients. Skips the test if none is installed."""
    if PROGRAM is None:
        pytest.skip("pgbouncer is not installed")
    port = free_port()
    path, owner = cluster.folder.with_name(f"pgbouncer-{port}.ini"), cluster.folder.stat()
    path.write_text(CONFIGURATION.format(database=database, to=cluster.port, port=port, role=role))
    # root may not run it.
    user = owner.st_uid if os.geteuid() == 0 else None
    process = subprocess.Popen([PROGRAM, "-q", str(path)], stderr=subprocess.DEVNULL, cwd="/", user=user)
    try:
        wait_until(lambda: is_listening(port) or process.poll() is not None)
        assert process.poll() is None
        yield port
    finally:
        process.kill()
        process.wait()


def is_listening(port: int) -> bool:
    """Return whether the port accepts connections."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
