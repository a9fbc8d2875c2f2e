"""Change, with the Catalog, -> WritePlan. What comes in: a decoded document, names unresolved. What goes out:
a plan, the values for its slots, and where in the document each value stood. Every fault of the document is
collected; what only the database can know comes later.

Nothing here knows SQL text, rows or HTTP.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Literal

import msgspec

from querybuild.errors import (
    ApiError,
    AttributeFault,
    BodyError,
    ClientIdForbidden,
    IdConflict,
    LinkageTypeConflict,
    MethodForbidden,
    RelatedNotFound,
    RelationshipFault,
    RequiredLink,
    TypeConflict,
    nearest,
    quoted,
    shown_json,
)
from querybuild.plan import Assignment, LinkWrite, Unchanged, Values, WritePlan
from querybuild.query import Change, Identifier, LinkageChange
from querybuild.resource import Attribute, Catalog, Relationship, Resource, ToOne
from querybuild.values import JsonFault, ValueFault, check_texts, dump_json


class PlannedWrite(msgspec.Struct, frozen=True):
    """values: for the slots of the plan. pointers: slot -> where its value stood in the document; of a list,
    where each item stood.
    written: the relationships that the document carried."""

    plan: WritePlan
    values: Values
    pointers: dict[int, str | tuple[str, ...]]
    written: tuple[str, ...] = ()
    pointer: str = ""


def plan_create(change: Change, resource: Resource, catalog: Catalog, errors: list[ApiError]) -> PlannedWrite:
    """A new resource. Appends to errors: TypeConflict, ClientIdForbidden, AttributeFault, RelationshipFault,
    LinkageTypeConflict, RelatedNotFound."""
    planner = _WritePlanner(resource, catalog, errors, on_create=True)
    if not planner.check_type(change):
        return planner.planned(change, "create", None)
    id_slot = planner.client_id(change)
    planner.attributes(change)
    planner.relationships(change)
    planner.missing(change)
    return planner.planned(change, "create", id_slot)


def plan_update(
    change: Change, resource: Resource, id_text: str, id_value: Any, catalog: Catalog, errors: list[ApiError]
) -> PlannedWrite:
    """The resource of the path, changed. Appends to errors: TypeConflict, IdConflict, and those of a create
    but ClientIdForbidden; RequiredLink and MethodForbidden."""
    planner = _WritePlanner(resource, catalog, errors, on_create=False)
    id_slot = planner.slot(id_value, f"{change.pointer}/id")
    if planner.check_type(change):
        if change.id is not None and change.id != id_text:
            detail = f"The document's id {quoted(change.id)} is not the id {quoted(id_text)} of the path."
            errors.append(IdConflict(detail, pointer=f"{change.pointer}/id"))
        planner.attributes(change)
        planner.relationships(change)
        planner.missing_on_update(change)
    return planner.planned(change, "update", id_slot)


def plan_delete(resource: Resource, id_value: Any) -> PlannedWrite:
    return PlannedWrite(WritePlan(kind="delete", resource=resource, id_slot=0), (id_value,), {})


class _WritePlanner:
    """One document's planning: what it has resolved so far."""

    def __init__(self, resource: Resource, catalog: Catalog, errors: list[ApiError], *, on_create: bool) -> None:
        self.resource = resource
        self.catalog = catalog
        self.errors = errors
        self.on_create = on_create
        self.values: list[Any] = []
        self.pointers: dict[int, str | tuple[str, ...]] = {}
        self.assignments: list[Assignment] = []
        self.unchanged: list[Unchanged] = []
        self.links: list[LinkWrite] = []

    def slot(self, value: Any, pointer: str | tuple[str, ...]) -> int:
        self.values.append(value)
        self.pointers[len(self.values) - 1] = pointer
        return len(self.values) - 1

    def planned(self, change: Change, kind: Literal["create", "update"], id_slot: int | None) -> PlannedWrite:
        plan = WritePlan(
            kind=kind,
            resource=self.resource,
            id_slot=id_slot,
            assignments=tuple(self.assignments),
            links=tuple(self.links),
            unchanged=tuple(self.unchanged),
        )
        written = tuple(known.name for known in self.resource.relationships if known.name in change.relationships)
        return PlannedWrite(plan, tuple(self.values), self.pointers, written, change.pointer)

    def check_type(self, change: Change) -> bool:
        if change.type is None or change.type == self.resource.type:
            return True
        detail = f"This route is for resources of type {quoted(self.resource.type)}, not {quoted(change.type)}."
        self.errors.append(TypeConflict(detail, pointer=f"{change.pointer}/type"))
        return False

    def client_id(self, change: Change) -> int | None:
        if change.id is None:
            return None
        pointer = f"{change.pointer}/id"
        if not self.resource.client_ids:
            detail = f"The server chooses the id of a {self.resource.type}: leave `id` out."
            self.errors.append(ClientIdForbidden(detail, pointer=pointer))
            return None
        try:
            slot = self.slot(self.resource.id_type.read(change.id), pointer)
        except ValueFault as error:
            self.errors.append(AttributeFault(f"An id of a {self.resource.type} must be {error}.", pointer=pointer))
            return None
        self.assignments.append(Assignment(self.resource.id.column, slot))
        return slot

    def attributes(self, change: Change) -> None:
        for name, value in (change.attributes or {}).items():
            pointer = f"{change.pointer}/attributes/{escape_pointer(name)}"
            attribute = self.resource.attribute(name)
            if attribute is None:
                self._unknown_attribute(name, pointer)
            elif attribute.is_writable(on_create=self.on_create):
                self._assign(attribute, value, pointer)
            elif self.on_create or not attribute.readable:
                self.errors.append(AttributeFault(f"{quoted(name)} is read-only: leave it out.", pointer=pointer))
            else:
                self.unchanged.append(Unchanged(attribute, self.slot(value, pointer)))

    def _unknown_attribute(self, name: str, pointer: str) -> None:
        if self.resource.relationship(name) is not None:
            detail = f"{quoted(name)} is a relationship: put it under `relationships`."
        else:
            known = [attribute.name for attribute in self.resource.attributes if attribute.readable]
            detail = f"{self.resource.type} has no attribute {quoted(name)}.{nearest(name, known)}"
        self.errors.append(AttributeFault(detail, pointer=pointer))

    def _assign(self, attribute: Attribute, value: Any, pointer: str) -> None:
        try:
            native = None if value is None else read_attribute(attribute, value)
            if value is None and not attribute.nullable:
                raise ValueFault("a value, since it cannot be null")
        except ValueFault as error:
            shown = "" if value is None else f", not {shown_json(dump_json(value))}"
            detail = f"{quoted(attribute.name)} must be {error}{shown}."
            self.errors.append(AttributeFault(detail, pointer=pointer))
        else:
            self.assignments.append(Assignment(attribute.column_name, self.slot(native, pointer), attribute))

    def missing(self, change: Change) -> None:
        """What a create must have and does not. What was sent and could not be decoded has its fault already."""
        given = change.attributes or {}
        if "attributes" not in change.undecoded:
            required = (known for known in self.resource.attributes if known.required)
            self._missing_attributes(change, (known for known in required if known.name not in given))
        for relationship in self.resource.relationships:
            is_required = isinstance(relationship, ToOne) and relationship.is_required
            is_sent = relationship.name in change.relationships
            is_undecoded = change.undecoded & {"relationships", f"relationships/{relationship.name}"}
            if is_required and not is_sent and not is_undecoded:
                detail = f"The relationship {quoted(relationship.name)} is required."
                pointer = f"{change.pointer}/relationships/{relationship.name}"
                self.errors.append(RelationshipFault(detail, pointer=pointer))

    def missing_on_update(self, change: Change) -> None:
        given = change.attributes
        if given is not None:
            required = (known for known in self.resource.attributes if known.required_on_update)
            self._missing_attributes(change, (known for known in required if known.name not in given))

    def _missing_attributes(self, change: Change, attributes: Iterable[Attribute]) -> None:
        for attribute in attributes:
            pointer = f"{change.pointer}/attributes/{attribute.name}"
            detail = f"The attribute {quoted(attribute.name)} is required."
            self.errors.append(AttributeFault(detail, pointer=pointer))

    def relationships(self, change: Change) -> None:
        for name, linkage in change.relationships.items():
            relationship = self.resource.relationship(name)
            if relationship is None:
                known = [relation.name for relation in self.resource.relationships]
                detail = f"{self.resource.type} has no relationship {quoted(name)}.{nearest(name, known)}"
                pointer = f"{change.pointer}/relationships/{escape_pointer(name)}"
                self.errors.append(RelationshipFault(detail, pointer=pointer))
            elif "replace" not in relationship.methods:
                detail = f"The relationship {quoted(name)} cannot be written here."
                self.errors.append(MethodForbidden(detail, pointer=linkage.pointer))
            elif linkage.is_list != relationship.is_to_many:
                one, many = "one resource identifier or null", "an array of resource identifiers"
                expected = many if relationship.is_to_many else one
                detail = f"The data of {quoted(name)} must be {expected}."
                self.errors.append(RelationshipFault(detail, pointer=linkage.pointer))
            else:
                self._link(relationship, linkage)

    def _link(self, relationship: Relationship, linkage: LinkageChange) -> None:
        target = self.catalog.target(relationship)
        ids: dict[Any, str] = {}
        for identifier in linkage.identifiers:
            id_value = self._linked_id(identifier, target)
            if id_value is not None:
                ids.setdefault(id_value, identifier.pointer)
        if isinstance(relationship, ToOne) and relationship.is_own_key:
            if not linkage.identifiers and not relationship.nullable:
                self.errors.append(self._null_refused(relationship, linkage.pointer))
            slot = self.slot(next(iter(ids), None), next(iter(ids.values()), linkage.pointer))
            self.assignments.append(Assignment(relationship.column_name, slot))
        else:
            slot = self.slot(list(ids), tuple(ids.values()))
            is_detachable = self.catalog.is_detachable(relationship)
            self.links.append(LinkWrite(self.resource, relationship, target, slot, is_detachable))

    def _linked_id(self, identifier: Identifier, target: Resource) -> Any:
        """The id that a resource identifier names, or None after its fault was kept."""
        if identifier.type != target.type:
            detail = f"This relationship is to resources of type {quoted(target.type)}, not {quoted(identifier.type)}."
            self.errors.append(LinkageTypeConflict(detail, pointer=f"{identifier.pointer}/type"))
            return None
        try:
            return target.id_type.read(identifier.id)
        except ValueFault:
            self.errors.append(related_not_found(target, identifier.id, identifier.pointer))
            return None

    def _null_refused(self, relationship: ToOne, pointer: str) -> BodyError:
        if self.on_create:
            return RelationshipFault(f"The relationship {quoted(relationship.name)} is required.", pointer=pointer)
        detail = f"The relationship {quoted(relationship.name)} must not be empty."
        return RequiredLink(detail, pointer=pointer)


def related_not_found(target: Resource, id_text: str, pointer: str) -> RelatedNotFound:
    return RelatedNotFound(f"There is no {target.type} with the id {quoted(id_text)}.", pointer=pointer)


def escape_pointer(name: str) -> str:
    """A member name as a reference token of RFC 6901."""
    return name.replace("~", "~0").replace("/", "~1")


def read_attribute(attribute: Attribute, value: Any) -> Any:
    """A JSON value as what is bound. Raises ValueFault."""
    native = attribute.type.from_json(value)
    for check in (_check_texts, _check_shape, _check_length, _check_range, _check_pattern):
        check(attribute, value, native)
    return native


def _check_texts(attribute: Attribute, value: Any, native: Any) -> None:
    try:
        check_texts(value)
    except JsonFault as error:
        raise ValueFault(f"a value that PostgreSQL can hold ({error})") from error


def _check_shape(attribute: Attribute, value: Any, native: Any) -> None:
    if attribute.shape is None:
        return
    try:
        msgspec.convert(value, attribute.shape)
    except msgspec.ValidationError as error:
        raise ValueFault(f"JSON of the declared shape ({error})") from error


def _check_length(attribute: Attribute, value: Any, native: Any) -> None:
    low, high = attribute.min_length, attribute.max_length
    if (low is not None and len(value) < low) or (high is not None and len(value) > high):
        unit = "items" if isinstance(value, list) else "characters"
        bounds = _bounds(low, high, lambda number: f"{number} {unit}")
        raise ValueFault(f"{bounds} long")


def _check_range(attribute: Attribute, value: Any, native: Any) -> None:
    low, high = attribute.minimum, attribute.maximum
    if (low is not None and native < low) or (high is not None and native > high):
        raise ValueFault(_bounds(low, high, str))


def _check_pattern(attribute: Attribute, value: Any, native: Any) -> None:
    if attribute.pattern is not None and not re.fullmatch(attribute.pattern, value):
        raise ValueFault(f"a text that matches {attribute.pattern}")


def _bounds(low: Any, high: Any, shown: Callable[[Any], str]) -> str:
    if low is None:
        return f"at most {shown(high)}"
    return f"at least {shown(low)}" if high is None else f"from {low} to {shown(high)}"
