"""Cursors: the place of a row in the order of a list, as a text that says nothing to a client. What comes in: the
values of the sort keys, as PostgreSQL writes them. What goes out: a cursor; and the values again.

A cursor is good for the sort and the filter that it was made with. It is not secret: what it holds is checked
like any value.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

import msgspec

from querybuild.query import Query
from querybuild.resource import Resource
from querybuild.values import JsonFault, ValueFault, dump_json, load_json

Values = list[str | None]


_DEPTH = 2


def mark_of(query: Query, resource: Resource) -> str:
    """What a cursor is bound to: resource, sort and filter."""
    asked = repr((resource.type, query.sort, query.filter))
    return hashlib.blake2b(asked.encode(errors="surrogatepass"), digest_size=6).hexdigest()


def encode_cursor(mark: str, values: Sequence[str | None]) -> str:
    return base64.urlsafe_b64encode(dump_json([mark, *values]).encode()).decode().rstrip("=")


def decode_cursor(text: str, mark: str, count: int) -> Values:
    """The values of `count` sort keys. Raises ValueFault."""
    try:
        held = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        found, *values = msgspec.convert(load_json(held.decode(), _DEPTH), Values)
    except (ValueError, JsonFault, msgspec.ValidationError) as error:
        raise ValueFault("a cursor as links.next and links.prev have it") from error
    if found != mark or len(values) != count or values[-1] is None:
        raise ValueFault("a cursor of this list, with the same sort and filter")
    return values
