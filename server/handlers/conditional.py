"""Answers reads with the tag of the document, or with a 304 if the client has the document already (RFC 9110, 13.2).

It must not know: resources, the database.
"""

from __future__ import annotations

from serializers.tags import Tags, compressed
from server.errors import PreconditionFailed
from server.handlers.base import Handler
from server.http.preconditions import IF_MATCH, IF_NONE_MATCH, sent_tags


def ends_with_tag(handler: Handler, etag: str, version: str | None, size: int) -> bool:
    """Set the ETag of a read, and answer with 304 if the client has the document. Returns whether it was answered.
    size: of the document. Raises PreconditionFailed, InvalidTag."""
    handler._headers.put("Etag", etag)
    headers = handler.request.headers
    if IF_MATCH in headers.by_name:
        _check_match(sent_tags(headers, IF_MATCH), etag, version)
    if IF_NONE_MATCH not in headers.by_name:
        return False
    tags = sent_tags(headers, IF_NONE_MATCH)
    if tags is None or not tags.has(etag):
        return False
    if handler.will_compress(size):
        handler._headers.put("Etag", compressed(etag))
    handler.set_status(304)
    handler.clear_header("Content-Type")
    handler.set_server_timing()
    handler.finish()
    return True


def _check_match(tags: Tags | None, etag: str, version: str | None) -> None:
    versions = None if tags is None else tags.versions
    if versions is None or version in versions or etag.strip('"') in versions:
        return
    raise PreconditionFailed("What is here is not what If-Match names: read it again.", header=IF_MATCH)
