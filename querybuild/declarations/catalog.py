"""Defines the Catalog: all declarations, checked together. What comes in: the built-in resources of `server/resources/`
or those of a user. What goes out: one frozen Catalog, which is the only list of names, or all errors of the
declarations together.

It must not know: requests, statements, documents. `server/schema/live_schema.py` compares it with the live tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from typing import Any

import msgspec

from querybuild.declarations.declaration_types import wrong_types
from querybuild.declarations.hooks import Hooks, accepts_arguments, is_async
from querybuild.declarations.resource import (
    RELATIONSHIP_METHODS,
    RESOURCE_METHODS,
    Attribute,
    Link,
    Relationship,
    Resource,
    ToMany,
    ToOne,
    inverse_link,
    link_of,
    own_key_of,
)
from querybuild.declarations.rule_faults import key_faults, rule_faults
from querybuild.declarations.types import ID_TYPES, is_bound_of
from querybuild.errors import listed, nearest, quoted

_MEMBER_NAME = re.compile(r"[A-Za-z0-9\u0080-\uffff](?:[A-Za-z0-9_\-\u0080-\uffff]*[A-Za-z0-9\u0080-\uffff])?")
"""JSON:API 1.0 "Member Names", without spaces, which it allows but does not recommend."""
_PATH_SEGMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]*")
_RIGHTS = ("read_by", "write_by")
"""Arguments that `rule_faults.py` checks."""
REMOVING_METHODS = frozenset({"replace", "remove"})
"""Methods of a relationship that may remove links."""
_RESERVED_PATHS = frozenset({"-", "operations"})

FILLED_AND_REQUIRED = "`filled` and `required` exclude each other: what a trigger fills need not be sent"
MAKE_READ_ONLY = 'declare methods=frozenset({"read"})'
"""The advice for a relationship that cannot be written."""


class CatalogError(ValueError):
    """One or more declarations are invalid. The text has a line for each error, which names the declaration."""


def _is_same(one: Link | None, other: Link | None) -> bool:
    return one is not None and other is not None and msgspec.structs.astuple(one) == msgspec.structs.astuple(other)


class Catalog:
    """All resources, checked together. It is immutable.

    Raises CatalogError for unknown targets, duplicate or invalid names, colliding paths, and invalid types.
    """

    def __init__(self, resources: Iterable[Resource]) -> None:
        self.resources, faults, skipped = _checked_types(resources)
        self.by_type = {resource.type: resource for resource in self.resources}
        self.by_path = {resource.path: resource for resource in self.resources}
        faults += _faults(self, skipped)
        if faults:
            raise CatalogError("\n".join(faults))
        # A view shares the following: keys, links and the order of locks do not depend on who asks.
        self._declared = self.by_type
        self._ids = {resource.type: _id_attribute(resource, resource.id.column, False) for resource in self}
        self._keys = {
            own: _id_attribute(self.target(own), own.column_name, own.nullable)
            for resource in self
            for relationship in resource.relationships
            if (own := own_key_of(relationship)) is not None
        }

        self._lock_ranks = {resource.type: rank for rank, resource in enumerate(_referenced_first(self))}
        # Plans compare declarations by identity, so each inverse is created once.
        self._inverses = {
            one: ToMany(one.name, resource.type, through=inverse_link(link))
            for resource in self
            for one in resource.relationships
            if (link := link_of(one)) is not None
        }
        self._declared_inverses = {
            one: other
            for one, inverse in self._inverses.items()
            for other in self.target(one).relationships
            if other.target == inverse.target and _is_same(link_of(other), link_of(inverse))
        }

    def __iter__(self) -> Iterator[Resource]:
        return iter(self.resources)

    def view(self, resources: Mapping[str, Resource]) -> Catalog:
        """Return the catalog as some principals see it. resources: the declarations that differ, by type. Each has the
        same key, and the same relationships or some of them."""
        view = copy(self)
        view.resources = tuple([resources.get(one.type, one) for one in self.resources])
        view.by_type = {resource.type: resource for resource in view.resources}
        view.by_path = {resource.path: resource for resource in view.resources}
        return view

    def declared(self, resource: Resource) -> Resource:
        """Return a resource as it is declared, with the fields that some principals do not see."""
        return self._declared[resource.type]

    def target(self, relationship: Relationship) -> Resource:
        """Return the resource at the other end of a relationship."""
        return self.by_type[relationship.target]

    def id_of(self, resource: Resource) -> Attribute:
        """Return the id as an attribute for filters and sorts. Its value is the text of an id or a JSON number."""
        return self._ids[resource.type]

    def key_of(self, relationship: ToOne) -> Attribute:
        """Return the key of a to-one in the resource's own row, as an attribute for filters and sorts."""
        return self._keys[relationship]

    def holder(self, relationship: Relationship) -> ToOne | None:
        """Return the to-one of the target that has the same key as this relationship, if it is declared."""
        foreign_key = relationship.foreign_key
        for other in self._declared[relationship.target].relationships if foreign_key else ():
            own = own_key_of(other)
            if own is not None and own.column_name == foreign_key:
                return own
        return None

    def other_side(self, relationship: Relationship) -> Relationship | None:
        """Return the relationship of the target that has the same links, if it is declared."""
        return self.holder(relationship) if link_of(relationship) is None else self._declared_inverses.get(relationship)

    def other_sides(self, resource: Resource, relationship: Relationship) -> list[str]:
        """Return the names of the declared relationships of the target that have the same links as one of the
        resource."""
        own, other = own_key_of(relationship), self.other_side(relationship)
        if own is None:
            return [] if other is None else [other.name]
        return [
            one.name
            for one in self._declared[own.target].relationships
            if one.foreign_key == own.column_name and one.target == resource.type
        ]

    def inverse(self, relationship: Relationship) -> Relationship:
        """Return a many-to-many relationship seen from its target, declared or not."""
        declared = self._declared_inverses.get(relationship)
        if declared is None or declared not in self.target(relationship).relationships:
            return self._inverses[relationship]
        return declared

    def lock_rank(self, resource: Resource) -> int:
        """Return the rank of a resource. Rows of a lower rank are locked first."""
        return self._lock_ranks[resource.type]

    def is_written_from_owner(self, resource: Resource, own: ToOne) -> bool:
        """Return whether a write of the other side, which locks the row there, may remove links of this key. If the
        other resource is never updated, the role may have no privilege to lock its rows."""
        target = self._declared[own.target]
        return "update" in target.methods and any(
            other.foreign_key == own.column_name and other.target == resource.type and other.methods & REMOVING_METHODS
            for other in target.relationships
            if own_key_of(other) is None
        )

    def is_detachable(self, relationship: Relationship) -> bool:
        """Return whether a link can be removed without deleting a row: its key may be null, or it is in a link
        table."""
        own = own_key_of(relationship)
        if own is not None:
            return own.nullable
        holder = self.holder(relationship)
        return holder is None or holder.nullable


def _referenced_first(catalog: Catalog) -> list[Resource]:
    """Return all resources, each after those that its rows refer to. Cycles are in the order of declaration."""
    references: dict[Resource, list[Resource]] = {resource: [] for resource in catalog}
    for resource in catalog:
        for relationship in resource.relationships:
            target = catalog.target(relationship)
            if own_key_of(relationship) is not None:
                references[resource].append(target)
            elif relationship.foreign_key:
                references[target].append(resource)
    seen: set[Resource] = set()
    order: list[Resource] = []

    def visit(resource: Resource) -> None:
        if resource not in seen:
            seen.add(resource)
            for referenced in references[resource]:
                visit(referenced)
            order.append(resource)

    for resource in catalog:
        visit(resource)
    return order


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


def _checked_types(resources: object) -> tuple[tuple[Resource, ...], list[str], frozenset[object]]:
    """Return the resources whose arguments have valid types, the errors of the others, and the JSON:API types of these
    others."""
    if not isinstance(resources, Iterable) or isinstance(resources, str | bytes):
        raise CatalogError(f"a Catalog takes a list of Resource, not {type(resources).__name__}")
    right: list[Resource] = []
    faults: list[str] = []
    skipped: set[object] = set()
    for resource in resources:
        if not isinstance(resource, Resource):
            faults.append(f"a Catalog takes a list of Resource, and {resource!r} is {type(resource).__name__}")
        elif wrong := list(_type_faults(resource)):
            faults += wrong
            skipped.add(str(resource.type))
        else:
            right.append(resource)
    return tuple(right), faults, frozenset(skipped)


def _type_faults(resource: Resource) -> Iterator[str]:
    """Yield the faults of arguments of wrong types, which the other checks could not handle."""
    where = f"resource {quoted(str(resource.type))}: "
    faults = list(wrong_types(resource, but=("hooks",)))
    yield from (where + fault for fault in faults)
    if faults:
        return
    yield from (f"{where}id: {fault}" for fault in wrong_types(resource.id))
    for attribute in resource.attributes:
        label = f"{where}attribute {quoted(str(attribute.name))}: "
        yield from (label + fault for fault in wrong_types(attribute, but=("of", "compute", *_RIGHTS)))
        yield from (label + fault for fault in _names_faults(attribute.of))
        for operator in attribute.operators if isinstance(attribute.operators, tuple | list) else ():
            yield from (f"{label}an operator: {fault}" for fault in wrong_types(operator))
    for relationship in resource.relationships:
        label = f"{where}relationship {quoted(str(relationship.name))}: "
        yield from (label + fault for fault in wrong_types(relationship, but=_RIGHTS))
        if link := link_of(relationship):
            yield from (f"{label}`through`: {fault}" for fault in wrong_types(link))


def _names_faults(names: object) -> Iterator[str]:
    if isinstance(names, str):
        yield f'`of` is a text: write it as a tuple, ("{names}",)'
    elif not isinstance(names, tuple | list) or not all(isinstance(name, str) for name in names):
        yield f"`of` must be a tuple of str, not {names!r}"


def _faults(catalog: Catalog, skipped: frozenset[object]) -> Iterator[str]:
    """Yield the faults of the declarations. skipped: JSON:API types whose declarations are not checked."""
    if not catalog.resources and not skipped:
        yield "the catalog declares no resource"
    yield from _repeated("type", (resource.type for resource in catalog))
    yield from _repeated("path", (resource.path for resource in catalog))
    for resource in catalog:
        where = f"resource {quoted(resource.type)}: "
        for fault in _resource_faults(resource):
            yield where + fault
        for relationship in resource.relationships:
            for fault in _relationship_faults(catalog, resource, relationship, skipped):
                yield f"{where}relationship {quoted(relationship.name)}: {fault}"
        yield from (where + fault for fault in rule_faults(resource))
        yield from (where + fault for fault in key_faults(resource, _keys_of(catalog, resource)))
        yield from (where + fault for fault in _path_faults(catalog, resource))


def _keys_of(catalog: Catalog, resource: Resource) -> Iterator[tuple[str, str, Resource]]:
    """Yield the keys in the rows of a resource, declared here or on the other side: the column, the relationship, and
    the resource that the key refers to."""
    for own in filter(None, map(own_key_of, resource.relationships)):
        if own.target in catalog.by_type:
            yield own.column_name, own.name, catalog.target(own)
    for other in catalog:
        for one in other.relationships:
            link = link_of(one)
            if one.foreign_key and one.target == resource.type:
                yield one.foreign_key, one.name, other
            elif link is not None and (link.table, link.schema) == (resource.table, resource.schema):
                yield link.source, one.name, other
                if one.target in catalog.by_type:
                    yield link.target, one.name, catalog.target(one)


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
        if not identifier or "\0" in identifier or len(identifier.encode()) > 63:
            yield f"{quoted(identifier)} is not a valid name in PostgreSQL: it must have 1 to 63 bytes"
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
    if attribute.required and attribute.filled:
        yield FILLED_AND_REQUIRED
    if attribute.required and not attribute.is_writable(on_create=True):
        yield "it is required on create but cannot be written then"
    if (attribute.min_length, attribute.max_length) != (None, None) and not (
        attribute.type.is_text or attribute.type.element is not None
    ):
        yield f"lengths are for texts and arrays, not {attribute.type.name}"
    shortest, longest = attribute.min_length, attribute.max_length
    if any(length is not None and length < 0 for length in (shortest, longest)):
        yield "a length is not negative"
    elif shortest is not None and longest is not None and shortest > longest:
        yield f"min_length {shortest} is above max_length {longest}: no value fits"
    if attribute.pattern is not None and not attribute.type.is_text:
        yield f"patterns are for texts, not {attribute.type.name}"
    bounds = (attribute.minimum, attribute.maximum)
    wrong = [bound for bound in bounds if bound is not None and not is_bound_of(bound, attribute.type)]
    yield from (f"{bound!r} is not a minimum or maximum of {attribute.type.name}" for bound in wrong)
    if not wrong and None not in bounds and bounds[0] > bounds[1]:
        yield f"minimum {bounds[0]} is above maximum {bounds[1]}: no value fits"
    yield from _shape_faults(attribute)
    if attribute.pattern is not None:
        try:
            re.compile(attribute.pattern)
        except re.error as error:
            yield f"the pattern is not a valid regular expression: {error}"
    yield from _repeated("operator", (operator.name for operator in attribute.operators))
    if any(operator.name in ("any", "has") for operator in attribute.operators):
        yield "`any` and `has` are operators of relationships"


def _shape_faults(attribute: Attribute) -> Iterator[str]:
    if attribute.shape is None:
        return
    try:
        msgspec.convert(None, attribute.shape)
    except msgspec.ValidationError:
        pass
    except Exception as error:  # an invalid type can raise anything
        yield f"`shape` must be a type such as dict[str, list[int]], not {attribute.shape!r} ({error})"


_GIVEN = {"before": "writing, changes", "after": "writing, written"}


def _hook_faults(hooks: object) -> Iterator[str]:
    if not isinstance(hooks, Hooks):
        yield f"hooks must be a Hooks(...), not {type(hooks).__name__}"
        return
    for name in Hooks.__struct_fields__:
        hook, given = getattr(hooks, name), _GIVEN[name.partition("_")[0]]
        given = "written" if name == "after_commit" else given
        if hook is not None and not (is_async(hook) and accepts_arguments(hook, given.count(",") + 1)):
            yield f"hooks: {name} must be an async function of ({given})"


def _computed_faults(attribute: Attribute, resource: Resource) -> Iterator[str]:
    if attribute.sql is not None and attribute.compute is not None:
        yield "`sql` and `compute` exclude each other"
    if attribute.sql is not None and (is_async(attribute.sql) or not accepts_arguments(attribute.sql, 1)):
        yield "`sql` must be a function of the row's columns, and not async"
    if attribute.compute is not None and (is_async(attribute.compute) or not accepts_arguments(attribute.compute, 1)):
        yield "`compute` must be a function of a list of tuples, and not async"
    if attribute.of and attribute.compute is None:
        yield "`of` is only used with `compute`"
    for name in attribute.of:
        source = resource.attribute(name)
        if source is None:
            known = [known.name for known in resource.attributes]
            yield f"it depends on {quoted(name)}, which is not declared.{nearest(name, known)}"
        elif source.compute is not None:
            yield f"it depends on {quoted(name)}, which is computed in Python, too"


def _relationship_faults(
    catalog: Catalog, resource: Resource, relationship: Relationship, skipped: frozenset[object]
) -> Iterator[str]:
    if relationship.name == "relationships":
        yield "the name is reserved for relationship routes"
    unknown = relationship.methods - RELATIONSHIP_METHODS
    if unknown:
        yield f"methods are {listed(sorted(RELATIONSHIP_METHODS))}, not {listed(sorted(unknown))}"
    if relationship.target not in catalog.by_type and relationship.target not in skipped:
        yield (
            f"its target {quoted(relationship.target)} is not declared.{nearest(relationship.target, catalog.by_type)}"
        )
    if isinstance(relationship, ToOne) and relationship.column and relationship.foreign_key:
        yield "`column` and `foreign_key` exclude each other"
    if isinstance(relationship, ToOne) and relationship.filled and relationship.required:
        yield FILLED_AND_REQUIRED
    if (
        isinstance(relationship, ToOne)
        and relationship.foreign_key
        and (relationship.filled or not relationship.updatable)
    ):
        yield "`filled` and `updatable` are for a to-one with its key in its own table, and `foreign_key` is not"
    if isinstance(relationship, ToOne) and relationship.foreign_key and not relationship.nullable:
        yield "a to-one with `foreign_key` must be nullable: its key is in the other table"
    if isinstance(relationship, ToMany) and bool(relationship.foreign_key) == (relationship.through is not None):
        yield "a to-many has either `foreign_key` or `through`"
    yield from _unwritable_faults(catalog, resource, relationship)


def _unwritable_faults(catalog: Catalog, resource: Resource, relationship: Relationship) -> Iterator[str]:
    """Yield the faults of a relationship that cannot be written."""
    own, target = own_key_of(relationship), catalog.by_type.get(relationship.target)
    is_written = not relationship.methods <= {"read"}
    if own is not None and own.is_required and "replace" not in own.methods and "create" in resource.methods:
        yield (
            "it is required on create, but its `methods` do not allow writing it: add `replace` to them, remove "
            "`create` from those of the resource, or declare required=False if the database sets the key"
        )
    if (
        own is not None
        and own.column_name == resource.id.column
        and is_written
        and resource.methods & {"create", "update"}
    ):
        yield f"its column {quoted(own.column_name)} is the id, which no write changes: {MAKE_READ_ONLY}"
    is_their_id = target is not None and relationship.foreign_key == target.id.column
    if target is not None and is_their_id and is_written and "update" in target.methods:
        key = quoted(relationship.foreign_key)
        yield f"its key {key} is the id of {quoted(target.type)}, which no write changes: {MAKE_READ_ONLY}"


def _path_faults(catalog: Catalog, resource: Resource) -> Iterator[str]:
    if not resource.path.startswith("/"):
        yield f"the path {quoted(resource.path)} does not begin with /"
        return
    segments = resource.path[1:].split("/")
    if not all(_PATH_SEGMENT.fullmatch(segment) for segment in segments):
        yield f"the path {quoted(resource.path)} has a segment that is not of letters, digits, and . _ ~ -"
    if segments[0] in _RESERVED_PATHS:
        yield f"the path {quoted(resource.path)} is reserved"
    for other in catalog:
        if other is not resource and other.path.startswith(resource.path + "/"):
            yield f"its path {quoted(resource.path)} is a prefix of {quoted(other.path)}"
