"""Roles of principals."""

from __future__ import annotations

import json
from typing import Any

import pytest

from querybuild.errors import Forbidden, Unauthenticated
from querybuild.principal import ANONYMOUS, Principal
from server.postgres.row_security.roles import Roles, roles_of
from server.settings import Settings, SettingsError
from server.settings.loading import load

ON: dict[str, Any] = {"row_security": "postgresql", "auth_roles_allowed": "authenticated,editor"}
WITH_ANON = ON | {"auth_anonymous_role": "anon"}


def role(settings: dict[str, Any], **claims: Any) -> tuple[str, dict[str, Any]]:
    """Return the role and the claims of a principal with these claims."""
    found = Roles(Settings(**settings)).of(Principal(subject=claims.get("sub", "ann"), claims=claims))
    return found.name, json.loads(found.claims)


def test_the_role_of_a_claim() -> None:
    assert role(WITH_ANON, sub="ann", role="editor", more=[1]) == (
        "editor",
        {"sub": "ann", "role": "editor", "more": [1]},
    )
    assert role(WITH_ANON, sub="ann", role="anon") == ("anon", {"sub": "ann", "role": "anon"})


def test_the_role_without_a_claim_is_that_of_the_anonymous() -> None:
    """As in PostgREST. The claims of the token are there nevertheless."""
    assert role(WITH_ANON, sub="ann", more=1) == ("anon", {"sub": "ann", "more": 1, "role": "anon"})
    assert role(WITH_ANON, sub="ann", role=None) == ("anon", {"sub": "ann", "role": "anon"})


def test_the_claims_of_the_anonymous() -> None:
    found = Roles(Settings(**WITH_ANON)).of(ANONYMOUS)
    assert (found.name, json.loads(found.claims)) == ("anon", {"role": "anon"})


def test_the_subject_of_own_authentication_is_a_claim() -> None:
    assert role(WITH_ANON, role="editor") == ("editor", {"sub": "ann", "role": "editor"})


@pytest.mark.parametrize(
    "name",
    [
        "postgres",
        "authenticator",
        "none",
        "",
        "Editor",
        "editor ",
        "editor,authenticated",
        'editor"',
        ["editor"],
        1,
        True,
        {},
    ],
)
def test_any_other_role_is_forbidden(name: Any) -> None:
    for settings in (ON, WITH_ANON):
        with pytest.raises(Forbidden, match="role of the credentials is not allowed"):
            role(settings, role=name)


def test_without_a_role_for_the_anonymous() -> None:
    with pytest.raises(Unauthenticated):
        Roles(Settings(**ON)).of(ANONYMOUS)
    with pytest.raises(Forbidden, match="have no role"):
        role(ON)
    with pytest.raises(Forbidden):
        role(ON, role="anon")
    assert role(ON, role="editor")[0] == "editor"


def test_a_claim_inside_of_others() -> None:
    settings = WITH_ANON | {"auth_role_claim": "https://example.org/app.role"}
    assert role(settings, **{"https://example.org/app": {"role": "editor"}})[0] == "editor"
    assert role(settings, **{"https://example.org/app.role": "editor"})[0] == "editor"
    assert role(settings, role="editor")[0] == "anon"


def test_all_roles() -> None:
    assert roles_of(Settings(**WITH_ANON)) == ("authenticated", "editor", "anon")
    assert roles_of(Settings(auth_anonymous_role="anon", row_security="postgresql")) == ("anon",)
    assert roles_of(Settings(auth_anonymous_role="anon")) == ()


@pytest.mark.parametrize(
    ("flags", "fault"),
    [
        ({}, "row_security needs auth_roles_allowed, auth_anonymous_role or both"),
        ({"auth_roles_allowed": "editor,none"}, "--auth-roles-allowed: expected the name of a role"),
        ({"auth_roles_allowed": "editor,,"}, "--auth-roles-allowed: expected the name of a role"),
        ({"auth_anonymous_role": "x" * 64}, "--auth-anonymous-role: expected the name of a role"),
    ],
)
def test_settings_that_are_wrong(flags: dict[str, str], fault: str) -> None:
    with pytest.raises(SettingsError, match=fault):
        load({"row_security": "postgresql", **flags}, {})
