"""The door of authentication. What comes in: a request. What goes out: its principal, or an awaitable of it.

It must not know: what a principal may do.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from querybuild.cache import BoundedCache
from querybuild.principal import ANONYMOUS, Principal
from server.authentication.bearer import bearer_token, other_scheme
from server.authentication.chosen import ChosenPrincipals
from server.authentication.files import AuthFiles, read_files
from server.http.request import Request
from server.settings import Settings

if TYPE_CHECKING:
    from server.authentication.signing_in.sessions import Sessions
    from server.authentication.tokens import Task, Tokens

Found = Principal | Awaitable[Principal]
"""What authentication finds at once, or after it has asked."""

Authenticate = Callable[[Request], Found]
"""Finds out who sends a request."""

Custom = Callable[[Any], Awaitable[Principal | None]]
"""The function AUTHENTICATE of a module of resources."""

log = logging.getLogger("server")


def has_authentication(settings: Settings, custom: Custom | None) -> bool:
    """Return whether it can be known who asks. Then resources without rules are closed. custom: the function
    AUTHENTICATE."""
    return custom is not None or settings.takes_tokens or settings.development_principals is not None


def check_files(settings: Settings) -> AuthFiles:
    """Return the contents of the files, after they were used once: a fault ends the start. Raises StartError."""
    files = read_files(settings)
    tokens = _tokens(settings, files)
    if tokens is not None:
        _sessions(settings, files, tokens)
        tokens.close()
    return files


class Authenticator:
    """Finds out who sends a request. There is one for each worker. custom: the function AUTHENTICATE, if there is
    one. It is asked about every request without a bearer token or a session, and about all if no tokens are configured.
    sessions: of people who sign in with a browser. chosen: whom a person may choose to be, to try rules."""

    def __init__(self, settings: Settings, files: AuthFiles | None = None, custom: Custom | None = None) -> None:
        """files: read already, or None to read them here. Raises StartError."""
        files = read_files(settings) if files is None else files
        self._tokens = _tokens(settings, files)
        self.sessions = None if self._tokens is None else _sessions(settings, files, self._tokens)
        self._custom = custom
        self.is_configured = has_authentication(settings, custom)
        self._has_warned = False
        self.chosen = None if settings.development_principals is None else ChosenPrincipals(settings)

    @property
    def is_custom(self) -> bool:
        """Whether custom code is asked who sends a request."""
        return self._custom is not None

    @property
    def reads_cookies(self) -> bool:
        """Whether a cookie may say who sends a request."""
        return self.sessions is not None or self.chosen is not None

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The work in the background."""
        return () if self._tokens is None else self._tokens.tasks

    @property
    def caches(self) -> dict[str, BoundedCache[Any]]:
        """The caches by their names."""
        named: dict[str, BoundedCache[Any]] = {} if self._tokens is None else {"tokens": self._tokens.cache.entries}
        return named if self.sessions is None else named | {"sessions": self.sessions.opened}

    def authenticate(self, request: Request) -> Found:
        """Return the principal of a request, or an awaitable if it is not known at once. Raises ApiError,
        Unauthenticated, InvalidToken, AuthUnavailable."""
        values = request.headers.by_name.get("Authorization")
        if values is None or self._tokens is None:
            return self._without_token(request, has_credentials=values is not None)
        token = bearer_token(values)
        if token is not None:
            return self._tokens.principal_of(token)
        if self._custom is None:
            raise other_scheme()
        return ask_custom(self._custom, request)

    def _without_token(self, request: Request, *, has_credentials: bool) -> Found:
        if self.sessions is not None and (principal := self.sessions.principal_of(request)) is not None:
            return principal
        if self._custom is not None:
            return ask_custom(self._custom, request)
        if self.chosen is not None and not has_credentials:
            return self.chosen.principal_of(request)
        if has_credentials and not self._has_warned:
            self._has_warned = True
            log.warning(
                "a request has a header Authorization, which is ignored: no authentication is configured (auth_issuer)"
            )
        return ANONYMOUS

    def check_ready(self) -> None:
        """Raises AuthUnavailable if no token can be verified."""
        if self._tokens is not None:
            self._tokens.check_ready()

    def close(self) -> None:
        """Close the connections to the issuer."""
        if self._tokens is not None:
            self._tokens.close()


async def ask_custom(custom: Custom, request: Request) -> Principal:
    """Return what the function AUTHENTICATE returns; None means anonymous. Raises what it raises, and TypeError for a
    result of another type, which is logged as a fault."""
    answered: object = await custom(request)
    if answered is None:
        return ANONYMOUS
    if not isinstance(answered, Principal):
        raise TypeError(f"AUTHENTICATE returned {type(answered).__name__}: expected a Principal or None")
    if fault := _fault_of(answered):
        raise TypeError(f"AUTHENTICATE returned a Principal whose {fault}")
    return answered


def _fault_of(principal: Principal) -> str | None:
    """Return what is wrong with a principal that custom code made: nothing checks the types of a Struct."""
    texts: tuple[object, ...] = (principal.subject, principal.issuer)
    groups: tuple[object, ...] = (principal.roles, principal.scopes)
    claims: object = principal.claims
    if not all(isinstance(group, frozenset) for group in groups):
        return "roles or scopes are no frozenset"
    if not all(isinstance(text, str) for text in (*principal.roles, *principal.scopes)):
        return "roles or scopes are not all texts"
    if not all(isinstance(text, str) and "\0" not in text for text in texts):
        return "subject or issuer is no text that PostgreSQL can hold"
    return None if isinstance(claims, Mapping) else "claims are no mapping"


def _tokens(settings: Settings, files: AuthFiles) -> Tokens | None:
    if not settings.takes_tokens:
        return None
    # Imported here: PyJWT and the cryptography behind it take 20 MB and 50 ms.
    from server.authentication.tokens import Tokens

    return Tokens(settings, files)


def _sessions(settings: Settings, files: AuthFiles, tokens: Tokens) -> Sessions | None:
    if not settings.has_sign_in:
        return None
    from server.authentication.signing_in.sessions import Sessions

    return Sessions(settings, files, tokens)
