"""Asks the authorization server about opaque tokens (RFC 7662).

It must not know: HTTP requests of clients.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextvars import Context
from typing import Any

from querybuild.cache import BoundedCache
from querybuild.principal import Principal
from server.authentication.claims import ClaimsReader, Verified, check_kind, check_unbound
from server.authentication.fetching import Fetcher, FetchError, Outages, decode_object
from server.authentication.files import AuthFiles
from server.authentication.token_cache import ENTRY_BYTES, MAX_BYTES, MAX_ENTRIES, TokenCache
from server.errors import AuthUnavailable, ExpiredToken, InvalidToken
from server.limits.clients import current_client
from server.settings import Settings

KEEP_SECONDS = 30.0
"""How long an answer is kept. So long a token may still be accepted after it was revoked."""

MAX_REQUESTS = 100
"""How many tokens are asked about at once."""

MAX_REQUESTS_OF_CLIENT = MAX_REQUESTS // 2
"""How many of them one client may send, so that one who invents tokens does not keep out the others."""


class Introspector:
    """Finds the principals of opaque tokens. Requests with the same token at once share one question."""

    def __init__(self, settings: Settings, files: AuthFiles, fetcher: Fetcher, cache: TokenCache) -> None:
        assert settings.auth_introspection_url is not None
        self._url = settings.auth_introspection_url
        self._credentials = settings.auth_introspection_client_id or "", files.client_secret or b""
        self._issuer = settings.auth_issuer
        self._audience = settings.auth_audience
        self._leeway_seconds = settings.auth_leeway_seconds
        self._reader = ClaimsReader.of(settings)
        self._allows_bound = settings.auth_allow_bound_tokens
        self._fetcher = fetcher
        self._cache = cache
        self._refused: BoundedCache[float] = BoundedCache(MAX_ENTRIES, MAX_BYTES)
        self._pending: dict[bytes, asyncio.Task[Verified]] = {}
        self._by_client: Counter[str] = Counter()
        self._outages = Outages("introspection works again", "introspection fails")

    async def principal_of(self, token: str, digest: bytes) -> Principal:
        """Return the principal of a token. Raises InvalidToken, ExpiredToken, AuthUnavailable."""
        refused_until = self._refused.get(digest)
        if refused_until is not None:
            if refused_until > time.monotonic():
                raise InvalidToken("The token is not active.")
            self._refused.discard(digest)
        task = self._pending.get(digest)
        if task is None:
            client = current_client.get() or ""
            if len(self._pending) >= MAX_REQUESTS or self._by_client[client] >= MAX_REQUESTS_OF_CLIENT:
                raise AuthUnavailable("Too many tokens are being verified; try again.")
            self._by_client[client] += 1
            # In an empty context: other requests may wait for it, too.
            task = asyncio.get_running_loop().create_task(self._ask(token, digest), context=Context())
            self._pending[digest] = task
            task.add_done_callback(lambda done: self._end(digest, client, done))
        await asyncio.wait((task,))
        return task.result().principal

    def _end(self, digest: bytes, client: str, done: asyncio.Task[Verified]) -> None:
        del self._pending[digest]
        self._by_client[client] -= 1
        if not self._by_client[client]:
            del self._by_client[client]
        # asyncio reports an error that nobody retrieves, and the request may have gone.
        if not done.cancelled():
            done.exception()

    async def _ask(self, token: str, digest: bytes) -> Verified:
        form = {"token": token, "token_type_hint": "access_token"}
        try:
            answer = decode_object(await self._fetcher.post(self._url, form, self._credentials))
        except FetchError as error:
            self._outages.failed(str(error))
            raise AuthUnavailable("The issuer cannot be asked about the token now; try again.") from None
        self._outages.worked()
        try:
            verified = self._read(answer)
        except InvalidToken:
            self._refused.put(digest, time.monotonic() + KEEP_SECONDS, ENTRY_BYTES)
            raise
        self._cache.put(digest, verified, len(token))
        return verified

    def _read(self, answer: dict[str, Any]) -> Verified:
        """Raises InvalidToken, ExpiredToken."""
        if answer.get("active") is not True:
            raise InvalidToken("The token is not active.")
        now, issuer = time.time(), answer.get("iss")
        expires_at = _seconds(answer, "exp", now + KEEP_SECONDS)
        if expires_at + self._leeway_seconds <= now:
            raise ExpiredToken("The token has expired.")
        if _seconds(answer, "nbf", now) > now + self._leeway_seconds:
            raise InvalidToken("The token is not valid yet: its nbf is in the future.")
        if issuer is not None and self._issuer not in (None, issuer):
            raise InvalidToken("The token is from another issuer: its iss does not fit.")
        audience = answer.get("aud")
        if self._audience is not None and self._audience not in (
            audience if isinstance(audience, list) else [audience]
        ):
            raise InvalidToken("The token is for another server: its aud does not fit.")
        check_kind(answer)
        if not self._allows_bound:
            check_unbound(answer)
        named = issuer if isinstance(issuer, str) else self._issuer or ""
        return self._reader.verified(answer, named, min(expires_at, now + KEEP_SECONDS))


def _seconds(answer: dict[str, Any], name: str, default: float) -> float:
    value = answer.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidToken(f"The {name} of the token is not a number of seconds.")
    return float(value)
