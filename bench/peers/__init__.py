"""What a user would pick instead: the same resources over the same tables, by other libraries.

In: a request of `bench.requests`, a folder for the peers' own environments. Out: a command that starts a server on one
worker, and the request as that server understands it. A server listens on 127.0.0.1 and is ready when it accepts
connections. It may be more than one program: what it uses is the sum over the process that was started and its
children. Who measures it is not known here.
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
"""Where the environments are, unless another folder is named: in the working folder."""


class Peer(msgspec.Struct, frozen=True):
    """name: one word, for options and folders. requirements: a file of pinned packages. program: run by the Python of
    the peer's own environment. environment: variables that it needs beside those that are there. missing: by the name
    of a request, why `translate` gives None; see `why_missing`. notes: sentences for the report.
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
    """Why the peer has nothing of the kind. Raises KeyError where it has."""
    if request.total == "exact" and "exact" in peer.missing:
        return peer.missing["exact"]
    return peer.missing[request.name.removesuffix("-exact")]


def python_of(peer: Peer, folder: Path = FOLDER) -> Path:
    """The peer's Python, which is there once `install` has made it. A link, by whose place it finds its packages."""
    return folder.absolute() / peer.name / "bin" / "python"


def install(peer: Peer, folder: Path = FOLDER) -> Path:
    """Make the peer's environment with the Python that runs this, or leave the one that is there if it has the same
    requirements; return its Python. Raises subprocess.CalledProcessError, after pip has said why.
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
