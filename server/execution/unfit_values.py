"""Finds the value of a write that its column cannot hold: an id that is too long for a key or that a domain does not
allow, or a text with a character that the database's encoding does not have. An id that cannot be is one that is not
there.

What comes in: a driver's exception, and the write that it is about. What goes out: an ApiError, or None if there is no
such value. It must not know: statements.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from querybuild.declarations.keys import Key, id_parts
from querybuild.declarations.resource import Resource, ToOne, link_of, own_key_of
from querybuild.declarations.types import ColumnType
from querybuild.errors import (
    ApiError,
    AttributeFault,
    RelatedNotFound,
    listed,
    quoted,
    related_not_found,
    resource_not_found,
)
from querybuild.planning.changes import PlannedWrite
from querybuild.planning.writes.shared_columns import is_value_of, part_of
from querybuild.planning.writes.write_plan import Assignment
from serializers.pointers import member_pointer, slot_pointer
from server.engine import Engine
from server.errors import Conflict
from server.postgres.driver_errors import OUT_OF_RANGE, PostgresMessage, has_text, state_of, unknown_character
from server.postgres.said import said

_TOO_LONG, _NOT_IN_DOMAIN = "22001", "23514"


def unfit_value(error: Exception, write: PlannedWrite, engine: Engine) -> ApiError | None:
    """Return the error for the value that its column cannot hold, or None if no such value is known."""
    if (character := unknown_character(error)) is not None:
        return next(_with_character(character, write), None)
    if write.plan.kind == "delete":
        return None
    state = state_of(error)
    if state == OUT_OF_RANGE:
        return _out_of_range(write)
    if state == _TOO_LONG or (state == _NOT_IN_DOMAIN and said(error).data_type_name):
        return next(_not_in_key(error, write, engine), None)
    return None


def _with_character(character: str, write: PlannedWrite) -> Iterator[ApiError]:
    """Yield the errors for the values with a character that the database cannot store."""
    plan = write.plan
    slots = [slot for slot, value in enumerate(write.values) if has_text(value, character)]
    if plan.kind != "create" and plan.id_slot in slots:
        yield resource_not_found(plan.resource.type, str(write.values[plan.id_slot]), write.id_pointer)
    if plan.owner is not None and plan.owner.slot in slots:
        yield resource_not_found(plan.owner.resource.type, str(write.values[plan.owner.slot]))
    for link in plan.links:
        pairs = zip(write.values[link.slot], write.item_pointers[link.slot], strict=True)
        for id_value, pointer in pairs if link.slot in slots else ():
            if has_text(id_value, character):
                yield related_not_found(link.target.type, str(id_value), pointer)
    for assignment in plan.assignments:
        if assignment.slot not in slots:
            continue
        own = _relationship_of(assignment, plan.resource)
        if own is not None:
            yield related_not_found(
                own.target, str(write.values[assignment.slot]), slot_pointer(write, assignment.slot)
            )
        elif assignment.slot == plan.id_slot or assignment.attribute is None:
            detail = "The id has a character that the database cannot store."
            yield AttributeFault(detail, pointer=member_pointer(write.pointer, "id"))
        elif not assignment.attribute.is_hidden:
            detail = f"{quoted(assignment.attribute.name)} has a character that the database cannot store."
            yield AttributeFault(detail, pointer=slot_pointer(write, assignment.slot))


def _relationship_of(assignment: Assignment, resource: Resource) -> ToOne | None:
    """Return the to-one whose key an assignment writes."""
    keys = [own for own in map(own_key_of, resource.relationships) if own is not None]
    return next((own for own in keys if is_value_of(assignment, own)), None)


def _not_in_key(error: Exception, write: PlannedWrite, engine: Engine) -> Iterator[ApiError]:
    """Yield the errors for linkage to ids that are too long for the key, or that its domain does not allow."""
    assert isinstance(error, PostgresMessage)
    resource, limits = write.plan.resource, engine.schema.column_limits
    for assignment in write.plan.assignments:
        limit = limits.get((resource.schema, resource.table, assignment.column))
        own = _relationship_of(assignment, resource)
        if limit is None or own is None or assignment.key is None or write.values[assignment.slot] is None:
            continue
        text = (
            part_of(assignment, write.values[assignment.slot], assignment.key.types[assignment.part])
            if assignment.key.types
            else ""
        )
        is_long = limit.characters is not None and text is not None and len(text) > limit.characters
        if is_long if state_of(error) == _TOO_LONG else said(error).data_type_name in limit.domains:
            yield related_not_found(
                own.target, str(write.values[assignment.slot]), slot_pointer(write, assignment.slot)
            )
    for link in write.plan.links:
        target, columns = link.target, link.relationship.foreign_columns
        exceeded = [limit for name in columns if (limit := limits.get((target.schema, target.table, name))) is not None]
        if any(said(error).data_type_name in bound.domains or bound.characters is not None for bound in exceeded):
            detail = f"{quoted(link.relationship.name)} cannot have these links: the keys there cannot hold the ids."
            yield Conflict(detail, pointer=slot_pointer(write, link.slot))


def _out_of_range(write: PlannedWrite) -> ApiError | None:
    """Return the error for a key whose column cannot hold the id, because its type is a smaller integer."""
    plan = write.plan
    for own in filter(None, map(own_key_of, plan.resource.relationships)):
        for assignment in plan.assignments if own.key_types else ():
            id_value = write.values[assignment.slot]
            if assignment.key is None or not is_value_of(assignment, own):
                continue
            if not _fits(id_value, assignment.key, own.key_types):
                detail = f"{quoted(own.name)} cannot refer to the {own.target} {quoted(str(id_value))}: its key is "
                detail += f"{listed(column_type.name for column_type in own.key_types)}, and cannot hold this id."
                return RelatedNotFound(detail, pointer=slot_pointer(write, assignment.slot))
    for link in plan.links:
        through = link_of(link.relationship)
        if link.relationship.key_types or (through is not None and (through.source_types or through.target_types)):
            detail = f"{quoted(link.relationship.name)} cannot have these links: the keys there cannot hold the ids."
            return Conflict(detail, pointer=slot_pointer(write, link.slot))
    return None


def _fits(id_value: Any, key: Key, types: Sequence[ColumnType]) -> bool:
    """Return whether columns of these types can hold an id."""
    if id_value is None:
        return True
    for part, column_type in zip(id_parts(id_value, key), types, strict=True):
        if (
            column_type.id_type.is_number
            and not column_type.json.schema["minimum"] <= int(part) <= column_type.json.schema["maximum"]
        ):
            return False
    return True
