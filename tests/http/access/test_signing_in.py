"""Signing in on the pages by OpenID Connect, and signing out."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, quote, urlsplit

import pytest

from server.settings import StartError
from server.settings.loading import load
from tests.http.access.browsers import PUBLIC, Browser
from tests.http.access.signing import (
    LIST,
    SECRET,
    SQL,
    Clock,
    Shop,
    alerts,
    below,
    clock,
    come_back,
    issuer,
    shop,
    sign_in,
    titles,
    to_issuer,
)
from tests.http.conftest import Inspected
from tests.http.pages.html import parse
from tests.http.pages.sending import FORM
from tests.issuer import AUDIENCE, DISCOVERY
from tests.sign_in_issuer import AUTHORIZE, LOGIN_CLIENT, LOGOUT, TOKEN, SignInIssuer

__all__ = ["clock", "issuer", "shop"]


async def test_the_whole_way(shop: Shop, issuer: SignInIssuer) -> None:
    api = await shop()
    browser = Browser(api)
    closed = await browser.open("/notes?sort=-title&filter[title][ne]=a%26b")
    assert (closed.status, closed.headers["WWW-Authenticate"][:6]) == (401, "Bearer")
    link = below(parse(closed.body).one("a", class_="button primary")["href"])
    asked = await browser.open(link, "same-origin")
    assert (asked.status, asked.headers["Cache-Control"]) == (303, "no-store")
    place, _, query = asked.headers["Location"].partition("?")
    parameters = dict(parse_qsl(query))
    assert place == issuer.url + AUTHORIZE
    assert {name: parameters.pop(name) for name in ("state", "nonce", "code_challenge")}.keys()
    assert parameters == {
        "response_type": "code",
        "client_id": LOGIN_CLIENT,
        "redirect_uri": f"{PUBLIC}/-/pages/callback",
        "scope": "openid",
        "code_challenge_method": "S256",
    }
    back = await come_back(browser, issuer.approve(asked.headers["Location"]))
    assert back.status == 303
    assert parse_qs(urlsplit(back.headers["Location"]).query) == {"sort": ["-title"], "filter[title][ne]": ["a&b"]}
    [(name, _)] = browser.cookies.items()
    assert name.startswith("__Host-waterspout-")
    assert len(name) == len("__Host-waterspout-") + 8
    [kept, ended] = browser.set
    assert kept.endswith("; Path=/; Secure; HttpOnly; SameSite=Lax")
    assert ended == f"{name}-sign-in=; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=0"
    shown = await browser.open(below(back.headers["Location"]), "cross-site")
    page = parse(shown.body)
    assert (shown.status, len(page.one("tbody").all("tr"))) == (200, 2)
    assert shown.headers["Cache-Control"] == "private, no-cache"
    assert shown.headers["Vary"] == "Accept, Authorization, Cookie, Accept-Encoding"
    assert page.one("header").one("bdi", class_="muted").text == "ann"
    assert page.one("form", action=f"{PUBLIC}/-/pages/sign-out")["method"] == "post"
    assert await titles(browser) == ["of ann", "of bob"]
    assert (await browser.fetch(LIST)).headers["Vary"] == "Accept, Authorization, Cookie"


async def test_rules_hold_for_who_has_signed_in(shop: Shop, issuer: SignInIssuer) -> None:
    api = await shop()
    issuer.claims = {"roles": ["reader"], "name": "Bob B"}
    browser = await sign_in(api, issuer, "bob")
    assert await titles(browser) == ["of bob"]
    assert (await browser.post("/-/pages/new/notes", {"a:title": "x"})).status == 403
    page = parse((await browser.open("/notes")).body)
    assert not page.all("a", href=f"{PUBLIC}/-/pages/new/notes")
    assert page.one("header").one("bdi", class_="muted").text == "Bob B"
    issuer.claims = {"roles": ["editor"]}
    ann = await sign_in(api, issuer)
    assert (await ann.post("/-/pages/new/notes", {"a:title": "x"})).status == 303
    assert await titles(ann) == ["of ann", "of bob", "x"]


@pytest.mark.parametrize(
    "to", ["//evil.example", "/\\evil.example", "https://evil.example", "evil", "/a\\b", "/a b", "/\t/evil", "/ä", ""]
)
async def test_ways_back_that_are_refused(shop: Shop, to: str) -> None:
    api = await shop()
    answer = await Browser(api).open(f"/-/pages/sign-in?to={quote(to, safe='')}")
    assert answer.status == 400
    assert "The way back is a path of this server" in alerts(answer)


@pytest.mark.parametrize("to", ["/", "/notes/a//b", "/notes?filter[title]=https://x/%5C", "/-/pages/edit/notes/1"])
async def test_ways_back(shop: Shop, issuer: SignInIssuer, to: str) -> None:
    await sign_in(await shop(), issuer, to=to)


async def test_a_way_back_that_is_too_long_leads_to_the_start(shop: Shop, issuer: SignInIssuer) -> None:
    browser = Browser(await shop())
    answer = await come_back(browser, issuer.approve(await to_issuer(browser, "/notes?a=" + "x" * 4000)))
    assert answer.headers["Location"] == f"{PUBLIC}/"


async def test_answers_that_belong_to_no_sign_in(shop: Shop, issuer: SignInIssuer, clock: Clock) -> None:
    api = await shop()
    browser, other = Browser(api), Browser(api)
    query = issuer.approve(await to_issuer(browser))
    await to_issuer(other)
    for wrong in ("", "state=x&code=y", query.replace("state=", "state=x"), "error=access_denied"):
        answer = await come_back(browser, wrong)
        assert answer.status == 400
        assert "This sign-in is not known" in alerts(answer)
        assert parse(answer.body).one("a", class_="button primary")["href"] == f"{PUBLIC}/-/pages/sign-in?to=/"
    assert (await come_back(other, query)).status == 400
    assert (await come_back(Browser(api), query)).status == 400
    assert not issuer.forms
    clock.seconds = 601
    assert (await come_back(browser, query)).status == 400
    clock.seconds = 0
    assert (await come_back(browser, query)).status == 303
    # Who is signed in and goes back to this address is not told of a fault.
    again = await come_back(browser, query)
    assert (again.status, again.headers["Location"], browser.set) == (303, f"{PUBLIC}/", [])
    browser.cookies.clear()
    assert (await come_back(browser, query)).status == 400


async def test_several_tabs_sign_in(shop: Shop, issuer: SignInIssuer) -> None:
    browser = Browser(await shop())
    urls = [await to_issuer(browser, f"/notes/{number}") for number in range(6)]
    assert (await come_back(browser, issuer.approve(urls[1]))).status == 400
    for number in (2, 5, 3, 4):
        answer = await come_back(browser, issuer.approve(urls[number]))
        assert answer.headers["Location"] == f"{PUBLIC}/notes/{number}"


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ("error=access_denied&error_description=No%20way%20<b>", "did not sign you in: access_denied: No way <b>"),
        ("error=temporarily_unavailable", "did not sign you in: temporarily_unavailable"),
        ("code=x", "The issuer refused the code: invalid_grant."),
        ("iss=https://other.example&code=x", "its iss does not fit"),
    ],
)
async def test_issuers_that_refuse(shop: Shop, issuer: SignInIssuer, query: str, detail: str) -> None:
    browser = Browser(await shop())
    state = dict(parse_qsl(urlsplit(await to_issuer(browser)).query))["state"]
    answer = await come_back(browser, f"{query}&state={state}")
    assert (answer.status, answer.headers["Cache-Control"]) == (403, "no-store")
    assert detail in alerts(answer)
    assert await titles(browser) == 401


async def test_who_is_refused_with_an_older_session_can_sign_in_again(shop: Shop, issuer: SignInIssuer) -> None:
    browser = await sign_in(await shop(), issuer)
    state = dict(parse_qsl(urlsplit(await to_issuer(browser)).query))["state"]
    answer = await come_back(browser, f"error=access_denied&state={state}")
    assert parse(answer.body).one("a", class_="button primary")["href"] == f"{PUBLIC}/-/pages/sign-in?to=/"
    assert await titles(browser) == ["of ann", "of bob"]


async def test_an_issuer_that_names_itself(shop: Shop, issuer: SignInIssuer) -> None:
    issuer.metadata = {"authorization_response_iss_parameter_supported": True}
    browser = Browser(await shop())
    query = issuer.approve(await to_issuer(browser))
    assert (await come_back(browser, query)).status == 403
    assert (await come_back(browser, f"{query}&iss={quote(issuer.url, safe='')}")).status == 303


@pytest.mark.parametrize(
    ("changed", "detail"),
    [
        ({"id_claims": {"nonce": "other"}}, "The nonce of the ID token does not fit."),
        ({"id_claims": {"nonce": None}}, "The token has no nonce."),
        ({"id_claims": {"aud": AUDIENCE}}, "its aud does not fit"),
        ({"id_claims": {"aud": [LOGIN_CLIENT, "x"], "azp": "x"}}, "its azp does not fit"),
        ({"id_claims": {"iss": "https://other.example"}}, "its iss does not fit"),
        ({"id_claims": {"exp": 1}}, "The token has expired."),
        ({"id_claims": {"iat": 2**40}}, "nbf or iat is in the future"),
        ({"id_claims": {"at_hash": "x"}}, "The at_hash of the ID token does not fit."),
        ({"claims": {"aud": "https://other.example"}}, "its aud does not fit"),
        ({"claims": {"sub": ""}}, "no sub"),
        ({"seconds": -60}, "The token has expired."),
        ({"claims": {"token_use": "id"}}, "not an access token"),
    ],
)
async def test_tokens_that_are_refused(shop: Shop, issuer: SignInIssuer, changed: dict[str, Any], detail: str) -> None:
    browser = Browser(await shop())
    for name, value in changed.items():
        setattr(issuer, name, value)
    answer = await come_back(browser, issuer.approve(await to_issuer(browser)))
    assert answer.status == 403
    assert detail in alerts(answer)
    assert not [name for name in browser.cookies if not name.endswith("-sign-in")]


@pytest.mark.parametrize(
    ("answered", "status"),
    [
        (b"{}", 403),
        (b'{"access_token": 1, "id_token": "x"}', 403),
        (b'{"access_token": "x", "id_token": "y"}', 403),
        (b"[]", 503),
        (b"<html>", 503),
        (500, 503),
        (429, 503),
        (302, 503),
        (401, 403),
    ],
)
async def test_strange_answers_of_the_issuer(shop: Shop, issuer: SignInIssuer, answered: Any, status: int) -> None:
    browser = Browser(await shop())
    query = issuer.approve(await to_issuer(browser))
    usual, issuer.answers[TOKEN] = issuer.answers[TOKEN], answered
    assert (await come_back(browser, query)).status == status
    issuer.answers[TOKEN] = usual
    assert (await come_back(browser, query)).status == 303


@pytest.mark.parametrize(
    "metadata",
    [{"authorization_endpoint": None}, {"token_endpoint": None}, {"token_endpoint": "http://example.org/token"}],
)
async def test_issuers_without_a_sign_in(shop: Shop, issuer: SignInIssuer, metadata: dict[str, Any]) -> None:
    api = await shop()
    issuer.metadata = metadata
    answer = await Browser(api).open("/-/pages/sign-in")
    assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
    issuer.metadata = {}
    assert (await Browser(api).open("/-/pages/sign-in")).status == 303


async def test_an_issuer_that_is_away(shop: Shop, issuer: SignInIssuer) -> None:
    api = await shop()
    issuer.answers[DISCOVERY] = 500
    assert (await Browser(api).open("/-/pages/sign-in")).status == 503


async def test_clients_with_a_secret_and_further_parameters(shop: Shop, issuer: SignInIssuer, tmp_path: Path) -> None:
    file = tmp_path / "client-secret"
    file.write_text("a secret: %&+\n")
    scope = "openid offline_access"
    further = "audience=https%3A%2F%2Fapi.example.org&prompt=consent"
    api = await shop(login_client_secret_file=file, login_scope=scope, login_parameters=further)
    browser = Browser(api)
    url = await to_issuer(browser)
    asked = dict(parse_qsl(urlsplit(url).query))
    assert (asked["scope"], asked["audience"], asked["prompt"]) == (scope, "https://api.example.org", "consent")
    assert (await come_back(browser, issuer.approve(url))).status == 303
    assert issuer.forms[-1]["Authorization"].startswith("Basic ")
    assert "client_id" not in issuer.forms[-1]
    issuer.metadata = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    posting = await shop(login_client_secret_file=file)
    await sign_in(posting, issuer)
    assert (issuer.forms[-1]["client_id"], issuer.forms[-1]["client_secret"]) == (LOGIN_CLIENT, "a secret: %&+")
    public = await shop()
    await sign_in(public, issuer)
    assert (issuer.forms[-1]["client_id"], issuer.forms[-1]["Authorization"]) == (LOGIN_CLIENT, "")


async def test_signing_out(shop: Shop, issuer: SignInIssuer) -> None:
    api = await shop()
    browser = await sign_in(api, issuer)
    stolen = dict(browser.cookies)
    for refused in (
        await browser.open("/-/pages/sign-out"),
        await browser.post("/-/pages/sign-out", site="cross-site"),
        await browser.post("/-/pages/sign-out", site="same-site"),
    ):
        assert (refused.status in (403, 405), browser.set) == (True, [])
    answer = await browser.post("/-/pages/sign-out")
    assert (answer.status, answer.headers["Cache-Control"], browser.cookies) == (200, "no-store", {})
    page = parse(answer.body)
    url = page.one("a", class_="button primary")["href"]
    assert page.one("meta", http_equiv="refresh")["content"] == f"0; url={url}"
    place, _, query = url.partition("?")
    assert place == issuer.url + LOGOUT
    assert dict(parse_qsl(query)) == {
        "client_id": LOGIN_CLIENT,
        "post_logout_redirect_uri": f"{PUBLIC}/",
        "logout_hint": "session of ann",
    }
    assert await titles(browser) == 401
    assert len(issuer.revoked) == 1
    assert not issuer.grants
    # Nobody is signed in any more, and the way out is the same.
    assert (await browser.post("/-/pages/sign-out")).status == 200
    # A copy of the cookie counts until the session would be renewed.
    browser.cookies = stolen
    assert await titles(browser) == ["of ann", "of bob"]


async def test_signing_out_of_issuers_that_offer_less(shop: Shop, issuer: SignInIssuer) -> None:
    issuer.metadata = {"end_session_endpoint": None, "revocation_endpoint": None}
    browser = await sign_in(await shop(read_only=True), issuer)
    answer = await browser.post("/-/pages/sign-out")
    assert (answer.status, answer.headers["Location"], browser.cookies) == (303, f"{PUBLIC}/", {})
    other = await shop()
    issuer.answers[DISCOVERY] = 500
    assert (await Browser(other).post("/-/pages/sign-out")).status == 303


async def test_no_input_causes_a_500(shop: Shop, issuer: SignInIssuer, clock: Clock) -> None:
    api = await shop()
    signed_in = await sign_in(api, issuer)
    begun = Browser(api)
    state = dict(parse_qsl(urlsplit(await to_issuer(begun)).query))["state"]
    [(name, session)] = signed_in.cookies.items()
    [attempts] = begun.cookies.values()
    chance = random.Random(34)
    texts = ["", "x", "\0", "é", "%", "%ff", "/", "//", "/notes", "a" * 5000, state, "[]", "\ud800", ";", "=", attempts]
    values = [
        "",
        "x",
        session,
        session[:-5],
        session[5:],
        attempts,
        "é".encode().decode("latin-1"),
        "=" * 99,
        "a" * 4000,
    ]
    asked = set()
    for _ in range(400):
        clock.seconds = chance.choice([0, 0, 400, 700])
        kept = [chance.choice([name, f"{name}-2", f"{name}-4", f"{name}-sign-in", "other"]) for _ in range(3)]
        browser = Browser(api)
        browser.cookies = {one: chance.choice(values) for one in kept}
        query = "&".join(
            f"{chance.choice(['to', 'code', 'state', 'iss', 'error', 'error_description', 'é'])}="
            f"{quote(chance.choice(texts).encode('utf-8', 'surrogatepass'), safe='%')}"
            for _ in range(chance.randrange(4))
        )
        path = chance.choice(
            ["/-/pages/sign-in", "/-/pages/callback", "/-/pages/sign-out", "/notes", "/-/pages/new/notes"]
        )
        method = chance.choice(["GET", "GET", "POST", "HEAD", "DELETE"])
        site, mode = chance.choice(["same-origin", "none", "cross-site"]), chance.choice(["navigate", "cors"])
        headers = {"Content-Type": FORM} if method == "POST" else {}
        body = query if method == "POST" else None
        answer = await browser.send(method, f"{path}?{query}", site, mode, body, **headers)
        assert answer.status < 500, (method, path, query, browser.cookies, answer.body)
        asked.add((path, answer.status))
    assert len(asked) > 15


async def test_pages_without_the_setting(inspected: Inspected) -> None:
    api = await inspected(SQL)
    for path in ("/-/pages/sign-in", "/-/pages/callback"):
        assert (await Browser(api).open(path)).status == 404
    assert (await Browser(api).post("/-/pages/sign-out")).status == 404


async def test_nothing_secret_is_logged(
    shop: Shop, issuer: SignInIssuer, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)
    browser = await sign_in(await shop(), issuer)
    clock.seconds = 601
    await titles(browser)
    sent = [value for form in issuer.forms for name, value in form.items() if name in ("code", "refresh_token")]
    sent += [*browser.cookies.values(), *[form["code_verifier"] for form in issuer.forms if "code_verifier" in form]]
    assert len(sent) == 4
    assert not [value for value in sent if value in caplog.text]


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"session_secret_file": None}, "needs session_secret_file"),
        ({"public_url": None}, "needs public_url with a host"),
        ({"public_url": "/shop"}, "needs public_url with a host"),
        ({"public_url": "http://shop.example"}, "needs a public_url with https"),
        ({"auth_secret_file": "secret"}, "needs the public keys of the issuer"),
        ({"pages": "false"}, "for people who use the pages"),
        ({"auth_issuer": None, "auth_jwks": "https://id.example/keys"}, "needs auth_issuer"),
        ({"login_scope": "profile"}, "openid among them"),
        ({"login_parameters": "state=1"}, "the server sets state itself"),
        ({"login_parameters": "x"}, "expected a query string"),
        ({"session_minutes": "0"}, "session-minutes"),
        ({}, None),
    ],
)
def test_settings(changed: dict[str, Any], fault: str | None, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(SECRET)
    given = {
        "auth_issuer": "https://id.example",
        "auth_audience": AUDIENCE,
        "login_client_id": "shop",
        "session_secret_file": str(tmp_path / "secret"),
        "public_url": "https://shop.example",
    }
    flags = {name: value for name, value in (given | changed).items() if value is not None}
    if fault is None:
        assert load(flags, {}).settings.has_sign_in
        return
    with pytest.raises(StartError, match=fault):
        load(flags, {})


@pytest.mark.parametrize("secret", [b"short", SECRET + b"\nshort", b"\n".join([SECRET] * 5)])
async def test_secrets_that_are_refused(shop: Shop, secret: bytes) -> None:
    with pytest.raises(StartError, match="session_secret_file"):
        await shop(secret)
