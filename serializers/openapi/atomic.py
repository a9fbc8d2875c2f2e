"""Describes the documents of atomic operations, in the form of the extension."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from querybuild.declarations.catalog import Catalog
from querybuild.declarations.resource import Resource
from querybuild.declarations.values import JsonSchema
from querybuild.parse import ON_CONFLICT
from serializers.openapi.api import Api, Schemas, component, narrowed, ref
from serializers.openapi.documents import INCLUDED, SENT_ID, VERSION, example_document, linkage_part
from serializers.operations import MEMBER

OPERATIONS, RESULTS, LINKAGE = "JsonApi.Operations", "JsonApi.Results", "JsonApi.LinkageOperation"
_MODES = {"add": "add", "replace": "update", "remove": "remove"}
"""The operation of each method of a relationship."""


def atomic_schemas(api: Api, max_operations: int) -> Schemas:
    """Return the components of requests and answers."""
    kinds = _operations(api)
    if not kinds:
        return {}
    listed: JsonSchema = {"type": "array", "minItems": 1, "maxItems": max_operations, "items": {"anyOf": kinds}}
    data: JsonSchema = {"anyOf": [ref(INCLUDED), {"type": "null"}]}
    result: JsonSchema = {"type": "object", "properties": {"data": data, "meta": _VERSION}}
    results = {"jsonapi": ref(VERSION), "atomic:results": {"type": "array", "items": result}}
    named = {"type": {"type": "string"}, "id": SENT_ID, "relationship": {"type": "string"}}
    target: JsonSchema = {"type": "object", "properties": named, "required": list(named)}
    return {
        LINKAGE: _operation([*_MODES.values()], {"ref": target}),
        OPERATIONS: {
            "type": "object",
            "description": "A resource that an operation adds may have a `lid`; later operations refer to it by that.",
            "properties": {MEMBER: listed},
            "required": [MEMBER],
        },
        RESULTS: {"type": "object", "properties": results, "required": ["atomic:results"]},
    }


def has_operations(api: Api) -> bool:
    """Return whether atomic operations may write anything."""
    return bool(_operations(api))


def _operations(api: Api) -> list[JsonSchema]:
    """Return the schemas of single operations."""
    written = [resource for resource in api.catalog if resource.in_operations]
    found = []
    for op, method, member, part in (
        ("add", "create", "data", "new"),
        ("update", "update", "data", "changed"),
        ("remove", "delete", "ref", "target"),
    ):
        kinds = [ref(component(one.type, part)) for one in written if method in one.methods]
        if kinds:
            found.append(_operation([op], {member: {"anyOf": kinds}}))
    return found + list(_of_linkage(written, api.catalog))


def _of_linkage(resources: list[Resource], catalog: Catalog) -> Iterator[JsonSchema]:
    """Yield the operations on relationships. Those with the same operations and targets are one."""
    alike: dict[tuple[str, str, tuple[str, ...]], dict[str, list[str]]] = {}
    for resource in resources:
        for one in resource.relationships:
            allowed = catalog.linkage_methods(resource, one)
            methods = [method for method in _MODES if method in allowed and (one.is_to_many or method == "replace")]
            if methods:
                key = (one.target, linkage_part(one), tuple([_MODES[method] for method in methods]))
                alike.setdefault(key, {}).setdefault(resource.type, []).append(one.name)
    for (target, part, ops), owners in alike.items():
        refs = [
            {"properties": {"type": {"const": owner}, "relationship": {"enum": names}}}
            for owner, names in owners.items()
        ]
        sent = component(target, part)
        yield narrowed(sent, LINKAGE, op={"enum": list(ops)}, ref=refs[0] if len(refs) == 1 else {"anyOf": refs})


_VERSION: JsonSchema = {"type": "object", "properties": {"version": {"type": "string"}}}
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
    for resource in api.catalog:
        if resource.in_operations and "create" in resource.methods:
            data = example_document(resource, api, on_create=True)["data"]
            return {MEMBER: [{"op": "add", "data": data}]}
    return None
