"""A JSON value of a document as what is bound for an attribute. What comes in: a declaration, and a value as JSON has
it. What goes out: the native value, or a ValueFault whose text continues "... must be".

Nothing here knows where the value stood.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from querybuild.resource import Attribute
from querybuild.values import JsonFault, ValueFault, check_texts


def read_attribute(attribute: Attribute, value: Any) -> Any:
    """Raises ValueFault."""
    if value is None:
        if not attribute.nullable:
            raise ValueFault("a value, since it cannot be null")
        return None
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
