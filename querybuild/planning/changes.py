"""Plans one write: a `Change`, with the `Catalog`, becomes a `WritePlan`, the values for its slots, and the place of
each value in the document. All errors of the document are collected. Errors that only the database finds come later.

It must not know: SQL text, rows, HTTP, or how a JSON pointer is written (`places.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from querybuild.declarations.attributes import NO_CHECKS, Checks, read_attribute
from querybuild.declarations.catalog import Catalog
from querybuild.declarations.json_texts import dump_json
from querybuild.declarations.keys import Key
from querybuild.declarations.resource import (
    Attribute,
    Relationship,
    Resource,
    ToOne,
    link_of,
    own_key_of,
    referring_key,
)
from querybuild.declarations.values import ValueFault
from querybuild.errors import (
    ApiError,
    AttributeFault,
    ClientIdForbidden,
    LinkageTypeConflict,
    MethodForbidden,
    OwnerConflict,
    RelationshipFault,
    TypeConflict,
    nearest,
    not_allowed,
    quoted,
    related_not_found,
    resource_not_found,
    shortened,
)
from querybuild.places import Place, Pointers
from querybuild.planning.context import Context, assigned_target, check_action, refused_action
from querybuild.planning.plan import Rows, Values
from querybuild.planning.rowsets import open_checked, open_key_rows, open_named, open_written, rows_with_alias
from querybuild.planning.writes.linkage import (
    in_lock_order,
    null_refused,
    owners_relationship,
    why_fixed,
    written_relationships,
)
from querybuild.planning.writes.shared_columns import (
    Agreement,
    agree,
    assigned_key,
    differing,
    disagreement,
    is_in_id,
    is_value_of,
    key_assignments,
    key_of_target,
    repeated_columns,
    split_shared,
)
from querybuild.planning.writes.write_plan import Assignment, LinkWrite, OwnerRow, Unchanged, WritePlan
from querybuild.query import Change, Identifier, Lid, LinkageChange, Owner

TARGET = "the target"
"""The alias of a related row beside tables that have their own names. No table has this name."""


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
    catalog: Catalog,
    context: Context,
    pointers: Pointers,
    errors: list[ApiError],
    checks: Checks = NO_CHECKS,
) -> PlannedWrite:
    """Plan the write of one resource and its links. The plan is only valid if there are no errors. checks: those of
    attributes whose columns accept less than their declarations say. pointers: writes the pointers of the errors.

    Appends to errors: TypeConflict, ClientIdForbidden, ResourceNotFound, AttributeFault, RelationshipFault,
    LinkageTypeConflict, RelatedNotFound, RequiredLink, OwnerConflict and MethodForbidden. Raises Forbidden,
    Unauthenticated.
    """
    planner, known = _WritePlanner(change, resource, catalog, context, pointers, errors, checks), len(errors)
    is_create = change.kind == "create"
    id_slot = planner.client_id() if is_create else planner.row_id()
    if planner.has_right_type():
        planner.attributes()
        planner.assigned()
        planner.relationships()
        planner.missing()
    owner = None if change.owner is None else planner.owner(change.owner)
    planner.check_columns(id_slot)
    if is_create and len(errors) == known:
        planner.set_by_rules()
    return planner.planned(id_slot, owner)


class _WritePlanner:
    """Plans one document, and keeps the assignments and links so far."""

    def __init__(
        self,
        change: Change,
        resource: Resource,
        catalog: Catalog,
        context: Context,
        pointers: Pointers,
        errors: list[ApiError],
        checks: Checks,
    ) -> None:
        self.change = change
        self.checks = checks
        self.resource = resource
        self.catalog = catalog
        self.context = context
        self.pointers = pointers
        self.errors = errors
        self.on_create = change.kind == "create"
        # The names of the fields that rules set.
        fields = context.access.assigned.get(resource.type, ()) if self.on_create else ()
        self._set_by_rules = frozenset([field.name for field in fields])
        self.values: list[Any] = []
        self.has_lids = False
        self.places: list[Place] = []
        self.item_pointers: dict[int, tuple[str, ...]] = {}
        self._assignments: list[Assignment] = []
        self._unchanged: list[Unchanged] = []
        self._links: list[LinkWrite] = []
        self._agreements: list[Agreement] = []

    def slot(self, value: Any, place: Place) -> int:
        """Add a value and return its slot."""
        self.values.append(value)
        self.places.append(place)
        return len(self.values) - 1

    def planned(self, id_slot: int | None, owner: OwnerRow | None) -> PlannedWrite:
        """Return the result."""
        plan = WritePlan(
            kind=self.change.kind,
            rows=open_written(self.resource, self.context, self.change.kind),
            id_slot=id_slot,
            assignments=tuple(self._assignments),
            links=tuple(self._links),
            unchanged=tuple(self._unchanged),
            owner=owner,
            checked=open_checked(self.resource, self.context, self.change.kind),
        )
        sent, agreements = self.change, tuple(self._agreements)
        of_slots = tuple(self.values), self.has_lids, self.places, self.item_pointers
        return PlannedWrite(plan, *of_slots, sent.pointer, sent.id_pointer, agreements)

    def has_right_type(self) -> bool:
        """Check the type of the document."""
        type_name = self.change.type
        if type_name is None or type_name == self.resource.type:
            return True
        detail = f"This route is for resources of type {quoted(self.resource.type)}, not {quoted(type_name)}."
        self.errors.append(TypeConflict(detail, pointer=self._member("type")))
        return False

    def _member(self, name: str) -> str:
        return self.pointers.member_pointer(self.change.pointer, name)

    def _relationship(self, name: str) -> str:
        return self.pointers.relationship_pointer(self.change.pointer, name)

    def _pointer(self, place: Place) -> str:
        return self.pointers.place_pointer(self.change.pointer, place)

    def row_id(self) -> int:
        """Return the slot of the id of the updated or deleted row."""
        change = self.change
        place = change.id_pointer or self.resource.id
        if change.id is None:
            assert change.lid is not None
            return self.slot(self._lid(self.resource, change.lid), place)
        try:
            return self.slot(self.resource.id_type.read(change.id), place)
        except ValueFault:
            self.errors.append(resource_not_found(self.resource.type, change.id, change.id_pointer))
            return self.slot(None, place)

    def _lid(self, resource: Resource, lid: str) -> Lid:
        self.has_lids = True
        return Lid(resource.type, lid)

    def client_id(self) -> int | None:
        """Assign the id that the client has chosen, and return its slot."""
        change = self.change
        if change.id is None:
            return None
        if not self.resource.client_ids:
            detail = f"The server chooses ids of type {quoted(self.resource.type)}: leave `id` out."
            self.errors.append(ClientIdForbidden(detail, pointer=self._member("id")))
            return None
        try:
            slot = self.slot(self.resource.id_type.read(change.id), self.resource.id)
        except ValueFault as error:
            detail = f"An id of type {quoted(self.resource.type)} must be {error}."
            self.errors.append(AttributeFault(detail, pointer=self._member("id")))
            return None
        self._assignments += key_assignments(self.resource.id.key, slot)
        return slot

    def attributes(self) -> None:
        """Plan the attributes of the document."""
        for name, value in (self.change.attributes or {}).items():
            attribute = self.resource.attribute(name)
            if attribute is None or attribute.is_hidden:
                self._unknown_attribute(name)
            elif (fault := self._read_only(self.resource, name, self._pointer(attribute))) is not None:
                self.errors.append(fault)
            elif attribute.is_writable(on_create=self.on_create):
                if name not in self.change.assigned:
                    self._assign(attribute, value)
            elif self.on_create or not attribute.readable:
                detail = f"{quoted(name)} is read-only: leave it out."
                self.errors.append(AttributeFault(detail, pointer=self._pointer(attribute)))
            else:
                self._unchanged.append(Unchanged(attribute, self.slot(value, attribute)))

    def _read_only(self, resource: Resource, name: str, pointer: str | None) -> ApiError | None:
        """Return the error for a field that the principal may read and not write, otherwise None."""
        if name not in self.context.access.read_only.get(resource.type, ()):
            return None
        return not_allowed(self.context.principal, f"{quoted(name)} may not be written.", pointer=pointer)

    def assigned(self) -> None:
        """Plan the attributes that custom code sets. An unknown name is a fault of the custom code, not of the
        client."""
        for name, value in self.change.assigned.items():
            attribute = self.resource.attribute(name)
            if attribute is None or not attribute.is_stored:
                raise ValueError(f"custom code assigns {name!r}: {self.resource.type} has no such stored attribute")
            self._assign(attribute, value)

    def set_by_rules(self) -> None:
        """Plan the fields that rules set, after all others. A field that was sent or that custom code has set keeps its
        value."""
        by_column = {assignment.column: assignment for assignment in self._assignments}
        for field in self.context.access.assigned.get(self.resource.type, ()):
            target, value = assigned_target(field, self.resource, self.catalog), self.context.values[field.index]
            key = key_of_target(target, self.catalog)
            sent = [by_column.get(name) for name in key.columns]
            other = next((one for one in differing(sent, key, value, self.values)), None)
            if None in sent:
                added = zip(self._set_by_rule(target, key, value), sent, strict=True)
                self._assignments += [one for one, known in added if known is None]
            if other is not None and field.is_fixed and field.name not in self.change.assigned:
                # Only the path can name a relationship that the principal may not read, from its other side.
                name = quoted(field.name) if self._is_readable(target) else "What the path links it to"
                detail = f"{name} is set by a rule: leave it out, or send the value that the rule sets."
                pointer = self._pointer(self.places[other.slot])
                self.errors.append(not_allowed(self.context.principal, detail, pointer=pointer))

    def _is_readable(self, target: Attribute | ToOne) -> bool:
        return target.readable if isinstance(target, Attribute) else target in self.resource.relationships

    def _set_by_rule(self, target: Attribute | ToOne, key: Key, value: Any) -> list[Assignment]:
        if isinstance(target, Attribute):
            return [Assignment(target.column_name, self.slot(value, target), target)]
        place = self._relationship(target.name) if self._is_readable(target) else self.change.pointer
        return key_assignments(key, self.slot(value, place), owner=self._locked_owner(target))

    def check_columns(self, id_slot: int | None) -> None:
        """Check that each column is set once, and that fields with a column in common have the same value for it."""
        key, pointers = self.resource.id.key, [self._pointer(place) for place in self.places]
        self._assignments, self._agreements = split_shared(self._assignments, key, id_slot, on_create=self.on_create)
        self.errors += repeated_columns(self._assignments, pointers, self.resource.abilities)
        different = [one for one in self._agreements if not agree(one, self.values)]
        path = self.change.pointer if self.on_create else None
        self.errors += [disagreement(one, pointers, id_slot, path) for one in different]

    def _unknown_attribute(self, name: str) -> None:
        if self.resource.relationship(name) is not None:
            detail = f"{quoted(name)} is a relationship: put it under `relationships`."
        else:
            known = [attribute.name for attribute in self.resource.attributes if attribute.readable]
            detail = f"{self.resource.type} has no attribute {quoted(name)}.{nearest(name, known)}"
        pointer = self.pointers.attribute_pointer(self.change.pointer, name)
        self.errors.append(AttributeFault(detail, pointer=pointer))

    def _assign(self, attribute: Attribute, value: Any) -> None:
        try:
            native = read_attribute(attribute, value, self.checks.get(attribute))
        except ValueFault as error:
            shown = "" if value is None else f", not {shortened(dump_json(value))}"
            detail = f"{quoted(attribute.name)} must be {error}{shown}."
            self.errors.append(AttributeFault(detail, pointer=self._pointer(attribute)))
        else:
            self._assignments.append(Assignment(attribute.column_name, self.slot(native, attribute), attribute))

    def missing(self) -> None:
        """Report missing required fields. Fields that could not be decoded have their errors already."""
        change = self.change
        if self.on_create:
            if "attributes" not in change.undecoded:
                self._missing_attributes(known for known in self.resource.attributes if known.required)
            self._missing_relationships()
        elif change.attributes is not None:
            self._missing_attributes(known for known in self.resource.attributes if known.required_on_update)

    def _missing_attributes(self, required: Iterable[Attribute]) -> None:
        given = (self.change.attributes or {}, self.change.assigned, self._set_by_rules)
        for attribute in required:
            if not any(attribute.name in names for names in given) and not is_in_id(
                self.change, self.resource, (attribute.column_name,)
            ):
                detail = f"The attribute {quoted(attribute.name)} is required."
                self.errors.append(AttributeFault(detail, pointer=self._pointer(attribute)))

    def _missing_relationships(self) -> None:
        change = self.change
        written = written_relationships(change, self.resource, self.catalog)
        for relationship in self.resource.relationships:
            is_required = isinstance(relationship, ToOne) and relationship.is_required
            is_undecoded = change.undecoded & {"relationships", f"relationships/{relationship.name}"}
            is_given = relationship.name in written or relationship.name in self._set_by_rules
            own = own_key_of(relationship)
            is_given = is_given or (own is not None and is_in_id(self.change, self.resource, own.own_columns))
            if is_required and not is_given and not is_undecoded:
                detail = f"The relationship {quoted(relationship.name)} is required."
                pointer = self._relationship(relationship.name)
                self.errors.append(RelationshipFault(detail, pointer=pointer))

    def relationships(self) -> None:
        """Plan the relationships of the document."""
        for name, linkage in self.change.relationships.items():
            relationship = self.resource.relationship(name)
            if relationship is None:
                known = [relation.name for relation in self.resource.relationships]
                detail = f"{self.resource.type} has no relationship {quoted(name)}.{nearest(name, known)}"
                pointer = linkage.name_pointer or self._relationship(name)
                self.errors.append(RelationshipFault(detail, pointer=pointer))
            elif (fault := self._unwritable(self.resource, relationship, linkage.pointer)) is not None:
                self.errors.append(fault)
            elif linkage.mode != "replace" and not relationship.is_to_many:
                detail = f"{quoted(name)} is to-one: it can be replaced, but nothing can be added or removed."
                self.errors.append(RelationshipFault(detail, pointer=linkage.name_pointer or linkage.pointer))
            elif linkage.mode not in relationship.methods:
                detail = f"The relationship {quoted(name)} cannot be written here."
                self.errors.append(MethodForbidden(detail, pointer=linkage.pointer))
            elif why := why_fixed(self.change, self.resource, relationship, linkage, self.catalog):
                detail = f"The relationship {quoted(name)} cannot be written here: {why}."
                self.errors.append(MethodForbidden(detail, pointer=linkage.pointer))
            elif linkage.is_list != relationship.is_to_many:
                what = (
                    "an array of resource identifiers" if relationship.is_to_many else "one resource identifier or null"
                )
                detail = f"The data of {quoted(name)} must be {what}."
                self.errors.append(RelationshipFault(detail, pointer=linkage.pointer))
            elif (own := own_key_of(relationship)) is not None and not (self.on_create or own.updatable):
                self._keep(own, linkage)
            else:
                self._link(relationship, linkage)

    def _unwritable(self, resource: Resource, relationship: Relationship, pointer: str | None) -> ApiError | None:
        """Return the error if the principal may not write the relationship, or an other side of it, which the error
        does not name. Otherwise None."""
        names = self.context.access.read_only.get(relationship.target)
        if not names or names.isdisjoint(self.catalog.other_sides(resource, relationship)):
            return self._read_only(resource, relationship.name, pointer)
        return not_allowed(self.context.principal, f"{quoted(relationship.name)} may not be written.", pointer=pointer)

    def _keep(self, own: ToOne, linkage: LinkageChange) -> None:
        """Plan a to-one that is only set on create, in a document that updates its resource."""
        for identifier in linkage.identifiers:
            self._linked_id(identifier, self.catalog.target(own), linkage)
        text = linkage.identifiers[0].id if linkage.identifiers else None
        target = open_key_rows(own, self.resource, self.resource.table, self.catalog, self.context)
        self._unchanged.append(Unchanged(self.catalog.key_of(own), self.slot(text, linkage.pointer), own, target))

    def _link(self, relationship: Relationship, linkage: LinkageChange) -> None:
        target, own = self.catalog.target(relationship), own_key_of(relationship)
        has_key = own is None and link_of(relationship) is None
        if has_key and (error := refused_action(target, "update", self.context, linkage.pointer)) is not None:
            self.errors.append(error)
        rows = open_written(target, self.context, "update") if has_key else open_named(target, self.context)
        ids: dict[Any, str] = {}
        for identifier in linkage.identifiers:
            id_value = self._linked_id(identifier, target, linkage)
            if id_value is not None:
                ids.setdefault(id_value, identifier.pointer)
        if own is not None:
            if not linkage.identifiers and not own.nullable:
                self.errors.append(null_refused(own, linkage.pointer, on_create=self.on_create))
            if not ids and (linkage.identifiers or not own.nullable):
                return  # It has its error already.
            slot = self.slot(next(iter(ids), None), next(iter(ids.values()), linkage.pointer))
            # A key that refers to other columns than the id is looked up, so its row must be there.
            facts = {"owner": self._locked_owner(own), "target": rows if rows.criteria or own.references else None}
            self._assignments += assigned_key(own, slot, self.values[slot], self.resource, self.catalog, **facts)
        else:
            slot = self.slot(list(ids), linkage.pointer)
            self.item_pointers[slot] = tuple(ids.values())
            is_detachable = self.catalog.is_detachable(relationship)
            visible = rows_with_alias(rows, TARGET) if rows.criteria else None
            checked = open_checked(target, self.context, "update") if has_key else None
            emptied = self.catalog.emptied_columns(target, relationship.foreign_columns)
            what = self.resource, relationship, rows, slot, linkage.mode, is_detachable
            link = LinkWrite(*what, visible=visible, checked=checked, emptied=emptied)
            self._links.append(in_lock_order(link, self.catalog))

    def _locked_owner(self, own: ToOne) -> Rows | None:
        """Return the rows of the other side of a to-one, if a write there may remove the link."""
        is_locked = self.catalog.is_written_from_owner(self.resource, own)
        return open_named(self.catalog.target(own), self.context) if is_locked else None

    def _linked_id(self, identifier: Identifier, target: Resource, linkage: LinkageChange) -> Any:
        """Return the id of a resource identifier. Returns None if it has an error, or if the link is removed and cannot
        exist."""
        if identifier.type != target.type:
            detail = f"This relationship is to resources of type {quoted(target.type)}, not {quoted(identifier.type)}."
            pointer = self.pointers.member_pointer(identifier.pointer, "type")
            self.errors.append(LinkageTypeConflict(detail, pointer=pointer))
            return None
        if identifier.lid is not None:
            return self._lid(target, identifier.lid)
        try:
            return target.id_type.read(identifier.id)
        except ValueFault:
            if linkage.mode != "remove":
                self.errors.append(related_not_found(target.type, identifier.id, identifier.pointer))
            return None

    def owner(self, owner: Owner) -> OwnerRow:
        """Link a new resource to the one of the path, by its own key or through a link table."""
        parent, relationship = self.catalog.by_type[owner.type], owners_relationship(owner, self.catalog)
        check_action(parent, "read", self.context)
        if "add" not in relationship.methods:
            detail = f"The relationship {quoted(relationship.name)} cannot be written here."
            self.errors.append(MethodForbidden(detail))
        elif (fault := self._unwritable(parent, relationship, None)) is not None:
            self.errors.append(fault)
        slot = self.slot(parent.id_type.read(owner.id), self.change.pointer)
        holder = self.catalog.holder(relationship)
        if holder not in self.resource.relationships:
            # The principal may not read it, so the document cannot name it.
            holder = None
        if link_of(relationship) is not None:
            self._links.append(self._through(relationship, owner))
        elif holder is None or holder.name not in self.change.relationships:
            key = referring_key(relationship, relationship.foreign_columns, parent)
            target = open_named(parent, self.context) if relationship.references else None
            self._assignments += key_assignments(key, slot, target=target)
        elif any(is_value_of(one, holder) for one in self._assignments):
            self._check_owner(self.change.relationships[holder.name], owner)
        return self._owner_row(parent, slot, has_links=link_of(relationship) is not None)

    def _owner_row(self, parent: Resource, slot: int, *, has_links: bool) -> OwnerRow:
        """Return the row of the path. has_links: whether its links are rows of a link table. Such a link is made for
        this row as well as for the new one; a key is one of the new row."""
        if not has_links:
            return OwnerRow(open_named(parent, self.context), slot)
        if (error := refused_action(parent, "update", self.context)) is not None:
            self.errors.append(error)
        checked = open_checked(parent, self.context, "update")
        return OwnerRow(open_written(parent, self.context, "update"), slot, checked)

    def _through(self, relationship: Relationship, owner: Owner) -> LinkWrite:
        """Return the same link, seen from the new resource."""
        parent = self.catalog.by_type[owner.type]
        slot = self.slot([parent.id_type.read(owner.id)], self.change.pointer)
        self.item_pointers[slot] = (self.change.pointer,)
        inverse = self.catalog.inverse(relationship)
        return LinkWrite(self.resource, inverse, open_named(parent, self.context), slot, "add", is_detachable=True)

    def _check_owner(self, linkage: LinkageChange, owner: Owner) -> None:
        if [(sent.type, sent.id) for sent in linkage.identifiers] != [(owner.type, owner.id)]:
            detail = f"The path links it to the {owner.type} {quoted(owner.id)}, but the document to another one."
            self.errors.append(OwnerConflict(detail, pointer=linkage.pointer))
