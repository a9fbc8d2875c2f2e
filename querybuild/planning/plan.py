"""Defines plans: immutable descriptions of what a request reads, with all names resolved, and of the sets of rows that
a read or a write touches. The planner creates them. The compilers, the execution and the encoder read them. Plans of
writes are in `writes/write_plan.py`.

A plan contains slots instead of values. So all plans of the same shape are equal, and the plan is the cache key of its
statements. Declarations in a plan are compared by identity, so plans of different catalogs are never equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from querybuild.declarations.function import Returned
from querybuild.declarations.keys import Key
from querybuild.declarations.operators import OperatorRow
from querybuild.declarations.resource import Attribute, Link, Operator, Relationship, Resource, RowVersion

FIRST_ALIAS = "t0"
"""The alias of the main rows of a statement."""


class Slot(msgspec.Struct, frozen=True):
    """Where a parameter's value comes from.

    request: the values of the filter, or of the body, in the order in which they were planned.
    cursor: the texts of the cursor, without those that are null.
    limit, offset: those of the page.
    argument: the values of a called function, in the order of its declaration.
    returned: the ids of the rows that a called function has returned, as one array.
    context: the values of the context's criteria, in the order of `Context.values`.
    path: the id in the path.
    keys: ids or keys of the rows of an earlier statement, as one array.
    row: the id of the written row.
    max_rows: a limit for the number of rows.
    """

    source: Source
    index: int = 0

    @property
    def position(self) -> tuple[int, int]:
        """Where its value stands among all values: the group, and the index in it."""
        if self.source in _LISTS:
            return _LISTS.index(self.source), self.index
        return len(_LISTS), _SINGLE.index(self.source)


Source = Literal[
    "request", "context", "cursor", "argument", "path", "limit", "offset", "returned", "keys", "row", "max_rows"
]

_LISTS: tuple[Source, ...] = ("request", "context", "cursor", "argument")
_SINGLE: tuple[Source, ...] = ("path", "limit", "offset", "returned", "keys", "row", "max_rows")
"""The sources of several values, and those of one. Each of the first is a group of values. The others are the last
group."""


LIMIT, OFFSET, MAX_ROWS = Slot("limit"), Slot("offset"), Slot("max_rows")


Pair = tuple[Key, Key]
"""A key of a set of rows, and the key of another set that is equal to it."""


class LinkRows(msgspec.Struct, frozen=True):
    """The rows of a link table. near: the keys of the parent and of the link table. far: those of the link table and of
    the related rows. criteria: as for `Rows`."""

    link: Link
    alias: str
    near: Pair
    far: Pair
    criteria: tuple[Condition, ...] = ()


class Rows(msgspec.Struct, frozen=True):
    """A set of rows of one resource, created in `rowsets.py`.

    alias: their name in a statement.
    parent: the alias of the rows that they are attached to, or empty.
    pair: the keys of the parent and of these rows that are equal. None if there is a link table between them.
    criteria: conditions that apply to each row, whatever the request asks for. The context has them. A row that does
        not meet them does not exist for the request.
    rights: for rows that are written, what each must meet besides. Else the write is forbidden.
    conditions: those that the request asks for.
    order: the order in which the rows are read.
    joins: the rows that the order needs.
    keyset: the position in the order after which the rows begin.
    limit, offset: None for all rows.
    """

    resource: Resource
    alias: str
    parent: str = ""
    pair: Pair | None = None
    through: LinkRows | None = None
    criteria: tuple[Condition, ...] = ()
    rights: tuple[Condition, ...] = ()
    conditions: tuple[Condition, ...] = ()
    joins: tuple[Rows, ...] = ()
    order: tuple[OrderKey, ...] = ()
    limit: Slot | None = None
    offset: Slot | None = None
    keyset: KeysetPosition | None = None

    @property
    def all_conditions(self) -> tuple[Condition, ...]:
        """The criteria and the conditions: everything that each row meets, besides the pair of keys."""
        return (*self.criteria, *self.conditions)

    def is_part_of_id(self, key: OrderKey) -> bool:
        """Return whether a key of the order is the id or a part of it."""
        column = key.column
        return column.alias == self.alias and column.attribute.column_name in self.resource.id.key.columns

    @property
    def cursor_ids(self) -> frozenset[int]:
        """The indexes of the keys of the order that are the id or a part of it."""
        return frozenset(index for index, key in enumerate(self.order) if self.is_part_of_id(key))

    @property
    def is_limited(self) -> bool:
        """Whether the context may hide some of the rows, or may forbid to write them."""
        return bool(self.criteria or self.rights or self.conditions)


class ColumnRef(msgspec.Struct, frozen=True):
    """A column, or an attribute computed in SQL, of the row with this alias. rows: set if the row is a related row that
    the statement reads in a subquery. The value is null if there is no such row. is_count: whether it is the number of
    these rows."""

    alias: str
    attribute: Attribute
    rows: Rows | None = None
    is_count: bool = False


class Test(msgspec.Struct, frozen=True):
    """A comparison of a column by an operator of the table `OPERATORS`. form: whether the right side is bound values,
    null or another column."""

    operator: OperatorRow
    left: ColumnRef
    form: Literal["value", "null", "field"]
    slots: tuple[Slot, ...] = ()
    right: ColumnRef | None = None


class CustomTest(msgspec.Struct, frozen=True):
    """A comparison of a column with one bound value by a custom operator."""

    operator: Operator
    left: ColumnRef
    slot: Slot


class Logic(msgspec.Struct, frozen=True):
    """Conditions combined with AND or OR, or one condition with NOT."""

    op: Literal["and", "or", "not"]
    items: tuple[Condition, ...]


class Exists(msgspec.Struct, frozen=True):
    """Whether there is one of the rows. is_separate: PostgreSQL must not turn it into a join."""

    rows: Rows
    is_separate: bool = False


class IdIs(msgspec.Struct, frozen=True):
    """Whether the row has the id in the path."""

    alias: str
    key: Key


class RelatedScope(msgspec.Struct, frozen=True):
    """The related rows of the resource that the path names. rows: the rows of this resource, attached to the related
    rows. None until they are planned."""

    parent: Resource
    relationship: Relationship
    target: Resource
    rows: Rows | None = None


class InScope(msgspec.Struct, frozen=True):
    """Whether the row is one of the related rows of the resource that the path names."""

    scope: RelatedScope


class AmongFirst(msgspec.Struct, frozen=True):
    """Whether the row is one of the first of some rows of its resource, in their order. rows: attached to others."""

    alias: str
    rows: Rows
    size: int


Condition = Test | CustomTest | Logic | Exists | AmongFirst | IdIs | InScope | Returned


class OrderKey(msgspec.Struct, frozen=True):
    """A key of ORDER BY. is_backwards: rows are read from the end, nulls first, for the page before a row."""

    column: ColumnRef
    is_descending: bool
    is_nullable: bool
    is_backwards: bool = False


class KeysetPosition(msgspec.Struct, frozen=True):
    """The position after a row in the order. slots: of the texts of its sort keys, None for a key that is null.
    is_cut: of each key, whether the text is only the beginning of the value, which has to be looked up."""

    keys: tuple[OrderKey, ...]
    slots: tuple[Slot | None, ...]
    is_cut: tuple[bool, ...] = ()

    @property
    def needs_row(self) -> bool:
        """Whether the position is lost if its row is gone: only the beginning of a text can stand for the whole."""
        pairs = zip(self.keys, self.is_cut, strict=False)
        return any(cut and key.column.attribute.type.family != "text" for key, cut in pairs)


Fetch = Literal["row", "join", "union", "keys", "each", "ranked"]
"""How the related rows of a branch are fetched. `fetching.py` decides it.

row: not at all. The parent's row contains the key, and only linkage is shown.
join: in the parent's row, by a LEFT JOIN.
union: in the primary statement, after the primary rows.
keys: by a statement of their own, with the keys of the parents.
each: the same, but only the first rows of each parent, by a subquery for each parent.
ranked: the same, but the rows of all parents are read, and then counted.
"""


class Choice(msgspec.Struct, frozen=True):
    """What a request chooses of the rows of a branch, besides their conditions and their order.

    index: that of its values among the choices of the read.
    is_partial: whether related rows may be left out.
    is_counted: whether the number of the rows is shown.
    size: how many rows of each parent are shown at most, None for all.
    has_total: whether the total of each parent is shown.
    has_next: whether there is a link to the rows after them.
    is_by_id: whether the order is that of the ids, which are numbers. Then they are the texts of cursors.

    After the parent's id, the rows contain the texts of their sort keys, if a link needs them, and then the total.
    """

    index: int
    is_partial: bool
    is_counted: bool
    size: int | None = None
    has_total: bool = False
    has_next: bool = False
    is_by_id: bool = False


class Branch(msgspec.Struct, frozen=True):
    """A relationship whose linkage is shown, and the node of its related resources.

    is_included: whether the related resources are part of the compound document. Otherwise only linkage is shown.
    choice: None for all related rows, in the order of their ids.
    """

    relationship: Relationship
    node: Node
    is_included: bool
    fetch: Fetch
    choice: Choice | None = None

    @property
    def has_statement(self) -> bool:
        """Whether its rows are fetched by a statement of their own."""
        return self.fetch in ("keys", "each", "ranked")

    @property
    def cursor_keys(self) -> tuple[OrderKey, ...]:
        """The sort keys whose texts the rows contain."""
        choice = self.choice
        return self.node.rows.order if choice is not None and choice.has_next and not choice.is_by_id else ()


class Node(msgspec.Struct, frozen=True, cache_hash=True):
    """The primary resources of a document, or the related resources of a branch: the rows of a statement, or a part of
    its columns.

    attributes, relationships: the fields that are shown, in declared order.
    read: the attributes that are selected. Those that are shown come first, without those computed in Python. Then
        come those that the computed ones depend on, and the version.
    computed: the attributes computed in Python.
    keys: keys that are only read for branches.
    version: that of the rows, if it is read.
    targets: for each key the rows that it refers to, if some of them may be hidden. The key of a hidden row is null.

    The columns of a row are (id, read..., keys...). If a branch has its key not in its parent's row, the parent's id
    follows. Computed attributes are appended at the end.
    """

    rows: Rows
    read: tuple[Attribute, ...]
    attributes: tuple[Attribute, ...]
    computed: tuple[Attribute, ...]
    relationships: tuple[Relationship, ...]
    keys: tuple[Key, ...]
    branches: tuple[Branch, ...]
    targets: tuple[Rows | None, ...] = ()
    version: RowVersion | None = None

    @property
    def resource(self) -> Resource:
        """The resource of the rows."""
        return self.rows.resource

    @property
    def position_of_version(self) -> int:
        """The position of the version in a row, if it is read."""
        return len(self.read)

    @property
    def keys_and_targets(self) -> Iterator[tuple[Key, Rows | None]]:
        """Each key with its target."""
        return zip(self.keys, self.targets or (None,) * len(self.keys), strict=True)

    def position_of_key(self, branch: Branch) -> int:
        """Return the position of the key of a branch in a row."""
        assert branch.node.rows.pair is not None
        return 1 + len(self.read) + self.keys.index(branch.node.rows.pair[0])

    def has_columns_of(self, other: Node) -> bool:
        """Return whether its rows have the same columns."""
        return (self.read, self.keys) == (other.read, other.keys)

    @property
    def width(self) -> int:
        """The number of columns in a row, without those of the parent and of computed attributes."""
        return 1 + len(self.read) + len(self.keys)

    @property
    def position_of_parent(self) -> int:
        """The position of the parent's id in a row."""
        return 1 + len(self.read) + len(self.keys)


def sources_of(attribute: Attribute, resource: Resource) -> list[Attribute]:
    """Return the attributes that an attribute computed in Python depends on."""
    return [source for name in attribute.of if (source := resource.attribute(name)) is not None]


def node_of(
    rows: Rows,
    attributes: tuple[Attribute, ...] = (),
    relationships: tuple[Relationship, ...] = (),
    keys: tuple[Key, ...] = (),
    branches: tuple[Branch, ...] = (),
    targets: tuple[Rows | None, ...] = (),
    version: RowVersion | None = None,
) -> Node:
    """Create a node. It reads the attributes that are shown, those that the computed ones depend on, and the
    version."""
    sources = [source for shown in attributes for source in sources_of(shown, rows.resource)]
    read = dict.fromkeys([shown for shown in attributes if shown.compute is None] + sources)
    own = () if version is None else (version.attribute,)
    computed = tuple(shown for shown in attributes if shown.compute is not None)
    return Node(rows, (*read, *own), attributes, computed, relationships, keys, branches, targets, version)


def without_versions(node: Node) -> Node:
    """Return the node without the version of its rows and of all rows below."""
    branches = [msgspec.structs.replace(one, node=without_versions(one.node)) for one in node.branches]
    read = node.read if node.version is None else node.read[:-1]
    return msgspec.structs.replace(node, read=read, version=None, branches=tuple(branches))


PrimaryData = Literal["resource", "collection", "identifier", "identifiers"]
Included = Literal["nothing", "related", "identified"]


class ReadPlan(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """The plan of a read.

    node: the primary rows, with the branches of the includes.
    data: what the primary data is.
    included: what the document includes: nothing, related resources, or also those that the primary data identifies.
    total: how the total is found. None if it is not needed.
    scope: set for related resources and for relationships.
    has_cursors: whether the rows contain the texts of their sort keys, before an exact total.
    has_far_offset: whether the offset is so large that the ids of the page are found before its rows.
    usual_limit: the value of the slot for LIMIT, if the page has the default size.
    counted_by: rows whose keys are counted instead of the primary rows.
    first_rows: how many rows of a list without pages are read first. If there are that many, the list is streamed.
    """

    node: Node
    data: PrimaryData
    included: Included = "nothing"
    total: Literal["exact", "estimated", "none"] | None = None
    scope: RelatedScope | None = None
    has_cursors: bool = False
    has_far_offset: bool = False
    usual_limit: int | None = None
    counted_by: Exists | None = None
    first_rows: int | None = None

    @property
    def rows(self) -> Rows:
        """The primary rows."""
        return self.node.rows

    @property
    def is_collection(self) -> bool:
        """Whether the primary data is an array."""
        return self.data in ("collection", "identifiers")

    @property
    def is_linkage(self) -> bool:
        """Whether the primary data is resource identifier objects."""
        return self.data in ("identifier", "identifiers")

    @property
    def has_included(self) -> bool:
        """Whether the document has `included`."""
        return self.included != "nothing"

    @property
    def includes_primary(self) -> bool:
        """Whether the resources that the primary data identifies are included."""
        return self.included == "identified"

    @property
    def is_called(self) -> bool:
        """Whether a function finds the rows. It is called in a transaction that only reads."""
        return any(isinstance(condition, Returned) for condition in self.rows.conditions)

    @property
    def cursor_ids(self) -> frozenset[int]:
        """The indexes of the keys of a cursor that are the id or a part of it."""
        return self.rows.cursor_ids

    @property
    def cursor_keys(self) -> tuple[OrderKey, ...]:
        """The sort keys whose texts the rows contain."""
        return self.rows.order if self.has_cursors else ()

    @property
    def reads_one_more(self) -> bool:
        """Whether one row more than the page is read. It shows whether there is a next page."""
        return self.total != "exact" or self.has_cursors

    @property
    def answers_writes(self) -> bool:
        """Whether the answer to a write can be read by this plan."""
        return self.is_linkage or not self.is_collection

    @property
    def is_single_statement(self) -> bool:
        """Whether the primary statement is the only one, unless it returns no rows."""
        return not (self.total == "estimated" or self.is_called or _has_statements(self.node))

    @property
    def united(self) -> Branch | None:
        """The branch whose rows are in the primary statement, after the primary rows."""
        return next((branch for branch in self.node.branches if branch.fetch == "union"), None)

    @property
    def finds_ids_first(self) -> bool:
        """Whether the ids of the page are found before its rows. Otherwise PostgreSQL would join included rows to all
        rows that it sorts."""
        return self.has_far_offset or (
            len(self.rows.order) > 1 and any(branch.fetch == "join" for branch in self.node.branches)
        )


def _has_statements(node: Node) -> bool:
    return any(branch.has_statement or _has_statements(branch.node) for branch in node.branches)
