"""Defines the values between parsing and planning: queries and changes, whose names are not resolved yet.

It must not know: columns, tables, HTTP.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The settings for parsing and planning.

    page_size, max_page_size: rows. unpaginated: whether page[size]=0 is allowed; a number is its maximum of rows.
    has_row_security: whether policies of PostgreSQL may hide rows. has_trigrams: whether it has distances of texts.
    time_zones: the names that PostgreSQL knows, empty if they were not read.
    """

    page_size: int
    max_page_size: int
    unpaginated: Literal["on", "off"] | int
    total: Literal["exact", "estimated", "capped", "none"]
    max_include_depth: int
    max_includes: int
    max_included: int
    max_included_page: int
    max_filter_depth: int
    max_filter_nodes: int
    max_list_values: int
    max_json_depth: int
    max_json_values: int
    max_bulk_rows: int
    max_groups: int
    max_url_bytes: int
    max_query_cost: int | None
    has_row_security: bool = False
    has_trigrams: bool = False
    time_zones: frozenset[str] = frozenset()


class Source(msgspec.Struct, frozen=True):
    """The position of a part of a filter. parameter: the name as sent. path: the position in its JSON, such as
    `[0].or[1].val`, or "" for a simple filter. pointer: instead of the parameter, to a filter in a document."""

    parameter: str
    path: str = ""
    pointer: str | None = None


class FieldFilter(msgspec.Struct, frozen=True):
    """`{"name", "op", "val"}` or `{"name", "op", "field"}`. is_text: val is the text of a simple filter, which is not
    converted to the attribute's type yet. index: the index of its val among those of the request."""

    name: str
    op: str
    val: Any
    field: str | None
    is_text: bool
    source: Source
    index: int = 0


class RelationFilter(msgspec.Struct, frozen=True):
    """`any` and `has`: whether a related row matches all of `items`. Without items, whether there is a related row."""

    name: str
    op: Literal["any", "has"]
    items: tuple[FilterNode, ...]
    source: Source


class CountFilter(msgspec.Struct, frozen=True):
    """`count`: how many related rows match all of `items`. test: the comparison of their number."""

    name: str
    test: FieldFilter
    items: tuple[FilterNode, ...]
    source: Source


class FilterGroup(msgspec.Struct, frozen=True):
    """A group of filters. `not` has one item."""

    op: Literal["and", "or", "not"]
    items: tuple[FilterNode, ...]


FilterNode = FieldFilter | RelationFilter | CountFilter | FilterGroup


class SortKey(msgspec.Struct, frozen=True):
    """A key of a sort. path: a name, after the to-one relationships that lead to it, separated by dots. is_count:
    whether the name is of a to-many relationship, whose rows are counted."""

    path: str
    is_descending: bool
    is_count: bool = False


Total = Literal["exact", "estimated", "capped", "none"]
"""How the total of a list is found. capped: exactly, up to CAPPED_TOTAL."""

CAPPED_TOTAL = 10_000


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """The requested page. family: which page parameters the links use. size: rows, 0 for all. offset: rows, without a
    limit. cursor: that of the row before the page, "" for the first page. is_before: whether the page is before the row
    of the cursor instead of after it. is_all: whether more rows than its size are an error."""

    family: Literal["number", "offset", "cursor"]
    size: int
    offset: int
    total: Total
    cursor: str = ""
    is_before: bool = False
    is_all: bool = False

    @property
    def cursor_parameter(self) -> str:
        """The parameter with the cursor."""
        return "page[before]" if self.is_before else "page[after]"


class IncludeChoice(msgspec.Struct, frozen=True, kw_only=True):
    """What a request chooses of the related rows at the end of an include path. size: how many rows of each parent at
    most, None for all. is_counted: whether `includePage` was sent. has_total: whether the total of each parent is
    wanted. parameters: the names of its parameters, as sent."""

    path: tuple[str, ...]
    filter: tuple[FilterNode, ...] = ()
    sort: tuple[SortKey, ...] = ()
    size: int | None = None
    is_counted: bool = False
    has_total: bool = False
    parameters: tuple[str, ...] = ()


PERIODS = ("year", "month", "day", "hour")
AGGREGATES = ("count", "sum", "avg", "min", "max")
"""The functions of keys of groups, and those of their numbers."""


class GroupKey(msgspec.Struct, frozen=True):
    """A key of groups. name: as sent. path: of the attribute. period: what its dates are cut to, "" for the value."""

    name: str
    path: str
    period: str = ""


class Aggregate(msgspec.Struct, frozen=True):
    """A number of each group. function: one of AGGREGATES. path: of the attribute, "" to count resources. parameter: as
    sent."""

    name: str
    function: str
    path: str
    is_distinct: bool
    parameter: str


class GroupQuery(msgspec.Struct, frozen=True):
    """The groups that a request asks for. time_zone: None for UTC. zone_index: its index among the values of the
    request."""

    by: tuple[GroupKey, ...]
    aggregates: tuple[Aggregate, ...]
    filter: tuple[FilterNode, ...] = ()
    time_zone: str | None = None
    zone_index: int = 0


class Search(msgspec.Struct, frozen=True):
    """The words that resources must have. index: of the text among the values of the request."""

    text: str
    index: int


class Near(msgspec.Struct, frozen=True):
    """The value that the resources shall be near to. name: of the attribute. index: of the value among those of the
    request. parameter: as sent."""

    name: str
    text: str
    index: int
    parameter: str


ReadForm = Literal["document", "rows", "page"]
"""The form of the answer to a read. document: that of JSON:API. rows: only the rows of a list, a line for each. page:
HTML for people."""


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed query string. include: None if the parameter is absent. fields: type -> names, as sent. choices: one for
    each include path, in the order in which they were sent. groups: None for the resources themselves. form: of the
    answer."""

    filter: tuple[FilterNode, ...]
    sort: tuple[SortKey, ...]
    page: Page
    include: tuple[tuple[str, ...], ...] | None
    fields: dict[str, tuple[str, ...]]
    choices: tuple[IncludeChoice, ...] = ()
    groups: GroupQuery | None = None
    search: Search | None = None
    near: Near | None = None
    form: ReadForm = "document"


class Lid(msgspec.Struct, frozen=True):
    """A placeholder for the id of a resource that an earlier operation of the same request creates."""

    type: str
    lid: str


class Identifier(msgspec.Struct, frozen=True):
    """A resource identifier object of a body. id: its text, "" if it has a lid instead. pointer: the position of the
    object in the document."""

    type: str
    id: str
    pointer: str
    lid: str | None = None


LinkMode = Literal["replace", "add", "remove"]
"""Whether the linkage replaces the links of a relationship, is added to them, or is removed from them."""


class LinkageChange(msgspec.Struct, frozen=True):
    """A write of linkage. identifiers: at most one for a to-one. is_list: whether the body has an array. name_pointer:
    the position of the relationship's name, if it is not that of the linkage."""

    identifiers: tuple[Identifier, ...]
    is_list: bool
    pointer: str
    mode: LinkMode = "replace"
    name_pointer: str | None = None


class Owner(msgspec.Struct, frozen=True):
    """The resource of the path, and its to-many relationship in which a new resource is created."""

    type: str
    id: str
    relationship: str


ChangeKind = Literal["create", "update", "delete"]


class VersionMatch(msgspec.Struct, frozen=True):
    """What a write of an existing resource demands. versions: of which the version must be one, None for any.
    of_linkage: whether it is the version of the linkage that is written, and not of the resource. pointer: the position
    of `ifMatch` in the document; None for the header If-Match."""

    versions: frozenset[str] | None
    of_linkage: bool = False
    pointer: str | None = None


class OnConflict(msgspec.Struct, frozen=True):
    """The fields by which a create finds a row to update instead. parameter, pointer: where they stood."""

    names: tuple[str, ...]
    parameter: str | None = None
    pointer: str | None = None


class Bulk(msgspec.Struct, frozen=True):
    """The rows of a write that names no id: all that a filter finds. max_rows: if they are more, nothing is written.
    pointer: of both, to the `meta` that they stand in."""

    filter: tuple[FilterNode, ...]
    max_rows: int
    pointer: str


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One decoded write of one resource, whose names are not resolved yet. A write of a relationship is an update of
    the resource that has it.

    type: None if the body has no string as the type. id: the id of the written resource; for a create, the id that the
    client has chosen. lid: for a create, the name for later operations; for an update and a delete without an id, the
    written resource. attributes: None if the member is absent. undecoded: the invalid members, such as `attributes` and
    `relationships/group`, whose errors are reported already. assigned: attributes that custom code sets, even if
    clients may not write them. owner: the resource that a create is linked to. pointer: the position of the resource
    object. id_pointer: the position of the id, if the document and not the path names the written resource. match: what
    the version of the written resource must be. on_conflict: for a create, by what a row is found that is updated
    instead. bulk: for an update and a delete without an id, which rows are written.
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
    match: VersionMatch | None = None
    on_conflict: OnConflict | None = None
    bulk: Bulk | None = None

    def assign(self, **attributes: Any) -> Change:
        """Return the change with these attributes, which override those of the document. Values are JSON values, as a
        client would send them, of any attribute that has a column."""
        return msgspec.structs.replace(self, assigned=self.assigned | attributes)
