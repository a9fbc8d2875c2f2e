"""Sections 2, 7 and 8 of the decisions: HTTP requests to the route of atomic operations: media types, methods,
parameters, sizes. Their errors have the same form as on every route."""

from __future__ import annotations

import json
from typing import Any

import pytest

from server.resources import built_in
from tests.http.conftest import MEDIA_TYPE, Answer, Api, Start
from tests.http.operating import EXTENDED, URI, add, unchanged
from tests.http.wire import connected

BODY = json.dumps({"atomic:operations": [add("parent", {"name": "p"})]})


async def post(api: Api, query: str = "", *, body: str = BODY, **headers: str) -> Answer:
    """Send operations. headers: with underscores instead of hyphens."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return await api.request("POST", f"/operations{query}", body=body, headers=sent)


TAKEN = {
    MEDIA_TYPE: MEDIA_TYPE,
    f'{MEDIA_TYPE}; profile="https://a.example/p"': MEDIA_TYPE,
    "application/json": MEDIA_TYPE,
    "application/json; charset=utf-8": MEDIA_TYPE,
    "APPLICATION/VND.API+JSON": MEDIA_TYPE,
    EXTENDED: EXTENDED,
    f'{MEDIA_TYPE}; ext="{URI}"': EXTENDED,
    f'{MEDIA_TYPE} ; EXT="{URI} {URI}"; profile="a:b"': EXTENDED,
}


@pytest.mark.parametrize("media_type", TAKEN)
async def test_media_types(api: Api, media_type: str) -> None:
    answer = await post(api, Content_Type=media_type)
    assert (answer.status, answer.headers["Content-Type"]) == (200, TAKEN[media_type])
    assert ("meta" in answer.document["atomic:results"][0]) == (TAKEN[media_type] == MEDIA_TYPE)


REFUSED_TYPES = [
    "text/plain",
    "application/xml",
    f"{MEDIA_TYPE}; charset=utf-8",
    f'{MEDIA_TYPE}; ext="https://a.example/other"',
    f'{MEDIA_TYPE}; ext="{URI} https://a.example/other"',
    f'{MEDIA_TYPE}; ext="{URI}"; version=1',
    "",
]


@pytest.mark.parametrize("media_type", REFUSED_TYPES)
async def test_unsupported_media_types(api: Api, media_type: str) -> None:
    async with unchanged(api):
        answer = await post(api, **({"Content_Type": media_type} if media_type else {}))
    check_usual_form(answer, 415, "unsupported_media_type", {"header": "Content-Type"})


@pytest.mark.parametrize("path", ["/parents", "/users/1/relationships/computers"])
async def test_only_this_route_accepts_the_extension(api: Api, path: str) -> None:
    answer = await api.request("POST", path, body="{}", headers={"Content-Type": EXTENDED})
    check_usual_form(answer, 415, "unsupported_media_type", {"header": "Content-Type"})


ACCEPTS = ["", "*/*", "application/json", "text/html", MEDIA_TYPE, EXTENDED, f"{MEDIA_TYPE};a=b, {EXTENDED};q=0.1"]


@pytest.mark.parametrize("accept", ACCEPTS)
async def test_accept(api: Api, accept: str) -> None:
    """The media type of the request determines the form of the answer."""
    for media_type in (MEDIA_TYPE, EXTENDED):
        headers = {"Content_Type": media_type} | ({"Accept": accept} if accept else {})
        answer = await post(api, **headers)
        assert (answer.status, answer.headers["Content-Type"]) == (200, media_type)


@pytest.mark.parametrize("accept", [f"{MEDIA_TYPE}; a=b", f'{MEDIA_TYPE};ext="{URI} https://a.example/other"'])
async def test_not_acceptable(api: Api, accept: str) -> None:
    for media_type in (MEDIA_TYPE, EXTENDED):
        async with unchanged(api):
            answer = await post(api, Content_Type=media_type, Accept=accept)
        check_usual_form(answer, 406, "not_acceptable", {"header": "Accept"})


def check_usual_form(answer: Answer, status: int, code: str, source: Any = None) -> None:
    """Check that the error has the form of section 8, whatever the media type of the request."""
    assert (answer.status, answer.headers["Content-Type"]) == (status, MEDIA_TYPE), answer.body
    assert set(answer.document) == {"errors", "jsonapi"}
    [told] = answer.errors
    assert (told["status"], told["code"], told.get("source")) == (str(status), code, source)


@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE", "PUT"])
async def test_methods(api: Api, method: str) -> None:
    for media_type in (MEDIA_TYPE, EXTENDED):
        async with unchanged(api):
            answer = await api.request(
                method, "/operations", body=None if method == "GET" else BODY, headers={"Content-Type": media_type}
            )
        check_usual_form(answer, 405, "method_not_allowed")
        assert answer.headers["Allow"] == "POST, OPTIONS"


async def test_head_and_options(api: Api) -> None:
    answer = await api.request("HEAD", "/operations")
    assert (answer.status, answer.body) == (405, b"")
    answer = await api.request("OPTIONS", "/operations")
    assert (answer.status, answer.headers["Allow"]) == (204, "POST, OPTIONS")


@pytest.mark.parametrize(
    "query", ["include=children", "filter=[]", "sort=id", "page[size]=1", "fields[user]=", "other=1"]
)
async def test_parameters_are_refused(api: Api, query: str) -> None:
    """Section 4: a parameter on a route that does not accept it is a 400, "anything on DELETE and `/operations`"."""
    name = query.partition("=")[0]
    for media_type in (MEDIA_TYPE, EXTENDED):
        async with unchanged(api):
            answer = await post(api, f"?{query}", Content_Type=media_type)
        assert answer.status == 400, answer.body
        assert [each["source"] for each in answer.errors] == [{"parameter": name}]


async def test_an_implementation_specific_parameter_is_ignored(api: Api) -> None:
    assert (await post(api, "?x-trace=1&camelCase=2", Content_Type=MEDIA_TYPE)).status == 200


@pytest.mark.parametrize("media_type", [MEDIA_TYPE, EXTENDED])
async def test_a_body_over_the_limit(start: Start, database_url: str, media_type: str) -> None:
    """Announced by its length, or found while chunks arrive."""
    api = await start(database_url, built_in(), max_body_bytes=len(BODY) - 1)
    async with unchanged(api):
        check_usual_form(await post(api, Content_Type=media_type), 413, "body_too_large")
        async with connected(api.port) as wire:
            lines = ("POST /operations HTTP/1.1", f"Content-Type: {media_type}", "Transfer-Encoding: chunked")
            await wire.send(*lines, body=f"{len(BODY):x}\r\n{BODY}\r\n0\r\n\r\n".encode())
            check_usual_form(await wire.answer(), 413, "body_too_large")
    api = await start(database_url, built_in(), max_body_bytes=len(BODY))
    assert (await post(api, Content_Type=media_type)).status == 200


async def test_other_refusals_in_the_usual_form(start: Start, api: Api) -> None:
    for media_type in (MEDIA_TYPE, EXTENDED):
        async with unchanged(api):
            answer = await post(api, Content_Type=media_type, If_Match='"1"')
            check_usual_form(answer, 400, "precondition_unsupported", {"header": "If-Match"})
            reading = await start(api.database_url, built_in(), read_only=True, max_url_bytes=256)
            check_usual_form(await post(reading, Content_Type=media_type), 403, "read_only")
            check_usual_form(await post(reading, "?" + "x" * 300, Content_Type=media_type), 414, "url_too_long")


async def test_request_ids(api: Api) -> None:
    """With the extension each error id is the id of the request and a number. The header has the id in both forms."""
    for media_type in (MEDIA_TYPE, EXTENDED):
        answer = await post(api, body='{"atomic:operations":[{},7]}', Content_Type=media_type, X_Request_Id="abc")
        assert answer.headers["X-Request-Id"] == "abc"
    assert [each["id"] for each in answer.document["errors"]] == ["abc.1", "abc.2"]
