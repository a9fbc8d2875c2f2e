"""Describes the operations of the routes: the rows of the route table, for each declaration. Methods, parameters and
media types come from there; here are only the names of operations, their documents, and what they need of rules.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from querybuild.declarations.access import Action
from querybuild.declarations.resource import Relationship, Resource, ToOne
from querybuild.declarations.values import JsonSchema
from querybuild.planning.writes.conflicts import conflict_keys
from serializers.json_api import MEDIA_TYPE
from serializers.links import quote_segment
from serializers.openapi.api import Api, Schemas, component, ref
from serializers.openapi.atomic import OPERATIONS as ATOMIC
from serializers.openapi.atomic import PLAIN_OPERATIONS, PLAIN_RESULTS, RESULTS, example_operations, has_operations
from serializers.openapi.documents import (
    MESSAGE,
    create_below,
    example_document,
    example_linkage,
    linkage_part,
)
from serializers.openapi.parameters import id_parameter, parameter_refs
from server.describing.responses import DescribedOperation, Refusals, response
from server.errors import IDEMPOTENCY_KEY
from server.http.idempotency import IDEMPOTENT_REPLAYED
from server.http.negotiation import EXTENDED, FORM
from server.http.preferences import PREFER, PREFERENCE_APPLIED
from server.routes import TABLE, WRITES, Method, Route, Shape, methods_of

Paths = dict[str, JsonSchema]


class Purpose(msgspec.Struct, frozen=True):
    """What a row of the route table is for.

    name: the last part of the operation's id. summary: with {type} for the type of the resource, {name} for the
    relationship and {target} for its type. action: what a rule must allow. of_target: whether it is about the resource
    at the other end of the relationship. answer: the document of the answer, a part of a component, or "" for a
    message. sends: the document of the request.
    """

    name: str
    summary: str
    action: Action
    answer: str = ""
    sends: str = ""
    of_target: bool = False


PURPOSES: dict[tuple[Shape, str, bool | None], Purpose] = {
    (Shape.COLLECTION, "GET", None): Purpose("list", "List {type} resources", "read", "collection"),
    (Shape.COLLECTION, "POST", None): Purpose("create", "Create one {type}", "create", "document", "create"),
    (Shape.RESOURCE, "GET", None): Purpose("detail", "Read one {type}", "read", "document"),
    (Shape.RESOURCE, "PATCH", None): Purpose("update", "Update one {type}", "update", "document", "update"),
    (Shape.RESOURCE, "DELETE", None): Purpose("delete", "Delete one {type}", "delete"),
    (Shape.RELATED, "GET", True): Purpose("list", "List {name}", "read", "collection", of_target=True),
    (Shape.RELATED, "GET", False): Purpose("detail", "Read {name}", "read", "related", of_target=True),
    (Shape.RELATED, "POST", True): Purpose(
        "create", "Create one {target} in {name}", "create", "document", "create", of_target=True
    ),
    (Shape.RELATED, "PATCH", False): Purpose("update", "Update {name}", "update", "document", "update", of_target=True),
    (Shape.RELATED, "DELETE", False): Purpose("delete", "Delete {name}", "delete", of_target=True),
    (Shape.RELATIONSHIP, "GET", True): Purpose("linkage", "Read the links of {name}", "read", "links"),
    (Shape.RELATIONSHIP, "GET", False): Purpose("linkage", "Read the links of {name}", "read", "link"),
    (Shape.RELATIONSHIP, "POST", True): Purpose("add", "Add links to {name}", "update", "", "linkage"),
    (Shape.RELATIONSHIP, "PATCH", True): Purpose(
        "replace", "Replace the links of {name}", "update", "links", "linkage"
    ),
    (Shape.RELATIONSHIP, "PATCH", False): Purpose("replace", "Replace the link of {name}", "update", "link", "linkage"),
    (Shape.RELATIONSHIP, "DELETE", True): Purpose("remove", "Remove links from {name}", "update", "", "linkage"),
}

OPERATIONS = frozenset(("get", "put", "post", "delete", "options", "head", "patch", "trace"))
"""The members of a path that are operations."""


X_QUERY: JsonSchema = {"requestBody": {"content": {FORM.name: {}}}}
"""That a route has QUERY too. OpenAPI has no place for it before 3.2."""


class Describer:
    """Describes the operations of an API. refused: the types and actions that need credentials. is_open: whether
    everybody may do everything. has_bearer: whether bearer tokens are credentials. is_read_only: whether the server
    refuses all writes. has_tries: whether writes can be tried. keys: the setting `idempotency`. parameters_of_writes,
    headers_of_writes: those that all writes have, and their answers. bodies, answers, schemas: the components that the
    operations refer to."""

    def __init__(
        self,
        api: Api,
        refused: frozenset[tuple[str, Action]],
        *,
        is_open: bool,
        has_bearer: bool,
        is_read_only: bool,
        has_tries: bool,
        keys: str,
    ) -> None:
        self.api = api
        self.is_open = is_open
        self.refused = refused
        self.has_bearer = has_bearer
        self.is_read_only = is_read_only
        self.takes_keys = keys != "off"
        key = f"{IDEMPOTENCY_KEY}.required" if keys == "required" else IDEMPOTENCY_KEY
        names = [PREFER] * has_tries + [key] * self.takes_keys
        self.parameters_of_writes = [ref(name, "parameters") for name in names]
        self.headers_of_writes = [PREFERENCE_APPLIED] * has_tries + [IDEMPOTENT_REPLAYED] * self.takes_keys
        self.bodies: Schemas = {}
        self.answers: Schemas = {}
        self.schemas: Schemas = {}
        self.refusals = Refusals()

    def paths(self) -> Paths:
        """Return the paths of all resources."""
        operations_by_path: Paths = {}
        for resource in self.api.catalog:
            for route in _declared_routes(resource):
                operations = self._operations(route)
                if operations:
                    operations_by_path[route.path] = _with_shared_parameters(operations)
        return operations_by_path

    def atomic(self, path: str) -> Paths:
        """Return the path of atomic operations, if they may write anything."""
        if self.is_read_only or not has_operations(self.api):
            return {}
        [row] = TABLE[Shape.OPERATIONS]
        example = example_operations(self.api)
        results = {EXTENDED: ref(RESULTS), MEDIA_TYPE: ref(PLAIN_RESULTS)}
        done = {"200": response(200, results, self.headers_of_writes), "204": response(204, {}, self.headers_of_writes)}
        responses = done | self.refusals.of(self.described(row, has_id=True, is_atomic=True))
        shown = {} if example is None else {"example": example}
        forms = {EXTENDED: {"schema": ref(ATOMIC)} | shown, MEDIA_TYPE: {"schema": ref(PLAIN_OPERATIONS)} | shown}
        operation: JsonSchema = {
            "operationId": "operations",
            "summary": "Write several resources, all or none",
            "tags": ["operations"],
            "parameters": self.parameters_of_writes,
            "requestBody": {"required": True, "content": forms},
            "responses": responses,
        }
        return {path: {"post": operation | self.security(has_public=True)}}

    def described(
        self, row: Method, *, has_id: bool, is_open: bool = True, is_atomic: bool = False
    ) -> DescribedOperation:
        """Return what the errors of an operation depend on. is_open: whether everybody may use it, if everybody may do
        everything."""
        return DescribedOperation(row, has_id, self.is_open and is_open, self.takes_keys, is_atomic=is_atomic)

    def security(self, *, has_public: bool) -> JsonSchema:
        """Return which credentials an operation takes. has_public: whether it needs none."""
        if not self.has_bearer:
            return {}
        return {"security": [{}, {"bearer": []}] if has_public else [{"bearer": []}]}

    def _operations(self, route: Route) -> dict[str, JsonSchema]:
        by_method: dict[str, JsonSchema] = {}
        for name, row in route.methods.items():
            is_described = (name in WRITES and not self.is_read_only) or name == "GET"
            if is_described and route.allows(name, self.api.catalog):
                by_method[name.lower()] = self._operation(route, row, PURPOSES[route.shape, name, row.is_to_many])
        if "get" in by_method:
            by_method["get"]["x-query"] = X_QUERY
        return by_method

    def _operation(self, route: Route, row: Method, purpose: Purpose) -> JsonSchema:
        resource, relationship = route.resource, route.relationship
        assert resource is not None
        subject = resource
        if relationship is not None and purpose.of_target:
            subject = self.api.catalog.target(relationship)
        shown = subject if relationship is None else self.api.catalog.target(relationship)
        linkage = relationship if route.shape is Shape.RELATIONSHIP else None
        name, target = ("", "") if relationship is None else (relationship.name, relationship.target)
        operation: JsonSchema = {
            "operationId": ".".join(filter(None, (resource.type, name, purpose.name))),
            "summary": purpose.summary.format(type=resource.type, name=name, target=target),
            "tags": [resource.type],
        }
        if relationship is not None and relationship.description:
            operation["description"] = relationship.description
        ids = [] if route.shape is Shape.COLLECTION else [ref(id_parameter(resource), "parameters")]
        parameters = ids + list(parameter_refs(row.accepts, shown, linkage, self.api))
        parameters += self.parameters_of_writes if row.name in WRITES else []
        parameters += [ref(header, "parameters") for header in _headers(row, subject, linkage)]
        if parameters:
            operation["parameters"] = parameters
        if purpose.sends:
            operation["requestBody"] = ref(self._body(purpose, subject, relationship), "requestBodies")
        described = self.described(row, has_id=route.shape is not Shape.COLLECTION)
        operation["responses"] = self._done(purpose, shown) | self.refusals.of(described)
        return operation | self.security(has_public=(subject.type, purpose.action) not in self.refused)

    def _body(self, purpose: Purpose, subject: Resource, relationship: Relationship | None) -> str:
        """Return the component of the body."""
        if purpose.sends == "linkage":
            assert relationship is not None
            subject, part = self.api.catalog.target(relationship), linkage_part(relationship)
            example = example_linkage(subject, part)
        else:
            part = purpose.sends
            holder = self._holder(relationship) if part == "create" else ""
            example = example_document(subject, self.api, on_create=part == "create", without=holder)
            if holder:
                part = f"create.{component(holder)}"
                self.schemas[component(subject.type, part)] = create_below(subject, holder, self.api)
        name = component(subject.type, part)
        content = {MEDIA_TYPE: {"schema": ref(name), "example": example}}
        self.bodies.setdefault(name, {"required": True, "content": content})
        return name

    def _holder(self, relationship: Relationship | None) -> str:
        """Return the name of the relationship that must be sent on create, if the path of a create below an owner sets
        it. Otherwise return ""."""
        other = None if relationship is None else self.api.catalog.other_side(relationship)
        return other.name if isinstance(other, ToOne) and other.is_required else ""

    def _done(self, purpose: Purpose, shown: Resource) -> JsonSchema:
        """Return the answers without errors, as JSON:API has them: of several media types, typed clients would have to
        tell which one they get."""
        status = 201 if purpose.name == "create" else 200
        name = component(shown.type, "created" if status == 201 else purpose.answer) if purpose.answer else MESSAGE
        document = ref(component(shown.type, purpose.answer)) if purpose.answer else ref(MESSAGE)
        headers = ["Location"] if status == 201 and "detail" in shown.methods else []
        headers += ["ETag"] if purpose.answer or purpose.sends else []
        headers += self.headers_of_writes if purpose.action != "read" else []
        content = {MEDIA_TYPE: document}
        self.answers.setdefault(name, response(status, content, headers))
        responses = {str(status): ref(name, "responses")}
        if purpose.name == "create" and not purpose.of_target and conflict_keys(shown):
            updated = component(shown.type, "or_updated")
            self.answers.setdefault(
                updated, response(200, content, [header for header in headers if header != "Location"])
            )
            responses["200"] = ref(updated, "responses")
        if purpose.action == "read":
            self.answers.setdefault("304", response(304, {}, ["ETag"]))
            responses["304"] = ref("304", "responses")
        # The rows that are written may be rows that may not be read.
        if purpose.action == "update" and purpose.answer and not self.is_open:
            responses["204"] = response(204, {})
        return responses


def _headers(row: Method, subject: Resource, linkage: Relationship | None) -> Iterator[str]:
    """Yield the components of the headers of a request. subject: what it writes."""
    if row.name == "GET":
        yield "If-None-Match"
        yield "Prefer.read"
    allowed = row.preconditions or frozenset()
    if "If-None-Match" in allowed and subject.client_ids:
        yield "If-None-Match.new"
    if "If-Match" in allowed and (linkage is not None or subject.abilities.version is not None):
        yield "If-Match"


def operations(paths: Paths) -> Iterator[JsonSchema]:
    """Yield the operations of paths, without the other members of a path."""
    for item in paths.values():
        for name, member in item.items():
            if name in OPERATIONS:
                yield member


def _with_shared_parameters(operations: dict[str, JsonSchema]) -> JsonSchema:
    """Return the operations of a path, with the parameters that all of them have at the path."""
    if len(operations) < 2:
        return operations
    listed = [each.get("parameters", []) for each in operations.values()]
    shared = [parameter for parameter in listed[0] if all(parameter in others for others in listed)]
    if not shared:
        return operations
    path_item: JsonSchema = {"parameters": shared}
    for name, operation in operations.items():
        own = [parameter for parameter in operation.get("parameters", []) if parameter not in shared]
        path_item[name] = {
            member: own if member == "parameters" else value
            for member, value in operation.items()
            if member != "parameters" or own
        }
    return path_item


def _declared_routes(resource: Resource) -> Iterator[Route]:
    own = f"{resource.path}/{{id}}"
    yield Route(Shape.COLLECTION, resource.path, resource, methods=methods_of(Shape.COLLECTION, resource.methods))
    yield Route(Shape.RESOURCE, own, resource, methods=methods_of(Shape.RESOURCE, resource.methods))
    for relationship in resource.relationships:
        name = quote_segment(relationship.name)
        for shape, path in ((Shape.RELATED, f"{own}/{name}"), (Shape.RELATIONSHIP, f"{own}/relationships/{name}")):
            yield Route(
                shape,
                path,
                resource,
                relationship=relationship,
                methods=methods_of(shape, relationship.methods, relationship.is_to_many),
            )
