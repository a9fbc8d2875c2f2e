"""Finds the faults of resources, without the tables.

It must not know: requests, statements, documents.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from querybuild.declarations.faults.attribute_faults import attribute_faults, repeated_names
from querybuild.declarations.faults.declaration_types import wrong_types
from querybuild.declarations.faults.relationship_faults import id_faults, relationship_faults
from querybuild.declarations.faults.rule_faults import key_faults, rule_faults
from querybuild.declarations.function import invalid_path
from querybuild.declarations.hooks import Hooks, accepts_arguments, is_async
from querybuild.declarations.keys import Version
from querybuild.declarations.resource import RESOURCE_METHODS, Resource, link_of, own_key_of
from querybuild.errors import listed, quoted

_MEMBER_NAME = re.compile(r"[A-Za-z0-9\u0080-\uffff](?:[A-Za-z0-9_\-\u0080-\uffff]*[A-Za-z0-9\u0080-\uffff])?")
"""JSON:API 1.0 "Member Names", without spaces, which it allows but does not recommend."""
_RIGHTS = ("read_by", "write_by")
"""Arguments that `faults/rule_faults.py` checks."""


def argument_faults(resource: Resource) -> Iterator[str]:
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
        for path in attribute.paths if isinstance(attribute.paths, tuple | list) else ():
            yield from (f"{label}a path: {fault}" for fault in wrong_types(path))
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


def declaration_faults(
    resources: Sequence[Resource], by_type: Mapping[str, Resource], skipped: frozenset[object]
) -> Iterator[str]:
    """Yield the faults of the declarations. skipped: JSON:API types whose declarations are not checked."""
    if not resources and not skipped:
        yield "the catalog declares no resource"
    yield from repeated_names("type", (resource.type for resource in resources))
    yield from repeated_names("path", (resource.path for resource in resources))
    has_rules = any(resource.access for resource in resources)
    below = _paths_below(resources)
    for resource in resources:
        where = f"resource {quoted(resource.type)}: "
        for fault in _resource_faults(resource):
            yield where + fault
        for relationship in resource.relationships:
            for fault in relationship_faults(by_type, resource, relationship, skipped):
                yield f"{where}relationship {quoted(relationship.name)}: {fault}"
        yield from (where + fault for fault in rule_faults(resource))
        if has_rules:
            yield from (where + fault for fault in key_faults(resource, _keys_of(resources, by_type, resource)))
        yield from (where + fault for fault in _path_faults(resource, below))


def _keys_of(
    resources: Sequence[Resource], by_type: Mapping[str, Resource], resource: Resource
) -> Iterator[tuple[tuple[str, ...], str, Resource]]:
    """Yield the keys in the rows of a resource, declared here or on the other side: the columns, the relationship, and
    the resource that the key refers to."""
    for own in filter(None, map(own_key_of, resource.relationships)):
        if own.target in by_type:
            yield own.own_columns, own.name, by_type[own.target]
    for other in resources:
        for relationship in other.relationships:
            link = link_of(relationship)
            if relationship.foreign_key and relationship.target == resource.type:
                yield relationship.foreign_columns, relationship.name, other
            elif link is not None and (link.table, link.schema) == (resource.table, resource.schema):
                yield link.source_columns, relationship.name, other
                if relationship.target in by_type:
                    yield link.target_columns, relationship.name, by_type[relationship.target]


def _resource_faults(resource: Resource) -> Iterator[str]:
    if not _MEMBER_NAME.fullmatch(resource.type):
        yield "the type is not a JSON:API member name"
    yield from id_faults(resource.id)
    unknown = resource.methods - RESOURCE_METHODS
    if unknown:
        yield f"methods are {listed(sorted(RESOURCE_METHODS))}, not {listed(sorted(unknown))}"
    names = [field.name for field in (*resource.attributes, *resource.relationships)]
    yield from repeated_names("field", names)
    for name in names:
        if not _MEMBER_NAME.fullmatch(name):
            yield f"{quoted(name)} is not a JSON:API member name"
        if name in ("id", "type"):
            yield f"no field may be called {quoted(name)}"
    for identifier in _identifiers(resource):
        if not identifier or "\0" in identifier or len(identifier.encode()) > 63:
            yield f"{quoted(identifier)} is not a valid name in PostgreSQL: it must have 1 to 63 bytes"
    yield from _hook_faults(resource.hooks)
    label = resource.attribute(resource.label)
    if resource.label and (label is None or not label.type.is_text):
        yield f"label: {quoted(resource.label)} must be an attribute that is a text"
    if isinstance(resource.version, Version) and resource.version.by not in ("", "server", "database"):
        yield f'version: `by` must be "server" or "database", not {resource.version.by!r}'
    for attribute in resource.attributes:
        for fault in attribute_faults(attribute, resource):
            yield f"attribute {quoted(attribute.name)}: {fault}"


def _identifiers(resource: Resource) -> Iterator[str]:
    yield from (resource.table, *resource.id.key.columns)
    if resource.schema is not None:
        yield resource.schema
    if resource.declared_version is not None:
        yield resource.declared_version.column
    for attribute in resource.attributes:
        yield attribute.column_name
    for relationship in resource.relationships:
        own, link = own_key_of(relationship), link_of(relationship)
        if own is not None:
            yield from own.own_columns
        yield from (*relationship.foreign_columns, *relationship.referenced_columns)
        if link is not None:
            yield from (link.table, *link.source_columns, *link.target_columns)


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


def _paths_below(resources: Sequence[Resource]) -> Mapping[str, list[str]]:
    """Return the paths of collections by each of their prefixes that ends before a slash."""
    below: defaultdict[str, list[str]] = defaultdict(list)
    for resource in resources:
        for index, character in enumerate(resource.path):
            if character == "/":
                below[resource.path[:index]].append(resource.path)
    return below


def _path_faults(resource: Resource, below: Mapping[str, list[str]]) -> Iterator[str]:
    yield from invalid_path(resource.path)
    for other in below.get(resource.path, ()):
        yield f"its path {quoted(resource.path)} is a prefix of {quoted(other)}"
