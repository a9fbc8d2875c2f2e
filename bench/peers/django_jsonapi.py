"""Translates the requests for Django REST framework JSON:API. It takes a request and returns the one that does the same
there, or None. It must not import the library, which is in a separate environment.
"""

from __future__ import annotations

import msgspec

from bench.peers.spelling import ending_in_id
from bench.requests import Request

MISSING = {
    "deep-cursor": "it has pages by number or by offset; Django REST framework's cursors are not JSON:API pages",
    "boolean-filter": "filters are joined by AND only",
    "operations-3": "no atomic operations",
    "operations-1000": "no atomic operations",
}
"""The reasons for missing requests. A name is also for the request with an exact total."""

NOTES = (
    "The library always counts. `page[total]=none` uses a custom paginator that does not, as many users write one.",
    "A relationship is only shown if it is included or written, by separate serializers. There are no links.",
    "The any-filter is a custom EXISTS, because the join of django-filter would return a user once for each computer.",
    "The whole table is a page of a million rows.",
)
"""Notes for the report on the requests and the server's settings."""

_FILTERS = {
    "dotted-filter": "filter[group.name]=Group {group}&filter[age.gte]={age}",
    "any-filter": "filter[computers.serial.startswith]=SN-{digit}",
}


def translate(request: Request) -> Request | None:
    """Return the request in the form of this library, or None if there is none."""
    name = request.name.removesuffix("-exact")
    if name in MISSING:
        return None
    if name in _FILTERS:
        path = f"/users?{_FILTERS[name]}&page[size]=30&page[total]={request.total}"
        return msgspec.structs.replace(request, path=path)
    path = request.path.replace("page[size]=0", "page[size]=1000000")
    return ending_in_id(msgspec.structs.replace(request, path=path))
