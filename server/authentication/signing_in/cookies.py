"""Reads and writes cookies, and says when they count: another site must not be able to use them.

It must not know: what is in a cookie.
"""

from __future__ import annotations

from server.http.request import Request

PART_BYTES, MAX_PARTS = 3800, 4
"""How long a part of a cookie is, and how many parts it has. Browsers keep 4,096 bytes of a cookie, with its name."""

_ATTRIBUTES = "; Path=/; Secure; HttpOnly; SameSite=Lax"


def counts(request: Request) -> bool:
    """Return whether cookies count for a request: a page of the server's own origin sends it, or a person opens an
    address (Fetch Metadata Request Headers, 2). They never count beside credentials in a header."""
    headers = request.headers.by_name
    if "Cookie" not in headers or "Authorization" in headers:
        return False
    if headers.get("Sec-Fetch-Site") == ["same-origin"]:
        return True
    return request.method in ("GET", "HEAD") and headers.get("Sec-Fetch-Mode") == ["navigate"]


def read(request: Request, name: str) -> str | None:
    """Return the value of a cookie, of all its parts, or None."""
    cookies = _sent(request)
    if name not in cookies:
        return None
    return "".join([cookies.get(part_name, "") for part_name in _names(name)])


def fits(value: str) -> bool:
    """Return whether a cookie can hold a value."""
    return len(value) <= MAX_PARTS * PART_BYTES


def written(request: Request, name: str, value: str, *, max_seconds: int | None = None) -> list[str]:
    """Return the headers Set-Cookie that keep a value, which fits. request: whose parts are deleted where they are not
    needed any more. max_seconds: how long the browser keeps it; None for as long as it runs."""
    parts = [value[start : start + PART_BYTES] for start in range(0, len(value), PART_BYTES)]
    age = "" if max_seconds is None else f"; Max-Age={max_seconds}"
    kept = [f"{part_name}={part}{_ATTRIBUTES}{age}" for part_name, part in zip(_names(name), parts, strict=False)]
    return kept + _deleted(request, _names(name)[len(parts) :])


def deleted(request: Request, name: str) -> list[str]:
    """Return the headers Set-Cookie that delete a cookie, with all parts that were sent."""
    return _deleted(request, _names(name))


def _deleted(request: Request, names: list[str]) -> list[str]:
    sent = _sent(request)
    return [f"{name}={_ATTRIBUTES}; Max-Age=0" for name in names if name in sent]


def _names(name: str) -> list[str]:
    return [name, *[f"{name}-{number}" for number in range(2, MAX_PARTS + 1)]]


def _sent(request: Request) -> dict[str, str]:
    """Return the cookies of a request. Of two with one name the first counts."""
    cookies: dict[str, str] = {}
    for header in request.headers.by_name.get("Cookie", ()):
        for pair in header.split(";"):
            name, equals, value = pair.strip().partition("=")
            if equals:
                cookies.setdefault(name, value)
    return cookies
