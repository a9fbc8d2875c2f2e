"""Decides with which role of PostgreSQL the statements of a request run (`row_security`), and with which claims.

Its names are those of PostgREST and Supabase, whose policies read `request.jwt.claims`. It must not know: connections,
tokens.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

import msgspec
from asyncpg.exceptions import DataError

from querybuild.errors import ApiError, Forbidden, Unauthenticated, not_allowed, raise_as
from querybuild.principal import Principal, claim_of
from server.errors import ImpossibleValue, MissingPrivilege, NotWritten
from server.settings import Settings

log = logging.getLogger("server")

P = ParamSpec("P")
Result = TypeVar("Result")

SET_ROLE = "SELECT pg_catalog.set_config('role',$1,true),pg_catalog.set_config('request.jwt.claims',$2,true)"
"""Like SET LOCAL ROLE, until the end of the transaction."""

NO_ROLE = "none"
"""With SET_ROLE: the role of the session."""

ROLE_CLAIM, SUBJECT_CLAIM = "role", "sub"
_REFUSED = "The database does not allow this."
_UNFIT = "The policies of the database cannot be applied to these credentials."


class RequestRole(msgspec.Struct, frozen=True):
    """With what the statements of a request run. name: a role of PostgreSQL. claims: a JSON object as text. principal:
    who has the role."""

    name: str
    claims: str
    principal: Principal


def translate_refusals(
    role: RequestRole | None, work: Callable[P, Awaitable[Result]]
) -> Callable[P, Awaitable[Result]]:
    """Return work of a request that raises what PostgreSQL refuses to its role as the answer. Without `row_security`
    there is no role, and this is the work itself."""
    if role is None:
        return work

    async def translated(*arguments: P.args, **options: P.kwargs) -> Result:
        try:
            return await work(*arguments, **options)
        except (MissingPrivilege, NotWritten, DataError) as error:
            raise_as(_role_answer(error, role), error)
        except ImpossibleValue as error:
            if not isinstance(error.__cause__, DataError):
                raise
            # The condition of a policy is computed for each row, too.
            raise_as(_role_answer(error.__cause__, role), error)

    return translated


def _role_answer(error: MissingPrivilege | NotWritten | DataError, role: RequestRole) -> ApiError:
    """Return the answer to what PostgreSQL has refused to a role. If a policy keeps a row that may be read from an
    UPDATE or a DELETE, PostgreSQL writes nothing, as if a trigger had cancelled it. A DataError that is not about a
    value of the request is about the claims: a policy cannot convert one of them, such as a `sub` that is no UUID."""
    if isinstance(error, DataError):
        # Without its text, which has the value of a claim.
        log.error("PostgreSQL cannot apply its policies to a request: %s %s", error.sqlstate, type(error).__name__)
        return not_allowed(role.principal, _UNFIT)
    said = error.said if isinstance(error, MissingPrivilege) else ""
    return not_allowed(role.principal, said or _REFUSED, pointer=error.pointer)


def roles_of(settings: Settings) -> tuple[str, ...]:
    """Return all roles that requests may have. None without `row_security`."""
    if not settings.has_row_security:
        return ()
    names = [*(settings.auth_roles_allowed or "").split(","), settings.auth_anonymous_role or ""]
    return tuple(dict.fromkeys(name for name in names if name))


class Roles:
    """The roles of principals, by the settings."""

    def __init__(self, settings: Settings) -> None:
        self._claim = settings.auth_role_claim
        self._anonymous = settings.auth_anonymous_role
        self._allowed = frozenset(roles_of(settings))

    def of(self, principal: Principal) -> RequestRole:
        """Return the role of a principal. Raises Unauthenticated if there is none for requests without credentials,
        and Forbidden if there is none for this principal."""
        named = None if principal.is_anonymous else claim_of(principal.claims, self._claim)
        if named is None:
            name = self._anonymous
        else:
            name = named if isinstance(named, str) and named in self._allowed else None
        if name is not None:
            return RequestRole(name, _claims_text(principal, name), principal)
        if principal.is_anonymous:
            raise Unauthenticated("Nothing is allowed here without credentials. Send credentials.")
        if named is None:
            raise Forbidden("The credentials have no role, and there is none for credentials without one.")
        raise Forbidden("The role of the credentials is not allowed here.")


def _claims_text(principal: Principal, role: str) -> str:
    """Return the claims with the role, as PostgREST adds it, and with the subject, which a principal of the user's own
    authentication may have without a claim."""
    claims = dict(principal.claims)
    if principal.subject:
        claims.setdefault(SUBJECT_CLAIM, principal.subject)
    claims[ROLE_CLAIM] = role
    return msgspec.json.encode(claims).decode()
