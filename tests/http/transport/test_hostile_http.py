"""Malicious and ambiguous HTTP. Each case is followed by two requests on the same connection. The first must not be
taken for a part of the case, nor the other way around. The second ends the connection.

If two servers on the path of a request could split the bytes in different ways, the request is refused and the
connection closed. Otherwise one of them would answer a request that the other has never seen (RFC 9112, 11.2). Some
cases may be either refused or understood completely."""

from __future__ import annotations

import asyncio
import re

import pytest

from tests.http.conftest import MEDIA_TYPE, Api
from tests.http.wire import SECONDS, connected

NEXT = b"GET /nothing HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: next\r\n\r\n"
LAST = b"GET /nothing HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: last\r\nConnection: close\r\n\r\n"
POST = f"POST /groups HTTP/1.1\r\nHost: localhost\r\nContent-Type: {MEDIA_TYPE}\r\n".encode()
GET = b"GET /groups/1 HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"

REFUSED = {("400",), ("431",), ("505",)}
"""A status without a document, and the end of the connection."""
EMPTY = {("422", "next", "last")}
"""Understood: `[]` is not a resource document, and the next bytes are separate requests."""
SWALLOWED = {("200", "last")}
"""Understood: the next request is the body of this one."""

STATUS = re.compile(rb"HTTP/1\.1 ([0-9]{3}) ")
LENGTH = re.compile(rb"\r\nContent-Length: ([0-9]+)\r\n", re.IGNORECASE)
REQUEST_ID = re.compile(rb"\r\nX-Request-Id: (next|last)\r\n", re.IGNORECASE)


def taken(status: str) -> set[tuple[str, ...]]:
    return {(status, "next", "last")}


def framed(*headers: bytes, body: bytes = b"[]") -> bytes:
    return POST + b"".join(header + b"\r\n" for header in headers) + b"\r\n" + body


def chunks(body: bytes) -> bytes:
    return CHUNKED + body


async def sent(port: int, data: bytes) -> tuple[str, ...]:
    """Return the status of each answer until the connection ends, or the name of the request that it answers."""
    async with connected(port) as wire:
        await wire.send_bytes(data)
        return answers_of(await wire.rest())


def answers_of(came: bytes) -> tuple[str, ...]:
    answers = []
    while came:
        head, _, came = came.partition(b"\r\n\r\n")
        status, name, length = STATUS.match(head), REQUEST_ID.search(head + b"\r\n"), LENGTH.search(head + b"\r\n")
        assert status is not None, head
        answers.append((name or status)[1].decode())
        came = came[int(length[1]) if length is not None else 0 :]
    return tuple(answers)


# where one request ends


@pytest.mark.parametrize(
    ("shape", "outcomes"),
    [
        # two framings
        (framed(b"Content-Length: 5", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n"), REFUSED),
        (framed(b"Transfer-Encoding: chunked", b"Content-Length: 5", body=b"0\r\n\r\n"), REFUSED),
        (framed(b"Content-Length: 2", b"Transfer-Encoding: identity"), REFUSED),
        (framed(b"Content-Length: 2", b"Transfer-Encoding: "), REFUSED),
        (GET + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", REFUSED),
        (
            b"GET /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"0\r\n\r\n",
            REFUSED,
        ),
        # an encoding that is not quite chunked
        (framed(b"Transfer-Encoding: xchunked", body=b"0\r\n\r\n"), REFUSED),
        (framed(b"Transfer-Encoding: chunked, identity", body=b"0\r\n\r\n"), REFUSED),
        (framed(b"Transfer-Encoding: identity, chunked", body=b"0\r\n\r\n"), REFUSED),
        (framed(b"Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n"), REFUSED),
        (framed(b"Transfer-Encoding: chunked, chunked", body=b"0\r\n\r\n"), REFUSED),
        (framed(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n"), REFUSED),
        (framed(b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity", body=b"0\r\n\r\n"), REFUSED),
        (framed(b"Transfer-Encoding: chunked;a=b", body=b"0\r\n\r\n"), REFUSED),
        (framed(b'Transfer-Encoding: "chunked"', body=b"0\r\n\r\n"), REFUSED),
        (framed(b"Transfer-Encoding: ", body=b"0\r\n\r\n"), REFUSED),
        (framed(b"Transfer-Encoding : chunked", body=b"0\r\n\r\n"), REFUSED),
        (framed(b" Transfer-Encoding: chunked", body=b"0\r\n\r\n"), REFUSED),
        (framed(b"Transfer-Encoding:\x0bchunked", body=b"0\r\n\r\n"), REFUSED),
        (framed(b"Transfer-Encoding: chunked\x00", body=b"0\r\n\r\n"), REFUSED),
        (framed(b"Transfer-Encoding:\r\n chunked", body=b"0\r\n\r\n"), REFUSED),
        (framed(b"X: a\r\n Transfer-Encoding: chunked", body=b"0\r\n\r\n"), REFUSED),
        (framed(b"X: a\rTransfer-Encoding: chunked", body=b"0\r\n\r\n"), REFUSED),
        (framed(b"Transfer-Encoding: CHUNKED", body=b"2\r\n[]\r\n0\r\n\r\n"), EMPTY | REFUSED),
        (framed(b"Transfer-Encoding:\tchunked\t", body=b"2\r\n[]\r\n0\r\n\r\n"), EMPTY | REFUSED),
        (b"POST /groups HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", REFUSED),
        # a name that is another one
        (framed(b"Transfer_Encoding: chunked", b"Content-Length: 2"), EMPTY),
        (framed(b"X-Transfer-Encoding: chunked", b"Content-Length: 2"), EMPTY),
        # lengths
        (framed(b"Content-Length: 2", b"Content-Length: 0"), REFUSED),
        (framed(b"Content-Length: 0", b"Content-Length: 2"), REFUSED),
        (framed(b"Content-Length: 2, 0"), REFUSED),
        (framed(b"Content-Length: 2", b"Content-Length: 2"), EMPTY | REFUSED),
        (framed(b"Content-Length: 2, 2"), EMPTY | REFUSED),
        (framed(b"Content-Length: 02"), EMPTY | REFUSED),
        (framed(b"Content-Length: +2"), REFUSED),
        (framed(b"Content-Length: -2"), REFUSED),
        (framed(b"Content-Length: 0x2"), REFUSED),
        (framed(b"Content-Length: 2.0"), REFUSED),
        (framed(b"Content-Length: 2 2"), REFUSED),
        (framed(b"Content-Length: 2_0"), REFUSED),
        (framed(b"Content-Length: \xb2"), REFUSED),
        (framed(b"Content-Length: "), REFUSED),
        (framed(b"Content-Length : 2"), REFUSED),
        (framed(b"Content-Length: " + b"9" * 40), REFUSED),
        (framed(b"Content-Length: " + b"9" * 5000), REFUSED),
        (framed(b"Content-Length: 18446744073709551618"), REFUSED),
        (framed(b"Content_Length: 2", body=b""), taken("400")),
        (GET + b"Content-Length: %d\r\n\r\n" % len(NEXT), SWALLOWED),
    ],
)
async def test_framing(reader: Api, shape: bytes, outcomes: set[tuple[str, ...]]) -> None:
    assert await sent(reader.port, shape + NEXT + LAST) in outcomes


@pytest.mark.parametrize(
    ("body", "outcomes"),
    [
        (b"2\r\n[]\r\n0\r\n\r\n", EMPTY),
        (b"1\r\n[\r\n1\r\n]\r\n0\r\n\r\n", EMPTY),
        (b"0000002\r\n[]\r\n00\r\n\r\n", EMPTY | REFUSED),
        (b"2;a=b\r\n[]\r\n0\r\n\r\n", EMPTY | REFUSED),
        (b'2;a="b;c"\r\n[]\r\n0;d\r\n\r\n', EMPTY | REFUSED),
        (b"2\r\n[]\r\n0\r\nX: y\r\n\r\n", EMPTY | REFUSED),
        (b"2\r\n[]\r\n0\r\nContent-Length: 50\r\nHost: y\r\n\r\n", EMPTY | REFUSED),
        (b"2;a\n=b\r\n[]\r\n0\r\n\r\n", REFUSED),
        (b"2;\n[]\r\n0\r\n\r\n", REFUSED),
        (b"2\n[]\n0\n\n", REFUSED),
        (b"2\r\n[]\n0\r\n\r\n", REFUSED),
        (b"2\r[]\r0\r\r", REFUSED),
        (b"0x2\r\n[]\r\n0\r\n\r\n", REFUSED),
        (b"+2\r\n[]\r\n0\r\n\r\n", REFUSED),
        (b"-1\r\n[]\r\n0\r\n\r\n", REFUSED),
        (b" 2\r\n[]\r\n0\r\n\r\n", REFUSED),
        (b"2 \r\n[]\r\n0\r\n\r\n", EMPTY | REFUSED),
        (b"2_\r\n[]\r\n0\r\n\r\n", REFUSED),
        (b"\r\n[]\r\n0\r\n\r\n", REFUSED),
        (b"g\r\n[]\r\n0\r\n\r\n", REFUSED),
        (b"\x00\r\n[]\r\n0\r\n\r\n", REFUSED),
        (b"1\r\n[]\r\n0\r\n\r\n", REFUSED),
        (b"2\r\n[]0\r\n\r\n", REFUSED),
        (b"2\r\n[]\r\n0\r\n0\r\n\r\n", REFUSED),
        (b"10000000000000002\r\n[]\r\n0\r\n\r\n", REFUSED),
        (b"f" * 40 + b"\r\n[]\r\n0\r\n\r\n", REFUSED),
        (b"2\r\n[]\r\n0\r\nno colon\r\n\r\n", REFUSED),
        (b"2\r\n[]\r\n0\r\nX: \x00\r\n\r\n", REFUSED),
    ],
)
async def test_chunks(reader: Api, body: bytes, outcomes: set[tuple[str, ...]]) -> None:
    assert await sent(reader.port, chunks(body) + NEXT + LAST) in outcomes


# request lines and headers


@pytest.mark.parametrize(
    ("shape", "outcomes"),
    [
        (b"GET /groups/1 HTTP/1.0\r\n\r\n", {("200",)}),
        (b"GET /groups/1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", taken("200")),
        (b"GET /groups/1\r\n\r\n", REFUSED),
        (b"GET /groups/1 HTTP/0.9\r\nHost: localhost\r\n\r\n", REFUSED),
        (b"GET /groups/1 HTTP/1.2\r\nHost: localhost\r\n\r\n", taken("200")),
        (b"GET /groups/1 HTTP/1.10\r\nHost: localhost\r\n\r\n", REFUSED),
        (b"GET /groups/1 HTTP/2.0\r\nHost: localhost\r\n\r\n", REFUSED),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", REFUSED),
        (b"GET /groups/1 http/1.1\r\nHost: localhost\r\n\r\n", REFUSED),
        (b"GET /groups/1 HTTP/1.1 x\r\nHost: localhost\r\n\r\n", REFUSED),
        (b"GET /groups/1 HTTPS/1.1\r\nHost: localhost\r\n\r\n", REFUSED),
        (b"GET /groups/1 HTTP/1.1\x00\r\nHost: localhost\r\n\r\n", REFUSED),
        (b"GET  /groups/1 HTTP/1.1\r\nHost: localhost\r\n\r\n", REFUSED),
        (b"GET\t/groups/1\tHTTP/1.1\r\nHost: localhost\r\n\r\n", REFUSED),
        (b"GET /groups/1 a HTTP/1.1\r\nHost: localhost\r\n\r\n", REFUSED),
        (b"GET /groups/\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n", REFUSED),
        (b"GET /groups/\x7f HTTP/1.1\r\nHost: localhost\r\n\r\n", REFUSED),
        (b"G\x00T /groups/1 HTTP/1.1\r\nHost: localhost\r\n\r\n", REFUSED),
        (b"G@T /groups/1 HTTP/1.1\r\nHost: localhost\r\n\r\n", REFUSED),
        (b" GET /groups/1 HTTP/1.1\r\nHost: localhost\r\n\r\n", REFUSED),
        (b"\x16\x03\x01 / HTTP/1.1\r\nHost: localhost\r\n\r\n", REFUSED),
        (b"\r\nGET /groups/1 HTTP/1.1\r\nHost: localhost\r\n\r\n", taken("200")),
        (b"\r\n\r\nGET /groups/1 HTTP/1.1\r\nHost: localhost\r\n\r\n", taken("200")),
        (b"\nGET /groups/1 HTTP/1.1\r\nHost: localhost\r\n\r\n", REFUSED),
        (b"\rGET /groups/1 HTTP/1.1\r\nHost: localhost\r\n\r\n", REFUSED),
        (b"GET /groups/1 HTTP/1.1\nHost: localhost\n\n", taken("200") | REFUSED),
        (b"GET /groups/1 HTTP/1.1\r\nHost: localhost\n\r\n", taken("200") | REFUSED),
        (b"GET /groups/1 HTTP/1.1\r\nHost: localhost\r\n\n", taken("200") | REFUSED),
        (b"GET /groups/1 HTTP/1.1\rHost: x\r\r", REFUSED),
        (b"GET /groups/1 HTTP/1.1\r\n\r\n", REFUSED),
        (b"GET /groups/1 HTTP/1.1\r\nHost: localhost\r\nHost: y\r\n\r\n", REFUSED),
        (b"GET /groups/1 HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", REFUSED),
        (b"GET /groups/1 HTTP/1.1\r\nHost: x,y\r\n\r\n", REFUSED),
        (b"GET /groups/1 HTTP/1.1\r\nHost: x y\r\n\r\n", REFUSED),
        (b"GET /groups/1 HTTP/1.1\r\nHost: x/y\r\n\r\n", REFUSED),
        (b"GET /groups/1 HTTP/1.1\r\n Host: localhost\r\n\r\n", REFUSED),
        (GET + b"X: a\r\n b\r\n\r\n", REFUSED),
        (GET + b"X: a\r\n\tb\r\n\r\n", REFUSED),
        (GET + b"X: a\x00b\r\n\r\n", REFUSED),
        (GET + b"X: a\x01b\r\n\r\n", REFUSED),
        (GET + b"X: a\rb\r\n\r\n", REFUSED),
        (GET + b"X Y: a\r\n\r\n", REFUSED),
        (GET + b"X: \r\n\r\n", taken("200")),
        (GET + b": a\r\n\r\n", REFUSED),
        (GET + b"X\r\n\r\n", REFUSED),
        (GET + b"X\xc3\xa9: a\r\n\r\n", REFUSED),
        (GET + b"X: \xe9\xff\r\n\r\n", taken("200")),
        (GET + b"X: " + b"x" * 70_000 + b"\r\n\r\n", REFUSED),
        (GET + b"X" * 70_000 + b": x\r\n\r\n", REFUSED),
        (GET + b"X: x\r\n" * 12_000 + b"\r\n", REFUSED),
        (b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", taken("414")),
        (b"G" * 20_000 + b" /groups/1 HTTP/1.1\r\nHost: localhost\r\n\r\n", {("501",)}),
        # targets
        (b"GET http://y/groups/1 HTTP/1.1\r\nHost: localhost\r\n\r\n", taken("421")),
        (b"GET http://localhost/groups/1 HTTP/1.1\r\nHost: y\r\n\r\n", taken("200")),
        (b"GET http:///groups/1 HTTP/1.1\r\nHost: localhost\r\n\r\n", taken("200") | taken("404") | REFUSED),
        (b"GET y:80 HTTP/1.1\r\nHost: localhost\r\n\r\n", taken("404") | REFUSED),
        (b"CONNECT y:80 HTTP/1.1\r\nHost: localhost\r\n\r\n", taken("404") | taken("405") | REFUSED),
        (b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", taken("204")),
        (b"GET * HTTP/1.1\r\nHost: localhost\r\n\r\n", REFUSED),
        (b"GET /groups/1#x HTTP/1.1\r\nHost: localhost\r\n\r\n", taken("404") | REFUSED),
        (b"GET /groups/\xe9 HTTP/1.1\r\nHost: localhost\r\n\r\n", taken("404") | REFUSED),
        (b"GET /groups/%zz?filter=%zz&x-y=%f HTTP/1.1\r\nHost: localhost\r\n\r\n", taken("404") | taken("400")),
        (b"GET /groups/%00 HTTP/1.1\r\nHost: localhost\r\n\r\n", taken("404")),
        (b"GET /groups/%ff?sort=%ff HTTP/1.1\r\nHost: localhost\r\n\r\n", taken("404") | taken("400")),
        (b"GET /groups/../users HTTP/1.1\r\nHost: localhost\r\n\r\n", taken("404")),
        (b"GET /groups/%2e%2e HTTP/1.1\r\nHost: localhost\r\n\r\n", taken("404")),
        (b"GET /groups%2f1 HTTP/1.1\r\nHost: localhost\r\n\r\n", taken("404")),
        (b"GET //groups/1 HTTP/1.1\r\nHost: localhost\r\n\r\n", taken("404")),
    ],
)
async def test_heads(reader: Api, shape: bytes, outcomes: set[tuple[str, ...]]) -> None:
    assert await sent(reader.port, shape + NEXT + LAST) in outcomes


@pytest.mark.parametrize(
    ("shape", "outcomes"),
    [
        (framed(b"Content-Length: 2", b"Expect: 100-continue"), {("100", "422", "next", "last"), *EMPTY}),
        (framed(b"Content-Length: 2", b"Expect: 100-Continue"), {("100", "422", "next", "last"), *EMPTY}),
        (framed(b"Content-Length: 2", b"Expect: magic"), EMPTY | taken("417") | {("417",), ("422",)}),
        (framed(b"Content-Length: 2", b"Expect: 100-continue, x"), EMPTY | taken("417") | {("417",), ("422",)}),
        (framed(b"Content-Length: 2", b"Connection: Upgrade", b"Upgrade: h2c"), EMPTY),
        (framed(b"Content-Length: 2", b"Connection: Upgrade", b"Upgrade: websocket"), EMPTY),
        (GET + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\n\r\n", taken("200")),
        (GET + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n", taken("200")),
        (GET + b"X-HTTP-Method-Override: DELETE\r\n\r\n", taken("200")),
        (GET + b"Connection: Host, X-Request-Id\r\n\r\n", taken("200")),
        (GET + b"Connection: close\r\n\r\n", {("200",)}),
        (GET + b"Connection: CLOSE\r\n\r\n", {("200",)}),
        (framed(b"Content-Encoding: gzip", b"Content-Length: 2"), taken("415")),
        (framed(b"Content-Encoding: br, gzip", b"Content-Length: 2"), taken("415")),
    ],
)
async def test_100_continue(reader: Api, shape: bytes, outcomes: set[tuple[str, ...]]) -> None:
    assert await sent(reader.port, shape + NEXT + LAST) in outcomes


async def test_no_100_for_http_1_0(reader: Api) -> None:
    """RFC 9110, 10.1.1: a client of HTTP/1.0 does not know what to do with it."""
    async with connected(reader.port) as wire:
        head = (
            f"POST /groups HTTP/1.0\r\nContent-Type: {MEDIA_TYPE}\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
        )
        await wire.send_bytes(head.encode() + b"[]")
        assert answers_of(await wire.rest()) == ("422",)


# connections that end early


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GET /gro",
        GET,
        GET + b"\r\n",
        GET + b"\r\n" + GET,
        framed(b"Content-Length: 100"),
        chunks(b"2\r\n["),
        framed(b"Content-Length: 2"),
        framed(b"Content-Length: 100", b"Expect: 100-continue", body=b""),
    ],
)
@pytest.mark.parametrize("way", ["half", "close", "reset"])
async def test_a_client_that_leaves(reader: Api, data: bytes, way: str) -> None:
    """The connection ends, whatever was sent and however the client disconnects, and the next connection is
    answered."""
    async with connected(reader.port) as wire:
        await wire.send_bytes(data)
        if way == "half":
            wire._writer.write_eof()
            await wire.rest()
        elif way == "reset":
            wire._writer.transport.abort()
    assert (await reader.get("/groups/1")).status == 200


async def test_many_pipelined_requests(reader: Api) -> None:
    """A hundred requests in one piece, of which one in the middle is refused. It ends the connection, and nothing after
    it is answered."""
    data = (GET + b"\r\n") * 50 + framed(b"Content-Length: 2", b"Content-Length: 0") + (GET + b"\r\n") * 50
    assert await sent(reader.port, data) == ("200",) * 50 + ("400",)


async def test_byte_by_byte(reader: Api) -> None:
    async with connected(reader.port) as wire, asyncio.timeout(SECONDS):
        for byte in chunks(b"1\r\n[\r\n1\r\n]\r\n0\r\n\r\n") + NEXT + LAST:
            await wire.send_bytes(bytes([byte]))
        assert answers_of(await wire.rest()) in EMPTY
