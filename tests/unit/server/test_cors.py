"""The headers that a preflight allows, and the origins that are allowed."""

from __future__ import annotations

import pytest
from tornado.httputil import HTTPHeaders

from server.http.cors import allowed_origin, preflight_headers

ANSWERED = {
    "Access-Control-Allow-Methods": "GET, HEAD, POST, PUT, PATCH, DELETE, QUERY",
    "Access-Control-Max-Age": "7200",
}


@pytest.mark.parametrize(
    "names",
    ["content-type", "content-type,x-request-id", "Content-Type, X-My.Own", "a , b", ",".join(["x-header"] * 200)],
)
def test_requested_headers_are_allowed(names: str) -> None:
    asked = HTTPHeaders({"Access-Control-Request-Headers": names})
    assert preflight_headers(asked) == {**ANSWERED, "Access-Control-Allow-Headers": names}


@pytest.mark.parametrize("names", ["", "a b", "a,,b", ",", "a:b", '"a"', "ä", "a" * 2001, "a;b", "<b>"])
def test_invalid_header_names_are_not_repeated(names: str) -> None:
    assert preflight_headers(HTTPHeaders({"Access-Control-Request-Headers": names})) == ANSWERED


@pytest.mark.parametrize(
    ("origin", "cors_origins", "allowed"),
    [
        ("https://a", "https://a", "https://a"),
        ("https://b", "https://a,https://b", "https://b"),
        ("https://c", "https://a,https://b", None),
        ("https://a,https://b", "https://a,https://b", None),
        ("https://a:444", "https://a", None),
        ("http://a", "https://a", None),
        ("https://a.evil", "https://a", None),
        ("https://evil.a", "https://a", None),
        ("null", "https://a", None),
        ("", "https://a", None),
        ("https://a", "*", "*"),
        ("null", "*", "*"),
        ("", "*", None),
    ],
)
def test_allowed_origin(origin: str, cors_origins: str, allowed: str | None) -> None:
    assert allowed_origin(HTTPHeaders({"Origin": origin}), cors_origins) == allowed


@pytest.mark.parametrize("cors_origins", ["https://a", "*"])
def test_a_request_of_the_same_origin(cors_origins: str) -> None:
    assert allowed_origin(HTTPHeaders(), cors_origins) is None
