"""Encodes the answers to atomic operations: the result of each, or the error for which all of them were undone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from itertools import takewhile
from typing import Any

import msgspec

from querybuild.errors import NAME_CHARACTERS, SHOWN_CHARACTERS, shortened
from serializers.objects import ErrorObject
from serializers.operations.reader import MEMBER, Operation, object_of
from serializers.pointers import tokens

SHOWN_VALUES = 1000
"""How many values of a failed operation its error shows."""


class OperationFault(msgspec.Struct):
    """One error of an operation. loc: the path to the wrong value, inside the operation."""

    loc: list[str | int]
    msg: str
    type: str


class OperationErrorDetail(msgspec.Struct):
    """The failed operation and its errors. data: the `data` of the operation, with null for absent members."""

    data: dict[str, Any] | None
    errors: list[OperationFault]
    message: str
    ref: Any


class OperationErrorDocument(msgspec.Struct):
    """The error document of the operations route, as service.md defines it."""

    detail: OperationErrorDetail


def encode_operation_error(operations: Sequence[Operation], errors: Sequence[ErrorObject]) -> bytes:
    """Encode the errors of the first operation that has one. If no error points to an operation, encode them as those
    of the whole request. Source: service.md, "Atomic operations route"."""
    locations = [_location(error) for error in errors]
    first = min((index for index, _ in locations if index is not None), default=None)
    operation = None if first is None or first >= len(operations) else operations[first]
    of_first = [(error, path) for error, (index, path) in zip(errors, locations, strict=True) if index == first]
    faults = [OperationFault(path, error.detail, error.code) for error, path in of_first]
    what = "Validation error" if of_first[0][0].status == "422" else of_first[0][0].title
    where = "" if operation is None else " ".join(["", *filter(None, [operation.op]), f"(at position {first})"])
    shown = {} if operation is None else _shown(operation.object, [SHOWN_VALUES])
    data = object_of(shown.get("data"))
    detail = OperationErrorDetail(
        data=None if operation is None else {name: data.get(name) for name in _DATA_MEMBERS},
        errors=faults,
        message=f"{what} on operation{where}" if where else f"{what} on operations",
        ref=shown.get("ref"),
    )
    return _ENCODER.encode(OperationErrorDocument(detail))


_ENCODER = msgspec.json.Encoder(decimal_format="number")


def _shown(value: Any, left: list[int]) -> Any:
    """Return a part of the request as an error shows it: long names and texts are shortened, and it has at most
    `left[0]` values."""
    left[0] -= 1
    if isinstance(value, dict):
        pairs = takewhile(lambda _: left[0] > 0, value.items())
        return {shortened(name, NAME_CHARACTERS): _shown(item, left) for name, item in pairs}
    if isinstance(value, list):
        return [_shown(item, left) for item in takewhile(lambda _: left[0] > 0, value)]
    if isinstance(value, Decimal) and len(value.as_tuple().digits) > SHOWN_CHARACTERS:
        return shortened(str(value), SHOWN_CHARACTERS)
    return shortened(value, SHOWN_CHARACTERS) if isinstance(value, str) else value


_DATA_MEMBERS = ("attributes", "id", "lid", "relationships", "type")


def _location(error: ErrorObject) -> tuple[int | None, list[str | int]]:
    """Return the index of the operation that the error's pointer is in, and the path inside it."""
    pointer = None if error.source is None else error.source.pointer
    parts = tokens(pointer or "")
    # Only the operations and linkage are arrays, and what is in a filter. Elsewhere a number is a name.
    is_filter = parts[2:4] == ["meta", "filter"]
    path: list[str | int] = [
        int(part) if (is_filter or before in (MEMBER, "data")) and re.fullmatch("[0-9]{1,9}", part) else part
        for before, part in zip(["", *parts], parts, strict=False)
    ]
    if len(path) < 2 or path[0] != MEMBER or not isinstance(path[1], int):
        return None, path
    return path[1], path[2:]


Done = tuple[bytes | None, str | int | None]
"""What an operation has done: the resource object, or None if it has none; and the version of the row that it wrote, or
how many rows it has written."""


def encode_results(done: Sequence[Done], *, has_meta: bool) -> bytes:
    """Encode `{"atomic:results":[...]}`. has_meta: whether each result without other `meta` has `"meta":null`, as
    service.md requires. The extension has no such member."""
    without = b',"meta":null}' if has_meta else b"}"
    tails = [without if told is None else b',"meta":%s}' % _meta(told) for _, told in done]
    shown = [b"null" if data is None else data for data, _ in done]
    results = [b'{"data":' + data + tail for data, tail in zip(shown, tails, strict=True)]
    return b'{"atomic:results":[' + b",".join(results) + b"]}"


def _meta(told: str | int) -> bytes:
    """Return what the `meta` of a result tells: the version of the row, or the number of rows."""
    return b'{"count":%d}' % told if isinstance(told, int) else b'{"version":"%s"}' % told.encode()
