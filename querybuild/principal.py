"""Defines the principal: who sends a request.

It must not know: HTTP, tokens, declarations.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec


class Principal(msgspec.Struct, frozen=True, kw_only=True, eq=False, weakref=True):
    """Who sends a request.

    subject: a stable name, unique for the issuer. Empty for who sends no credentials.
    issuer: who vouches for the subject, such as the `iss` of a token.
    roles, scopes: as texts.
    claims: the JSON object of the token.
    is_signed_in: whether the rules for SIGNED_IN are for the principal. An issuer may give tokens to people that it
        does not know.
    """

    subject: str = ""
    issuer: str = ""
    roles: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()
    claims: Mapping[str, Any] = MappingProxyType({})
    is_signed_in: bool = True

    @property
    def is_anonymous(self) -> bool:
        """Whether the request has no credentials."""
        return self is ANONYMOUS


ANONYMOUS = Principal(is_signed_in=False)
"""The principal of a request without credentials. There is only this one."""


def claim_of(claims: Mapping[str, Any], path: str) -> Any:
    """Return the claim at a path of names, separated by dots, or None. Names may contain dots themselves: the longest
    name comes first.

    >>> claim_of({"realm_access": {"roles": ["editor"]}}, "realm_access.roles")
    ['editor']
    """
    if path in claims:
        return claims[path]
    end = path.rfind(".")
    while end > 0:
        inner = claims.get(path[:end])
        if isinstance(inner, Mapping) and (claim := claim_of(inner, path[end + 1 :])) is not None:
            return claim
        end = path.rfind(".", 0, end)
    return None
