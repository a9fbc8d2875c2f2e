"""Limits of requests: how many are in progress, how long one takes, how long its body takes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from server.handlers import base, received_body
from server.limits import bodies
from server.resources import built_in
from tests.http.conftest import MEDIA_TYPE, Answer, Api, Start
from tests.http.expected import error
from tests.http.operating import EXTENDED, add, at_work, session, until_at_rest
from tests.http.streams import create_many, reading
from tests.http.wire import Wire, connected
from tests.waiting import until
from waterspout import CustomHandler

LIMIT_SECONDS = 0.3
GROUP = json.dumps({"data": {"type": "group", "attributes": {"name": "rowers"}}}).encode()
POST = ("POST /groups HTTP/1.1", f"Content-Type: {MEDIA_TYPE}")

OVERLOADED = error(503, "overloaded", "Overloaded", "The server has too many requests in progress; try again.")
TOO_MANY = error(
    429,
    "too_many_requests",
    "Too Many Requests",
    "This client has too many requests in progress; wait for their answers, and try again.",
)
TOO_LONG = error(504, "request_timeout", "Request Timeout", "The request took too long.")
UNKNOWN = error(503, "outcome_unknown", "Outcome Unknown", "The write took too long. Check whether it was done.")
NO_ROOM = error(503, "overloaded", "Overloaded", "The server has no memory left for the bodies of requests; try again.")
HALF = error(408, "body_timeout", "Body Timeout", "The body of the request took too long to arrive.")


@asynccontextmanager
async def holder(api: Api, statement: str = "LOCK TABLE groups") -> AsyncIterator[Any]:
    """Hold a transaction of another client open. Yields a connection for tests."""
    async with session(api) as connection, session(api) as watcher, connection.transaction():
        await connection.execute(statement)
        yield watcher


async def until_waiting(watcher: Any, count: int) -> None:
    """Wait until this many statements of the server wait for a lock."""
    statement = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name = 'waterspout' AND wait_event_type = 'Lock'"
    )
    await until(lambda: watcher.fetchval(statement), lambda found: found == count)


async def at_rest(api: Api) -> None:
    """Wait until no statement, transaction or lock of the server is left."""
    async with session(api) as watcher:
        await until_at_rest(watcher)


# how many


def client(number: int) -> dict[str, str]:
    """Return the header of a trusted proxy for a request of this client."""
    return {"X-Forwarded-For": f"10.0.0.{number}"}


PROXIED = {"trusted_proxies": "127.0.0.1"}


@pytest.mark.parametrize(("settings", "most"), [({"max_requests": 2}, 2), ({"max_requests": 9, "workers": 4}, 2)])
async def test_the_limit_of_requests_in_progress(
    start: Start, database_url: str, settings: dict[str, Any], most: int
) -> None:
    """Another one is refused before its body is read. Health still answers. Afterwards there is room again."""
    api = await start(database_url, built_in(), **settings, **PROXIED)
    async with holder(api) as watcher:
        asked = [asyncio.ensure_future(api.get("/groups", **client(number))) for number in range(most)]
        await until_waiting(watcher, most)
        async with connected(api.port) as wire:
            await wire.send(*POST, "Content-Length: 3000000", body=GROUP[:9])
            refused = await wire.answer()
        assert (refused.status, refused.errors, refused.headers["Retry-After"]) == (503, [OVERLOADED], "1")
        assert (await api.get("/nothing")).errors == [OVERLOADED]
        assert [(await api.get(path)).status for path in ("/-/live", "/-/ready")] == [200, 200]
    assert [answer.status for answer in await asyncio.gather(*asked)] == [200] * most
    assert (await api.get("/nothing")).status == 404


async def test_one_client_has_half_of_the_requests_in_progress(start: Start, database_url: str) -> None:
    """Another request of this client is refused at once; other clients are answered."""
    api = await start(database_url, built_in(), max_requests=7, pool_size=2, **PROXIED)
    async with holder(api) as watcher:
        asked = [asyncio.ensure_future(api.get("/groups", **client(1))) for _ in range(3)]
        await until_waiting(watcher, 1)
        await until(lambda: api.app.running.at_work, lambda found: found == 3)
        refused = await api.get("/users", **client(1))
        assert (refused.status, refused.errors, refused.headers["Retry-After"]) == (429, [TOO_MANY], "1")
        assert (await api.get("/users", **client(2))).status == 200
    assert [answer.status for answer in await asyncio.gather(*asked)] == [200] * 3
    assert (await api.get("/users", **client(1))).status == 200


# connections of clients


@pytest.mark.parametrize(
    ("settings", "share"),
    [
        ({"pool_size": 1}, 1),
        ({"pool_size": 4}, 2),
        ({"pool_size": 5}, 3),
        ({"pool_size": 4, "max_requests_per_client": 3}, 3),
        ({"pool_size": 4, "max_requests_per_client": 3, "workers": 3}, 1),
        ({"pool_size": 2, "max_requests_per_client": 99}, 2),
    ],
)
async def test_one_client_holds_its_share_of_the_pool(
    start: Start, database_url: str, settings: dict[str, Any], share: int
) -> None:
    """Its further requests wait, and are answered."""
    api = await start(database_url, built_in(), **settings, **PROXIED)
    async with holder(api) as watcher:
        asked = [asyncio.ensure_future(api.get("/groups", **client(1))) for _ in range(share + 3)]
        await until(lambda: api.app.database.pool_figures().waiting, lambda found: found == 3)
        await until_waiting(watcher, share)
        if share < settings["pool_size"]:
            assert (await api.get("/users", **client(2))).status == 200
    assert [answer.status for answer in await asyncio.gather(*asked)] == [200] * (share + 3)


async def test_a_client_that_waits_for_its_own_share_gets_429(start: Start, database_url: str) -> None:
    """A 429 for the client that has its share. A 503 for a client that has not, if the pool is empty."""
    api = await start(database_url, built_in(), pool_size=2, acquire_timeout_seconds=0.2, **PROXIED)
    async with holder(api) as watcher:
        asked = [asyncio.ensure_future(api.get("/groups", **client(number))) for number in (1, 2)]
        await until_waiting(watcher, 2)
        refused, busy = await api.get("/users", **client(1)), await api.get("/users", **client(3))
        assert (refused.status, refused.errors, refused.headers["Retry-After"]) == (429, [TOO_MANY], "1")
        assert (busy.status, busy.errors[0]["code"]) == (503, "busy")
    assert [answer.status for answer in await asyncio.gather(*asked)] == [200] * 2


async def test_operations_of_a_client_that_holds_its_share(start: Start, database_url: str) -> None:
    """The same document with and without the extension."""
    api = await start(database_url, built_in(), pool_size=2, acquire_timeout_seconds=0.1, **PROXIED)
    async with holder(api) as watcher:
        asked = asyncio.ensure_future(api.get("/groups", **client(1)))
        await until_waiting(watcher, 1)
        for media_type in (MEDIA_TYPE, EXTENDED):
            refused = await api.request(
                "POST",
                "/operations",
                {"atomic:operations": [add("person", {"name": "x"})]},
                headers={"Content-Type": media_type, **client(1)},
            )
            assert (refused.status, refused.errors, refused.headers["Retry-After"]) == (429, [TOO_MANY], "1")
    assert (await asked).status == 200


async def test_many_short_reads_of_one_client_are_never_refused(start: Start, database_url: str) -> None:
    """They wait for each other, and acquire_timeout_seconds does not apply."""
    api = await start(database_url, built_in(), pool_size=4, acquire_timeout_seconds=1.0)
    answers = await asyncio.gather(*(api.get("/groups") for _ in range(300)))
    assert {answer.status for answer in answers} == {200}
    assert [share.held for share in api.app.database.pool._turns._shares.values()] == [0]


async def test_a_request_that_waits_for_its_client_is_not_in_progress(start: Start, database_url: str) -> None:
    """An incomplete body, and an answer that is not read. Otherwise a few slow clients would lock out all others."""
    api = await start(database_url, built_in(), max_requests=1)
    await create_photos(api, 8)
    async with connected(api.port) as half, reading(api.port) as unread:
        await half.send(*POST, f"Content-Length: {len(GROUP)}", "Expect: 100-continue")
        assert (await half.answer()).status == 100
        assert (await unread.ask("/photos"))[0] == 200
        assert (await api.get("/groups")).status == 200
        await half.send_bytes(GROUP)
        assert (await half.answer()).status == 201
    assert (await api.get("/groups")).status == 200


async def test_a_request_whose_client_has_gone_is_not_in_progress(start: Start, database_url: str) -> None:
    api = await start(database_url, built_in(), max_requests=1)
    async with holder(api) as watcher:
        async with connected(api.port) as wire:
            await wire.send("GET /groups HTTP/1.1")
            await until_waiting(watcher, 1)
        await until_waiting(watcher, 0)
        await until(lambda: api.get("/nothing"), lambda answer: answer.status != 503)


async def create_photos(api: Api, megabytes: int) -> None:
    await api.sql(
        "INSERT INTO photos (name, meta) SELECT 'n', jsonb_build_object('w', repeat('x', 1000000))"
        " FROM generate_series(1, $1::int)",
        megabytes,
    )


# how long


async def test_the_timeout_of_a_read(start: Start, database_url: str) -> None:
    api = await start(database_url, built_in(), request_timeout_seconds=LIMIT_SECONDS)
    async with holder(api) as watcher:
        begin = asyncio.get_running_loop().time()
        answer = await api.get("/groups")
        taken = asyncio.get_running_loop().time() - begin
        assert (answer.status, answer.errors) == (504, [TOO_LONG])
        assert LIMIT_SECONDS <= taken < LIMIT_SECONDS + base.GRACE_SECONDS
        await until_waiting(watcher, 0)
        assert await at_work(watcher) == []
    assert (await api.get("/groups")).status == 200


LINKED = [{"type": "computer", "id": "1"}, {"type": "computer", "id": "2"}]
USER = {"data": {"type": "user", "id": "1", "relationships": {"computers": {"data": LINKED}}}}
"""Written in a transaction of several round trips."""


async def test_the_timeout_of_a_transaction(start: Start, database_url: str) -> None:
    """It is rolled back, so the answer can say that nothing was written."""
    api = await start(database_url, built_in(), request_timeout_seconds=LIMIT_SECONDS)
    await create_many(api, 2, 2)
    async with holder(api, "LOCK TABLE computers"):
        answer = await api.patch("/users/1", USER)
        assert (answer.status, answer.errors) == (504, [TOO_LONG])
        await at_rest(api)
    assert len((await api.get("/users/1/relationships/computers")).document["data"]) == 1


async def test_the_timeout_of_a_write_of_one_statement(start: Start, database_url: str) -> None:
    """PostgreSQL may have committed it before it is cancelled."""
    api = await start(database_url, built_in(), request_timeout_seconds=LIMIT_SECONDS)
    async with holder(api):
        answer = await api.request("POST", "/groups", body=GROUP, headers={"Content-Type": MEDIA_TYPE})
        assert (answer.status, answer.errors) == (503, [UNKNOWN])
        assert "Retry-After" not in answer.headers
        await at_rest(api)
    assert (await api.get("/groups")).document["data"] == []


SLOW_COMMIT = """
    CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep({seconds}); RETURN NULL; END';
    CREATE CONSTRAINT TRIGGER slow AFTER UPDATE ON computers DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW WHEN (NEW.id = 1) EXECUTE FUNCTION slow()
"""


async def link_with_a_slow_commit(api: Api, seconds: float) -> Answer:
    await create_many(api, 2, 2)
    for statement in SLOW_COMMIT.format(seconds=seconds).split(";\n"):
        await api.sql(statement)
    return await api.patch("/users/1", USER)


async def test_a_commit_is_not_cancelled(start: Start, database_url: str) -> None:
    api = await start(database_url, built_in(), request_timeout_seconds=LIMIT_SECONDS)
    answer = await link_with_a_slow_commit(api, 2 * LIMIT_SECONDS)
    assert answer.status == 200
    assert len((await api.get("/users/1/relationships/computers")).document["data"]) == 2


async def test_a_commit_that_does_not_end(start: Start, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server stops waiting, and the answer says that the outcome is unknown."""
    monkeypatch.setattr(base, "GRACE_SECONDS", 0.1)
    api = await start(database_url, built_in(), request_timeout_seconds=LIMIT_SECONDS)
    answer = await link_with_a_slow_commit(api, 5 * LIMIT_SECONDS)
    assert (answer.status, answer.errors, answer.headers["Connection"]) == (503, [UNKNOWN], "close")
    await at_rest(api)
    assert len((await api.get("/users/1/relationships/computers")).document["data"]) == 2


class Hanging(CustomHandler):
    async def get(self) -> None:
        await asyncio.Event().wait()


class Holding(CustomHandler):
    """Waits in the database."""

    async def post(self) -> None:
        async def work(connection: Any) -> None:
            await connection.execute("INSERT INTO groups (name) VALUES ('mine')")
            await connection.execute("SELECT pg_sleep(60)")

        await self.database.write(work)


class Lasting(CustomHandler):
    async def post(self) -> None:
        await self.database.write(lambda connection: connection.execute("INSERT INTO groups (name) VALUES ('mine')"))


CUSTOM: Sequence[tuple[str, type[CustomHandler]]] = [
    ("/-/hanging", Hanging),
    ("/-/holding", Holding),
    ("/-/lasting", Lasting),
]


async def test_the_timeout_of_custom_code(start: Start, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its work in the database is cancelled. Other work continues, but the client is answered."""
    monkeypatch.setattr(base, "GRACE_SECONDS", 0.1)
    api = await start(database_url, built_in(), CUSTOM, request_timeout_seconds=LIMIT_SECONDS)
    hanging = await api.get("/-/hanging")
    assert (hanging.status, hanging.errors, hanging.headers["Connection"]) == (504, [TOO_LONG], "close")
    holding = await api.request("POST", "/-/holding", body=b"")
    assert (holding.status, holding.errors) == (504, [TOO_LONG])
    await at_rest(api)
    assert (await api.get("/groups")).document["data"] == []


async def test_custom_code_outlives_its_client(start: Start, database_url: str) -> None:
    """It may do more than answer."""
    api = await start(database_url, built_in(), CUSTOM)
    async with holder(api) as watcher:
        async with connected(api.port) as wire:
            await wire.send("POST /-/lasting HTTP/1.1", "Content-Length: 0")
            await until_waiting(watcher, 1)
        assert (await api.get("/-/live")).status == 200
    await until(lambda: api.get("/groups"), lambda answer: answer.document["data"])


async def test_a_stream_has_its_own_timeout(start: Start, database_url: str) -> None:
    api = await start(database_url, built_in(), request_timeout_seconds=LIMIT_SECONDS)
    await create_many(api, 30_000)
    async with reading(api.port) as reader:
        assert (await reader.ask("/users?page[size]=0"))[0] == 200
        await late(api)
        body, is_whole = await reader.chunks()
    assert is_whole
    assert json.loads(body)["meta"]["count"] == 30_000


async def late(api: Api) -> None:
    """Wait until a request that began later has timed out."""
    async with holder(api, "LOCK TABLE posts"):
        assert (await api.get("/posts")).status == 504


# bodies


@pytest.mark.parametrize(
    ("framing", "half"),
    [(f"Content-Length: {len(GROUP)}", GROUP[:20]), ("Transfer-Encoding: chunked", b'8\r\n{"data":\r\n')],
)
async def test_the_timeout_of_a_body(start: Start, database_url: str, framing: str, half: bytes) -> None:
    """A document and the end of the connection, however much of the body still arrives."""
    api = await start(database_url, built_in(), body_timeout_seconds=LIMIT_SECONDS)
    async with connected(api.port) as wire:
        await wire.send(*POST, framing, body=half)
        answer = await wire.answer()
        assert (answer.status, answer.errors, answer.headers["Connection"]) == (408, [HALF], "close")
        assert await wire.rest() == b""
    assert (await api.get("/groups")).document["data"] == []


async def test_a_slow_body_times_out(start: Start, database_url: str) -> None:
    api = await start(database_url, built_in(), body_timeout_seconds=LIMIT_SECONDS)
    async with connected(api.port) as wire:
        await wire.send(*POST, "Content-Length: 1000000")
        answered = asyncio.ensure_future(wire.answer())
        while not answered.done():
            await wire.send_bytes(b" ")
            await asyncio.wait([answered], timeout=0.01)
        assert (await answered).errors == [HALF]


async def test_an_ignored_body_has_the_same_timeout(start: Start, database_url: str) -> None:
    api = await start(database_url, built_in(), body_timeout_seconds=LIMIT_SECONDS)
    async with connected(api.port) as wire:
        await wire.send("GET /groups HTTP/1.1", "Content-Length: 9", body=b"x")
        assert (await wire.answer()).errors == [HALF]


async def half_body(stack: AsyncExitStack, api: Api, size: int = 200_000) -> Wire:
    """Return a request of which half of the body has arrived."""
    wire = await stack.enter_async_context(connected(api.port))
    await wire.send(*POST, f"Content-Length: {size}", "Expect: 100-continue")
    assert (await wire.answer()).status == 100
    await wire.send_bytes(b" " * (size // 2))
    return wire


async def test_slow_bodies_are_evicted_to_make_room(
    start: Start, database_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the limit the oldest bodies are evicted when more of another body arrives."""
    monkeypatch.setattr(bodies, "EVICTABLE_AFTER_SECONDS", 0.0)
    api = await start(database_url, built_in(), max_buffered_bytes=250_000)
    async with AsyncExitStack() as stack:
        first, second, third = [await half_body(stack, api) for _ in range(3)]
        assert await first.rest() == b""
        await second.send_bytes(b" " * 100_000)
        assert (await second.answer()).errors[0]["code"] == "malformed_json"
        assert await third.rest() == b""
    assert ["to free the memory" in record.message for record in caplog.records] == [True, True]


async def test_no_room_for_a_body(start: Start, database_url: str) -> None:
    """Young bodies are not evicted: a new body is refused before it is read, or when there is no room left. The body of
    a request in progress is never evicted."""
    api = await start(database_url, built_in(), max_buffered_bytes=250_000)
    async with AsyncExitStack() as stack:
        async with holder(api) as watcher:
            wire = await stack.enter_async_context(connected(api.port))
            await wire.send(*POST, "Content-Length: 200000", body=GROUP + b" " * (200_000 - len(GROUP)))
            await until_waiting(watcher, 1)
            announced = await stack.enter_async_context(connected(api.port))
            await announced.send(*POST, "Content-Length: 60000", "Expect: 100-continue")
            in_chunks = await stack.enter_async_context(connected(api.port))
            await in_chunks.send(*POST, "Transfer-Encoding: chunked", body=b"ea60\r\n" + b" " * 60_000)
            for refused in (await announced.answer(), await in_chunks.answer()):
                assert (refused.status, refused.errors) == (503, [NO_ROOM])
                assert (refused.headers["Retry-After"], refused.headers["Connection"]) == ("1", "close")
            assert await announced.rest() == b""
        assert (await wire.answer()).status == 201
    assert (await api.post("/groups", {"data": {"type": "group", "attributes": {"name": "x" * 2000}}})).status == 201


async def test_a_single_body_has_room(start: Start, database_url: str) -> None:
    api = await start(database_url, built_in(), max_buffered_bytes=1000)
    for _ in range(2):
        await api.create("/photos", "photo", {"name": "x" * 100_000})


async def test_a_body_in_many_pieces(start: Start, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pieces are joined from time to time, to save memory."""
    monkeypatch.setattr(received_body, "MAX_CHUNKS", 2)
    api = await start(database_url, built_in())
    name = "".join(str(number) for number in range(100_000))
    created = await api.create("/photos", "photo", {"name": name})
    assert (await api.get(f"/photos/{created}")).document["data"]["attributes"]["name"] == name


async def test_a_compressed_body(start: Start, database_url: str) -> None:
    api = await start(database_url, built_in())
    headers = {"Content-Type": MEDIA_TYPE, "Content-Encoding": "gzip"}
    answer = await api.request("POST", "/groups", body=GROUP, headers=headers)
    detail = "A body must not be compressed."
    expected = error(415, "unsupported_media_type", "Unsupported Media Type", detail, header="Content-Encoding")
    assert (answer.status, answer.errors) == (415, [expected])
    plain = await api.request("POST", "/groups", body=GROUP, headers={**headers, "Content-Encoding": "identity"})
    assert plain.status == 201
