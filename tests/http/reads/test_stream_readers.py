"""Clients of streams: slow ones, ones that disconnect, several of them, and streams that fail."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psutil  # type: ignore[import-untyped]  # it has no hints of its own
import pytest
from msgspec.structs import replace

from querybuild.declarations.catalog import Catalog
from server.execution import streams
from server.handlers.reading import ReadingHandler
from server.postgres.sharing import stream_slots
from server.processes import worker
from server.resources import built_in
from tests.http.conftest import Api, Start
from tests.http.expected import error
from tests.http.operating import locked
from tests.http.streams import Reader, create_many, reading, small_batches, until_sessions
from tests.ready import announced_address, port_of
from waterspout import INT, Attribute

__all__ = ["small_batches"]

USERS = 30_000
"""More than fit into the buffers on the way."""
PATH = "/users?page[size]=0&include=computers"
IS_IDLE = "bool_and(state = 'idle')"
GROWTH_BYTES = 24 * 2**20
"""The growth of a worker that streams 40 MB. A whole answer would need several times this."""


class Pieces:
    """Counts the batches that the server reads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        following = streams.PartReader.next

        async def counted(reader: streams.PartReader) -> bytes:
            self.count += 1
            return await following(reader)

        monkeypatch.setattr(streams.PartReader, "next", counted)


async def until_stalled(api: Api, pieces: Pieces) -> None:
    """Wait until the server reads no further, even if others send requests."""
    since, seen = 0, -1
    while since < 30:
        assert (await api.get("/groups/1")).status == 200
        since, seen = (since + 1, seen) if pieces.count == seen else (0, pieces.count)


async def test_a_slow_reader(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server waits for it: it reads no further batches, and answers other requests."""
    await create_many(api, USERS)
    pieces = Pieces(monkeypatch)
    async with reading(api.port) as reader:
        assert (await reader.ask("/users?page[size]=0"))[0] == 200
        await until_stalled(api, pieces)
        assert pieces.count < USERS / streams.BATCH_ROWS / 2
        body, is_whole = await reader.chunks()
    assert is_whole
    assert json.loads(body)["meta"]["count"] == USERS
    assert pieces.count > USERS / streams.BATCH_ROWS


async def test_a_reader_that_disconnects(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    await create_many(api, USERS)
    pieces = Pieces(monkeypatch)
    async with reading(api.port) as reader:
        await reader.ask("/users?page[size]=0")
        await until_stalled(api, pieces)
        await until_sessions(api, "bool_or(state = 'idle in transaction')")
        reader.leave()
        await until_sessions(api, IS_IDLE)
    assert pieces.count < USERS / streams.BATCH_ROWS / 2
    assert (await api.get("/users?page[size]=1")).status == 200


async def test_a_reader_that_disconnects_during_a_statement(api: Api, small_batches: None) -> None:
    """The statement is cancelled, and not waited for."""
    await create_many(api, 9, 9)
    async with locked(api, "computers"), reading(api.port) as reader:
        asked = asyncio.ensure_future(reader.ask(PATH))
        await until_sessions(api, "bool_or(wait_event_type = 'Lock')")
        asked.cancel()
        reader.leave()
        await until_sessions(api, IS_IDLE)


async def test_a_stop_during_a_stream_that_is_not_read(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The stream is cut off at the end of the stop. This is not a fault."""
    await create_many(api, USERS)
    pieces = Pieces(monkeypatch)
    monkeypatch.setattr(worker, "FINISH_SECONDS", 0.1)
    async with reading(api.port) as reader:
        await reader.ask("/users?page[size]=0")
        await until_stalled(api, pieces)
        await worker.drain(api.app, [], 0)
        await until_sessions(api, "count(*) = 0")
    assert [record.message for record in caplog.records if record.exc_info] == []
    assert "closed, the server stops" in caplog.text


TOO_MANY = error(
    503, "too_many_streams", "Too Many Streams", "Too many long answers are being sent: ask for pages, or try again."
)


PROXIED = {"trusted_proxies": "127.0.0.1"}


def client(number: int) -> str:
    return f"X-Forwarded-For: 10.0.0.{number}"


async def test_too_many_streams(start: Start, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond max_streams a stream waits as long as for a connection. Other requests are answered."""
    api = await start(database_url, built_in(), max_streams=2, acquire_timeout_seconds=0.1, **PROXIED)
    await create_many(api, USERS)
    pieces = Pieces(monkeypatch)
    async with reading(api.port) as first, reading(api.port) as second:
        for number, reader in enumerate((first, second)):
            assert (await reader.ask("/users?page[size]=0", "GET", "1.1", client(number)))[0] == 200
        await until_stalled(api, pieces)
        refused = await api.get("/users?page[size]=0")
        assert (refused.status, refused.errors, refused.headers["Retry-After"]) == (503, [TOO_MANY], "1")
        own = await api.request("GET", "/users?page[size]=0", headers={"X-Forwarded-For": "10.0.0.0"})
        assert (own.status, own.errors[0]["code"], own.headers["Retry-After"]) == (429, "too_many_requests", "1")
        assert (await api.get("/groups?page[size]=0")).status == 200
        first.leave()
        assert (await api.get("/users?page[size]=0&filter[id][le]=2000")).status == 200


@pytest.mark.parametrize("clients", [(0, 0), (0, 1)])
async def test_a_stalled_stream_is_ended_for_a_waiting_one(
    start: Start,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    clients: tuple[int, int],
) -> None:
    """The stream whose reader has taken nothing for longest is ended: of all streams, or of those of the same client if
    it holds its share."""
    monkeypatch.setattr(stream_slots, "STALLED_SECONDS", 0.1)
    api = await start(database_url, built_in(), max_streams=4 if clients == (0, 0) else 2, **PROXIED)
    await create_many(api, USERS)
    pieces = Pieces(monkeypatch)
    async with reading(api.port) as first, reading(api.port) as second:
        for number, reader in zip(clients, (first, second), strict=True):
            assert (await reader.ask("/users?page[size]=0", "GET", "1.1", client(number)))[0] == 200
            await until_stalled(api, pieces)
        path = "/users?page[size]=0&filter[id][le]=2000"
        answer = await api.request("GET", path, headers={"X-Forwarded-For": "10.0.0.0"})
        assert answer.status == 200
        await broken(first)
        body, is_whole = await second.chunks()
        assert is_whole
        assert json.loads(body)["meta"]["count"] == USERS
    told = [record.message.rpartition(": ")[2] for record in caplog.records if "halfway" in record.message]
    assert told == ["The client did not read the answer, and other requests wait for a stream."]


@pytest.mark.parametrize(
    ("settings", "max_streams_per_worker"),
    [
        ({"pool_size": 12}, 3),
        ({"pool_size": 4}, 2),
        ({"pool_size": 3}, 2),
        ({"pool_size": 2}, 1),
        ({"pool_size": 1}, 1),
        ({"pool_size": 12, "max_streams": 2}, 2),
        ({"pool_size": 2, "max_streams": 5}, 2),
        ({"pool_size": 12, "max_streams": 5, "workers": 2}, 2),
    ],
)
async def test_the_default_of_max_streams(
    start: Start, database_url: str, small_batches: None, settings: dict[str, Any], max_streams_per_worker: int
) -> None:
    """The default is a quarter of the pool, but at least two if that leaves a connection for other requests. A setting
    is divided among the workers, and no worker has more streams than connections."""
    api = await start(database_url, built_in(), **settings, **PROXIED)
    await create_many(api, 9, 9)
    async with locked(api, "computers"):
        asked = [
            asyncio.ensure_future(api.request("GET", PATH, headers={"X-Forwarded-For": f"10.0.0.{number}"}))
            for number in range(max_streams_per_worker + 2)
        ]
        await until_sessions(api, f"count(*) FILTER (WHERE wait_event_type = 'Lock') = {max_streams_per_worker}")
    assert [answer.status for answer in await asyncio.gather(*asked)] == [200] * (max_streams_per_worker + 2)


@pytest.mark.parametrize(("max_streams", "of_client"), [(1, 1), (2, 1), (3, 1), (4, 2), (7, 3)])
async def test_one_client_has_half_of_the_streams(
    start: Start, database_url: str, small_batches: None, max_streams: int, of_client: int
) -> None:
    api = await start(database_url, built_in(), pool_size=20, max_streams=max_streams)
    await create_many(api, 9, 9)
    async with locked(api, "computers"):
        asked = [asyncio.ensure_future(api.get(PATH)) for _ in range(of_client + 2)]
        await until_sessions(api, f"count(*) FILTER (WHERE wait_event_type = 'Lock') = {of_client}")
    assert [answer.status for answer in await asyncio.gather(*asked)] == [200] * (of_client + 2)


async def broken(reader: Reader) -> bytes:
    """Return the received part of an answer that ended without its last chunk."""
    body, is_whole = await reader.chunks()
    assert not is_whole
    with pytest.raises(json.JSONDecodeError):
        json.loads(body)
    return body


async def test_the_timeout_of_a_stream(
    start: Start, database_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After stream_seconds the connection is closed. The client can see that the answer is incomplete."""
    api = await start(database_url, built_in(), stream_seconds=0.3)
    await create_many(api, USERS)
    pieces = Pieces(monkeypatch)
    async with reading(api.port) as reader:
        await reader.ask("/users?page[size]=0")
        await until_stalled(api, pieces)
        await until_sessions(api, IS_IDLE)
        await broken(reader)
    told = [record for record in caplog.records if "halfway" in record.message]
    assert [(record.levelno, record.message.partition(": ")[2]) for record in told] == [
        (
            logging.WARNING,
            "the stream of /users ended halfway: The answer took too long: request pages.",
        )
    ]


async def test_the_timeout_passes_before_the_stream_begins(
    start: Start, database_url: str, small_batches: None
) -> None:
    api = await start(database_url, built_in(), stream_seconds=0.2)
    await create_many(api, 9, 9)
    async with locked(api, "computers"):
        answer = await api.get(PATH)
    detail = "The answer took too long: request pages."
    assert (answer.status, answer.errors) == (504, [error(504, "statement_timeout", "Statement Timeout", detail)])


async def test_postgresql_waits_for_a_slow_reader(
    start: Start, database_url: str, small_batches: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as a stream may take; the limit for idle transactions does not apply."""
    api = await start(database_url, built_in(), stream_seconds=77, idle_transaction_timeout_seconds=5)
    await create_many(api, 5)
    told: list[str] = []
    opened = streams.PartReader._open

    async def asked(reader: Any) -> Any:
        told.append(await reader._connection.fetchval("SHOW idle_in_transaction_session_timeout"))
        return await opened(reader)

    monkeypatch.setattr(streams.PartReader, "_open", asked)
    assert (await api.get("/users?page[size]=0")).status == 200
    assert told == ["77s"]
    async with reading(api.port) as reader:
        await reader.ask("/users/1")
    assert (await api.sql("SHOW idle_in_transaction_session_timeout"))[0][0] != "77s"


@pytest.mark.parametrize("version", ["1.1", "1.0"])
async def test_a_backend_that_ends_halfway(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, version: str
) -> None:
    """A client of HTTP/1.0 sees no chunks, so its connection is reset. A lost connection is no fault of the server."""
    await create_many(api, USERS)
    pieces = Pieces(monkeypatch)
    async with reading(api.port) as reader:
        assert (await reader.ask("/users?page[size]=0", "GET", version))[0] == 200
        await until_stalled(api, pieces)
        ended = await api.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND state = 'idle in transaction'"
        )
        assert [row[0] for row in ended] == [True]
        if version == "1.1":
            await broken(reader)
        else:
            with pytest.raises(ConnectionResetError):
                await reader.rest()
    assert [record.levelname for record in caplog.records if "halfway" in record.message] == ["WARNING"]
    assert (await api.get("/users?page[size]=1")).status == 200


async def test_custom_code_that_fails_halfway(
    start: Start, database_url: str, small_batches: None, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(rows: Any) -> list[int]:
        if (5,) in rows:
            raise KeyError("five")
        return [0 for _ in rows]

    fragile = Attribute("fragile", INT, of=("age",), compute=failing)
    known = [replace(one, attributes=(*one.attributes, fragile)) if one.type == "user" else one for one in built_in()]
    api = await start(database_url, Catalog(known))
    await create_many(api, 9)
    async with reading(api.port) as reader:
        assert (await reader.ask("/users?page[size]=0"))[0] == 200
        body = await broken(reader)
    assert body.count(b'"type"') == 4
    assert [record.levelname for record in caplog.records if "halfway" in record.message] == ["ERROR"]
    await until_sessions(api, IS_IDLE)


async def test_a_migration_between_two_streams(api: Api, small_batches: None) -> None:
    """The prepared statements of a connection are stale: the stream begins again, before its first byte."""
    await create_many(api, 9, 9)
    assert (await api.get(PATH)).status == 200
    await api.sql("ALTER TABLE computers ALTER COLUMN serial TYPE varchar(50), ALTER COLUMN owner_id TYPE integer")
    answer = await api.get(PATH)
    assert (answer.status, len(answer.document["included"])) == (200, 9)


@pytest.fixture
def program(database_url: str) -> Iterator[subprocess.Popen[str]]:
    """Yield the server as a separate program, so that its memory can be measured. The first line that it prints names
    its address."""
    command = [sys.executable, "-m", "server", "serve", "--database-url", database_url, "--port", "0"]
    with subprocess.Popen([*command, "--log-level", "error"], stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.terminate()
    assert process.returncode == 0


async def test_memory(program: subprocess.Popen[str], api: Api) -> None:
    await create_many(api, 40_000, 60_000)
    assert program.stdout is not None
    port, server = port_of(announced_address(program.stdout)), psutil.Process(program.pid)
    async with reading(port) as reader:
        await reader.ask("/users?page[size]=1&include=computers")
        before = most = server.memory_info().rss
        received = len(await reader.some())
        await reader.ask(PATH)
        while b'"totalPages"' not in (piece := await reader.some()):
            received += len(piece)
            most = max(most, server.memory_info().rss)
    assert received > 40_000_000
    assert most - before < GROWTH_BYTES


async def test_short_requests_come_before_streams(
    api: Api, small_batches: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream pauses after each piece while another request is in progress."""
    await create_many(api, 6)
    pauses: list[str] = []
    pause = ReadingHandler._pause

    async def counted(handler: ReadingHandler) -> None:
        pauses.append(handler.request.path)
        await pause(handler)

    monkeypatch.setattr(ReadingHandler, "_pause", counted)
    assert (await api.get("/users?page[size]=0")).status == 200
    assert pauses == []
    async with locked(api, "groups"):
        other = asyncio.ensure_future(api.get("/groups"))
        await until_sessions(api, "bool_or(wait_event_type = 'Lock')")
        assert (await api.get("/users?page[size]=0")).status == 200
    # Three pieces and the tail.
    assert pauses == ["/users"] * 4
    assert (await other).status == 200
