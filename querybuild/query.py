"""What was asked, names unresolved. What comes in: nothing. What goes out: the immutable values that parsing
and decoding make and planning takes.

Nothing here knows a column, a table or HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that parsing and planning obey; their defaults are the server's.

    page_size, max_page_size: rows. unpaginated: whether page[size]=0 is open; a number is the most rows it may have.
    """

    page_size: int
    max_page_size: int
    unpaginated: Literal["on", "off"] | int
    total: Literal["exact", "estimated", "none"]
    max_include_depth: int
    max_includes: int
    max_included: int
    max_filter_depth: int
    max_filter_nodes: int
    max_list_values: int
    max_json_depth: int
    max_json_values: int


class Criteria(msgspec.Struct, frozen=True, eq=False):
    """The conditions that rows must meet whatever a request asks for. by_type: by the type of their resource, as
    `rowsets.open_rows` takes them. Two of these are the same only if they are one object: it is part of the keys of
    cached plans."""

    by_type: Mapping[str, Any] = {}


NO_CRITERIA = Criteria()


class Context(msgspec.Struct, frozen=True):
    """Who asks: the principal, the tenant and the time will stand here. All planning is given it.

    criteria: a plan depends on them. values: of their slots. A plan does not depend on these, so all who have the same
    criteria share it."""

    criteria: Criteria = NO_CRITERIA
    values: tuple[Any, ...] = ()


class Source(msgspec.Struct, frozen=True):
    """Where a part of a filter came from. parameter: as sent. path: inside its JSON, such as `[0].or[1].val`;
    "" for a simple filter."""

    parameter: str
    path: str = ""


class FieldFilter(msgspec.Struct, frozen=True):
    """`{"name", "op", "val"}` or `{"name", "op", "field"}`. is_text: val is a simple filter's text, yet to be
    read as the attribute's type. index: which val of the request it has, in the order in which they stand."""

    name: str
    op: str
    val: Any
    field: str | None
    is_text: bool
    source: Source
    index: int = 0


class RelationFilter(msgspec.Struct, frozen=True):
    """`any` and `has`: the related rows that meet all of `items`; no items ask whether there is one at all."""

    name: str
    op: Literal["any", "has"]
    items: tuple[FilterNode, ...]
    source: Source


class Group(msgspec.Struct, frozen=True):
    op: Literal["and", "or", "not"]
    items: tuple[FilterNode, ...]


FilterNode = FieldFilter | RelationFilter | Group


class SortKey(msgspec.Struct, frozen=True):
    """path: a name, dotted through to-one relationships."""

    path: str
    is_descending: bool


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """family: which page parameters the links of the answer speak. size: rows, 0 for all. offset: rows, not bounded.
    cursor: of the row that the page follows, "" for the first page. is_before: it is the page before that row."""

    family: Literal["number", "offset", "cursor"]
    size: int
    offset: int
    total: Literal["exact", "estimated", "none"]
    cursor: str = ""
    is_before: bool = False

    @property
    def cursor_parameter(self) -> str:
        return "page[before]" if self.is_before else "page[after]"


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """include: None when the parameter is absent. fields: type -> names, as sent."""

    filter: tuple[FilterNode, ...]
    sort: tuple[SortKey, ...]
    page: Page
    include: tuple[tuple[str, ...], ...] | None
    fields: dict[str, tuple[str, ...]]


class Lid(msgspec.Struct, frozen=True):
    """Stands where an id would for what an earlier operation of the same request creates."""

    type: str
    lid: str


class Identifier(msgspec.Struct, frozen=True):
    """A resource identifier object of a body. id: its text, "" where it has a lid instead. pointer: where the object
    stands in the document."""

    type: str
    id: str
    pointer: str
    lid: str | None = None


LinkMode = Literal["replace", "add", "remove"]
"""What becomes of a relationship: its linkage is all that it is to hold, or joins it, or leaves it."""


class LinkageChange(msgspec.Struct, frozen=True):
    """The linkage that a relationship is written with. identifiers: one at most for a to-one. is_list: whether the body
    had an array. name_pointer: where the document names the relationship, where its linkage does not say it."""

    identifiers: tuple[Identifier, ...]
    is_list: bool
    pointer: str
    mode: LinkMode = "replace"
    name_pointer: str | None = None


class Owner(msgspec.Struct, frozen=True):
    """The resource that the path names, and its to-many relationship that a new resource joins."""

    type: str
    id: str
    relationship: str


ChangeKind = Literal["create", "update", "delete"]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One write of one resource as decoded, its names unresolved. A write of a relationship is an update of the
    resource that has it.

    type: None when the body has none that is a string. id: of an update and a delete, what is written; of a create, the
    client's own. lid: what later operations call it by; of an update and a delete without an id, what is written.
    attributes: None when the member is absent. undecoded: the members, such as `attributes` and
    `relationships/group`, that were sent and whose faults are known already.
    assigned: attributes that custom code sets, whatever a client may write. owner: what a create is linked to.
    pointer: of the resource object. id_pointer: where the document, and not the path, names what is written.
    """

    kind: ChangeKind
    type: str | None
    id: str | None = None
    lid: str | None = None
    attributes: dict[str, Any] | None = None
    relationships: dict[str, LinkageChange] = {}
    undecoded: frozenset[str] = frozenset()
    assigned: dict[str, Any] = {}
    owner: Owner | None = None
    pointer: str = ""
    id_pointer: str | None = None

    def assign(self, **attributes: Any) -> Change:
        """The same, with values for attributes that stand above those of the document: JSON values, as a client would
        send them, of any attribute that has a column."""
        return msgspec.structs.replace(self, assigned=self.assigned | attributes)
