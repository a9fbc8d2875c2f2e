"""Describes filters and values for people: those of a request, and those of a rule.

It must not know: where a filter comes from.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, assert_never

from querybuild.declarations.access import Claim, Now, Subject
from querybuild.query import CountFilter, FieldFilter, FilterGroup, FilterNode, RelationFilter

SHOWN_CHARACTERS = 200
"""Longer values are cut."""


def filters_text(nodes: Iterable[FilterNode]) -> str:
    """Describe filters that must all be met, on one line."""
    inner = list(nodes)
    return filter_text(inner[0]) if len(inner) == 1 else " and ".join(map(_inner_text, inner))


def filter_text(node: FilterNode) -> str:
    """Describe a filter on one line."""
    match node:
        case FieldFilter(name=name, op=op, field=None, val=val):
            return f"{name} {op} {value_text(val)}"
        case FieldFilter(name=name, op=op, field=field):
            return f"{name} {op} the field {field}"
        case CountFilter(name=name, test=test, items=items):
            matching = f" with ({filters_text(items)})" if items else ""
            return f"count of {name}{matching} {test.op} {value_text(test.val)}"
        case RelationFilter(name=name, op=op, items=()):
            return f"{name} {op} a related row"
        case RelationFilter(name=name, op=op, items=items):
            return f"{name} {op} ({filters_text(items)})"
        case FilterGroup(op="not", items=items):
            return f"not ({filters_text(items)})"
        case FilterGroup(op=op, items=()):
            return "everything" if op == "and" else "nothing"
        case FilterGroup(op=op, items=items):
            return f" {op} ".join(map(_inner_text, items))
        case _:
            assert_never(node)


def _inner_text(node: FilterNode) -> str:
    is_group = isinstance(node, FilterGroup) and node.op != "not" and len(node.items) > 1
    return f"({filter_text(node)})" if is_group else filter_text(node)


def value_text(value: Any) -> str:
    """Describe a value, shortened.

    >>> value_text("O'Hara"), value_text(None), value_text([1, None])
    ("'O''Hara'", 'null', '[1, null]')
    """
    if isinstance(value, str):
        text = "'" + value.replace("'", "''") + "'"
    elif isinstance(value, list | tuple):
        text = f"[{', '.join(map(value_text, value[:SHOWN_CHARACTERS]))}]"
    elif value is None or isinstance(value, bool):
        text = str(value).lower().replace("none", "null")
    elif isinstance(value, Subject | Now):
        text = repr(value)
    elif isinstance(value, Claim):
        text = f"Claim({value.path})"
    else:
        text = str(value)
    shown = text.encode("unicode_escape").decode("ascii") if not text.isprintable() else text
    return shown if len(shown) <= SHOWN_CHARACTERS else f"{shown[:SHOWN_CHARACTERS]}..."
