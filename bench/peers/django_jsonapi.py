"""Translates the requests for Django REST framework JSON:API. It takes a request and returns the one that does the same
there, or None. It must not import the library, which is in a separate environment.
"""

from __future__ import annotations

import msgspec

from bench.peers.spelling import ending_in_id
from bench.requests import Request

MISSING = {
    "deep-cursor": "its pages are by number or by offset; Django REST framework's cursors are no JSON:API pages",
    "boolean-filter": "filters are joined by AND only",
    "operations-3": "no atomic operations",
    "operations-1000": "no atomic operations",
}
"""Why there is no such request. A name also stands for the request with an exact total."""

NOTES = (
    "The library counts always: `page[total]=none` is answered by a paginator that does not, as many users write one.",
    "A relationship is shown when it is included or written, by serializers chosen for it; no links are made.",
    "The any-filter is an EXISTS of its own: django-filter's join would give a user once for each computer.",
    "The whole table is a page of a million rows.",
)
"""Notes for the report on the requests and the server's settings."""

_FILTERS = {
    "dotted-filter": "filter[group.name]=Group {group}&filter[age.gte]={age}",
    "any-filter": "filter[computers.serial.startswith]=SN-{digit}",
}


def translate(request: Request) -> Request | None:
    name = request.name.removesuffix("-exact")
    if name in MISSING:
        return None
    if name in _FILTERS:
        path = f"/users?{_FILTERS[name]}&page[size]=30&page[total]={request.total}"
        return msgspec.structs.replace(request, path=path)
    path = request.path.replace("page[size]=0", "page[size]=1000000")
    return ending_in_id(msgspec.structs.replace(request, path=path))
