"""Keeps the parts of the plan of one write, while a document is planned field by field.

It must not know: which fields there are, SQL text.
"""

from __future__ import annotations

from typing import Any

from querybuild.declarations.resource import Attribute, Resource
from querybuild.errors import ApiError, not_allowed, quoted
from querybuild.places import Place, Pointers
from querybuild.planning.context import Context, View
from querybuild.planning.row_plan import Slot
from querybuild.planning.writes.shared_columns import Agreement
from querybuild.planning.writes.write_plan import Assignment, Expected, Implied, Kept, LinkWrite
from querybuild.query import Change, Lid


class Draft:
    """The values, assignments and links so far, and what they are planned from. on_create: whether the write is a
    create. set_by_rules: the names of the fields that rules set."""

    def __init__(
        self,
        change: Change,
        resource: Resource,
        view: View,
        context: Context,
        pointers: Pointers,
        errors: list[ApiError],
    ) -> None:
        self.change = change
        self.resource = resource
        self.view = view
        self.catalog = view.catalog
        self.context = context
        self.pointers = pointers
        self.errors = errors
        self.on_create = change.kind == "create"
        fields = context.access.assigned.get(resource.type, ()) if self.on_create else ()
        self.set_by_rules = frozenset([field.name for field in fields])
        self.values: list[Any] = []
        self.has_lids = False
        self.places: list[Place] = []
        self.item_pointers: dict[int, tuple[str, ...]] = {}
        self.assignments: list[Assignment] = []
        self.precondition: list[Expected] = []
        self.links: list[LinkWrite] = []
        self.agreements: list[Agreement] = []
        self.kept: list[Kept] = []
        self.implied: list[Implied] = []

    def slot(self, value: Any, place: Place) -> int:
        """Add a value and return its slot."""
        self.values.append(value)
        self.places.append(place)
        return len(self.values) - 1

    def expect(self, attribute: Attribute, value: Any, place: Place, **facts: Any) -> None:
        """Add a value that the row must have. facts: as in `Expected`."""
        self.precondition.append(Expected(attribute, Slot("request", self.slot(value, place)), **facts))

    def member_pointer(self, name: str) -> str:
        """Return the pointer to a member of the resource object."""
        return self.pointers.member_pointer(self.change.pointer, name)

    def relationship_pointer(self, name: str) -> str:
        """Return the pointer to a relationship of the resource object."""
        return self.pointers.relationship_pointer(self.change.pointer, name)

    def pointer_of(self, place: Place) -> str:
        """Return the pointer to the value of a slot."""
        return self.pointers.place_pointer(self.change.pointer, place)

    def lid(self, resource: Resource, lid: str) -> Lid:
        """Return the value that replaces an id which is not known yet."""
        self.has_lids = True
        return Lid(resource.type, lid)

    def read_only(self, resource: Resource, name: str, pointer: str | None) -> ApiError | None:
        """Return the error for a field that the principal may read and not write, otherwise None."""
        if name not in self.context.access.read_only_of(resource.type):
            return None
        return not_allowed(self.context.principal, f"{quoted(name)} may not be written.", pointer=pointer)
