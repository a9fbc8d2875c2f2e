"""Describes the routes of database functions."""

from __future__ import annotations

from querybuild.declarations.access import ANYONE, Audience
from querybuild.declarations.function import ARGUMENT, RESULT, Function
from querybuild.declarations.resource import Attribute
from querybuild.declarations.types import JSON, JSONB
from querybuild.declarations.values import JsonSchema
from serializers.json_api import MEDIA_TYPE
from serializers.openapi.api import Api, component, ref
from serializers.openapi.attributes import written_schema
from serializers.openapi.parameters import parameter_refs
from server.describing.operations import X_QUERY, Describer, Paths
from server.describing.responses import response
from server.routes import TABLE, Method, Shape

_VALUE: JsonSchema = {
    "type": "object",
    "required": ["meta"],
    "properties": {"meta": {"type": "object", "required": [RESULT], "properties": {RESULT: {}}}},
}


def function_paths(api: Api, describer: Describer, *, is_authenticated: bool) -> Paths:
    """Return the paths of all functions that somebody may call. is_authenticated: whether it is known who asks."""
    paths: Paths = {}
    for function in api.catalog.functions:
        audiences = function.audiences(is_authenticated=is_authenticated)
        if audiences and not (describer.is_read_only and function.method == "POST"):
            paths[function.route_path] = {function.method.lower(): _operation(function, audiences, api, describer)}
    return paths


def _operation(function: Function, audiences: tuple[Audience, ...], api: Api, describer: Describer) -> JsonSchema:
    resource, row = api.catalog.by_type.get(function.returns), _row(function)
    operation: JsonSchema = {
        "operationId": f"function.{component(function.route_path.removeprefix('/'))}",
        "summary": f"Call {function.name}",
        "tags": ["functions" if resource is None else resource.type],
    }
    if function.description:
        operation["description"] = function.description
    parameters = [] if resource is None else list(parameter_refs(row.accepts, resource, None, api))
    if function.method == "GET":
        parameters += [_parameter(argument) for argument in function.arguments]
    else:
        parameters += describer.parameters_of_writes
        operation["requestBody"] = _body(function)
    if parameters:
        operation["parameters"] = parameters
    document = _VALUE if resource is None else ref(component(resource.type, "collection"))
    described = describer.described(row, has_id=False, is_open=function.access is None)
    headers = describer.headers_of_writes if described.is_write else []
    if function.method == "GET":
        operation["x-query"] = X_QUERY
    operation["responses"] = {"200": response(200, {MEDIA_TYPE: document}, headers)} | describer.refusals.of(described)
    is_readable = resource is None or (resource.type, "read") not in describer.refused
    return operation | describer.security(has_public=ANYONE in audiences and is_readable)


def _row(function: Function) -> Method:
    rows = [row for row in TABLE[Shape.FUNCTION] if row.is_to_many == bool(function.returns)]
    return next(row for row in rows if row.name == function.method)


def _parameter(argument: Attribute) -> JsonSchema:
    schema = written_schema(argument)
    parameter: JsonSchema = {"name": f"{ARGUMENT}{argument.name}", "in": "query", "required": argument.required}
    element = argument.type.element
    if argument.type in (JSON, JSONB) or (element is not None and schema["items"].get("type") == "array"):
        return parameter | {"content": {"application/json": {"schema": schema}}}
    if element is None:
        return parameter | {"schema": schema}
    # A list in a URL has no null: it would be a text.
    values = schema | {
        "items": element.json.schema if element.json.written_schema is None else element.json.written_schema
    }
    return parameter | {"style": "form", "explode": False, "schema": values}


def _body(function: Function) -> JsonSchema:
    meta = _object(function.arguments)
    needs = ["meta"] if any(argument.required for argument in function.arguments) else []
    schema: JsonSchema = {"type": "object", "properties": {"meta": meta}}
    schema |= {"required": needs} if needs else {}
    return {"required": bool(needs), "content": {MEDIA_TYPE: {"schema": schema}}}


def _object(arguments: tuple[Attribute, ...]) -> JsonSchema:
    described: JsonSchema = {
        "type": "object",
        "properties": {argument.name: written_schema(argument) for argument in arguments},
        "additionalProperties": False,
    }
    required = [argument.name for argument in arguments if argument.required]
    return described | ({"required": required} if required else {})
