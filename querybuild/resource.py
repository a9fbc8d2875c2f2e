"""The vocabulary in which resources are declared, by us in `server/resources/` and by users in a module of their own.

What comes in: nothing. What goes out: the kinds of declaration. Nothing here knows a request, a statement or a
document; the declarations are checked in `catalog.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from pypika.terms import Criterion, Term

from querybuild.hooks import Hooks
from querybuild.types import BIGINT, ID_TYPES, ColumnType, IdType

RESOURCE_METHODS = frozenset({"list", "create", "detail", "update", "delete"})
RELATIONSHIP_METHODS = frozenset({"read", "add", "replace", "remove"})

Columns = Callable[[str], Term]
"""Given to a computed attribute: a column's name -> its term, with the right alias."""


Compute = Callable[[Sequence[tuple[Any, ...]]], Iterable[Any]]
"""Given to an attribute computed in Python: the values of each resource -> its value, for each."""


class Operator(msgspec.Struct, frozen=True, eq=False):
    """A custom filter operator of an attribute.

    read: the request's JSON value -> what is bound; refuses with ValueFault, whose text continues `... must be`.
    criterion: (attribute, column, bound parameter, operator name) -> one criterion and a list of joins. A join
    is a (table, criterion) pair; with joins the whole becomes an EXISTS, so that rows never multiply.

    >>> def contains(attribute, column, bound, name):
    ...     return column.contains(bound), []
    >>> has = Operator("has_all", read=list, criterion=contains)
    """

    name: str
    read: Callable[[Any], Any]
    criterion: Callable[[Attribute, Term, Term, str], tuple[Criterion, list[Any]]]


class Attribute(msgspec.Struct, frozen=True, eq=False):
    """A resource's attribute and the column that holds it.

    column: the column's name, where it differs from the attribute's.
    sql: for an attribute computed in SQL, a function of the row's columns that returns a term. It has no column and is
        read-only; say `nullable` when the term can be null.
    of, compute: for an attribute computed in Python, the names of the attributes that it is made of, and a function of
        their values: a list of tuples, one a resource, in the order of `of`; it gives a value for each. It has no
        column, is read-only, and cannot be filtered or sorted by.
    required: must be sent on create.
    required_on_update: must be sent whenever `attributes` is sent in a PATCH.
    nullable: null is a value.
    min_length, max_length: characters of a text, items of an array.
    minimum, maximum: inclusive, of ordered types, as Python values of the type.
    pattern: a regular expression that the whole of a text must match.
    shape: a Python type that a JSON value must fit, such as `dict[str, list[int]]`.
    readable, creatable, updatable, filterable, sortable: what a request may do with it.
    match: whether the operator `match` is open on a text.
    operators: custom operators, besides those of the type.
    """

    name: str
    type: ColumnType
    column: str = ""
    sql: Callable[[Columns], Term] | None = None
    of: tuple[str, ...] = ()
    compute: Compute | None = None
    required: bool = False
    required_on_update: bool = False
    nullable: bool = False
    min_length: int | None = None
    max_length: int | None = None
    minimum: Any = None
    maximum: Any = None
    pattern: str | None = None
    shape: Any = None
    readable: bool = True
    creatable: bool = True
    updatable: bool = True
    filterable: bool = True
    sortable: bool = True
    match: bool = True
    operators: tuple[Operator, ...] = ()

    @property
    def column_name(self) -> str:
        return self.column or self.name

    @property
    def is_stored(self) -> bool:
        return self.sql is None and self.compute is None

    @property
    def is_hidden(self) -> bool:
        """Whether no request can read or write it: then nothing may tell that it is there."""
        is_written = self.is_writable(on_create=True) or self.is_writable(on_create=False)
        return not (self.readable or is_written)

    @property
    def is_filterable(self) -> bool:
        return self.readable and self.filterable and self.compute is None

    @property
    def is_sortable(self) -> bool:
        return self.readable and self.sortable and self.compute is None

    def is_writable(self, *, on_create: bool) -> bool:
        allowed = self.creatable if on_create else self.updatable
        return allowed and self.is_stored and not self.type.is_read_only


class Id(msgspec.Struct, frozen=True, eq=False):
    """The id column: bigint, int, text or uuid."""

    column: str = "id"
    type: ColumnType = BIGINT


class Link(msgspec.Struct, frozen=True, eq=False):
    """A link table for a many-to-many relationship; its two columns together are unique.

    source: the column that holds this side's id. target: the column that holds the other side's.
    """

    table: str
    source: str
    target: str
    schema: str | None = None


class ToOne(msgspec.Struct, frozen=True, eq=False):
    """A relationship to at most one resource of the type `target`.

    column: the column of the resource's own table that holds the other's id (default: the name and `_id`).
    foreign_key: instead, the column of the other's table that holds this one's id; unique, as the other side
    of a one-to-one.
    nullable: may be empty.
    required: must be sent on create (default: when it is not nullable).
    methods: what of read, add, replace, remove is open; for a to-one read and replace matter.
    includable, filterable: whether include, and filters and sorts, may go over it.
    """

    name: str
    target: str
    column: str = ""
    foreign_key: str = ""
    nullable: bool = True
    required: bool | None = None
    methods: frozenset[str] = RELATIONSHIP_METHODS
    includable: bool = True
    filterable: bool = True

    @property
    def is_to_many(self) -> bool:
        return False

    @property
    def is_own_key(self) -> bool:
        """Whether the key lies in the resource's own row."""
        return not self.foreign_key

    @property
    def column_name(self) -> str:
        return self.column or f"{self.name}_id"

    @property
    def is_required(self) -> bool:
        return self.is_own_key and (not self.nullable if self.required is None else self.required)


class ToMany(msgspec.Struct, frozen=True, eq=False):
    """A relationship to any number of resources of the type `target`.

    foreign_key: their column that holds this one's id.
    through: instead, a link table.
    methods, includable, filterable: as of ToOne.
    """

    name: str
    target: str
    foreign_key: str = ""
    through: Link | None = None
    methods: frozenset[str] = RELATIONSHIP_METHODS
    includable: bool = True
    filterable: bool = True

    @property
    def is_to_many(self) -> bool:
        return True

    @property
    def is_own_key(self) -> bool:
        return False


Relationship = ToOne | ToMany


def own_key_of(relationship: Relationship) -> ToOne | None:
    """The relationship where its key lies in the resource's own row."""
    return relationship if isinstance(relationship, ToOne) and relationship.is_own_key else None


def link_of(relationship: Relationship) -> Link | None:
    """The link table of a many-to-many relationship."""
    return relationship.through if isinstance(relationship, ToMany) else None


def turned_link(link: Link) -> Link:
    """The link table seen from its other side."""
    return Link(link.table, source=link.target, target=link.source, schema=link.schema)


class Resource(msgspec.Struct, frozen=True, eq=False):
    """A resource: its JSON:API type, its collection's path, its table, and its fields.

    schema: the table's schema, written into every statement; without it the database's default schema is
    meant. client_ids: whether a POST may bring an id. methods: what of list, create, detail, update, delete is
    open. in_operations: whether atomic operations may write it. soft_delete: whether a trigger of the table keeps
    what is deleted. hooks: custom code around its writes.
    """

    type: str
    path: str
    table: str
    attributes: tuple[Attribute, ...] = ()
    relationships: tuple[Relationship, ...] = ()
    id: Id = Id()
    schema: str | None = None
    client_ids: bool = False
    methods: frozenset[str] = RESOURCE_METHODS
    in_operations: bool = True
    soft_delete: bool = False
    hooks: Hooks = Hooks()

    @property
    def id_type(self) -> IdType:
        return ID_TYPES[self.id.type]

    def attribute(self, name: str) -> Attribute | None:
        return next((attribute for attribute in self.attributes if attribute.name == name), None)

    def relationship(self, name: str) -> Relationship | None:
        return next((relationship for relationship in self.relationships if relationship.name == name), None)

    @property
    def readable_attributes(self) -> tuple[Attribute, ...]:
        return tuple(attribute for attribute in self.attributes if attribute.readable)

    def __repr__(self) -> str:
        return f"resource {self.type}"
