"""Defines the classes of declarations, for the built-in resources in `server/resources/` and for those of users.

`catalog.py` checks declarations. It must not know: requests, statements, documents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from pypika.terms import Criterion, Term

from querybuild.declarations.access import ANYONE, Allow, Audience
from querybuild.declarations.database_types.json_paths import JSON_VALUE, JsonPath, unescaped
from querybuild.declarations.hooks import NO_HOOKS, Hooks
from querybuild.declarations.id_types import IdType
from querybuild.declarations.keys import (
    Key,
    Names,
    Referenced,
    UniqueKey,
    Version,
    composite_type,
    named_columns,
    referring,
)
from querybuild.declarations.types import BIGINT, ColumnType

RESOURCE_METHODS = frozenset({"list", "create", "detail", "update", "delete"})
CHANGE_KINDS: frozenset[str] = frozenset({"create", "update", "delete"})
RELATIONSHIP_METHODS = frozenset({"read", "add", "replace", "remove"})

Columns = Callable[[str], Term]
"""The argument of an attribute computed in SQL: returns the term of a column, with its alias."""


Compute = Callable[[Sequence[tuple[Any, ...]]], Iterable[Any]]
"""The function of an attribute computed in Python: takes the values of each resource, and returns a value for each."""


class Operator(msgspec.Struct, frozen=True, eq=False):
    """A custom filter operator of an attribute.

    read: converts the JSON value of the request to the bound value. Raises ValueFault, whose text continues
    `... must be`.
    criterion: takes the attribute, the column, the bound parameter and the operator name. Returns a criterion and a
    list of joins. A join is a (table, criterion) pair. With joins the condition becomes an EXISTS, so that rows are
    never repeated.
    schema: the JSON Schema of the values that `read` accepts, for the OpenAPI document.

    >>> def contains(attribute, column, bound, name):
    ...     return column.contains(bound), []
    >>> has = Operator("has_all", read=list, criterion=contains)
    """

    name: str
    read: Callable[[Any], Any]
    criterion: Callable[[Attribute, Term, Term, str], tuple[Criterion, list[Any]]]
    schema: Mapping[str, Any] = {}


class Attribute(msgspec.Struct, frozen=True, eq=False):
    """An attribute of a resource, and its column.

    column: the name of the column, if it is not that of the attribute.
    sql: for an attribute computed in SQL, a function of the row's columns that returns a term. Such an attribute has no
        column and is read-only. Set `nullable` if the term can be null.
    of, compute: for an attribute computed in Python, the names of the attributes that it depends on, and a function. It
        takes a list of tuples with their values, one for each resource, and returns a value for each. Such an attribute
        has no column, is read-only, and cannot be filtered or sorted.
    required: must be sent on create.
    filled: whether a trigger fills its column if it is not sent: one that is NOT NULL without a default.
    required_on_update: must be sent whenever `attributes` is sent in a PATCH.
    nullable: null is allowed.
    min_length, max_length: characters of a text, items of an array.
    minimum, maximum: inclusive, of ordered types, as Python values of the type.
    pattern: a regular expression that the whole of a text must match.
    shape: a Python type that a JSON value must fit, such as `dict[str, list[int]]`.
    paths: the types of values inside a jsonb attribute, for filters, sorts and groups.
    readable, creatable, updatable, filterable, sortable: what a request may do with it.
    match: whether the operator `match` is allowed on a text.
    searchable: the text search configuration of PostgreSQL, such as `english`, by which `searchText` finds words in it.
        For a text, or a column of the type tsvector.
    distance: of a vector, by which `nearTo` finds the nearest: l2, cosine or inner_product.
    operators: custom operators, besides those of the type.
    read_by, write_by: for whom it exists, and who may write it.
    facet: whether pages offer its values to filter by, because it has few.
    description: what it means, for readers of the API.
    """

    name: str
    type: ColumnType
    column: str = ""
    sql: Callable[[Columns], Term] | None = None
    of: tuple[str, ...] = ()
    compute: Compute | None = None
    required: bool = False
    filled: bool = False
    required_on_update: bool = False
    nullable: bool = False
    min_length: int | None = None
    max_length: int | None = None
    minimum: Any = None
    maximum: Any = None
    pattern: str | None = None
    shape: Any = None
    paths: tuple[JsonPath, ...] = ()
    readable: bool = True
    creatable: bool = True
    updatable: bool = True
    filterable: bool = True
    sortable: bool = True
    match: bool = True
    searchable: str = ""
    distance: str = ""
    operators: tuple[Operator, ...] = ()
    read_by: Audience | tuple[Audience, ...] = ANYONE
    write_by: Audience | tuple[Audience, ...] = ANYONE
    facet: bool = False
    description: str = ""

    @property
    def column_name(self) -> str:
        """The name of the column."""
        return self.column or self.name

    @property
    def is_stored(self) -> bool:
        """Whether the attribute has a column."""
        return self.sql is None and self.compute is None

    @property
    def is_hidden(self) -> bool:
        """Whether no request can read or write it. Then no error may reveal that it exists."""
        is_written = self.is_writable(on_create=True) or self.is_writable(on_create=False)
        return not (self.readable or is_written)

    @property
    def is_filterable(self) -> bool:
        """Whether filters may use it."""
        return self.readable and self.filterable and self.compute is None

    @property
    def is_sortable(self) -> bool:
        """Whether sorts may use it."""
        return self.readable and self.sortable and self.compute is None

    def is_writable(self, *, on_create: bool) -> bool:
        """Return whether a create, or an update, may write it."""
        allowed = self.creatable if on_create else self.updatable
        return allowed and self.is_stored and not self.type.is_read_only


def inner_attribute(attribute: Attribute, names: tuple[str, ...]) -> tuple[Attribute, JsonPath | None]:
    """Return the value inside of a jsonb attribute as an attribute for filters and sorts, and what is declared of it.
    names: its path, escaped. Plans compare attributes by identity, so the same path has the same attribute. Long paths,
    which no client sends often, are not kept."""
    is_short = sum(map(len, names)) <= SHORT_PATH
    return _known_attribute(attribute, names) if is_short else _new_attribute(attribute, names)


SHORT_PATH = 256
"""Characters of a path inside JSON."""


def _new_attribute(attribute: Attribute, names: tuple[str, ...]) -> tuple[Attribute, JsonPath | None]:
    path = unescaped(names)
    declared = next((json_path for json_path in attribute.paths if json_path.names == path), None)
    inner = msgspec.structs.replace(
        attribute,
        name=".".join((attribute.name, *names)),
        type=JSON_VALUE if declared is None else declared.type,
        column=attribute.column_name,
        nullable=True,
        operators=(),
    )
    return inner, declared


_known_attribute = lru_cache(maxsize=1024)(_new_attribute)


class Id(msgspec.Struct, frozen=True, eq=False):
    """The id: a column, or several columns.

    unique: whether its values are unique and not null although no constraint guarantees it, as in a view.
    columns, types: the columns of an id with several parts, and the type of each (default: bigint). The id is the text
    of the parts, joined by commas. `column` and `type` are not used then.

    >>> order_line_id = Id(columns=("order_id", "line_no"))
    """

    column: str = "id"
    type: ColumnType = BIGINT
    unique: bool = False
    columns: tuple[str, ...] = ()
    types: tuple[ColumnType, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.columns, tuple | list) and len(self.columns) > 1:
            given = tuple(self.types) if isinstance(self.types, tuple | list) else (self.types,)
            types = given or (BIGINT,) * len(self.columns)
            if all(isinstance(column_type, ColumnType) for column_type in types):
                msgspec.structs.force_setattr(self, "type", composite_type(types))

    @property
    def key(self) -> Key:
        """Its columns, with their types."""
        return Key(tuple(self.columns) or (self.column,), self.type.parts or (self.type,))


class RowVersion(msgspec.Struct, frozen=True):
    """What tells whether a row has changed. attribute: selects it as a text. column: the declared one, "" for `xmin`.
    is_counted: whether the server adds 1 to the column. is_set: whether a trigger changes it, if it is set to itself.
    is_returned: whether RETURNING has it."""

    attribute: Attribute
    column: str = ""
    is_counted: bool = False
    is_set: bool = False
    is_returned: bool = True

    @property
    def is_written(self) -> bool:
        """Whether an UPDATE of the row sets it, also if it sets nothing else."""
        return self.is_counted or self.is_set


class TableAbilities(msgspec.Struct, frozen=True):
    """What PostgreSQL can do with the table or view of a resource.

    locks_rows: whether a SELECT can lock its rows. has_conflicts_of_id: whether ON CONFLICT can name its id.
    same_columns: pairs of columns of a view that show the same column of its table. A write may set one of them.
    cancels_writes: whether a trigger, a rule or a policy may cancel a write without an error. has_policies: whether
    policies may hide rows from a write. has_rules: whether PostgreSQL's rules rewrite a write, which can have no WITH.
    merged: the kinds of writes of which one statement may do several: no trigger, policy or function can tell it from
    several statements. returned: the kinds of writes after which the row is as RETURNING has it.
    deferred: the triggers that run when the transaction ends, as SQL writes their names. has_unique_ids: whether a
    constraint keeps the ids unique. is_view: whether it is a view, a materialized view or a foreign table. version:
    what tells whether a row has changed. unique_keys: those that ON CONFLICT may name. tells_updates: whether `xmax`
    tells an updated row from a new one. indexed: the columns that are the first of an index. knn_indexed: those of an
    index only for an order of distances. null_columns: those that a new row has null if they are not set.
    """

    locks_rows: bool = True
    has_conflicts_of_id: bool = True
    same_columns: tuple[tuple[str, str], ...] = ()
    cancels_writes: bool = True
    has_policies: bool = False
    has_rules: bool = False
    merged: frozenset[str] = CHANGE_KINDS
    returned: frozenset[str] = CHANGE_KINDS
    deferred: tuple[str, ...] = ()
    has_unique_ids: bool = True
    is_view: bool = False
    version: RowVersion | None = None
    unique_keys: tuple[UniqueKey, ...] = ()
    tells_updates: bool = False
    indexed: frozenset[str] = frozenset()
    knn_indexed: frozenset[str] = frozenset()
    null_columns: frozenset[str] = frozenset()


class Link(msgspec.Struct, frozen=True, eq=False):
    """The link table of a many-to-many relationship. Its two columns together are unique.

    source: the column with the id of this side. target: the column with the id of the other side. A tuple of columns
    for an id with several parts.
    source_types, target_types: what the server finds out: the types of these columns, if they are other integers than
    the id. merged, indexed: the same as those of TableAbilities.
    """

    table: str
    source: Names
    target: Names
    schema: str | None = None
    source_types: tuple[ColumnType, ...] = ()
    target_types: tuple[ColumnType, ...] = ()
    merged: frozenset[str] = CHANGE_KINDS
    indexed: frozenset[str] = frozenset()

    @property
    def source_columns(self) -> tuple[str, ...]:
        """The columns with the id of this side."""
        return named_columns(self.source)

    @property
    def target_columns(self) -> tuple[str, ...]:
        """The columns with the id of the other side."""
        return named_columns(self.target)


class ToOne(msgspec.Struct, frozen=True, eq=False):
    """A relationship to at most one resource of the type `target`.

    column: the column of the resource's own table with the id of the other resource (default: the name and `_id`).
    columns: instead, the columns with the parts of its id. If one of them is null, the relationship is empty.
    foreign_key: instead, the unique column of the other table with the id of this resource: the reverse side of a
    one-to-one. A tuple for an id with several parts.
    references: the unique columns of the other table that its own columns refer to, if they are not the id. With
    `foreign_key`, the unique columns of the own table.
    nullable: whether it may be empty.
    required: whether it must be sent on create (default: if it is not nullable).
    filled: whether a trigger fills its column if it is not sent: one that is NOT NULL without a default.
    updatable: whether it may be changed after the create.
    methods: which of read, add, replace, remove are allowed; a to-one only has read and replace.
    includable, filterable: whether include, and filters and sorts, may use it.
    read_by: for whom it exists. write_by: who of these may write it.
    description: what it means, for readers of the API.
    key_types: what the server finds out: the types of its columns, if they are other integers than the id.
    is_enforced, may_dangle: what else it finds out: whether a foreign key refuses linkage to nothing, and whether a
    stored key may lead to nothing.
    """

    name: str
    target: str
    column: str = ""
    foreign_key: Names = ""
    references: Names = ""
    nullable: bool = True
    required: bool | None = None
    filled: bool = False
    updatable: bool = True
    methods: frozenset[str] = RELATIONSHIP_METHODS
    includable: bool = True
    filterable: bool = True
    read_by: Audience | tuple[Audience, ...] = ANYONE
    write_by: Audience | tuple[Audience, ...] = ANYONE
    description: str = ""
    columns: tuple[str, ...] = ()
    key_types: tuple[ColumnType, ...] = ()
    is_enforced: bool = True
    may_dangle: bool = False

    @property
    def is_to_many(self) -> bool:
        """False."""
        return False

    @property
    def is_own_key(self) -> bool:
        """Whether the key is in the resource's own row."""
        return not self.foreign_key

    @property
    def own_columns(self) -> tuple[str, ...]:
        """The names of its columns, if the key is in the resource's own row."""
        return named_columns(self.columns or self.column or f"{self.name}_id")

    @property
    def foreign_columns(self) -> tuple[str, ...]:
        """The names of its columns in the other table, if the key is there."""
        return named_columns(self.foreign_key)

    @property
    def referenced_columns(self) -> tuple[str, ...]:
        """The columns that its key refers to, if they are not the id."""
        return named_columns(self.references)

    @property
    def is_required(self) -> bool:
        """Whether it must be sent on create."""
        return self.is_own_key and (not (self.nullable or self.filled) if self.required is None else self.required)


class ToMany(msgspec.Struct, frozen=True, eq=False):
    """A relationship to any number of resources of the type `target`.

    foreign_key: the column of the other table with the id of this resource. A tuple for an id with several parts.
    references: the unique columns of the own table that these refer to, if they are not the id.
    through: instead, a link table.
    methods, includable, filterable, read_by, write_by, description, key_types: as for ToOne.
    """

    name: str
    target: str
    foreign_key: Names = ""
    references: Names = ""
    through: Link | None = None
    methods: frozenset[str] = RELATIONSHIP_METHODS
    includable: bool = True
    filterable: bool = True
    read_by: Audience | tuple[Audience, ...] = ANYONE
    write_by: Audience | tuple[Audience, ...] = ANYONE
    description: str = ""
    key_types: tuple[ColumnType, ...] = ()

    @property
    def is_to_many(self) -> bool:
        """True."""
        return True

    @property
    def is_own_key(self) -> bool:
        """False: the key is never in the resource's own row."""
        return False

    @property
    def foreign_columns(self) -> tuple[str, ...]:
        """The names of its columns in the other table, if the key is there."""
        return named_columns(self.foreign_key)

    @property
    def referenced_columns(self) -> tuple[str, ...]:
        """The columns that its key refers to, if they are not the id."""
        return named_columns(self.references)


Relationship = ToOne | ToMany


def own_key_of(relationship: Relationship) -> ToOne | None:
    """Return the relationship if its key is in the resource's own row, otherwise None."""
    return relationship if isinstance(relationship, ToOne) and relationship.is_own_key else None


def referenced_key(relationship: Relationship, referenced: Resource) -> Key:
    """Return the key of the rows that a relationship refers to: the id, or other unique columns."""
    columns = relationship.referenced_columns
    return Key(columns, ()) if columns else referenced.id.key


def referring_key(relationship: Relationship, columns: tuple[str, ...], referenced: Resource) -> Key:
    """Return the key of the columns that refer to the rows of a resource. Its value is the id of such a row."""
    unique = relationship.referenced_columns
    if not unique:
        return referring(columns, referenced.id.key, relationship.key_types)
    return Key(columns, (), Referenced(referenced.table, referenced.schema, referenced.id.key, unique))


def link_of(relationship: Relationship) -> Link | None:
    """Return the link table of a many-to-many relationship, otherwise None."""
    return relationship.through if isinstance(relationship, ToMany) else None


def inverse_link(link: Link) -> Link:
    """Return the link table seen from its other side."""
    types = {"source_types": link.target_types, "target_types": link.source_types}
    return msgspec.structs.replace(link, source=link.target, target=link.source, **types)


class Resource(msgspec.Struct, frozen=True, eq=False):
    """A resource: its JSON:API type, the path of its collection, its table, and its fields.

    schema: the schema of the table, which every statement contains; without it, the table is in the database's default
    schema. client_ids: whether clients may choose ids. methods: which of list, create, detail, update, delete are
    allowed. in_operations: whether atomic operations may write it. soft_delete: whether a trigger of the table keeps
    deleted rows. version: the column that tells whether a row has changed; without it PostgreSQL's `xmin` does.
    requires_match: whether a PATCH or DELETE must say by If-Match which version it is meant for. hooks: custom code
    around its writes. access: the rules for who may do what with which rows. description: what its rows are, for
    readers of the API. label: the attribute that people know its rows by, on pages. abilities: what the server finds
    out about the table.
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
    version: Version | str | None = None
    requires_match: bool = False
    hooks: Hooks = NO_HOOKS
    access: tuple[Allow, ...] = ()
    description: str = ""
    label: str = ""
    abilities: TableAbilities = TableAbilities()

    @property
    def declared_version(self) -> Version | None:
        """The declared column that tells whether a row has changed."""
        return Version(self.version) if isinstance(self.version, str) else self.version

    @property
    def id_type(self) -> IdType:
        """The type of its ids."""
        return self.id.type.id_type

    def attribute(self, name: str) -> Attribute | None:
        """Return the attribute with this name, or None."""
        return next((attribute for attribute in self.attributes if attribute.name == name), None)

    def relationship(self, name: str) -> Relationship | None:
        """Return the relationship with this name, or None."""
        return next((relationship for relationship in self.relationships if relationship.name == name), None)

    @property
    def readable_attributes(self) -> tuple[Attribute, ...]:
        """The attributes that requests may read."""
        return tuple(attribute for attribute in self.attributes if attribute.readable)

    def __repr__(self) -> str:
        return f"resource {self.type}"
