"""Plans a write again whose form was planned before. What comes in: the form of an earlier write with the same names,
and a Change, the values of a document that was decoded with types, or the columns of many creates. What goes out: the
old plan with the new values, or None if there are errors, which only the planner reports.

Nothing here resolves a name or reports an error.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Any

import msgspec

from querybuild.declarations.attributes import Check, read_attribute, read_column, read_once
from querybuild.declarations.resource import Attribute, Resource, own_key_of
from querybuild.declarations.values import ValueFault
from querybuild.places import Place
from querybuild.planning.changes import PlannedWrite
from querybuild.planning.context import Access, View, assigned_target
from querybuild.planning.page_values import Values
from querybuild.planning.writes.shared_columns import key_of_target
from querybuild.planning.writes.write_plan import WritePlan
from querybuild.query import Change, Identifier, Lid, LinkageChange
from querybuild.shortcuts import Knows

CHANGE = Knows(
    Change,
    used=("kind", "type", "id", "attributes", "relationships", "on_conflict"),
    ignored=("lid", "pointer", "id_pointer"),
)
LINKAGE = Knows(LinkageChange, used=("identifiers", "is_list", "mode"), ignored=("pointer", "name_pointer"))
IDENTIFIER = Knows(Identifier, used=("type", "id", "lid"), ignored=("pointer",))
PLANNED = Knows(PlannedWrite, used=("plan", "values", "has_lids", "places", "item_pointers", "pointer", "id_pointer"))
PLAN = Knows(
    WritePlan, used=("kind", "rows", "id_slot", "assignments", "links", "kept", "implied", "checked", "conflict")
)
"""What the form of a write knows of each value that it is made from. The attributes and the linkage of a change are in
its key without their values."""


class WriteForm(msgspec.Struct, frozen=True, eq=False):
    """A planned write without its values. attributes, places: those of the document, with their checks and positions.
    targets: the targets of its relationships, and whether the key is in the written row. All are in the order of the
    document, which is that of the slots. After them come the fields that rules set.

    set_by_rules: for each such field the index of its value in the context, and its place. fixed: pairs of a slot of
    the document, and the index of the only value that the rules allow there.
    """

    plan: WritePlan
    attributes: tuple[tuple[Attribute, Sequence[Check]], ...]
    places: tuple[Place, ...]
    targets: tuple[tuple[Resource, bool], ...]
    set_by_rules: tuple[tuple[int, Place], ...] = ()
    fixed: tuple[tuple[int, int], ...] = ()


def form_key(change: Change, resource: Resource) -> Hashable | None:
    """Return everything that a plan depends on, except the values. Returns None for a change that asks for more than a
    form knows."""
    sent = change.relationships
    if not CHANGE.takes(change) or (sent and not _are_known(sent.values())):
        return None
    names = None if change.attributes is None else tuple(change.attributes)
    linkages = [(name, linkage.mode, linkage.is_list, not linkage.identifiers) for name, linkage in sent.items()]
    on_conflict = None if change.on_conflict is None else change.on_conflict.names
    return resource, change.kind, change.type, change.id is None, names, tuple(linkages), on_conflict


def _are_known(linkages: Collection[LinkageChange]) -> bool:
    return LINKAGE.takes_all(linkages) and all(IDENTIFIER.takes_all(linkage.identifiers) for linkage in linkages)


def write_form_of(change: Change, planned: PlannedWrite, view: View, access: Access) -> WriteForm | None:
    """Return the form of a valid change, or None if its plan has more than a form knows, such as fields that must
    agree; if a rule sets a part of a key; or if the change perhaps sends both sides of a relationship of a type with
    itself, which may contradict each other."""
    plan, catalog = planned.plan, view.catalog
    resource, names = plan.resource, tuple(change.attributes or ())
    attributes = [written for name in names if (written := resource.attribute(name)) is not None]
    linked = [other for name in change.relationships if (other := resource.relationship(name)) is not None]
    if not (PLANNED.takes(planned) and PLAN.takes(plan)):
        return None
    if len(linked) > 1 and any(relationship.target == resource.type for relationship in linked):
        return None
    sent = (plan.id_slot is not None) + len(attributes) + len(linked)
    fields = access.assigned.get(resource.type, ()) if plan.kind == "create" else ()
    slots = {assignment.column: assignment.slot for assignment in plan.assignments}
    keys = [key_of_target(assigned_target(field, resource, catalog), catalog) for field in fields]
    by_key = [{slots.get(name) for name in key.columns} for key in keys]
    if any(len(positions) > 1 or None in positions for positions in by_key):
        return None
    by_slot = [(slots[key.columns[0]], field) for key, field in zip(keys, fields, strict=True)]
    set_by_rules = tuple([(field.index, planned.places[slot]) for slot, field in by_slot if slot >= sent])
    if sent + len(set_by_rules) != len(planned.values):
        # A slot has a value that the form cannot find in another document.
        return None
    return WriteForm(
        plan,
        tuple([(attribute, view.checks_of(attribute)) for attribute in attributes]),
        tuple(attributes),
        tuple([(catalog.target(relationship), own_key_of(relationship) is not None) for relationship in linked]),
        set_by_rules,
        tuple([(slot, field.index) for slot, field in by_slot if slot < sent and field.is_fixed]),
    )


def plan_with_form(change: Change, form: WriteForm, context: Values) -> PlannedWrite | None:
    """Return the plan of the form with the values of a change, or None if the change has errors. context: the values of
    `Context`."""
    values: list[Any] = []
    places: list[Place] = []
    item_pointers: dict[int, tuple[str, ...]] = {}
    resource, sent = form.plan.resource, change.attributes or {}
    has_lids = False
    try:
        if form.plan.id_slot is not None:
            has_lids = change.id is None
            values.append(
                Lid(resource.type, str(change.lid)) if change.id is None else resource.id_type.read(change.id)
            )
            places.append(change.id_pointer or resource.id)
        for (attribute, checks), value in zip(form.attributes, sent.values(), strict=True):
            values.append(read_attribute(attribute, value, checks))
        places += form.places
        for (target, is_own_key), linkage in zip(form.targets, change.relationships.values(), strict=True):
            ids = _linked_ids(linkage, target)
            has_lids = has_lids or any(identifier.lid is not None for identifier in linkage.identifiers)
            if not is_own_key:
                item_pointers[len(values)] = tuple(ids.values())
            values.append(next(iter(ids), None) if is_own_key else list(ids))
            places.append(next(iter(ids.values()), linkage.pointer) if is_own_key else linkage.pointer)
    except ValueFault:
        return None
    places += [place for _, place in form.set_by_rules]
    if not _follow_rules(values, form, context):
        return None
    return PlannedWrite(form.plan, tuple(values), has_lids, places, item_pointers, change.pointer, change.id_pointer)


def _follow_rules(values: list[Any], form: WriteForm, context: Values) -> bool:
    """Append the values that rules set. Returns whether those of the document are the only ones that rules allow."""
    if form.fixed and any(values[slot] != context[index] for slot, index in form.fixed):
        return False
    values += [context[index] for index, _ in form.set_by_rules]
    return True


class TypedForm(msgspec.Struct, frozen=True, eq=False):
    """The form of documents that are decoded in one step. reads: the index of each attribute that is read in Python
    after that. places: of all slots. pointer: to the resource object. written: the relationships that it writes."""

    form: WriteForm
    reads: tuple[tuple[int, Callable[[Any], Any]], ...]
    places: tuple[Place, ...]
    pointer: str
    written: tuple[str, ...]


def plan_typed(
    form: TypedForm, id_text: str | None, values: list[Any], linked: Sequence[Any], context: Values
) -> PlannedWrite | None:
    """Return the plan of the form with the values of a document, or None if it has errors. id_text: of the written row.
    values: of the attributes. linked: of each relationship None, an object with an id, or a list of such objects."""
    item_pointers: dict[int, tuple[str, ...]] = {}
    own = form.form
    try:
        for index, read in form.reads:
            values[index] = read(values[index])
        if own.plan.id_slot is not None:
            values.insert(0, own.plan.resource.id_type.read(str(id_text)))
        for (target, is_own_key), sent in zip(own.targets, linked, strict=True):
            if is_own_key:
                values.append(None if sent is None else target.id_type.read(sent.id))
                continue
            ids: dict[Any, str] = {}
            pointer = form.places[len(values)]
            if isinstance(sent, list):
                for index, identifier in enumerate(sent):
                    ids.setdefault(target.id_type.read(identifier.id), f"{pointer}/{index}")
            elif sent is not None:
                ids[target.id_type.read(sent.id)] = str(pointer)
            item_pointers[len(values)] = tuple(ids.values())
            values.append(list(ids))
    except ValueFault:
        return None
    if not _follow_rules(values, own, context):
        return None
    return PlannedWrite(own.plan, tuple(values), False, form.places, item_pointers, form.pointer, None)


def plan_columns(
    form: WriteForm, attributes: Sequence[Sequence[Any]], linked: Sequence[tuple[str, Sequence[str]]]
) -> list[Sequence[Any]] | None:
    """Plan many creates of one form at once. Returns the values of each slot, or None if one of the changes has errors,
    or needs more than its own row, or if they have no values. attributes: the values of each attribute in all changes.
    linked: for each relationship the type and the ids."""
    try:
        columns = [
            read_column(attribute, values, checks)
            for (attribute, checks), values in zip(form.attributes, attributes, strict=True)
        ]
        for (target, is_own_key), (type_name, ids) in zip(form.targets, linked, strict=True):
            if type_name != target.type or not is_own_key:
                return None
            columns.append(read_once(target.id_type.read, ids))
    except ValueFault:
        return None
    # Without a column nothing tells how many rows there are.
    return columns or None


def _linked_ids(linkage: LinkageChange, target: Resource) -> dict[Any, str]:
    """Return the ids with their pointers. Raises ValueFault."""
    ids: dict[Any, str] = {}
    for identifier in linkage.identifiers:
        if identifier.type != target.type:
            raise ValueFault(f"of the type {target.type}")
        id_value = target.id_type.read(identifier.id) if identifier.lid is None else Lid(target.type, identifier.lid)
        ids.setdefault(id_value, identifier.pointer)
    return ids
