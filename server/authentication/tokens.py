"""Finds the principal of a token. A token that was verified before takes a hash and a look-up, and never waits.

It must not know: HTTP.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from querybuild.principal import Principal
from server.authentication.bearer import check_token
from server.authentication.fetching import Fetcher
from server.authentication.files import AuthFiles
from server.authentication.introspection import Introspector
from server.authentication.jwts import JwtVerifier, UnknownKey, accepted_algorithms
from server.authentication.key_source import FetchedKeys, FixedKeys, fetch_by_discovery, fetch_keys
from server.authentication.keys import Keys, KeysError, read_key_set, secret_keys
from server.authentication.token_cache import TokenCache, digest_of
from server.errors import AuthUnavailable, InvalidToken
from server.settings import Settings, StartError

Task = tuple[str, Callable[[], Coroutine[Any, Any, None]]]

Found = TypeVar("Found")

_NO_KEYS = Keys((), b"")


class Tokens:
    """The tokens that the settings accept. tasks: the work in the background, by its name. fetcher: asks the issuer."""

    tasks: tuple[Task, ...] = ()

    def __init__(self, settings: Settings, files: AuthFiles) -> None:
        """Raises StartError."""
        self.cache = TokenCache()
        self.fetcher = Fetcher(settings)
        self._verifier = JwtVerifier(settings) if settings.takes_jwts else None
        self._source = self._key_source(settings, files) if settings.takes_jwts else None
        if isinstance(self._source, FetchedKeys):
            self.tasks = (("keys", self._source.run),)
        self._introspector = None
        if settings.auth_introspection_url is not None:
            self._introspector = Introspector(settings, files, self.fetcher, self.cache)

    def _key_source(self, settings: Settings, files: AuthFiles) -> FixedKeys | FetchedKeys:
        accepted = accepted_algorithms(settings)
        try:
            if files.secret is not None:
                return FixedKeys(secret_keys(files.secret, accepted))
            if files.key_set is not None:
                return FixedKeys(read_key_set(files.key_set, accepted))
        except KeysError as error:
            name = "auth_jwks" if files.secret is None else "auth_secret_file"
            raise StartError(f"{name}: {getattr(settings, name)} cannot be used: {error}") from None
        if settings.auth_jwks is not None:
            fetch = partial(fetch_keys, self.fetcher, settings.auth_jwks, accepted)
        else:
            assert settings.auth_issuer is not None
            fetch = partial(fetch_by_discovery, self.fetcher, settings.auth_issuer, accepted)
        return FetchedKeys(fetch, 3600 * settings.auth_keys_hours, self.cache.clear)

    def principal_of(self, token: str) -> Principal | Awaitable[Principal]:
        """Return the principal of a token, or an awaitable if the issuer has to be asked. Raises InvalidToken,
        ExpiredToken, AuthUnavailable."""
        digest = digest_of(token)
        principal = self.cache.get(digest)
        if principal is not None:
            return principal
        check_token(token)
        if self._verifier is None or (self._introspector is not None and token.count(".") != 2):
            assert self._introspector is not None
            return self._introspector.principal_of(token, digest)
        try:
            return self._verify(token, digest)
        except UnknownKey:
            self._check_asking()
            return self._verify_later(lambda: self._verify(token, digest))

    async def id_token_claims(self, token: str, client_id: str) -> dict[str, Any]:
        """Return the claims of an ID token. Raises InvalidToken, ExpiredToken, AuthUnavailable."""
        assert self._verifier is not None
        assert self._source is not None
        verifier, source = self._verifier, self._source
        check_token(token)

        def verify() -> dict[str, Any]:
            return verifier.verify_id_token(token, source.keys or _NO_KEYS, client_id)

        try:
            return verify()
        except UnknownKey:
            self._check_asking()
            return await self._verify_later(verify)

    def _check_asking(self) -> None:
        """Refuse a token whose key is not known, if the issuer cannot be asked now. Raises InvalidToken,
        AuthUnavailable."""
        assert self._source is not None
        if not self._source.can_ask:
            raise self._unknown_key() from None

    async def _verify_later(self, verify: Callable[[], Found]) -> Found:
        """Verify a token after other keys have been fetched."""
        assert self._source is not None
        await self._source.ask()
        try:
            return verify()
        except UnknownKey:
            raise self._unknown_key() from None

    def _verify(self, token: str, digest: bytes) -> Principal:
        """Raises InvalidToken, UnknownKey."""
        assert self._verifier is not None
        assert self._source is not None
        verified = self._verifier.verify(token, self._source.keys or _NO_KEYS)
        self.cache.put(digest, verified, len(token))
        return verified.principal

    def _unknown_key(self) -> InvalidToken | AuthUnavailable:
        assert self._source is not None
        if self._source.keys is None:
            return AuthUnavailable("The server has no keys of the issuer yet; try again.")
        return InvalidToken("The issuer has no key for this token.")

    def check_ready(self) -> None:
        """Raises AuthUnavailable if there are no keys."""
        if self._source is not None and self._source.keys is None:
            raise AuthUnavailable("The server has no keys of the issuer.")

    def close(self) -> None:
        """Close the connections to the issuer."""
        if isinstance(self._source, FetchedKeys):
            self._source.close()
        self.fetcher.close()
