"""Makes principals of the claims of a token, which has been verified.

It must not know: signatures, HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from querybuild.principal import Principal, claim_of
from server.errors import InvalidToken
from server.settings import Settings

Claims = Mapping[str, Any]

_OTHER_KINDS = frozenset({"id", "refresh", "offline", "logout"})
"""What Keycloak (`typ`) and Cognito (`token_use`) call tokens that are no access tokens, in small letters."""


class Verified(msgspec.Struct, frozen=True):
    """The principal of a token. expires_at: until when it holds, in seconds of Unix time."""

    principal: Principal
    expires_at: float


class ClaimsReader(msgspec.Struct, frozen=True):
    """Reads claims as the settings say. roles: the claim with the roles. anonymous: the claim that is true for somebody
    who has not signed in."""

    roles: str
    anonymous: str | None

    @classmethod
    def of(cls, settings: Settings) -> ClaimsReader:
        """Return the reader for the settings."""
        return cls(settings.auth_roles_claim, settings.auth_anonymous_claim)

    def verified(self, claims: Claims, issuer: str, expires_at: float) -> Verified:
        """Return the principal of these claims. issuer: who vouches for them. Raises InvalidToken."""
        subject = claims.get("sub")
        if not isinstance(subject, str) or not subject:
            raise InvalidToken("The token has no sub, or not a text.")
        if "\0" in subject:
            raise InvalidToken("The sub of the token has the character U+0000, which PostgreSQL cannot store.")
        principal = Principal(
            subject=subject,
            issuer=issuer,
            roles=texts_of(claim_of(claims, self.roles)),
            scopes=texts_of(claims.get("scope"), is_spaced=True) | texts_of(claims.get("scp"), is_spaced=True),
            claims=claims,
            is_signed_in=self.anonymous is None or claim_of(claims, self.anonymous) in (None, False),
        )
        return Verified(principal, expires_at)


def check_kind(claims: Claims) -> None:
    """Refuse an ID token, and other tokens that are no access tokens, if they show it. Raises InvalidToken."""
    kinds = {str(claims.get(name, "")).lower() for name in ("typ", "token_use")}
    if kinds & _OTHER_KINDS or "at_hash" in claims or "c_hash" in claims:
        raise InvalidToken("The token is not an access token.")


def check_unbound(claims: Claims) -> None:
    """Refuse a token that is bound to a key (RFC 7800). The sender has to prove to have the key, by the
    certificate of the connection (RFC 8705) or the header DPoP (RFC 9449). The server checks no such proof, so it would
    accept a stolen token as well. Raises InvalidToken."""
    if claims.get("cnf") is not None:
        raise InvalidToken("The token is bound to a key (cnf), and this server cannot check who has the key.")


def texts_of(value: Any, *, is_spaced: bool = False) -> frozenset[str]:
    """Return the texts of a claim, which is a list or one text. Members that are no texts are ignored. is_spaced:
    whether one text has several, with spaces between."""
    if isinstance(value, str):
        return frozenset(value.split()) if is_spaced else frozenset({value} - {""})
    return frozenset([item for item in value if isinstance(item, str)]) if isinstance(value, list) else frozenset()
