"""Programs that serve, as their own processes. What comes in: a command line. What goes out: its address, and the
process. It must not know: what it is that serves.
"""

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

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "deploy" / "waterspout.service"
SERVER = (sys.executable, "-m", "server")
READY = "waterspout is ready on "
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
    """From the moment on at which it says that it is ready until SIGTERM has ended it, with exit code 0."""
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
        line = next((line for line in process.stdout if line.startswith(READY)), None)
        if line is None:
            pytest.fail(f"never ready: {process.communicate()[1]}")
        yield Serving(process, line.removeprefix(READY).strip())
        process.terminate()
        _, errors = process.communicate(timeout=DEADLINE_SECONDS)
        assert process.returncode == 0, errors
    finally:
        process.kill()
        process.communicate()


def confined(url: str, *folders: str, unit: Path = UNIT) -> list[str]:
    """What runs a command that needs these folders as the unit does, its database URL as a credential. A database
    behind a Unix socket is asked as the user to whom the socket belongs."""
    host = parse_qs(urlsplit(url).query).get("host", [""])[0]
    uid = Path(host).stat().st_uid if host else 65534
    opened = [f"--open={folder}" for folder in (*folders, host) if folder]
    credential = [f"--credential=database_url={url}"] if url else []
    return [sys.executable, str(ROOT / "tests/deploy/confine.py"), f"--uid={uid}", *opened, *credential, str(unit)]
