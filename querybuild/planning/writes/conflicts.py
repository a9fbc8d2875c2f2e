"""Plans what a create does if a row with the same unique values exists: `onConflict` names the fields, and such a row
is updated instead.

It must not know: SQL text, rows, documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from querybuild.declarations.hooks import NO_HOOKS
from querybuild.declarations.keys import UniqueKey
from querybuild.declarations.resource import Resource, ToOne, own_key_of
from querybuild.errors import ConflictFault, quoted, release_frames
from querybuild.planning.rowsets import hides, open_written
from querybuild.planning.writes.draft import Draft
from querybuild.planning.writes.write_plan import Assignment, RowConflict
from querybuild.query import OnConflict

ID = "id"


def plan_conflict(draft: Draft, id_slot: int | None) -> RowConflict | None:
    """Return what happens if the row is there, or None if it must not be there. The assignments are those of the
    document. Appends ConflictFault to errors."""
    asked = draft.change.on_conflict
    if asked is None:
        return None
    try:
        return _planned(draft, asked, id_slot)
    except ConflictFault as error:
        release_frames(error)
        draft.errors.append(error)
        return None


def _planned(draft: Draft, asked: OnConflict, id_slot: int | None) -> RowConflict:
    resource = draft.resource
    if "update" not in resource.methods:
        raise _fault(asked, f"Resources of type {quoted(resource.type)} cannot be updated here.")
    if resource.requires_match:
        raise _fault(asked, f"A {resource.type} is only updated with If-Match.")
    columns = [name for field in asked.names for name in _columns_of(resource, field)]
    unique_key = next((key for key in resource.abilities.unique_keys if set(key.columns) == set(columns)), None)
    if unique_key is None or not all(_columns_of(resource, field) for field in asked.names):
        raise _fault(asked, f"{_shown(asked.names)} is not unique. {_possible(resource)}")
    by_column = {assignment.column: assignment for assignment in draft.assignments}
    missing = [field for field in asked.names if any(name not in by_column for name in _columns_of(resource, field))]
    if missing:
        raise _fault(asked, f"{_shown(missing)} must be sent: an existing {resource.type} is found by it.")
    return RowConflict(
        key=tuple([by_column[name] for name in unique_key.columns]),
        has_equal_nulls=unique_key.has_equal_nulls,
        updated=tuple(draft.assignments),
        rows=open_written(resource, draft.context, "update"),
        is_one_statement=_is_one_statement(draft, asked, id_slot),
    )


def conflict_keys(resource: Resource) -> list[str]:
    """Return what `onConflict` may be: the fields of each unique key that a client may name, with commas between."""
    if "update" not in resource.methods or resource.requires_match:
        return []
    fields = [ID] if resource.client_ids else []
    fields += [attribute.name for attribute in resource.attributes if attribute.is_writable(on_create=True)]
    fields += [relationship.name for relationship in resource.relationships if own_key_of(relationship) is not None]
    possible = [",".join(names) for key in resource.abilities.unique_keys for names in _named(resource, key, fields)]
    return list(dict.fromkeys(possible))


def _named(resource: Resource, key: UniqueKey, fields: list[str]) -> Iterator[tuple[str, ...]]:
    """Yield the fields that have the columns of a key: each that has all of them, and one for each column."""
    for field in fields:
        if set(_columns_of(resource, field)) == set(key.columns):
            yield (field,)
    if len(key.columns) > 1:
        named = [[name for name in fields if _columns_of(resource, name) == (column,)] for column in key.columns]
        if all(named):
            yield tuple([names[0] for names in named])


def _columns_of(resource: Resource, field: str) -> tuple[str, ...]:
    """Return the columns of a field that a create may write, or none."""
    if field == ID:
        return resource.id.key.columns if resource.client_ids else ()
    attribute, relationship = resource.attribute(field), resource.relationship(field)
    if attribute is not None:
        return (attribute.column_name,) if attribute.is_writable(on_create=True) else ()
    own = own_key_of(relationship) if isinstance(relationship, ToOne) else None
    return () if own is None else own.own_columns


def _is_one_statement(draft: Draft, asked: OnConflict, id_slot: int | None) -> bool:
    """Return whether PostgreSQL may decide: INSERT ... ON CONFLICT DO UPDATE. Not if custom code or a rule is different
    for a create and an update, or if more than the row is written."""
    resource, change, access = draft.resource, draft.change, draft.context.access
    abilities, type_name = resource.abilities, resource.type
    if resource.hooks is not NO_HOOKS or hides(resource, draft.context) or (type_name, "update") in access.refused:
        return False
    if any(type_name in rules for rules in (access.update, access.check_create, access.check_update)):
        return False
    if type_name in access.assigned or type_name in access.read_only or change.assigned or change.owner is not None:
        return False
    if draft.links or draft.implied or draft.agreements or (id_slot is not None and asked.names != (ID,)):
        return False
    if id_slot is None and resource.client_ids:
        # ON CONFLICT is needed for ids that clients have taken.
        return False
    may_tell = abilities.tells_updates and not abilities.cancels_writes and not abilities.is_view
    has_rows = {"create", "update"} <= abilities.returned
    return may_tell and has_rows and all(_is_plain(assignment, resource) for assignment in draft.assignments)


def _is_plain(assignment: Assignment, resource: Resource) -> bool:
    """Return whether an update may set the column as a create does."""
    attribute = assignment.attribute
    if attribute is not None:
        return attribute.is_writable(on_create=False)
    is_id = assignment.column in resource.id.key.columns
    related = [
        relationship
        for relationship in resource.relationships
        if (own := own_key_of(relationship)) and assignment.column in own.columns
    ]
    return assignment.target is None and (
        is_id or all(isinstance(relationship, ToOne) and relationship.updatable for relationship in related)
    )


def _fault(asked: OnConflict, detail: str) -> ConflictFault:
    return ConflictFault(detail, parameter=asked.parameter, pointer=asked.pointer)


def _shown(names: Iterable[str]) -> str:
    return ",".join([quoted(name) for name in names])


def _possible(resource: Resource) -> str:
    known = conflict_keys(resource)
    return f"Possible is {' or '.join(map(quoted, known))}." if known else "Nothing else is unique here."
