"""Sessions of people with a browser: where their cookie counts, how it is renewed, and when it ends."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.http.access.browsers import PUBLIC, Browser
from tests.http.access.signing import (
    LIST,
    SECRET,
    Clock,
    Shop,
    alerts,
    clock,
    come_back,
    issuer,
    shop,
    sign_in,
    titles,
    to_issuer,
)
from tests.http.pages.html import parse
from tests.http.pages.sending import filled
from tests.issuer import INTROSPECTION
from tests.sign_in_issuer import TOKEN, SignInIssuer
from tests.waiting import until

__all__ = ["clock", "issuer", "shop"]


@pytest.mark.parametrize(
    ("method", "site", "mode", "counts"),
    [
        ("GET", "same-origin", "cors", True),
        ("GET", "same-origin", "navigate", True),
        ("GET", "none", "navigate", True),
        ("GET", "cross-site", "navigate", True),
        ("HEAD", "cross-site", "navigate", True),
        ("GET", "cross-site", "cors", False),
        ("GET", "cross-site", "no-cors", False),
        ("GET", "same-site", "cors", False),
        ("GET", "", "", False),
        ("DELETE", "cross-site", "navigate", False),
        ("DELETE", "same-site", "cors", False),
        ("DELETE", "", "", False),
        ("DELETE", "same-origin", "cors", True),
    ],
)
async def test_where_a_session_counts(
    shop: Shop, issuer: SignInIssuer, method: str, site: str, mode: str, counts: bool
) -> None:
    api = await shop(cors_origins="https://other.example")
    browser = await sign_in(api, issuer)
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Origin": "https://other.example"}
    headers |= {"Cookie": "; ".join(f"{name}={value}" for name, value in browser.cookies.items())}
    answer = await api.request(method, "/notes/1", headers={name: one for name, one in headers.items() if one})
    assert answer.status == (200 if counts else 401)
    assert "Access-Control-Allow-Credentials" not in answer.headers


async def test_never_beside_a_token(shop: Shop, issuer: SignInIssuer) -> None:
    api = await shop()
    browser = await sign_in(api, issuer)
    token = issuer.token(sub="bob", roles=["reader"])
    assert await titles(browser, Authorization=f"Bearer {token}") == ["of bob"]
    assert await titles(browser, Authorization="Bearer nonsense") == 401
    assert await titles(browser, Authorization="Basic YTpi") == 401


async def test_a_session_is_renewed(shop: Shop, issuer: SignInIssuer, clock: Clock) -> None:
    api = await shop()
    browser = await sign_in(api, issuer)
    first = dict(browser.cookies)
    clock.seconds = 290
    assert (await titles(browser), browser.set, len(issuer.forms)) == (["of ann", "of bob"], [], 1)
    clock.seconds = 310
    issuer.claims = {"roles": ["reader"]}
    assert (await titles(browser), len(browser.set), len(issuer.forms)) == (["of ann"], 1, 2)
    assert browser.cookies.keys() == first.keys()
    assert browser.cookies != first
    assert (await titles(browser), browser.set, len(issuer.forms)) == (["of ann"], [], 2)
    clock.seconds = 310 + 900
    answer = await browser.open("/notes")
    assert (answer.status, answer.headers["Cache-Control"], len(issuer.forms)) == (200, "private, no-cache", 3)
    assert len(browser.set) == 1


async def test_short_tokens_are_renewed_in_time(shop: Shop, issuer: SignInIssuer, clock: Clock) -> None:
    issuer.seconds = 60
    browser = await sign_in(await shop(), issuer)
    clock.seconds = 30
    assert (await titles(browser), len(issuer.forms)) == (["of ann", "of bob"], 1)
    clock.seconds = 65
    assert (await titles(browser), len(issuer.forms)) == (["of ann", "of bob"], 2)


async def test_a_session_ends_with_that_of_the_issuer(shop: Shop, issuer: SignInIssuer, clock: Clock) -> None:
    browser = await sign_in(await shop(), issuer)
    kept = dict(browser.cookies)
    issuer.end("ann")
    assert await titles(browser) == ["of ann", "of bob"]
    clock.seconds = 601
    assert await titles(browser) == 401
    assert (len(browser.set), browser.cookies) == (1, {})
    asked = len(issuer.forms)
    for _ in range(5):
        browser.cookies = dict(kept)
        answer = await browser.open("/notes")
        assert (answer.status, browser.cookies) == (401, {})
        assert parse(answer.body).all("a", class_="button primary")
    # A refusal is known for a while.
    assert len(issuer.forms) == asked


async def test_sessions_for_minutes(shop: Shop, issuer: SignInIssuer, clock: Clock) -> None:
    browser = await sign_in(await shop(session_minutes=2), issuer)
    issuer.end("ann")
    clock.seconds = 121
    assert await titles(browser) == 401


async def test_without_a_refresh_token(shop: Shop, issuer: SignInIssuer, clock: Clock) -> None:
    issuer.gives_refresh = False
    browser = await sign_in(await shop(), issuer)
    clock.seconds = 590
    assert await titles(browser) == ["of ann", "of bob"]
    clock.seconds = 601
    assert (await titles(browser), browser.cookies, len(issuer.forms)) == (401, {}, 1)


async def test_refresh_tokens_that_are_not_replaced(shop: Shop, issuer: SignInIssuer, clock: Clock) -> None:
    issuer.rotates = False
    browser = await sign_in(await shop(), issuer)
    for clock.seconds in (700.0, 1400.0, 2100.0):
        assert await titles(browser) == ["of ann", "of bob"]
    assert len(issuer.forms) == 4
    often = await sign_in(await shop(session_minutes=1), issuer)
    for clock.seconds in (2135.0, 2170.0, 2205.0):
        assert await titles(often) == ["of ann", "of bob"]
    assert len(issuer.forms) == 8


async def test_while_the_issuer_is_away(shop: Shop, issuer: SignInIssuer, clock: Clock) -> None:
    browser = await sign_in(await shop(), issuer)
    usual, issuer.answers[TOKEN] = issuer.answers[TOKEN], 503
    clock.seconds = 400
    assert (await titles(browser), browser.set) == (["of ann", "of bob"], [])
    clock.seconds = 601
    answer = await browser.open("/notes")
    assert (answer.status, answer.headers["Retry-After"], browser.set) == (503, "1", [])
    issuer.answers[TOKEN] = usual
    assert await titles(browser) == ["of ann", "of bob"]


async def test_a_refresh_token_is_not_lost_while_tokens_cannot_be_verified(
    shop: Shop, issuer: SignInIssuer, clock: Clock, tmp_path: Path
) -> None:
    """With opaque access tokens: the issuer renews the session, and then does not answer about the new token."""
    secret = tmp_path / "introspection-secret"
    secret.write_text("x")
    api = await shop(
        auth_introspection_url=issuer.url + INTROSPECTION,
        auth_introspection_client_id="x",
        auth_introspection_secret_file=secret,
    )
    issuer.is_opaque = True
    browser = await sign_in(api, issuer)
    assert await titles(browser) == ["of ann", "of bob"]
    issuer.answers[INTROSPECTION] = 500
    clock.seconds = 400
    assert (await titles(browser), len(browser.set)) == (["of ann", "of bob"], 1)
    clock.seconds = 601
    assert (await titles(browser), len(browser.set)) == (503, 1)
    del issuer.answers[INTROSPECTION]
    assert (await titles(browser), len(browser.set)) == (["of ann", "of bob"], 1)
    assert len(issuer.forms) == 4


@pytest.mark.parametrize("seconds", [310, 650])
async def test_requests_at_once_renew_once(shop: Shop, issuer: SignInIssuer, clock: Clock, seconds: int) -> None:
    """A refresh token that is used twice would end the session."""
    api = await shop()
    browser = await sign_in(api, issuer)
    tabs = [Browser(api) for _ in range(20)]
    for tab in tabs:
        tab.cookies = dict(browser.cookies)
    clock.seconds = seconds
    assert await asyncio.gather(*map(titles, tabs)) == [["of ann", "of bob"]] * 20
    assert (len(issuer.forms), len({str(tab.cookies) for tab in tabs})) == (2, 1)
    # A request that was sent before the new cookie came.
    assert (await titles(browser), browser.cookies, len(issuer.forms)) == (["of ann", "of bob"], tabs[0].cookies, 2)


async def test_a_session_is_renewed_for_the_same_person(shop: Shop, issuer: SignInIssuer, clock: Clock) -> None:
    browser = await sign_in(await shop(), issuer)
    issuer.grants = dict.fromkeys(issuer.grants, "bob")
    clock.seconds = 601
    assert (await titles(browser), browser.cookies) == (401, {})


async def test_a_client_that_goes_does_not_lose_the_session(shop: Shop, issuer: SignInIssuer, clock: Clock) -> None:
    api = await shop()
    browser = await sign_in(api, issuer)
    usual = issuer.answers[TOKEN]

    async def slowly(handler: Any) -> Any:
        found = usual(handler)
        await asyncio.sleep(0.2)
        return found

    issuer.answers[TOKEN] = slowly
    clock.seconds = 601
    _, writer = await asyncio.open_connection("127.0.0.1", api.port)
    cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    head = ("Host: localhost", "Sec-Fetch-Site: same-origin", f"Cookie: {cookie}", "", "")
    writer.write("\r\n".join([f"GET {LIST} HTTP/1.1", *head]).encode())
    await writer.drain()
    await until(lambda: len(issuer.forms) == 2)
    writer.close()
    assert await titles(browser) == ["of ann", "of bob"]
    assert len(issuer.forms) == 2


async def test_cookies_that_are_not_ours(shop: Shop, issuer: SignInIssuer) -> None:
    api = await shop()
    browser = await sign_in(api, issuer)
    [(name, value)] = browser.cookies.items()
    for wrong in ("x", value[:-4] + "AAAA", value[:100], "", "ä"):
        browser.cookies = {name: wrong}
        assert (await titles(browser), browser.cookies) == (401, {})
    browser.cookies = {f"{name}-sign-in": value, name[:-1]: value}
    assert await titles(browser) == 401
    browser.cookies = {"a": "b; c=d", name: value}
    assert await titles(browser) == ["of ann", "of bob"]


async def test_secrets_change(shop: Shop, issuer: SignInIssuer) -> None:
    browser = await sign_in(await shop(), issuer)
    new = b"another secret of at least thirty-two bytes for sessions"
    browser.api = await shop(new + b"\n" + SECRET + b"\n")
    assert await titles(browser) == ["of ann", "of bob"]
    browser.api = await shop(new)
    assert await titles(browser) == 401


@pytest.mark.parametrize("changed", [{"auth_audience": "https://other.example"}, {"login_client_id": "other"}])
async def test_sessions_of_another_server(shop: Shop, issuer: SignInIssuer, changed: dict[str, Any]) -> None:
    browser = await sign_in(await shop(), issuer)
    browser.api = await shop(**changed)
    assert await titles(browser) == 401


async def test_large_sessions_have_parts(shop: Shop, issuer: SignInIssuer, clock: Clock) -> None:
    api = await shop()
    issuer.claims = {"roles": ["editor"], "groups": ["g" * 90 for _ in range(80)]}
    browser = await sign_in(api, issuer)
    assert len(browser.cookies) == 3
    assert all(len(value) <= 3800 for value in browser.cookies.values())
    assert await titles(browser) == ["of ann", "of bob"]
    issuer.claims = {"roles": ["editor"]}
    clock.seconds = 601
    assert await titles(browser) == ["of ann", "of bob"]
    assert len(browser.cookies) == 1
    assert await titles(browser) == ["of ann", "of bob"]
    issuer.padding = "x" * 12_000
    other = Browser(api)
    answer = await come_back(other, issuer.approve(await to_issuer(other)))
    assert answer.status == 403
    assert "at most 15200 bytes" in alerts(answer)
    # A session that grows too large has to end, and says why.
    clock.seconds = 1300
    answer = await browser.open("/notes")
    assert (answer.status, "at most 15200 bytes" in alerts(answer)) == (403, True)


async def test_what_was_typed_is_not_lost_with_the_session(shop: Shop, issuer: SignInIssuer, clock: Clock) -> None:
    browser = await sign_in(await shop(), issuer)
    fields = filled(parse((await browser.open("/-/pages/edit/notes/1")).body), a_title="typed")
    issuer.end("ann")
    clock.seconds = 601
    answer = await browser.post("/-/pages/edit/notes/1", fields)
    assert answer.status == 401
    page = parse(answer.body)
    assert "typed" in [one.text for one in page.all("textarea")]
    assert page.one("a", target="_blank")["href"].startswith(f"{PUBLIC}/-/pages/sign-in?to=")


async def test_files_of_pages_have_no_cookies(shop: Shop, issuer: SignInIssuer, clock: Clock) -> None:
    browser = await sign_in(await shop(), issuer)
    clock.seconds = 601
    answer = await browser.fetch("/-/pages/pages.css")
    assert (answer.status, browser.set, len(issuer.forms)) == (200, [], 1)


async def test_what_has_not_changed_keeps_the_session(shop: Shop, issuer: SignInIssuer, clock: Clock) -> None:
    browser = await sign_in(await shop(), issuer)
    tag = (await browser.fetch("/notes/1")).headers["ETag"]
    clock.seconds = 601
    answer = await browser.fetch("/notes/1", **{"If-None-Match": tag})
    assert (answer.status, len(browser.set)) == (304, 1)
    clock.seconds = 1202
    assert await titles(browser) == ["of ann", "of bob"]


@pytest.mark.parametrize("path", ["/notes/99", "/notes?sort=x", "/-/docs", "/-/openapi.json", "/"])
async def test_each_answer_keeps_the_session(shop: Shop, issuer: SignInIssuer, clock: Clock, path: str) -> None:
    browser = await sign_in(await shop(), issuer)
    for clock.seconds in (601.0, 1202.0):
        assert (await browser.open(path)).status < 500
        assert (len(browser.set), len(browser.cookies)) == (1, 1)
        assert await titles(browser) == ["of ann", "of bob"]


async def test_streams_keep_the_session(shop: Shop, issuer: SignInIssuer, clock: Clock) -> None:
    browser = await sign_in(await shop(), issuer)
    clock.seconds = 601
    answer = await browser.open("/notes?answerAs=csv")
    assert (answer.status, answer.body.count(b"\n"), len(browser.set)) == (200, 3, 1)


async def test_a_page_without_a_route_offers_no_sign_in_to_who_is_signed_in(shop: Shop, issuer: SignInIssuer) -> None:
    api = await shop()
    link = f"{PUBLIC}/-/pages/sign-in?to=/nothing"
    assert parse((await Browser(api).open("/nothing")).body).one("header").all("a", href=link)
    answer = await (await sign_in(api, issuer)).open("/nothing")
    assert (answer.status, parse(answer.body).one("header").all("a", href=link)) == (404, [])
