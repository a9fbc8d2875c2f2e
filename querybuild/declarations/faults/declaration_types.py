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


_type_hints: Callable[[type], dict[str, Any]] = cache(get_type_hints)
"""Finding the types of the fields of a class takes longer than checking a declaration."""


def wrong_types(declaration: object, *, but: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield a message for each field with a value of a wrong type. but: fields that are not checked.

    >>> list(wrong_types(Attribute("name", TEXT, max_length="5")))
    ['`max_length` must be int or None, not str']
    """
    for name, type_hint in _type_hints(type(declaration)).items():
        value = getattr(declaration, name)
        if name not in but and not _has_type(value, type_hint):
            yield f"`{name}` must be {_shown(type_hint)}, not {_shown_value(value)}"


def _has_type(value: object, type_hint: Any) -> bool:
    origin, parts = get_origin(type_hint), get_args(type_hint)
    if origin in (Union, UnionType):
        return any(_has_type(value, part) for part in parts)
    if origin in (tuple, frozenset):
        # A list and a set are accepted instead of a tuple.
        return isinstance(value, _ROWS if origin is tuple else _SETS) and all(
            _has_type(item, parts[0]) for item in value
        )
    if origin is Callable:
        return callable(value)
    return type_hint is Any or (
        isinstance(value, origin or type_hint) and not (type_hint is int and isinstance(value, bool))
    )


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
