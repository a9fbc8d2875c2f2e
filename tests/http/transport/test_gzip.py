"""Compressed answers: which answers, for which clients, with which headers, and streams."""

from __future__ import annotations

import asyncio
import json
import zlib
from typing import Any

import pytest

from server.execution import streams
from server.http import compression
from server.resources import built_in
from tests.http.conftest import Answer, Api, Serve, Start
from tests.http.streams import Reader, create_many, reading, small_batches
from tests.http.wire import connected
from waterspout import BadRequest, CustomHandler

__all__ = ["small_batches"]

LONG = "/users?include=computers,posts,bio"
SHORT = "/groups/1"
VARY = "Accept, Accept-Encoding"


class Report(CustomHandler):
    """Sends bodies of a size and a media type."""

    async def get(self, size: str, media_type: str) -> None:
        self.set_header("Content-Type", media_type)
        self.send("x")
        self.finish("x" * (int(size) - 1))


class Own(CustomHandler):
    async def get(self, kind: str) -> None:
        if kind == "encoded":
            self.set_header("Content-Encoding", "br")
        self.send("x" * 2000)
        if kind == "flushed":
            await self.flush()
        self.finish()


class Late(CustomHandler):
    async def get(self) -> None:
        self.finish_document(b" " * 100_000)
        raise BadRequest("Too late, and still in time.")


@pytest.fixture
def packed(serve: Serve, rows_url: str) -> Api:
    return serve(rows_url, compression="gzip", server_timing=False)


async def ask(api: Api, path: str, accept_encoding: str | None, method: str = "GET", accept: str = "*/*") -> Answer:
    """Return the answer as it is sent. The usual client of the tests would decompress it."""
    headers = [] if accept_encoding is None else [f"Accept-Encoding: {accept_encoding}"]
    async with connected(api.port) as wire:
        await wire.send(f"{method} {path} HTTP/1.1", "X-Request-Id: same", f"Accept: {accept}", *headers)
        return await wire.answer(has_body=method != "HEAD")


def unpacked(answer: Answer) -> bytes:
    assert answer.headers["Content-Encoding"] == "gzip"
    assert answer.headers["Content-Length"] == str(len(answer.body))
    return zlib.decompress(answer.body, 31)


def headers_of(answer: Answer) -> dict[str, str]:
    return {name: value for name, value in answer.headers.get_all() if name != "Date"}


async def test_a_long_answer(packed: Api, reader: Api) -> None:
    answer, plain = await ask(packed, LONG, "gzip"), await ask(reader, LONG, "gzip")
    assert "Content-Encoding" not in plain.headers
    assert len(answer.body) * 3 < len(plain.body)
    assert unpacked(answer) == plain.body
    assert answer.headers["Vary"] == VARY
    assert answer.headers["Content-Type"] == plain.headers["Content-Type"]


@pytest.mark.parametrize("accept_encoding", [None, "", "identity", "br", "gzip;q=0", "*;q=0"])
async def test_a_client_that_does_not_accept_gzip(packed: Api, accept_encoding: str | None) -> None:
    answer = await ask(packed, LONG, accept_encoding)
    assert "Content-Encoding" not in answer.headers
    assert answer.headers["Vary"] == VARY
    assert answer.document["data"]


@pytest.mark.parametrize("path", [SHORT, "/", "/nothing", "/-/live"])
async def test_a_short_answer(packed: Api, path: str) -> None:
    answer = await ask(packed, path, "gzip")
    assert len(answer.body) <= 1024
    assert "Content-Encoding" not in answer.headers
    assert answer.headers["Vary"] == VARY


@pytest.mark.parametrize("inline_bytes", [compression.INLINE_BYTES, 100])
@pytest.mark.parametrize(
    "path", [LONG, SHORT, "/users?sort=a&filter[b]=1&c=1", "/-/pages/new/users", "/-/pages/pages.js"]
)
async def test_pages_and_their_files_need_no_setting(
    start: Start, rows_url: str, path: str, inline_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compression, "INLINE_BYTES", inline_bytes)
    api = await start(rows_url, built_in(), server_timing=False)
    plain, answer = [await ask(api, path, coding, accept="text/html") for coding in (None, "gzip")]
    assert "Content-Encoding" not in plain.headers
    assert unpacked(answer) == plain.body
    assert "Accept-Encoding" in plain.headers["Vary"].split(", ")
    assert plain.headers["Vary"] == answer.headers["Vary"]
    assert headers_of(await ask(api, path, "gzip", "HEAD", accept="text/html")) == headers_of(answer)


async def test_pages_vary_once(packed: Api) -> None:
    answer = await ask(packed, "/users", "gzip", accept="text/html")
    assert answer.headers["Vary"] == "Accept, Authorization, Cookie, Accept-Encoding"


@pytest.mark.parametrize("accept_encoding", ["gzip", "identity"])
@pytest.mark.parametrize("path", [LONG, SHORT, "/users?sort=x", "/nothing"])
async def test_head_is_get_without_a_body(packed: Api, path: str, accept_encoding: str) -> None:
    get, head = await ask(packed, path, accept_encoding), await ask(packed, path, accept_encoding, "HEAD")
    assert (head.status, head.body, headers_of(head)) == (get.status, b"", headers_of(get))


async def test_a_long_error(packed: Api) -> None:
    path = "/users?" + "&".join(f"wrong{'x' * number}=1" for number in range(15))
    answer = await ask(packed, path, "gzip")
    assert answer.status == 400
    assert len(json.loads(unpacked(answer))["errors"]) == 15


async def test_a_write(start: Start, database_url: str) -> None:
    api = await start(database_url, built_in(), compression="gzip")
    name = "x" * 2000
    answer = await api.post("/groups", {"data": {"type": "group", "attributes": {"name": name}}})
    assert (answer.status, answer.document["data"]["attributes"]) == (201, {"name": name})
    answer = await ask(api, answer.headers["Location"], "gzip")
    assert json.loads(unpacked(answer))["data"]["attributes"] == {"name": name}


@pytest.mark.parametrize(
    ("size", "media_type", "is_compressed"),
    [
        *((1024, "text/csv", False), (1025, "text/csv", True), (1025, "text/html;charset=utf-8", True)),
        *((2000, "application/json", True), (2000, "application/problem+json", True), (2000, "Text/Plain", True)),
        *((2000, "image/svg+xml", True), (2000, "application/atom+xml", True), (2000, "image/png", False)),
        *((2000, "application/zip", False), (2000, "application/octet-stream", False), (100_000, "text/csv", True)),
    ],
)
async def test_custom_code(start: Start, rows_url: str, size: int, media_type: str, is_compressed: bool) -> None:
    api = await start(rows_url, built_in(), [("/report/([0-9]+)/(.*)", Report)], compression="gzip")
    answer = await ask(api, f"/report/{size}/{media_type}", "gzip")
    assert ("Content-Encoding" in answer.headers) == is_compressed
    assert (unpacked(answer) if is_compressed else answer.body) == b"x" * size
    assert answer.headers["Vary"] == VARY
    head = await ask(api, f"/report/{size}/{media_type}", "gzip", "HEAD")
    assert headers_of(head).keys() == headers_of(answer).keys()
    assert head.headers["Content-Length"] == answer.headers["Content-Length"]


async def test_a_large_answer_of_custom_code_is_compressed_on_the_thread(
    start: Start, rows_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = await start(rows_url, built_in(), [("/report/([0-9]+)/(.*)", Report)], compression="gzip")
    sizes, packing = list[int](), compression.compress_body

    async def noted(body: bytes) -> bytes:
        sizes.append(len(body))
        return await packing(body)

    monkeypatch.setattr(compression, "compress_body", noted)
    for size in (compression.INLINE_BYTES, compression.INLINE_BYTES + 1):
        assert unpacked(await ask(api, f"/report/{size}/text/csv", "gzip")) == b"x" * size
    assert sizes == [compression.INLINE_BYTES + 1]


async def test_custom_code_that_fails_after_its_answer(start: Start, rows_url: str) -> None:
    """The answer was not sent yet, so there is one answer, and the connection is kept."""
    api = await start(rows_url, built_in(), [("/late", Late)], compression="gzip")
    async with connected(api.port) as wire:
        for _ in range(2):
            await wire.send("GET /late HTTP/1.1", "Accept-Encoding: gzip")
            answer = await wire.answer()
            assert (answer.status, answer.errors[0]["detail"]) == (400, "Too late, and still in time.")


async def test_custom_code_that_encodes_or_flushes_itself_is_not_compressed(start: Start, rows_url: str) -> None:
    api = await start(rows_url, built_in(), [("/own/(.*)", Own)], compression="gzip")
    encoded = await ask(api, "/own/encoded", "gzip")
    assert (encoded.headers["Content-Encoding"], encoded.body) == ("br", b"x" * 2000)
    async with reading(api.port) as reader:
        _, headers = await reader.ask("/own/flushed", "GET", "1.1", "Accept-Encoding: gzip")
        assert f"Vary: {VARY}" in headers
        assert "Content-Encoding: gzip" not in headers
        assert await reader.chunks() == (b"x" * 2000, True)


# large answers, compressed in the thread


@pytest.fixture
def many(start: Start, database_url: str, io_loop: Any) -> Api:
    """Return a server whose answers of up to 600 KB are not streamed."""

    async def started() -> Api:
        api = await start(database_url, built_in(), compression="gzip", server_timing=False)
        await create_many(api, 900)
        return api

    return io_loop.run_sync(started)  # type: ignore[no-any-return]  # what it is given is typed


async def test_a_large_answer(many: Api) -> None:
    path = "/users?page[size]=900"
    answer, plain = await ask(many, path, "gzip"), await ask(many, path, None)
    assert len(plain.body) > 4 * compression.SLICE_BYTES
    assert unpacked(answer) == plain.body
    assert answer.headers["Vary"] == VARY
    head = await ask(many, path, "gzip", "HEAD")
    assert (head.body, headers_of(head)) == (b"", headers_of(answer))


async def test_pipelined_requests_wait_for_a_large_answer(many: Api) -> None:
    async with connected(many.port) as wire:
        for path in ("/users?page[size]=900", "/groups/1"):
            await wire.send(f"GET {path} HTTP/1.1", "Accept-Encoding: gzip")
        assert len(json.loads(unpacked(await wire.answer()))["data"]) == 900
        assert (await wire.answer()).document["data"]["id"] == "1"


async def test_other_requests_are_answered_during_compression(many: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long compression does not delay other answers."""
    is_asked, is_over = asyncio.Event(), asyncio.Event()
    packing = compression.compress_body

    async def held(body: bytes) -> bytes:
        is_asked.set()
        await is_over.wait()
        return await packing(body)

    monkeypatch.setattr(compression, "compress_body", held)
    large = asyncio.ensure_future(ask(many, "/users?page[size]=900", "gzip"))
    await is_asked.wait()
    assert unpacked(await ask(many, "/users?page[size]=5", "gzip"))
    assert not large.done()
    is_over.set()
    assert unpacked(await large)


async def test_a_client_that_leaves_meanwhile(many: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    is_asked, is_given_up = asyncio.Event(), asyncio.Event()

    async def held(_: bytes) -> bytes:
        is_asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            is_given_up.set()
        raise AssertionError

    monkeypatch.setattr(compression, "compress_body", held)
    async with connected(many.port) as wire:
        await wire.send("GET /users?page[size]=900 HTTP/1.1", "Accept-Encoding: gzip")
        await is_asked.wait()
    async with asyncio.timeout(60):
        await is_given_up.wait()
    assert (await many.get("/groups/1")).status == 200


async def test_compression_that_fails(many: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def failing(_: bytes) -> bytes:
        raise MemoryError

    monkeypatch.setattr(compression, "compress_body", failing)
    answer = await ask(many, "/users?page[size]=900", "gzip")
    assert (answer.status, answer.errors[0]["code"]) == (500, "internal_error")
    assert "Content-Encoding" not in answer.headers


# streams


async def streamed(reader: Reader, path: str, version: str = "1.1") -> tuple[list[str], bytes]:
    status, headers = await reader.ask(path, "GET", version, "Accept-Encoding: gzip")
    assert status == 200
    if version == "1.0":
        return headers, await reader.rest()
    body, is_whole = await reader.chunks()
    assert is_whole
    return headers, body


@pytest.mark.parametrize("version", ["1.1", "1.0"])
async def test_a_stream(packed: Api, small_batches: None, version: str) -> None:
    plain = (await ask(packed, "/users?page[size]=1000&include=computers", None)).document
    async with reading(packed.port) as reader:
        headers, body = await streamed(reader, "/users?page[size]=0&include=computers", version)
    assert {"Content-Encoding: gzip", f"Vary: {VARY}"} <= set(headers)
    assert not [line for line in headers if line.startswith("Content-Length")]
    document = json.loads(zlib.decompress(body, 31))
    assert (document["data"], document["included"]) == (plain["data"], plain["included"])


async def test_a_stream_for_a_client_that_does_not_accept_gzip(packed: Api, small_batches: None) -> None:
    async with reading(packed.port) as reader:
        _, headers = await reader.ask("/users?page[size]=0")
        assert f"Vary: {VARY}" in headers
        assert "Content-Encoding: gzip" not in headers
        body, is_whole = await reader.chunks()
    assert is_whole
    assert len(json.loads(body)["data"]) == 6


async def test_head_of_a_stream(packed: Api, small_batches: None) -> None:
    head = await ask(packed, "/users?page[size]=0", "gzip", "HEAD")
    assert (head.status, head.headers["Content-Encoding"], head.body) == (200, "gzip", b"")


async def test_the_first_rows_of_a_stream_can_be_decompressed_at_once(start: Start, database_url: str) -> None:
    api = await start(database_url, built_in(), compression="gzip")
    await create_many(api, 5_000)
    async with reading(api.port) as reader:
        await reader.ask("/users?page[size]=0", "GET", "1.1", "Accept-Encoding: gzip")
        sent = size = rest = b""
        while not size or len(rest) < int(size, 16):
            sent += await reader.some()
            size, _, rest = sent.partition(b"\r\n")
        first = zlib.decompressobj(31).decompress(rest[: int(size, 16)])
        reader.leave()
    assert len(json.loads(first + b"]}")["data"]) == streams.BATCH_ROWS
