"""Checks the types of the arguments of a declaration. Python accepts any value, so a forgotten comma would cause a
traceback, or an error at the first request. What comes in: a declaration. What goes out: a line for each value of a
wrong type.

It must not know: the meaning of the fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

_ROWS = (tuple, list, set, frozenset)
_SETS = (set, frozenset)


HasType = Callable[[object], bool]


def wrong_types(declaration: object, *, but: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield a message for each field with a value of a wrong type. but: fields that are not checked.

    >>> list(wrong_types(Attribute("name", TEXT, max_length="5")))
    ['`max_length` must be int or None, not str']
    """
    for name, type_hint, has_type in _fields(type(declaration), but):
        value = getattr(declaration, name)
        if not has_type(value):
            yield f"`{name}` must be {_shown(type_hint)}, not {_shown_value(value)}"


def _find_fields(declared: type, but: tuple[str, ...]) -> list[tuple[str, Any, HasType]]:
    """Return the name, the type and the check of each field."""
    type_hints = get_type_hints(declared)
    return [(name, type_hint, _check_of(type_hint)) for name, type_hint in type_hints.items() if name not in but]


_fields: Callable[[type, tuple[str, ...]], list[tuple[str, Any, HasType]]] = cache(_find_fields)
"""Finding the fields of a class takes longer than checking a declaration."""


def _check_of(type_hint: Any) -> HasType:
    """Return a function that tells whether a value has the type."""
    origin, parts = get_origin(type_hint), get_args(type_hint)
    if origin in (Union, UnionType):
        checks = [_check_of(part) for part in parts]
        return lambda value: any(check(value) for check in checks)
    if origin in (tuple, frozenset):
        # A list and a set are accepted instead of a tuple.
        rows, of_item = _ROWS if origin is tuple else _SETS, _check_of(parts[0])
        return lambda value: isinstance(value, rows) and all(of_item(item) for item in value)
    if origin is Callable:
        return callable
    if type_hint is Any:
        return lambda _: True
    if type_hint is int:
        return lambda value: isinstance(value, int) and not isinstance(value, bool)
    kind: type = origin or type_hint
    return lambda value: isinstance(value, kind)


def _shown(type_hint: Any) -> str:
    origin, parts = get_origin(type_hint), get_args(type_hint)
    if origin in (Union, UnionType):
        return " or ".join(_shown(part) for part in parts)
    if origin in (tuple, frozenset):
        return f"a {'tuple' if origin is tuple else 'set'} of {_shown(parts[0])}"
    if origin is Callable:
        return "a function"
    return "None" if type_hint is NoneType else str(type_hint.__name__)


def _shown_value(value: object) -> str:
    """Return the type of a value for a message, such as `list of int`."""
    name = type(value).__name__
    items = sorted({type(item).__name__ for item in value}) if isinstance(value, _ROWS) else []
    return f"{name} of {', '.join(items)}" if items else name
