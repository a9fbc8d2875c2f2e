"""Names the places of a request document: where a value stood, for the errors that point at it.

Here a place is a field, or a pointer that the decoder gave. It must not know: how a pointer is written. That is in
`serializers/pointers.py`, which the server hands to the planning of writes as `Pointers`.
"""

from __future__ import annotations

from typing import Protocol

from querybuild.resource import Attribute, Id

Place = str | Attribute | Id
"""Where the value of a slot stood: a pointer of the decoder, or the attribute or the id of the resource object."""


class Pointers(Protocol):
    """Writes the pointers to parts of an object. pointer: to that object, usually a resource object."""

    def member_pointer(self, pointer: str, name: str) -> str:
        """Return the pointer to a member."""

    def attribute_pointer(self, pointer: str, name: str) -> str:
        """Return the pointer to an attribute."""

    def relationship_pointer(self, pointer: str, name: str) -> str:
        """Return the pointer to a relationship."""

    def place_pointer(self, pointer: str, place: Place) -> str:
        """Return the pointer to a place."""
