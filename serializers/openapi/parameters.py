"""Describes the query parameters of routes, one function for each family."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from querybuild.declarations.catalog import Catalog
from querybuild.declarations.database_types.searches import MAX_SEARCH, searchable_parts
from querybuild.declarations.resource import Relationship, Resource, ToOne
from querybuild.declarations.types import JSONB
from querybuild.declarations.values import WITHOUT_NUL, JsonSchema
from querybuild.parse import (
    ANSWER_AS,
    CHOICES,
    FAMILIES,
    INCLUDE_FILTER,
    INCLUDE_PAGE,
    INCLUDE_SORT,
    INCLUDED_TOTALS,
    NEAR_TO,
    ON_CONFLICT,
    SEARCH_TEXT,
)
from querybuild.parsing.groups import AGGREGATE_AS, GROUP_BY, GROUP_FILTER, GROUPING, TIME_ZONE
from querybuild.parsing.paging import TOTALS
from querybuild.planning.writes.conflicts import conflict_keys
from serializers.openapi.api import Api, Schemas, component, ref
from serializers.openapi.attributes import inside_pattern, typed_inside
from serializers.openapi.documents import example_id

MAX_PATHS = 24
"""How many paths of `include` are listed for a resource."""


_TAGS = r'^([*]|(W/)?"[!#-~]*"(, ?(W/)?"[!#-~]*")*)$'


def _in_header(name: str, description: str, schema: JsonSchema, example: str = "") -> JsonSchema:
    parameter = {"name": name, "in": "header", "description": description, "schema": schema}
    return parameter | ({"example": example} if example else {})


_KEY = _in_header(
    "Idempotency-Key",
    "A text of the client's own choice for one write. If the same request is sent again with it, it is not carried out "
    "again, and has the same answer. A random UUID is one: `5b0ee0d2-6c1f-4d1c-b0a5-2f6a3a4f4f6e`.",
    # The docs page would send an example, twice the same.
    {"type": "string", "pattern": r"^([!#-\[\]-~]{1,255}|\"[!#-\[\]-~]{1,255}\")$"},
)
IN_HEADER: Schemas = {
    "If-Match": _in_header(
        "If-Match",
        "The tag that was read, or only the version before its last dot: the write is done if it is still the same.",
        {"type": "string", "pattern": _TAGS},
        "*",
    ),
    "If-None-Match": _in_header(
        "If-None-Match",
        "Tags of documents that the client has: if one is still the same, the answer is a 304.",
        {"type": "string", "pattern": _TAGS},
        '"1349cde127705c16"',
    ),
    "If-None-Match.new": _in_header(
        "If-None-Match", "The resource is created if none has its id.", {"type": "string", "const": "*"}, "*"
    ),
    "Prefer": _in_header(
        "Prefer",
        "With `tx=rollback` the write is answered as always, and then undone.",
        {"type": "string", "enum": ["tx=commit", "tx=rollback"]},
        "tx=commit",
    ),
    "Prefer.read": _in_header(
        "Prefer", "With `cost` the answer has `meta.cost`.", {"type": "string", "enum": ["cost"]}, "cost"
    ),
    "Idempotency-Key": _KEY,
    "Idempotency-Key.required": _KEY | {"required": True},
}
"""The headers of requests, by the names of their components."""


def parameters(api: Api) -> Schemas:
    """Return the components of the parameters that several routes have."""
    by_name = {"page": _page(api), "fields": _fields(api.catalog), **_GROUPS, **IN_HEADER}
    if any(attribute.searchable for resource in api.catalog for attribute in resource.attributes):
        by_name[SEARCH_TEXT] = _SEARCH
    if any(api.has_distances(resource) for resource in api.catalog):
        by_name[NEAR_TO] = _NEAR
    if any(_may_choose(resource, api) for resource in api.catalog):
        by_name |= {INCLUDE_SORT: _include_sort(), INCLUDE_PAGE: _include_page(api)}
    for resource in api.catalog:
        by_name[id_parameter(resource)] = _id(resource)
        for relationship in resource.relationships:
            by_name[component(relationship.name, "linkage")] = _list_parameter("include", _INCLUDE, [relationship.name])
        for family, describe in _OF_RESOURCE.items():
            if family != INCLUDE_FILTER or _may_choose(resource, api):
                by_name[component(resource.type, family)] = describe(resource, api)
        if keys := conflict_keys(resource):
            by_name[component(resource.type, ON_CONFLICT)] = _on_conflict(keys)
    return by_name


def id_parameter(resource: Resource) -> str:
    """Return the component of the id in a path. Ids of the same type share it."""
    shared = resource.id.type
    is_own = bool(shared.parts or shared.choices)
    return component(resource.type, "id") if is_own else component("id", shared.name)


def _id(resource: Resource) -> JsonSchema:
    schema = resource.id_type.schema
    return {"name": "id", "in": "path", "required": True, "schema": schema, "example": example_id(resource)}


def parameter_refs(
    accepts: frozenset[str], shown: Resource, linkage: Relationship | None, api: Api
) -> Iterator[JsonSchema]:
    """Yield the parameters of a route with these families. shown: the type of its primary data, or of the resources
    that its linkage identifies. linkage: the relationship, if the route is one of linkage."""
    for family in FAMILIES:
        if family not in accepts or (family == ON_CONFLICT and not conflict_keys(shown)):
            continue
        if family == ANSWER_AS:
            # Only JSON:API is described: of several media types, typed clients would have to tell which one they get.
            continue
        if family == SEARCH_TEXT and not searchable_parts(shown):
            continue
        if family == NEAR_TO and not api.has_distances(shown):
            continue
        if family in CHOICES and (linkage is not None or not _may_choose(shown, api)):
            # The paths of linkage begin with its own relationship.
            continue
        if family in ("page", "fields", SEARCH_TEXT, NEAR_TO, INCLUDE_SORT, INCLUDE_PAGE, *GROUPING):
            yield ref(family, "parameters")
        elif family == "include" and linkage is not None:
            yield ref(component(linkage.name, "linkage"), "parameters")
        else:
            yield ref(component(shown.type, family), "parameters")


def _on_conflict(keys: list[str]) -> JsonSchema:
    return {
        "name": ON_CONFLICT,
        "in": "query",
        "description": "The fields by which a resource is found, which is updated instead of creating one.",
        "schema": {"type": "string", "enum": keys},
    }


_INCLUDE = "Related resources, by paths of relationships."

_FILTER = [{"name": "id", "op": "isnot", "val": None}]
"""A filter for all resources, as an example."""


def _filter(resource: Resource, api: Api) -> JsonSchema:
    return {
        "name": "filter",
        "in": "query",
        "description": "What resources must meet: filter objects and groups.",
        "content": {"application/json": {"schema": ref(component(resource.type, "filter")), "example": _FILTER}},
    }


def _sort(resource: Resource, api: Api) -> JsonSchema:
    own = [sign + key for key in _sort_keys(resource) for sign in ("", "-")]
    by_keys: dict[str, list[str]] = {}
    for relationship in resource.relationships:
        if isinstance(relationship, ToOne) and relationship.filterable:
            keys = "|".join(key for key in _sort_keys(api.catalog.target(relationship)) if not key.startswith("count("))
            by_keys.setdefault(keys, []).append(relationship.name)
    paths = [f"({'|'.join(names)})[.]({keys})" for keys, names in by_keys.items()]
    for relationship in resource.relationships:
        many = [
            each.name for each in api.catalog.target(relationship).relationships if each.is_to_many and each.filterable
        ]
        if isinstance(relationship, ToOne) and relationship.filterable and many:
            paths.append(f"count[(]{relationship.name}[.]({'|'.join(many)})[)]")
    inside = [attribute for attribute in resource.attributes if attribute.is_sortable and attribute.type is JSONB]
    paths += [inside_pattern(attribute) for attribute in inside]
    own += [sign + typed.name for attribute in inside for typed in typed_inside(attribute) for sign in ("", "-")]
    text = "Fields to sort by, descending with a minus."
    parameter = _list_parameter("sort", text, own)
    if paths:
        related = {"type": "string", "pattern": f"^-?({'|'.join(paths)})$"}
        parameter["schema"]["items"] = {"anyOf": [parameter["schema"]["items"], related]}
    parameter["schema"]["minItems"] = 1
    return parameter


def _sort_keys(resource: Resource) -> Iterator[str]:
    yield "id"
    for relationship in resource.relationships:
        if relationship.is_to_many and relationship.filterable:
            yield f"count({relationship.name})"
    for attribute in resource.attributes:
        if attribute.is_sortable and attribute.type.comparison.has_order:
            yield attribute.name


def _include(resource: Resource, api: Api) -> JsonSchema:
    return _list_parameter("include", _INCLUDE, list(_include_paths(resource, api)))


def _include_paths(resource: Resource, api: Api) -> dict[str, Relationship]:
    """Return paths of `include`, each with its last relationship."""
    level: list[tuple[tuple[str, ...], Resource]] = [((), resource)]
    by_path: dict[str, Relationship] = {}
    for _ in range(api.limits.max_include_depth):
        steps = [
            ((*path, relationship.name), relationship)
            for path, owner in level
            for relationship in owner.relationships
            if relationship.includable
        ]
        if by_path and len(by_path) + len(steps) > MAX_PATHS:
            break
        by_path |= {".".join(path): relationship for path, relationship in steps}
        level = [(path, api.catalog.target(relationship)) for path, relationship in steps]
    return by_path


def _may_choose(resource: Resource, api: Api) -> bool:
    """Return whether there are include paths at whose end there may be several resources."""
    return any(relationship.is_to_many for relationship in _include_paths(resource, api).values())


def _include_filter(resource: Resource, api: Api) -> JsonSchema:
    """Return the parameter for the filters of included resources. Each path of one step is named."""
    text: JsonSchema = {"type": "string", "contentMediaType": "application/json"}
    filters = {
        relationship.name: text | {"contentSchema": ref(component(relationship.target, "filter"))}
        for relationship in resource.relationships
        if relationship.is_to_many and relationship.includable
    }
    schema = _keys(filters) | {"additionalProperties": text}
    example = f"{INCLUDE_FILTER}[{next(iter(filters), 'path')}]=[...]"
    return _of_paths(INCLUDE_FILTER, f"Which related resources are shown: `{example}`, as in `filter`.", schema)


def _include_sort() -> JsonSchema:
    schema: JsonSchema = {"type": "object", "additionalProperties": {"type": "string", "minLength": 1}}
    text = f"The order of related resources: `{INCLUDE_SORT}[path]=-id`, as in `sort`."
    return _of_paths(INCLUDE_SORT, text, schema)


def _include_page(api: Api) -> JsonSchema:
    size = {"type": "integer", "minimum": 0, "maximum": api.limits.max_included_page}
    page = _keys({"size": size, "total": {"type": "string", "enum": list(INCLUDED_TOTALS)}})
    text = (
        f"How many related resources of each are shown: `{INCLUDE_PAGE}[path][size]=5`, and how many there are: "
        f"`{INCLUDE_PAGE}[path][total]=exact`."
    )
    return _of_paths(INCLUDE_PAGE, text, {"type": "object", "additionalProperties": page})


def _of_paths(name: str, description: str, schema: JsonSchema) -> JsonSchema:
    return {
        "name": name,
        "in": "query",
        "description": f"{description} The path is one of `include`, or the beginning of one, and ends in a to-many.",
        "style": "deepObject",
        "explode": True,
        "schema": schema,
        "example": {},
    }


def _list_parameter(name: str, description: str, items: list[str]) -> JsonSchema:
    """Return a parameter whose value is a list with commas between."""
    schema: JsonSchema = {"type": "array", "items": {"type": "string", "enum": items}}
    if not items:
        schema = {"type": "array", "items": {"type": "string"}, "maxItems": 0}
    return {
        "name": name,
        "in": "query",
        "description": description,
        "style": "form",
        "explode": False,
        "schema": schema,
    }


def _query(name: str, description: str, schema: JsonSchema, **others: Any) -> JsonSchema:
    return {"name": name, "in": "query", "description": description, "schema": schema, **others}


_NEAR = _query(
    NEAR_TO,
    "The nearest resources first, on one page: an attribute, and the value that others are near to. `meta.distance` of "
    "each resource has the distance.",
    {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 1},
    style="deepObject",
    explode=True,
    example={},
)

_SEARCH = _query(
    SEARCH_TEXT,
    'Words that resources have. The best are first. `"..."` is a phrase, `or` one of both, `-` without the word: '
    "`boat -fog`.",
    # The docs page would send an example.
    {"type": "string", "maxLength": MAX_SEARCH, "pattern": WITHOUT_NUL},
)

_CALLS = r"^(count[(](distinct )?[^()]*|(sum|avg|min|max)[(][^()]+)[)]$"

_GROUPS: Schemas = {
    GROUP_BY: _query(
        GROUP_BY,
        "Groups in `meta.groups` instead of resources: the attributes, with commas between, by whose values they are "
        "made. `year(...)`, `month(...)`, `day(...)` and `hour(...)` cut dates.",
        {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
        style="form",
        explode=False,
    ),
    AGGREGATE_AS: _query(
        AGGREGATE_AS,
        f"A number of each group, under a name: `{AGGREGATE_AS}[mean]=avg(age)`.",
        {"type": "object", "additionalProperties": {"type": "string", "pattern": _CALLS}},
        style="deepObject",
        explode=True,
        example={},
    ),
    GROUP_FILTER: {
        "name": GROUP_FILTER,
        "in": "query",
        "description": "What the numbers of groups must meet: filter objects and groups of them, as in `filter`.",
        "content": {"application/json": {"schema": {"type": "array", "items": {"type": "object"}}, "example": []}},
    },
    TIME_ZONE: _query(
        TIME_ZONE,
        "The time zone in which timestamps of groups are cut to periods: `Europe/Paris`. The default is UTC.",
        {"type": "string"},
    ),
}
"""The parameters of groups."""


def _page(api: Api) -> JsonSchema:
    """Return the parameter `page`. The families of its keys exclude each other."""
    limits = api.limits
    total = {"type": "string", "enum": list(TOTALS), "description": "How meta.total is counted."}
    size = {"type": "integer", "minimum": 1, "maximum": limits.max_page_size}
    number, offset = {"type": "integer", "minimum": 1}, {"type": "integer", "minimum": 0}
    cursor = {
        "type": "string",
        "const": "",
        "description": "The first page by cursor. `links.next` and `links.prev` of the answer lead to the others.",
    }
    kinds = [
        _keys({"size": size, "number": number, "total": total}),
        _keys({"limit": size, "offset": offset, "total": total}, ["limit"]),
        _keys({"after": cursor, "size": size, "total": total}, ["after"]),
    ]
    if limits.unpaginated != "off":
        everything = {"const": 0, "description": "All resources, without pages."}
        kinds.append(_keys({"size": everything, "total": total}, ["size"]))
    return {
        "name": "page",
        "in": "query",
        "description": f"A part of the list: `page[size]={limits.page_size}&page[number]=1`.",
        "style": "deepObject",
        "explode": True,
        "schema": {"anyOf": kinds},
        "example": {"size": limits.page_size},
    }


def _keys(properties: JsonSchema, required: list[str] | None = None) -> JsonSchema:
    schema: JsonSchema = {"type": "object", "properties": properties, "additionalProperties": False}
    return schema | {"required": required} if required else schema


def _fields(catalog: Catalog) -> JsonSchema:
    return {
        "name": "fields",
        "in": "query",
        "description": "Which fields to show, for each type: `fields[type]=name,name`.",
        "style": "deepObject",
        "explode": True,
        "schema": _keys({resource.type: _fieldset(resource) for resource in catalog}),
        "example": {},
    }


def _fieldset(resource: Resource) -> JsonSchema:
    names = [attribute.name for attribute in (*resource.readable_attributes, *resource.relationships)]
    return {"type": "string", "pattern": f"^(({'|'.join(names)})(,(?!$)|$))*$"}


_OF_RESOURCE: dict[str, Callable[[Resource, Api], JsonSchema]] = {
    "filter": _filter,
    "sort": _sort,
    "include": _include,
    INCLUDE_FILTER: _include_filter,
}
