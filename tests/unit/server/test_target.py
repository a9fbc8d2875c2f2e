"""Targets of requests: their canonical path, and its text for patterns."""

from __future__ import annotations

import pytest

from server.http.target import canonical_path, path_text, pattern_text, read_target, shown_path


@pytest.mark.parametrize(
    ("target", "read"),
    [
        ("*", (None, "*")),
        ("http://a", ("a", "/")),
        ("HTTP://A:80/", ("A:80", "/")),
        ("https://[::1]:8080/users/1?a=http://b", ("[::1]:8080", "/users/1?a=http://b")),
        ("http://a?x=/y", ("a", "/?x=/y")),
        ("http://a//b", ("a", "//b")),
    ],
)
def test_a_target_that_does_not_begin_with_a_slash(target: str, read: tuple[str | None, str]) -> None:
    assert read_target(target) == read


@pytest.mark.parametrize(
    "target",
    [
        *("", "**", "users", "a:80", "http:", "http:/users", "http://", "http:///users", "http://?x", "ftp://a/users"),
        *("//a/users", "x://a", "javascript:alert", "http://u@a/", "http://u:p@a/users", "http://@a/", " http://a/"),
    ],
)
def test_an_invalid_target(target: str) -> None:
    with pytest.raises(ValueError, match="not a target"):
        read_target(target)


@pytest.mark.parametrize(
    ("path", "canonical"),
    [
        ("/", "/"),
        ("/users", "/users"),
        ("/users/", "/users"),
        ("/users/1/relationships/group", "/users/1/relationships/group"),
        ("/-/live/", "/-/live"),
        ("/%75sers/%31", "/users/1"),
        ("/%7Eann/%2D%2e%5f", "/~ann/-._"),
        ("/a%2fb", "/a%2Fb"),
        ("/a%2Fb/", "/a%2Fb"),
        ("/a:b@c", "/a%3Ab%40c"),
        ("/a%3ab%40c", "/a%3Ab%40c"),
        ("/caf\xc3\xa9", "/caf%C3%A9"),
        ("/caf%c3%a9", "/caf%C3%A9"),
        ("/caf\xc3%A9", "/caf%C3%A9"),
        ("/\xff", "/%FF"),
        ("/%", "/%25"),
        ("/%zz%4", "/%25zz%254"),
        ("/%2500", "/%2500"),
        ("/%00", "/%00"),
        ("/a\\b", "/a%5Cb"),
        ("/...", "/..."),
        ("/.well-known/x", "/.well-known/x"),
        ("/a/..b/.c", "/a/..b/.c"),
        # not a path of this server
        ("", None),
        ("*", None),
        ("users", None),
        ("//", None),
        ("//users", None),
        ("/users//", None),
        ("/users//1", None),
        ("/.", None),
        ("/./users", None),
        ("/users/.", None),
        ("/users/./", None),
        ("/users/../operations", None),
        ("/users/..", None),
        ("/users/%2e%2e/operations", None),
        ("/users/.%2E/operations", None),
        ("/%2e/users", None),
    ],
)
def test_the_canonical_path(path: str, canonical: str | None) -> None:
    assert canonical_path(path) == canonical
    if canonical is not None:
        assert canonical_path(canonical) == canonical


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/users/1", "/users/1"),
        ("/caf%C3%A9/a%20b", "/café/a b"),
        ("/a%3Ab%40c", "/a:b@c"),
        ("/a%2Fb%25c", "/a%2Fb%25c"),
        ("/%00%0A%7F", "/%00%0A%7F"),
        ("/%C2%85%E2%80%A8", "/%C2%85%E2%80%A8"),
        ("/%FF%C3%A9%C3", "/%FFé%C3"),
        ("/%ED%A0%80", "/%ED%A0%80"),
    ],
)
def test_the_text_of_a_path(path: str, text: str) -> None:
    assert path_text(path) == text


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("/", "/"),
        ("/reports", "/reports"),
        ("/reports/", "/reports"),
        ("/reports/?", "/reports/?"),
        (r"/a\/", r"/a\/"),
        ("/caf%C3%a9/([^/]+)", "/café/([^/]+)"),
        ("/a%20b%2fc", r"/a\ b%2Fc"),
        (r"/%2e\%2B", r"/\.\+"),
        ("/100%", "/100%"),
    ],
)
def test_the_text_of_a_pattern(pattern: str, text: str) -> None:
    assert pattern_text(pattern) == text


def test_shown_path_of_an_invalid_path() -> None:
    assert shown_path("//\x85\x9b\xe9 x" + "y" * 70_000) == "//%85%9B%E9%20x" + "y" * 993
