"""Defines the sets of rows that a read or a write touches, with their conditions and their order: the parts of plans.
They contain slots instead of values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from querybuild.declarations.database_types.distances import Measure
from querybuild.declarations.database_types.json_paths import JsonPath
from querybuild.declarations.function import Returned
from querybuild.declarations.keys import Key
from querybuild.declarations.operators import OperatorRow
from querybuild.declarations.resource import Attribute, Link, Operator, Relationship, Resource

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
    grouping: set if these are no rows of a table, but groups of the rows of one.
    nearest: set if they are the nearest to a value. The distance is the first key of their order.
    is_counted: whether, as one of `joins`, they are not joined themselves, but their number for each parent.
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
    grouping: Grouping | None = None
    nearest: Nearest | None = None
    is_counted: bool = False

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
        """The indexes of the keys of the order that are the id or a part of it. Groups have no id by which a value
        could be looked up, so all their keys are part of it."""
        is_part = self.is_part_of_id if self.grouping is None else lambda _: True
        return frozenset(index for index, key in enumerate(self.order) if is_part(key))

    @property
    def is_limited(self) -> bool:
        """Whether the context may hide some of the rows, or may forbid to write them."""
        return bool(self.criteria or self.rights or self.conditions)


class GroupColumn(msgspec.Struct, frozen=True):
    """A column of groups. name: in the statement. function: what is computed of the rows of a group. It is one of
    PERIODS or of AGGREGATES, or "" for the value itself. of: None if the rows themselves are counted. zone: the time
    zone of a period, None for UTC."""

    name: str
    function: str
    of: ColumnRef | None = None
    is_distinct: bool = False
    zone: Slot | None = None

    @property
    def text_name(self) -> str:
        """The column with the text of a period."""
        return f"{self.name}_text"


class Grouping(msgspec.Struct, frozen=True):
    """Groups of rows: one for each combination of the values of `by`. scope: as of the read."""

    rows: Rows
    scope: RelatedScope | None
    by: tuple[GroupColumn, ...]
    aggregates: tuple[GroupColumn, ...]


class Rank(msgspec.Struct, frozen=True):
    """How well a row fits a search. slot: of the search text."""

    slot: Slot


class Distance(msgspec.Struct, frozen=True):
    """How far a column is from a value. slot: of the value."""

    slot: Slot
    measure: Measure


class ColumnRef(msgspec.Struct, frozen=True):
    """A column, or an attribute computed in SQL, of the row with this alias. rows: set if the row is a related row that
    the statement reads in a subquery. The value is null if there is no such row. is_count: whether it is the number of
    these rows, or without `rows` that of the counted ones that the statement joins with this alias. derived: how the
    value is derived from the column, if it is not the column itself: it is inside of its JSON, at the path of a slot or
    of a declaration, or it is the rank of a search or a distance."""

    alias: str
    attribute: Attribute
    rows: Rows | None = None
    is_count: bool = False
    derived: Slot | JsonPath | Rank | Distance | None = None


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
    """Whether the row is one of the first that some parent has, in their order. rows: attached to the parents."""

    alias: str
    parents: Rows
    rows: Rows
    size: int


Condition = Test | CustomTest | Logic | Exists | AmongFirst | IdIs | InScope | Returned


def conditions_within(conditions: Iterable[Condition]) -> Iterator[Condition]:
    """Yield the conditions of a request at any depth: these, their items, and those on the rows that they ask for. The
    criteria of such rows are not among them."""
    for condition in conditions:
        yield condition
        match condition:
            case Logic(items=items):
                yield from conditions_within(items)
            case Exists(rows=rows) | Test(left=ColumnRef(rows=Rows() as rows)):
                yield from conditions_within(rows.conditions)
            case AmongFirst(parents=parents, rows=rows):
                yield from conditions_within((*parents.conditions, *rows.conditions))
            case _:
                pass


class OrderKey(msgspec.Struct, frozen=True):
    """A key of ORDER BY. is_backwards: rows are read from the end, nulls first, for the page before a row."""

    column: ColumnRef
    is_descending: bool
    is_nullable: bool
    is_backwards: bool = False


class Nearest(msgspec.Struct, frozen=True):
    """The value that the rows are the nearest to. is_indexed: whether an index finds them: one of the column, from
    the value in both directions, or one only for an order of distances."""

    column: ColumnRef
    slot: Slot
    measure: Measure
    is_indexed: bool


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
