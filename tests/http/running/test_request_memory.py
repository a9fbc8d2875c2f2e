"""A request that has ended holds no memory. The collector of reference cycles is disabled here, because it counts
objects and not bytes."""

from __future__ import annotations

import gc
import json
import logging
import tracemalloc
import weakref
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec
import pytest

from querybuild.declarations.catalog import Catalog
from server.http.request import HandlerDelegate
from server.http.transport.http1 import ClientConnection
from tests.http.conftest import MEDIA_TYPE, Api, Start
from tests.http.custom import hooked
from tests.http.operating import EXTENDED, add, remove, update
from tests.http.running.test_limits import holder, until_waiting
from tests.http.server_loop import io_loop
from tests.http.streams import small_batches
from tests.http.wire import Wire, connected
from tests.waiting import until
from waterspout import BadRequest, CustomHandler, Hooks

__all__ = ["io_loop", "small_batches"]

TEXT = "x" * 1_000_000 + "\N{GRINNING FACE}"
"""Because of one character beyond the Basic Multilingual Plane, Python stores the whole text with four bytes a
character."""

LEFT_BYTES = 400_000
"""Less than any form of TEXT takes. Each connection to PostgreSQL keeps its last received bytes, up to 256 KiB."""

Alive = weakref.WeakSet[Any]


@pytest.fixture
def alive(monkeypatch: pytest.MonkeyPatch) -> Iterator[Alive]:
    """Yield the objects of requests and connections that still exist."""
    found: Alive = weakref.WeakSet()
    received, made = HandlerDelegate.headers_received, ClientConnection.connection_made

    def headers_received(self: HandlerDelegate, *values: Any) -> Any:
        result = received(self, *values)
        found.update((self, self._request, self._request.connection, self._handler, self._task))
        if self._handler is not None:
            found.add(self._handler.cancel_scope)
        return result

    def connection_made(self: ClientConnection, transport: Any) -> None:
        found.add(self)
        made(self, transport)

    monkeypatch.setattr(HandlerDelegate, "headers_received", headers_received)
    monkeypatch.setattr(ClientConnection, "connection_made", connection_made)
    gc.disable()
    # pytest keeps log records with their tracebacks.
    logging.disable()
    tracemalloc.start()
    yield found
    tracemalloc.stop()
    logging.disable(logging.NOTSET)
    gc.enable()


def large(document: dict[str, Any]) -> bytes:
    """Return a body with members that JSON:API does not define, which are ignored."""
    return json.dumps({**document, "note": TEXT}, ensure_ascii=False).encode()


def data(type_name: str, attributes: Any, **members: Any) -> bytes:
    return large({"data": {"type": type_name, "attributes": attributes, **members}})


def operations(*items: Any) -> bytes:
    return large({"atomic:operations": items})


class Case(msgspec.Struct):
    """status: that of the answer, or 0 if there is none. body: None for no body. is_half: whether the client
    disconnects after half of it."""

    name: str
    status: int
    line: str
    body: bytes | None = None
    media_type: str = MEDIA_TYPE
    headers: tuple[str, ...] = ()
    is_chunked: bool = False
    is_half: bool = False

    async def send(self, wire: Wire) -> None:
        headers, body = list(self.headers), self.body
        if body is not None:
            headers.append(f"Content-Type: {self.media_type}")
            headers.append("Transfer-Encoding: chunked" if self.is_chunked else f"Content-Length: {len(body)}")
        await wire.send(f"{self.line} HTTP/1.1", *headers)
        sent = (body or b"")[: len(body or b"") // 2 if self.is_half else None]
        if self.is_chunked:
            sent = b"%x\r\n%b\r\n" % (len(sent), sent) + (b"" if self.is_half else b"0\r\n\r\n")
        await wire.send_bytes(sent)


class Echo(CustomHandler):
    async def post(self) -> None:
        self.finish({"length": len(self.body)})


class Failing(CustomHandler):
    """Keeps its exception in its frames, as people write it."""

    async def post(self) -> None:
        body, error = self.body, BadRequest("no")
        error.kept = body  # type: ignore[attr-defined]  # custom code may do so
        raise error


class Broken(CustomHandler):
    async def post(self) -> None:
        text = self.body.decode()
        raise RuntimeError(text[:1])


class Swallowing(CustomHandler):
    """A statement fails, and the handler continues."""

    async def post(self) -> None:
        text = self.body.decode()
        try:
            await self.database.write(lambda connection: connection.execute("SELECT 1/0", len(text)))
        except Exception:
            self.finish({"length": len(text)})


ROUTES = [("/echo", Echo), ("/failing", Failing), ("/broken", Broken), ("/swallowing", Swallowing)]


async def _refuse(writing: Any, changes: Any) -> None:
    raise BadRequest("not this one")


async def _look(writing: Any, changes: Any) -> None:
    await writing.connection.fetchval("SELECT 1")


CATALOG: Catalog = hooked(user=Hooks(before_update=_refuse), person=Hooks(before_create=_look, after_create=_look))

USER = {"first_name": "f", "last_name": "l"}

GZIP = ("Accept-Encoding: gzip",)

CASES = [
    Case("a list", 200, "GET /groups"),
    Case("all rows as a stream", 200, "GET /groups?page[size]=0"),
    Case("all rows as a stream that is compressed", 200, "GET /groups?page[size]=0", headers=GZIP),
    Case("one that is not there", 404, "GET /groups/99"),
    Case("no route", 404, "GET /nothing"),
    Case("a filter that is wrong", 400, "GET /groups?filter=x"),
    Case("two parameters that are wrong", 400, "GET /groups?filter=x&sort=y"),
    Case("options", 204, "OPTIONS /groups"),
    Case("a create", 201, "POST /photos", data("photo", {"name": "new"})),
    Case("a create in chunks", 201, "POST /photos", data("photo", {"name": "new"}), is_chunked=True),
    Case(
        "a create of a large value",
        201,
        "POST /posts",
        data("post", {"title": "t", "body": TEXT}, relationships={"user": {"data": {"type": "user", "id": "1"}}}),
    ),
    Case(
        "a create whose answer is compressed",
        201,
        "POST /posts",
        data("post", {"title": "t", "body": TEXT}, relationships={"user": {"data": {"type": "user", "id": "1"}}}),
        headers=GZIP,
    ),
    Case("a create with hooks", 201, "POST /persons", data("person", {"name": "new"})),
    Case("a create whose answer cannot be made", 400, "POST /photos?include=x", data("photo", {"name": "new"})),
    Case("two faults, one of the query string", 400, "POST /groups?include=x", data("group", {"name": 5})),
    Case("no route for a body", 404, "POST /nothing", data("photo", {"name": "new"})),
    Case("a create below nothing", 404, "POST /groups/99/users", data("user", USER)),
    Case("an update of nothing", 404, "PATCH /groups/99", data("group", {"name": "new"}, id="99")),
    Case(
        "linkage to nothing",
        404,
        "PATCH /posts/1",
        data("post", {}, id="1", relationships={"user": {"data": {"type": "user", "id": "99"}}}),
    ),
    Case("an id that is taken", 409, "POST /persons", data("person", {"name": "n"}, id="1")),
    Case("a value that is wrong", 422, "POST /groups", data("group", {"name": 5})),
    Case(
        "many values that are wrong", 422, "POST /users", data("user", {"first_name": 5, "last_name": 6, "age": TEXT})
    ),
    Case("a value too long", 422, "POST /users", data("user", USER | {"email": TEXT})),
    Case("no JSON", 400, "POST /groups", large({})[:-1]),
    Case("no UTF-8", 400, "POST /groups", large({})[:-9]),
    Case("too large", 413, "POST /groups", b" " * 3_000_000),
    Case("too large in chunks", 413, "POST /groups", b" " * 3_000_000, is_chunked=True),
    Case("another media type", 415, "POST /photos", data("photo", {"name": "new"}), "text/plain"),
    Case("not acceptable", 406, "POST /groups", data("group", {"name": "n"}), headers=(f"Accept: {MEDIA_TYPE};a=b",)),
    Case("a method that is not there", 405, "DELETE /groups", data("group", {"name": "n"})),
    Case("a refusal by a hook", 400, "PATCH /users/1", data("user", {"age": 5}, id="1")),
    Case("a relationship", 200, "POST /groups/1/relationships/users", large({"data": [{"type": "user", "id": "1"}]})),
    Case(
        "a relationship with nothing",
        404,
        "POST /groups/1/relationships/users",
        large({"data": [{"type": "user", "id": "99"}]}),
    ),
    Case("operations", 200, "POST /operations", operations(add("photo", {"name": "o"}))),
    Case("many operations", 200, "POST /operations", operations(*[add("photo", {"name": "o"})] * 20)),
    Case(
        "operations that need a transaction",
        200,
        "POST /operations",
        operations(
            add("photo", {"name": "o"}, lid="a"), update("photo", {"name": "p"}, lid="a"), remove("photo", lid="a")
        ),
    ),
    Case(
        "operations that fail together",
        422,
        "POST /operations",
        operations(*[add("person", {"name": "n"}, id="1")] * 2),
    ),
    Case(
        "many operations that fail", 422, "POST /operations", operations(*[add("person", {"name": "n"}, id="1")] * 20)
    ),
    Case(
        "extended operations that fail",
        409,
        "POST /operations",
        operations(add("person", {"name": "n"}, id="1")),
        EXTENDED,
    ),
    Case("operations on nothing", 422, "POST /operations", operations(update("group", {"name": TEXT}, id="99"))),
    Case("operations that are none", 422, "POST /operations", large({})),
    Case("custom code", 200, "POST /echo", large({})),
    Case("custom code that refuses", 400, "POST /failing", large({})),
    Case("custom code that fails", 500, "POST /broken", large({})),
    Case("custom code whose statement fails", 200, "POST /swallowing", large({})),
    Case("half a body", 0, "POST /groups", data("group", {"name": "n"}), is_half=True),
    Case("half a body in chunks", 0, "POST /groups", data("group", {"name": "n"}), is_chunked=True, is_half=True),
    Case("half a body for custom code", 0, "POST /echo", data("group", {"name": "n"}), is_half=True),
]


async def served(start: Start, url: str, **settings: Any) -> Api:
    options = {"max_body_bytes": 2_500_000, "compression": "gzip", "cors_origins": "*"}
    api = await start(url, CATALOG, ROUTES, **options | settings)
    await api.sql("INSERT INTO groups (name) SELECT 'g' || n FROM generate_series(1, 20) n")
    await api.sql("INSERT INTO users (first_name, last_name) VALUES ('f', 'l')")
    await api.sql("INSERT INTO posts (title, body, user_id) VALUES ('t', 'b', 1)")
    await api.sql("INSERT INTO persons (name) VALUES ('n')")
    return api


async def exchange(case: Case, wire: Wire) -> None:
    await case.send(wire)
    if not case.status:
        return
    answer = await wire.answer()
    assert answer.status == case.status, answer.body
    if "Transfer-Encoding" in answer.headers:
        await wire._reader.readuntil(b"0\r\n\r\n")


def names(alive: Alive) -> list[str]:
    return sorted(type(one).__name__ for one in alive)


async def left_by(work: Callable[[], Awaitable[None]], alive: Alive) -> int:
    """Return the bytes that remain after the second request: the first one fills caches and the pool."""
    await work()
    await until(lambda: names(alive), lambda found: not found)
    before = tracemalloc.get_traced_memory()[0]
    await work()
    await until(lambda: names(alive), lambda found: not found)
    return tracemalloc.get_traced_memory()[0] - before


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_an_ended_request(start: Start, database_url: str, alive: Alive, small_batches: None, case: Case) -> None:
    api = await served(start, database_url)

    async def work() -> None:
        async with connected(api.port) as wire:
            await exchange(case, wire)

    assert await left_by(work, alive) < LEFT_BYTES


KEPT = Case("", 404, "PATCH /groups/99", data("group", {"name": "new"}, id="99"))


async def test_a_kept_connection(start: Start, database_url: str, alive: Alive) -> None:
    """Between two requests it holds only itself."""
    api = await served(start, database_url)
    async with connected(api.port) as wire:
        await exchange(KEPT, wire)
        await until(lambda: names(alive), lambda found: found == ["ClientConnection"])
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(3):
            await exchange(KEPT, wire)
        await until(lambda: names(alive), lambda found: found == ["ClientConnection"])
        assert tracemalloc.get_traced_memory()[0] - before < LEFT_BYTES


SLOW = [
    Case("a list", 0, "GET /groups"),
    Case("a create", 0, "POST /groups", data("group", {"name": "new"})),
    Case("operations", 0, "POST /operations", operations(*[add("group", {"name": "o"})] * 20)),
    Case("a relationship", 0, "POST /groups/1/relationships/users", large({"data": [{"type": "user", "id": "1"}]})),
]


@pytest.mark.parametrize("case", SLOW, ids=lambda case: case.name)
async def test_a_client_that_disconnects(start: Start, database_url: str, alive: Alive, case: Case) -> None:
    """While a statement of its request waits."""
    api = await served(start, database_url)

    async def work() -> None:
        async with holder(api) as watcher:
            async with connected(api.port) as wire:
                await case.send(wire)
                await until_waiting(watcher, 1)
            await until_waiting(watcher, 0)

    assert await left_by(work, alive) < LEFT_BYTES


@pytest.mark.parametrize("case", SLOW, ids=lambda case: case.name)
async def test_a_request_that_times_out(start: Start, database_url: str, alive: Alive, case: Case) -> None:
    api = await served(start, database_url, request_timeout_seconds=0.3)
    timed_out = msgspec.structs.replace(case, status=504)

    async def work() -> None:
        async with holder(api), connected(api.port) as wire:
            await timed_out.send(wire)
            assert (await wire.answer()).status in (503, 504)

    assert await left_by(work, alive) < LEFT_BYTES


@pytest.mark.parametrize("path", ["/groups", "/echo"])
async def test_a_body_that_times_out(start: Start, database_url: str, alive: Alive, path: str) -> None:
    api = await served(start, database_url, body_timeout_seconds=0.3)

    async def work() -> None:
        async with connected(api.port) as wire:
            await Case("", 0, f"POST {path}", data("group", {"name": "new"}), is_half=True).send(wire)
            assert (await wire.answer()).status == 408

    assert await left_by(work, alive) < LEFT_BYTES


async def test_an_incomplete_body_that_cannot_be_read_on(start: Start, database_url: str, alive: Alive) -> None:
    api = await served(start, database_url)

    async def work() -> None:
        async with connected(api.port) as wire:
            await Case("", 0, "POST /groups", large({}), is_chunked=True, is_half=True).send(wire)
            await wire.send_bytes(b"not the length of a chunk\r\n")
            assert (await wire.answer()).status == 400

    assert await left_by(work, alive) < LEFT_BYTES


async def test_a_stream_that_is_not_read(start: Start, database_url: str, alive: Alive) -> None:
    api = await served(start, database_url)
    await api.sql("INSERT INTO photos (name) SELECT repeat('x', 10000) FROM generate_series(1, 2000)")

    async def work() -> None:
        async with connected(api.port) as wire:
            await wire.send("GET /photos?page[size]=0 HTTP/1.1")
            await wire._reader.readexactly(1000)

    assert await left_by(work, alive) < LEFT_BYTES


async def test_retried_writes(start: Start, database_url: str, alive: Alive) -> None:
    api = await served(start, database_url)
    await api.sql(
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION SQLSTATE '40001'; END $$"
    )
    await api.sql("CREATE TRIGGER fail BEFORE INSERT ON photos FOR EACH ROW EXECUTE FUNCTION fail()")
    case = Case("", 503, "POST /photos", data("photo", {"name": TEXT}))
    for one in (
        case,
        msgspec.structs.replace(case, line="POST /operations", body=operations(*[add("photo", {"name": "n"})] * 20)),
    ):

        async def work(one: Case = one) -> None:
            async with connected(api.port) as wire:
                await exchange(one, wire)

        assert await left_by(work, alive) < LEFT_BYTES


async def test_a_request_over_the_limit(start: Start, database_url: str, alive: Alive) -> None:
    api = await served(start, database_url, max_requests=1)

    async def work() -> None:
        async with holder(api) as watcher, connected(api.port) as first, connected(api.port) as wire:
            await SLOW[0].send(first)
            await until_waiting(watcher, 1)
            await exchange(Case("", 503, "POST /groups", data("group", {"name": "new"})), wire)

    assert await left_by(work, alive) < LEFT_BYTES


async def test_a_lost_connection_to_the_database(start: Start, database_url: str, alive: Alive) -> None:
    api = await served(start, database_url)

    async def work() -> None:
        async with holder(api) as watcher, connected(api.port) as wire:
            await SLOW[1].send(wire)
            for _ in range(2):
                await until_waiting(watcher, 1)
                await watcher.execute(
                    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND wait_event_type = 'Lock'"
                )
            assert (await wire.answer()).status == 503

    assert await left_by(work, alive) < LEFT_BYTES
