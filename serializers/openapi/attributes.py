"""Describes the values of attributes: as they are shown, as they may be written, and an example."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import msgspec

from querybuild.declarations.attributes import Limit
from querybuild.declarations.database_types.json_paths import split_names
from querybuild.declarations.resource import Attribute, Resource, inner_attribute
from querybuild.declarations.types import ColumnType
from querybuild.declarations.values import WITHOUT_NUL, JsonSchema, nullable
from serializers.openapi.api import Api, Schemas, ref

JSON_VALUE = "JsonApi.Value"
_SHAPES = "#/components/schemas/Shape.{name}"
NOT_NULL = ["boolean", "number", "string", "array", "object"]

_PARTS: list[JsonSchema] = [
    {"type": ["boolean", "number", "null"]},
    {"type": "string", "pattern": WITHOUT_NUL},
    {"type": "object", "propertyNames": {"pattern": WITHOUT_NUL}, "additionalProperties": ref(JSON_VALUE)},
]
VALUE_SCHEMAS: Schemas = {
    JSON_VALUE: {
        "description": "JSON that PostgreSQL can store: its texts and names do not contain U+0000.",
        # TypeScript refuses the type of an array that refers to itself.
        "anyOf": [*_PARTS, {"type": "array", "items": {"anyOf": [*_PARTS, {"type": "array"}]}}],
    }
}

_EXAMPLES: dict[str, Any] = {
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
    "date": "2024-05-31",
    "date-time": "2024-05-31T23:59:59Z",
    "decimal": "19.99",
}
_EXAMPLES_OF_TYPES: dict[str, Any] = {
    "boolean": True,
    "integer": 1,
    "number": 1.5,
    "string": "text",
    "array": [],
    "object": {},
}


def shown_schema(attribute: Attribute, api: Api, resource: Resource) -> JsonSchema:
    """Return the schema of an attribute in an answer."""
    schema = attribute.type.json.schema
    if attribute.shape is not None:
        schema = _shape_schema(attribute.shape)
    elif schema.get("type") == "integer":
        # The format implies the bounds, which would be a tenth of the document.
        schema = {name: value for name, value in schema.items() if name not in ("minimum", "maximum")}
    shown = nullable(schema) if attribute.nullable else schema
    is_written = any(attribute in api.written_attributes(resource, on_create=on_create) for on_create in (True, False))
    return _described(shown, attribute) | ({} if is_written else {"readOnly": True})


def written_schema(attribute: Attribute, limit: Limit | None = None) -> JsonSchema:
    """Return the schema of an attribute in a request. limit: that of its column."""
    if attribute.shape is not None:
        schema = _storable(_shape_schema(attribute.shape))
    else:
        schema = _bounded(value_schema(attribute.type), attribute, limit or Limit())
    if attribute.nullable and schema != ref(JSON_VALUE):
        schema = nullable(schema)
    elif not attribute.nullable and schema == ref(JSON_VALUE):
        schema = schema | {"type": NOT_NULL}
    written = _described(schema, attribute)
    return written if attribute.readable else written | {"writeOnly": True}


def value_schema(column_type: ColumnType) -> JsonSchema:
    """Return the schema of the values that a type accepts."""
    schema = column_type.json.schema if column_type.json.written_schema is None else column_type.json.written_schema
    return schema or ref(JSON_VALUE)


def shape_schemas(api: Api) -> Schemas:
    """Return the components of the shapes of JSON attributes."""
    attributes = [attribute for resource in api.catalog for attribute in resource.attributes if not attribute.is_hidden]
    shapes = [attribute.shape for attribute in attributes if attribute.shape is not None]
    _, components = msgspec.json.schema_components(shapes, ref_template=_SHAPES)
    return {f"Shape.{name}": _storable(schema) for name, schema in components.items()}


def _shape_schema(shape: Any) -> JsonSchema:
    [schema], _ = msgspec.json.schema_components([shape], ref_template=_SHAPES)
    return schema


def _storable(schema: Any) -> Any:
    """Return a schema of msgspec for the texts that PostgreSQL can hold."""
    if isinstance(schema, list):
        return [_storable(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    storable = {name: _storable(value) for name, value in schema.items()}
    if storable == {}:
        return ref(JSON_VALUE)
    if storable.get("type") == "string" and not storable.keys() & {"pattern", "format"}:
        storable["pattern"] = WITHOUT_NUL
    if storable.get("type") == "object" and "propertyNames" not in storable and "properties" not in storable:
        storable["propertyNames"] = {"pattern": WITHOUT_NUL}
    return storable


def _bounded(schema: JsonSchema, attribute: Attribute, limit: Limit) -> JsonSchema:
    """Add the bounds of the declaration and of the column."""
    bounded = dict(schema)
    lengths = [length for length in (attribute.max_length, limit.characters) if length is not None]
    if attribute.type.is_text:
        bounded |= _if_set(minLength=attribute.min_length, maxLength=min(lengths, default=None))
        bounded |= {} if attribute.pattern is None else {"pattern": f"^(?:{attribute.pattern})$"}
    elif attribute.type.element is not None:
        bounded |= _if_set(minItems=attribute.min_length, maxItems=attribute.max_length)
        bounded["items"] = _bounded_items(bounded["items"], limit)
    elif "number" in bounded.get("type", ()) or bounded.get("type") == "integer":
        bounded = _bounded_number(bounded, limit, attribute.minimum, attribute.maximum)
    return bounded


def _bounded_items(items: JsonSchema, limit: Limit) -> JsonSchema:
    if items.get("type") == "array":
        return items | {"items": _bounded_items(items["items"], limit)}
    if limit.digits is not None:
        return nullable(_bounded_number(items, limit))
    return items | _if_set(maxLength=limit.characters)


def _bounded_number(schema: JsonSchema, limit: Limit, low: Any = None, high: Any = None) -> JsonSchema:
    if limit.digits is not None:
        bound = Decimal(1).scaleb(limit.digits - limit.scale) - Decimal(1).scaleb(-limit.scale)
        low, high = -bound if low is None else low, bound if high is None else high
    bounded = schema | _if_set(minimum=_number(low), maximum=_number(high))
    if (low, high) != (None, None) and "pattern" in bounded:
        # A schema cannot bound the number in a text.
        bounded = {name: value for name, value in bounded.items() if name != "pattern"} | {"type": "number"}
    return bounded


def _if_set(**members: Any) -> JsonSchema:
    return {name: value for name, value in members.items() if value is not None}


def _number(bound: Any) -> Any:
    if isinstance(bound, Decimal):
        return int(bound) if bound == bound.to_integral_value() else float(bound)
    return bound


def _described(schema: JsonSchema, attribute: Attribute) -> JsonSchema:
    lines = [attribute.description] if attribute.description else []
    if attribute.type.json.schema.get("format", "").startswith("date"):
        low, high = attribute.minimum, attribute.maximum
        lines += [f"Not before {low}."] * (low is not None) + [f"Not after {high}."] * (high is not None)
    return schema | {"description": " ".join(lines)} if lines else schema


def examples(attributes: Iterable[Attribute], api: Api, resource: Resource) -> dict[str, Any]:
    """Return an example of the attributes of a request, without those whose values cannot be known."""
    values: dict[str, Any] = {}
    for attribute in attributes:
        if attribute.pattern is None and not (attribute.shape and attribute.required):
            value = example(written_schema(attribute, api.limit_of(resource, attribute)))
            if value is not None:
                values[attribute.name] = value
    return values


def example(schema: JsonSchema) -> Any:
    """Return a value that fits a schema of an attribute, or None if none is known."""
    kind = schema.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    if "enum" in schema:
        return schema["enum"][0]
    if "examples" in schema:
        return schema["examples"][0]
    if schema.get("format") in _EXAMPLES:
        return _EXAMPLES[schema["format"]]
    if schema.get("pattern") not in (None, WITHOUT_NUL) or kinds[0] is None:
        return None
    value = _EXAMPLES_OF_TYPES[kinds[0]]
    if kinds[0] == "string":
        return (value * (schema.get("minLength", 0) // len(value) + 1))[: schema.get("maxLength", 1000)]
    if kinds[0] in ("integer", "number"):
        return min(max(value, schema.get("minimum", value)), schema.get("maximum", value))
    return None if "minItems" in schema or "required" in schema else value


def typed_inside(attribute: Attribute) -> list[Attribute]:
    """Return the values inside of a JSON attribute whose types are declared, as attributes."""
    return [inner_attribute(attribute, tuple(split_names(json_path.path, ".")))[0] for json_path in attribute.paths]


def inside_pattern(attribute: Attribute) -> str:
    """Return a pattern of the names inside of a JSON attribute whose types are not declared. Any name is allowed, with
    escapes; those of letters, digits and underscores need none."""
    typed = "|".join([inner.name.replace(".", "[.]") for inner in typed_inside(attribute) if "\\" not in inner.name])
    return (f"(?!({typed})$)" if typed else "") + f"{attribute.name}([.][a-zA-Z0-9_]+)+"
