"""Parses the query string of a list, and writes the links and meta of its answer. It takes path and query as they were
sent. It returns a `PageRequest`, made once for each query, and bytes.
"""

from __future__ import annotations

import base64
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl, quote

import msgspec

_POSITIONS = ("page[number]", "page[after]")


class PageRequest(msgspec.Struct, frozen=True):
    """A parsed query. parameters: as sent. url: path and query, up to the position of the page. links: those to this
    page and to the first.
    """

    parameters: dict[str, str]
    size: int
    number: int
    is_counted: bool
    url: bytes
    links: bytes

    @property
    def offset(self) -> int:
        """The number of rows before the page."""
        return (self.number - 1) * self.size


@lru_cache(maxsize=1024)
def page_request(path: str, query: str) -> PageRequest:
    """What a query asks for, and the links of its answer.

    >>> page_request("/users", "page[size]=30").links
    b'{"self":"/users?page%5Bsize%5D=30","first":"/users?page%5Bsize%5D=30&page%5Bnumber%5D=1"'
    """
    parameters = dict(parse_qsl(query, keep_blank_values=True))
    sent = f"{path}?{_query_text(parameters)}"
    others = _query_text({name: value for name, value in parameters.items() if name not in _POSITIONS})
    url = f"{path}?{others}&"
    size = int(parameters.get("page[size]", 30))
    first = url + ("page%5Bafter%5D=" if "page[after]" in parameters else "page%5Bnumber%5D=1")
    links = f'{{"self":"{sent}","first":"{first}"' if size else f'{{"self":"{sent}"'
    return PageRequest(
        parameters=parameters,
        size=size,
        number=int(parameters.get("page[number]", 1)),
        is_counted=parameters.get("page[total]", "none" if "page[after]" in parameters else "exact") == "exact",
        url=url.encode(),
        links=links.encode(),
    )


def _query_text(parameters: dict[str, str]) -> str:
    return "&".join([f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in parameters.items()])


def page_links(request: PageRequest, total: int | None, *, has_more: bool) -> bytes:
    """Return the links of a page by number."""
    links, number = request.links, request.number
    if total is not None:
        links += b',"last":"%bpage%%5Bnumber%%5D=%d"' % (request.url, -(-total // request.size))
    if number > 1:
        links += b',"prev":"%bpage%%5Bnumber%%5D=%d"' % (request.url, number - 1)
    if has_more:
        links += b',"next":"%bpage%%5Bnumber%%5D=%d"' % (request.url, number + 1)
    return links + b"}"


def page_meta(request: PageRequest, count: int, total: int | None) -> bytes:
    """Return the `meta` of a page."""
    if total is None:
        return b'{"count":%d}' % count
    return b'{"count":%d,"total":%d,"totalPages":%d}' % (count, total, -(-total // request.size))


def read_cursor(text: str) -> tuple[str, int]:
    """Return the cursor of a list in the order of its ids: the server's mark of that list, and the id of the row before
    the page.
    """
    decoded = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    mark, _, own_id = msgspec.json.decode(decoded, type=tuple[str, str, str])
    return mark, int(own_id)


def cursor_links(request: PageRequest, mark: str, rows: list[Any], *, has_more: bool) -> bytes:
    """Return the links of a page by cursor."""
    links = request.links
    if rows:
        links += b',"prev":"%bpage%%5Bbefore%%5D=%b"' % (request.url, _cursor(mark, rows[0][0]))
    if has_more:
        links += b',"next":"%bpage%%5Bafter%%5D=%b"' % (request.url, _cursor(mark, rows[-1][0]))
    return links + b"}"


def _cursor(mark: str, own_id: int) -> bytes:
    return base64.urlsafe_b64encode(b'["%b","","%d"]' % (mark.encode(), own_id)).rstrip(b"=")
