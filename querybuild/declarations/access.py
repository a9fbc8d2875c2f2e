"""Declares who may do what with a resource: rules, for whom they are, and values that come from the principal.

`Allow` is a rule of a resource. `read_by` and `write_by` of a field take the same audiences. It must not know: tokens,
statements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from querybuild.principal import Principal

Action = Literal["read", "create", "update", "delete"]
ACTIONS: tuple[Action, ...] = ("read", "create", "update", "delete")
ALL = "all"
"""Stands for every action in a rule."""


class Anyone(msgspec.Struct, frozen=True):
    """Every principal, with and without credentials."""

    def has(self, principal: Principal) -> bool:
        """Return True."""
        return True

    def __str__(self) -> str:
        return "anyone"


class SignedIn(msgspec.Struct, frozen=True):
    """Every principal with credentials, except those whose issuer does not know them."""

    def has(self, principal: Principal) -> bool:
        """Return whether the principal is signed in."""
        return principal.is_signed_in

    def __str__(self) -> str:
        return "signed in"


class Role(msgspec.Struct, frozen=True):
    """Every principal with this role. Roles are compared character by character."""

    name: str

    def has(self, principal: Principal) -> bool:
        """Return whether the principal has the role."""
        return self.name in principal.roles

    def __str__(self) -> str:
        return f"role {self.name}"


class Scope(msgspec.Struct, frozen=True):
    """Every principal with this scope."""

    name: str

    def has(self, principal: Principal) -> bool:
        """Return whether the principal has the scope."""
        return self.name in principal.scopes

    def __str__(self) -> str:
        return f"scope {self.name}"


Declared = Anyone | SignedIn | Role | Scope
Audience = Declared | Callable[[Principal], bool]
"""For whom a rule is. A function gets the principal, and only depends on it."""

ANYONE = Anyone()
SIGNED_IN = SignedIn()


def has_principal(audience: Audience, principal: Principal) -> bool:
    """Return whether the audience has the principal. Raises any exception of a function, with a note that names it, and
    TypeError if the function returns no bool: both are faults of custom code, and nothing is allowed then."""
    if isinstance(audience, Declared):
        return audience.has(principal)
    try:
        allowed = audience(principal)
    except Exception as error:
        error.add_note(f"raised by the {audience_name(audience)} of a rule")
        raise
    if allowed is not True and allowed is not False:
        raise TypeError(f"the {audience_name(audience)} must return True or False, not {type(allowed).__name__}")
    return allowed


def audience_name(audience: Audience) -> str:
    """Return the name of an audience, for messages."""
    if isinstance(audience, Declared):
        return str(audience)
    return f"function {getattr(audience, '__name__', type(audience).__name__)}"


def audiences_of(declared: Audience | tuple[Audience, ...]) -> tuple[Audience, ...]:
    """Return the audiences of `read_by` or `write_by`."""
    return tuple(declared) if isinstance(declared, tuple | list) else (declared,)


class Claim(msgspec.Struct, frozen=True):
    """The value of a claim of the principal, such as `Claim("realm_access.department")`. path: the names that lead to
    it, separated by dots."""

    path: str


class Subject(msgspec.Struct, frozen=True):
    """The subject of the principal."""

    def __repr__(self) -> str:
        return "SUBJECT"


class Now(msgspec.Struct, frozen=True):
    """The time of the request."""

    def __repr__(self) -> str:
        return "NOW"


SUBJECT = Subject()
NOW = Now()
PrincipalValue = Claim | Subject | Now
"""Stands for a JSON value in the filter of a rule. Each request has its own value."""

RuleFilter = Mapping[str, Any] | list[Any] | tuple[Any, ...]
"""A filter as in `filter=`, as Python data. A `PrincipalValue` may stand for each value."""


class Allow:
    """A rule of a resource: it allows actions. Rules add up.

    to: for whom the rule is.
    actions: read, create, update, delete, or all.
    rows: a filter. The rule is for rows that meet it. None for all rows.
    check: a filter that a row must meet after it is written (default: `rows`).
    assign: attributes and to-one relationships that a create sets, with their values.

    >>> own = Allow(SIGNED_IN, "read", "update", rows={"name": "owner.id", "op": "eq", "val": SUBJECT})
    >>> own.allows("delete")
    False
    """

    def __init__(
        self,
        to: Audience,
        *actions: str,
        rows: RuleFilter | None = None,
        check: RuleFilter | None = None,
        assign: Mapping[str, Any] | None = None,
    ) -> None:
        self.to = to
        self.actions = actions
        self.rows = rows
        self.check = check
        self.assign = assign or {}

    def allows(self, action: Action) -> bool:
        """Return whether the rule is for this action."""
        return ALL in self.actions or action in self.actions
