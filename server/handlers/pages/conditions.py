"""Makes the filter object that says the same as a simple filter, for groups of filters. What comes in: `age`, `ge` and
`18`. What goes out: `{"name": "age", "op": "ge", "val": 18}`.

A value that does not fit its type stays a text, and the server says what it must be. It must not know: HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from querybuild.declarations.arrays import split_list
from querybuild.declarations.catalog import Catalog
from querybuild.declarations.json_texts import JsonFault, load_json
from querybuild.declarations.operators import OperatorRow, find_operator
from querybuild.declarations.resource import Attribute, Resource
from querybuild.declarations.types import INT, ColumnType, is_structure
from querybuild.filters import COUNT
from serializers.pages.forms import scalar
from serializers.pages.moments import MOMENTS, typed_moment

MAX_JSON_DEPTH = 100


def condition(resource: Resource, catalog: Catalog, keys: Sequence[str], text: str) -> dict[str, Any]:
    """Return the filter object of `filter[key][key]=text`. Its val is for msgspec."""
    name, *rest = keys
    if rest[:1] == [COUNT]:
        operator = rest[1] if len(rest) > 1 else "eq"
        return {"name": name, "op": COUNT, "val": {"op": operator, "val": scalar(INT, text)}}
    operator = rest[0] if rest else "eq"
    attribute = _attribute(resource, catalog, name)
    return {"name": name, "op": operator, "val": text if attribute is None else _value(attribute, operator, text)}


def simple_value(resource: Resource, catalog: Catalog, keys: Sequence[str], text: str) -> str:
    """Return what is typed as the value of `filter[key][key]`: moments as JSON has them. A day is its first moment."""
    name, *rest = keys
    attribute = None if rest[:1] == [COUNT] else _attribute(resource, catalog, name)
    if attribute is None or attribute.type not in MOMENTS:
        return text
    return ",".join([typed_moment(attribute.type, part, is_utc=True) for part in text.split(",")])


def _attribute(resource: Resource, catalog: Catalog, path: str) -> Attribute | None:
    """Return the attribute of a path, None if the principal may not filter by it."""
    *names, last = path.split(".")
    for name in names:
        relationship = resource.relationship(name)
        if relationship is None or not relationship.filterable:
            return None
        resource = catalog.target(relationship)
    attribute = catalog.id_of(resource) if last == "id" else resource.attribute(last)
    return attribute if attribute is not None and attribute.is_filterable else None


def _value(attribute: Attribute, operator: str, text: str) -> Any:
    row = find_operator(attribute, operator)
    if not isinstance(row, OperatorRow):
        return _json(text)
    if row.on_null is not None and text == "null":
        return None
    value_type = row.value_type_of(attribute)
    if row.arity == "one":
        return _item(row, value_type, text)
    return [_item(row, value_type, item) for item in split_list(text)]


def _item(row: OperatorRow, value_type: ColumnType, text: str) -> Any:
    if row.is_text:
        return text
    if is_structure(value_type):
        return _json(text)
    return scalar(value_type, typed_moment(value_type, text, is_utc=True))


def _json(text: str) -> Any:
    try:
        load_json(text, MAX_JSON_DEPTH)
    except (JsonFault, RecursionError):
        return text
    return msgspec.Raw(text.encode())
