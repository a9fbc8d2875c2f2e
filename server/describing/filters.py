"""Describes the parameter `filter`: for each attribute its operators, and the values that they take."""

from __future__ import annotations

import json
from collections.abc import Iterator

from querybuild.declarations.operators import OPERATORS, OperatorRow, custom_operators
from querybuild.declarations.resource import Attribute, Resource, inner_attribute
from querybuild.declarations.types import JSONB, ColumnType
from querybuild.declarations.values import WITHOUT_NUL, JsonSchema, nullable
from querybuild.filters import COUNT
from querybuild.planning.conditions import COUNT_OPERATORS, COUNTED
from serializers.openapi.api import Api, Schemas, component, narrowed, ref
from serializers.openapi.attributes import JSON_VALUE, inside_pattern, typed_inside, value_schema

_GROUP, _HAS, _ANY, _COUNT = "Filter.Group", "Filter.Has", "Filter.Any", "Filter.Count"
_LIST: JsonSchema = {"type": "array"}


def filter_schemas(api: Api) -> Schemas:
    """Return the components of the filters of all resources, and of the operators that their attributes have.

    Groups and relationships may be nested deeper than these schemas are: schemas that refer to each other in cycles
    are more than many tools can read."""
    schemas = dict(_SHARED)
    names: dict[str, str] = {}
    for resource in api.catalog:
        own = ref(component(resource.type, "comparison"))
        attributes = [
            api.catalog.id_of(resource),
            *(attribute for attribute in resource.attributes if attribute.is_filterable),
        ]
        typed = [inner for attribute in attributes for inner in typed_inside(attribute)]
        comparisons = [
            *_comparisons([*attributes, *typed], names),
            *_comparisons_of_fields(attributes, names),
            *_comparisons_inside(attributes, names),
        ]
        groups = narrowed(_GROUP, **{"and": {"items": own}, "or": {"items": own}, "not": own})
        schemas[component(resource.type, "comparison")] = {"anyOf": comparisons}
        schemas[component(resource.type, "condition")] = {"anyOf": [own, *_relations(resource), groups]}
        nodes: JsonSchema = {"type": "array", "items": ref(component(resource.type, "condition"))}
        schemas[component(resource.type, "filter")] = {"anyOf": [nodes["items"], nodes]}
    return schemas | {name: json.loads(text) for text, name in names.items()}


def _comparisons(attributes: list[Attribute], names: dict[str, str]) -> Iterator[JsonSchema]:
    """Yield the filter objects that compare a field with a value. Attributes with the same operators and values are
    one. names: the components of their operators, each with its name."""
    by_component: dict[str, list[str]] = {}
    for attribute in attributes:
        name = _named(_operators(attribute), attribute.type.name, names)
        by_component.setdefault(name, []).append(attribute.name)
    for name, fields in by_component.items():
        yield narrowed(name, name={"enum": fields})


def _comparisons_inside(attributes: list[Attribute], names: dict[str, str]) -> Iterator[JsonSchema]:
    """Yield the filter objects that compare values inside JSON whose types are not declared."""
    for attribute in attributes:
        if attribute.type is JSONB:
            inner, _ = inner_attribute(attribute, ("name",))
            name = _named(_operators(inner), "inside", names)
            yield narrowed(name, name={"pattern": f"^{inside_pattern(attribute)}$"})


def _comparisons_of_fields(attributes: list[Attribute], names: dict[str, str]) -> Iterator[JsonSchema]:
    """Yield the filter objects that compare two fields of the same family, if it has two."""
    families: dict[str, list[str]] = {}
    by_component: dict[tuple[str, str], list[str]] = {}
    for attribute in attributes:
        families.setdefault(attribute.type.family, []).append(attribute.name)
        ops = [name for row in _rows(attribute) if row.on_field is not None for name in (row.name, *row.aliases)]
        if ops:
            text: JsonSchema = {"type": "string"}
            name = _named(_object({"name": text, "op": {"enum": ops}, "field": text}), "fields", names)
            by_component.setdefault((name, attribute.type.family), []).append(attribute.name)
    for (component_name, family), fields in by_component.items():
        if len(families[family]) > 1:
            yield narrowed(component_name, name={"enum": fields}, field={"enum": families[family]})


def _named(schema: JsonSchema, kind: str, names: dict[str, str]) -> str:
    """Return the component of a schema. names: the components, each with its name."""
    text = json.dumps(schema)
    if text not in names:
        kind = component("".join(filter(str.isalnum, kind)) or "type")
        number = sum(name.split(".")[1] == kind for name in names.values())
        names[text] = f"Filter.{kind}.{number}" if number else f"Filter.{kind}"
    return names[text]


def _object(members: JsonSchema, **optional: JsonSchema) -> JsonSchema:
    properties = members | optional
    return {"type": "object", "properties": properties, "required": list(members), "additionalProperties": False}


def _comparison_of_counts() -> JsonSchema:
    """Return the schema of the val of `count`: an operator and a number."""
    by_arity: dict[str, list[str]] = {}
    for row in OPERATORS:
        if row.name in COUNT_OPERATORS and row.applies(COUNTED):
            by_arity.setdefault(row.arity, []).append(row.name)
    number = value_schema(COUNTED.type)
    many: JsonSchema = {"type": "array", "items": number}
    vals = {"one": number, "list": many, "pair": many | {"minItems": 2, "maxItems": 2}}
    return {"anyOf": [_object({"op": {"enum": names}, "val": vals[arity]}) for arity, names in by_arity.items()]}


_SHARED: Schemas = {
    _GROUP: {
        "type": "object",
        "properties": {"and": _LIST, "or": _LIST, "not": {"type": "object"}},
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    },
    _HAS: _object({"name": {"type": "string"}, "op": {"const": "has"}, "val": _LIST}),
    _ANY: _object({"name": {"type": "string"}, "op": {"const": "any"}, "val": _LIST}),
    _COUNT: _object({"name": {"type": "string"}, "op": {"const": COUNT}, "val": _comparison_of_counts()}, of=_LIST),
}
"""The components that all filters have."""


def _relations(resource: Resource) -> Iterator[JsonSchema]:
    by_target: dict[tuple[str, bool], list[str]] = {}
    for relationship in resource.relationships:
        if relationship.filterable:
            by_target.setdefault((relationship.target, relationship.is_to_many), []).append(relationship.name)
    for (target, is_to_many), names in by_target.items():
        val = {"items": ref(component(target, "comparison"))}
        yield narrowed(_ANY if is_to_many else _HAS, name={"enum": names}, val=val)
        if is_to_many:
            yield narrowed(_COUNT, name={"enum": names}, of=val)


def _rows(attribute: Attribute) -> Iterator[OperatorRow]:
    return (row for row in OPERATORS if row.applies(attribute))


def _operators(attribute: Attribute) -> JsonSchema:
    """Return the schema of the operators of an attribute, with the values that they take."""
    by_val: dict[str, list[str]] = {}
    customs = {operator.name: dict(operator.schema) for operator in custom_operators(attribute)}
    for row in _rows(attribute):
        if row.name not in customs:
            key = json.dumps(_val(row, attribute))
            by_val.setdefault(key, []).extend((row.name, *row.aliases))
    kinds = [(names, json.loads(key)) for key, names in by_val.items()] + [
        ([name], ref(JSON_VALUE) | schema) for name, schema in customs.items()
    ]
    name: JsonSchema = {"type": "string"}
    comparisons = [_object({"name": name, "op": {"enum": names}, "val": val}) for names, val in kinds]
    return {"anyOf": comparisons}


def _val(row: OperatorRow, attribute: Attribute) -> JsonSchema:
    if row.only_null(attribute):
        return {"type": "null"}
    schema = row.schema or ({"type": "string", "pattern": WITHOUT_NUL} if row.is_text else None)
    if schema is None:
        schema = _value(row.value_type_of(attribute), is_id=attribute.name == "id")
    match row.arity:
        case "one":
            return nullable(schema) if row.on_null is not None else schema
        case "list":
            array: JsonSchema = {"type": "array", "items": schema}
            return array if attribute.type.element is None else {"anyOf": [array, schema]}
        case "pair":
            return {"type": "array", "items": schema, "minItems": 2, "maxItems": 2}


def _value(column_type: ColumnType, *, is_id: bool) -> JsonSchema:
    """Return the schema of a value. An id may be its text, too, and is not empty."""
    own = value_schema(column_type)
    if is_id and "minLength" in column_type.id_type.schema:
        return own | {"minLength": 1}
    if is_id and own.get("type") == "integer":
        return own | {"type": ["integer", "string"], "pattern": f"^{column_type.id_type.pattern}$"}
    return own
