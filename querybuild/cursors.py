"""Cursors: the place of a row in the order of a list, as a text that says nothing to a client. What comes in: the
values of the sort keys, as PostgreSQL writes them. What goes out: a cursor; and the values again.

A cursor is good for the list, the sort and the filter that it was made with. It is not secret: what it holds is
checked like any value.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from querybuild.plan import Scope
from querybuild.query import FieldFilter, FilterNode, Group, Query, RelationFilter
from querybuild.resource import Resource
from querybuild.values import JsonFault, ValueFault, dump_json, load_json

Values = list[str | None]


OF_THIS_LIST = "a cursor of this list, with the same sort and filter"

_DEPTH = 2


class Cursor(msgspec.Struct, frozen=True):
    """A place in a sorted list. mark: of the list. parent: the id of the resource whose related resources the list has;
    "" for a collection. values: of the sort keys."""

    mark: str
    parent: str
    values: Values

    def check(self, mark: str, count: int) -> None:
        """mark: of the list that was asked for. count: of its sort keys. Raises ValueFault."""
        if self.mark != mark or len(self.values) != count or self.values[-1] is None:
            raise ValueFault(OF_THIS_LIST)


def list_name(query: Query, resource: Resource, scope: Scope | None = None) -> str:
    """The list that a cursor is bound to, but for the id of the parent and the values of the filter: the collection or
    relationship, the sort, and the filter's names and operators."""
    relation = None if scope is None else (scope.parent.type, scope.relationship.name)
    sort = [(key.path, key.is_descending) for key in query.sort]
    return repr((resource.type, relation, sort, [_without_values(node) for node in query.filter]))


def _without_values(node: FilterNode) -> tuple[object, ...]:
    """A filter without its values."""
    match node:
        case FieldFilter():
            return node.name, node.op, node.field, node.is_text
        case RelationFilter():
            return node.name, node.op, [_without_values(item) for item in node.items]
        case Group():
            return node.op, [_without_values(item) for item in node.items]


def mark_of(name: str, vals: Sequence[Any]) -> str:
    """What a cursor has of its list. name: by `list_name`. vals: of the filter, in the order in which they stand."""
    return hashlib.blake2b(f"{name}{vals!r}".encode(errors="surrogatepass"), digest_size=6).hexdigest()


def encode_cursor(mark: str, values: Sequence[str | None], parent: str = "") -> str:
    return base64.urlsafe_b64encode(dump_json([mark, parent, *values]).encode()).decode().rstrip("=")


def decode_cursor(text: str) -> Cursor:
    """Raises ValueFault."""
    try:
        held = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        mark, parent, *values = msgspec.convert(load_json(held.decode(), _DEPTH), Values)
    except (ValueError, JsonFault, msgspec.ValidationError) as error:
        raise ValueFault("a cursor as links.next and links.prev have it") from error
    if mark is None or parent is None or not values:
        raise ValueFault(OF_THIS_LIST)
    return Cursor(mark, parent, values)
