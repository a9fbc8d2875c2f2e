"""Signing in on the pages at an OpenID provider by other authors, in a real Chromium. Only `make test-clients` runs
this test."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.clients.test_clients import HERE, ROOT, node, passes
from tests.clients.test_issuer import AUDIENCE, running_provider
from tests.clients.test_openapi import RULES, browser
from tests.ports import free_port
from tests.ready import announced_address
from tests.variables import VARIABLES

__all__ = ["browser", "node"]

pytestmark = pytest.mark.clients


@contextmanager
def signing_server(port: int, issuer: str) -> Iterator[str]:
    """Yield the URL of a server with the demo rows, where people sign in."""
    waterspout = Path(sys.executable).with_name("waterspout")
    with tempfile.TemporaryDirectory(prefix="waterspout-clients-") as folder:
        Path(folder).chmod(0o755)
        Path(folder, "secret").write_text("s" * 48)
        Path(folder, "guarded.py").write_text(RULES)
        data = ("--port", "0", "--data-dir", f"{folder}/data")
        with subprocess.Popen(
            (waterspout, "serve", "--demo", *data), cwd=ROOT, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            announced_address(process.stdout)
            process.terminate()
        url = f"http://127.0.0.1:{port}"
        flags = (
            *("--port", str(port), "--data-dir", f"{folder}/data", "--resources", f"{folder}/guarded.py"),
            *("--migrations", ROOT / "migrations", "--workers", "3", "--public-url", url),
            *("--auth-issuer", issuer, "--auth-audience", AUDIENCE, "--auth-leeway-seconds", "0"),
            *("--login-client-id", "pages", "--session-secret-file", f"{folder}/secret"),
            *("--login-scope", "openid offline_access", "--login-parameters", f"prompt=consent&resource={AUDIENCE}"),
        )
        with subprocess.Popen((waterspout, "serve", *flags), cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                yield announced_address(process.stdout)
            finally:
                process.terminate()


def test_signing_in(node: str, browser: str) -> None:
    """The whole way, tabs that renew their session at once, pages of another origin, and the way out."""
    port = free_port()
    with running_provider(f"http://127.0.0.1:{port}") as provider, signing_server(port, provider.url) as url:
        pictures = VARIABLES.get("WATERSPOUT_PICTURES", "")
        passes(node, HERE / "signing_in.mjs", url, browser, provider.url, pictures)
