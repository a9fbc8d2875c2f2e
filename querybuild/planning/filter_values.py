"""Converts the val of a filter to the values that are bound. What comes in: the operator and the attribute of the
filter. What goes out: a function of the val. It is cached with the form of a read, so it must not contain data of the
request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from querybuild.declarations.arrays import split_list
from querybuild.declarations.json_texts import JsonFault, load_json
from querybuild.declarations.operators import OperatorRow
from querybuild.declarations.resource import Attribute, Operator
from querybuild.declarations.values import ReadAll, ValueFault, str_of
from querybuild.query import Limits

ReadValue = Callable[[Any], list[Any]]
"""Converts the val of a filter to the bound values. Raises ValueFault."""


def value_reader(row: OperatorRow, attribute: Attribute, limits: Limits, *, is_text: bool) -> ReadValue:
    """Return the function for an operator of ours. is_text: whether the val is the text of a simple filter."""
    read = _item_reader(row, attribute, is_text=is_text)
    match row.arity:
        case "one":
            return lambda val: [read(val)]
        case "list":
            has_own = is_text or row.is_text or row.prepare is not None
            read_all = None if has_own else row.value_type_of(attribute).json.read_all
            return lambda val: [_all(read, read_all, _items(val, attribute, limits, is_text=is_text))]
        case "pair":
            return lambda val: _each(read, _pair(_items(val, attribute, limits, is_text=is_text)))


def _all(read: Callable[[Any], Any], read_all: ReadAll | None, items: list[Any]) -> Sequence[Any]:
    """Convert the items of a list, at once if that is possible."""
    done = None if read_all is None else read_all(items)
    return _each(read, items) if done is None else done


def _each(read: Callable[[Any], Any], items: list[Any]) -> list[Any]:
    """Convert the items of a list. The fault is one of the list, which is what an error shows."""
    try:
        return [read(item) for item in items]
    except ValueFault as error:
        if None in items:
            raise ValueFault("a list without null, which `is_` and `isnot` find") from error
        raise ValueFault(f"a list of values, each {error}") from error


def _item_reader(row: OperatorRow, attribute: Attribute, *, is_text: bool) -> Callable[[Any], Any]:
    """Return the function that converts one item of the val."""
    column_type = row.value_type_of(attribute)
    read = str_of if row.is_text else column_type.json.from_text if is_text else column_type.json.from_json
    prepare = row.prepare
    return read if prepare is None else lambda value: prepare(read(value))


def custom_reader(operator: Operator, attribute: Attribute, limits: Limits, *, is_text: bool) -> ReadValue:
    """Return the function for an operator of the declarations."""
    if not is_text:
        return lambda val: [operator.read(val)]
    return lambda text: [operator.read(_json(text, attribute, limits))]


def _json(text: str, attribute: Attribute, limits: Limits) -> Any:
    try:
        return load_json(text, limits.max_json_depth)
    except JsonFault as error:
        if attribute.type.is_text:
            return text
        raise ValueFault(f"JSON ({error})") from error


def _items(val: Any, attribute: Attribute, limits: Limits, *, is_text: bool) -> list[Any]:
    if is_text:
        val = split_list(val)
    elif attribute.type.element is not None and not isinstance(val, list):
        val = [val]
    if not isinstance(val, list):
        raise ValueFault("a list")
    if len(val) > limits.max_list_values:
        raise ValueFault(f"a list of at most {limits.max_list_values}")
    return val


def _pair(items: list[Any]) -> list[Any]:
    if len(items) != 2:
        raise ValueFault("a list of two, the lowest and the highest")
    return items
