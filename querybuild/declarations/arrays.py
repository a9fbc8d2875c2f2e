"""Defines the column type of arrays of scalars, with nulls and several dimensions. What comes in: the type
of the elements. What goes out: a column type.

It must not know: resources, requests, operators.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace
from pypika.terms import Term

from querybuild.declarations import json_texts, values
from querybuild.declarations.database_types.selected import to_json
from querybuild.declarations.terms import Template, escaped_braces, unnested
from querybuild.declarations.types import ColumnType, JsonForm, SqlForm
from querybuild.declarations.values import JsonSchema, ValueFault, nullable

MAX_DIMENSIONS = 6
"""PostgreSQL's limit for arrays (MAXDIM in src/include/utils/array.h)."""


def array(element: ColumnType, *, dimensions: int | None = None) -> ColumnType:
    """Return the type of arrays of these elements. Arrays of several dimensions are lists in lists; elements may be
    null. dimensions: how many a value that is not empty must have, one by default. PostgreSQL does not check this, so
    that rows may have others. They are shown as they are, if dimensions is None."""
    _check_arguments(element, dimensions)
    if element.fields:
        dimensions = 1
    json, sql, comparison, depth = element.json, element.sql, element.comparison, dimensions or 1
    from_json, from_text = _readers(element, depth)
    is_equal = comparison.has_equality or element.name == "jsonb"
    return ColumnType(
        name=element.name + "[]" * depth,
        # PostgreSQL only compares arrays of the same element type. Arrays of texts are cast if their types differ.
        family=f"{element.family if element.is_text else element.name}[]",
        sql_names=tuple(f"_{name}" for name in element.sql_names),
        json=JsonForm(
            from_json=from_json,
            from_text=from_text,
            shown=None if json.shown is None else each_element(json.shown),
            schema=_list_of(json.schema, depth),
            written_schema=None if json.written_schema is None else _list_of(json.written_schema, depth),
            example=json.example,
        ),
        sql=SqlForm(
            select=sql.select_array
            or (None if sql.select is None else unnested(sql.select, dimensions or 2, sql.is_plain)),
            bound=sql.bound_array
            or (None if sql.bound is None else _text_array_as(element.sql_type or element.name.upper())),
            as_text=sql.as_text,
            as_json=to_json if sql.as_json is to_json else None,
        ),
        comparison=replace(comparison, is_ordered=False, has_equality=is_equal),
        is_read_only=element.is_read_only,
        is_checked_by_database=element.is_checked_by_database,
        element=element,
    )


def _check_arguments(element: ColumnType, dimensions: int | None) -> None:
    if not isinstance(element, ColumnType) or element.element is not None:
        raise TypeError(f"array takes the type of its elements, such as array(TEXT), not {element!r}")
    if dimensions is not None and not (isinstance(dimensions, int) and 1 <= dimensions <= MAX_DIMENSIONS):
        raise TypeError(f"an array has 1 to {MAX_DIMENSIONS} dimensions, not {dimensions!r}")
    if element.fields and dimensions not in (None, 1):
        raise TypeError("an array of a composite type has one dimension")


def _list_of(schema: JsonSchema, dimensions: int) -> JsonSchema:
    """Return the schema of a list of lists."""
    items = nullable(schema)
    for _ in range(1, dimensions):
        items = {"type": "array", "items": items, "minItems": 1}
    return {"type": "array", "items": items}


def _readers(element: ColumnType, dimensions: int) -> tuple[Callable[[Any], list[Any]], Callable[[str], list[Any]]]:
    """Return the functions that convert a list from JSON, and the text of a simple filter. They raise ValueFault."""

    def check(items: list[Any]) -> list[Any]:
        if items and len(_shape(items)) != dimensions:
            what = f"a list of {element.name} values"
            raise ValueFault(what if dimensions == 1 else f"{what} with {dimensions} dimensions")
        return items

    def read(value: Any) -> list[Any]:
        return check(_read(element, value))

    def read_text(text: str) -> list[Any]:
        items = _shown_list(text)
        return read(items) if items is not None else check([element.json.from_text(item) for item in split_list(text)])

    return read, read_text


def _read(element: ColumnType, value: Any) -> list[Any]:
    """Convert a list from JSON to the value that asyncpg takes. Raises ValueFault."""
    if not isinstance(value, list):
        raise ValueFault(f"a list of {element.name} values")
    # In an array of JSON, lists are values.
    is_json = element.family in ("json", "jsonb")
    try:
        items = _read_each(element, value) if is_json else _read_items(element, value, 1)
    except ValueFault as error:
        raise ValueFault(f"a list of {element.name} values, each {error}") from error
    if element.sql_names == ("numeric",):
        values.check_zeros(_flat(items))
    return items


def _read_each(element: ColumnType, items: list[Any]) -> list[Any]:
    return [None if item is None else element.json.from_json(item) for item in items]


def _read_items(element: ColumnType, items: list[Any], depth: int) -> list[Any]:
    if list not in map(type, items):
        return _read_each(element, items)
    lengths = {len(item) if isinstance(item, list) else 0 for item in items}
    if len(lengths) > 1 or 0 in lengths or depth == MAX_DIMENSIONS:
        raise ValueFault(f"of one kind: all values, or all lists of one length, {MAX_DIMENSIONS} deep at most")
    read_lists = [_read_items(element, item, depth + 1) for item in items]
    if len({_shape(item) for item in read_lists}) > 1:
        raise ValueFault("of one kind: lists of the same lengths")
    return read_lists


def each_element(shown: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the function that applies another to each element. An array of several dimensions is a list of lists."""

    def each(items: Any) -> Any:
        return [each(item) for item in items] if isinstance(items, list) else shown(items)

    return each


def _text_array_as(name: str) -> Callable[[Term], Term]:
    text = "CAST(CAST({} AS TEXT[]) AS " + escaped_braces(name) + "[])"
    return lambda parameter: Template(text, parameter)


def _shown_list(text: str) -> list[Any] | None:
    """Return the list if the text is a JSON array, as in answers. Returns None for values separated by commas."""
    try:
        tree = json_texts.load_json(text) if text.startswith("[") else None
    except json_texts.JsonFault:
        return None
    return tree if isinstance(tree, list) else None


def _flat(items: list[Any]) -> list[Any]:
    return [flat for item in items for flat in (_flat(item) if isinstance(item, list) else [item])]


def _shape(items: Any) -> tuple[int, ...]:
    """Return the lengths of nested lists, whose inner lists all have the same shape."""
    return (len(items), *_shape(items[0])) if isinstance(items, list) else ()


def split_list(text: str) -> list[str]:
    r"""Split the list of a simple filter at commas. `\,` is a comma and `\\` a backslash. An empty text is an empty
    list.

    >>> split_list(r"a,b\,c")
    ['a', 'b,c']
    """
    if not text:
        return []
    return [re.sub(r"\\([\\,])", r"\1", item) for item in re.findall(r"(?:^|,)((?:[^\\,]|\\.?)*)", text, re.DOTALL)]
