"""What will be done, names resolved. What comes in: nothing. What goes out: the immutable plans that the
planner makes, and that the compilers, the execution and the encoder read. A plan has no values in it, only the
slots where they will be: so it is equal to every plan of the same shape, and is itself the key under which its
statements are kept.

Declarations in a plan compare by identity: one catalogue, one set of plans.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Any, Literal

import msgspec

from querybuild.operators import OperatorRow
from querybuild.query import ChangeKind, LinkMode
from querybuild.resource import Attribute, Link, Operator, Relationship, Resource

FIRST_ALIAS = "t0"
"""The alias of the rows that a statement is about."""


class Slot(msgspec.Struct, frozen=True):
    """Where a parameter's value comes from.

    request: the values of query and body, in the order in which planning met them.
    context: the values of the context's criteria, in the order of `Context.values`.
    path: the id that the path names.
    keys: ids or keys of the rows of an earlier statement, as one array.
    row: the id of the row that the write is about.
    most: how many rows there may be.
    """

    source: Literal["request", "context", "path", "keys", "row", "most"]
    index: int = 0


Pair = tuple[str, str]
"""A column of one set of rows, and the column of another one that is equal to it."""


class LinkRows(msgspec.Struct, frozen=True):
    """The rows of a link table between a parent and its related rows. near: pairs of columns of the parent and of the
    link table. far: pairs of columns of the link table and of the related rows."""

    link: Link
    alias: str
    near: tuple[Pair, ...]
    far: tuple[Pair, ...]


class Rows(msgspec.Struct, frozen=True):
    """A set of rows of one resource, as `rowsets.open_rows` makes it.

    alias: their name in a statement. parent: the alias of the rows that they are attached to; empty for rows that stand
    alone. pairs: the columns of the parent and of these rows that are equal; none where a link table is between them.
    criteria: the conditions that each row of the set meets, whatever the request asks for. conditions: those that the
    request asks for. order, limit, offset: of rows that are read, the latter two are slots, None for all rows. joins:
    the rows that the order needs. place: where in the order they begin.
    """

    resource: Resource
    alias: str
    parent: str = ""
    pairs: tuple[Pair, ...] = ()
    through: LinkRows | None = None
    criteria: tuple[Condition, ...] = ()
    conditions: tuple[Condition, ...] = ()
    joins: tuple[Rows, ...] = ()
    order: tuple[OrderKey, ...] = ()
    limit: int | None = None
    offset: int | None = None
    place: Place | None = None


class ColumnRef(msgspec.Struct, frozen=True):
    """A column, or an attribute computed in SQL, of the row that the alias stands for. rows: how that row is reached,
    if it is not one of the statement's rows: the value is null where there is no such row."""

    alias: str
    attribute: Attribute
    rows: Rows | None = None


class Test(msgspec.Struct, frozen=True):
    """An operator of the table on a column. form: its right side is bound values, null, or another column."""

    operator: OperatorRow
    left: ColumnRef
    form: Literal["value", "null", "field"]
    slots: tuple[Slot, ...] = ()
    right: ColumnRef | None = None


class CustomTest(msgspec.Struct, frozen=True):
    """A custom operator of an attribute, on one bound value."""

    operator: Operator
    left: ColumnRef
    slot: Slot


class Logic(msgspec.Struct, frozen=True):
    op: Literal["and", "or", "not"]
    items: tuple[Condition, ...]


class Exists(msgspec.Struct, frozen=True):
    """There is one of the rows. is_apart: planned by itself, and not as a join."""

    rows: Rows
    is_apart: bool = False


class IdIs(msgspec.Struct, frozen=True):
    """The row with the id that the path names."""

    alias: str
    column: str


class Scope(msgspec.Struct, frozen=True):
    """The rows that the resource of the path has at the other end of a relationship. rows: those that the path names
    one of, attached to the related rows; None until they are planned."""

    parent: Resource
    relationship: Relationship
    target: Resource
    rows: Rows | None = None


class InScope(msgspec.Struct, frozen=True):
    """The rows of a scope."""

    scope: Scope


Condition = Test | CustomTest | Logic | Exists | IdIs | InScope


class OrderKey(msgspec.Struct, frozen=True):
    """is_backwards: read from the end, nulls first, for the page before a row."""

    column: ColumnRef
    is_descending: bool
    is_nullable: bool
    is_backwards: bool = False


class Place(msgspec.Struct, frozen=True):
    """After a row, in the order. slots: of the texts of its sort keys; None where one is null."""

    keys: tuple[OrderKey, ...]
    slots: tuple[int | None, ...]


class Branch(msgspec.Struct, frozen=True):
    """A relationship whose linkage is shown, and what is shown at its other end. is_included: whether the related
    resources are part of the compound document, or only identified. is_joined: whether their rows come with the
    primary rows, which name them. is_united: whether they come in the same statement, behind the primary rows."""

    relationship: Relationship
    node: Node
    is_included: bool
    is_joined: bool = False
    is_united: bool = False

    @property
    def needs_rows(self) -> bool:
        """Linkage whose keys stand in the parents' rows needs none."""
        return self.is_included or not self.relationship.is_own_key

    @property
    def has_statement(self) -> bool:
        """Whether its rows are read by a statement of their own."""
        return self.needs_rows and not (self.is_joined or self.is_united)


class Node(msgspec.Struct, frozen=True):
    """Resources of one type at one place of the document: the rows of a statement, or a part of the columns of one.

    rows: which rows. attributes, relationships: the fields shown, in declared order. read: the attributes that SQL
    gives: those shown, but for the ones computed in Python, and then what these are made of. computed: the ones
    computed in Python. keys: columns read but not shown, that branches need. targets: of each key the rows that it
    refers to, if some of them may be hidden: the key of a hidden row reads as null.

    A row is (id, read..., keys...) and, in a branch whose key is not in its parent's row, the parent's id at the end;
    after these comes what is computed.
    """

    rows: Rows
    read: tuple[Attribute, ...]
    attributes: tuple[Attribute, ...]
    computed: tuple[Attribute, ...]
    relationships: tuple[Relationship, ...]
    keys: tuple[str, ...]
    branches: tuple[Branch, ...]
    targets: tuple[Rows | None, ...] = ()

    @property
    def resource(self) -> Resource:
        return self.rows.resource

    @property
    def keys_and_targets(self) -> Iterator[tuple[str, Rows | None]]:
        return zip(self.keys, self.targets or (None,) * len(self.keys), strict=True)

    def position_of_key(self, column: str) -> int:
        return 1 + len(self.read) + self.keys.index(column)

    @property
    def position_of_parent(self) -> int:
        return 1 + len(self.read) + len(self.keys)


def sources_of(attribute: Attribute, resource: Resource) -> list[Attribute]:
    """The attributes that one computed in Python is made of."""
    return [source for name in attribute.of if (source := resource.attribute(name)) is not None]


def node_of(
    rows: Rows | Resource,
    attributes: tuple[Attribute, ...] = (),
    relationships: tuple[Relationship, ...] = (),
    keys: tuple[str, ...] = (),
    branches: tuple[Branch, ...] = (),
    targets: tuple[Rows | None, ...] = (),
) -> Node:
    """A node that reads what it shows. rows: or the resource, for rows that something else has found."""
    if isinstance(rows, Resource):
        rows = Rows(rows, FIRST_ALIAS)
    resource = rows.resource
    sources = [source for shown in attributes for source in sources_of(shown, resource)]
    read = dict.fromkeys([shown for shown in attributes if shown.compute is None] + sources)
    computed = tuple(shown for shown in attributes if shown.compute is not None)
    return Node(rows, tuple(read), attributes, computed, relationships, keys, branches, targets)


class Reference(msgspec.Struct, frozen=True):
    """A column of a resource's rows that is null or the id of a row of the target: a foreign key holds it to that."""

    resource: Resource
    column: str
    target: Resource


References = frozenset[Reference]
NO_REFERENCES: References = frozenset()


class ReadPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A read. node: the primary rows, with what is included. is_collection: an array or one resource.
    total: how the total is found; None where there is none to find. has_included: whether the document has `included`.
    scope: of a related or relationship route. is_linkage: the primary data is resource identifier objects.
    includes_primary: and the resources that they identify are included.
    has_cursors: rows carry the texts of their sort keys, before an exact total.
    is_far: the offset is so large that the page is found by ids alone before its rows are read. usual_limit: what is in
    the slot of limit, where the page has the default size. counted_by: rows whose keys are counted in place of the
    primary rows. first_rows: of a list without pages, how many rows are read at first. If there are as many, the list
    is streamed.
    """

    node: Node
    is_collection: bool
    total: Literal["exact", "estimated", "none"] | None = None
    has_included: bool = False
    scope: Scope | None = None
    is_linkage: bool = False
    includes_primary: bool = False
    has_cursors: bool = False
    is_far: bool = False
    usual_limit: int | None = None
    counted_by: Exists | None = None
    first_rows: int | None = None

    @property
    def rows(self) -> Rows:
        """The primary rows."""
        return self.node.rows

    @property
    def cursor_keys(self) -> tuple[OrderKey, ...]:
        return self.rows.order if self.has_cursors else ()

    @property
    def reads_one_more(self) -> bool:
        """Whether one row more than the page is read, which tells whether there is another page."""
        return self.total != "exact" or self.has_cursors

    @property
    def answers_writes(self) -> bool:
        """Whether a write may be answered with it."""
        return self.is_linkage or not self.is_collection

    @property
    def is_single_statement(self) -> bool:
        """Whether the primary statement reads all that there is to read, unless it finds no rows."""
        return self.total != "estimated" and not _has_statements(self.node)

    @property
    def united(self) -> Branch | None:
        return next((branch for branch in self.node.branches if branch.is_united), None)

    @property
    def finds_ids_first(self) -> bool:
        """Whether the ids of the page are found before its rows. What is joined would else be joined to all rows that
        are sorted."""
        return self.is_far or (len(self.rows.order) > 1 and any(branch.is_joined for branch in self.node.branches))


def _has_statements(node: Node) -> bool:
    return any(branch.has_statement or _has_statements(branch.node) for branch in node.branches)


class Statement(msgspec.Struct, frozen=True):
    """SQL text and where each of $1, $2, ... comes from."""

    sql: str
    slots: tuple[Slot, ...]


class LockStrength(IntEnum):
    """How a row is locked. A greater strength excludes all that a smaller one excludes."""

    KEY_SHARE = 1
    """The row and its id stay. Excludes UPDATE alone."""
    NO_KEY_UPDATE = 2
    """As UPDATE statements lock: nobody else writes the row, but rows that refer to it may be written."""
    UPDATE = 3
    """Nor can a row begin to refer to it."""

    @property
    def clause(self) -> str:
        """`FOR NO KEY UPDATE`, after a blank. PyPika knows FOR UPDATE alone."""
        return " FOR " + self.name.replace("_", " ")


class Assignment(msgspec.Struct, frozen=True):
    """A column of the written row and the slot of its value; attribute is None for a key of a relationship and
    for the id. owner: of a key whose links may be taken away from the other side, the rows there. target: of a key
    the rows that it may refer to, if others may be hidden."""

    column: str
    slot: int
    attribute: Attribute | None = None
    owner: Rows | None = None
    target: Rows | None = None


class Unchanged(msgspec.Struct, frozen=True):
    """A read-only attribute that was sent, and the slot of what was sent."""

    attribute: Attribute
    slot: int


class LinkWrite(msgspec.Struct, frozen=True):
    """A relationship whose key is not in the written row.

    rows: the related ones. slot: of the ids, an array.
    is_detachable: whether rows that leave may be left without their key.
    is_target_first: whether the targets of a link table are locked before the written row.
    """

    resource: Resource
    relationship: Relationship
    rows: Rows
    slot: int
    mode: LinkMode
    is_detachable: bool
    is_target_first: bool = False

    @property
    def target(self) -> Resource:
        return self.rows.resource


class OwnerRow(msgspec.Struct, frozen=True):
    """The row that the path names and that a new one is linked to: it has to be there. rows: it is one of these. slot:
    of its id."""

    rows: Rows
    slot: int

    @property
    def resource(self) -> Resource:
        return self.rows.resource


class WritePlan(msgspec.Struct, frozen=True, kw_only=True):
    """A write of one row and its links. rows: it is one of these. id_slot: of its id; None on create without a client's
    id.
    unchanged: read-only attributes that were sent, whose slots hold what was sent: the write goes on only if they
    have that value.
    """

    kind: ChangeKind
    rows: Rows
    id_slot: int | None
    assignments: tuple[Assignment, ...] = ()
    links: tuple[LinkWrite, ...] = ()
    unchanged: tuple[Unchanged, ...] = ()
    owner: OwnerRow | None = None

    @property
    def resource(self) -> Resource:
        return self.rows.resource

    @property
    def is_limited(self) -> bool:
        """Whether the context hides rows that matter to the write."""
        return bool(
            self.rows.criteria
            or any(link.rows.criteria for link in self.links)
            or any(assignment.target for assignment in self.assignments)
            or (self.owner is not None and self.owner.rows.criteria)
        )

    @property
    def lock_strength(self) -> LockStrength:
        """Of the lock on the written row. Nothing may join it where links may be taken away."""
        takes_away = self.kind == "delete" or any(link.mode != "add" for link in self.links)
        return LockStrength.UPDATE if takes_away else LockStrength.NO_KEY_UPDATE


Values = tuple[Any, ...]
