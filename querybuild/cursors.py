"""Cursors: the place of a row in the order of a list, as a text that says nothing to a client. What comes in: the
values of the sort keys, as PostgreSQL writes them. What goes out: a cursor; and the values again.

A cursor is good for the list, the sort and the filter that it was made with. It is not secret: what it holds is
checked like any value.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

import msgspec

from querybuild.plan import Scope
from querybuild.query import Query
from querybuild.resource import Resource
from querybuild.values import JsonFault, ValueFault, dump_json, load_json

Values = list[str | None]


OF_THIS_LIST = "a cursor of this list, with the same sort and filter"

_DEPTH = 2


class Cursor(msgspec.Struct, frozen=True):
    """A place in a sorted list. parent: the id of the resource whose related resources the list has; "" for a
    collection. values: of the sort keys."""

    parent: str
    values: Values


def mark_of(query: Query, resource: Resource, scope: Scope | None = None) -> str:
    """What a cursor is bound to besides the id of the parent: the collection or relationship, sort and filter."""
    relation = None if scope is None else (scope.parent.type, scope.relationship.name)
    asked = repr((resource.type, relation, query.sort, query.filter))
    return hashlib.blake2b(asked.encode(errors="surrogatepass"), digest_size=6).hexdigest()


def encode_cursor(mark: str, values: Sequence[str | None], parent: str = "") -> str:
    return base64.urlsafe_b64encode(dump_json([mark, parent, *values]).encode()).decode().rstrip("=")


def decode_cursor(text: str, mark: str, count: int) -> Cursor:
    """The cursor of a list with `count` sort keys. Raises ValueFault."""
    try:
        held = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        found, parent, *values = msgspec.convert(load_json(held.decode(), _DEPTH), Values)
    except (ValueError, JsonFault, msgspec.ValidationError) as error:
        raise ValueFault("a cursor as links.next and links.prev have it") from error
    if found != mark or parent is None or len(values) != count or values[-1] is None:
        raise ValueFault(OF_THIS_LIST)
    return Cursor(parent, values)
