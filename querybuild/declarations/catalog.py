"""Defines the Catalog: all declarations, checked together. What comes in: the built-in resources of `server/resources/`
or those of a user. What goes out: one frozen Catalog, which is the only list of names, or all errors of the
declarations together.

It must not know: requests, statements, documents. `server/schema/live_schema.py` compares it with the live tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any

import msgspec

from querybuild.declarations.faults.resource_faults import argument_faults, declaration_faults
from querybuild.declarations.function import Function, function_faults, split_functions
from querybuild.declarations.keys import Key, bound_id, id_value
from querybuild.declarations.resource import (
    Attribute,
    Link,
    Relationship,
    Resource,
    ToMany,
    ToOne,
    inverse_link,
    link_of,
    own_key_of,
    referring_key,
)
from querybuild.declarations.terms import cast_as
from querybuild.errors import quoted

REMOVING_METHODS = frozenset({"replace", "remove"})
"""Methods of a relationship that may remove links."""


class KeyAttribute(Attribute, frozen=True, eq=False):
    """An id with several columns, or the columns that refer to one, as an attribute for filters.

    is_split: whether equality compares each column, so that an index can be used. Otherwise it compares the text of the
    id, which is null if a column is null, as a condition needs it below `not`.
    """

    key: Key = Key((), ())
    is_split: bool = True


def part_attributes(key: Key) -> tuple[Attribute, ...]:
    """Return the columns of an id with several columns as attributes for sorts."""
    if not key.is_composite:
        return ()
    return tuple(
        [Attribute("id", column_type, column) for column, column_type in zip(key.columns, key.types, strict=True)]
    )


def id_attribute(resource: Resource, key: Key, nullable: bool) -> Attribute:
    """Return the id of a resource, or a key that refers to it, as an attribute for filters and sorts. Its value is the
    text of an id or a JSON number."""
    declared, id_type = resource.id.type, resource.id_type

    def read(value: Any) -> Any:
        return id_type.read(value) if isinstance(value, str) else id_value(value, declared)

    column_type = declared.with_json(from_json=read, from_text=id_type.read, read_all=id_type.read_all)
    if id_type.id_text is not None:
        bound, bound_array = partial(bound_id, declared), partial(bound_id, declared, array="[]")
        column_type = column_type.with_sql(bound=bound, bound_array=bound_array)
        column_type = msgspec.structs.replace(column_type, sql_type=declared.cast_name)
    if key.referenced is not None and key.referenced.id.is_text:
        # The text of the id is looked up, so nothing is converted to the type of its column.
        comparison = msgspec.structs.replace(column_type.comparison, is_ordered=False)
        column_type = msgspec.structs.replace(column_type.with_sql(bound=None), sql_type="", comparison=comparison)
    if key.is_mixed and not key.is_composite:
        sql_name = column_type.sql_names[0]
        column_type = column_type.with_sql(bound=cast_as(sql_name), bound_array=cast_as(f"{sql_name}[]"))
    if key.is_composite or key.referenced is not None:
        return KeyAttribute("id", column_type, nullable=nullable, key=key)
    return Attribute("id", column_type, column=key.columns[0], nullable=nullable)


class CatalogError(ValueError):
    """One or more declarations are invalid. The text has a line for each error, which names the declaration."""


class Everywhere(msgspec.Struct, frozen=True, eq=False):
    """A rule of all resources and all link tables. A row whose column has another value does not exist for the
    principal. New rows get the value, and no client can write another one.

    attribute: of the column. Resources need not declare it.
    value: a JSON value, or a `PrincipalValue`. A principal without the value has no rows.
    without: the names of tables that do not have the column.
    """

    attribute: Attribute
    value: Any
    without: frozenset[str] = frozenset()


def _is_same(link: Link | None, other: Link | None) -> bool:
    return link is not None and other is not None and msgspec.structs.astuple(link) == msgspec.structs.astuple(other)


def _refer_alike(relationship: Relationship, other: Relationship) -> bool:
    return relationship.referenced_columns == other.referenced_columns


def _may_be_unknown(key: Attribute) -> bool:
    """Return whether a comparison of the columns of a key may be false or null where one of the id is the other."""
    return isinstance(key, KeyAttribute) and (key.nullable or key.key.referenced is not None)


class Catalog:
    """All resources and functions, checked together. It is immutable.

    everywhere: rules of all its tables. Raises CatalogError for unknown targets, duplicate or invalid names, colliding
    paths, and invalid types.
    """

    def __init__(self, declarations: Iterable[Resource | Function], everywhere: Iterable[Everywhere] = ()) -> None:
        resources, self.functions = split_functions(declarations)
        self.everywhere = tuple(everywhere)
        self.resources, faults, skipped = _checked_types(resources)
        self.functions_by_path = {function.route_path: function for function in self.functions}
        self.by_type = {resource.type: resource for resource in self.resources}
        self.by_path = {resource.path: resource for resource in self.resources}
        faults += declaration_faults(self.resources, self.by_type, skipped)
        faults += function_faults(self.functions, self.by_type)
        if faults:
            raise CatalogError("\n".join(faults))
        # A view shares the following: keys, links and the order of locks do not depend on who asks.
        self._declared = self.by_type
        self._ids = {resource.type: id_attribute(resource, resource.id.key, False) for resource in self}
        self._parts = {resource.type: part_attributes(resource.id.key) for resource in self}
        self._keys = {
            own: id_attribute(self.target(own), referring_key(own, own.own_columns, self.target(own)), own.nullable)
            for resource in self
            for relationship in resource.relationships
            if (own := own_key_of(relationship)) is not None
        }
        self._exact_keys = {
            own: msgspec.structs.replace(attribute, is_split=False) if _may_be_unknown(attribute) else attribute
            for own, attribute in self._keys.items()
        }
        self._lock_ranks = {resource.type: rank for rank, resource in enumerate(_referenced_first(self))}
        # Plans compare declarations by identity, so each inverse is created once.
        self._inverses = {
            relationship: ToMany(relationship.name, resource.type, through=inverse_link(link))
            for resource in self
            for relationship in resource.relationships
            if (link := link_of(relationship)) is not None
        }
        self._declared_inverses = {
            relationship: other
            for relationship, inverse in self._inverses.items()
            for other in self.target(relationship).relationships
            if other.target == inverse.target and _is_same(link_of(other), link_of(inverse))
        }

    def __iter__(self) -> Iterator[Resource]:
        return iter(self.resources)

    def with_resources(self, resources: Sequence[Resource], functions: Sequence[Function] | None = None) -> Catalog:
        """Return the catalog with these resources instead. functions: None keeps those that it has. It is the same
        object if nothing differs."""
        is_same = all(resource is other for resource, other in zip(resources, self.resources, strict=True))
        kept = self.functions if functions is None else functions
        return self if is_same and kept is self.functions else Catalog([*resources, *kept], self.everywhere)

    def view(self, resources: Mapping[str, Resource]) -> Catalog:
        """Return the catalog as some principals see it. resources: the declarations that differ, by type. Each has the
        same key, and the same relationships or some of them."""
        view = copy(self)
        view.resources = tuple([resources.get(resource.type, resource) for resource in self.resources])
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

    def order_of(self, resource: Resource) -> tuple[Attribute, ...]:
        """Return the columns of the id as attributes, by which rows are sorted."""
        return self._parts[resource.type] or (self._ids[resource.type],)

    def key_of(self, relationship: ToOne, *, is_negated: bool = False) -> Attribute:
        """Return the key of a to-one in the resource's own row, as an attribute for filters and sorts. is_negated:
        whether null and false have different results."""
        return self._exact_keys[relationship] if is_negated else self._keys[relationship]

    def holder(self, relationship: Relationship) -> ToOne | None:
        """Return the to-one of the target that has the same key as this relationship, if it is declared."""
        columns = relationship.foreign_columns
        for other in self._declared[relationship.target].relationships if columns else ():
            own = own_key_of(other)
            if own is not None and own.own_columns == columns and _refer_alike(own, relationship):
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
            candidate.name
            for candidate in self._declared[own.target].relationships
            if candidate.foreign_columns == own.own_columns
            and candidate.target == resource.type
            and _refer_alike(candidate, own)
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
            other.target == resource.type and other.methods & REMOVING_METHODS
            for other in target.relationships
            if other.foreign_columns == own.own_columns and _refer_alike(other, own)
        )

    def emptied_columns(self, resource: Resource, columns: tuple[str, ...]) -> tuple[str, ...]:
        """Return the columns of a key that become null when its relationship is emptied: those that no other field of
        the resource has, or else those that are not in its id."""
        if not resource.id.key.is_composite and len(columns) == 1:
            return columns
        declared = self._declared[resource.type]
        keys = [own.own_columns for own in filter(None, map(own_key_of, declared.relationships))]
        others = {name for key in keys if key != columns for name in key} | set(resource.id.key.columns)
        others |= {attribute.column_name for attribute in declared.attributes if attribute.is_stored}
        left = tuple([name for name in columns if name not in others])
        return left or tuple([name for name in columns if name not in resource.id.key.columns])

    def why_fixed(self, resource: Resource, relationship: Relationship, *, ignores_updatable: bool = False) -> str:
        """Return why no write can change the key of a relationship after the create, or "". Links of a link table have
        no such key. ignores_updatable: for a write that may repeat the value of a to-one that is only set on create."""
        own = own_key_of(relationship)
        if link_of(relationship) is not None:
            return ""
        holder = resource if own is not None else self.target(relationship)
        if not set(relationship.foreign_columns).isdisjoint(holder.id.key.columns):
            return f"its key is part of the id of {quoted(holder.type)}, which no write changes"
        if "update" not in holder.methods:
            return f"its key is in resources of type {quoted(holder.type)}, which cannot be updated"
        key = own or self.holder(relationship)
        if ignores_updatable or key is None or key.updatable:
            return ""
        return f"{quoted(key.name)} of resources of type {quoted(holder.type)} is only set on create"

    def linkage_methods(self, resource: Resource, relationship: Relationship) -> frozenset[str]:
        """Return the methods that change links of a relationship without a create. The others always fail."""
        return frozenset() if self.why_fixed(resource, relationship) else relationship.methods - {"read"}

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
    for resource in catalog:
        # Without recursion, because a chain of references may be longer than Python's stack.
        below = [] if resource in seen else [(resource, iter(references[resource]))]
        seen.add(resource)
        while below:
            last, others = below[-1]
            referenced = next((other for other in others if other not in seen), None)
            if referenced is None:
                order.append(last)
                below.pop()
            else:
                seen.add(referenced)
                below.append((referenced, iter(references[referenced])))
    return order


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
        elif wrong := list(argument_faults(resource)):
            faults += wrong
            skipped.add(str(resource.type))
        else:
            right.append(resource)
    return tuple(right), faults, frozenset(skipped)
