"""Reads the bearer token of a request (RFC 6750, 2.1), and makes the challenge of an answer without one.

It must not know: what is in a token.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from querybuild.errors import ApiError, Unauthenticated
from server.errors import InvalidToken

MAX_TOKEN_BYTES = 16_384
"""The longest token. Most have less than 2 KB. The time to check the letters of one is below 1 ms."""

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_UNSHOWN = re.compile(r"[^ !#-\[\]-~]")


def bearer_token(values: Sequence[str]) -> str | None:
    """Return the token, or None for another scheme. values: those of the header Authorization. Raises ApiError
    for two headers."""
    if len(values) != 1:
        raise ApiError("A request has at most one header Authorization.", header="Authorization")
    scheme, _, token = values[0].partition(" ")
    return token.strip(" ") if scheme.lower() == "bearer" else None


def check_token(token: str) -> None:
    """Check the length and the letters of a token. Raises InvalidToken."""
    if len(token) > MAX_TOKEN_BYTES:
        raise InvalidToken(f"A token has at most {MAX_TOKEN_BYTES} bytes.")
    if _TOKEN.fullmatch(token) is None:
        raise InvalidToken("The header Authorization has no token after Bearer, or one with other characters.")


def other_scheme() -> Unauthenticated:
    """Return the error for credentials of another scheme."""
    return Unauthenticated("This server takes Bearer tokens in the header Authorization.", header="Authorization")


def challenge(error: BaseException, metadata_url: str | None) -> str:
    """Return the header WWW-Authenticate (RFC 6750, 3; RFC 9728, 5.1). error: what the answer is about.

    >>> challenge(InvalidToken("The token has no exp."), None)
    'Bearer error="invalid_token", error_description="The token has no exp."'
    """
    parameters = {}
    if isinstance(error, InvalidToken):
        parameters = {"error": "invalid_token", "error_description": _UNSHOWN.sub(" ", error.detail)}
    if metadata_url is not None:
        parameters["resource_metadata"] = metadata_url
    return " ".join(["Bearer", ", ".join(f'{name}="{text}"' for name, text in parameters.items())]).rstrip()
