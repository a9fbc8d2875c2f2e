"""A token is in no log line, trace, metric or answer, and no secret is in the list of processes."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from server.observing.logs import configure_logging
from server.settings import Settings
from tests.http.access.test_authentication import SECRET, open_catalog
from tests.http.conftest import Api, Start
from tests.issuer import AUDIENCE, CLIENT, INTROSPECTION, Issuer, claims, encoded, private_key, signed
from waterspout import CustomHandler


class Failing(CustomHandler):
    """Custom code with a fault while the token is in its variables."""

    async def get(self) -> None:
        token = self.request.headers["Authorization"]
        raise ValueError("a fault of custom code") if token else AssertionError

    async def post(self) -> None:
        await self.database.write(lambda connection: connection.execute("SELECT 1 / 0"))


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """Yield what all loggers write, at the level debug, and the access log."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr("server.observing.logs.GATHER_SECONDS", 0.0)
    kept = [(logger, logger.level, logger.handlers[:]) for logger in (logging.getLogger(), logging.getLogger("server"))]
    configure_logging(Settings(log_level="debug", log_format="json"))
    yield stream
    for logger, level, handlers in kept:
        logger.setLevel(level)
        logger.handlers[:] = handlers


async def test_a_token_is_shown_nowhere(
    start: Start,
    database_url: str,
    tmp_path: Path,
    written: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exporter = InMemorySpanExporter()
    monkeypatch.setattr("server.observing.tracing.OTLPSpanExporter", lambda: exporter)
    issuer, secret, client_secret = Issuer(), tmp_path / "secret", tmp_path / "client"
    issuer.start()
    secret.write_bytes(SECRET)
    client_secret.write_text("the-secret-of-the-client")
    shared: dict[str, Any] = {
        "tracing": True,
        "log_level": "debug",
        "auth_audience": AUDIENCE,
        "slow_statement_seconds": 0.000001,
        "auth_introspection_url": issuer.url + INTROSPECTION,
        "auth_introspection_client_id": CLIENT,
        "auth_introspection_secret_file": client_secret,
    }
    routes = [("/failing", Failing)]
    by_secret = await start(database_url, open_catalog(), routes, auth_secret_file=secret, **shared)
    by_issuer = await start(database_url, open_catalog(), routes, auth_issuer=issuer.url, **shared)
    unset = await start(database_url, open_catalog(), routes, tracing=True)
    issuer.active["opaque-but-known"] = {"sub": "ann", "aud": AUDIENCE}
    tokens = [
        signed(claims(), SECRET, "HS256"),
        signed(claims(exp=1), SECRET, "HS256"),
        signed(claims(aud="other", iss=issuer.url), private_key("RS256"), header={"kid": "unknown-name-of-a-key"}),
        signed(claims(), private_key("RS256", 1), header={"kid": "one", "typ": "text"}),
        issuer.token(),
        issuer.token(exp=1),
        issuer.token()[:-4] + "AAAA",
        "opaque-but-known",
        "opaque-and-unknown",
        "not~a.token",
        "no-header-of-a-token.no-claims-of-a-token.no-signature",
        f"{encoded({'alg': 'RS256', 'kid': ['no-name-of-a-key']})}.no-claims-of-it.no-signature",
        f"{encoded({'alg': 'no-algorithm'})}.no-claims-of-it.no-signature",
        signed(b"signed-but-no-claims", SECRET, "HS256"),
        "letters*that,a token%has never",
    ]
    answers = await _send_all((by_secret, by_issuer, unset), tokens)
    issuer.answers[INTROSPECTION] = 500
    answers += await _send_all((by_secret, by_issuer), ["opaque-and-down"])
    answers.append((await unset.get("/-/metrics")).body.decode())
    for api in (by_secret, by_issuer, unset):
        tracer = api.app.database.telemetry.tracer
        assert tracer is not None
        tracer.flush()
        api.app.database.telemetry.close()
    spans = "".join(span.to_json() for span in exporter.get_finished_spans())
    shown = {"the log": written.getvalue(), "traces": spans, "answers": "".join(answers)}
    assert "a fault of custom code" in shown["the log"]
    assert "introspection fails" in shown["the log"]
    parts = {part for token in [*tokens, "opaque-and-down"] for part in (token, *token.split(".")[1:]) if len(part) > 8}
    parts |= {
        SECRET.decode(),
        "the-secret-of-the-client",
        "unknown-name-of-a-key",
        "no-algorithm",
        "signed-but-no-claims",
    }
    # No piece of one either.
    parts |= {part[-12:] for part in parts}
    assert [(place, part) for place, text in shown.items() for part in parts if part in text] == []
    await issuer.stop()


async def _send_all(servers: Any, tokens: list[str]) -> list[str]:
    answers = []
    for api in servers:
        for token in tokens:
            for method, path in (("GET", "/users"), ("GET", "/failing"), ("POST", "/failing"), ("GET", "/nothing")):
                answers.append(await _send(api, method, path, token))
    return answers


async def _send(api: Api, method: str, path: str, token: str) -> str:
    body = "{}" if method == "POST" else None
    answer = await api.request(method, path, body=body, headers={"Authorization": f"Bearer {token}"})
    return f"{dict(answer.headers)} {answer.body!r}"
