"""Starts programs that serve requests, each as a process. In: a command line. Out: the address and the process. It
knows nothing about what the program serves."""

from __future__ import annotations

import http.client
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.ready import address_in

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "deploy" / "waterspout.service"
SERVER = (sys.executable, "-m", "server")
DEADLINE_SECONDS = 60

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")


class Serving(NamedTuple):
    process: subprocess.Popen[str]
    address: str

    def get(self, path: str) -> tuple[int, bytes]:
        host, _, port = self.address.removeprefix("http://").rpartition(":")
        with closing(http.client.HTTPConnection(host, int(port), timeout=DEADLINE_SECONDS)) as client:
            client.request("GET", path)
            response = client.getresponse()
            return response.status, response.read()


@contextmanager
def serving(command: Sequence[str], environ: Mapping[str, str] | None = None, **options: object) -> Iterator[Serving]:
    """Yield the program once it says that it is ready. SIGTERM ends it afterwards, and its exit code has to be 0."""
    process = subprocess.Popen(
        [str(part) for part in command],
        env=os.environ | (environ or {}),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,  # type: ignore[call-overload]
    )
    try:
        if (address := address_in(process.stdout)) is None:
            pytest.fail(f"never ready: {process.communicate()[1]}")
        yield Serving(process, address)
        process.terminate()
        _, errors = process.communicate(timeout=DEADLINE_SECONDS)
        assert process.returncode == 0, errors
    finally:
        process.kill()
        process.communicate()


def confined(url: str, *folders: str, unit: Path = UNIT) -> list[str]:
    """Return the command line that runs a command under the unit's restrictions, with its database URL as a credential
    and with access to these folders. If the database listens on a Unix socket, the command runs as the user who owns
    the socket."""
    host = parse_qs(urlsplit(url).query).get("host", [""])[0]
    uid = Path(host).stat().st_uid if host else 65534
    opened = [f"--open={folder}" for folder in (*folders, host) if folder]
    credential = [f"--credential=database_url={url}"] if url else []
    return [sys.executable, str(ROOT / "tests/deploy/confine.py"), f"--uid={uid}", *opened, *credential, str(unit)]
