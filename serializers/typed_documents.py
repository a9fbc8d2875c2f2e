"""Decodes the document of one resource object and checks the types of its values in one step. What comes in: a body.
What goes out: the values in the order of the declarations; or None if anything is unusual, such as another member or a
wrong type. Then `serializers/decode.py` decodes the document step by step and reports its errors.

It must not know: resources, columns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from itertools import compress, repeat
from operator import is_not
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import astuple

from querybuild.declarations.json_texts import count_names, has_all_names

MIN_DEPTH = 7
"""How deep a document may be at least, so that its linkage is not too deep."""

_DEPTH_OF_VALUES = 3
"""How many objects are around the value of an attribute."""

_UNSET = repeat(UNSET)

_STRICT: dict[str, Any] = {"forbid_unknown_fields": True, "gc": False}

_FORBIDDEN = re.compile(r"\\u(0000|[dD][89a-fA-F])")
"""U+0000, and a surrogate, which may be half of a pair."""


class Member(msgspec.Struct, frozen=True):
    """An attribute. type: of its JSON values, for msgspec. is_open: whether a value may contain objects."""

    name: str
    type: Any
    is_open: bool


class RelatedType(msgspec.Struct, frozen=True):
    """A relationship. type: of the related resources. is_list: whether it is to-many."""

    name: str
    type: str
    is_list: bool


class Typed(NamedTuple):
    """A decoded document. shape: which members it has, and which linkage is empty. id: None if it has none. values: of
    the attributes that it has. linked: for each relationship that it has, None, an object with an `id`, or a list of
    such objects."""

    shape: tuple[Any, ...]
    id: str | None
    values: list[Any]
    linked: list[Any]


class TypedDocument:
    """Decodes the documents of one resource. max_depth: as for `load_json`."""

    def __init__(
        self, type_name: str, attributes: Sequence[Member], relationships: Sequence[RelatedType], max_depth: int
    ) -> None:
        attributes_type = _optional("Attributes", [(attribute.name, attribute.type) for attribute in attributes])
        relationships_type = _optional(
            "Relationships", [(relationship.name, _linkage(relationship)) for relationship in relationships]
        )
        # A tag of msgspec may be absent.
        members: list[tuple[str, Any] | tuple[str, Any, Any]] = [
            ("type", Literal[type_name]),
            ("id", str | UnsetType, UNSET),
            ("attributes", attributes_type | UnsetType, UNSET),
            ("relationships", relationships_type | UnsetType, UNSET),
        ]
        data = msgspec.defstruct("Data", members, **_STRICT)
        document: Any = msgspec.defstruct("Document", [("data", data)], **_STRICT)
        self._decode = msgspec.json.Decoder(document, float_hook=Decimal).decode
        self._has_open = any(attribute.is_open for attribute in attributes)
        self._max_inner_depth = max_depth - _DEPTH_OF_VALUES

    def decode(self, body: bytes) -> Typed | None:
        """Decode a document. Returns None if it is not one of this resource, or may have an error."""
        try:
            text = body.decode()
            if "\\u" in text and _FORBIDDEN.search(text):
                return None
            data = self._decode(text).data
        except (msgspec.MsgspecError, ValueError, ArithmeticError, RecursionError):
            return None
        values: list[Any] = []
        linked: list[Any] = []
        given = filled = None
        names, objects = 2 if data.id is UNSET else 3, 2
        if data.attributes is not UNSET:
            sent = astuple(data.attributes)
            given = tuple(map(is_not, sent, _UNSET))
            values = list(compress(sent, given))
            names += 1 + len(values)
            objects += 1
        if data.relationships is not UNSET:
            linkages = astuple(data.relationships)
            present = tuple(map(is_not, linkages, _UNSET))
            linked = [member.data for member in compress(linkages, present)]
            filled = present, tuple(map(bool, linked))
            identifiers = sum(
                [len(linkage) if linkage.__class__ is list else linkage is not None for linkage in linked]
            )
            names += 1 + 2 * (len(linked) + identifiers)
            objects += 1 + len(linked) + identifiers
        inner = self._inner_names(text, values, objects) if self._has_open else 0
        # msgspec keeps the last of several members with one name.
        if inner is None or not has_all_names(text, names + inner):
            return None
        return Typed((data.id is UNSET, given, filled), None if data.id is UNSET else data.id, values, linked)

    def _inner_names(self, text: str, values: list[Any], objects: int) -> int | None:
        """Return how many names the values have, or None if one is nested too deep. objects: how many there are around
        the values."""
        opened, lists = text.count("{"), text.count("[")
        if opened == objects and lists <= self._max_inner_depth:
            return 0
        return count_names(values, opened + lists, self._max_inner_depth)


def _linkage(target: RelatedType) -> Any:
    """Return the type of a relationship object."""
    identifier: Any = msgspec.defstruct("Identifier", [("type", Literal[target.type]), ("id", str)], **_STRICT)
    return msgspec.defstruct(
        "Linkage", [("data", list[identifier] if target.is_list else identifier | None)], **_STRICT
    )


def _optional(name: str, members: Sequence[tuple[str, Any]]) -> Any:
    """Return the type of an object whose members may be absent. Their names need not be names of Python."""
    fields: list[tuple[str, Any, Any]] = [
        (f"f{number}", kind if kind is Any else kind | UnsetType, UNSET) for number, (_, kind) in enumerate(members)
    ]
    names = {field: member for (field, _, _), (member, _) in zip(fields, members, strict=True)}
    return msgspec.defstruct(name, fields, rename=names, **_STRICT)
