"""Random bytes cause no answer of 500 or above, no fault in the log and no connection that hangs, and the next client
is answered. `tests/http/transport/test_hostile_http.py` lists what is refused."""

from __future__ import annotations

import asyncio
import gzip
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

from hypothesis import example, given
from hypothesis import strategies as st

from tests.property.served import MEDIA_TYPE, Target

SECONDS = 60.0
"""Longer than any answer takes here. An example that waits for so long fails."""

QUIET_SECONDS = 0.02
"""If no answer begins within this time, the server is assumed to wait for more bytes."""

STATUS = re.compile(rb"HTTP/1\.1 ([0-9]{3}) ")
SANE = frozenset({501, 505})
"""The allowed statuses of 500 and above: an unknown method, an unknown version."""

GROUP = b'{"data":{"type":"group","attributes":{"name":"x"}}}'

METHODS = [
    *[b"GET"] * 6,
    *[b"POST"] * 6,
    b"PATCH",
    b"DELETE",
    b"HEAD",
    b"OPTIONS",
    b"PUT",
    b"TRACE",
    b"CONNECT",
    b"get",
    b"BREW",
]
ODD_METHODS = [b"", b"G@T", b"G\x00T", b"\xff", b"M" * 9000, b" GET", b"GET\t"]
TARGETS = [b"/", b"/users", b"/groups/1", b"/users?page[size]=1", b"/operations", b"/-/live", b"/-/ready", b"/nothing"]
ODD_TARGETS = [
    *(b"*", b"http://x/users", b"http://", b"https://x", b"x:80", b"//", b"/users//1", b"/../users", b"/users/%2e%2e"),
    *(
        b"/users/%",
        b"/users/%zz",
        b"/users/%00",
        b"/users/%ff",
        b"/users/\xff",
        b"/users?%ff=%zz",
        b"/users?=&&=",
        b"?",
    ),
    *(
        b"/users#x",
        b"/users?filter=[",
        b"/users?sort=%00",
        b"/users?page[size]=\xb2",
        b"/" + b"a" * 20_000,
        b"",
        b"\x00",
    ),
    *(b"/users?filter=" + b"[" * 500, b"/users/1/computers/", b"/users/1/relationships/group", b"/-/metrics"),
]
ODD_VERSIONS = [b"HTTP/1.2", b"HTTP/0.9", b"HTTP/2.0", b"http/1.1", b"HTTP/1.1 ", b"HTTP/1.1\x00", b"", b"X"]
ODD_ENDS = [b"\n", b"\r", b"\r\r\n", b"\n\r", b""]
ODD_LENGTHS = [b"0", b"2", b"5", b"-1", b"+2", b"0x2", b"2,2", b"2, 5", b"", b"9" * 30, b"1e1", b"\xb2"]
ODD_ENCODINGS = [b"Chunked", b"xchunked", b"chunked, identity", b"identity", b"gzip, chunked", b"chunked\x00", b""]
HEADERS = [
    *[(b"Accept", value) for value in (b"*/*", MEDIA_TYPE.encode(), b"text/html", b"*/*;q=x", b'a="', b"\xff")],
    *[(b"Connection", value) for value in (b"close", b"keep-alive", b"Upgrade", b"close, x", b"", b"Host")],
    *[(b"Content-Type", value) for value in (MEDIA_TYPE.encode(), b"application/json", b"text/plain", b";", b"\xff")],
    *[(b"Expect", value) for value in (b"100-continue", b"100-Continue", b"x")],
    *[(b"Upgrade", value) for value in (b"h2c", b"websocket", b"HTTP/3")],
    *[(b"Content-Encoding", value) for value in (b"gzip", b"identity", b"x")],
    *[(b"Accept-Encoding", value) for value in (b"gzip", b"gzip;q=0, *", b"\xff", b",,;")],
    *[(b"X-Request-Id", value) for value in (b"x", b"x" * 5000, b"\xff", b"a b")],
    *[(b"X-Forwarded-For", value) for value in (b"1.2.3.4", b"x" * 5000, b",,")],
    *[(b"Forwarded", value) for value in (b"for=1.2.3.4;proto=x", b'for="[::1', b";;")],
    *[(b"Origin", b"http://x"), (b"If-Match", b"x"), (b"Range", b"bytes=0-1"), (b"TE", b"trailers"), (b"Cookie", b"=")],
    *[(b"Content_Length", b"5"), (b"Trailer", b"Content-Length"), (b"Access-Control-Request-Method", b"POST")],
]
ODD_HEADERS = [
    *[(b"Host", value) for value in (b"x", b"localhost:99999", b"[::1", b"", b"a b", b"x,y")],
    *[(b"Content-Length", value) for value in ODD_LENGTHS],
    *[(b"Transfer-Encoding", value) for value in ODD_ENCODINGS],
    *[(b"X", value) for value in (b"a\x00b", b"a\r\n b", b"a\rb", b"x" * 70_000)],
    *[(name, b"x") for name in (b"Transfer-Encoding ", b" Host", b"", b"X\xff", b"X Y", b"X" * 70_000)],
]
BODIES = [b"", b"[]", GROUP, gzip.compress(GROUP), b"\xff\xfe", b"[" * 3000, b'{"data":' + b" " * 3000, b"\x00" * 100]

Item = TypeVar("Item")


def rarely(odd: Sequence[Item], plain: Sequence[Item]) -> st.SearchStrategy[Item]:
    """Return a strategy that draws from `odd` in one of ten cases."""
    return st.integers(0, 9).flatmap(lambda number: st.sampled_from(plain if number else odd))


@st.composite
def chunked(draw: st.DrawFn) -> bytes:
    """Draw a body in chunks. Some of them are invalid."""
    parts = []
    for piece in draw(st.lists(st.binary(min_size=1, max_size=40), max_size=4)):
        size = draw(rarely([b"0x%x", b"+%x", b"%x ", b"%x;a=b", b"%x;", b"-%x", b"%x\n"], [b"%x", b"%X", b"0%x"]))
        length = draw(rarely([0, len(piece) + 1, 2**70], [len(piece)]))
        end = draw(rarely(ODD_ENDS, [b"\r\n"]))
        parts.append(size % length + end + piece + end)
    trailer = draw(rarely([b"X: y\r\n", b"Content-Length: 5\r\n", b"x", b"\x00\r\n"], [b""]))
    return b"".join(parts) + b"0\r\n" + trailer + b"\r\n"


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    method, target = draw(rarely(ODD_METHODS, METHODS)), draw(rarely(ODD_TARGETS, TARGETS))
    version = draw(rarely(ODD_VERSIONS, [b"HTTP/1.1"] * 6 + [b"HTTP/1.0"]))
    headers = [(b"Host", b"x"), *draw(st.lists(rarely(ODD_HEADERS, HEADERS), max_size=4))]
    body = draw(st.sampled_from(BODIES))
    if draw(st.booleans()):
        body = draw(chunked())
        headers.append((b"Transfer-Encoding", b"chunked"))
    elif body or draw(st.booleans()):
        headers.append((b"Content-Length", b"%d" % len(body)))
    end = draw(rarely(ODD_ENDS, [b"\r\n"]))
    head = b" ".join([method, target, version]) + end + b"".join(name + b": " + value + end for name, value in headers)
    return head + end + body


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Draw several messages in a row, with a few bytes changed, left out or inserted."""
    data = bytearray(b"".join(draw(st.lists(messages(), min_size=1, max_size=3))))
    for _ in range(draw(st.integers(0, 2))):
        begin = draw(st.integers(0, len(data)))
        put_in = draw(st.sampled_from([b"", b"\r\n", b"\n", b"\r", b"\x00", b" ", b":", b"\r\n\r\n"]))
        data[begin : begin + draw(st.integers(0, 3))] = put_in
    return bytes(data)


WILD = st.one_of(
    st.binary(max_size=300),
    st.binary(max_size=100).map(lambda tail: b"GET / HTTP/1.1\r\nHost: x\r\n" + tail + b"\r\n\r\n"),
    st.binary(max_size=100).map(lambda tail: b"GET /users?" + tail + b" HTTP/1.1\r\nHost: x\r\n\r\n"),
    st.text(max_size=50).map(lambda tail: b"GET /users/" + tail.encode() + b" HTTP/1.1\r\nHost: x\r\n\r\n"),
    chunked().map(lambda body: b"POST /groups HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + body),
)


@contextmanager
def no_faults() -> Iterator[None]:
    """Check that no fault of the server is logged."""
    records: list[logging.LogRecord] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = records.append  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
    assert [logging.Formatter().format(record) for record in records] == []


async def converse(port: int, data: bytes, cuts: list[int]) -> bytes:
    """Send bytes, and return what the server answers until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    came = b""
    try:
        with suppress(ConnectionError):
            for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
                writer.write(data[begin:end])
                await writer.drain()
                await asyncio.sleep(0)
            with suppress(TimeoutError):
                while piece := await asyncio.wait_for(reader.read(1 << 16), QUIET_SECONDS):
                    came += piece
        with suppress(OSError):
            writer.write_eof()
        async with asyncio.timeout(SECONDS):
            with suppress(ConnectionError):
                came += await reader.read()
    finally:
        writer.transport.abort()
    return came


def check(target: Target, data: bytes, cuts: list[int]) -> None:
    server = target.server
    with no_faults():
        came = server.run(converse(server.port, data, sorted(min(cut, len(data)) for cut in cuts)))
        assert came == b"" or came.startswith(b"HTTP/1.1 ")
        statuses = [int(status) for status in STATUS.findall(came)]
        assert [status for status in statuses if status >= 500 and status not in SANE] == []
        assert server.get("/-/live").status == 200


CUTS = st.lists(st.integers(0, 400), max_size=4)


@given(damaged(), CUTS)
@example(b"GET /users HTTP/1.1\r\nHost: x\r\n\r\n", [3, 7])
def test_damaged_requests(people: Target, data: bytes, cuts: list[int]) -> None:
    check(people, data, cuts)


@given(messages(), CUTS)
def test_odd_requests(people: Target, data: bytes, cuts: list[int]) -> None:
    check(people, data, cuts)


@given(WILD, CUTS)
def test_wild_bytes(people: Target, data: bytes, cuts: list[int]) -> None:
    check(people, data, cuts)
