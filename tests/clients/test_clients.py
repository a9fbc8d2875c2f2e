"""JSON:API clients by other authors, each with a server of its own that is started as a user would start it.

In: the scripts beside this module, one for each client, which take the server's URL. Out: the output of a script that
fails. It does not know what a client does. Only `make test-clients` runs these tests.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.http.test_retrying import client_of_the_page
from tests.ready import announced_address

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
DEADLINE_SECONDS = 120
OLDEST_NODE = 20

NODE_CLIENTS = {
    "@orbit/jsonapi": (HERE / "orbit.mjs",),
    "kitsu": (HERE / "kitsu.mjs",),
    "devour-client": (HERE / "devour.mjs",),
    # This condition selects the build that checks documents.
    "@warp-drive/json-api": ("--conditions=unpkg-dev", HERE / "warp-drive.mjs"),
}
PYTHON_CLIENTS = {
    "jsonapi-client": "tests.clients.with_jsonapi_client",
    "jsonapi-requests": "tests.clients.with_jsonapi_requests",
}

pytestmark = pytest.mark.clients


@pytest.fixture
def server() -> Iterator[str]:
    """Yield the URL of a server with a new embedded database and the demo rows."""
    with tempfile.TemporaryDirectory(prefix="waterspout-clients-") as folder:
        # If root runs the tests, PostgreSQL runs as another user, who needs access.
        Path(folder).chmod(0o755)
        flags = (
            "--demo",
            "--port",
            "0",
            "--data-dir",
            f"{folder}/data",
            "--log-level",
            "warning",
            "--idempotency",
            "on",
        )
        command = (Path(sys.executable).with_name("waterspout"), "serve", *flags)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                yield announced_address(process.stdout)
            finally:
                process.terminate()


def passes(*command: str | Path) -> None:
    ended = subprocess.run(
        command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=DEADLINE_SECONDS
    )
    assert ended.returncode == 0, ended.stdout


@pytest.fixture(scope="session")
def node() -> str:
    found = shutil.which("node")
    if found is None or not (HERE / "node_modules").exists():
        pytest.skip("node or npm is missing")
    version = subprocess.run((found, "--version"), capture_output=True, text=True, check=True).stdout.strip()
    if int(version.removeprefix("v").split(".")[0]) < OLDEST_NODE:
        pytest.skip(f"node is {version}, older than {OLDEST_NODE}")
    return found


@pytest.mark.parametrize("arguments", NODE_CLIENTS.values(), ids=NODE_CLIENTS)
def test_a_client_of_node(node: str, server: str, arguments: tuple[str | Path, ...]) -> None:
    passes(node, *arguments, server)


@pytest.mark.parametrize("module", PYTHON_CLIENTS.values(), ids=PYTHON_CLIENTS)
def test_a_client_of_python(server: str, module: str) -> None:
    passes(sys.executable, "-m", module, server)


def test_the_client_that_retries(node: str, server: str, tmp_path: Path) -> None:
    """That of docs/retrying.md, through a proxy that breaks connections."""
    module = tmp_path / "client.mjs"
    module.write_text(client_of_the_page("javascript"))
    passes(node, HERE / "retry.mjs", module, server)
