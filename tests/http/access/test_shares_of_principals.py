"""The shares of clients that are signed in: a client is a subject, and not an address."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from querybuild.principal import ANONYMOUS, Principal
from server.http.request import Request
from server.resources import built_in
from tests.http.conftest import MEDIA_TYPE, Answer, Api, Start
from tests.http.running.test_limits import GROUP, PROXIED, TOO_MANY, client, holder, until_waiting
from tests.http.streams import create_many, reading
from tests.principals import authenticate_by
from tests.waiting import until

ISSUER = "https://login.example.org"


def authenticate(request: Request) -> Principal:
    """Return the subject that a header names."""
    subject = request.headers.get("X-Subject")
    issuer = request.headers.get("X-Issuer", ISSUER)
    return ANONYMOUS if subject is None else Principal(subject=subject, issuer=issuer)


async def started(start: Start, url: str, **settings: Any) -> Api:
    api = await start(url, built_in(), **settings, **PROXIED)
    authenticate_by(api.app.engine, authenticate)
    return api


def signed_in(subject: str, number: int = 1, **headers: str) -> dict[str, str]:
    """Return the headers of a request of this subject from this address."""
    return {"X-Subject": subject, **client(number), **headers}


def is_refused(answer: Answer) -> bool:
    return (answer.status, answer.errors, answer.headers["Retry-After"]) == (429, [TOO_MANY], "1")


@pytest.mark.parametrize(
    "neighbour",
    [signed_in("ben"), client(1), signed_in("ann", **{"X-Issuer": "https://other.example.org"})],
    ids=["another subject", "nobody", "the same subject of another issuer"],
)
async def test_a_subject_does_not_use_the_share_of_its_neighbours(
    start: Start, database_url: str, neighbour: dict[str, str]
) -> None:
    """All have one address."""
    api = await started(start, database_url, pool_size=4, acquire_timeout_seconds=0.3)
    async with holder(api) as watcher:
        asked = [asyncio.ensure_future(api.get("/groups", **signed_in("ann"))) for _ in range(2)]
        await until_waiting(watcher, 2)
        assert is_refused(await api.get("/users", **signed_in("ann")))
        assert (await api.get("/users", **neighbour)).status == 200
    assert [answer.status for answer in await asyncio.gather(*asked)] == [200] * 2


async def test_a_subject_with_many_addresses_has_one_share(start: Start, database_url: str) -> None:
    api = await started(start, database_url, pool_size=4, acquire_timeout_seconds=0.3)
    async with holder(api) as watcher:
        asked = [asyncio.ensure_future(api.get("/groups", **signed_in("ann", number))) for number in (1, 2)]
        await until_waiting(watcher, 2)
        assert is_refused(await api.get("/users", **signed_in("ann", 3)))
        # The address is not what was used up.
        assert (await api.get("/users", **client(1))).status == 200
    assert [answer.status for answer in await asyncio.gather(*asked)] == [200] * 2
    assert (await api.get("/users", **signed_in("ann", 3))).status == 200


async def test_the_requests_in_progress_of_a_subject(start: Start, database_url: str) -> None:
    """Half of max_requests. A further request is refused at once, also one with a body, and from another address."""
    api = await started(start, database_url, max_requests=7, pool_size=2)
    async with holder(api) as watcher:
        asked = [asyncio.ensure_future(api.get("/groups", **signed_in("ann", number))) for number in (1, 1, 2)]
        await until_waiting(watcher, 1)
        await until(lambda: api.app.running.at_work, lambda found: found == 3)
        assert is_refused(await api.get("/users", **signed_in("ann", 3)))
        headers = {"Content-Type": MEDIA_TYPE, **signed_in("ann", 3)}
        assert is_refused(await api.request("POST", "/users", headers=headers, body=GROUP))
        for other in (signed_in("ben"), client(1)):
            assert (await api.get("/users", **other)).status == 200
    assert [answer.status for answer in await asyncio.gather(*asked)] == [200] * 3
    assert api.app.running._at_work_by_client == {}


async def test_others_at_an_address_do_not_lock_a_subject_out(start: Start, database_url: str) -> None:
    """The address has half of max_requests in progress without a token. Who is known by a token is answered."""
    api = await started(start, database_url, max_requests=7, pool_size=4)
    async with holder(api):
        asked = [asyncio.ensure_future(api.get("/groups", **client(1))) for _ in range(3)]
        await until(lambda: api.app.running.at_work, lambda found: found == 3)
        for refused in (client(1), signed_in("")):
            assert is_refused(await api.get("/users", **refused))
        assert (await api.get("/users", **signed_in("ann"))).status == 200
        headers = {"Content-Type": MEDIA_TYPE, **signed_in("ann")}
        assert (await api.request("POST", "/users", headers=headers, body=b"{}")).status == 422
    assert [answer.status for answer in await asyncio.gather(*asked)] == [200] * 3
    assert api.app.running._at_work_by_client == {}


async def test_metrics_do_not_count_for_the_principal(start: Start, database_url: str) -> None:
    """An operator who has used up the share still sees why."""
    api = await started(start, database_url, max_requests=7, pool_size=4, auth_admin="operator")
    operator = Principal(subject="ann", issuer=ISSUER, roles=frozenset({"operator"}))
    authenticate_by(api.app.engine, lambda _: operator)
    api.app.engine.has_authentication = True
    async with holder(api):
        asked = [asyncio.ensure_future(api.get("/groups")) for _ in range(3)]
        await until(lambda: api.app.running.at_work, lambda found: found == 3)
        assert is_refused(await api.get("/users"))
        assert (await api.get("/-/metrics")).status == 200
    assert [answer.status for answer in await asyncio.gather(*asked)] == [200] * 3
    assert api.app.running._at_work_by_client == {}


async def test_a_token_that_takes_long_to_verify_counts_for_its_address(start: Start, database_url: str) -> None:
    """Otherwise invented tokens could fill the server."""
    api = await started(start, database_url, max_requests=7, pool_size=4)
    is_verified = asyncio.Event()

    async def verify(request: Request) -> Principal:
        await is_verified.wait()
        return authenticate(request)

    authenticate_by(api.app.engine, verify)
    asked = [asyncio.ensure_future(api.get("/users", **signed_in(name))) for name in ("ann", "ben", "cyd")]
    await until(lambda: api.app.running.at_work, lambda found: found == 3)
    assert is_refused(await api.get("/users", **signed_in("dan")))
    is_verified.set()
    assert [answer.status for answer in await asyncio.gather(*asked)] == [200] * 3
    assert api.app.running._at_work_by_client == {}


async def test_the_streams_of_a_subject(start: Start, database_url: str) -> None:
    """Half of max_streams, from all its addresses together."""
    api = await started(start, database_url, max_streams=2, acquire_timeout_seconds=0.3)
    await create_many(api, 20_000)
    path = "/users?page[size]=0"
    async with reading(api.port) as first:
        assert (await first.ask(path, "GET", "1.1", "X-Subject: ann", "X-Forwarded-For: 10.0.0.1"))[0] == 200
        await until(lambda: api.app.running.streams, lambda found: found == 1)
        assert is_refused(await api.get(path, **signed_in("ann", 2)))
        assert (await api.get(path, **signed_in("ben", 1))).status == 200
