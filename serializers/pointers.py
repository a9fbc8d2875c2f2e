"""Writes and reads JSON pointers into request documents. Source: RFC 6901."""

from __future__ import annotations

from querybuild.declarations.resource import Attribute
from querybuild.places import Place
from querybuild.planning.changes import PlannedWrite

MAX_CHARACTERS = 8192
"""The longest pointer in an answer."""

META = "/meta"


def escape(name: str) -> str:
    """A member name as a reference token."""
    return name.replace("~", "~0").replace("/", "~1")


def member_pointer(pointer: str, name: str) -> str:
    """The pointer to a member of the object at a pointer, such as `id`."""
    return f"{pointer}/{escape(name)}"


def attribute_pointer(pointer: str, name: str) -> str:
    """The pointer to an attribute of the resource object at a pointer.

    >>> attribute_pointer("/data", "a/b")
    '/data/attributes/a~1b'
    """
    return f"{pointer}/attributes/{escape(name)}"


def relationship_pointer(pointer: str, name: str) -> str:
    """The pointer to a relationship of the resource object at a pointer."""
    return f"{pointer}/relationships/{escape(name)}"


def place_pointer(pointer: str, place: Place) -> str:
    """The pointer to a place in the resource object at a pointer."""
    if isinstance(place, str):
        return place
    return attribute_pointer(pointer, place.name) if isinstance(place, Attribute) else member_pointer(pointer, "id")


def slot_pointer(write: PlannedWrite, slot: int) -> str:
    """The pointer to the value of a slot."""
    return place_pointer(write.pointer, write.places[slot])


def tokens(pointer: str) -> list[str]:
    """The names and indexes of a pointer.

    >>> tokens("/data/attributes/a~1b")
    ['data', 'attributes', 'a/b']
    """
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]


def short_pointer(pointer: str) -> str:
    """The pointer, or if it is too long, the pointer to the object that has the name that makes it too long.

    >>> short_pointer("/data/attributes/" + 10_000 * "x")
    '/data/attributes'
    """
    return pointer if len(pointer) <= MAX_CHARACTERS else pointer[:MAX_CHARACTERS].rpartition("/")[0]
