"""Builds the OpenAPI document of a server, as a principal sees it. What comes in: an engine, a context, what custom
routes say of themselves. What goes out: the document.

A principal sees the routes and fields that exist for it. The document does not contain anything of the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from querybuild.declarations.resource import Resource
from querybuild.declarations.values import JsonSchema
from querybuild.planning.context import Context
from querybuild.principal import ANONYMOUS
from serializers.json_api import MEDIA_TYPE
from serializers.openapi.api import Api, ref
from serializers.openapi.atomic import atomic_schemas
from serializers.openapi.documents import MESSAGE, ROOT, document_schemas
from serializers.openapi.parameters import parameters
from server.describing.filters import filter_schemas
from server.describing.functions import function_paths
from server.describing.operations import OPERATIONS, Describer, Paths, operations
from server.describing.responses import HEADERS, DescribedOperation, response
from server.engine import Engine
from server.routes import TABLE, Shape

VERSION = "3.1.0"

_FIXED: dict[Shape, tuple[str, str, JsonSchema]] = {
    Shape.ROOT: ("root", "List the collections", {MEDIA_TYPE: ref(ROOT)}),
    Shape.LIVE: ("live", "Ask whether the server runs", {MEDIA_TYPE: ref(MESSAGE)}),
    Shape.READY: ("ready", "Ask whether the server accepts requests", {MEDIA_TYPE: ref(MESSAGE)}),
    Shape.METRICS: (
        "metrics",
        "Read the metrics of the server",
        {row.name: {"type": "string"} for row in TABLE[Shape.METRICS][0].answers},
    ),
    Shape.OPENAPI: ("openapi", "Read this document", {"application/json": {"type": "object"}}),
}
"""The routes that do not depend on declarations: the id of the operation, its summary, the schemas of its answer."""


_HINTS = """\
Documents are those of [JSON:API](https://jsonapi.org/format/1.0/).

- `filter` is JSON: a filter object, a group, or a list of them that a resource must meet. Groups, `any` and `has` may
  be nested deeper than the schemas say. A dotted path (`group.name`) leads to a field of a related resource.
  `filter[field]=value` and `filter[field][operator]=value` are short forms.
- `include` and `sort` may have longer paths than those that are listed.
- Routes with `x-query` have the method QUERY too: it answers like GET, with the parameters of the URL in a body of
  `application/x-www-form-urlencoded`.
- Every answer has the header `X-Request-Id`: that of the request, or a new one.
"""
"""What the schemas do not say."""


_TAGS = {
    "functions": "Functions of the database.",
    "operations": "Several writes in one transaction.",
    "server": "The server itself.",
}


def describe(engine: Engine, context: Context, custom: Iterable[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Return the document. custom: the paths of custom routes."""
    settings, api = engine.settings, _api(engine, context)
    describer = Describer(
        api,
        engine.context_of(ANONYMOUS).access.refused,
        is_open=engine.is_open,
        has_bearer=settings.takes_tokens,
        is_read_only=settings.read_only,
        has_tries=settings.allow_rollback,
        keys=settings.idempotency,
    )
    paths = _paths(engine, describer, custom)
    return _pruned(
        {
            "openapi": VERSION,
            "info": {"title": settings.api_title, "version": settings.api_version, "description": _HINTS},
            "servers": [{"url": engine.base_url or "/"}],
            "tags": [_tag(resource) for resource in api.catalog] + list(_other_tags(paths)),
            **_with_shared_security(paths),
            # Made last: the paths add components to the describer.
            "components": _components(engine, describer),
        }
    )


def _api(engine: Engine, context: Context) -> Api:
    """Return the API as the principal sees it."""
    limits = {
        (resource.type, attribute.name): limit
        for resource in engine.catalog
        for attribute in resource.attributes
        if (limit := engine.schema.limits.get(attribute)) is not None
    }
    return Api(engine.view_of(context).catalog, context.access, engine.limits, limits)


def _paths(engine: Engine, describer: Describer, custom: Iterable[Mapping[str, Any]]) -> Paths:
    """Return the paths, and add what several of them share to the components of the describer."""
    paths: Paths = {
        path: {"get": _fixed_operation(shape, describer)}
        for path, shape in engine.fixed_paths.items()
        if shape in _FIXED
    }
    paths |= describer.paths() | function_paths(describer.api, describer, is_authenticated=engine.has_authentication)
    if engine.settings.operations_path:
        paths |= describer.atomic(engine.settings.operations_path)
    for described in custom:
        paths |= described
    return paths


def _with_shared_security(paths: Paths) -> JsonSchema:
    """Return the members `paths` and `security` of the document: the credentials that most operations accept are
    those of the document."""
    kinds = [operation["security"] for operation in operations(paths) if "security" in operation]
    if not kinds:
        return {"paths": paths}
    shared = max(kinds, key=kinds.count)
    items = {
        path: {name: _secured(name, member, shared) for name, member in item.items()} for path, item in paths.items()
    }
    return {"security": shared, "paths": items}


def _secured(name: str, member: Any, shared: list[JsonSchema]) -> Any:
    """Return a member of a path. An operation that says nothing of credentials would have those of the document."""
    if name not in OPERATIONS:
        return member
    secured = {"security": []} | member
    return {name: value for name, value in secured.items() if name != "security" or value != shared}


def _components(engine: Engine, describer: Describer) -> dict[str, Any]:
    """Return the components of all paths."""
    settings, api = engine.settings, describer.api
    schemas = document_schemas(api) | filter_schemas(api)
    if settings.operations_path:
        schemas |= atomic_schemas(api, settings.max_operations)
    components: dict[str, Any] = {
        "schemas": schemas | describer.schemas,
        "parameters": parameters(api),
        "headers": HEADERS,
        "requestBodies": describer.bodies,
        "responses": describer.answers | describer.refusals.components,
    }
    if settings.takes_tokens:
        components["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    return components


def _pruned(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document without the components that nothing refers to."""
    components, reached, pending = document["components"], set[str](), [document["paths"]]
    while pending:
        member = pending.pop()
        if isinstance(member, list):
            pending += member
        elif isinstance(member, dict):
            pending += member.values()
            name = member.get("$ref")
            if isinstance(name, str) and name not in reached:
                reached.add(name)
                _, _, kind, part = name.split("/")
                pending.append(components[kind][part])
    kept = {
        kind: {name: component for name, component in some.items() if f"#/components/{kind}/{name}" in reached}
        for kind, some in components.items()
        if kind != "securitySchemes"
    }
    return document | {"components": components | kept}


def _fixed_operation(shape: Shape, describer: Describer) -> JsonSchema:
    name, summary, content = _FIXED[shape]
    [row] = TABLE[shape]
    headers = ["ETag", "Cache-Control"] if shape is Shape.OPENAPI else []
    done = {"200": response(200, content, headers)}
    if shape is Shape.OPENAPI:
        done["304"] = response(304, {}, headers)
    described = DescribedOperation(row, has_id=False, is_open=describer.is_open, uses_database=shape is Shape.READY)
    responses = done if shape is Shape.LIVE else done | describer.refusals.of(described)
    operation: JsonSchema = {"operationId": name, "summary": summary, "tags": ["server"], "responses": responses}
    return operation | describer.security(has_public=shape is not Shape.METRICS)


def _other_tags(paths: Paths) -> Iterator[JsonSchema]:
    """Yield the tags that are not of resources, if an operation has them."""
    used = {tag for operation in operations(paths) for tag in operation.get("tags", ())}
    for name, description in _TAGS.items():
        if name in used:
            yield {"name": name, "description": description}


def _tag(resource: Resource) -> JsonSchema:
    tag = {"name": resource.type}
    return tag | {"description": resource.description} if resource.description else tag
