"""Plans one write: a `Change`, with the `Catalog`, becomes a `WritePlan`, the values for its slots, and the place of
each value in the document. All errors of the document are collected. Errors that only the database finds come later.
Relationships are planned in `writes/relationships.py`.

It must not know: SQL text, rows, HTTP, or how a JSON pointer is written (`places.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from querybuild.declarations.attributes import read_attribute
from querybuild.declarations.json_texts import dump_json
from querybuild.declarations.keys import Key
from querybuild.declarations.resource import Attribute, Resource, ToOne, own_key_of
from querybuild.declarations.values import ValueFault
from querybuild.errors import (
    ApiError,
    AttributeFault,
    ClientIdForbidden,
    RelationshipFault,
    TypeConflict,
    nearest,
    not_allowed,
    quoted,
    resource_not_found,
    shortened,
)
from querybuild.places import Place, Pointers
from querybuild.planning.context import AssignedField, Context, View, assigned_target
from querybuild.planning.page_values import Values
from querybuild.planning.rowsets import open_checked, open_written
from querybuild.planning.writes.conflicts import plan_conflict
from querybuild.planning.writes.draft import Draft
from querybuild.planning.writes.implied import plan_implied
from querybuild.planning.writes.linkage import written_relationships
from querybuild.planning.writes.relationships import locked_owner, plan_owner, plan_relationships
from querybuild.planning.writes.shared_columns import (
    Agreement,
    agree,
    differing,
    disagreement,
    is_in_id,
    key_assignments,
    key_of_target,
    repeated_columns,
    split_shared,
)
from querybuild.planning.writes.write_plan import Assignment, ExpectedLinkage, OwnerRow, RowConflict, WritePlan
from querybuild.query import Change


class PlannedWrite(msgspec.Struct, frozen=True):
    """The plan of one write, with its values. values: for the slots of the plan; a Lid replaces an id that is not known
    yet, if has_lids. places: of each slot, where its value stood in the document. item_pointers: to the items of a
    slot's list. pointer: to the resource object. id_pointer: to the id in the document, if not only the path has it.
    agreements: assignments that must have the same value; an id of a Lid is only known later."""

    plan: WritePlan
    values: Values
    has_lids: bool
    places: Sequence[Place]
    item_pointers: dict[int, tuple[str, ...]]
    pointer: str
    id_pointer: str | None
    agreements: tuple[Agreement, ...] = ()


def plan_write(
    change: Change,
    resource: Resource,
    view: View,
    context: Context,
    pointers: Pointers,
    errors: list[ApiError],
) -> PlannedWrite:
    """Plan the write of one resource and its links. The plan is only valid if there are no errors. view: the
    declarations as the principal sees them. pointers: writes the pointers of the errors.

    Appends to errors: TypeConflict, ClientIdForbidden, ResourceNotFound, AttributeFault, RelationshipFault,
    LinkageTypeConflict, RelatedNotFound, RequiredLink, OwnerConflict, MethodForbidden and ConflictFault. Raises
    Forbidden, Unauthenticated.
    """
    draft, known = Draft(change, resource, view, context, pointers, errors), len(errors)
    is_create = change.kind == "create"
    # The rows of a bulk are planned in `writes/bulk.py`.
    id_slot = None if change.bulk is not None else _client_id(draft) if is_create else _row_id(draft)
    if _has_right_type(draft):
        _plan_attributes(draft)
        _plan_assigned(draft)
        plan_relationships(draft)
        _missing(draft)
    linkage = _plan_match(draft)
    owner = None if change.owner is None else plan_owner(draft, change.owner)
    _check_columns(draft, id_slot)
    if len(errors) == known:
        plan_implied(draft)
    # Custom code may send what is missing. By what a row is found must be known before that.
    is_known = len(errors) == known or resource.hooks.before("create") is not None
    conflict = plan_conflict(draft, id_slot) if is_create and is_known else None
    if is_create and len(errors) == known:
        _assign_by_rules(draft)
    return _planned(draft, id_slot, owner, linkage, conflict)


def _planned(
    draft: Draft,
    id_slot: int | None,
    owner: OwnerRow | None,
    linkage: ExpectedLinkage | None,
    conflict: RowConflict | None,
) -> PlannedWrite:
    """Return the plan and its values."""
    plan = WritePlan(
        kind=draft.change.kind,
        rows=open_written(draft.resource, draft.context, draft.change.kind),
        id_slot=id_slot,
        assignments=tuple(draft.assignments),
        links=tuple(draft.links),
        precondition=tuple(draft.precondition),
        linkage=linkage,
        kept=tuple(draft.kept),
        implied=tuple(draft.implied),
        owner=owner,
        checked=open_checked(draft.resource, draft.context, draft.change.kind),
        conflict=conflict,
    )
    return PlannedWrite(
        plan,
        tuple(draft.values),
        draft.has_lids,
        draft.places,
        draft.item_pointers,
        draft.change.pointer,
        draft.change.id_pointer,
        tuple(draft.agreements),
    )


def _has_right_type(draft: Draft) -> bool:
    """Check the type of the document."""
    type_name = draft.change.type
    if type_name is None or type_name == draft.resource.type:
        return True
    detail = f"This route is for resources of type {quoted(draft.resource.type)}, not {quoted(type_name)}."
    draft.errors.append(TypeConflict(detail, pointer=draft.member_pointer("type")))
    return False


def _row_id(draft: Draft) -> int:
    """Return the slot of the id of the updated or deleted row."""
    change = draft.change
    place = change.id_pointer or draft.resource.id
    if change.id is None:
        assert change.lid is not None
        return draft.slot(draft.lid(draft.resource, change.lid), place)
    try:
        return draft.slot(draft.resource.id_type.read(change.id), place)
    except ValueFault:
        draft.errors.append(resource_not_found(draft.resource.type, change.id, change.id_pointer))
        return draft.slot(None, place)


def _client_id(draft: Draft) -> int | None:
    """Assign the id that the client has chosen, and return its slot."""
    change = draft.change
    if change.id is None:
        return None
    if not draft.resource.client_ids:
        detail = f"The server chooses ids of type {quoted(draft.resource.type)}: leave `id` out."
        draft.errors.append(ClientIdForbidden(detail, pointer=draft.member_pointer("id")))
        return None
    try:
        slot = draft.slot(draft.resource.id_type.read(change.id), draft.resource.id)
    except ValueFault as error:
        detail = f"An id of type {quoted(draft.resource.type)} must be {error}."
        draft.errors.append(AttributeFault(detail, pointer=draft.member_pointer("id")))
        return None
    draft.assignments += key_assignments(draft.resource.id.key, slot)
    return slot


def _plan_attributes(draft: Draft) -> None:
    """Plan the attributes of the document."""
    for name, value in (draft.change.attributes or {}).items():
        attribute = draft.resource.attribute(name)
        if attribute is None or attribute.is_hidden:
            _unknown_attribute(draft, name)
        elif (fault := draft.read_only(draft.resource, name, draft.pointer_of(attribute))) is not None:
            draft.errors.append(fault)
        elif attribute.is_writable(on_create=draft.on_create):
            if name not in draft.change.assigned:
                _assign(draft, attribute, value)
        elif draft.on_create or not attribute.readable:
            detail = f"{quoted(name)} is read-only: leave it out."
            draft.errors.append(AttributeFault(detail, pointer=draft.pointer_of(attribute)))
        else:
            draft.expect(attribute, value, attribute)


def _plan_assigned(draft: Draft) -> None:
    """Plan the attributes that custom code sets. An unknown name is a fault of the custom code, not of the
    client."""
    for name, value in draft.change.assigned.items():
        attribute = draft.resource.attribute(name)
        if attribute is None or not attribute.is_stored:
            raise ValueError(f"custom code assigns {name!r}: {draft.resource.type} has no such stored attribute")
        _assign(draft, attribute, value)


def _plan_match(draft: Draft) -> ExpectedLinkage | None:
    """Plan the version that the row must have, or return what its linkage must be."""
    match = draft.change.match
    if match is None or match.versions is None or draft.on_create:
        return None
    versions, place = sorted(match.versions), match.pointer or ""
    if match.of_linkage:
        [relationship] = [draft.resource.relationship(name) for name in draft.change.relationships]
        return None if relationship is None else ExpectedLinkage(relationship, draft.slot(versions, place))
    version = draft.resource.abilities.version
    assert version is not None, "a match of what has no version is refused before"
    draft.expect(version.attribute, versions, place, is_version=True)
    return None


def _assign_by_rules(draft: Draft) -> None:
    """Plan the fields that rules set, after all others. A field that was sent or that custom code has set keeps its
    value."""
    by_column = {assignment.column: assignment for assignment in draft.assignments}
    for field in draft.context.access.assigned.get(draft.resource.type, ()):
        target, value = assigned_target(field, draft.resource, draft.catalog), draft.context.values[field.index]
        key = key_of_target(target, draft.catalog)
        sent = [by_column.get(name) for name in key.columns]
        other = next((assignment for assignment in differing(sent, key, value, draft.values)), None)
        # If the document has a part of the key, with another value than the rule, the rest of the rule's key would name
        # a row that nobody means.
        if None in sent and other is None:
            added = zip(_assign_by_rule(draft, target, key, value), sent, strict=True)
            draft.assignments += [assignment for assignment, known in added if known is None]
        if other is not None and field.is_fixed and field.name not in draft.change.assigned:
            name = _shown_name(draft, field, target)
            detail = f"{name} is set by a rule: leave it out, or send the value that the rule sets."
            pointer = draft.pointer_of(draft.places[other.slot])
            draft.errors.append(not_allowed(draft.context.principal, detail, pointer=pointer))


def _shown_name(draft: Draft, field: AssignedField, target: Attribute | ToOne) -> str:
    """Return what an error calls a field that a rule sets."""
    if field.attribute is not None:
        return "A part of it"
    # A relationship that the principal may not read was set by the path, from its other side: do not name it.
    return quoted(field.name) if _is_readable(draft, target) else "What the path links it to"


def _is_readable(draft: Draft, target: Attribute | ToOne) -> bool:
    return target.readable if isinstance(target, Attribute) else target in draft.resource.relationships


def _assign_by_rule(draft: Draft, target: Attribute | ToOne, key: Key, value: Any) -> list[Assignment]:
    if isinstance(target, Attribute):
        return [Assignment(target.column_name, draft.slot(value, target), target)]
    place = draft.relationship_pointer(target.name) if _is_readable(draft, target) else draft.change.pointer
    return key_assignments(key, draft.slot(value, place), owner=locked_owner(draft, target))


def _check_columns(draft: Draft, id_slot: int | None) -> None:
    """Check that each column is set once, and that fields with a column in common have the same value for it."""
    key, pointers = draft.resource.id.key, [draft.pointer_of(place) for place in draft.places]
    draft.assignments, draft.agreements = split_shared(draft.assignments, key, id_slot, on_create=draft.on_create)
    draft.errors += repeated_columns(draft.assignments, pointers, draft.resource.abilities)
    # Two fields may differ in several columns, which is one error.
    different = {
        (assignment.slot, other.slot): (assignment, other)
        for assignment, other in draft.agreements
        if not agree((assignment, other), draft.values)
    }
    path = draft.change.pointer if draft.on_create else None
    draft.errors += [disagreement(pair, pointers, id_slot, path) for pair in different.values()]


def _unknown_attribute(draft: Draft, name: str) -> None:
    if draft.resource.relationship(name) is not None:
        detail = f"{quoted(name)} is a relationship: put it under `relationships`."
    else:
        known = [attribute.name for attribute in draft.resource.attributes if attribute.readable]
        detail = f"{draft.resource.type} has no attribute {quoted(name)}.{nearest(name, known)}"
    pointer = draft.pointers.attribute_pointer(draft.change.pointer, name)
    draft.errors.append(AttributeFault(detail, pointer=pointer))


def _assign(draft: Draft, attribute: Attribute, value: Any) -> None:
    try:
        native = read_attribute(attribute, value, draft.view.checks_of(attribute))
    except ValueFault as error:
        shown = "" if value is None else f", not {shortened(dump_json(value))}"
        detail = f"{quoted(attribute.name)} must be {error}{shown}."
        draft.errors.append(AttributeFault(detail, pointer=draft.pointer_of(attribute)))
    else:
        draft.assignments.append(Assignment(attribute.column_name, draft.slot(native, attribute), attribute))


def _missing(draft: Draft) -> None:
    """Report missing required fields. Fields that could not be decoded have their errors already."""
    change = draft.change
    if draft.on_create:
        if "attributes" not in change.undecoded:
            _missing_attributes(draft, (known for known in draft.resource.attributes if known.required))
        _missing_relationships(draft)
    elif change.attributes is not None:
        _missing_attributes(draft, (known for known in draft.resource.attributes if known.required_on_update))


def _missing_attributes(draft: Draft, required: Iterable[Attribute]) -> None:
    given = (draft.change.attributes or {}, draft.change.assigned, draft.set_by_rules)
    for attribute in required:
        if not any(attribute.name in names for names in given) and not is_in_id(
            draft.change, draft.resource, (attribute.column_name,)
        ):
            detail = f"The attribute {quoted(attribute.name)} is required."
            draft.errors.append(AttributeFault(detail, pointer=draft.pointer_of(attribute)))


def _missing_relationships(draft: Draft) -> None:
    change = draft.change
    written = written_relationships(change, draft.resource, draft.catalog)
    for relationship in draft.resource.relationships:
        is_required = isinstance(relationship, ToOne) and relationship.is_required
        is_undecoded = change.undecoded & {"relationships", f"relationships/{relationship.name}"}
        is_given = relationship.name in written or relationship.name in draft.set_by_rules
        own = own_key_of(relationship)
        is_given = is_given or (own is not None and is_in_id(draft.change, draft.resource, own.own_columns))
        if is_required and not is_given and not is_undecoded:
            detail = f"The relationship {quoted(relationship.name)} is required."
            pointer = draft.relationship_pointer(relationship.name)
            draft.errors.append(RelationshipFault(detail, pointer=pointer))
