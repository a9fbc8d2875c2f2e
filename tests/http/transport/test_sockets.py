"""Section 2 on bare sockets: answers before a body arrives, bodies over the limit, and invalid requests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.http.conftest import MEDIA_TYPE, Answer, Api, Serve
from tests.http.expected import error
from tests.http.wire import connected

LARGE = 3 * 1024 * 1024
"""The announced length of a body of which only a part is sent; below the limit of 4 MiB."""
TOO_LARGE = error(413, "body_too_large", "Body Too Large", "A body has at most 4194304 bytes.")


def is_error(answer: Answer, expected: dict[str, Any]) -> None:
    assert answer.status == int(expected["status"])
    assert answer.headers["Content-Type"] == MEDIA_TYPE
    assert answer.errors == [expected]
    assert answer.document["jsonapi"] == {"version": "1.0"}


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            ["POST /nothing HTTP/1.1", f"Content-Type: {MEDIA_TYPE}"],
            error(404, "route_not_found", "Not Found", "There is nothing at “/nothing”."),
        ),
        (
            ["PUT /users HTTP/1.1", f"Content-Type: {MEDIA_TYPE}"],
            error(
                405,
                "method_not_allowed",
                "Method Not Allowed",
                "“PUT” is not allowed here; allowed are GET, POST, HEAD, QUERY, OPTIONS.",
            ),
        ),
        (
            ["POST /users HTTP/1.1", f"Content-Type: {MEDIA_TYPE}", f"Accept: {MEDIA_TYPE}; charset=utf-8"],
            error(
                406,
                "not_acceptable",
                "Not Acceptable",
                "Every application/vnd.api+json of Accept has the parameter 'charset', and JSON:API allows only `ext` "
                "and `profile`.",
                header="Accept",
            ),
        ),
        (
            ["POST /users HTTP/1.1", "Content-Type: text/plain"],
            error(
                415,
                "unsupported_media_type",
                "Unsupported Media Type",
                "The Content-Type must be application/vnd.api+json.",
                header="Content-Type",
            ),
        ),
        (
            ["POST /users HTTP/1.1"],
            error(
                415,
                "unsupported_media_type",
                "Unsupported Media Type",
                "A body needs a Content-Type: application/vnd.api+json.",
                header="Content-Type",
            ),
        ),
        (
            ["PATCH /users/1 HTTP/1.1", f"Content-Type: {MEDIA_TYPE}", "If-Unmodified-Since: x"],
            error(
                400,
                "precondition_unsupported",
                "Precondition Unsupported",
                "If-Unmodified-Since is not supported here: send the request without it.",
                header="If-Unmodified-Since",
            ),
        ),
    ],
    ids=["404", "405", "406", "415", "415-missing", "400"],
)
@pytest.mark.parametrize("framing", [f"Content-Length: {LARGE}", "Transfer-Encoding: chunked"])
async def test_answered_before_the_body(reader: Api, lines: list[str], expected: dict[str, Any], framing: str) -> None:
    async with connected(reader.port) as wire:
        body = b'{"data":' if framing.startswith("Content") else b'8\r\n{"data":\r\n'
        await wire.send(*lines, framing, body=body)
        is_error(await wire.answer(), expected)


@pytest.mark.parametrize("length", [4 * 1024 * 1024 + 1, 10**12, 2**62 - 1])
async def test_too_large_by_its_length(reader: Api, length: int) -> None:
    async with connected(reader.port) as wire:
        await wire.send(
            "POST /users HTTP/1.1", f"Content-Type: {MEDIA_TYPE}", f"Content-Length: {length}", body=b'{"data":'
        )
        is_error(await wire.answer(), TOO_LARGE)


async def test_too_large_in_chunks(reader: Api) -> None:
    """Without a length the server notices it, and answers, when the limit is passed."""
    async with connected(reader.port) as wire:
        await wire.send("POST /users HTTP/1.1", f"Content-Type: {MEDIA_TYPE}", "Transfer-Encoding: chunked")
        megabyte = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
        for _ in range(4):
            await wire.send_bytes(megabyte)
        await wire.send_bytes(b"1\r\n \r\n")
        is_error(await wire.answer(), TOO_LARGE)


@pytest.fixture
def small(serve: Serve, rows_url: str) -> Api:
    return serve(rows_url, max_body_bytes=64)


async def test_the_limit_is_a_setting(small: Api) -> None:
    fits = await small.request("POST", "/groups", body=b"[]" + b" " * 62, headers={"Content-Type": MEDIA_TYPE})
    assert (fits.status, fits.errors[0]["code"]) == (422, "invalid_document")
    over = await small.request("POST", "/groups", body=b"[]" + b" " * 63, headers={"Content-Type": MEDIA_TYPE})
    is_error(over, error(413, "body_too_large", "Body Too Large", "A body has at most 64 bytes."))


async def test_a_refused_body_that_is_sent_nevertheless(small: Api) -> None:
    """The client can read the answer while it still sends. Then the connection ends."""
    async with connected(small.port) as wire:
        await wire.send("POST /groups HTTP/1.1", f"Content-Type: {MEDIA_TYPE}", "Content-Length: 200000")
        answer = await wire.answer()
        assert (answer.status, answer.headers["Connection"]) == (413, "close")
        await wire.send_bytes(b" " * 200000)
        assert await wire.rest() == b""


async def test_chunked_body(reader: Api) -> None:
    async with connected(reader.port) as wire:
        await wire.send(
            "POST /groups HTTP/1.1",
            f"Content-Type: {MEDIA_TYPE}",
            "Transfer-Encoding: chunked",
            body=b"1\r\n[\r\n1\r\n]\r\n0\r\n\r\n",
        )
        answer = await wire.answer()
        assert (answer.status, answer.errors[0]["code"]) == (422, "invalid_document")


async def test_expect_continue(reader: Api) -> None:
    async with connected(reader.port) as wire:
        await wire.send(
            "POST /groups HTTP/1.1", f"Content-Type: {MEDIA_TYPE}", "Content-Length: 2", "Expect: 100-continue"
        )
        assert (await wire.answer()).status == 100
        await wire.send_bytes(b"[]")
        answer = await wire.answer()
        assert (answer.status, answer.errors[0]["code"]) == (422, "invalid_document")


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (["POST /groups HTTP/1.1", f"Content-Type: {MEDIA_TYPE}", "Content-Length: 5000000"], 413),
        (["POST /groups HTTP/1.1", "Content-Type: text/plain", "Content-Length: 2"], 415),
        (["POST /nothing HTTP/1.1", f"Content-Type: {MEDIA_TYPE}", "Content-Length: 2"], 404),
        (["PUT /groups HTTP/1.1", f"Content-Type: {MEDIA_TYPE}", "Content-Length: 2"], 405),
    ],
)
async def test_expect_continue_refused(reader: Api, lines: list[str], status: int) -> None:
    """The final answer is sent at once, without a 100 before it."""
    async with connected(reader.port) as wire:
        await wire.send(*lines, "Expect: 100-continue")
        answer = await wire.answer()
        assert (answer.status, answer.document["errors"][0]["status"]) == (status, str(status))


async def test_pipelined(reader: Api) -> None:
    """Answers are in the order of the requests, also if one is an error."""
    async with connected(reader.port) as wire:
        requests = [
            f"GET {path} HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: {number}\r\n\r\n"
            for number, path in enumerate(["/persons?page[size]=1000", "/nothing", "/groups/1", "/-/live"])
        ]
        await wire.send_bytes("".join(requests).encode())
        answers = [await wire.answer() for _ in requests]
    assert [answer.status for answer in answers] == [200, 404, 200, 200]
    assert [answer.headers["X-Request-Id"] for answer in answers] == ["0", "1", "2", "3"]
    assert len(answers[0].document["data"]) == 65


async def test_pipelined_after_a_head(reader: Api) -> None:
    async with connected(reader.port) as wire:
        await wire.send_bytes(
            b"HEAD /groups/1 HTTP/1.1\r\nHost: localhost\r\n\r\nGET /groups/2 HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        head = await wire.answer(has_body=False)
        assert (head.status, int(head.headers["Content-Length"]) > 0) == (200, True)
        assert (await wire.answer()).document["data"]["id"] == "2"


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE"])
async def test_a_body_of_a_get_is_ignored(reader: Api, method: str) -> None:
    """Of any size and type. The next request on the connection is understood."""
    path = "/groups/1" if method != "DELETE" else "/groups/99"
    async with connected(reader.port) as wire:
        await wire.send(
            f"{method} {path} HTTP/1.1", "Content-Type: text/plain", "Content-Length: 5000000", body=b"x" * 5_000_000
        )
        answer = await wire.answer(has_body=method != "HEAD")
        assert answer.status == (404 if method == "DELETE" else 200)
        await wire.send("GET /groups/2 HTTP/1.1")
        assert (await wire.answer()).document["data"]["id"] == "2"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("BREW", "/users", 405),
        ("get", "/users", 405),
        ("TRACE", "/users/1", 405),
        ("PROPFIND", "/", 405),
        ("BREW", "/nothing", 404),
        ("PUT", "/nothing", 404),
    ],
)
async def test_strange_methods(reader: Api, method: str, path: str, status: int) -> None:
    allow = {
        "/users": "GET, POST, HEAD, QUERY, OPTIONS",
        "/users/1": "GET, PATCH, DELETE, HEAD, QUERY, OPTIONS",
        "/": "GET, HEAD, OPTIONS",
    }
    async with connected(reader.port) as wire:
        await wire.send(f"{method} {path} HTTP/1.1")
        answer = await wire.answer()
    assert (answer.status, answer.headers.get("Allow")) == (status, allow.get(path))
    assert [error["status"] for error in answer.errors] == [str(status)]


async def test_http_1_0(reader: Api) -> None:
    async with connected(reader.port) as wire:
        await wire.send("GET /groups/1 HTTP/1.0")
        assert (await wire.answer()).document["data"]["id"] == "1"
        assert await wire.rest() == b""


async def test_absolute_form(reader: Api) -> None:
    """RFC 9112, section 3.2.2: a server must accept the absolute form of a target."""
    async with connected(reader.port) as wire:
        await wire.send("GET http://localhost/groups/1?fields[group]=name HTTP/1.1")
        answer = await wire.answer()
    assert (answer.status, answer.document["data"]["id"]) == (200, "1")


@pytest.mark.parametrize(
    "data",
    [
        b"GARBAGE\r\n\r\n",
        b"GET /users\r\n\r\n",
        b"GET /users HTTP/1.1\r\nHost: localhost\r\nno colon here\r\n\r\n",
        b"GET /users HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        b"POST /users HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 5\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET /users HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 70_000 + b"\r\n\r\n",
    ],
    ids=["garbage", "no version", "header", "length", "two framings", "large header"],
)
async def test_invalid_requests(reader: Api, data: bytes) -> None:
    """A status without a document, and a closed connection."""
    async with connected(reader.port) as wire:
        await wire.send_bytes(data)
        head, _, body = (await wire.rest()).partition(b"\r\n\r\n")
    assert head.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 431 "))
    assert body == b""


async def test_a_url_too_long(reader: Api) -> None:
    def line(length: int) -> str:
        return "/groups?x-y=" + "z" * (length - len("/groups?x-y="))

    async with connected(reader.port) as wire:
        await wire.send(f"GET {line(16384)} HTTP/1.1")
        assert (await wire.answer()).status == 200
        await wire.send(f"GET {line(16385)} HTTP/1.1")
        is_error(await wire.answer(), error(414, "url_too_long", "URL Too Long", "A URL has at most 16384 bytes."))


async def test_bytes_beyond_ascii_in_a_url(reader: Api) -> None:
    """Some clients do not encode them. They are read as UTF-8."""
    async with connected(reader.port) as wire:
        await wire.send_bytes("GET /users?filter[last_name]=Gödel HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        answer = await wire.answer()
    assert (answer.status, answer.ids) == (200, ["4"])
    assert json.loads(answer.body)["links"]["self"] == "/users?filter%5Blast_name%5D=G%C3%B6del"
