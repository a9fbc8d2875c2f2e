"""Measures how cost grows with the size of the table and with the position of a page. It takes running servers on a
database of some size, and returns a figure for each request and size, for each page and position, and for the whole
table in one answer.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from urllib.parse import parse_qs, urlsplit

from bench.client import Refused, ask, connected, drain
from bench.contest import Entrant
from bench.load import send
from bench.requests import BY_NAME, Request
from bench.results import AtSize, Page, Stream
from bench.servers import Rows, Running

SIZED = (
    "detail",
    "list-30",
    "list-30-exact",
    "list-30-include",
    "list-1000-include",
    "to-one-sorted",
    "two-level",
    "related",
    "dotted-filter",
    "any-filter",
    "boolean-filter",
    "sparse",
)
"""Requests that are measured with both sizes of the table."""

SORTS = ("id", "last_name")
STEP = 10_000
"""Rows of each page on the way to a distant cursor."""

_LEFT_OUT, _TURNS, _SECONDS = 5, 60, 2.0


def at_size(
    names: Sequence[str], entrants: Sequence[Entrant], rows: Rows, seconds: float, say: Callable[[str], None]
) -> Iterator[AtSize]:
    """Measure with load over one connection; a server that refuses a request has no figure."""
    for name in names:
        for entrant in entrants:
            request = entrant.translate(BY_NAME[name])
            if request is None:
                continue
            say(f"{request.label}: {entrant.running.label}, {rows.users:,} users")
            try:
                with connected(entrant.running.port) as connection:
                    slow = max(ask(connection, request).seconds for _ in range(3))
            except (Refused, OSError):
                continue
            before = rows.processes.cpu_seconds()
            sample = send(entrant.running.url, request, min(max(seconds, 5 * slow), 5.0), 1)
            used = rows.processes.cpu_seconds() - before
            entrant.running.processes.wait_until_idle()
            if sample.requests and not sample.errors:
                cpu_us = used * 1e6 / sample.requests
                label = BY_NAME[name].label
                yield AtSize(name, label, entrant.name, rows.users, sample.p50_us, cpu_us)


def pages(server: Running, users: int, say: Callable[[str], None]) -> Iterator[Page]:
    """Measure pages of ten users at increasing offsets, by number and by cursor."""
    offsets = [0, *(10**power for power in range(2, 7) if 10**power < users), users - 10]
    for sort in SORTS:
        cursors = _cursors(server, sort, offsets, say)
        for offset in offsets:
            path = f"/users?sort={sort}&page[size]=10&page[total]=none"
            number = f"{path}&page[number]={offset // 10 + 1}"
            say(f"page of ten after {offset:,} users, by {sort}")
            yield Page(users, offset, "number", sort, _milliseconds(server, number))
            yield Page(
                users, offset, "cursor", sort, _milliseconds(server, f"{path}&page[after]={{cursor}}", cursors[offset])
            )


def _cursors(server: Running, sort: str, offsets: Sequence[int], say: Callable[[str], None]) -> dict[int, str]:
    """Return the cursors after these numbers of rows, found by reading page after page."""
    found, position, cursor = {0: ""}, 0, ""
    with connected(server.port) as connection:
        for offset in offsets[1:]:
            while position < offset:
                size = min(STEP, offset - position)
                path = f"/users?sort={sort}&page[size]={size}&page[total]=none&fields[user]=&page[after]={{cursor}}"
                body = ask(connection, Request("walk", "walk", "GET", path), cursor=cursor).body
                cursor = parse_qs(urlsplit(json.loads(body)["links"]["next"]).query)["page[after]"][0]
                position += size
                say(f"reading pages by {sort}: {position:,} users")
            found[offset] = cursor
    return found


def _milliseconds(server: Running, path: str, cursor: str = "") -> float:
    """Return the median round trip over one connection, without the first ones."""
    request = Request("page", "page", "GET", path)
    times: list[float] = []
    end = time.monotonic() + _SECONDS
    with connected(server.port) as connection:
        while len(times) < _TURNS and (time.monotonic() < end or len(times) < 2 * _LEFT_OUT):
            times.append(ask(connection, request, cursor=cursor).seconds * 1000)
    return statistics.median(times[_LEFT_OUT:])


def stream(server: Running, users: int) -> Stream:
    """Measure the whole table in one answer, and how much more memory the server holds meanwhile. Raises Refused,
    OSError.
    """
    with connected(server.port) as connection:
        ask(connection, BY_NAME["detail"])
        before = server.processes.memory_mb()
        held = [before]
        first, seconds, count = drain(
            connection, BY_NAME["everything"], lambda: held.append(server.processes.memory_mb())
        )
    held.append(server.processes.memory_mb())
    return Stream(users, first * 1000, seconds, count / 1e6, max(held) - before)
