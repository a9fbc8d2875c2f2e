"""The peers: other libraries that serve the same resources over the same tables.

A peer has a command that starts a server with one worker, and the form of each request that this server understands. A
server listens on 127.0.0.1 and is ready when it accepts connections. It may be more than one program: its figures are
the sum over the started process and its children. This module does not know who measures it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from bench.peers import django_jsonapi, fastapi_jsonapi
from bench.requests import Request

_HERE = Path(__file__).parent
FOLDER = Path(".venv-bench")
"""The default folder for the environments, in the working folder."""


class Peer(msgspec.Struct, frozen=True):
    """A library to compare with. name: one word, for options and folders. requirements: a file of pinned packages.
    program: run by the Python of the peer's own environment. environment: additional variables that it needs. missing:
    by the name of a request, why `translate` returns None; see `why_missing`. notes: sentences for the report.
    """

    name: str
    label: str
    requirements: Path
    program: Path
    translate: Callable[[Request], Request | None]
    missing: Mapping[str, str]
    notes: tuple[str, ...]
    environment: Mapping[str, str] = {}

    def command(self, python: str, url: str, port: int, pool_size: int) -> list[str]:
        """Return the command that starts the peer."""
        options = {"--database-url": url, "--port": str(port), "--pool-size": str(pool_size)}
        return [python, str(self.program), *(word for option in options.items() for word in option)]


PEERS: tuple[Peer, ...] = (
    Peer(
        "fastapi-jsonapi",
        "FastAPI-JSONAPI 3.0.0",
        _HERE / "fastapi-jsonapi.txt",
        _HERE / "programs" / "fastapi_server.py",
        fastapi_jsonapi.translate,
        fastapi_jsonapi.MISSING,
        fastapi_jsonapi.NOTES,
    ),
    Peer(
        "django-jsonapi",
        "Django REST framework JSON:API 8.1.0",
        _HERE / "django-jsonapi.txt",
        _HERE / "programs" / "django_server.py",
        django_jsonapi.translate,
        django_jsonapi.MISSING,
        django_jsonapi.NOTES,
    ),
)


def why_missing(peer: Peer, request: Request) -> str:
    """Why the peer has no such request. Raises KeyError if it has one."""
    if request.total == "exact" and "exact" in peer.missing:
        return peer.missing["exact"]
    return peer.missing[request.name.removesuffix("-exact")]


def python_of(peer: Peer, folder: Path = FOLDER) -> Path:
    """Return the peer's Python, which exists after `install`. It is a symbolic link, and finds its packages by the
    link's path.
    """
    return folder.absolute() / peer.name / "bin" / "python"


def install(peer: Peer, folder: Path = FOLDER) -> Path:
    """Create the peer's environment with the Python that runs this, or keeps the existing one if it has the same
    requirements. Returns its Python. Raises subprocess.CalledProcessError, after pip has said why.
    """
    python = python_of(peer, folder)
    installed = python.parents[1] / "requirements.txt"
    wanted = peer.requirements.read_text(encoding="utf-8")
    if not installed.is_file() or installed.read_text(encoding="utf-8") != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(python.parents[1])], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--requirement", str(peer.requirements)], check=True)
        installed.write_text(wanted, encoding="utf-8")
    return python
