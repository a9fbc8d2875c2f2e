"""Tokens for development: the server accepts them, and `waterspout token` refuses what it cannot sign."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import jwt
import msgspec
import pytest

from querybuild.principal import Principal
from server.authentication.development import NewToken, sign_token
from server.authentication.files import read_files
from server.authentication.tokens import Tokens
from server.errors import ExpiredToken, InvalidToken
from server.settings import Settings, SettingsError, StartError
from server.tools import commands

SECRET = b"x" * 32
ISSUER = "https://login.example.org/"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    path = tmp_path / "secret"
    path.write_bytes(SECRET + b"\n")
    return Settings(auth_secret_file=path, auth_audience="api", auth_issuer=ISSUER)


def accepted(token: str, settings: Settings) -> Principal:
    found = Tokens(settings, read_files(settings)).principal_of(token)
    assert isinstance(found, Principal)
    return found


@pytest.mark.parametrize("roles_claim", ["roles", "realm_access.roles", "https://example.org/roles"])
@pytest.mark.parametrize("issuer", [ISSUER, None])
def test_the_server_accepts_a_token(settings: Settings, roles_claim: str, issuer: str | None) -> None:
    settings = msgspec.structs.replace(settings, auth_roles_claim=roles_claim, auth_issuer=issuer)
    new = NewToken("ann", ("editor", "author"), ("read", "write"), {"tenant": {"id": 7}}, 60)
    token = sign_token(new, settings)
    found = accepted(token, settings)
    assert (found.subject, found.issuer) == ("ann", issuer or "")
    assert (found.roles, found.scopes) == ({"editor", "author"}, {"read", "write"})
    assert found.claims["tenant"] == {"id": 7}
    assert jwt.get_unverified_header(token)["alg"] == "HS256"
    assert abs(found.claims["exp"] - time.time() - 60) < 5


def test_a_token_without_roles_and_scopes(settings: Settings) -> None:
    found = accepted(sign_token(NewToken("ann"), settings), settings)
    assert (found.roles, found.scopes, sorted(found.claims)) == (set(), set(), ["aud", "exp", "iat", "iss", "sub"])


@pytest.mark.parametrize(
    ("claims", "error"), [({"exp": 1}, ExpiredToken), ({"aud": "other"}, InvalidToken), ({"iss": "x"}, InvalidToken)]
)
def test_claims_override_those_of_the_settings(settings: Settings, claims: Any, error: type[Exception]) -> None:
    """So that refusals can be tried out, too."""
    token = sign_token(NewToken("ann", claims=claims), settings)
    with pytest.raises(error):
        accepted(token, settings)


def test_the_algorithm_is_one_that_the_settings_accept(settings: Settings, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"y" * 64)
    settings = msgspec.structs.replace(settings, auth_algorithms="HS512")
    assert jwt.get_unverified_header(sign_token(NewToken("ann"), settings, other))["alg"] == "HS512"
    with pytest.raises(StartError, match="it has 32 bytes, and at least 64 are needed"):
        sign_token(NewToken("ann"), settings)
    with pytest.raises(StartError, match="accepts no tokens that are signed with a secret"):
        sign_token(NewToken("ann"), msgspec.structs.replace(settings, auth_algorithms="RS256"))


PARAMETERS: dict[str, Any] = {"subject": "ann", "role": (), "scope": (), "secret_file": None, "expires_in": 60}


def test_the_command_prints_the_token_alone(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    commands.token(settings, development=True, claim=('a="b=c"', "n=1"), **PARAMETERS)
    out, err = capsys.readouterr()
    assert (out.count("\n"), err) == (1, "")
    found = accepted(out.strip(), settings)
    assert (found.claims["a"], found.claims["n"]) == ("b=c", 1)


@pytest.mark.parametrize(
    ("changed", "parameters", "told"),
    [
        ({}, {"development": False}, "add --development"),
        ({}, {"subject": None}, "add --subject"),
        ({"auth_secret_file": None}, {}, "there is no secret"),
        ({"auth_audience": None}, {}, "set auth_audience"),
        ({}, {"secret_file": "/nothing"}, "/nothing can't be read"),
        ({}, {"claim": ("tenant=acme",)}, "--claim 'tenant=acme': expected a name and JSON"),
        ({}, {"claim": ("tenant",)}, "--claim 'tenant': expected a name and JSON"),
        ({}, {"claim": ("=1",)}, "--claim '=1': expected a name and JSON"),
    ],
)
def test_what_the_command_refuses(
    settings: Settings, capsys: pytest.CaptureFixture[str], changed: Any, parameters: Any, told: str
) -> None:
    given = {"development": True, "claim": (), **PARAMETERS, **parameters}
    with pytest.raises(StartError) as raised:
        commands.token(msgspec.structs.replace(settings, **changed), **given)
    assert told in str(raised.value)
    assert "\n" not in str(raised.value)
    assert capsys.readouterr().out == ""


def test_all_that_a_token_lacks_is_reported_at_once() -> None:
    with pytest.raises(SettingsError) as raised:
        commands.token(Settings(), development=False, claim=(), **PARAMETERS | {"subject": None})
    begins = ("add --development", "add --subject", "there is no secret", "set auth_audience")
    assert len(raised.value.faults) == 4
    assert all(fault.startswith(begin) for fault, begin in zip(raised.value.faults, begins, strict=True))
