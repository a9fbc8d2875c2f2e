"""Plans a read again whose form was planned before, with other values. What comes in: a query string. What goes out:
the form of the read, which is a key, and its values.

The key contains everything that a plan depends on, as it was sent. Nothing here resolves a name or reports an error: if
a value is invalid, the planner plans the whole query.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from typing import Any, Literal

import msgspec

from querybuild.cursors import Cursor, decode_cursor, mark_of
from querybuild.declarations.json_texts import JsonFault, has_all_names, load_json, load_unchecked
from querybuild.declarations.values import ValueFault
from querybuild.filters import COMPARISON_MEMBERS, COUNT, COUNT_MEMBERS, GROUPS, RELATION_OPERATORS
from querybuild.parse import INCLUDE_FILTER, NEAR_TO, SEARCH_TEXT, decoded, is_ignored
from querybuild.parsing.groups import GROUP_FILTER, TIME_ZONE
from querybuild.planning.conditions import NULL_TEXT
from querybuild.planning.page_values import PageValues, Values, page_values
from querybuild.planning.planner import FAR_OFFSET, PlannedRead
from querybuild.planning.reads.choices import with_marks
from querybuild.query import Limits

POSITIONS = {"page[number]": 1, "page[offset]": 0}
"""Parameters for the position of a page, and the lowest value of each."""

SIZES = ("page[size]", "page[limit]")
CURSORS = ("page[after]", "page[before]")
MAX_DIGITS = 15

SHORT_NAME = 100
"""What is known of a parameter is cached by its name, up to this length."""

ParameterRole = Literal[
    "constant", "filter", "search", "include filter", "group filter", "zone", "position", "size", "cursor", "ignored"
]
"""What a plan needs of a parameter. constant: the whole parameter is part of the form. filter, search, include filter,
group filter, zone, position, cursor: the value may change. size: part of the form, and the offset is counted in it.
ignored: neither name nor value."""


class SentValue(msgspec.Struct, frozen=True, eq=False):
    """A parameter whose value is not part of the form. index: its position among the parameters."""

    index: int
    name: str
    value: str


class SplitQuery(msgspec.Struct, frozen=True, eq=False):
    """A query string, split into form and values. key: its form. sent: the parameters whose values are not part of it.
    vals: the values of its filters, in the order in which they are parsed. own: how many of them are those of the list.
    offset: rows."""

    key: Hashable
    sent: list[SentValue]
    vals: list[Any]
    own: int
    offset: int = 0
    cursor_text: str = ""
    cursor: Cursor | None = None


class _NoForm(Exception):
    """A value without a form. The planner reports its error."""


def split_values(query_string: str, limits: Limits) -> SplitQuery | None:
    """Split a query into its form and its values. Returns None if the planner has to plan the whole query."""
    key: list[Hashable] = []
    sent: list[SentValue] = []
    vals: list[Any] = []
    searches: list[Any] = []
    of_groups: list[Any] = []
    zones: list[Any] = []
    included: dict[str, list[Any]] = {}
    size, position, minimum = limits.page_size, None, 0
    cursor_text, cursor = "", None
    try:
        for part in query_string.split("&"):
            if not part:
                continue
            encoded, _, text = part.partition("=")
            name, role = (_short_parameter if len(encoded) <= SHORT_NAME else _parameter)(encoded)
            if role == "constant" or role == "size":
                key.append(part)
                size = _whole_number(decoded(text)) if role == "size" else size
                continue
            value = decoded(text)
            sent.append(SentValue(len(key), name, value))
            if role == "filter":
                key.append((name, _filter_form(value, vals, limits, is_json=name == "filter")))
            elif role == "include filter":
                path, is_json = name.split("]", 1)[0], name.count("[") == 1
                of_path = included.setdefault(path, [])
                key.append((name, _filter_form(value, of_path, limits, is_json=is_json)))
            elif role == "group filter":
                key.append((name, _filter_form(value, of_groups, limits, is_json=True)))
            elif role == "search":
                searches.append(value)
                key.append(name)
            elif role == "zone":
                zones.append(value)
                key.append(name)
            elif role == "position":
                position, minimum = _whole_number(value), POSITIONS[name]
                key.append(name)
            elif role == "cursor":
                cursor_text, cursor = value, decode_cursor(value) if value else None
                key.append((name, None if cursor is None else _cursor_form(cursor)))
            else:
                key.append(None)
    except (_NoForm, JsonFault, ValueFault, UnicodeDecodeError):
        return None
    vals += searches + of_groups + zones
    own = len(vals)
    for of_path in included.values():
        vals += of_path
    if position is None:
        return SplitQuery(tuple(key), sent, vals, own, 0, cursor_text, cursor)
    if position < minimum:
        return None
    offset = (position - 1) * size if minimum else position
    key.append((position > minimum, offset > 0, offset >= FAR_OFFSET))
    return SplitQuery(tuple(key), sent, vals, own, offset, cursor_text, cursor)


def _cursor_form(cursor: Cursor) -> Hashable:
    return tuple([value is None for value in cursor.values]), cursor.is_cut


def _parameter(encoded: str) -> tuple[str, ParameterRole]:
    """Return the name of a parameter, decoded, and its role. Raises UnicodeDecodeError."""
    name = decoded(encoded)
    if name == "filter" or name.startswith("filter["):
        return name, "filter"
    if name.startswith(f"{INCLUDE_FILTER}["):
        return name, "include filter"
    if name.startswith(f"{NEAR_TO}["):
        return name, "search"
    if name in _BY_NAME:
        return name, _BY_NAME[name]
    if name in POSITIONS:
        return name, "position"
    if name in CURSORS:
        return name, "cursor"
    if name in SIZES:
        return name, "size"
    return name, "ignored" if is_ignored(name) else "constant"


_BY_NAME: dict[str, ParameterRole] = {SEARCH_TEXT: "search", GROUP_FILTER: "group filter", TIME_ZONE: "zone"}
_short_parameter = lru_cache(maxsize=256)(_parameter)


def _whole_number(text: str) -> int:
    if len(text) > MAX_DIGITS or not (text.isascii() and text.isdigit()):
        raise _NoForm
    return int(text)


def _filter_form(value: str, vals: list[Any], limits: Limits, *, is_json: bool) -> Hashable:
    if "\0" in value:
        raise _NoForm
    if not is_json:
        vals.append(value)
        return value == NULL_TEXT
    tree, is_checked = load_unchecked(value, limits.max_json_depth)
    names: list[int] = []
    form = _tree_form(tree, vals, names)
    if not is_checked and not has_all_names(value, sum(names)):
        # It raises JsonFault if an object has a duplicate name.
        load_json(value, limits.max_json_depth)
    return form


def _tree_form(tree: Any, vals: list[Any], names: list[int]) -> Hashable:
    """Return a filter without its values, which are appended to vals. names: how many each of its objects has."""
    if isinstance(tree, list):
        return tuple([_tree_form(item, vals, names) for item in tree])
    if not isinstance(tree, dict):
        raise _NoForm
    names.append(len(tree))
    if len(tree) == 1:
        ((op, content),) = tree.items()
        if op not in GROUPS:
            raise _NoForm
        return op, _tree_form(content, vals, names)
    name, op = tree.get("name"), tree.get("op")
    if op == COUNT:
        return _count_form(tree, vals, names)
    if len(tree) != len(("name", "op", "val")) or not isinstance(name, str) or not isinstance(op, str):
        raise _NoForm
    if "val" not in tree:
        field = tree.get("field")
        if not isinstance(field, str):
            raise _NoForm
        return name, op, field
    val = tree["val"]
    if op in RELATION_OPERATORS:
        return name, op, _tree_form(val, vals, names)
    vals.append(val)
    return name, op, val is None


def _count_form(tree: dict[str, Any], vals: list[Any], names: list[int]) -> Hashable:
    test = tree.get("val")
    if not (tree.keys() <= COUNT_MEMBERS and isinstance(test, dict) and test.keys() == COMPARISON_MEMBERS):
        raise _NoForm
    names.append(len(test))
    vals.append(test["val"])
    name, op, val = tree.get("name"), test["op"], test["val"]
    if not isinstance(name, str) or not isinstance(op, str):
        raise _NoForm
    of = _tree_form(tree["of"], vals, names) if "of" in tree else None
    return name, COUNT, op, val is None, "of" in tree, of


def form_of(planned: PlannedRead) -> PlannedRead:
    """Return a valid read without its values. Only their number is left."""
    page = msgspec.structs.replace(planned.page, offset=0, cursor="")
    none, limit = (None,) * len(planned.values), PageValues(planned.page_values.limit)
    return msgspec.structs.replace(
        planned, page=page, values=none, page_values=limit, cursor_mark="", cursor_parent=None
    )


def fill(form: PlannedRead, split: SplitQuery) -> PlannedRead | None:
    """Return a read of the same form with these values, or None if a value is invalid."""
    values: list[Any] = []
    cursor_values: Values = ()
    mark, parent = "", None
    try:
        for index, read in form.readers:
            values += read(values if index is None else split.vals[index])
        if form.list_name:
            mark = mark_of(form.list_name, split.vals[: split.own])
        if split.cursor is not None:
            split.cursor.check(mark, len(form.plan.rows.order))
            cursor_values, parent = split.cursor.known, split.cursor.parent
    except ValueFault:
        return None
    if len(values) != len(form.values):
        # The plan has a value that does not come from the filter. Only the planner knows where from.
        return None
    return msgspec.structs.replace(
        form,
        page=msgspec.structs.replace(form.page, offset=split.offset, cursor=split.cursor_text),
        values=tuple(values),
        page_values=page_values(form.page_values.limit, split.offset, cursor_values),
        cursor_mark=mark,
        cursor_parent=parent,
        choices=with_marks(form.choices, split.vals) if form.choices else (),
    )
