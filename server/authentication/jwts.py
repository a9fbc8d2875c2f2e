"""Verifies JSON Web Tokens (RFC 7519, RFC 8725, RFC 9068). What comes in: a token, keys. What goes out: a principal.

PyJWT does the cryptography and checks the claims. This module chooses the key, and turns each refusal into an answer.
The headers jku, jwk, x5u and x5c are never read: keys come only from the settings.

It must not know: where keys come from, HTTP.
"""

from __future__ import annotations

import logging
from base64 import urlsafe_b64decode
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import jwt
import msgspec
from jwt import exceptions as refused

from server.authentication.claims import ClaimsReader, Verified, check_kind, check_unbound
from server.authentication.keys import MAX_SECRETS, Keys, VerificationKey
from server.errors import ExpiredToken, InvalidToken
from server.settings import Settings
from server.settings.algorithms import PUBLIC_BY_DEFAULT, SECRET_BYTES

TYPES = frozenset({"jwt", "at+jwt", "application/at+jwt"})
"""The `typ` of access tokens, in small letters (RFC 9068, 2.1). A token without one is accepted, too."""

MAX_TRIED = MAX_SECRETS
"""How many keys are tried if the token does not name one, or several have its name."""

MALFORMED = "The token is not a JSON Web Token, or a part of it is malformed."

MAX_EXPIRY = 2**53
"""The latest `exp`, the last whole number that every JSON reader keeps."""

_FAULTS: dict[type[Exception], str] = {
    refused.InvalidSignatureError: "The signature of the token is not valid.",
    refused.InvalidAudienceError: "The token is for another server: its aud does not fit.",
    refused.InvalidIssuerError: "The token is from another issuer: its iss does not fit.",
    refused.ImmatureSignatureError: "The token is not valid yet: its nbf or iat is in the future.",
    refused.InvalidAlgorithmError: "The signature algorithm of the token is not accepted.",
}

_OF_ID_TOKENS = ("exp", "iat", "aud", "sub", "iss", "nonce")

Found = TypeVar("Found")

log = logging.getLogger("server")


class UnknownKey(Exception):
    """No known key has the name and the algorithm of the token."""


class _Header(msgspec.Struct):
    """The header of a token. It chooses the key, and is not trusted: PyJWT reads it again, and checks it."""

    alg: Any = None
    kid: Any = None
    typ: Any = None
    crit: Any = msgspec.UNSET


def _header(token: str) -> _Header:
    """Return the header of a token. PyJWT's function for it reads the whole token, half of the time of a verification.
    Raises InvalidToken."""
    try:
        return msgspec.json.decode(urlsafe_b64decode(token.partition(".")[0] + "=="), type=_Header)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise InvalidToken(MALFORMED) from None


def accepted_algorithms(settings: Settings) -> tuple[str, ...]:
    """Return the signature algorithms to accept."""
    if settings.auth_algorithms is not None:
        return tuple(settings.auth_algorithms.split(","))
    return tuple(SECRET_BYTES) if settings.auth_secret_file is not None else PUBLIC_BY_DEFAULT


class JwtVerifier:
    """Verifies tokens as the settings say."""

    def __init__(self, settings: Settings) -> None:
        self._issuer = settings.auth_issuer
        self._audience = settings.auth_audience
        self._leeway_seconds = settings.auth_leeway_seconds
        self._reader = ClaimsReader.of(settings)
        self._algorithms = accepted_algorithms(settings)
        self._allows_bound = settings.auth_allow_bound_tokens

    def verify(self, token: str, keys: Keys) -> Verified:
        """Return the principal of a token. Raises InvalidToken, ExpiredToken, UnknownKey."""
        required = ("exp", "aud", "sub", "iss") if self._issuer else ("exp", "aud", "sub")
        return self._checked(token, lambda: self._verified(self._decode(token, keys, self._audience, required)))

    def verify_id_token(self, token: str, keys: Keys, client_id: str) -> dict[str, Any]:
        """Return the claims of an ID token (OpenID Connect Core 1.0, 3.1.3.7). Raises InvalidToken, ExpiredToken,
        UnknownKey."""
        return self._checked(token, lambda: self._decode(token, keys, client_id, _OF_ID_TOKENS))

    def _checked(self, token: str, verify: Callable[[], Found]) -> Found:
        """Return what this function finds. Every other error becomes an InvalidToken."""
        if "=" in token:
            # PyJWT accepts padding, which RFC 7515, 2 excludes: a token would have several spellings.
            raise InvalidToken(MALFORMED)
        try:
            return verify()
        except (InvalidToken, UnknownKey):
            raise
        except refused.PyJWTError as error:
            raise _refusal(error) from None
        except Exception as error:
            # PyJWT should raise nothing else. Whatever it is, a token must not become a fault of the server.
            log.warning("a token was refused because of an unexpected %s", type(error).__name__)
            raise InvalidToken(MALFORMED) from None

    def _candidates(self, header: _Header, keys: Keys) -> list[VerificationKey]:
        """Return the keys that may have signed a token. Raises InvalidToken, UnknownKey."""
        algorithm, kind = header.alg, header.typ
        if algorithm not in self._algorithms:
            raise InvalidToken(_FAULTS[refused.InvalidAlgorithmError])
        if kind is not None and (not isinstance(kind, str) or kind.lower() not in TYPES):
            raise InvalidToken("The token is not an access token: its typ does not fit.")
        if header.crit is not msgspec.UNSET:
            raise InvalidToken("The token has a crit header, and this server supports no extension.")
        if header.kid is not None and not isinstance(header.kid, str):
            raise InvalidToken(MALFORMED)
        candidates = keys.candidates(header.kid, algorithm)
        if not candidates:
            raise UnknownKey
        return candidates[:MAX_TRIED]

    def _decode(self, token: str, keys: Keys, audience: str | None, required: Sequence[str]) -> dict[str, Any]:
        """Return the claims. Raises PyJWTError, InvalidToken, UnknownKey."""
        *others, last = self._candidates(_header(token), keys)
        decode = partial(
            jwt.decode,
            token,
            audience=audience,
            issuer=self._issuer,
            leeway=self._leeway_seconds,
            options={"require": list(required)},
        )
        for key in others:
            with suppress(refused.InvalidSignatureError):
                return decode(key.value, algorithms=list(key.algorithms))
        return decode(last.value, algorithms=list(last.algorithms))

    def _verified(self, decoded: dict[str, Any]) -> Verified:
        # Python's reader accepts NaN and halves of surrogates, which neither JSON nor PostgreSQL has.
        claims: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(decoded))
        expiry = claims["exp"]
        if not isinstance(expiry, int | float) or isinstance(expiry, bool) or expiry > MAX_EXPIRY:
            raise InvalidToken("The exp of the token is not a number of seconds.")
        check_kind(claims)
        if not self._allows_bound:
            check_unbound(claims)
        issuer = claims.get("iss", "")
        return self._reader.verified(claims, str(issuer), expiry + self._leeway_seconds)


def _refusal(error: jwt.PyJWTError) -> InvalidToken:
    if isinstance(error, refused.ExpiredSignatureError):
        return ExpiredToken("The token has expired.")
    if isinstance(error, refused.MissingRequiredClaimError):
        return InvalidToken(f"The token has no {error.claim}.")
    return InvalidToken(next((text for kind, text in _FAULTS.items() if isinstance(error, kind)), MALFORMED))
