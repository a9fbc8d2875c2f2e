"""Section 2: Accept and Content-Type."""

from __future__ import annotations

import pytest

from tests.http.conftest import MEDIA_TYPE, Api
from tests.http.expected import error
from tests.http.wire import connected

ATOMIC = "https://jsonapi.org/ext/atomic"


@pytest.mark.parametrize(
    "accept",
    [
        None,
        "",
        "*/*",
        "application/*",
        "application/json",
        "application/json; charset=utf-8",
        MEDIA_TYPE,
        "Application/VND.API+JSON",
        f"{MEDIA_TYPE};q=0.5",
        f"{MEDIA_TYPE}; q=0.5; charset=utf-8",
        f"{MEDIA_TYPE};q=1;level=1",
        # one instance without parameters is enough
        f"{MEDIA_TYPE}; charset=utf-8, {MEDIA_TYPE}",
        f"{MEDIA_TYPE};charset=utf-8;q=1, text/html, {MEDIA_TYPE};q=0.1",
        f'{MEDIA_TYPE};ext="{ATOMIC}", {MEDIA_TYPE}',
        # profiles are ignored, with any content of their quotes
        f'{MEDIA_TYPE};profile="https://example.com/a"',
        f'{MEDIA_TYPE};profile="https://example.com/a https://example.com/b"',
        f'{MEDIA_TYPE};profile="a,b;c=d"',
        f'{MEDIA_TYPE};profile="a\\"; charset=utf-8"',
        f'{MEDIA_TYPE} ; profile="a" ; q=0.2',
        f'{MEDIA_TYPE};PROFILE="a"',
        f"{MEDIA_TYPE};profile=a",
        f'{MEDIA_TYPE};ext=""',
        # another media type
        f"{MEDIA_TYPE}x; charset=utf-8",
        f"x{MEDIA_TYPE}; charset=utf-8",
    ],
)
async def test_accepted(reader: Api, accept: str | None) -> None:
    answer = await reader.request("GET", "/groups/1", headers={} if accept is None else {"Accept": accept})
    assert (answer.status, answer.headers["Content-Type"], answer.headers["Vary"]) == (200, MEDIA_TYPE, "Accept")


PARAMETER = "the parameter 'charset', and JSON:API allows only `ext` and `profile`"
EXTENSION = f"an `ext` that this route does not have: {ATOMIC}"


@pytest.mark.parametrize(
    ("accept", "problem"),
    [
        (f"{MEDIA_TYPE};charset=utf-8", PARAMETER),
        (f"{MEDIA_TYPE}; charset=utf-8", PARAMETER),
        (f"{MEDIA_TYPE} ; charset=utf-8", PARAMETER),
        (f'{MEDIA_TYPE};charset="utf-8"', PARAMETER),
        ("Application/Vnd.Api+Json;Charset=utf-8", PARAMETER),
        (f"{MEDIA_TYPE};charset=utf-8;q=0.5", PARAMETER),
        (f"text/html, {MEDIA_TYPE};charset=utf-8, application/json", PARAMETER),
        (f"{MEDIA_TYPE};charset=utf-8, */*", PARAMETER),
        (f'{MEDIA_TYPE};profile="a";charset=utf-8', PARAMETER),
        (f'{MEDIA_TYPE};profile="a,b";charset=utf-8', PARAMETER),
        (f'{MEDIA_TYPE};ext="{ATOMIC}"', EXTENSION),
        (f'{MEDIA_TYPE};ext="{ATOMIC} x"', EXTENSION),
        (f'{MEDIA_TYPE};charset=utf-8, {MEDIA_TYPE};ext="{ATOMIC}"', PARAMETER),
    ],
)
@pytest.mark.parametrize(("method", "path"), [("GET", "/groups"), ("GET", "/groups/1"), ("GET", "/")])
async def test_not_acceptable(reader: Api, method: str, path: str, accept: str, problem: str) -> None:
    answer = await reader.request(method, path, headers={"Accept": accept})
    detail = f"Every {MEDIA_TYPE} of Accept has {problem}."
    expected = error(406, "not_acceptable", "Not Acceptable", detail, header="Accept")
    assert (answer.status, answer.errors) == (406, [expected])
    assert answer.headers["Content-Type"] == MEDIA_TYPE


@pytest.mark.parametrize(
    "content_type",
    [
        MEDIA_TYPE,
        "Application/Vnd.Api+Json",
        f'{MEDIA_TYPE};profile="https://example.com/a"',
        f'{MEDIA_TYPE} ; profile="a;charset=utf-8"',
        f'{MEDIA_TYPE};ext=""',
        "application/json",
        "application/json; charset=utf-8",
        "APPLICATION/JSON",
    ],
)
@pytest.mark.parametrize(("method", "path"), [("POST", "/groups"), ("PATCH", "/groups/1")])
async def test_bodies_that_are_read(reader: Api, method: str, path: str, content_type: str) -> None:
    """The body is decoded, and is not a valid document."""
    answer = await reader.request(method, path, body="[]", headers={"Content-Type": content_type})
    assert (answer.status, answer.errors[0]["code"]) == (422, "invalid_document")


OTHER = f"The Content-Type must be {MEDIA_TYPE}."


@pytest.mark.parametrize(
    ("content_type", "detail"),
    [
        ("text/plain", OTHER),
        ("application/xml", OTHER),
        ("application/*", OTHER),
        ("*/*", OTHER),
        (f"{MEDIA_TYPE}x", OTHER),
        ("application/x-www-form-urlencoded", OTHER),
        ("multipart/form-data; boundary=x", OTHER),
        (f"{MEDIA_TYPE}; charset=utf-8", f"The Content-Type has {PARAMETER}."),
        (f'{MEDIA_TYPE};profile="a";charset=utf-8', f"The Content-Type has {PARAMETER}."),
        (f'{MEDIA_TYPE};ext="{ATOMIC}"', f"The Content-Type has {EXTENSION}."),
        (f"{MEDIA_TYPE};q=1", "The Content-Type has the parameter 'q', and JSON:API allows only `ext` and `profile`."),
    ],
)
@pytest.mark.parametrize(("method", "path"), [("POST", "/groups"), ("PATCH", "/groups/1")])
async def test_unsupported(reader: Api, method: str, path: str, content_type: str, detail: str) -> None:
    answer = await reader.request(method, path, body="[]", headers={"Content-Type": content_type})
    expected = error(415, "unsupported_media_type", "Unsupported Media Type", detail, header="Content-Type")
    assert (answer.status, answer.errors) == (415, [expected])
    assert answer.headers["Content-Type"] == MEDIA_TYPE


async def test_a_parameter_without_a_value(reader: Api) -> None:
    """JSON:API does not know such a parameter."""
    answer = await reader.request("POST", "/groups", body="[]", headers={"Content-Type": f"{MEDIA_TYPE}; charset"})
    assert answer.status == 415
    assert (await reader.get("/groups", Accept=f"{MEDIA_TYPE}; charset")).status == 406


async def test_two_accept_headers(reader: Api) -> None:
    """Several lines of one header are one list."""
    async with connected(reader.port) as wire:
        await wire.send("GET /groups/1 HTTP/1.1", f"Accept: {MEDIA_TYPE};charset=utf-8", f"Accept: {MEDIA_TYPE}")
        assert (await wire.answer()).status == 200
        await wire.send("GET /groups/1 HTTP/1.1", f"Accept: {MEDIA_TYPE};charset=utf-8", "Accept: */*")
        assert (await wire.answer()).status == 406


async def test_no_content_type(reader: Api) -> None:
    """A body needs a Content-Type. An empty body needs none, but is not valid JSON."""
    async with connected(reader.port) as wire:
        await wire.send("POST /groups HTTP/1.1", "Content-Length: 2", body=b"[]")
        answer = await wire.answer()
        detail = f"A body needs a Content-Type: {MEDIA_TYPE}."
        expected = error(415, "unsupported_media_type", "Unsupported Media Type", detail, header="Content-Type")
        assert (answer.status, answer.errors) == (415, [expected])
    for framing in ([], ["Content-Length: 0"]):
        async with connected(reader.port) as wire:
            await wire.send("POST /groups HTTP/1.1", *framing)
            answer = await wire.answer()
            assert (answer.status, answer.errors[0]["code"]) == (400, "malformed_json")


@pytest.mark.parametrize("method", ["GET", "DELETE", "HEAD"])
async def test_an_ignored_body_may_have_any_type(reader: Api, method: str) -> None:
    answer = await reader.request(method, "/groups/99", body="x", headers={"Content-Type": "text/plain"})
    assert answer.status == 404
