"""Converts and checks the JSON value of an attribute. What comes in: a declaration, and a value from JSON. What goes
out: the native value, or a ValueFault whose text continues "... must be".

It must not know: where in the document the value is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal, localcontext
from itertools import chain
from typing import Any

import msgspec

from querybuild.declarations.json_texts import JsonFault, check_texts
from querybuild.declarations.resource import Attribute
from querybuild.declarations.types import ColumnType
from querybuild.declarations.values import ValueFault, str_of

Check = Callable[[Attribute, Any, Any], None]
"""Takes an attribute, the sent value and the native value. Raises ValueFault."""
Checks = Mapping[Attribute, Sequence[Check]]
"""The checks of attributes whose columns accept less than their declarations say."""
NO_CHECKS: Checks = {}


class Limit(msgspec.Struct, frozen=True):
    """The limits of a column beyond its declaration. domains: the names of the domains in its type. characters: of a
    text, or of each text of an array. digits, scale: those of `numeric(digits,scale)`."""

    domains: tuple[str, ...] = ()
    characters: int | None = None
    digits: int | None = None
    scale: int = 0


def checks_within(attribute: Attribute, limit: Limit) -> list[Check]:
    """Return the checks of the declaration, and those that a column with this limit accepts the value."""
    checks = checks_of(attribute)
    if limit.characters is not None:
        checks.append(_characters_check(limit.characters))
    if limit.digits is not None:
        checks.append(_digits_check(limit.digits, limit.scale))
    return checks


def _characters_check(limit: int) -> Check:
    def check(attribute: Attribute, value: Any, native: Any) -> None:
        # PostgreSQL removes excess blanks.
        if any(isinstance(element, str) and element[limit:].strip(" ") for element in _elements(native)):
            raise ValueFault(f"at most {limit} characters long")

    return check


def _digits_check(digits: int, scale: int) -> Check:
    whole = digits - scale
    with localcontext(prec=2100):
        # Rounding to the scale could add a digit.
        bound = Decimal(1).scaleb(whole) - Decimal(5).scaleb(-scale - 1)
    expected = f"a number with at most {whole} digits before the point" if whole > 0 else f"less than 1e{whole}"

    def check(attribute: Attribute, value: Any, native: Any) -> None:
        for element in _elements(native):
            if isinstance(element, Decimal) and not element.is_nan() and element.copy_abs() >= bound:
                raise ValueFault(expected)

    return check


def _elements(native: Any) -> Iterator[Any]:
    """Yield the elements of an array with any number of dimensions, or the value itself."""
    if isinstance(native, list):
        for item in native:
            yield from _elements(item)
    else:
        yield native


def read_attribute(attribute: Attribute, value: Any, checks: Sequence[Check] | None = None) -> Any:
    """Convert and check a value. checks: those of the attribute, if they are known. Raises ValueFault."""
    if value is None:
        if not attribute.nullable:
            raise ValueFault("a value, since it cannot be null")
        return None
    native = attribute.type.json.from_json(value)
    for check in checks_of(attribute) if checks is None else checks:
        check(attribute, value, native)
    return native


def read_column(attribute: Attribute, values: Sequence[Any], checks: Sequence[Check]) -> Sequence[Any]:
    """Convert and check the values of many rows, which contain no U+0000. Raises ValueFault if one of them is refused,
    and does not tell which one."""
    sent = values if None not in values else [value for value in values if value is not None]
    if len(sent) < len(values) and not attribute.nullable:
        raise ValueFault("a value, since it cannot be null")
    natives = _natives(attribute.type, sent)
    for check in checks if sent else ():
        _check_all(check, attribute, sent, natives)
    if len(sent) == len(values):
        return natives
    converted = iter(natives)
    return [None if value is None else next(converted) for value in values]


def _check_all(check: Check, attribute: Attribute, values: Sequence[Any], natives: Sequence[Any]) -> None:
    """Make one check of many values, which contain no U+0000, with few calls if that is possible. Raises ValueFault if
    one of them is refused."""
    if check is check_length:
        # If any length is refused, that of the shortest or of the longest value is.
        for value in (min(values, key=len), max(values, key=len)):
            check(attribute, value, None)
    elif check is check_range and set(map(type, natives)) == {int}:
        for native in (min(natives), max(natives)):
            check(attribute, None, native)
    elif check is check_shape:
        _check_shape(values, list[attribute.shape])  # type: ignore[name-defined]  # it is a type
    elif check is not check_nul:
        for value, native in zip(values, natives, strict=True):
            check(attribute, value, native)


def _natives(column_type: ColumnType, values: Sequence[Any]) -> Sequence[Any]:
    read, read_all, element = column_type.json.from_json, column_type.json.read_all, column_type.element
    if read_all is not None and (natives := read_all(values)) is not None:
        return natives
    kinds = set(map(type, values))
    if kinds == {str}:
        return read_once(read, values)
    is_text_array = element is not None and element.json.from_json is str_of and kinds == {list}
    if is_text_array and set(map(type, chain.from_iterable(values))) <= {str}:
        return values
    return [read(value) for value in values]


def read_once(read: Callable[[str], Any], texts: Sequence[str]) -> Sequence[Any]:
    """Convert texts, equal ones once: dates, members of an enum and keys occur many times. Raises ValueFault."""
    known = {text: read(text) for text in set(texts)}
    return [known[text] for text in texts]


def checks_of(attribute: Attribute) -> list[Check]:
    """Return the checks of a declaration beyond its type, in the order of their messages."""
    has_length = attribute.min_length is not None or attribute.max_length is not None
    has_range = attribute.minimum is not None or attribute.maximum is not None
    needed = {
        check_nul: True,
        check_shape: attribute.shape is not None,
        check_length: has_length,
        check_range: has_range,
        _check_pattern: attribute.pattern is not None,
    }
    return [check for check, is_needed in needed.items() if is_needed]


def check_nul(attribute: Attribute, value: Any, native: Any) -> None:
    if isinstance(value, int) or (isinstance(value, str) and "\0" not in value):
        return
    try:
        check_texts(value)
    except JsonFault as error:
        raise ValueFault(f"a value that PostgreSQL can hold ({error})") from error


def check_shape(attribute: Attribute, value: Any, native: Any) -> None:
    _check_shape(value, attribute.shape)


def _check_shape(value: Any, shape: Any) -> None:
    try:
        msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise ValueFault(f"JSON of the declared shape ({error})") from error


def check_length(attribute: Attribute, value: Any, native: Any) -> None:
    low, high = attribute.min_length, attribute.max_length
    if (low is not None and len(value) < low) or (high is not None and len(value) > high):
        unit = "items" if isinstance(value, list) else "characters"
        bounds = _bounds(low, high, lambda number: f"{number} {unit}")
        raise ValueFault(f"{bounds} long")


def check_range(attribute: Attribute, value: Any, native: Any) -> None:
    low, high = attribute.minimum, attribute.maximum
    if isinstance(native, Decimal) and native.is_nan():
        # For PostgreSQL it is greater than all numbers. Python cannot compare it.
        if high is not None:
            raise ValueFault(_bounds(low, high, str))
        return
    if (low is not None and native < low) or (high is not None and native > high):
        raise ValueFault(_bounds(low, high, str))


def _check_pattern(attribute: Attribute, value: Any, native: Any) -> None:
    if attribute.pattern is not None and not re.fullmatch(attribute.pattern, value):
        raise ValueFault(f"a text that matches {attribute.pattern}")


def _bounds(low: Any, high: Any, shown: Callable[[Any], str]) -> str:
    if low is None:
        return f"at most {shown(high)}"
    return f"at least {shown(low)}" if high is None else f"from {low} to {shown(high)}"
