"""Describes the documents of resources: those of answers, and those that requests send."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from querybuild.declarations.resource import Attribute, Relationship, Resource, ToOne
from querybuild.declarations.values import JsonSchema, nullable
from serializers.openapi.api import Api, Schemas, component, narrowed, ref
from serializers.openapi.attributes import (
    VALUE_SCHEMAS,
    example,
    examples,
    shape_schemas,
    shown_schema,
    value_schema,
    written_schema,
)

VERSION, LINKS, META, INCLUDED = "JsonApi.Version", "JsonApi.Links", "JsonApi.Meta", "JsonApi.Included"
CHOSEN = "JsonApi.Chosen"
ERRORS, MESSAGE, ROOT, DOCUMENT = "JsonApi.Errors", "JsonApi.Message", "JsonApi.Root", "JsonApi.Document"

TO_MANY, TO_ONE, REQUIRED = "to_many", "to_one", "required"
"""The components of a resource for requests that send linkage to it. The last one must not be empty."""

SENT_ID: JsonSchema = {"type": ["string", "integer"]}
"""An id in a request, where a number is accepted as its digits."""

TEXT: JsonSchema = {"type": "string"}


def _object(properties: JsonSchema, required: Iterable[str] = ()) -> JsonSchema:
    needed = list(required)
    return {"type": "object", "properties": properties} | ({"required": needed} if needed else {})


_DISTANCE: JsonSchema = {
    "type": ["number", "null"],
    "description": "With nearTo, how far the value is from the one that was sent.",
}
_COUNT: JsonSchema = {"type": "integer", "minimum": 0}

SHARED: Schemas = {
    VERSION: _object({"version": {"const": "1.0"}}, ["version"]),
    LINKS: {"type": "object", "additionalProperties": {"type": "string"}},
    META: _object(
        {
            "count": _COUNT | {"description": "The resources of this page."},
            "total": _COUNT | {"description": "All resources that match, if they were counted."},
            "totalPages": _COUNT,
            "totalEstimated": {"type": "boolean", "description": "Whether the total is an estimate."},
            "message": TEXT,
            "cost": _COUNT | {"description": "What the read costs, if the request prefers to know."},
            "groups": {
                "type": "array",
                "items": _object({"by": {"type": "object"}}, ["by"]),
                "description": "The groups, if the request asks for them: their keys in `by`, and their numbers.",
            },
        }
    ),
    CHOSEN: _object(
        {
            "partial": {"const": True, "description": "Whether the request chose which of the links are shown."},
            "count": _COUNT | {"description": "The links that are shown."},
            "hasMore": {"type": "boolean", "description": "Whether there are others after them."},
            "total": _COUNT | {"description": "All links that match, if they were counted."},
        }
    ),
    DOCUMENT: _object(
        {
            "jsonapi": ref(VERSION),
            "included": {"type": "array", "items": ref(INCLUDED)},
            "links": ref(LINKS),
            "meta": ref(META),
        },
        ["jsonapi"],
    ),
    MESSAGE: _object(
        {"jsonapi": ref(VERSION), "meta": {"type": "object", "additionalProperties": TEXT}}, ["jsonapi", "meta"]
    ),
    ROOT: _object(
        {"jsonapi": ref(VERSION), "links": ref(LINKS), "meta": {"type": "object"}}, ["jsonapi", "links", "meta"]
    ),
    ERRORS: _object(
        {
            "jsonapi": ref(VERSION),
            "errors": {
                "type": "array",
                "minItems": 1,
                "items": _object(
                    {
                        "id": TEXT | {"description": "The id of the request, and a number."},
                        "status": TEXT | {"pattern": "^[45][0-9]{2}$"},
                        "code": TEXT | {"description": "A stable name of the error."},
                        "title": TEXT,
                        "detail": TEXT | {"description": "What was wrong, and what to do."},
                        "source": _object(
                            {
                                "pointer": TEXT | {"description": "A JSON pointer into the document of the request."},
                                "parameter": TEXT | {"description": "The name of a query parameter."},
                                "header": TEXT | {"description": "The name of a request header."},
                            }
                        ),
                        "status_code": {"type": "integer"},
                        "meta": {"type": "object", "additionalProperties": TEXT},
                    },
                    ["id", "status", "code", "title", "detail"],
                ),
            },
        },
        ["jsonapi", "errors"],
    ),
    **VALUE_SCHEMAS,
}
"""The components that do not depend on declarations."""


def document_schemas(api: Api) -> Schemas:
    """Return the components of all documents."""
    schemas = SHARED | shape_schemas(api)
    types = {each.type: ref(component(each.type)) for each in api.catalog}
    mapping = {name: reference["$ref"] for name, reference in types.items()}
    schemas[INCLUDED] = {"anyOf": [*types.values()], "discriminator": {"propertyName": "type", "mapping": mapping}}
    for resource in api.catalog:
        schemas |= dict(_of_resource(resource, api))
    return schemas


def _of_resource(resource: Resource, api: Api) -> Iterator[tuple[str, JsonSchema]]:
    own, identifier = ref(component(resource.type)), ref(component(resource.type, "identifier"))
    yield component(resource.type), _resource_object(resource, api)
    yield component(resource.type, "identifier"), _identifier(resource, resource.id_type.schema)
    yield component(resource.type, "document"), _document(own)
    yield component(resource.type, "related"), _document(_or_null(own))
    yield component(resource.type, "collection"), _document({"type": "array", "items": own})
    yield component(resource.type, "one"), _object({"links": ref(LINKS), "data": _or_null(identifier)})
    many = {"type": "array", "items": identifier}
    yield component(resource.type, "many"), _object({"links": ref(LINKS), "data": many, "meta": ref(CHOSEN)})
    for part, shown in (("link", "one"), ("links", "many")):
        links = [ref(DOCUMENT), ref(component(resource.type, shown))]
        yield component(resource.type, part), {"allOf": links, "required": ["data"]}
    yield component(resource.type, "new"), _written(resource, api, on_create=True)
    yield component(resource.type, "changed"), _written(resource, api, on_create=False)
    both = api.written_attributes(resource, on_create=True)
    yield component(resource.type, "attributes"), _attributes(both, resource, api)
    linked = api.written_relationships(resource, on_create=True)
    yield component(resource.type, "relationships"), _relationships(linked)
    for part, data in (("create", "new"), ("update", "changed")):
        yield component(resource.type, part), _object({"data": ref(component(resource.type, data))}, ["data"])
    yield component(resource.type, "target"), _identifier(resource, sent_id(resource))
    for part in (TO_MANY, TO_ONE, REQUIRED):
        yield component(resource.type, part), _object({"data": linkage(resource.type, part)}, ["data"])


def _document(data: JsonSchema) -> JsonSchema:
    """Return the schema of an answer with this primary data."""
    return narrowed(DOCUMENT, data=data) | {"required": ["data"]}


def _or_null(schema: JsonSchema) -> JsonSchema:
    return {"anyOf": [schema, {"type": "null"}]}


def _identifier(resource: Resource, id_schema: JsonSchema) -> JsonSchema:
    return _object({"type": {"const": resource.type}, "id": id_schema}, ["type", "id"])


def sent_id(resource: Resource) -> JsonSchema:
    """Return the schema of the id of a resource in a request."""
    return resource.id_type.schema | SENT_ID


def _resource_object(resource: Resource, api: Api) -> JsonSchema:
    attributes = {attribute.name: shown_schema(attribute, api, resource) for attribute in resource.readable_attributes}
    members: JsonSchema = {"type": {"const": resource.type}, "id": resource.id_type.schema}
    if attributes:
        members["attributes"] = _object(attributes)
    if resource.relationships:
        members["relationships"] = _object(
            {relationship.name: _shown_linkage(relationship) for relationship in resource.relationships}
        )
    if "detail" in resource.methods:
        members["links"] = ref(LINKS)
    version, meta = resource.abilities.version, dict[str, JsonSchema]()
    if version is not None and version.column:
        meta["version"] = TEXT | {"description": "The version of the row, for If-Match."}
    needed = list(meta)
    if api.has_distances(resource):
        meta["distance"] = _DISTANCE
    if meta:
        members["meta"] = _object(meta, needed)
    described = _object(members, ["type", "id"])
    return described | {"description": resource.description} if resource.description else described


def _shown_linkage(relationship: Relationship) -> JsonSchema:
    schema = ref(component(relationship.target, "many" if relationship.is_to_many else "one"))
    return schema | {"description": relationship.description} if relationship.description else schema


def linkage(target: str, part: str) -> JsonSchema:
    """Return the schema of the linkage that a request sends. target: the type of the resources. part: one of TO_MANY,
    TO_ONE and REQUIRED."""
    identifier = ref(component(target, "target"))
    if part == TO_MANY:
        # What is removed need not exist, so any id is accepted.
        return {"type": "array", "items": _object({"type": {"const": target}, "id": SENT_ID}, ["type", "id"])}
    return _or_null(identifier) if part == TO_ONE else identifier


def linkage_part(relationship: Relationship) -> str:
    """Return which component of the target describes a request that sends linkage."""
    if isinstance(relationship, ToOne):
        return TO_ONE if relationship.nullable else REQUIRED
    return TO_MANY


def create_below(resource: Resource, holder: str, api: Api) -> JsonSchema:
    """Return the schema of the document of a POST below an owner. holder: the relationship to the owner, which the path
    sets."""
    return _object({"data": _written(resource, api, on_create=True, without=holder)}, ["data"])


def _written(resource: Resource, api: Api, *, on_create: bool, without: str = "") -> JsonSchema:
    """Return the schema of the resource object of a POST or PATCH. without: a relationship that may be left out."""
    given = {*api.set_by_rules(resource), without}
    written = [
        attribute for attribute in api.written_attributes(resource, on_create=on_create) if attribute.name not in given
    ]
    relationships = list(api.written_relationships(resource, on_create=on_create))
    required = [attribute.name for attribute in written if _is_required(attribute, on_create=on_create)]
    links = [
        relationship.name
        for relationship in relationships
        if on_create and _is_required_link(relationship) and relationship.name not in given
    ]
    members: JsonSchema = {"type": {"const": resource.type}}
    if not on_create:
        members["id"] = sent_id(resource)
    elif resource.client_ids:
        bounds = {name: value for name, value in resource.id.type.json.schema.items() if name in ("minimum", "maximum")}
        chosen = sent_id(resource) | bounds
        members["id"] = nullable(chosen) | {"description": "Without it the server chooses one."}
    members["attributes"] = _sent_attributes(resource, api, required, on_create=on_create)
    if relationships:
        members["relationships"] = _sent_relationships(resource, api, relationships, links)
    needed = ["type"] + ["id"] * (not on_create) + ["attributes"] * (on_create and bool(required))
    return _object(members, needed + ["relationships"] * bool(links))


def changed_attributes(resource: Resource, api: Api) -> JsonSchema:
    """Return the schema of the attributes of an update."""
    written = api.written_attributes(resource, on_create=False)
    required = [attribute.name for attribute in written if _is_required(attribute, on_create=False)]
    return _sent_attributes(resource, api, required, on_create=False)


def _sent_attributes(resource: Resource, api: Api, required: list[str], *, on_create: bool) -> JsonSchema:
    """Return the schema of the attributes of a request. Creates and updates share it, if they write the same ones."""
    own, other = (list(api.written_attributes(resource, on_create=kind)) for kind in (on_create, not on_create))
    if own != other:
        return _attributes(own, resource, api) | ({"required": required} if required else {})
    shared = ref(component(resource.type, "attributes"))
    return {"allOf": [shared], "required": required} if required else shared


def _sent_relationships(resource: Resource, api: Api, own: list[Relationship], required: list[str]) -> JsonSchema:
    """Return the schema of the relationships of a request. Creates and updates share it, if they write the same."""
    if own != list(api.written_relationships(resource, on_create=True)):
        return _relationships(own) | ({"required": required} if required else {})
    shared = ref(component(resource.type, "relationships"))
    return {"allOf": [shared], "required": required} if required else shared


def _relationships(relationships: Iterable[Relationship]) -> JsonSchema:
    return _object({relationship.name: _sent_linkage(relationship) for relationship in relationships}) | {
        "additionalProperties": False
    }


def _attributes(attributes: Iterable[Attribute], resource: Resource, api: Api) -> JsonSchema:
    members = {attribute.name: written_schema(attribute, api.limit_of(resource, attribute)) for attribute in attributes}
    return _object(members) | {"additionalProperties": False}


def _is_required(attribute: Attribute, *, on_create: bool) -> bool:
    return attribute.required if on_create else attribute.required_on_update


def _is_required_link(relationship: Relationship) -> bool:
    return isinstance(relationship, ToOne) and relationship.is_required


def _sent_linkage(relationship: Relationship) -> JsonSchema:
    schema = ref(component(relationship.target, linkage_part(relationship)))
    return schema | {"description": relationship.description} if relationship.description else schema


def example_document(resource: Resource, api: Api, *, on_create: bool, without: str = "") -> dict[str, Any]:
    """Return an example of the document of a POST or PATCH. without: a relationship that is left out."""
    written = list(api.written_attributes(resource, on_create=on_create))
    data: dict[str, Any] = {"type": resource.type}
    if not on_create:
        data["id"] = example_id(resource)
        # An update names what it changes.
        written = [attribute for attribute in written if attribute.required_on_update] or written[:1]
    data["attributes"] = examples(written, api, resource)
    linked = api.written_relationships(resource, on_create=on_create)
    required = [
        relationship for relationship in linked if _is_required_link(relationship) and relationship.name != without
    ]
    if on_create and required:
        data["relationships"] = {
            relationship.name: {
                "data": {"type": relationship.target, "id": example_id(api.catalog.target(relationship))}
            }
            for relationship in required
        }
    return {"data": data}


def example_linkage(target: Resource, part: str) -> dict[str, Any]:
    """Return an example of a request that sends linkage. part: which component describes it."""
    identifier = {"type": target.type, "id": example_id(target)}
    return {"data": [identifier] if part == TO_MANY else identifier}


def example_id(resource: Resource) -> str:
    """Return an example of an id."""
    column_type = resource.id.type
    if column_type.is_text:
        return "text"
    value = example(value_schema(column_type))
    return "1" if value is None else str(value)
