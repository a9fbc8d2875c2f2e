"""The vocabulary in which resources are declared, and the Catalog that cross-checks them.

What comes in: declarations, written by us in `server/resources/` and by users in a module of their own. What
goes out: one frozen Catalog, the only list of names in the house. Nothing here knows a request, a statement or
a document.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
from pypika.terms import Criterion, Term

from querybuild.errors import listed, nearest, quoted
from querybuild.hooks import Hooks, is_async, takes
from querybuild.types import BIGINT, ID_TYPES, ColumnType, IdType, is_bound_of

RESOURCE_METHODS = frozenset({"list", "create", "detail", "update", "delete"})
RELATIONSHIP_METHODS = frozenset({"read", "add", "replace", "remove"})

_MEMBER_NAME = re.compile(r"[A-Za-z0-9\u0080-\uffff](?:[A-Za-z0-9_\-\u0080-\uffff]*[A-Za-z0-9\u0080-\uffff])?")
"""JSON:API 1.0 "Member Names", without the space that it allows and warns of."""
_PATH_SEGMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]*")
_RESERVED_PATHS = frozenset({"-", "operations"})

Columns = Callable[[str], Term]
"""Given to a computed attribute: a column's name -> its term, with the right alias."""


Compute = Callable[[Sequence[tuple[Any, ...]]], Iterable[Any]]
"""Given to an attribute computed in Python: the values of each resource -> its value, for each."""


class CatalogError(ValueError):
    """One or more declarations are wrong; the text has a line for each, which names the declaration."""


class Operator(msgspec.Struct, frozen=True, eq=False):
    """A custom filter operator of an attribute.

    read: the request's JSON value -> what is bound; refuses with ValueFault, whose text continues `... must be`.
    criterion: (attribute, column, bound parameter, operator name) -> one criterion and a list of joins. A join
    is a (table, criterion) pair; with joins the whole becomes an EXISTS, so that rows never multiply.

    >>> Operator("jsonb_contains", read=object_or_array, criterion=lambda attribute, column, bound, name:
    (column.contains(bound), []))
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


class Resource(msgspec.Struct, frozen=True, eq=False):
    """A resource: its JSON:API type, its collection's path, its table, and its fields.

    schema: the table's schema, written into every statement; without it the database's default schema is
    meant. client_ids: whether a POST may bring an id. methods: what of list, create, detail, update, delete is
    open. in_operations: whether atomic operations may write it. hooks: custom code around its writes.
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


class Catalog:
    """All resources, checked as a whole. Frozen: a changed catalogue is another Catalog.

    Raises CatalogError for unknown targets, names that clash or that JSON:API forbids, paths that collide, and
    types that cannot be.
    """

    def __init__(self, resources: Iterable[Resource]) -> None:
        self.resources = tuple(resources)
        self.by_type = {resource.type: resource for resource in self.resources}
        self.by_path = {resource.path: resource for resource in self.resources}
        faults = list(_faults(self))
        if faults:
            raise CatalogError("\n".join(faults))
        self._ids = {resource: _id_attribute(resource, resource.id.column, False) for resource in self}
        self._keys = {
            own: _id_attribute(self.target(own), own.column_name, own.nullable)
            for resource in self
            for relationship in resource.relationships
            if (own := own_key_of(relationship)) is not None
        }

    def __iter__(self) -> Iterator[Resource]:
        return iter(self.resources)

    def target(self, relationship: Relationship) -> Resource:
        return self.by_type[relationship.target]

    def id_of(self, resource: Resource) -> Attribute:
        """The id as filters and sorts see it: its value is an id's text or a JSON number."""
        return self._ids[resource]

    def key_of(self, relationship: ToOne) -> Attribute:
        """The key of a to-one in the resource's own row, as filters and sorts see it."""
        return self._keys[relationship]

    def holder(self, relationship: Relationship) -> ToOne | None:
        """The to-one on the other side that writes the same key as this relationship, if it is declared."""
        foreign_key = relationship.foreign_key
        for other in self.target(relationship).relationships if foreign_key else ():
            own = own_key_of(other)
            if own is not None and own.column_name == foreign_key:
                return own
        return None

    def other_side(self, relationship: Relationship) -> Relationship | None:
        """The relationship of the target that is made of the same links, if it is declared."""
        link = link_of(relationship)
        if link is None:
            return self.holder(relationship)
        turned = (link.schema, link.table, link.target, link.source)
        for other in self.target(relationship).relationships:
            its = link_of(other)
            if its is not None and (its.schema, its.table, its.source, its.target) == turned:
                return other
        return None

    def is_detachable(self, relationship: Relationship) -> bool:
        """Whether a link can be taken away without the loss of a row: its key may be null, or it stands in a
        link table."""
        own = own_key_of(relationship)
        if own is not None:
            return own.nullable
        holder = self.holder(relationship)
        return holder is None or holder.nullable


def _id_attribute(resource: Resource, column: str, nullable: bool) -> Attribute:
    id_type = resource.id_type

    def read(value: Any) -> Any:
        return id_type.read(value) if isinstance(value, str) else id_type.column_type.from_json(value)

    return Attribute(
        "id",
        msgspec.structs.replace(id_type.column_type, from_json=read, from_text=id_type.read),
        column=column,
        nullable=nullable,
    )


def _faults(catalog: Catalog) -> Iterator[str]:
    if not catalog.resources:
        yield "the catalogue declares no resource"
    yield from _repeated("type", (resource.type for resource in catalog))
    yield from _repeated("path", (resource.path for resource in catalog))
    for resource in catalog:
        where = f"resource {quoted(resource.type)}: "
        for fault in _resource_faults(resource):
            yield where + fault
        for relationship in resource.relationships:
            for fault in _relationship_faults(catalog, relationship):
                yield f"{where}relationship {quoted(relationship.name)}: {fault}"
        yield from (where + fault for fault in _path_faults(catalog, resource))


def _repeated(what: str, names: Iterable[str]) -> Iterator[str]:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            yield f"the {what} {quoted(name)} is declared twice"
        seen.add(name)


def _resource_faults(resource: Resource) -> Iterator[str]:
    if not _MEMBER_NAME.fullmatch(resource.type):
        yield "the type is not a JSON:API member name"
    if resource.id.type not in ID_TYPES:
        yield f"an id is bigint, int, text or uuid, not {resource.id.type.name}"
    unknown = resource.methods - RESOURCE_METHODS
    if unknown:
        yield f"methods are {listed(sorted(RESOURCE_METHODS))}, not {listed(sorted(unknown))}"
    names = [field.name for field in (*resource.attributes, *resource.relationships)]
    yield from _repeated("field", names)
    for name in names:
        if not _MEMBER_NAME.fullmatch(name):
            yield f"{quoted(name)} is not a JSON:API member name"
        if name in ("id", "type"):
            yield f"no field may be called {quoted(name)}"
    for identifier in _identifiers(resource):
        if not identifier or '"' in identifier or "\0" in identifier or len(identifier.encode()) > 63:
            yield f"{quoted(identifier)} is not a name that PostgreSQL keeps: 1 to 63 bytes, without double quotes"
    yield from _hook_faults(resource.hooks)
    for attribute in resource.attributes:
        for fault in (*_attribute_faults(attribute), *_computed_faults(attribute, resource)):
            yield f"attribute {quoted(attribute.name)}: {fault}"


def _identifiers(resource: Resource) -> Iterator[str]:
    yield from (resource.table, resource.id.column)
    if resource.schema is not None:
        yield resource.schema
    for attribute in resource.attributes:
        yield attribute.column_name
    for relationship in resource.relationships:
        own, link = own_key_of(relationship), link_of(relationship)
        if own is not None:
            yield own.column_name
        if relationship.foreign_key:
            yield relationship.foreign_key
        if link is not None:
            yield from (link.table, link.source, link.target)


def _attribute_faults(attribute: Attribute) -> Iterator[str]:
    if attribute.required and not attribute.is_writable(on_create=True):
        yield "it is required on create, and cannot be written then"
    if (attribute.min_length, attribute.max_length) != (None, None) and not (
        attribute.type.is_text or attribute.type.element is not None
    ):
        yield f"lengths are for texts and arrays, not {attribute.type.name}"
    if attribute.pattern is not None and not attribute.type.is_text:
        yield f"patterns are for texts, not {attribute.type.name}"
    for bound in (attribute.minimum, attribute.maximum):
        if bound is not None and not is_bound_of(bound, attribute.type):
            yield f"{bound!r} is no minimum or maximum of {attribute.type.name}"
    if attribute.pattern is not None:
        try:
            re.compile(attribute.pattern)
        except re.error as error:
            yield f"the pattern is no regular expression: {error}"
    yield from _repeated("operator", (operator.name for operator in attribute.operators))
    if any(operator.name in ("any", "has") for operator in attribute.operators):
        yield "`any` and `has` are operators of relationships"


_GIVEN = {"before": "writing, changes", "after": "writing, written"}


def _hook_faults(hooks: object) -> Iterator[str]:
    if not isinstance(hooks, Hooks):
        yield f"hooks must be a Hooks(...), not {type(hooks).__name__}"
        return
    for name in Hooks.__struct_fields__:
        hook, given = getattr(hooks, name), _GIVEN[name.partition("_")[0]]
        given = "written" if name == "after_commit" else given
        if hook is not None and not (is_async(hook) and takes(hook, given.count(",") + 1)):
            yield f"hooks: {name} must be an async function of ({given})"


def _computed_faults(attribute: Attribute, resource: Resource) -> Iterator[str]:
    if attribute.sql is not None and attribute.compute is not None:
        yield "`sql` and `compute` exclude each other"
    if attribute.compute is not None and (is_async(attribute.compute) or not takes(attribute.compute, 1)):
        yield "`compute` must be a function of a list of tuples, and not async"
    names: object = attribute.of
    if isinstance(names, str):
        yield f'`of` is a text: write it as a tuple, ("{names}",)'
        return
    if attribute.of and attribute.compute is None:
        yield "`of` has a meaning with `compute` alone"
    for name in attribute.of:
        source = resource.attribute(name)
        if source is None:
            known = [known.name for known in resource.attributes]
            yield f"it is made of {quoted(name)}, which is not declared.{nearest(name, known)}"
        elif source.compute is not None:
            yield f"it is made of {quoted(name)}, which is computed in Python as well"


def _relationship_faults(catalog: Catalog, relationship: Relationship) -> Iterator[str]:
    if relationship.name == "relationships":
        yield "the name belongs to the relationship routes"
    unknown = relationship.methods - RELATIONSHIP_METHODS
    if unknown:
        yield f"methods are {listed(sorted(RELATIONSHIP_METHODS))}, not {listed(sorted(unknown))}"
    if relationship.target not in catalog.by_type:
        yield (
            f"its target {quoted(relationship.target)} is not declared.{nearest(relationship.target, catalog.by_type)}"
        )
    if isinstance(relationship, ToOne) and relationship.column and relationship.foreign_key:
        yield "`column` and `foreign_key` exclude each other"
    if isinstance(relationship, ToOne) and relationship.foreign_key and not relationship.nullable:
        yield "a to-one whose key is the other's may be empty: whether it must not is for the other to say"
    if isinstance(relationship, ToMany) and bool(relationship.foreign_key) == (relationship.through is not None):
        yield "a to-many has either `foreign_key` or `through`"


def _path_faults(catalog: Catalog, resource: Resource) -> Iterator[str]:
    if not resource.path.startswith("/"):
        yield f"the path {quoted(resource.path)} does not begin with /"
        return
    segments = resource.path[1:].split("/")
    if not all(_PATH_SEGMENT.fullmatch(segment) for segment in segments):
        yield f"the path {quoted(resource.path)} has a segment that is not of letters, digits, and . _ ~ -"
    if segments[0] in _RESERVED_PATHS:
        yield f"the path {quoted(resource.path)} belongs to the server"
    for other in catalog:
        if other is not resource and other.path.startswith(resource.path + "/"):
            yield f"its path {quoted(resource.path)} is the beginning of {quoted(other.path)}"
