"""Headers that are read without a call of tornado's methods."""

from __future__ import annotations

import pytest
from tornado.httputil import HTTPHeaders

from server.http.headers import Headers, usual_name


@pytest.mark.parametrize("name", ["accept", "CONTENT-type", "x-Request-ID", "a--b", "-", "x" * 200])
def test_a_name_is_written_as_tornado_writes_it(name: str) -> None:
    assert [usual_name(name.encode())] == list(HTTPHeaders({name: "1"}))


def test_tornados_methods_see_and_change_the_same_headers() -> None:
    headers = Headers({"Vary": ["Accept"]})
    headers.add("vary", "Origin")
    headers["content-length"] = "2"
    assert headers.by_name == {"Vary": ["Accept", "Origin"], "Content-Length": ["2"]}
    assert (headers["VARY"], headers.get("accept"), "content-Length" in headers) == ("Accept,Origin", None, True)
    del headers["vary"]
    assert list(headers.copy().get_all()) == [("Content-Length", "2")]


def test_tornados_own_headers_become_ours() -> None:
    headers = HTTPHeaders({"content-type": "a/b"})
    headers.add("Set-Cookie", "a=1")
    headers.add("Set-Cookie", "b=2")
    made = Headers.of(headers)
    assert made.by_name == {"Content-Type": ["a/b"], "Set-Cookie": ["a=1", "b=2"]}
    copied = made.copy()
    copied.add("Set-Cookie", "c=3")
    assert (type(copied), made.by_name["Set-Cookie"]) == (Headers, ["a=1", "b=2"])
