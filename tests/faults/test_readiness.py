"""Readiness while PostgreSQL is frozen, dies and comes back."""

from __future__ import annotations

import signal

import asyncpg
import pytest

from server import health
from tests.faults.conftest import Serve, Shop
from tests.http.conftest import Answer
from tests.waiting import until

pytestmark = pytest.mark.alone


def told(answer: Answer) -> tuple[int, str]:
    document = answer.document
    return answer.status, document["errors"][0]["code"] if "errors" in document else document["meta"]["status"]


@pytest.fixture(autouse=True)
def fresh_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each probe sends a ping to PostgreSQL."""
    monkeypatch.setattr(health, "CACHE_SECONDS", 0.0)


async def test_postgresql_is_frozen(shop: Shop, serve_fast: Serve) -> None:
    """The probe fails within a second. The server is ready again when PostgreSQL continues."""
    api = await serve_fast(shop.url)
    assert told(await api.get("/-/ready")) == (200, "ready")
    shop.cluster.freeze()
    try:
        assert told(await api.get("/-/ready")) == (503, "unavailable")
        assert told(await api.get("/-/live")) == (200, "live")
    finally:
        shop.cluster.thaw()
    await until(lambda: api.get("/-/ready"), lambda answer: told(answer) == (200, "ready"))


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["fast", "crash"])
async def test_postgresql_dies_and_comes_back(shop: Shop, serve_fast: Serve, how: signal.Signals) -> None:
    api = await serve_fast(shop.url)
    assert told(await api.get("/-/ready")) == (200, "ready")
    shop.cluster.stop(how)
    assert told(await api.get("/-/ready")) == (503, "unavailable")
    shop.cluster.start()
    await until(lambda: api.get("/-/ready"), lambda answer: told(answer) == (200, "ready"))


async def test_ready_while_other_clients_have_all_connections_of_postgresql(shop: Shop, serve_fast: Serve) -> None:
    """The readiness check gets no connection, but those of the pool still work."""
    api = await serve_fast(shop.url)
    assert (await api.get("/users/1")).status == 200
    others = []
    try:
        while True:
            others.append(await asyncpg.connect(shop.url))
    except asyncpg.TooManyConnectionsError:
        assert told(await api.get("/-/ready")) == (200, "ready")
        assert (await api.get("/users/1")).status == 200
    finally:
        for one in others:
            await one.close()
    assert told(await api.get("/-/ready")) == (200, "ready")
