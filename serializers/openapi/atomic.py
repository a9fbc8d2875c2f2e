"""Describes the documents of atomic operations, in the form of the extension and without it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from querybuild.declarations.catalog import Catalog
from querybuild.declarations.resource import Resource
from querybuild.declarations.values import JsonSchema
from querybuild.parse import ON_CONFLICT
from serializers.openapi.api import Api, Schemas, component, narrowed, ref
from serializers.openapi.documents import (
    INCLUDED,
    SENT_ID,
    VERSION,
    changed_attributes,
    example_document,
    linkage_part,
)
from serializers.operations.reader import MEMBER

OPERATIONS, RESULTS, LINKAGE = "JsonApi.Operations", "JsonApi.Results", "JsonApi.LinkageOperation"
RESOURCE_OPERATION, MAX_ROWS = "JsonApi.ResourceOperation", "JsonApi.MaxRows"
PLAIN_OPERATIONS, PLAIN_RESULTS = "JsonApi.PlainOperations", "JsonApi.PlainResults"
"""Without the extension. Only these have operations with a filter, and only the others have those on linkage."""

_MODES = {"add": "add", "replace": "update", "remove": "remove"}
"""The operation of each method of a relationship."""


def atomic_schemas(api: Api, max_operations: int) -> Schemas:
    """Return the components of requests and answers."""
    written = _written(api)
    kinds, linked = list(_of_resources(written)), list(_of_linkage(written, api.catalog))
    if not kinds and not linked:
        return {}
    named_kinds = [ref(RESOURCE_OPERATION)] if kinds else []
    named = {"type": {"type": "string"}, "id": SENT_ID, "relationship": {"type": "string"}}
    target: JsonSchema = {"type": "object", "properties": named, "required": list(named)}
    return {
        LINKAGE: _operation([*_MODES.values()], {"ref": target}),
        RESOURCE_OPERATION: {"anyOf": kinds},
        MAX_ROWS: {
            "description": "If the filter finds more resources, nothing is written.",
            "type": "integer",
            "minimum": 1,
            "maximum": api.limits.max_bulk_rows,
        },
        OPERATIONS: _listed([*named_kinds, *linked], max_operations),
        PLAIN_OPERATIONS: _listed([*named_kinds, *_with_filter(written, api)], max_operations),
        RESULTS: _results(_VERSION),
        PLAIN_RESULTS: _results({"anyOf": [{"type": "null"}, _VERSION, _COUNT]}),
    }


def _listed(kinds: list[JsonSchema], max_operations: int) -> JsonSchema:
    """Return the schema of a request. kinds: those of its operations."""
    listed: JsonSchema = {"type": "array", "minItems": 1, "maxItems": max_operations, "items": {"anyOf": kinds}}
    return {
        "type": "object",
        "description": "A resource that an operation adds may have a `lid`; later operations refer to it by that.",
        "properties": {MEMBER: listed},
        "required": [MEMBER],
    }


def _results(meta: JsonSchema) -> JsonSchema:
    """Return the schema of an answer. meta: that of a result."""
    data: JsonSchema = {"anyOf": [ref(INCLUDED), {"type": "null"}]}
    result: JsonSchema = {"type": "object", "properties": {"data": data, "meta": meta}}
    results = {"jsonapi": ref(VERSION), "atomic:results": {"type": "array", "items": result}}
    return {"type": "object", "properties": results, "required": ["atomic:results"]}


def has_operations(api: Api) -> bool:
    """Return whether atomic operations may write anything."""
    written = _written(api)
    return any(_of_resources(written)) or any(_of_linkage(written, api.catalog))


def _written(api: Api) -> list[Resource]:
    return [resource for resource in api.catalog if resource.in_operations]


def _of_resources(written: list[Resource]) -> Iterator[JsonSchema]:
    """Yield the operations on single resources."""
    for op, method, member, part in (
        ("add", "create", "data", "new"),
        ("update", "update", "data", "changed"),
        ("remove", "delete", "ref", "target"),
    ):
        kinds = [ref(component(resource.type, part)) for resource in written if method in resource.methods]
        if kinds:
            yield _operation([op], {member: {"anyOf": kinds}})


def _with_filter(written: list[Resource], api: Api) -> Iterator[JsonSchema]:
    """Yield the operations on the resources that a filter finds."""
    for resource in written:
        target = _whole({"type": {"const": resource.type}})
        meta = _whole({"filter": ref(component(resource.type, "filter")), "max": ref(MAX_ROWS)})
        if "update" in resource.methods and not resource.requires_match:
            data = _whole({"attributes": changed_attributes(resource, api)})
            yield _whole({"op": {"const": "update"}, "ref": target, "data": data, "meta": meta})
        if "delete" in resource.methods and not resource.requires_match:
            yield _whole({"op": {"const": "remove"}, "ref": target, "meta": meta})


def _whole(properties: JsonSchema) -> JsonSchema:
    """Return the schema of an object that has all of these members."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def _of_linkage(resources: list[Resource], catalog: Catalog) -> Iterator[JsonSchema]:
    """Yield the operations on relationships. Those with the same operations and targets are one."""
    by_kind: dict[tuple[str, str, tuple[str, ...]], dict[str, list[str]]] = {}
    for resource in resources:
        for relationship in resource.relationships:
            allowed = catalog.linkage_methods(resource, relationship)
            methods = [
                method for method in _MODES if method in allowed and (relationship.is_to_many or method == "replace")
            ]
            if methods:
                key = (relationship.target, linkage_part(relationship), tuple([_MODES[method] for method in methods]))
                by_kind.setdefault(key, {}).setdefault(resource.type, []).append(relationship.name)
    for (target, part, ops), owners in by_kind.items():
        refs = [
            {"properties": {"type": {"const": owner}, "relationship": {"enum": names}}}
            for owner, names in owners.items()
        ]
        sent = component(target, part)
        yield narrowed(sent, LINKAGE, op={"enum": list(ops)}, ref=refs[0] if len(refs) == 1 else {"anyOf": refs})


_VERSION: JsonSchema = {"type": "object", "properties": {"version": {"type": "string"}}}
_COUNT: JsonSchema = {"type": "object", "properties": {"count": {"type": "integer", "minimum": 0}}}
_MATCH: JsonSchema = {
    "type": "object",
    "properties": {
        "ifMatch": {
            "description": "The version that the resource must have, its tag with the quotes, or an array of these.",
            "anyOf": [
                {"type": "string", "pattern": "^[!#-~]+$"},
                {"type": "array", "minItems": 1, "items": {"type": "string", "pattern": "^[!#-)+-~]+$"}},
            ],
        },
    },
}
_OR_UPDATE: JsonSchema = {
    "type": "object",
    "properties": {
        ON_CONFLICT: {
            "description": "The fields of a unique key: a resource with the same values is updated instead.",
            "type": "string",
            "pattern": "^[^,]+(,[^,]+)*$",
        },
    },
}


def _operation(ops: list[str], members: JsonSchema) -> JsonSchema:
    properties = {"op": {"enum": ops}} | members
    meta = _OR_UPDATE if ops == ["add"] else _MATCH
    return {"type": "object", "properties": properties | {"meta": meta}, "required": list(properties)}


def example_operations(api: Api) -> dict[str, Any] | None:
    """Return an example of a request, or None if no resource can be added."""
    for resource in _written(api):
        if "create" in resource.methods:
            data = example_document(resource, api, on_create=True)["data"]
            return {MEMBER: [{"op": "add", "data": data}]}
    return None
