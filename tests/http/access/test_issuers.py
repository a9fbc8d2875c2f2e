"""The keys of an issuer: discovery, rotation, and issuers that are down, slow or answer with something else."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Iterator
from typing import Any

import pytest
from tornado.ioloop import IOLoop

from querybuild.errors import ApiError
from querybuild.principal import Principal
from server.authentication import fetching, key_source
from server.authentication.files import AuthFiles
from server.authentication.tokens import Tokens
from server.errors import AuthUnavailable, InvalidToken
from server.settings import Settings
from tests.issuer import AUDIENCE, DISCOVERY, KEYS, Issuer, claims, private_key, signed
from tests.waiting import until

OAUTH = "/.well-known/oauth-authorization-server"


class Trusting:
    """The tokens of an issuer, as a worker has them. start: begins the work in the background."""

    def __init__(self) -> None:
        self.issuer = Issuer()
        self.tokens: Tokens
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, **settings: Any) -> None:
        given = {"auth_issuer": self.issuer.url, "auth_audience": AUDIENCE} | settings
        self.tokens = Tokens(Settings(**given), AuthFiles())
        self._tasks += [asyncio.ensure_future(work()) for _, work in self.tokens.tasks]

    async def find(self, token: str) -> Principal:
        found = self.tokens.principal_of(token)
        return found if isinstance(found, Principal) else await found

    async def is_ready(self) -> bool:
        try:
            self.tokens.check_ready()
        except AuthUnavailable:
            return False
        return True

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self.tokens.close()
        await self.issuer.stop()


@pytest.fixture
def trusting(io_loop: IOLoop) -> Iterator[Trusting]:
    trusting = Trusting()

    async def begin() -> None:
        trusting.issuer.start()

    io_loop.run_sync(begin)
    yield trusting
    io_loop.run_sync(trusting.stop)


async def refused(trusting: Trusting, token: str) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await trusting.find(token)
    return caught.value


async def test_keys_are_found_by_discovery(trusting: Trusting) -> None:
    trusting.start()
    await until(trusting.is_ready)
    principal = await trusting.find(trusting.issuer.token())
    assert (principal.subject, principal.issuer) == ("ann", trusting.issuer.url)
    assert trusting.issuer.asked == {DISCOVERY: 1, KEYS: 1}


async def test_discovery_falls_back_to_rfc_8414(trusting: Trusting) -> None:
    issuer = trusting.issuer
    issuer.answers = {DISCOVERY: 404, OAUTH: issuer.document(DISCOVERY)}
    trusting.start()
    assert (await trusting.find(issuer.token())).subject == "ann"
    assert issuer.asked == {DISCOVERY: 1, OAUTH: 1, KEYS: 1}


async def test_the_first_request_waits_for_the_first_keys(trusting: Trusting) -> None:
    trusting.start()
    assert not await trusting.is_ready()
    tokens = [trusting.issuer.token(sub=f"user {number}") for number in range(20)]
    found = await asyncio.gather(*map(trusting.find, tokens))
    assert [principal.subject for principal in found] == [f"user {number}" for number in range(20)]
    assert trusting.issuer.asked[KEYS] == 1


async def test_a_verified_token_is_not_verified_again(trusting: Trusting, monkeypatch: pytest.MonkeyPatch) -> None:
    trusting.start()
    token = trusting.issuer.token()
    first = await trusting.find(token)
    monkeypatch.setattr("server.authentication.jwts.JwtVerifier.verify", None)
    assert trusting.tokens.principal_of(token) is first


async def test_rotation(trusting: Trusting, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token with a new key asks for the keys again. A key that is withdrawn is not used any more."""
    monkeypatch.setattr(key_source, "ASK_SECONDS", 0.0)
    trusting.start()
    issuer = trusting.issuer
    old = issuer.token()
    await trusting.find(old)
    issuer.keys["two"] = ("ES256", private_key("ES256"))
    found = await asyncio.gather(*[trusting.find(issuer.token("two", sub=str(number))) for number in range(10)])
    assert [principal.subject for principal in found] == list("0123456789")
    assert issuer.asked[KEYS] == 2
    await trusting.find(old)
    del issuer.keys["one"]
    issuer.keys["three"] = ("EdDSA", private_key("EdDSA"))
    await trusting.find(issuer.token("three"))
    error = await refused(trusting, old)
    assert (type(error), error.detail) == (InvalidToken, "The issuer has no key for this token.")


async def test_unknown_keys_cause_one_fetch_in_ten_seconds(trusting: Trusting) -> None:
    trusting.start()
    await until(trusting.is_ready)
    trusting.issuer.asked.clear()
    key, usual = private_key("RS256", 1), claims(iss=trusting.issuer.url)
    for number in range(300):
        error = await refused(trusting, signed(usual, key, header={"kid": f"unknown {number}"}))
        assert error.detail == "The issuer has no key for this token."
    assert trusting.issuer.asked == {}
    # The time since the last fetch is over.
    source: Any = trusting.tokens._source
    source._begun_at -= key_source.ASK_SECONDS
    await asyncio.gather(
        *[refused(trusting, signed(usual, key, header={"kid": f"other {number}"})) for number in range(300)]
    )
    assert trusting.issuer.asked == {DISCOVERY: 1, KEYS: 1}


async def test_few_requests_wait_for_a_slow_issuer(trusting: Trusting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_source, "MAX_WAITING", 5)
    trusting.start()
    await until(trusting.is_ready)
    answered = asyncio.Event()
    trusting.issuer.answers[DISCOVERY] = lambda _: answered.wait()
    source: Any = trusting.tokens._source
    source._begun_at -= key_source.ASK_SECONDS
    key = private_key("RS256", 1)
    asked = [asyncio.ensure_future(refused(trusting, signed(claims(), key, header={"kid": str(n)}))) for n in range(20)]
    await until(lambda: _done(asked, 15))
    answered.set()
    await asyncio.gather(*asked)


async def _done(tasks: list[asyncio.Future[Any]], count: int) -> bool:
    return sum(task.done() for task in tasks) == count


async def test_known_keys_stay_in_use_while_the_issuer_is_away(
    trusting: Trusting, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusting.start(auth_keys_hours=2.0)
    await until(trusting.is_ready)
    await trusting.issuer.stop()
    source: Any = trusting.tokens._source
    source._begun_at -= key_source.ASK_SECONDS
    await source.ask()
    known, later = trusting.issuer.token(), trusting.issuer.token(sub="later")
    assert (await trusting.find(known)).subject == "ann"
    source._fetched_at -= 2 * 3600
    assert isinstance(await refused(trusting, later), AuthUnavailable)
    assert not await trusting.is_ready()
    assert isinstance(await refused(trusting, known), AuthUnavailable)
    trusting.issuer.start()
    source._begun_at -= key_source.ASK_SECONDS
    assert (await trusting.find(later)).subject == "later"


def huge(_: Any) -> bytes:
    return b'{"keys": [' + b" " * (fetching.MAX_BODY_BYTES + 1)


def redirect(handler: Any) -> int:
    handler.set_header("Location", "http://127.0.0.1:1/keys")
    return 302


def endless(handler: Any) -> Awaitable[None]:
    return asyncio.sleep(60)


def no_http(handler: Any) -> None:
    handler._auto_finish = False
    stream = handler.detach()
    stream.write(b"\x16\x03\x01 this is not HTTP\r\n\r\n")
    stream.close()


def half(handler: Any) -> None:
    handler.set_header("Content-Length", "1000")
    handler.write(b"{")
    handler.flush()
    handler._auto_finish = False
    handler.request.connection.stream.close()


def without_usable_keys(_: Any) -> bytes:
    return json.dumps(
        {
            "keys": [
                {"kty": "oct", "k": "c2VjcmV0", "kid": "one"},
                {"kty": "RSA", "n": "AQ", "e": "AQAB"},
                {"kty": "OKP"},
            ]
        }
    ).encode()


FAULTS: list[tuple[str, str, Any, str]] = [
    ("an error", DISCOVERY, 500, "answered 500"),
    ("nothing there", DISCOVERY, 404, "answered 404"),
    ("no JSON", DISCOVERY, b"<html>", "is not the description of an issuer"),
    (
        "another issuer",
        DISCOVERY,
        b'{"issuer":"https://evil.example","jwks_uri":"https://evil.example/keys"}',
        "about the issuer",
    ),
    ("nested", DISCOVERY, b"[" * 100_000, "is not the description of an issuer"),
    ("a redirect", DISCOVERY, redirect, "redirects are not followed"),
    ("a redirect of the keys", KEYS, redirect, "redirects are not followed"),
    ("a huge answer", KEYS, huge, "closed the connection, or its answer is over"),
    ("no key set", KEYS, b'{"keys": {}}', "is not a JSON Web Key Set"),
    ("bytes", KEYS, b"\xff\xfe\x00", "is not a JSON Web Key Set"),
    ("no HTTP", DISCOVERY, no_http, "127.0.0.1"),
    ("half of an answer", KEYS, half, "127.0.0.1"),
    ("too slow", KEYS, endless, "did not answer within"),
]


@pytest.mark.parametrize(("path", "answer", "reason"), [row[1:] for row in FAULTS], ids=[row[0] for row in FAULTS])
async def test_an_issuer_that_answers_something_else(
    trusting: Trusting,
    path: str,
    answer: Any,
    reason: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody is let in, and the log says why, once."""
    monkeypatch.setattr(fetching, "FETCH_SECONDS", 0.3)
    monkeypatch.setattr(key_source, "RETRY_SECONDS", (0.01, 0.01))
    trusting.issuer.answers[path] = answer
    token = trusting.issuer.token()
    with caplog.at_level(logging.ERROR, "server"):
        trusting.start()
        assert isinstance(await refused(trusting, token), AuthUnavailable)
        await until(lambda: _asked(trusting.issuer, path, 3))
    assert not await trusting.is_ready()
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("no keys from the issuer: ")
    assert reason in line
    # As soon as the issuer works again, so does the server.
    trusting.issuer.answers.clear()
    await until(trusting.is_ready)
    assert (await trusting.find(token)).subject == "ann"


@pytest.mark.parametrize("answer", [b'{"keys": []}', None], ids=["none", "none usable"])
async def test_withdrawn_keys(
    trusting: Trusting, answer: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An issuer that publishes no keys has withdrawn them: it is not away."""
    monkeypatch.setattr(key_source, "REFRESH_SECONDS", 0.01)
    monkeypatch.setattr(key_source, "ASK_SECONDS", 0.0)
    token = trusting.issuer.token()
    trusting.start()
    await until(trusting.is_ready)
    assert (await trusting.find(token)).subject == "ann"
    trusting.issuer.answers[KEYS] = answer or without_usable_keys
    with caplog.at_level(logging.ERROR, "server"):
        await until(lambda: _is_refused(trusting, token))
    assert isinstance(await refused(trusting, token), InvalidToken)
    said = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert said == ["the issuer has no usable keys"]
    trusting.issuer.answers.clear()
    assert (await trusting.find(token)).subject == "ann"


async def _is_refused(trusting: Trusting, token: str) -> bool:
    try:
        await trusting.find(token)
    except InvalidToken:
        return True
    return False


async def _asked(issuer: Issuer, path: str, count: int) -> bool:
    return issuer.asked[path] >= count


async def test_the_keys_of_a_document_must_be_at_https(trusting: Trusting, caplog: pytest.LogCaptureFixture) -> None:
    for url in ("http://192.0.2.1/keys", "file:///etc/passwd", "ftp://127.0.0.1/keys", "javascript:alert(1)", ""):
        document = {"issuer": trusting.issuer.url, "jwks_uri": url}
        trusting.issuer.answers[DISCOVERY] = json.dumps(document).encode()
        trusting.start()
        assert isinstance(await refused(trusting, trusting.issuer.token()), AuthUnavailable)
        assert f"{url} is not https" in caplog.text
        caplog.clear()


async def test_keys_have_the_algorithms_of_their_type(trusting: Trusting) -> None:
    """An ES256 key signs no RS256, whatever the set says of it."""
    issuer = trusting.issuer
    issuer.keys = {"one": ("RS256", private_key("ES256")), "two": ("PS256", private_key("RS256"))}
    trusting.start()
    await until(trusting.is_ready)
    usual = claims(iss=issuer.url)
    assert await refused(trusting, signed(usual, private_key("ES256"), "ES256", {"kid": "one"}))
    assert await refused(trusting, signed(usual, private_key("RS256"), "RS256", {"kid": "two"}))
    assert (await trusting.find(signed(usual, private_key("RS256"), "PS256", {"kid": "two"}))).subject == "ann"
