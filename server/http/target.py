"""Parses the target of a request, and returns its canonical path.

It must not know: routes, resources, settings.

Sources: RFC 9112, 3.2 (forms of a target); RFC 3986, 6.2.2 (normalization).
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote_to_bytes

from querybuild.errors import CONTROLS, SHOWN_CHARACTERS

ASTERISK = "*"
"""The target of an OPTIONS request for the whole server (RFC 9112, 3.2.4)."""

_CANONICAL = re.compile(r"(?:/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+").fullmatch
_ABSOLUTE = re.compile(r"https?://([^/?#]+)(/[^?]*)?(\?.*)?", re.IGNORECASE | re.DOTALL)
_ENCODED = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_KEPT = re.compile(f"[/%{CONTROLS}]")
_IN_A_PATTERN = re.compile(rf"\\?({_ENCODED.pattern})")
_UNSEEN = re.compile(rb"[^\x21-\x7e]")
_PAGE = ("page[", "page%5b")
_DOTS = frozenset({b"", b".", b".."})


def read_target(target: str) -> tuple[str | None, str]:
    """Split a target that does not begin with a slash into its authority and the rest. Raises ValueError.

    >>> read_target("http://localhost:8080/users?sort=name"), read_target("*")
    (('localhost:8080', '/users?sort=name'), (None, '*'))
    """
    if target == ASTERISK:
        return None, target
    match = _ABSOLUTE.fullmatch(target)
    if match is None or "@" in match[1]:
        raise ValueError("not a target of this server")
    return match[1], (match[2] or "/") + (match[3] or "")


def is_too_long(target: str, max_bytes: int) -> bool:
    """Return whether a target is too long. Links to other pages are encoded, and have a cursor: neither counts, so that
    each link that the server writes is one that it accepts."""
    if len(target) <= max_bytes:
        return False
    path, _, query = target.partition("?")
    parts = [part for part in query.split("&") if not part.lower().startswith(_PAGE)]
    return len(unquote_to_bytes("?".join([path, "&".join(parts)]))) > max_bytes


def canonical_path(path: str) -> str | None:
    """Return the path in the one spelling that the server matches, logs and links to. None if a segment is empty, `.`
    or `..`: the server has no such path.

    A trailing slash is removed. Each segment is decoded and encoded again, as in `links.self`. Dot segments are not
    resolved: a proxy that does not resolve them has applied its rules to another path.

    path: as it was sent, decoded as latin-1.

    >>> canonical_path("/users/%31/"), canonical_path("/a%2fb/:"), canonical_path("/users/%2e%2e/operations")
    ('/users/1', '/a%2Fb/%3A', None)
    """
    if _CANONICAL(path) is not None or path == "/":
        return path
    if not path.startswith("/"):
        return None
    segments = [unquote_to_bytes(segment.encode("latin-1")) for segment in path[1:].split("/")]
    if len(segments) > 1 and not segments[-1]:
        segments.pop()
    if not _DOTS.isdisjoint(segments):
        return None
    return "".join([f"/{quote(segment, safe='-._~')}" for segment in segments])


def path_text(path: str) -> str:
    """Return the path decoded for people and for regular expressions. `/`, `%`, control characters and bytes that are
    not UTF-8 stay encoded. So two paths never have the same text, and a dot in a pattern matches any one character.

    >>> path_text("/%C3%A9%20%3A/a%2Fb%0A%FF")
    '/é :/a%2Fb%0A%FF'
    """
    return _ENCODED.sub(_readable, path) if "%" in path else path


def pattern_text(pattern: str) -> str:
    """Rewrite a regular expression so that it matches `path_text`. Its percent-encoded parts are decoded in the same
    way, and a slash at its end is removed, because no path has one.

    >>> pattern_text("/caf%C3%A9/(.*%2f.*)/")
    '/café/(.*%2F.*)'
    """
    text = _IN_A_PATTERN.sub(lambda match: re.escape(path_text(match[1])), pattern)
    return re.sub(r"(?<=.)(?<!\\)/$", "", text)


def shown_path(path: str) -> str:
    """Return a path without a canonical form, for logs: in visible ASCII, and shortened."""
    return _UNSEEN.sub(lambda match: b"%%%02X" % match[0][0], path[:SHOWN_CHARACTERS].encode("latin-1")).decode("ascii")


def _readable(match: re.Match[str]) -> str:
    text = unquote_to_bytes(match[0]).decode("utf-8", "surrogateescape")
    return _KEPT.sub(lambda kept: quote(kept[0].encode("utf-8", "surrogateescape"), safe=""), text)
