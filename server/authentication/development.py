"""Signs tokens for development with the secret of the settings, so that rules can be tried without an issuer."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jwt
import msgspec

from server.authentication.files import read_files
from server.authentication.jwts import accepted_algorithms
from server.authentication.keys import KeysError, secret_keys
from server.settings import Settings, StartError
from server.settings.algorithms import SECRET_BYTES


class NewToken(msgspec.Struct, frozen=True):
    """What a token says. claims: further claims, which override those that are made here."""

    subject: str
    roles: Sequence[str] = ()
    scopes: Sequence[str] = ()
    claims: Mapping[str, Any] = {}
    expires_in_seconds: int = 3600


def sign_token(token: NewToken, settings: Settings, secret_file: Path | None = None) -> str:
    """Return a token that a server with these settings accepts. secret_file: if it is not that of the settings. Raises
    StartError."""
    path = secret_file or settings.auth_secret_file
    settings = msgspec.structs.replace(settings, auth_secret_file=path, auth_jwks=None)
    secret = read_files(settings).secret
    assert secret is not None
    accepted = [name for name in accepted_algorithms(settings) if name in SECRET_BYTES]
    if not accepted:
        raise StartError("auth_algorithms accepts no tokens that are signed with a secret")
    try:
        key = secret_keys(secret, accepted).keys[0]
    except KeysError as error:
        raise StartError(f"{path} cannot be used: {error}") from None
    return jwt.encode(_claims(token, settings), key.value, algorithm=key.algorithms[0])


def _claims(token: NewToken, settings: Settings) -> dict[str, Any]:
    now = int(time.time())
    claims: dict[str, Any] = {"sub": token.subject, "aud": settings.auth_audience}
    if settings.auth_issuer is not None:
        claims["iss"] = settings.auth_issuer
    if token.roles:
        _put(claims, settings.auth_roles_claim, list(token.roles))
    if token.scopes:
        claims["scope"] = " ".join(token.scopes)
    return claims | {"iat": now, "exp": now + token.expires_in_seconds} | dict(token.claims)


def _put(claims: dict[str, Any], path: str, value: Any) -> None:
    """Put a claim where `claim_of` finds it: dots lead into objects."""
    *outer, last = path.split(".")
    for name in outer:
        claims = claims.setdefault(name, {})
    claims[last] = value
