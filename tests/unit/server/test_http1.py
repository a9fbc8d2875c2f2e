"""`server/http/transport/http1.py` and `server/http/transport/answering.py` over a transport of the test: where
requests end, how answers are framed, and when connections are closed. `tests/http/transport/test_hostile_http.py` does
so over sockets."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import pytest
from tornado.httputil import HTTPHeaders, HTTPMessageDelegate, HTTPOutputError, RequestStartLine, ResponseStartLine
from tornado.iostream import StreamClosedError

from server.http.headers import Headers
from server.http.transport.answering import JOINED_BYTES, Exchange
from server.http.transport.http1 import KEPT_BYTES, SHORT_BODY_BYTES, ClientConnection, Peer
from server.http.transport.message import FED_BYTES, FED_TIMES
from tests.waiting import until

GET = b"GET /one HTTP/1.1\r\nHost: x\r\n\r\n"
OK = ResponseStartLine("", 200, "OK")


class Transport:
    """A transport that records in `done` what a connection does to it."""

    def __init__(self) -> None:
        self.written = b""
        self.unread = 0
        self.done: list[str] = []

    def write(self, data: bytes) -> None:
        self.written += data

    def writelines(self, pieces: tuple[bytes, ...]) -> None:
        self.written += b"".join(pieces)

    def is_closing(self) -> bool:
        return bool({"close", "abort"} & set(self.done))

    def get_write_buffer_size(self) -> int:
        return self.unread

    def can_write_eof(self) -> bool:
        return True

    def get_extra_info(self, _: str) -> None:
        return None

    def __getattr__(self, name: str) -> Callable[[], None]:
        return lambda: self.done.append(name)


def fields(values: dict[str, str]) -> Headers:
    return Headers({name: [value] for name, value in values.items()})


class Request(HTTPMessageDelegate):
    """One received request. While `gate` is not done, its handler is not ready for the body."""

    def __init__(self, exchange: Exchange, line: RequestStartLine, headers: Headers) -> None:
        self.exchange, self.line, self.headers = exchange, line, headers
        self.body = b""
        self.told: list[str] = []
        self.gate: asyncio.Future[None] | None = None
        exchange.set_close_callback(lambda: self.told.append("closed"))

    def headers_received(self, *_: Any) -> asyncio.Future[None] | None:
        self.told.append("head")
        return self.gate

    def data_received(self, chunk: bytes) -> None:
        self.body += chunk

    def finish(self) -> None:
        self.told.append("finish")

    def on_connection_close(self) -> None:
        self.told.append("gone")

    def answer(self, body: bytes = b"answer", line: ResponseStartLine = OK, **headers: str) -> None:
        self.exchange.write_headers(line, fields({"Content-Length": str(len(body))} | headers), body)
        self.exchange.finish()


class PromptRequest(Request):
    def finish(self) -> None:
        super().finish()
        self.answer()


class Owner:
    """The owner of a connection. is_held: whether handlers delay bodies. answers_at_once: whether requests are answered
    immediately, and not by the test."""

    def __init__(self) -> None:
        self.head_bytes = 1000
        self.is_ending = False
        self.shed_next = 0
        self.is_held = False
        self.answers_at_once = False
        self.requests: list[Request] = []
        self.refusals: list[int] = []

    def on_connection_lost(self, connection: ClientConnection) -> None: ...

    def on_slow_write(self, size: int) -> None: ...

    def on_refused(self, connection: ClientConnection, status: HTTPStatus, seconds: float) -> None:
        assert 0 <= seconds < 60
        self.refusals.append(status)

    def route(self, exchange: Exchange, line: RequestStartLine, headers: Headers) -> Request:
        request = (PromptRequest if self.answers_at_once else Request)(exchange, line, headers)
        if self.is_held:
            request.gate = asyncio.get_running_loop().create_future()
        self.requests.append(request)
        return request


def connected(owner: Owner) -> tuple[ClientConnection, Any]:
    transport: Any = Transport()
    connection = ClientConnection(owner, Peer("127.0.0.1", ("127.0.0.1", 1), 2))
    connection.connection_made(transport)
    return connection, transport


def asked(data: bytes = GET) -> tuple[Request, ClientConnection, Any]:
    """Return a connection that has received one request."""
    owner = Owner()
    connection, transport = connected(owner)
    connection.data_received(data)
    return owner.requests[0], connection, transport


async def turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


# requests


BODIES = {
    "none": (GET, b""),
    "length": (b"POST /one HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nabcd", b"abcd"),
    "chunks": (
        b"POST /one HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"3\r\nab\r\r\n5\r\n\n\r\n\r\n\r\n0\r\nX: y\r\n\r\n",
        b"ab\r\n\r\n\r\n",
    ),
    "upgrade": (
        b"POST /one HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 4\r\n\r\nabcd",
        b"abcd",
    ),
}


@pytest.mark.parametrize("name", BODIES)
async def test_a_request_ends_where_the_next_begins(name: str) -> None:
    """It does not matter how the bytes are split into packets."""
    first, body = BODIES[name]
    data = first + GET.replace(b"one", b"two")
    for cut in range(1, len(data)):
        owner = Owner()
        connection, transport = connected(owner)
        for piece in (data[:cut], data[cut:]):
            connection.data_received(piece)
        assert [(request.line.path, request.body) for request in owner.requests] == [("/one", body)]
        assert owner.requests[0].told == ["head", "finish"]
        owner.requests[0].answer()
        await turns()
        assert [request.line.path for request in owner.requests] == ["/one", "/two"]
        assert "X" not in owner.requests[0].headers
        assert transport.done == []


@pytest.mark.parametrize("before", [b"", b"\r\n", b"\r\n" * 4])
async def test_empty_lines_before_a_request(before: bytes) -> None:
    """It does not matter how they are split into packets. The count starts again with each request."""
    for cut in range(len(before) + 1):
        owner = Owner()
        connection, transport = connected(owner)
        for _ in range(3):
            connection.data_received(before[:cut])
            connection.data_received(before[cut:] + GET)
            owner.requests[-1].answer()
            await turns()
        assert (len(owner.requests), transport.done) == (3, [])


async def test_empty_lines_are_counted_however_they_come() -> None:
    owner = Owner()
    connection, transport = connected(owner)
    for _ in range(5):
        assert owner.refusals == []
        connection.data_received(b"\r")
        connection.data_received(b"\n")
    assert (owner.refusals, transport.done) == ([400], ["write_eof"])


@pytest.mark.parametrize(
    ("sent", "version"), [("1.0", "HTTP/1.0"), ("1.1", "HTTP/1.1"), ("1.2", "HTTP/1.1"), ("1.9", "HTTP/1.1")]
)
async def test_a_higher_minor_version_is_answered_as_1_1(sent: str, version: str) -> None:
    request, _, _ = asked(f"GET / HTTP/{sent}\r\nHost: x\r\n\r\n".encode())
    assert request.line.version == version


async def test_the_longest_method() -> None:
    request, _, _ = asked(b"M" * 32 + b" / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert request.line.method == "M" * 32


async def test_headers() -> None:
    lines = b"GET /\xc3\xa9?a HTTP/1.1\r\nhost: x\r\nx-one: \t a b \t\r\nX-ONE: c\r\nX-Two: \xe9\r\n\r\n"
    request, _, _ = asked(lines)
    assert request.line == RequestStartLine("GET", "/\u00c3\u00a9?a", "HTTP/1.1")
    assert dict(request.headers) == {"Host": "x", "X-One": "a b,c", "X-Two": "\u00e9"}
    assert request.exchange.context.remote_ip == "127.0.0.1"


async def test_a_body_waits_for_its_handler() -> None:
    owner = Owner()
    owner.is_held = True
    connection, transport = connected(owner)
    connection.data_received(b"POST /one HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nab")
    connection.data_received(b"cd")
    [request] = owner.requests
    assert (request.told, request.body) == (["head"], b"")
    assert request.gate is not None
    request.gate.set_result(None)
    await turns()
    assert (request.told, request.body, transport.written) == (["head", "finish"], b"abcd", b"")


async def test_a_handler_that_fails_over_a_body() -> None:
    owner = Owner()
    owner.is_held = True
    connection, transport = connected(owner)
    connection.data_received(b"POST /one HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nab")
    [request] = owner.requests
    assert request.gate is not None
    request.gate.set_exception(ValueError("no"))
    await turns()
    assert transport.done == ["abort"]


@pytest.mark.parametrize("is_answered", [False, True])
async def test_100_continue_is_sent_unless_the_answer_has_begun(is_answered: bool) -> None:
    owner = Owner()
    owner.is_held = True
    connection, transport = connected(owner)
    connection.data_received(
        b"POST /one HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-Continue\r\n\r\n",
    )
    [request] = owner.requests
    if is_answered:
        request.answer()
    assert request.gate is not None
    request.gate.set_result(None)
    await turns()
    assert transport.written.startswith(b"HTTP/1.1 200 OK" if is_answered else b"HTTP/1.1 100 Continue\r\n\r\n")
    assert transport.written.count(b"HTTP/1.1") == 1
    # After this answer the client may send the body or not, so the next bytes are ambiguous.
    assert transport.done == (["write_eof"] if is_answered else [])


async def test_bytes_behind_a_request_are_kept_up_to_a_limit() -> None:
    request, connection, transport = asked(GET + b"x" * KEPT_BYTES)
    assert transport.done == []
    connection.data_received(b"x")
    assert transport.done == ["pause_reading"]
    request.answer()
    await turns()
    assert transport.written.count(b"HTTP/1.1 431 ") == 1


async def test_reading_resumes_when_the_kept_bytes_are_below_the_limit() -> None:
    owner = Owner()
    connection, transport = connected(owner)
    following = GET + GET[:-2] + b"X: " + b"x" * 100 + b"\r\n\r\n"
    count = 2 + KEPT_BYTES // len(GET)
    connection.data_received(GET * count + following)
    assert transport.done == ["pause_reading"]
    for number in range(count + 2):
        owner.requests[number].answer()
        await turns()
    assert transport.done == ["pause_reading", "resume_reading"]
    assert len(owner.requests) == count + 2


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"no request\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 505),
        (b"GET / HTTP/0.9\r\n\r\n", 505),
        (b"GET / HTTP/3\r\n\r\n", 505),
        (b"GET / HTTP/1.10\r\n\r\n", 505),
        (b"G@T / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"M" * 33 + b" / HTTP/1.1\r\nHost: x\r\n\r\n", 501),
        (b"M" * 900 + b" / HTTP/1.1\r\nHost: x\r\n\r\n", 501),
        (b"\n" + GET, 400),
        (b"\r" + GET, 400),
        (b"\r\r\n" + GET, 400),
        (b"\r\n\n" + GET, 400),
        (b"\r\n" * 5 + GET, 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (b"x" * 1001, 431),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 1000 + b"\r\n\r\n", 431),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 400),
        (b"POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (
            b"POST / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: x\r\nTransfer-Encoding: chunked\r\n\r\n",
            400,
        ),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: " + b"x" * 1000, 431),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nno", 400),
    ],
)
async def test_invalid_requests_get_a_bare_status(data: bytes, status: int) -> None:
    """The client can read the answer: the connection is not reset by bytes that it still sends."""
    owner = Owner()
    connection, transport = connected(owner)
    connection.data_received(data)
    connection.data_received(GET)
    first, lines, body = parts(transport.written)
    phrase = HTTPStatus(status).phrase.encode()
    assert (first, lines[1:], body) == (
        b"HTTP/1.1 %d %b" % (status, phrase),
        [b"Connection: close", b"Content-Length: 0"],
        b"",
    )
    assert re.fullmatch(rb"Date: \w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", lines[0])
    assert transport.done == ["write_eof"]
    assert owner.refusals == [status]
    assert [request.told for request in owner.requests] in ([], [["head", "gone"]])


# answers


def parts(written: bytes) -> tuple[bytes, list[bytes], bytes]:
    """Return the first line, the headers without the one that every answer has, and the body."""
    head, _, body = written.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    lines.remove(b"X-Content-Type-Options: nosniff")
    return first, lines, body


@pytest.mark.parametrize(
    ("head", "status", "headers", "pieces", "lines", "body", "is_closed"),
    [
        (b"GET / HTTP/1.1\r\nHost: x", 200, {"Content-Length": "2"}, [b"ab"], [b"Content-Length: 2"], b"ab", False),
        (
            b"GET / HTTP/1.1\r\nHost: x",
            200,
            {},
            [b"ab", b"", b"c"],
            [b"Transfer-Encoding: chunked"],
            b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
            False,
        ),
        (b"GET / HTTP/1.0", 200, {}, [b"ab"], [b"Connection: close"], b"ab", True),
        (b"GET / HTTP/1.0\r\nConnection: keep-alive", 200, {}, [b"ab"], [b"Connection: close"], b"ab", True),
        (
            b"GET / HTTP/1.0\r\nConnection: Keep-Alive",
            200,
            {"Content-Length": "2"},
            [b"ab"],
            [b"Content-Length: 2", b"Connection: keep-alive"],
            b"ab",
            False,
        ),
        (
            b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Close",
            200,
            {"Content-Length": "0"},
            [],
            [b"Content-Length: 0", b"Connection: close"],
            b"",
            True,
        ),
        (
            b"GET / HTTP/1.1\r\nHost: x",
            200,
            {"Content-Length": "0", "Connection": "close"},
            [],
            [b"Content-Length: 0", b"Connection: close"],
            b"",
            True,
        ),
        (b"HEAD / HTTP/1.1\r\nHost: x", 200, {"Content-Length": "9"}, [], [b"Content-Length: 9"], b"", False),
        (b"HEAD / HTTP/1.1\r\nHost: x", 200, {}, [], [], b"", False),
        (b"GET / HTTP/1.1\r\nHost: x", 204, {}, [], [], b"", False),
        (b"GET / HTTP/1.1\r\nHost: x", 304, {"Content-Length": "9"}, [], [b"Content-Length: 9"], b"", False),
    ],
)
async def test_framing(
    head: bytes,
    status: int,
    headers: dict[str, str],
    pieces: list[bytes],
    lines: list[bytes],
    body: bytes,
    is_closed: bool,
) -> None:
    request, _, transport = asked(head + b"\r\n\r\n")
    exchange = request.exchange
    exchange.write_headers(ResponseStartLine("", status, "Well"), fields(headers), *pieces[:1])
    for piece in pieces[1:]:
        exchange.write(piece)
    exchange.finish()
    assert parts(transport.written) == (b"HTTP/1.1 %d Well" % status, lines, body)
    assert transport.done == (["close"] if is_closed else [])


async def test_a_server_that_is_ending_closes_connections_after_their_answers() -> None:
    owner = Owner()
    connection, transport = connected(owner)
    connection.data_received(GET)
    owner.is_ending = True
    owner.requests[0].answer()
    assert b"\r\nConnection: close\r\n" in transport.written
    assert transport.done == ["close"]


async def test_an_owner_that_sheds_connections_closes_them_after_the_next_answers() -> None:
    """These answers have `Connection: close`. A connection with a further request is kept."""
    owner = Owner()
    owner.shed_next = 2
    transports = []
    for heads in (GET, GET + GET, GET, GET):
        connection, transport = connected(owner)
        connection.data_received(heads)
        owner.requests[-1].answer()
        transports.append(transport)
    assert [b"\r\nConnection: close\r\n" in one.written for one in transports] == [True, False, True, False]
    assert [one.done for one in transports] == [["close"], [], ["close"], []]
    assert owner.shed_next == 0


POST = b"POST /one HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody"
CHUNKED = b"POST /one HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"


@pytest.mark.parametrize("request_bytes", [GET, POST, CHUNKED])
async def test_a_connection_with_another_request_waiting_is_not_shed(request_bytes: bytes) -> None:
    owner = Owner()
    owner.answers_at_once, owner.shed_next = True, 1
    connection, transport = connected(owner)
    connection.data_received(3 * request_bytes)
    await turns()
    answers = transport.written.split(b"HTTP/1.1 200 OK\r\n")[1:]
    assert [b"Connection: close\r\n" in answer for answer in answers] == [False, False, True]
    assert (len(owner.requests), owner.shed_next, transport.done) == (3, 0, ["close"])


async def test_a_connection_that_its_client_closes_does_not_count_as_shed() -> None:
    owner = Owner()
    owner.shed_next = 1
    connection, transport = connected(owner)
    connection.data_received(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    owner.requests[-1].answer()
    assert (transport.done, owner.shed_next) == (["close"], 1)


async def test_a_large_body_follows_its_head() -> None:
    request, _, transport = asked()
    request.answer(b"x" * JOINED_BYTES)
    assert transport.written.endswith(b"\r\n\r\n" + b"x" * JOINED_BYTES)


@pytest.mark.parametrize("value", ["a\r\nX: b", "a\n", "a\r", "a\0"])
async def test_a_header_with_a_line_break_is_refused(value: str) -> None:
    request, _, transport = asked()
    with pytest.raises(ValueError, match="line break"):
        request.answer(Location=value)
    assert transport.written == b""


@pytest.mark.parametrize("line", [OK, ResponseStartLine("", 204, "")])
async def test_an_answer_longer_than_its_content_length_is_reset(line: ResponseStartLine) -> None:
    request, _, transport = asked()
    request.exchange.write_headers(line, fields({"Content-Length": "2"} if line.code == 200 else {}))
    with pytest.raises(HTTPOutputError):
        request.exchange.write(b"abc")
    assert transport.done == ["abort"]
    assert transport.written.endswith(b"\r\n\r\n")


async def test_an_answer_with_two_lengths_is_refused() -> None:
    """A proxy might believe the other one."""
    request, _, transport = asked()
    headers = fields({"Content-Length": "2"})
    headers.add("Content-Length", "5")
    with pytest.raises(ValueError, match="2,5"):
        request.exchange.write_headers(OK, headers, b"ab")
    assert transport.written == b""


async def test_an_answer_with_tornados_own_headers_is_written() -> None:
    request, _, transport = asked()
    request.exchange.write_headers(OK, HTTPHeaders({"content-length": "2"}), b"ab")
    request.exchange.finish()
    assert transport.written.endswith(b"Content-Length: 2\r\n\r\nab")


async def test_an_answer_shorter_than_its_content_length_is_reset() -> None:
    request, _, transport = asked()
    request.exchange.write_headers(OK, fields({"Content-Length": "2"}), b"a")
    with pytest.raises(HTTPOutputError):
        request.exchange.finish()
    assert transport.done == ["abort"]


async def test_a_late_write_does_not_go_into_another_answer() -> None:
    owner = Owner()
    connection, transport = connected(owner)
    connection.data_received(GET)
    owner.requests[0].answer()
    connection.data_received(GET)
    before = transport.written
    late = owner.requests[0].exchange
    for future in (late.write(b"x"), late.write_headers(OK, Headers())):
        with pytest.raises(StreamClosedError):
            await future
    late.finish()
    late.close()
    late.reset()
    assert (transport.written, transport.done) == (before, [])


async def test_writes_wait_for_a_slow_reader() -> None:
    request, connection, _ = asked()
    first = request.exchange.write_headers(OK, Headers(), b"x")
    assert first.done()
    connection.pause_writing()
    second = request.exchange.write(b"x")
    await turns()
    assert not second.done()
    connection.resume_writing()
    await second
    connection.pause_writing()
    third = request.exchange.write(b"x")
    connection.connection_lost(None)
    with pytest.raises(StreamClosedError):
        await third


# ends


async def test_a_client_that_disconnects_is_reported_to_its_handler() -> None:
    """The handler is told once, while it works or receives the body, but not after its answer."""
    request, connection, _ = asked()
    connection.connection_lost(None)
    assert request.told == ["head", "finish", "gone"]
    request, connection, _ = asked(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n")
    connection.connection_lost(None)
    assert request.told == ["head", "gone"]
    request, connection, _ = asked()
    request.answer()
    connection.connection_lost(None)
    assert request.told == ["head", "finish"]


@pytest.mark.parametrize(("length", "is_kept"), [(SHORT_BODY_BYTES, True), (SHORT_BODY_BYTES + 1, False)])
async def test_an_answer_before_the_body(length: int, is_kept: bool) -> None:
    """The rest of a short body is read and discarded. The handler does not wait for it."""
    request, connection, transport = asked(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % length)
    request.answer()
    await turns()
    assert request.told == ["head", "gone"]
    assert (b"Connection: close" in transport.written, transport.done) == (
        not is_kept,
        [] if is_kept else ["write_eof"],
    )
    written = transport.written
    connection.data_received(b"x" * length + b"no request\r\n\r\n")
    assert (request.body, transport.written.startswith(written + b"HTTP/1.1 400 ")) == (b"", is_kept)


async def test_a_late_head() -> None:
    connection, transport = connected(Owner())
    assert (connection.waits_since is None, connection.head_since) == (False, None)
    connection.data_received(GET[:9])
    assert connection.head_since is not None
    connection.refuse_late_head()
    assert transport.written.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert (connection.waits_since, connection.head_since) == (None, None)


async def test_waits_since_is_set_only_between_requests() -> None:
    owner = Owner()
    connection, _ = connected(owner)
    connection.data_received(GET)
    assert connection.waits_since is None
    owner.requests[0].answer()
    assert connection.waits_since is not None


async def test_a_connection_can_be_closed_before_it_has_a_transport() -> None:
    connection, transport = ClientConnection(Owner(), Peer("127.0.0.1", ("127.0.0.1", 1), 2)), Transport()
    assert (connection.is_at_work, connection.moved_bytes) == (False, 0)
    connection.close()
    connection.connection_made(transport)  # type: ignore[arg-type]  # it is all that is asked for
    assert (transport.done, connection.waits_since) == (["abort"], None)


async def test_is_at_work_while_the_client_waits_for_the_server() -> None:
    """A connection is at work from the end of its request to the end of its answer, unless its client does not read."""
    owner = Owner()
    connection, transport = connected(owner)
    head = b"POST /one HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n"
    found = []
    for piece in (head[:9], head[9:], b"a", b"b"):
        connection.data_received(piece)
        found.append(connection.is_at_work)
    assert found == [False, False, False, True]
    owner.requests[0].exchange.write_headers(OK, fields({"Content-Length": "4"}), b"ab")
    transport.unread = 3
    assert (connection.is_at_work, connection.unread_bytes) == (False, 3)
    assert connection.moved_bytes == len(head) + 2 + len(transport.written) - 3
    transport.unread = 0
    owner.requests[0].exchange.write(b"cd")
    assert connection.is_at_work
    owner.requests[0].exchange.finish()
    assert not connection.is_at_work


def chunk(content: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(content), content)


@pytest.mark.parametrize(
    ("chunks", "content"),
    [
        # The end of the body is an empty line. With a copy of the rest at each of these it takes five seconds.
        (chunk(b"\r\n" * 150_000), b"\r\n" * 150_000),
        (chunk(b"a") * 50_000, b"a" * 50_000),
    ],
    ids=["empty lines", "chunks of a byte"],
)
async def test_a_body_of_many_steps_yields_to_other_requests(chunks: bytes, content: bytes) -> None:
    request, connection, transport = asked(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    begin = time.process_time()
    connection.data_received(chunks + b"0\r\n\r\n" + GET)
    assert 0 < len(request.body) <= 2 * FED_TIMES + FED_BYTES
    assert transport.done == ["pause_reading"]
    await until(lambda: request.told == ["head", "finish"], pause_seconds=0)
    assert request.body == content
    assert time.process_time() - begin < 2
    request.answer()
    await turns()
    assert transport.done == ["pause_reading", "resume_reading"]
    assert connection.owner.requests[1].line.method == "GET"  # type: ignore[attr-defined]  # the test's own owner


async def test_the_end_of_chunks_is_found_wherever_a_step_ends() -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    for length in range(FED_BYTES - 30, FED_BYTES + 5):
        request, connection, _ = asked(head + chunk(b"a" * length) + b"0\r\n\r\n" + GET)
        assert (len(request.body), request.told) == (length, ["head", "finish"])
        assert connection._kept == GET


async def test_reading_resumes_for_a_long_head_behind_another_request() -> None:
    """While the other request is answered, the head is kept. Its length pauses reading."""
    owner = Owner()
    owner.head_bytes = 4 * KEPT_BYTES
    connection, transport = connected(owner)
    connection.data_received(GET)
    connection.data_received(b"GET /two HTTP/1.1\r\nHost: x\r\nX: " + b"x" * (KEPT_BYTES + 1))
    assert transport.done == ["pause_reading"]
    owner.requests[0].answer()
    await turns()
    assert transport.done == ["pause_reading", "resume_reading"]
