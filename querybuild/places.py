"""Defines places in a request document. The place of a value is needed for errors that point to it.

A place is a field, or a pointer from the decoder. It must not know: how a pointer is written. That is in
`serializers/pointers.py`, which the server passes to the planning of writes as `Pointers`.
"""

from __future__ import annotations

from typing import Protocol

from querybuild.declarations.resource import Attribute, Id

Place = str | Attribute | Id
"""The place of a slot's value: a pointer from the decoder, or the attribute or the id of the resource object."""


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
