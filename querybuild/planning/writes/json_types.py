"""Says which JSON values an attribute accepts in terms of msgspec, which checks them while it decodes a document. What
comes in: a declaration and its checks. What goes out: the type of the JSON value, and what is left to do in Python.

A type never accepts more than `read_attribute`. It may accept less: then the document is decoded step by step
(`serializers/decode.py`), which also finds the errors. It must not know: where in the document the value is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, Literal

import msgspec

from querybuild.declarations.attributes import (
    Check,
    check_length,
    check_nul,
    check_range,
    check_shape,
    read_attribute,
)
from querybuild.declarations.resource import Attribute
from querybuild.declarations.values import Integer, bool_of, str_of

_TYPED_CHECKS: frozenset[Check] = frozenset({check_nul, check_shape, check_length, check_range})
_TEXTS, _TEXTS_OR_NULL = list[str], list[str | None]


class JsonType(msgspec.Struct, frozen=True, eq=False):
    """The JSON values of an attribute. type: for msgspec. read: converts and checks what msgspec returns, if that is
    not yet the value of the parameter; it raises ValueFault. is_open: whether the value may contain objects."""

    type: Any
    read: Callable[[Any], Any] | None = None
    is_open: bool = False


def json_type(attribute: Attribute, checks: Sequence[Check]) -> JsonType:
    """Return the JSON values that an attribute accepts, in a document without U+0000."""
    exact = _exact_type(attribute, frozenset(checks)) if _TYPED_CHECKS.issuperset(checks) else None
    if exact is not None:
        return JsonType(exact | None if attribute.nullable else exact)
    read = partial(read_attribute, attribute, checks=tuple(checks))
    if (attribute.type.json.written_schema or attribute.type.json.schema).get("type") == "string":
        return JsonType(str | None if attribute.nullable else str, read)
    return JsonType(Any, read, is_open=True)


def _exact_type(attribute: Attribute, checks: frozenset[Check]) -> Any:
    """Return the type of the values that are bound as they are, with their limits. Returns None if there is none."""
    kind, element = attribute.type, attribute.type.element
    if isinstance(kind.json.from_json, Integer):
        return None if check_shape in checks else _integers(attribute, kind.json.from_json)
    if check_range in checks:
        return None
    if max(attribute.min_length or 0, attribute.max_length or 0) > sys.maxsize:
        return None
    length = msgspec.Meta(min_length=attribute.min_length, max_length=attribute.max_length)
    if element is not None:
        texts = attribute.shape if check_shape in checks else _TEXTS_OR_NULL
        is_of_texts = element.json.from_json is str_of and kind.name.count("[]") == 1
        return Annotated[texts, length] if is_of_texts and texts in (_TEXTS, _TEXTS_OR_NULL) else None
    if check_shape in checks:
        return None
    if kind.json.from_json is str_of:
        return Annotated[str, length]
    if check_length in checks:
        return None
    if kind.json.from_json is bool_of:
        return bool
    return Literal[kind.choices] if kind.choices else None


def _integers(attribute: Attribute, reader: Integer) -> Any:
    low, high = attribute.minimum, attribute.maximum
    least = reader.low if low is None else max(low, reader.low)
    most = reader.high if high is None else min(high, reader.high)
    # If no value fits, the limits may be too large for msgspec.
    return Annotated[int, msgspec.Meta(ge=least, le=most)] if least <= most else None
