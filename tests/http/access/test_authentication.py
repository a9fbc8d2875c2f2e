"""Bearer tokens: who sends a request, and the answers to tokens that are not accepted."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest
from msgspec.structs import replace
from tornado.ioloop import IOLoop

from server.resources import built_in
from tests.http.conftest import Answer, Api, Start
from tests.http.custom import hooked
from tests.issuer import (
    AUDIENCE,
    CLIENT,
    CLIENT_SECRET,
    DISCOVERY,
    INTROSPECTION,
    Issuer,
    claims,
    signed,
    write_key_set,
)
from tests.waiting import until
from waterspout import (
    ANYONE,
    Allow,
    Catalog,
    Change,
    CustomHandler,
    Hooks,
    Principal,
    Unauthenticated,
    Writing,
)

SECRET = b"a secret of at least sixty-four bytes, as HS512 needs, which nobody knows"


class Who(CustomHandler):
    """Answers with the principal of the request."""

    def get(self) -> None:
        assert self.context.principal is self.principal
        self.send(json.dumps(shown(self.principal)))

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
    return Catalog([replace(one, access=(Allow(ANYONE, "all"),)) for one in built_in()])


@pytest.fixture
def issuer(io_loop: IOLoop) -> Iterator[Issuer]:
    """Yield an issuer that is not started."""
    issuer = Issuer()
    yield issuer
    io_loop.run_sync(issuer.stop)


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
    metadata = f"http://127.0.0.1:{api.port}/.well-known/oauth-protected-resource"
    described = f'error="invalid_token", error_description="{detail}", resource_metadata="{metadata}"'
    assert answer.headers["WWW-Authenticate"] == f"Bearer {described}"
    assert answer.headers["Cache-Control"] == "no-store"


async def test_two_authorization_headers_are_a_400(start: Start, database_url: str, secret_file: Path) -> None:
    api = await with_secret(start, database_url, secret_file)
    answer = await raw(api, "Authorization: Bearer a\r\nAuthorization: Bearer a\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"at most one header Authorization" in answer


async def raw(api: Api, head: str, path: str = "/who") -> bytes:
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


# the description of the server (RFC 9728)


@pytest.mark.parametrize(
    ("public_url", "path"),
    [("https://api.example.org", ""), ("https://example.org/shop/api", "/shop/api")],
)
async def test_the_server_describes_itself(
    start: Start, database_url: str, secret_file: Path, public_url: str, path: str
) -> None:
    issuer = "https://id.example.org"
    api = await with_secret(start, database_url, secret_file, public_url=public_url, auth_issuer=issuer)
    place = f"/.well-known/oauth-protected-resource{path}"
    answer = await api.get(place)
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
    assert answer.document == {
        "resource": public_url,
        "bearer_methods_supported": ["header"],
        "authorization_servers": [issuer],
    }
    refused = await who(api, "nonsense")
    assert refused.headers["WWW-Authenticate"].endswith(
        f', resource_metadata="https://{public_url.split("/")[2]}{place}"'
    )
    for wrong in ("nonsense", issuer):
        assert (await api.request("GET", place, headers={"Authorization": f"Bearer {wrong}"})).status == 200
    assert (await api.post(place, {})).status == 405


@pytest.mark.parametrize(
    ("settings", "path"),
    [({}, ""), ({"public_url": "/api"}, "/api"), ({"path_prefix": "/api"}, "/api"), ({"allowed_hosts": "me.org"}, "")],
)
async def test_without_a_public_url_the_request_names_the_server(
    start: Start, database_url: str, secret_file: Path, settings: Any, path: str
) -> None:
    api = await with_secret(start, database_url, secret_file, **settings)
    host = "me.org" if settings.get("allowed_hosts") else f"127.0.0.1:{api.port}"
    sent = {"Host": host, "Authorization": "Bearer nonsense"}
    refused = await api.request("GET", f"{settings.get('path_prefix', '')}/users", headers=sent)
    place = f"http://{host}/.well-known/oauth-protected-resource{path}"
    assert refused.headers["WWW-Authenticate"].endswith(f', resource_metadata="{place}"')
    described = await api.request("GET", f"/.well-known/oauth-protected-resource{path}", headers={"Host": host})
    assert (described.status, described.document["resource"]) == (200, f"http://{host}{path}")


async def test_without_tokens_or_names_there_is_no_description(
    start: Start, database_url: str, secret_file: Path
) -> None:
    for api in (
        await with_secret(start, database_url, secret_file, allowed_hosts="*"),
        await start(database_url, open_catalog(), public_url="https://api.example.org"),
    ):
        assert (await api.get("/.well-known/oauth-protected-resource")).status == 404


# health and metrics


@pytest.mark.parametrize(
    ("settings", "roles", "scope", "status"),
    [
        ({}, [], "", 403),
        ({}, ["operator"], "operator", 403),
        ({"auth_admin": "operator"}, [], "", 403),
        ({"auth_admin": "operator"}, ["operators", "Operator"], "operator2", 403),
        ({"auth_admin": "operator"}, ["operator"], "", 200),
        ({"auth_admin": "operator"}, [], "read operator", 200),
    ],
)
async def test_metrics_need_a_role_or_a_scope(
    start: Start, database_url: str, secret_file: Path, settings: Any, roles: list[str], scope: str, status: int
) -> None:
    api = await with_secret(start, database_url, secret_file, **settings)
    token = signed(claims(roles=roles, scope=scope), SECRET, "HS256")
    answer = await api.get("/-/metrics", Authorization=f"Bearer {token}")
    assert (answer.status, answer.headers["Cache-Control"]) == (status, "no-store")
    assert (b'waterspout_cache_entries{cache="tokens"' in answer.body) == (status == 200)
    assert [(await api.get("/-/metrics")).status, (await api.get("/-/metrics", Authorization="Bearer x")).status] == [
        401,
        401,
    ]
    for probe in ("/-/live", "/-/ready"):
        assert [(await api.get(probe)).status, (await api.get(probe, Authorization="Bearer x")).status] == [200, 200]


async def test_metrics_are_open_without_authentication(start: Start, database_url: str) -> None:
    api = await start(database_url, built_in())
    assert (await api.get("/-/metrics", Authorization="Bearer x")).status == 200


async def test_a_preflight_and_options_need_no_token(start: Start, database_url: str, secret_file: Path) -> None:
    origin = "https://app.example.org"
    api = await with_secret(start, database_url, secret_file, cors_origins=origin)
    asked = {
        "Origin": origin,
        "Access-Control-Request-Method": "GET",
        "Access-Control-Request-Headers": "authorization",
    }
    answer = await api.request("OPTIONS", "/users", headers=asked)
    assert (answer.status, answer.headers["Access-Control-Allow-Headers"]) == (204, "authorization")
    assert (await api.request("OPTIONS", "/users")).status == 204
    refused = await api.get("/users", Authorization="Bearer x", Origin=origin)
    assert refused.headers["Access-Control-Allow-Origin"] == origin
    assert "WWW-Authenticate" in refused.headers["Access-Control-Expose-Headers"]


# an issuer


async def test_without_keys_the_server_is_not_ready(start: Start, database_url: str, issuer: Issuer) -> None:
    issuer.start()
    issuer.answers[DISCOVERY] = 500
    api = await start(database_url, open_catalog(), ROUTES, auth_issuer=issuer.url, auth_audience=AUDIENCE)
    ready = await api.get("/-/ready")
    assert (ready.status, ready.errors[0]["code"]) == (503, "auth_unavailable")
    answer = await who(api, issuer.token())
    assert (answer.status, answer.errors[0]["code"], answer.headers["Retry-After"]) == (503, "auth_unavailable", "1")
    assert "WWW-Authenticate" not in answer.headers
    assert (await who(api)).document == NOBODY
    issuer.answers.clear()
    await until(lambda: _status(api, "/-/ready"), lambda status: status == 200)
    assert (await who(api, issuer.token())).document["subject"] == "ann"


async def _status(api: Api, path: str) -> int:
    return (await api.get(path)).status


async def test_a_request_that_waits_for_keys_times_out(start: Start, database_url: str, issuer: Issuer) -> None:
    issuer.start()
    answered = asyncio.Event()
    issuer.answers[DISCOVERY] = lambda _: answered.wait()
    settings = {"auth_issuer": issuer.url, "auth_audience": AUDIENCE, "request_timeout_seconds": 0.3}
    api = await start(database_url, open_catalog(), ROUTES, **settings)
    late = await who(api, issuer.token())
    assert (late.status, late.errors[0]["code"]) == (504, "request_timeout")
    answered.set()


async def test_a_body_is_read_after_the_token_is_verified(start: Start, database_url: str, issuer: Issuer) -> None:
    issuer.start()
    api = await start(database_url, open_catalog(), ROUTES, auth_issuer=issuer.url, auth_audience=AUDIENCE)
    for letter, aud, status in (("a", AUDIENCE, 201), ("b", AUDIENCE, 201), ("c", "other", 401)):
        token = issuer.token(aud=aud)
        document = {"data": {"type": "group", "attributes": {"name": letter * 100_000}}}
        answer = await api.request("POST", "/groups", document, headers={"Authorization": f"Bearer {token}"})
        assert answer.status == status, answer.body[:1000]


# introspection


async def with_introspection(start: Start, url: str, issuer: Issuer, folder: Path, **settings: Any) -> Api:
    issuer.start()
    path = folder / "client"
    path.write_text(CLIENT_SECRET)
    given = {
        "auth_introspection_url": issuer.url + INTROSPECTION,
        "auth_introspection_client_id": CLIENT,
        "auth_introspection_secret_file": path,
    }
    return await start(url, open_catalog(), ROUTES, **(given | settings))


async def test_an_opaque_token(start: Start, database_url: str, issuer: Issuer, tmp_path: Path) -> None:
    api = await with_introspection(start, database_url, issuer, tmp_path)
    issuer.active["opaque+token/="] = {"sub": "ann", "scope": "read", "roles": ["a"], "iss": "me"}
    for _ in range(3):
        answer = await who(api, "opaque+token/=")
        assert answer.document == {
            "subject": "ann", "issuer": "me", "roles": ["a"], "scopes": ["read"], "is_anonymous": False,
        }  # fmt: skip
    credentials = base64.b64encode(f"{CLIENT}:{quote_plus(CLIENT_SECRET)}".encode()).decode()
    assert issuer.heard == [(f"Basic {credentials}", "opaque+token/=")]
    for _ in range(3):
        answer = await who(api, "revoked")
        assert (answer.status, answer.errors[0]["detail"]) == (401, "The token is not active.")
    assert len(issuer.heard) == 2


ACTIVE = {"active": True, "sub": "ann"}
BOUND = "The token is bound to a key (cnf), and this server cannot check who has the key."


@pytest.mark.parametrize(
    ("answer", "code", "detail"),
    [
        (ACTIVE | {"active": "true"}, "invalid_token", "The token is not active."),
        (ACTIVE | {"active": 1}, "invalid_token", "The token is not active."),
        ({"sub": "ann"}, "invalid_token", "The token is not active."),
        ({"active": True}, "invalid_token", "The token has no sub, or not a text."),
        (ACTIVE | {"sub": 7}, "invalid_token", "The token has no sub, or not a text."),
        (ACTIVE | {"cnf": {"jkt": "x"}}, "invalid_token", BOUND),
        (ACTIVE | {"exp": 1}, "expired_token", "The token has expired."),
        (ACTIVE | {"exp": "x"}, "invalid_token", "The exp of the token is not a number of seconds."),
        (ACTIVE | {"nbf": 9e9}, "invalid_token", "The token is not valid yet: its nbf is in the future."),
        (ACTIVE | {"aud": "x"}, "invalid_token", "The token is for another server: its aud does not fit."),
        (ACTIVE, "invalid_token", "The token is for another server: its aud does not fit."),
        (ACTIVE | {"iss": "x"}, "invalid_token", "The token is from another issuer: its iss does not fit."),
    ],
)
async def test_an_opaque_token_that_is_not_accepted(
    start: Start, database_url: str, issuer: Issuer, tmp_path: Path, answer: Any, code: str, detail: str
) -> None:
    audience = AUDIENCE if "aud" in detail else None
    named = "https://id.example.org" if "iss" in detail else None
    keys = {} if named is None else {"auth_jwks": str(write_key_set(tmp_path, issuer)), "auth_issuer": named}
    api = await with_introspection(start, database_url, issuer, tmp_path, auth_audience=audience, **keys)
    issuer.answers[INTROSPECTION] = json.dumps(answer).encode()
    refused = await who(api, "opaque")
    assert (refused.status, refused.errors[0]["code"], refused.errors[0]["detail"]) == (401, code, detail)


async def test_a_bound_opaque_token_behind_a_proxy_that_checks_the_proof(
    start: Start, database_url: str, issuer: Issuer, tmp_path: Path
) -> None:
    api = await with_introspection(start, database_url, issuer, tmp_path, auth_allow_bound_tokens=True)
    issuer.active["opaque"] = {"sub": "ann", "cnf": {"jkt": "x"}}
    assert (await who(api, "opaque")).document["subject"] == "ann"


@pytest.mark.parametrize(
    "answer", [500, 401, 404, b"", b"[]", b"{", b"\xff", b"[" * 100_000, b'{"active": true' + b" " * 300_000]
)
async def test_introspection_that_does_not_work(
    start: Start, database_url: str, issuer: Issuer, tmp_path: Path, answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    api = await with_introspection(start, database_url, issuer, tmp_path)
    issuer.answers[INTROSPECTION] = answer
    for _ in range(2):
        refused = await who(api, "opaque-token-text")
        assert (refused.status, refused.errors[0]["code"]) == (503, "auth_unavailable")
    assert caplog.text.count("introspection fails") == 1
    assert "opaque-token-text" not in caplog.text


async def test_requests_with_one_token_share_a_question(
    start: Start, database_url: str, issuer: Issuer, tmp_path: Path
) -> None:
    api = await with_introspection(start, database_url, issuer, tmp_path)
    issuer.active["opaque"] = {"sub": "ann"}
    answers = await asyncio.gather(*[who(api, "opaque") for _ in range(8)])
    assert {answer.document["subject"] for answer in answers} == {"ann"}
    assert len(issuer.heard) == 1


async def test_an_answer_is_kept_for_thirty_seconds(
    start: Start, database_url: str, issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = await with_introspection(start, database_url, issuer, tmp_path)
    issuer.active["opaque"] = {"sub": "ann", "exp": int(time.time()) + 3600}
    assert (await who(api, "opaque")).status == 200
    del issuer.active["opaque"]
    assert (await who(api, "opaque")).status == 200
    now = time.time() + 31
    monkeypatch.setattr(time, "time", lambda: now)
    assert (await who(api, "opaque")).status == 401


async def test_jwts_and_opaque_tokens_together(start: Start, database_url: str, issuer: Issuer, tmp_path: Path) -> None:
    keys = {"auth_jwks": str(write_key_set(tmp_path, issuer)), "auth_audience": AUDIENCE}
    api = await with_introspection(start, database_url, issuer, tmp_path, **keys)
    issuer.active["opaque"] = {"sub": "bob", "aud": [AUDIENCE]}
    assert (await who(api, issuer.token(iss="x"))).document["subject"] == "ann"
    assert issuer.heard == []
    assert (await who(api, "opaque")).document["subject"] == "bob"


# AUTHENTICATE


async def key_holder(request: Any) -> Principal | None:
    """Like the example of docs/custom-code.md, with mistakes."""
    key = request.headers.get("X-Api-Key")
    await asyncio.sleep(0)
    match key:
        case None:
            return None
        case "good":
            return Principal(subject="importer", roles=frozenset({"writer"}))
        case "text":
            return "importer"  # type: ignore[return-value]
        case "list":
            return Principal(subject="x", roles=["writer"])  # type: ignore[arg-type]
        case "number":
            return Principal(subject="x", roles=frozenset({1}))  # type: ignore[arg-type]
        case "nul":
            return Principal(subject="x\0")
        case "claims":
            return Principal(subject="x", claims=["a"])  # type: ignore[arg-type]
        case "fault":
            raise KeyError(key)
        case "silent":
            raise Unauthenticated
    raise Unauthenticated("There is no such key.", header="X-Api-Key")


async def test_custom_code_finds_the_principal(
    start: Start, database_url: str, secret_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    api = await start(database_url, open_catalog(), ROUTES, key_holder)
    assert (await who(api)).document == NOBODY
    found = await who(api, **{"X-Api-Key": "good"})
    assert (found.document["subject"], found.document["roles"]) == ("importer", ["writer"])
    assert (await api.get("/users", **{"X-Api-Key": "good"})).headers["Cache-Control"] == "private, no-cache"
    assert (await api.get("/users")).headers["Cache-Control"] == "private, no-cache"
    refused = await who(api, **{"X-Api-Key": "bad"})
    assert (refused.status, refused.errors[0]["code"]) == (401, "unauthenticated")
    assert refused.headers["WWW-Authenticate"] == "Bearer"
    silent = await who(api, **{"X-Api-Key": "silent"})
    assert (silent.status, silent.errors[0]["detail"]) == (401, "Send valid credentials.")
    # A header Authorization is the business of the custom code.
    assert (await who(api, "x", **{"X-Api-Key": "good"})).status == 200
    for key, reason in (
        ("text", "AUTHENTICATE returned str: expected a Principal or None"),
        ("list", "roles or scopes are no frozenset"),
        ("number", "roles or scopes are not all texts"),
        ("nul", "subject or issuer is no text that PostgreSQL can hold"),
        ("claims", "claims are no mapping"),
        ("fault", "KeyError: 'fault'"),
    ):
        caplog.clear()
        assert (await who(api, **{"X-Api-Key": key})).status == 500
        assert reason in caplog.text


async def test_custom_code_beside_tokens(start: Start, database_url: str, secret_file: Path) -> None:
    api = await start(
        database_url, open_catalog(), ROUTES, key_holder, auth_secret_file=secret_file, auth_audience=AUDIENCE
    )
    token = signed(claims(), SECRET, "HS256")
    assert (await who(api, token, **{"X-Api-Key": "good"})).document["subject"] == "ann"
    assert (await who(api, **{"X-Api-Key": "good"})).document["subject"] == "importer"
    assert (await who(api, Authorization="Basic YTpi")).document == NOBODY
    assert (await who(api, "nonsense", **{"X-Api-Key": "good"})).status == 401


# hooks


async def test_hooks_get_the_principal(start: Start, database_url: str, secret_file: Path) -> None:
    seen: list[str] = []

    async def note(writing: Writing, _: list[Change]) -> None:
        seen.append(writing.context.principal.subject)

    groups = hooked(open_catalog(), group=Hooks(before_create=note))
    api = await start(database_url, groups, auth_secret_file=secret_file, auth_audience=AUDIENCE)
    for subject in ("ann", "bob", None):
        token = signed(claims(sub=subject or "x"), SECRET, "HS256")
        headers = {"Authorization": f"Bearer {token}"} if subject else {}
        document = {"data": {"type": "group", "attributes": {"name": str(subject)}}}
        assert (await api.request("POST", "/groups", document, headers=headers)).status == 201
    assert seen == ["ann", "bob", ""]


# caches


@pytest.mark.parametrize(
    ("cache_control", "signed_in", "anonymous"),
    [
        ("no-cache", "private, no-cache", "no-cache"),
        ("public, max-age=60", "private, max-age=60", "public, max-age=60"),
        ("", "private", None),
    ],
)
async def test_caches_do_not_mix_up_principals(
    start: Start, database_url: str, secret_file: Path, cache_control: str, signed_in: str, anonymous: str | None
) -> None:
    api = await with_secret(start, database_url, secret_file, cache_control=cache_control)
    token = signed(claims(), SECRET, "HS256")
    for path in ("/users", "/", "/users/4711"):
        for given, expected in (({"Authorization": f"Bearer {token}"}, signed_in), ({}, anonymous)):
            answer = await api.request("GET", path, headers=given)
            if answer.status == 404 and cache_control:
                expected = "no-store"
            assert (answer.headers.get("Cache-Control"), answer.headers["Vary"]) == (expected, "Accept, Authorization")


# many


async def test_many_different_bad_tokens(start: Start, database_url: str, issuer: Issuer) -> None:
    """They leave nothing behind, and the issuer does not notice."""
    issuer.start()
    api = await start(database_url, open_catalog(), ROUTES, auth_issuer=issuer.url, auth_audience=AUDIENCE)
    good = issuer.token()
    assert (await who(api, good)).status == 200
    issuer.asked.clear()
    tokens: Any = api.app.engine.authenticator._tokens
    before = tokens.cache.entries.bytes
    other = signed(claims(), SECRET, "HS256", {"kid": "two"})
    for number in range(200):
        bad = [issuer.token(aud="x", sub=str(number)), f"{good[:-10]}{number:010}", f"{other}{number}", f"a.{number}.c"]
        assert {answer.status for answer in await asyncio.gather(*[who(api, one) for one in bad])} == {401}
    assert (tokens.cache.entries.bytes, issuer.asked) == (before, {})
    assert (await who(api, good)).status == 200
