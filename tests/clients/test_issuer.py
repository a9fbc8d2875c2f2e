"""An OpenID provider by other authors, whose tokens and keys the server takes by discovery.

In: `issuer.mjs`, which runs oidc-provider. Only `make test-clients` runs this test.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote_plus, urlencode

import pytest
from tornado.httpclient import AsyncHTTPClient
from tornado.ioloop import IOLoop

from querybuild.principal import Principal
from server.authentication import key_source
from server.authentication.files import AuthFiles
from server.authentication.tokens import Tokens
from server.errors import InvalidToken
from server.settings import Settings
from tests.clients.test_clients import HERE
from tests.waiting import until

AUDIENCE = "https://api.example.org"
SECRET = "{}: a secret with % and +"

pytestmark = pytest.mark.clients


class Provider:
    """The running provider. rotate: replaces its key by one of another algorithm, and returns that."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.url, self.algorithm = self._line()

    def _line(self) -> tuple[str, str]:
        out: IO[str] | None = self._process.stdout
        assert out is not None
        for line in out:
            if line.startswith("http"):
                url, algorithm = line.split()
                return url, algorithm
        raise AssertionError("the provider has ended")

    def rotate(self) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write("rotate\n")
        self._process.stdin.flush()
        self.algorithm = self._line()[1]
        return self.algorithm

    async def token(self, client: str, resource: str = AUDIENCE) -> str:
        """Return an access token of the client credentials grant."""
        form = {"grant_type": "client_credentials", "resource": resource, "scope": "read"}
        answer = await AsyncHTTPClient().fetch(
            f"{self.url}/token",
            method="POST",
            body=urlencode(form),
            auth_username=client,
            auth_password=quote_plus(SECRET.format(client)),
        )
        token: str = json.loads(answer.body)["access_token"]
        return token


@contextmanager
def running_provider(*server: str) -> Iterator[Provider]:
    """Run the provider. server: the URL of a server whose pages people sign in on."""
    node = shutil.which("node")
    if node is None or not Path(HERE, "node_modules", "oidc-provider").is_dir():
        pytest.skip("no node, or no oidc-provider: make test-clients installs it")
    command = (node, str(HERE / "issuer.mjs"), *server)
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            yield Provider(process)
        finally:
            process.terminate()


@pytest.fixture
def provider() -> Iterator[Provider]:
    with running_provider() as running:
        yield running


@pytest.fixture
def tokens(provider: Provider, io_loop: IOLoop) -> Iterator[Tokens]:
    settings = Settings(
        auth_issuer=provider.url,
        auth_audience=AUDIENCE,
        auth_introspection_url=f"{provider.url}/token/introspection",
        auth_introspection_client_id="waterspout",
    )
    made = Tokens(settings, AuthFiles(client_secret=SECRET.format("waterspout").encode()))
    yield made
    made.close()


async def found(tokens: Tokens, token: str) -> Principal:
    principal: Any = tokens.principal_of(token)
    return principal if isinstance(principal, Principal) else await principal


async def test_tokens_of_a_provider(provider: Provider, tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    """JWTs with keys that change, and opaque tokens by introspection."""
    monkeypatch.setattr(key_source, "ASK_SECONDS", 0.0)
    ((_, work),) = tokens.tasks
    background = asyncio.ensure_future(work())
    algorithms = {provider.algorithm}
    first = await provider.token("shop")
    principal = await found(tokens, first)
    assert (principal.subject, principal.issuer) == ("shop", provider.url)
    assert (principal.roles, principal.scopes) == ({"editor"}, {"read"})
    for _ in range(3):
        algorithms.add(provider.rotate())
        assert (await found(tokens, await provider.token("shop"))).subject == "shop"
    assert algorithms == {"RS256", "ES256", "PS256", "EdDSA"}
    # The key of the first token is not published any more.
    with pytest.raises(InvalidToken):
        await found(tokens, first)
    with pytest.raises(InvalidToken):
        await found(tokens, await provider.token("shop", "https://other.example.org"))
    opaque = await provider.token("opaque")
    assert "." not in opaque
    principal = await found(tokens, opaque)
    assert (principal.subject, principal.roles, principal.scopes) == ("opaque", {"editor"}, {"read"})
    with pytest.raises(InvalidToken):
        await found(tokens, await provider.token("opaque", "https://other.example.org"))
    with pytest.raises(InvalidToken):
        await found(tokens, "unknown")
    background.cancel()
    await until(background.done)
