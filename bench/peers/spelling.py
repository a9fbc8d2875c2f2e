"""Functions that translate requests for all peers: paths without a total, sorts with only one order."""

from __future__ import annotations

import re

import msgspec

from bench.requests import Request


def without_total(request: Request) -> Request:
    """Return the request without `page[total]`."""
    path = re.sub(r"([?&])page\[total\]=\w+(&|$)", lambda found: found[1] if found[2] else "", request.path)
    return msgspec.structs.replace(request, path=path)


def ending_in_id(request: Request) -> Request:
    """Add the id to the request's sort keys, if it has any, as this server does itself."""
    path = re.sub(r"([?&]sort=[^&]+)", r"\1,id", request.path)
    return msgspec.structs.replace(request, path=path)
