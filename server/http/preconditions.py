"""Reads the preconditions of a request, If-Match and If-None-Match (RFC 9110, 13.1). Whether they hold is decided where
the resource is read or written.

It must not know: resources, documents.
"""

from __future__ import annotations

from serializers.tags import Tags, parse_tags
from server.errors import InvalidTag, PreconditionUnsupported
from server.http.headers import Headers

IF_MATCH, IF_NONE_MATCH = "If-Match", "If-None-Match"
_OTHERS = frozenset({"If-Unmodified-Since", IF_MATCH, IF_NONE_MATCH})


def sent_tags(headers: Headers, name: str) -> Tags | None:
    """Return the tags of a header, or None if it was not sent. Raises InvalidTag."""
    values = headers.by_name.get(name)
    if values is None:
        return None
    try:
        return parse_tags(",".join(values))
    except ValueError:
        detail = f'{name} must be `*`, or a list of tags in double quotes: {name}: "7".'
        raise InvalidTag(detail, header=name) from None


def check_preconditions(headers: Headers, allowed: frozenset[str]) -> None:
    """Check that a write has no precondition that its route does not have. allowed: those that it has. Raises
    PreconditionUnsupported, InvalidTag."""
    if _OTHERS.isdisjoint(headers.by_name):
        return
    for name in headers.by_name:
        if name in _OTHERS and name not in allowed:
            raise PreconditionUnsupported(f"{name} is not supported here: send the request without it.", header=name)
    tags = sent_tags(headers, IF_NONE_MATCH)
    if tags is not None and not tags.is_any:
        detail = "Of a write, If-None-Match can only be `*`: the resource must not exist."
        raise PreconditionUnsupported(detail, header=IF_NONE_MATCH)
