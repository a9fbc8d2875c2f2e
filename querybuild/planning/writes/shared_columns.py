"""Finds columns that several fields of a document set: a column of the id that also refers to another resource, or one
that two relationships have in common. Each is written once, and all fields must have the same value for it.

It must not know: documents, SQL text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from querybuild.declarations.catalog import Catalog
from querybuild.declarations.keys import Key, id_parts
from querybuild.declarations.resource import Attribute, Resource, TableAbilities, ToOne, referring_key
from querybuild.declarations.types import ColumnType
from querybuild.errors import AttributeFault, BodyError, IdConflict, RelationshipFault
from querybuild.planning.writes.write_plan import Assignment
from querybuild.query import Change, Lid

Agreement = tuple[Assignment, Assignment]
"""Two assignments of one column. The second one is not written."""


def key_assignments(key: Key, slot: int, **facts: Any) -> list[Assignment]:
    """Return the assignments of the columns of a key. slot: that of its value. facts: other fields of each."""
    return [Assignment(name, slot, key=key, part=part, **facts) for part, name in enumerate(key.columns)]


def key_of_target(target: Attribute | ToOne, catalog: Catalog) -> Key:
    """Return the columns of an attribute, or of a to-one with its key in the row."""
    if isinstance(target, Attribute):
        return Key((target.column_name,), (target.type,))
    return referring_key(target, target.own_columns, catalog.target(target))


def assigned_key(
    own: ToOne, slot: int, value: Any, resource: Resource, catalog: Catalog, **facts: Any
) -> list[Assignment]:
    """Return the assignments of the columns of a to-one. If it is emptied, only some of them become null."""
    key = key_of_target(own, catalog)
    assignments = key_assignments(key, slot, **facts)
    if value is not None:
        return assignments
    emptied = catalog.emptied_columns(resource, key.columns)
    return [assignment for assignment in assignments if assignment.column in emptied]


def is_value_of(assignment: Assignment, own: ToOne) -> bool:
    """Return whether the value of an assignment is the id of a related resource of a to-one."""
    return assignment.key is not None and assignment.key.columns == own.own_columns


def is_in_id(change: Change, resource: Resource, columns: tuple[str, ...]) -> bool:
    """Return whether the id that the client has chosen for a new resource sets these columns."""
    return change.kind == "create" and change.id is not None and set(columns) <= set(resource.id.key.columns)


def split_shared(
    assignments: Sequence[Assignment], id_key: Key, id_slot: int | None, *, on_create: bool
) -> tuple[list[Assignment], list[Agreement]]:
    """Return the assignments to write, and those that must agree. id_slot: of the id of the row, which an update does
    not write. Only keys of several columns may share columns with other fields."""
    of_id = [] if id_slot is None or not id_key.is_composite else key_assignments(id_key, id_slot)
    if not of_id and all(assignment.key is None or assignment.key.holds_id for assignment in assignments):
        return list(assignments), []
    given = [assignment for assignment in assignments if not of_id or assignment.slot != id_slot]
    # A field with fewer columns comes first, so one with more columns still has a column to write.
    given.sort(key=lambda assignment: 1 if assignment.key is None else len(assignment.key.columns))
    first: dict[str, Assignment] = {}
    kept: list[Assignment] = []
    agreements: list[Agreement] = []
    for one in [*given, *of_id] if on_create else [*of_id, *given]:
        other = first.setdefault(one.column, one)
        if other is not one and _can_agree(one, other):
            agreements.append((other, one))
        elif on_create or one.slot != id_slot:
            kept.append(one)
    return kept, agreements


def _can_agree(one: Assignment, other: Assignment) -> bool:
    """Return whether two assignments of one column are allowed. The columns of a key that refers to other columns than
    the id are only known to the database."""
    keys = [assignment.key for assignment in (one, other) if assignment.key is not None]
    return any(key.is_composite for key in keys) and all(key.referenced is None for key in keys)


def repeated_columns(
    assignments: Sequence[Assignment], pointers: Sequence[str], abilities: TableAbilities
) -> Iterator[AttributeFault]:
    """Yield an error for each column that is set twice. Two fields may be declared over one column, such as `owner_id`
    and `owner`, or over two columns of a view that are one of its table. pointers: to the value of each slot."""
    first: dict[str, str] = {}
    same = dict(abilities.same_columns)
    for assignment in assignments:
        pointer = pointers[assignment.slot]
        other = first.setdefault(same.get(assignment.column, assignment.column), pointer)
        if other != pointer:
            yield AttributeFault(f"{other} sets the same column: send only one of the two.", pointer=pointer)


def agree(agreement: Agreement, values: Sequence[Any]) -> bool:
    """Return whether two assignments have the same value. An id that is not known yet may be the same."""
    if any(isinstance(values[assignment.slot], Lid) for assignment in agreement):
        return True
    column_type = next(assignment.key.types[assignment.part] for assignment in agreement if assignment.key is not None)
    one, other = [part_of(assignment, values[assignment.slot], column_type) for assignment in agreement]
    return one == other


def differing(sent: Sequence[Assignment | None], key: Key, value: Any, values: Sequence[Any]) -> Iterator[Assignment]:
    """Yield the assignments of the columns of a key that have other values than a value of the key has."""
    for part, assignment in enumerate(sent):
        if assignment is None:
            continue
        is_composite = key.is_composite or (assignment.key is not None and assignment.key.is_composite)
        if not is_composite or key.referenced is not None:
            is_same = values[assignment.slot] == value
        else:
            column_type = key.types[part]
            fixed = Assignment(key.columns[part], assignment.slot, key=key, part=part)
            is_same = part_of(assignment, values[assignment.slot], column_type) == part_of(fixed, value, column_type)
        if not is_same:
            yield assignment


def disagreement(agreement: Agreement, pointers: Sequence[str], id_slot: int | None, path: str | None) -> BodyError:
    """Return the error for two assignments that do not agree. pointers: to the value of each slot. id_slot: of the id
    of the row. path: the pointer of what the path of a create has, None for an update."""
    first, second = [assignment.slot for assignment in agreement]
    if id_slot in (first, second) and path is None:
        detail = "It is part of the id, which no write changes: leave it out, or send the value it has."
        is_linkage = all(assignment.key is not None for assignment in agreement)
        return (RelationshipFault if is_linkage else IdConflict)(detail, pointer=pointers[second])
    if pointers[second] == path:
        first, second = second, first
    other = "The path" if pointers[first] == path else pointers[first]
    if id_slot == second:
        return IdConflict(f"{other} sets a part of the id, to another value.", pointer=pointers[second])
    detail = f"{other} sets the same column, to another value: send values that agree."
    return RelationshipFault(detail, pointer=pointers[second])


def part_of(assignment: Assignment, value: Any, column_type: ColumnType) -> str | None:
    """Return the text of the value of an assignment for its column, None for null. column_type: that of the column."""
    if value is None:
        return None
    if assignment.key is not None and assignment.key.is_composite:
        return id_parts(value, assignment.key)[assignment.part]
    return column_type.id_type.text_of(value)
