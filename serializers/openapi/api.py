"""Defines what is described: the declarations as a principal sees them, with the limits of their columns and of
requests. Names the components of the description.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from querybuild.declarations.attributes import Limit
from querybuild.declarations.catalog import Catalog
from querybuild.declarations.database_types.distances import measure_of
from querybuild.declarations.resource import Attribute, Relationship, Resource, ToOne, link_of, own_key_of
from querybuild.declarations.values import JsonSchema
from querybuild.planning.context import Access
from querybuild.query import Limits

Schemas = dict[str, JsonSchema]

_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


class Api(msgspec.Struct, frozen=True, eq=False):
    """The API that is described. catalog: the declarations as the principal sees them. access: what it may do.
    limits: those of requests. column_limits: those of columns, by the type of the resource and the name of the
    attribute."""

    catalog: Catalog
    access: Access
    limits: Limits
    column_limits: Mapping[tuple[str, str], Limit]

    def limit_of(self, resource: Resource, attribute: Attribute) -> Limit | None:
        """Return the limit of the column of an attribute, if it has one."""
        return self.column_limits.get((resource.type, attribute.name))

    def has_distances(self, resource: Resource) -> bool:
        """Return whether an attribute of a resource has distances from other values."""
        has_trigrams = self.limits.has_trigrams
        return any(
            attribute.is_filterable and measure_of(attribute, has_trigrams=has_trigrams)
            for attribute in resource.attributes
        )

    def is_read_only(self, resource: Resource, name: str) -> bool:
        """Return whether the principal may not write this field."""
        return name in self.access.read_only_of(resource.type)

    def written_attributes(self, resource: Resource, *, on_create: bool) -> Iterator[Attribute]:
        """Yield the attributes that a create, or an update, may write."""
        fixed = self._fixed(resource) if on_create else frozenset()
        for attribute in resource.attributes:
            is_open = attribute.name not in fixed and not self.is_read_only(resource, attribute.name)
            if is_open and attribute.is_writable(on_create=on_create):
                yield attribute

    def written_relationships(self, resource: Resource, *, on_create: bool) -> Iterator[Relationship]:
        """Yield the relationships whose linkage a create, or an update, may replace."""
        fixed = self._fixed(resource) if on_create else frozenset()
        for relationship in resource.relationships:
            if isinstance(relationship, ToOne) and not (on_create or relationship.updatable):
                continue
            is_open = relationship.name not in fixed and not self.is_read_only(resource, relationship.name)
            if (
                is_open
                and "replace" in relationship.methods
                and self._is_updated(resource, relationship, on_create=on_create)
            ):
                yield relationship

    def set_by_rules(self, resource: Resource) -> frozenset[str]:
        """Return the names of the fields that rules set when a resource is created."""
        return frozenset([field.name for field in self.access.assigned.get(resource.type, ())])

    def _fixed(self, resource: Resource) -> frozenset[str]:
        """Return the names of the fields that only rules set."""
        return frozenset([field.name for field in self.access.assigned.get(resource.type, ()) if field.is_fixed])

    def _is_updated(self, resource: Resource, relationship: Relationship, *, on_create: bool) -> bool:
        """Return whether the declarations allow to update the rows that have the key."""
        is_own = own_key_of(relationship) is not None
        if link_of(relationship) is not None or (on_create and is_own):
            return True
        return "update" in (resource if is_own else self.catalog.target(relationship)).methods


def component(type_name: str, part: str = "") -> str:
    """Return the name of a component of a resource. Types may have characters that names of components must not have.

    >>> component("user", "create"), component("größe")
    ('user.create', 'gr.f6..df.e')
    """
    name = "".join([char if char in _SAFE else f".{ord(char):x}." for char in type_name])
    return f"{name}.{part}" if part else name


def narrowed(*names: str, **properties: JsonSchema) -> JsonSchema:
    """Return the schema of components that says more about these properties."""
    return {"allOf": [ref(name) for name in names], "properties": properties}


def ref(name: str, kind: str = "schemas") -> JsonSchema:
    """Return a reference to a component."""
    return {"$ref": f"#/components/{kind}/{name}"}
