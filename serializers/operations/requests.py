"""Decodes requests of atomic operations, one by one, or column by column if they are many alike. What comes in: the
JSON value of a body. What goes out: the operations in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import msgspec

from querybuild.declarations.json_texts import ParsedJson, count_names
from querybuild.errors import ApiError
from querybuild.parse import ON_CONFLICT
from querybuild.query import Change, Limits
from serializers.decode import checked_document
from serializers.errors import MalformedOperations
from serializers.operations.reader import MEMBER, POINTER, Operation, Reader, unread


def load_operations(parsed: ParsedJson, max_operations: int) -> list[Any]:
    """Return the JSON values of the operations of a request. Raises MalformedJson, MalformedOperations."""
    document = checked_document(parsed)
    listed = document.get(MEMBER) if isinstance(document, dict) else None
    if not isinstance(listed, list) or not listed:
        raise MalformedOperations(f"The document must have `{MEMBER}`, an array of operations.", pointer=POINTER)
    if len(listed) > max_operations:
        detail = f"There are {len(listed)} operations; a request has at most {max_operations}."
        raise MalformedOperations(detail, pointer=POINTER)
    return listed


def decode_operations(
    listed: list[Any], operations: list[Operation], errors: list[ApiError], limits: Limits, *, is_extended: bool
) -> None:
    """Decode operations. They are appended in their order, so that an error that is raised halfway can show the
    operation that it is about. is_extended: whether they are those of the extension: then a `ref` may name a
    relationship, and no operation has a filter.

    Appends MalformedOperations, InvalidDocument and FilterError to errors.
    """
    reader = Reader(errors, limits, is_extended=is_extended)
    for index, item in enumerate(listed):
        pointer = f"{POINTER}/{index}"
        # It is appended before it is decoded, because an error shows the operation.
        operations.append(unread(item, pointer))
        operations[-1] = reader.operation(item, pointer)


class UniformAdds(msgspec.Struct, frozen=True):
    """Adds of one type whose documents have the same members. values: as JSON values. first: the first one.
    attributes: the values of each attribute in all of them, in the order of the document. linked: for each
    relationship, all of which are to-one, the type and the ids."""

    values: list[Any]
    first: Change
    attributes: Sequence[Sequence[Any]]
    linked: Sequence[tuple[str, Sequence[str]]]


_ALIKE_MEMBERS = {"type", "lid", "attributes", "relationships"}


_ATTRIBUTE_DEPTH, _ALIKE_DEPTH = 5, 7
"""How deep the attributes of an operation are in the document, and how deep linkage is."""


def uniform_adds(parsed: ParsedJson, min_operations: int, max_operations: int, limits: Limits) -> UniformAdds | None:
    """Decode operations column by column. Returns None if they are not alike or of another number, if there may be an
    error in the JSON or in their structure, or if the text may contain U+0000: then they are decoded one by one."""
    document, text = parsed.tree, parsed.text
    listed = document.get(MEMBER) if isinstance(document, dict) else None
    if not isinstance(listed, list) or not min_operations <= len(listed) <= max_operations:
        return None
    if parsed.max_depth < _ALIKE_DEPTH or ("\\" in text and "\\u0000" in text):
        return None
    reader = _ColumnReader()
    try:
        attributes, linked = reader.adds(listed)
    except (KeyError, TypeError, ValueError):
        return None
    if not parsed.is_checked and not parsed.has_names(_names(parsed, reader, attributes)):
        return None
    errors: list[ApiError] = []
    first = Reader(errors, limits, is_extended=False).operation(listed[0], f"{POINTER}/0").change
    return None if first is None or errors else UniformAdds(listed, first, attributes, linked)


def _names(parsed: ParsedJson, reader: _ColumnReader, attributes: Sequence[Sequence[Any]]) -> int | None:
    """Return how many names the document has, or None if it is nested too deep. Only what may be nested is looked
    at."""
    document, containers = parsed.tree, parsed.containers
    others = count_names([document[name] for name in document if name != MEMBER], containers, parsed.max_depth - 1)
    inner: int | None = 0
    if reader.objects < containers - 2:
        inner = count_names(chain.from_iterable(attributes), containers, parsed.max_depth - _ATTRIBUTE_DEPTH)
    return None if others is None or inner is None else len(document) + others + reader.names + inner


class _ColumnReader:
    """Reads the members of similar objects as columns. objects, names: how many objects it has read, and how many names
    they have together."""

    def __init__(self) -> None:
        self.objects = self.names = 0

    def adds(self, listed: Sequence[Any]) -> tuple[list[Sequence[Any]], list[tuple[str, Sequence[str]]]]:
        """Return the attributes and the linkage of adds. Raises KeyError, TypeError, ValueError if they are not
        alike."""
        operations = self._columns(listed)
        data = self._columns(operations.pop("data"))
        if "meta" in operations:
            [(name, values)] = self._columns(operations.pop("meta")).items()
            if name != ON_CONFLICT or not _only(values):
                raise ValueError
        if set(operations) != {"op"} or not data.keys() <= _ALIKE_MEMBERS or _only(operations["op"]) != "add":
            raise ValueError
        _only(data["type"])
        lids = data.get("lid", ())
        if len(set(lids)) < len(lids) or not all(lids) or not set(map(type, lids)) <= {str}:
            raise ValueError
        attributes = self._columns(data["attributes"]) if "attributes" in data else {}
        relationships = self._columns(data["relationships"]) if "relationships" in data else {}
        return list(attributes.values()), [self._linked(linkage) for linkage in relationships.values()]

    def _linked(self, objects: Sequence[Any]) -> tuple[str, Sequence[str]]:
        """Return the type and the ids of to-one linkage. Raises KeyError, TypeError, ValueError if that is not all."""
        linkage = self._columns(objects)
        identifiers = self._columns(linkage.pop("data"))
        type_name, ids = _only(identifiers.pop("type")), identifiers.pop("id")
        if linkage or identifiers or set(map(type, ids)) != {str}:
            raise ValueError
        return type_name, ids

    def _columns(self, objects: Sequence[Any]) -> dict[str, Sequence[Any]]:
        """Return the members of objects as columns. Raises TypeError if one is no object, ValueError if their names
        differ or have another order."""
        [names] = set(map(tuple, objects))
        self.objects += len(objects)
        self.names += len(objects) * len(names)
        # Of other types than dict this raises TypeError.
        return dict(zip(names, zip(*map(dict.values, objects), strict=True), strict=True))


def _only(values: Sequence[Any]) -> Any:
    """Return the value that all are. Raises ValueError, or TypeError if they cannot be compared."""
    [value] = set(values)
    return value
