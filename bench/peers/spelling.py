"""What the peers' spellings have in common: paths without a total, sorts that leave no choice."""

from __future__ import annotations

import re

import msgspec

from bench.requests import Request


def without_total(request: Request) -> Request:
    path = re.sub(r"([?&])page\[total\]=\w+(&|$)", lambda found: found[1] if found[2] else "", request.path)
    return msgspec.structs.replace(request, path=path)


def ending_in_id(request: Request) -> Request:
    """Sorted by the id after its own keys, where it has any, as this server sorts without being told."""
    path = re.sub(r"([?&]sort=[^&]+)", r"\1,id", request.path)
    return msgspec.structs.replace(request, path=path)
