"""Tools of other people that read the OpenAPI document: schemathesis, a compiler of TypeScript, and a browser with the
docs page. Only `make test-clients` runs these tests.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.clients.test_clients import HERE, ROOT, node, passes, server
from tests.ready import announced_address

__all__ = ["node", "server"]

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
OPERATIONS = r"^/(groups(/\{id\})?|users/\{id\}/relationships/group|-/.*)$"
"""Few enough for half a minute: those of all resources take a quarter of an hour."""
EXAMPLES = "3"

pytestmark = pytest.mark.clients


def test_schemathesis_finds_nothing(server: str) -> None:
    """All of its checks, with valid and invalid requests."""
    command = Path(sys.executable).with_name("schemathesis")
    scope = ("--include-path-regex", OPERATIONS, "--max-examples", EXAMPLES, "--seed", "1")
    hooks = f"SCHEMATHESIS_HOOKS={HERE / 'statuses.py'}"
    passes("env", hooks, command, "run", f"{server}/-/openapi.json", "--checks", "all", "--no-color", *scope)


def test_a_client_of_typescript(node: str, server: str) -> None:
    """What openapi-typescript makes of the document compiles in strict mode, and reads, writes and includes."""
    bin = HERE / "node_modules" / ".bin"
    passes(node, bin / "openapi-typescript", f"{server}/-/openapi.json", "-o", HERE / "build" / "api.ts")
    passes(node, bin / "tsc", "-p", HERE / "tsconfig.json")
    passes(node, HERE / "build" / "typescript.js", server)


@pytest.fixture(scope="session")
def browser() -> str:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip("there is no Chromium")
    return found


def test_the_docs_page(node: str, browser: str, server: str) -> None:
    passes(node, HERE / "page.mjs", server, browser)


RULES = """
import msgspec
from server.resources import RESOURCES
from waterspout import SIGNED_IN, Allow

RESOURCES = [msgspec.structs.replace(one, access=(Allow(SIGNED_IN, "all"),)) for one in RESOURCES]
"""


@contextmanager
def guarded_server() -> Iterator[tuple[str, str]]:
    """Yield the URL of a server for which a token is needed, and a token."""
    waterspout = Path(sys.executable).with_name("waterspout")
    with tempfile.TemporaryDirectory(prefix="waterspout-clients-") as folder:
        Path(folder).chmod(0o755)
        Path(folder, "secret").write_text("s" * 32)
        Path(folder, "guarded.py").write_text(RULES)
        signing = ("--auth-secret-file", f"{folder}/secret", "--auth-audience", "us")
        asked = (waterspout, "token", "--development", "--subject", "ann", *signing)
        token = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
        resources = ("--resources", f"{folder}/guarded.py", "--migrations", ROOT / "migrations")
        flags = ("--port", "0", "--data-dir", f"{folder}/data", *resources, *signing)
        with subprocess.Popen((waterspout, "serve", *flags), cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                yield announced_address(process.stdout), token
            finally:
                process.terminate()


def test_the_docs_page_with_a_token(node: str, browser: str) -> None:
    with guarded_server() as (url, token):
        passes(node, HERE / "page.mjs", url, browser, token)
