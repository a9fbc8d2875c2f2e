"""Describes the parameter `filter`: for each attribute its operators, and the values that they take."""

from __future__ import annotations

import json
from collections.abc import Iterator

from querybuild.declarations.operators import OPERATORS, OperatorRow, custom_operators
from querybuild.declarations.resource import Attribute, Resource
from querybuild.declarations.types import ColumnType
from querybuild.declarations.values import WITHOUT_NUL, JsonSchema, nullable
from serializers.openapi.attributes import JSON_VALUE, value_schema
from serializers.openapi.contract import Contract, Schemas, component, ref


def filter_schemas(contract: Contract) -> Schemas:
    """Return the components of the filters of all resources, and of the operators that their attributes have.

    Groups and relationships may be nested deeper than these schemas are: schemas that refer to each other in cycles
    are more than many tools can read."""
    found: Schemas = {}
    names: dict[str, str] = {}
    for resource in contract.catalog:
        own = ref(component(resource.type, "comparison"))
        some: JsonSchema = {"type": "array", "items": own}
        attributes = [contract.catalog.id_of(resource), *(one for one in resource.attributes if one.is_filterable)]
        groups = {
            "type": "object",
            "properties": {"and": some, "or": some, "not": own},
            "additionalProperties": False,
            "minProperties": 1,
            "maxProperties": 1,
        }
        found[component(resource.type, "comparison")] = {"anyOf": list(_comparisons(attributes, names))}
        found[component(resource.type, "condition")] = {"anyOf": [own, *_relations(resource), groups]}
        nodes: JsonSchema = {"type": "array", "items": ref(component(resource.type, "condition"))}
        found[component(resource.type, "filter")] = {"anyOf": [nodes, nodes["items"]]}
    return found | {name: json.loads(text) for text, name in names.items()}


def _comparisons(attributes: list[Attribute], names: dict[str, str]) -> Iterator[JsonSchema]:
    """Yield the filter objects about fields. Attributes with the same operators and values are one. names: the
    components of their operators, each with its name."""
    alike: dict[str, list[str]] = {}
    families: dict[str, list[str]] = {}
    others: dict[str, list[str]] = {}
    for attribute in attributes:
        text = json.dumps(_operators(attribute))
        if text not in names:
            kind = component("".join(filter(str.isalnum, attribute.type.name)) or "type")
            number = sum(name.split(".")[1] == kind for name in names.values())
            names[text] = f"Filter.{kind}.{number}" if number else f"Filter.{kind}"
        alike.setdefault(names[text], []).append(attribute.name)
        others[names[text]] = families.setdefault(attribute.type.family, [])
        others[names[text]].append(attribute.name)
    for name, fields in alike.items():
        members = {"name": {"enum": fields}, "field": {"enum": others[name]}}
        yield {"allOf": [ref(name), {"type": "object", "properties": members, "required": ["name"]}]}


def _object(members: JsonSchema) -> JsonSchema:
    return {"type": "object", "properties": members, "required": list(members), "additionalProperties": False}


def _relations(resource: Resource) -> Iterator[JsonSchema]:
    alike: dict[tuple[str, bool], list[str]] = {}
    for one in resource.relationships:
        if one.filterable:
            alike.setdefault((one.target, one.is_to_many), []).append(one.name)
    for (target, is_to_many), names in alike.items():
        val: JsonSchema = {"type": "array", "items": ref(component(target, "comparison"))}
        yield _object({"name": {"enum": names}, "op": {"const": "any" if is_to_many else "has"}, "val": val})


def _operators(attribute: Attribute) -> JsonSchema:
    """Return the schema of the operators of an attribute, with the values that they take."""
    by_val: dict[str, list[str]] = {}
    customs = {one.name: dict(one.schema) for one in custom_operators(attribute)}
    for row in OPERATORS:
        if row.applies(attribute) and row.name not in customs:
            key = json.dumps(_val(row, attribute))
            by_val.setdefault(key, []).extend((row.name, *row.aliases))
    kinds = [(names, json.loads(key)) for key, names in by_val.items()] + [
        ([name], ref(JSON_VALUE) | schema) for name, schema in customs.items()
    ]
    name: JsonSchema = {"type": "string"}
    found = [_object({"name": name, "op": {"enum": names}, "val": val}) for names, val in kinds]
    rows = [row for row in OPERATORS if row.applies(attribute) and row.on_field is not None]
    if rows:
        names = [name for row in rows for name in (row.name, *row.aliases)]
        found.append(_object({"name": name, "op": {"enum": names}, "field": {"type": "string"}}))
    return {"anyOf": found}


def _val(row: OperatorRow, attribute: Attribute) -> JsonSchema:
    if row.only_null(attribute):
        return {"type": "null"}
    one = row.schema or ({"type": "string", "pattern": WITHOUT_NUL} if row.is_text else None)
    if one is None:
        one = _value(row.value_type_of(attribute), is_id=attribute.name == "id")
    match row.arity:
        case "one":
            return nullable(one) if row.on_null is not None else one
        case "list":
            found: JsonSchema = {"type": "array", "items": one}
            return found if attribute.type.element is None else {"anyOf": [found, one]}
        case "pair":
            return {"type": "array", "items": one, "minItems": 2, "maxItems": 2}


def _value(column_type: ColumnType, *, is_id: bool) -> JsonSchema:
    """Return the schema of a value. An id may be its text, too."""
    own = value_schema(column_type)
    if is_id and own.get("type") == "integer":
        return own | {"type": ["integer", "string"], "pattern": "^(0|-?[1-9][0-9]{0,8})$"}
    return own
