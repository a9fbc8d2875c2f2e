"""Bearer tokens: who sends a request, and the answers to tokens that are not accepted."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from server.resources import built_in
from tests.http.conftest import Answer, Api, Start
from tests.issuer import AUDIENCE, Issuer, claims, signed, write_key_set
from waterspout import ANYONE, Allow, Catalog, CustomHandler, Principal

SECRET = b"a secret of at least sixty-four bytes, as HS512 needs, which nobody knows"


class Who(CustomHandler):
    """Answers with the principal of the request."""

    def get(self) -> None:
        assert self.context.principal is self.principal
        self.write(json.dumps(shown(self.principal)))

    def post(self) -> None:
        self.get()


def shown(principal: Principal) -> dict[str, Any]:
    return {
        "subject": principal.subject,
        "issuer": principal.issuer,
        "roles": sorted(principal.roles),
        "scopes": sorted(principal.scopes),
        "is_anonymous": principal.is_anonymous,
    }


NOBODY = {"subject": "", "issuer": "", "roles": [], "scopes": [], "is_anonymous": True}
ROUTES = [("/who", Who)]


def open_catalog() -> Catalog:
    """Return the built-in resources, open for everybody."""
    from msgspec.structs import replace

    return Catalog([replace(one, access=(Allow(ANYONE, "all"),)) for one in built_in()])


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_bytes(SECRET + b"\n")
    return path


async def with_secret(start: Start, url: str, path: Path, **settings: Any) -> Api:
    return await start(url, open_catalog(), ROUTES, auth_secret_file=path, auth_audience=AUDIENCE, **settings)


async def who(api: Api, token: str | None = None, **headers: str) -> Answer:
    given = {} if token is None else {"Authorization": f"Bearer {token}"}
    return await api.request("GET", "/who", headers=given | headers)


async def test_a_token_names_the_principal(start: Start, database_url: str, secret_file: Path) -> None:
    api = await with_secret(start, database_url, secret_file, auth_roles_claim="realm_access.roles")
    token = signed(
        claims(iss="https://id.example.org", realm_access={"roles": ["editor", 7, ["admin"]]}, scope="read write"),
        SECRET,
        "HS256",
    )
    for _ in range(2):
        answer = await who(api, token)
        assert answer.document == {
            "subject": "ann",
            "issuer": "https://id.example.org",
            "roles": ["editor"],
            "scopes": ["read", "write"],
            "is_anonymous": False,
        }
        assert answer.headers["Cache-Control"] == "private"
        assert answer.headers["Vary"] == "Accept, Authorization"


async def test_without_a_token_a_request_is_anonymous(start: Start, database_url: str, secret_file: Path) -> None:
    api = await with_secret(start, database_url, secret_file)
    answer = await who(api)
    assert (answer.status, answer.document) == (200, NOBODY)
    assert "Cache-Control" not in answer.headers
    assert answer.headers["Vary"] == "Accept, Authorization"


async def test_keys_come_from_a_file(start: Start, database_url: str, issuer: Issuer, tmp_path: Path) -> None:
    path = write_key_set(tmp_path, issuer)
    api = await start(database_url, open_catalog(), ROUTES, auth_jwks=str(path), auth_audience=AUDIENCE)
    assert (await who(api, issuer.token(iss="me"))).document["issuer"] == "me"
    answer = await who(api, signed(claims(), SECRET, "HS256"))
    assert (answer.status, answer.errors[0]["code"]) == (401, "invalid_token")


@pytest.mark.parametrize(
    ("changed", "code", "detail"),
    [
        ({"exp": 1000}, "expired_token", "The token has expired."),
        ({"exp": None}, "invalid_token", "The token has no exp."),
        ({"aud": "other"}, "invalid_token", "The token is for another server: its aud does not fit."),
        ({"aud": None}, "invalid_token", "The token has no aud."),
        ({"sub": None}, "invalid_token", "The token has no sub."),
        ({"sub": ""}, "invalid_token", "The token has no sub, or not a text."),
        ({"nbf": 9_999_999_999}, "invalid_token", "The token is not valid yet: its nbf or iat is in the future."),
    ],
)
async def test_a_token_that_is_not_accepted(
    start: Start, database_url: str, secret_file: Path, changed: dict[str, Any], code: str, detail: str
) -> None:
    api = await with_secret(start, database_url, secret_file)
    answer = await who(api, signed(claims(**changed), SECRET, "HS256"))
    title = {"expired_token": "Expired Token", "invalid_token": "Invalid Token"}[code]
    source = {"header": "Authorization"}
    assert (answer.status, answer.errors) == (
        401,
        [{"status": "401", "code": code, "title": title, "detail": detail, "source": source}],
    )
    assert answer.headers["WWW-Authenticate"] == f'Bearer error="invalid_token", error_description="{detail}"'
    assert answer.headers["Cache-Control"] == "no-store"


async def test_two_authorization_headers_are_a_400(start: Start, database_url: str, secret_file: Path) -> None:
    api = await with_secret(start, database_url, secret_file)
    answer = await raw(api, "Authorization: Bearer a\r\nAuthorization: Bearer a\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"at most one header Authorization" in answer


async def raw(api: Api, head: str, path: str = "/who") -> bytes:
    import asyncio

    reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{head}\r\n".encode("latin-1"))
    answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.parametrize(
    "value", ["Basic YTpi", "Token abc", "Bearer", "Bearer ", "Bearer a b", "bearer \xe9", "", "Digest"]
)
async def test_other_credentials_are_a_401(start: Start, database_url: str, secret_file: Path, value: str) -> None:
    api = await with_secret(start, database_url, secret_file)
    answer = await raw(api, f"Authorization: {value}\r\n")
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert b"\r\nwww-authenticate: bearer" in answer.lower()


async def test_without_authentication_a_token_is_ignored_with_one_warning(
    start: Start, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    api = await start(database_url, built_in(), ROUTES)
    with caplog.at_level(logging.WARNING, "server"):
        for _ in range(3):
            answer = await who(api, "secret-token-text")
            assert (answer.status, answer.document) == (200, NOBODY)
            assert answer.headers["Vary"] == "Accept"
    (line,) = [record.getMessage() for record in caplog.records]
    assert "header Authorization, which is ignored" in line
    assert "secret-token-text" not in caplog.text
