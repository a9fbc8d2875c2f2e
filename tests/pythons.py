"""Runs the tests that need no database, and a first answer of the server, with every Python that is found on this
machine: `make test-pythons`. It needs only the standard library, and a virtual environment for each Python.

Tests that read the text of the code, and those that measure sizes, are left out: no Python changes them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from urllib.request import urlopen

from tests.ready import address_in

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / ".venv-pythons"
FIRST, LAST = 11, 14
"""The minor versions that setup.py allows."""

LEFT_OUT = ("bench", "cache", "docs", "layers", "private_parts")
"""The modules of `tests/unit` that are left out."""

_installing = Lock()
"""All installations write the metadata of the project into its folder."""

_VERSION = "import platform, sys; print(platform.python_version() if sys.implementation.name == 'cpython' else '')"


def pythons() -> dict[str, Path]:
    """Return the Pythons on PATH and those of pyenv, by their versions."""
    names = [f"python3.{minor}" for minor in range(FIRST, LAST + 1)]
    found = [Path(path) for name in names if (path := shutil.which(name))]
    found += sorted(Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser().glob("versions/*/bin/python3"))
    versions: dict[str, Path] = {}
    for path in found:
        # A shim of pyenv whose version is not chosen fails.
        asked = subprocess.run([path, "-c", _VERSION], capture_output=True, text=True, check=False)
        version = asked.stdout.strip()
        if asked.returncode == 0 and any(version.startswith(f"3.{minor}.") for minor in range(FIRST, LAST + 1)):
            versions.setdefault(version, path)
    return versions


def install(python: Path, folder: Path) -> Path:
    """Install the project for a Python, and return the folder with its programs."""
    subprocess.run([python, "-m", "venv", folder], check=True)
    pip = [folder / "bin/python", "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    with _installing:
        subprocess.run([*pip, "--editable", f"{ROOT}[test]"], check=True)
    return folder / "bin"


def test(programs: Path) -> None:
    """Run the tests without a database."""
    modules = [f"--ignore-glob=*/test_{name}.py" for name in LEFT_OUT]
    subprocess.run(
        [programs / "pytest", "tests/unit", "tests/processes", "--no-header", *modules], cwd=ROOT, check=True
    )


def first_answer(programs: Path) -> int:
    """Start the server with sample rows, and return how many users its first answer has."""
    with tempfile.TemporaryDirectory(prefix="waterspout-") as data:
        # PostgreSQL does not run as root, and its own user must be able to enter the folder.
        Path(data).chmod(0o755)
        command = [programs / "waterspout", "serve", "--demo", "--port", "0", "--data-dir", data]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            with urlopen(f"{_address(server)}/users", timeout=30) as answer:
                return len(json.load(answer)["data"])
        finally:
            server.terminate()
            server.wait(30)


def _address(server: subprocess.Popen[str]) -> str:
    assert server.stdout is not None
    if (address := address_in(server.stdout)) is None:
        raise RuntimeError(f"the server ended with {server.wait()}")
    return address


def check(version: str, python: Path) -> str:
    """Try a Python, and return what was found."""
    begin = time.monotonic()
    programs = install(python, FOLDER / version)
    test(programs)
    count = first_answer(programs)
    assert count > 0, "the first answer has no users"
    return (
        f"Python {version}: the tests passed, and the first answer has {count} users ({time.monotonic() - begin:.0f} s)"
    )


def main(left_out: list[str]) -> int:
    """Try each Python. left_out: versions that were tried already."""
    found = {version: python for version, python in pythons().items() if version not in left_out}
    failed = False
    with ThreadPoolExecutor(max_workers=min(len(found) or 1, os.cpu_count() or 1)) as pool:
        for line, is_right in pool.map(lambda one: _said(*one), found.items()):
            print(line, flush=True)
            failed |= not is_right
    return int(failed)


def _said(version: str, python: Path) -> tuple[str, bool]:
    try:
        return check(version, python), True
    except Exception as error:
        return f"Python {version}: {type(error).__name__}: {error}", False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
