"""Translates the requests for FastAPI-JSONAPI. It takes a request and returns the one that does the same there, or
None. It must not import the library, which is in a separate environment.
"""

from __future__ import annotations

import json

import msgspec

from bench.peers.spelling import ending_in_id, without_total
from bench.requests import Request

MISSING = {
    "exact": "its `meta.count` is the number of rows on the page",
    "deep-cursor": "it only has pages by number",
}
"""The reasons for missing requests; `exact` is for all requests with an exact total."""

NOTES = (
    "A page without `sort` has no defined order, so the requests have `sort=id`.",
    "Related resources are at `/groups/{group}/relationships/users`.",
    "Relationship routes cannot write: a to-many is replaced by a PATCH of the user with `include=computers`.",
    "3.0.0 documents `any` but does not have it. Here it is a custom filter, as the library supports them.",
    "By default it counts the rows of each page with a separate statement.",
)
"""Notes for the report on the requests and the server's settings."""


def translate(request: Request) -> Request | None:
    """Return the request in the form of this library, or None if there is none."""
    if request.total == "exact" or request.has_cursor:
        return None
    if request.name == "replace":
        return _replace(request)
    if request.name == "related":
        request = msgspec.structs.replace(
            request, path=request.path.replace("/{group}/users", "/{group}/relationships/users")
        )
    return _in_order(without_total(request))


def _in_order(request: Request) -> Request:
    if request.method != "GET" or "?" not in request.path or "sort=" in request.path:
        return ending_in_id(request)
    return msgspec.structs.replace(request, path=f"{request.path}&sort=id")


def _replace(request: Request) -> Request:
    linkage = json.loads(request.body)
    user = {"type": "user", "id": "{user}", "attributes": {}, "relationships": {"computers": linkage}}
    body = json.dumps({"data": user}, separators=(",", ":"))
    return msgspec.structs.replace(request, path="/users/{user}?include=computers", body=body)
