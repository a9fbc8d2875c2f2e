"""Whether what a declaration holds is of the kinds that its fields are written with: Python takes anything, and a
forgotten comma would come out as a traceback, or with the first request. What comes in: a declaration. What goes out: a
line for each value that is of another kind.

It must not know: what the fields mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

_ROWS = (tuple, list, set, frozenset)
_SETS = (set, frozenset)


def wrong_kinds(declaration: object, *, but: tuple[str, ...] = ()) -> Iterator[str]:
    """but: fields that are not looked at.

    >>> list(wrong_kinds(Attribute("name", TEXT, max_length="5")))
    ['`max_length` must be int or None, not str']
    """
    for name, kind in get_type_hints(type(declaration)).items():
        value = getattr(declaration, name)
        if name not in but and not _is_of(value, kind):
            yield f"`{name}` must be {_shown(kind)}, not {_shown_value(value)}"


def _is_of(value: object, kind: Any) -> bool:
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(_is_of(value, part) for part in parts)
    if origin in (tuple, frozenset):
        # A list and a set are read as a tuple is.
        return isinstance(value, _ROWS if origin is tuple else _SETS) and all(_is_of(item, parts[0]) for item in value)
    if origin is Callable:
        return callable(value)
    return kind is Any or (isinstance(value, kind) and not (kind is int and isinstance(value, bool)))


def _shown(kind: Any) -> str:
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(_shown(part) for part in parts)
    if origin in (tuple, frozenset):
        return f"a {'tuple' if origin is tuple else 'set'} of {_shown(parts[0])}"
    if origin is Callable:
        return "a function"
    return "None" if kind is NoneType else str(kind.__name__)


def _shown_value(value: object) -> str:
    """`list of int`"""
    name = type(value).__name__
    items = sorted({type(item).__name__ for item in value}) if isinstance(value, _ROWS) else []
    return f"{name} of {', '.join(items)}" if items else name
