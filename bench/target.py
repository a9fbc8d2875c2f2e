"""Measures a running server. It takes its URL and returns a line for each request: requests per second, p50, p99,
errors.

It measures the requests of `bench.requests` that the server answers with a 2xx. If there are none, it measures the
collections that the root document links. It writes nothing unless requested.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import msgspec

from bench.load import Sample, send
from bench.requests import MEDIA_TYPE, REQUESTS, Request, rendered

CREATING = ("create", "operations-3", "operations-1000")
"""Requests that write, but only to resources that they create."""

_SECONDS = 30


class Line(msgspec.Struct, frozen=True):
    """The result of one request. The figures do not count if there is any error."""

    request: str
    label: str
    method: str
    path: str
    connections: int
    per_second: float
    p50_ms: float
    p99_ms: float
    errors: int


class NotReached(Exception):
    """There is no JSON:API server at the URL."""


def measure(
    url: str, *, seconds: float, connections: int, only: str, writes: bool, say: Callable[[str], None]
) -> Iterator[Line]:
    """Measure the server at a URL, which may have a path before those of the collections. Raises NotReached."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    origin, prefix = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    words = tuple(word.strip() for word in only.split(",") if word.strip())
    first = time.time_ns() // 1_000_000
    for request, cursor in _usable_requests(origin, prefix, words, writes=writes, first=first):
        say(request.label)
        level = 1 if request.alone else connections
        # The numbers of requests must not overlap, because emails are unique.
        first += 10_000_000
        yield _line(request, level, send(origin, request, seconds, level, first, cursor))


def _line(request: Request, connections: int, sample: Sample) -> Line:
    times = (sample.p50_us / 1000, sample.p99_us / 1000)
    rate = sample.per_second
    return Line(request.name, request.label, request.method, request.path, connections, rate, *times, sample.errors)


def _usable_requests(
    origin: str, prefix: str, words: tuple[str, ...], *, writes: bool, first: int
) -> Iterator[tuple[Request, str]]:
    """Return the requests that the user chose and that the server answers, each with its cursor. The whole table, which
    may be large, must be chosen by its name.
    """
    _check(origin, f"{prefix}/")
    cursor, user = _cursor(origin, prefix), _first_id(origin, f"{prefix}/users")
    has_any = False
    for request in REQUESTS:
        if request.writes and (not writes or request.name not in CREATING):
            continue
        if not request.name.startswith(words) if words else request.name == "everything":
            continue
        path = prefix + request.path.replace("{user}", str(user)).replace("{group}", "7")
        label = "second page by cursor" if request.has_cursor else request.label
        own = msgspec.structs.replace(request, path=path, label=label)
        if (cursor or not request.has_cursor) and _answers(origin, own, first, cursor):
            has_any = True
            yield own, cursor
    if not has_any:
        found = _requests_of_root(origin, prefix)
        yield from ((request, "") for request in found if not words or request.name.startswith(words))


def _requests_of_root(origin: str, prefix: str) -> Iterator[Request]:
    """For each collection that the root links: a page, a page with the first relationship included, and one
    resource.
    """
    links = (_document(origin, f"{prefix}/") or {}).get("links", {})
    paths = {str(urlsplit(link if isinstance(link, str) else link["href"]).path) for link in links.values() if link}
    for path in sorted(paths):
        document = _document(origin, f"{path}?page[size]=30") or {}
        data = document.get("data")
        if not isinstance(data, list) or not data:
            continue
        name, resource = path.rpartition("/")[2], data[0]
        related = resource.get("relationships", {})
        asked = {
            f"{name}-one": f"{path}/{quote(str(resource['id']))}",
            f"{name}-30": f"{path}?page[size]=30",
            **{f"{name}-30-{each}": f"{path}?page[size]=30&include={each}" for each in related},
        }
        for label, target in asked.items():
            if _document(origin, target) is not None:
                yield Request(label, label.replace("-", " "), "GET", target)


def _cursor(origin: str, prefix: str) -> str:
    """Return the cursor of the second page of computers; "" if there are no cursors."""
    document = _document(origin, f"{prefix}/computers?page[size]=10&page[after]=") or {}
    following = (document.get("links") or {}).get("next")
    return parse_qs(urlsplit(following).query).get("page[after]", [""])[0] if isinstance(following, str) else ""


def _first_id(origin: str, path: str) -> str:
    data = (_document(origin, f"{path}?page[size]=1") or {}).get("data")
    return str(data[0]["id"]) if isinstance(data, list) and data else "1"


def _answers(origin: str, request: Request, number: int, cursor: str) -> bool:
    path, body = rendered(request, number, cursor)
    return _answer(origin, request.method, path, body) is not None


def _document(origin: str, path: str) -> Any:
    """Return the document of an answer, or None if it is not a document."""
    body = _answer(origin, "GET", quote(path, safe="/?&=,%"))
    try:
        return None if body is None else json.loads(body)
    except ValueError:
        return None


def _check(origin: str, path: str) -> None:
    try:
        with urllib.request.urlopen(f"{origin}{path}", timeout=_SECONDS):
            pass
    except urllib.error.HTTPError:
        pass
    except OSError as error:
        raise NotReached(f"{origin} cannot be reached: {getattr(error, 'reason', error)}") from error


def _answer(origin: str, method: str, path: str, body: str = "") -> bytes | None:
    headers = {"Accept": MEDIA_TYPE} | ({"Content-Type": MEDIA_TYPE} if body else {})
    data = body.encode() if body else None
    try:
        asked = urllib.request.Request(f"{origin}{path}", data, headers, method=method)
        with urllib.request.urlopen(asked, timeout=_SECONDS) as answer:
            found: bytes = answer.read()
            return found
    except OSError:
        return None


def as_table(lines: list[Line]) -> str:
    """Return the results as a table of text."""
    width = max([len(line.label) for line in lines] + [7])
    head = f"{'request':<{width}}  {'conns':>5}  {'requests/s':>10}  {'p50 ms':>9}  {'p99 ms':>9}  errors"
    rows = [
        f"{line.label:<{width}}  {line.connections:>5}  {line.per_second:>10,.0f}  {line.p50_ms:>9,.2f}"
        f"  {line.p99_ms:>9,.2f}  {f'void: {line.errors}' if line.errors else '0'}"
        for line in lines
    ]
    return "\n".join([head, *rows])
