"""Defines plans: immutable descriptions of what a request reads, with all names resolved. The sets of
rows in them are those of `row_plan.py`. The planner creates them. The compilers, the execution and the encoder read
them. Plans of writes are in `writes/write_plan.py`.

A plan contains slots instead of values. So all plans of the same shape are equal, and the plan is the cache key of its
statements. Declarations in a plan are compared by identity, so plans of different catalogs are never equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Literal

import msgspec

from querybuild.declarations.function import Returned
from querybuild.declarations.keys import Key
from querybuild.declarations.resource import Attribute, Relationship, Resource, RowVersion
from querybuild.planning.row_plan import Exists, OrderKey, RelatedScope, Rows
from querybuild.query import Total

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
    def size(self) -> int | None:
        """How many rows each parent shows at most, None for all. For each parent one more is read."""
        return None if self.choice is None else self.choice.size

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
    carried: tuple[Attribute, ...] = (),
) -> Node:
    """Create a node. It reads the attributes that are shown, those that the computed ones depend on, and the version.
    carried: attributes that it reads although they may not be shown."""
    wanted = tuple(dict.fromkeys((*attributes, *carried)))
    sources = [source for attribute in wanted for source in sources_of(attribute, rows.resource)]
    read = dict.fromkeys([attribute for attribute in wanted if attribute.compute is None] + sources)
    own = () if version is None else (version.attribute,)
    computed = tuple(attribute for attribute in wanted if attribute.compute is not None)
    return Node(rows, (*read, *own), attributes, computed, relationships, keys, branches, targets, version)


def without_versions(node: Node) -> Node:
    """Return the node without the version of its rows and of all rows below."""
    branches = [msgspec.structs.replace(branch, node=without_versions(branch.node)) for branch in node.branches]
    read = node.read if node.version is None else node.read[:-1]
    return msgspec.structs.replace(node, read=read, version=None, branches=tuple(branches))


PrimaryData = Literal["resource", "collection", "identifier", "identifiers", "groups"]
Included = Literal["nothing", "related", "identified"]


class ReadPlan(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True, dict=True):
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
    columns: the fields of each line, in their order, if the answer has rows instead of a document.

    Each request asks some of its properties several times, so these are kept.
    """

    node: Node
    data: PrimaryData
    included: Included = "nothing"
    total: Total | None = None
    scope: RelatedScope | None = None
    has_cursors: bool = False
    has_far_offset: bool = False
    usual_limit: int | None = None
    counted_by: Exists | None = None
    first_rows: int | None = None
    columns: tuple[str, ...] = ()

    @cached_property
    def rows(self) -> Rows:
        """The primary rows."""
        return self.node.rows

    @cached_property
    def is_collection(self) -> bool:
        """Whether the primary data is an array."""
        return self.data in ("collection", "identifiers", "groups")

    @cached_property
    def is_linkage(self) -> bool:
        """Whether the primary data is resource identifier objects."""
        return self.data in ("identifier", "identifiers")

    @property
    def has_included(self) -> bool:
        """Whether the document has `included`."""
        return self.included != "nothing"

    @cached_property
    def includes_primary(self) -> bool:
        """Whether the resources that the primary data identifies are included."""
        return self.included == "identified"

    @property
    def is_called(self) -> bool:
        """Whether a function finds the rows. It is called in a transaction that only reads."""
        rows = self.rows if self.rows.grouping is None else self.rows.grouping.rows
        return any(isinstance(condition, Returned) for condition in rows.conditions)

    @property
    def cursor_ids(self) -> frozenset[int]:
        """The indexes of the keys of a cursor that are the id or a part of it."""
        return self.rows.cursor_ids

    @property
    def cursor_keys(self) -> tuple[OrderKey, ...]:
        """The sort keys whose texts the rows contain. The distance of the nearest rows is shown."""
        if self.rows.nearest is not None:
            return self.rows.order[:1]
        return self.rows.order if self.has_cursors else ()

    @property
    def counts(self) -> bool:
        """Whether the rows contain a total. Without rows a statement finds it."""
        return self.total in ("exact", "capped")

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
        # One group of no rows does not tell whether the resource of the path is there.
        is_of_parent = self.rows.grouping is not None and self.scope is not None
        return not (self.total == "estimated" or self.is_called or is_of_parent or _has_statements(self.node))

    @cached_property
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
