"""Finds the faults of ids and relationships, without the tables.

It must not know: requests, statements, documents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from querybuild.declarations.database_types.names import ID_TYPES
from querybuild.declarations.id_types import NO_IDS
from querybuild.declarations.resource import (
    RELATIONSHIP_METHODS,
    Id,
    Relationship,
    Resource,
    ToMany,
    ToOne,
    link_of,
    own_key_of,
)
from querybuild.errors import listed, nearest, quoted

FILLED_AND_REQUIRED = "`filled` and `required` exclude each other: what a trigger fills need not be sent"
MAKE_READ_ONLY = 'declare methods=frozenset({"read"})'
"""The advice for a relationship that cannot be written."""


def id_faults(declared: Id) -> Iterator[str]:
    """Yield the faults of an id."""
    key = declared.key
    if len(declared.columns) == 1:
        yield "an id of one column is declared with `column`, not with `columns`"
    elif declared.types and len(declared.types) != len(declared.columns):
        yield f"its {len(declared.columns)} `columns` have {len(declared.types)} `types`"
    elif len(set(key.columns)) < len(key.columns):
        yield "a column is declared twice in its id"
    for column_type in key.types:
        if column_type.id_type is NO_IDS or column_type.parts:
            known = sorted([*(known.name for known in ID_TYPES), "enum"])
            yield f"an id is {listed(known)}, not {column_type.name}"


def relationship_faults(
    by_type: Mapping[str, Resource], resource: Resource, relationship: Relationship, skipped: frozenset[object]
) -> Iterator[str]:
    """Yield the faults of a relationship. skipped: JSON:API types whose declarations are not checked."""
    if relationship.name == "relationships":
        yield "the name is reserved for relationship routes"
    unknown = relationship.methods - RELATIONSHIP_METHODS
    if unknown:
        yield f"methods are {listed(sorted(RELATIONSHIP_METHODS))}, not {listed(sorted(unknown))}"
    if relationship.target not in by_type and relationship.target not in skipped:
        yield f"its target {quoted(relationship.target)} is not declared.{nearest(relationship.target, by_type)}"
    if isinstance(relationship, ToOne):
        given = {
            "column": relationship.column,
            "columns": relationship.columns,
            "foreign_key": relationship.foreign_key,
        }
        if len(named := [f"`{name}`" for name, value in given.items() if value]) > 1:
            yield f"{' and '.join(named)} exclude each other"
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
    if relationship.target in by_type:
        yield from _column_faults(resource, relationship, by_type[relationship.target])
    yield from _unwritable_faults(resource, relationship, by_type.get(relationship.target))


def _column_faults(resource: Resource, relationship: Relationship, target: Resource) -> Iterator[str]:
    """Yield the faults of keys that do not have a column for each part of the id that they refer to."""
    own, link = own_key_of(relationship), link_of(relationship)
    keys = [("`foreign_key`", relationship.foreign_columns, resource)] if relationship.foreign_key else []
    if own is not None:
        keys = [("`columns`" if own.columns else "`column`", own.own_columns, target)]
    elif link is not None:
        keys = [("`source`", link.source_columns, resource), ("`target`", link.target_columns, target)]
    if isinstance(relationship.references, tuple) and not relationship.references:
        yield "its `references` names no column: leave it out if the key refers to the id"
    if relationship.references and link is not None:
        yield "`references` is for keys, and a link table has the ids of both sides"
    for name, columns, referenced in keys:
        expected = relationship.referenced_columns or referenced.id.key.columns
        if len(columns) != len(expected):
            parts = listed(map(quoted, expected))
            what = "`references`" if relationship.references else f"the id of {quoted(referenced.type)}"
            yield f"{what} is {parts}: give {name} a column for each"
        elif len(set(columns)) < len(columns):
            yield f"a column is declared twice in {name}"


def _unwritable_faults(resource: Resource, relationship: Relationship, target: Resource | None) -> Iterator[str]:
    """Yield the faults of a relationship that cannot be written. target: None if it is not declared."""
    own = own_key_of(relationship)
    is_written = not relationship.methods <= {"read"}
    if own is not None and own.is_required and "replace" not in own.methods and "create" in resource.methods:
        yield (
            "it is required on create, but its `methods` do not allow writing it: add `replace` to them, remove "
            "`create` from those of the resource, or declare required=False if the database sets the key"
        )
    if (
        own is not None
        and own.own_columns == resource.id.key.columns
        and not resource.id.key.is_composite
        and is_written
        and resource.methods & {"create", "update"}
    ):
        yield f"its column {quoted(own.own_columns[0])} is the id, which no write changes: {MAKE_READ_ONLY}"
    if own is not None and own.references and is_written and set(own.own_columns) & set(resource.id.key.columns):
        yield f"its key is part of the id, and refers to other columns than an id: {MAKE_READ_ONLY}"
    theirs = (
        [] if target is None else [column for column in relationship.foreign_columns if column in target.id.key.columns]
    )
    if target is not None and theirs and is_written and "update" in target.methods:
        key, advice = listed(map(quoted, theirs)), MAKE_READ_ONLY
        part = "part of the id" if target.id.key.is_composite else "the id"
        if target.id.key.is_composite:
            # A new resource can be created below its owner, with its id.
            advice = 'declare methods=frozenset({"read", "add"}), or only "read"'
        if not target.id.key.is_composite or not relationship.methods <= {"read", "add"}:
            yield f"its key {key} is {part} of {quoted(target.type)}, which no write changes: {advice}"
