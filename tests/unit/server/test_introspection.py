"""How many tokens are asked about at once, in all and for one client."""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from typing import Any

import pytest

from querybuild.principal import Principal
from server.authentication import introspection
from server.authentication.files import AuthFiles
from server.authentication.introspection import Introspector
from server.authentication.token_cache import TokenCache
from server.errors import AuthUnavailable
from server.limits.clients import current_client
from server.settings import Settings


class Slow:
    """An issuer that answers when it is allowed to."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()

    async def post(self, *_: str) -> bytes:
        await self.may_answer.wait()
        return b'{"active":true,"sub":"ann"}'


async def test_a_client_that_sends_many_tokens_does_not_keep_out_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(introspection, "MAX_REQUESTS_OF_CLIENT", 2)
    slow, settings = Slow(), Settings(auth_introspection_url="https://issuer.example/introspect")
    fetcher: Any = slow
    asked = Introspector(settings, AuthFiles(client_secret=b"secret"), fetcher, TokenCache())

    def ask(client: str, token: str) -> asyncio.Task[Principal]:
        context = copy_context()
        context.run(current_client.set, client)
        return asyncio.get_running_loop().create_task(asked.principal_of(token, token.encode()), context=context)

    waiting = [ask("one", "a"), ask("one", "b")]
    await asyncio.sleep(0)
    with pytest.raises(AuthUnavailable):
        await ask("one", "c")
    waiting.append(ask("other", "d"))
    await asyncio.sleep(0)
    slow.may_answer.set()
    assert {(await one).subject for one in waiting} == {"ann"}
    assert (await ask("one", "e")).subject == "ann"
