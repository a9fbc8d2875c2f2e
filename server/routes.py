"""Defines the route table, which says what each method of each route shape accepts and returns, and matches canonical
paths (`server/http/target.py`) to routes. Collections are looked up in the catalog, not in tornado's route table, so
that a reload only has to replace the catalog.

It must not know: how a request is answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from urllib.parse import unquote

import msgspec

from querybuild.declarations.access import ANYONE
from querybuild.declarations.catalog import Catalog
from querybuild.declarations.function import Function
from querybuild.declarations.resource import Relationship, Resource
from querybuild.errors import nearest, quoted
from querybuild.parse import ANSWER_AS, CHOICES, NEAR_TO, ON_CONFLICT, SEARCH_TEXT
from querybuild.parsing.groups import GROUPING
from serializers.pages.rendering import FILES as PAGES_FILES
from server.errors import RouteNotFound
from server.http.negotiation import ANY, ATOMIC_OPERATIONS, BROWSED, FILE_FORM, FORM, HTML, JSON_API, LISTS, MediaType
from server.http.target import ASTERISK
from server.settings import Settings

WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
NO_PARAMETERS: frozenset[str] = frozenset()
ON_ONE = frozenset({"include", *CHOICES, "fields"})
READ_ONE = ON_ONE | {ANSWER_AS}
ON_CREATE = ON_ONE | {ON_CONFLICT}
ON_WRITTEN_LINKAGE = ON_ONE | {"page"}
ON_LINKAGE = ON_ONE | {"filter", "sort", "page"}
ON_MANY = ON_LINKAGE | {SEARCH_TEXT, NEAR_TO, *GROUPING, ANSWER_AS}
OF_VERSION = frozenset({"If-Match"})
MAY_EXIST = frozenset({"If-None-Match"})


class Shape(StrEnum):
    """The shape of a path. The values are labels in metrics and traces."""

    ROOT = "/"
    LIVE = "/-/live"
    READY = "/-/ready"
    METRICS = "/-/metrics"
    OPENAPI = "/-/openapi.json"
    DOCS = "/-/docs"
    DOCS_FILE = "/-/docs/{file}"
    PAGES_FILE = "/-/pages/{file}"
    PAGES_GO = "/-/pages/go"
    PAGES_BYTES = "/-/pages/bytes/{collection}/{id}/{attribute}"
    PAGES_CHOOSE = "/-/pages/choose"
    PAGES_SIGN_IN = "/-/pages/sign-in"
    PAGES_CALLBACK = "/-/pages/callback"
    PAGES_SIGN_OUT = "/-/pages/sign-out"
    PAGES_EXPLAIN = "/-/pages/explain"
    PAGES_FACETS = "/-/pages/facets/{list}"
    FORM_NEW = "/-/pages/new/{collection}"
    FORM_IMPORT = "/-/pages/import/{collection}"
    FORM_EDIT = "/-/pages/edit/{collection}/{id}"
    FORM_DELETE = "/-/pages/delete/{collection}/{id}"
    FORM_LINKS = "/-/pages/links/{collection}/{id}/{relationship}"
    PROTECTED_RESOURCE = "/.well-known/oauth-protected-resource"
    COLLECTION = "/{collection}"
    RESOURCE = "/{collection}/{id}"
    RELATED = "/{collection}/{id}/{relationship}"
    RELATIONSHIP = "/{collection}/{id}/relationships/{relationship}"
    OPERATIONS = "/operations"
    FUNCTION = "/{function}"
    CUSTOM = "custom"
    SERVER = ASTERISK


class Method(msgspec.Struct, frozen=True):
    """One method of a route shape: a row of the route table.

    accepts: the parameter families.
    body: the media type of its body. None: a body is ignored.
    answers: the media types of its answer.
    needs: the method that the declaration must allow, if any.
    is_to_many: True if only a to-many relationship has it, or a function that returns resources; False if only a to-one
        has it, or a function that returns a value. None if both have it.
    writes: what the resource, or the relationship and its target, must allow. If they do not, the answer is a 403.
    preconditions: the headers with preconditions that a write has. None: any, because custom code decides.
    """

    name: str
    accepts: frozenset[str] = NO_PARAMETERS
    body: MediaType | None = None
    answers: tuple[MediaType, ...] = (JSON_API,)
    needs: str | None = None
    is_to_many: bool | None = None
    writes: tuple[str, ...] = ()
    preconditions: frozenset[str] | None = frozenset()


Methods = Mapping[str, Method]
"""The methods of a route by name, in the order of Allow."""

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
"""The media types of metrics, for Prometheus and for OpenMetrics."""

METRICS = (MediaType(TEXT), MediaType(OPENMETRICS))
DOCS_FILES = ("viewer.js", "viewer.css", "page.js", "page.css")
"""The files of the docs page."""

# Routes below /-/ and custom routes ignore parameters: their handlers do not check them.
TABLE: dict[Shape, tuple[Method, ...]] = {
    Shape.ROOT: (Method("GET", frozenset({ANSWER_AS}), answers=BROWSED),),
    Shape.LIVE: (Method("GET"),),
    Shape.READY: (Method("GET"),),
    Shape.METRICS: (Method("GET", answers=METRICS),),
    Shape.OPENAPI: (Method("GET", answers=(MediaType("application/json"),)),),
    Shape.DOCS: (Method("GET", answers=(MediaType("text/html"),)),),
    Shape.DOCS_FILE: (Method("GET", answers=(ANY,)),),
    Shape.PAGES_FILE: (Method("GET", answers=(ANY,)),),
    Shape.PAGES_GO: (Method("GET", answers=(ANY,)),),
    Shape.PAGES_BYTES: (Method("GET", answers=(ANY,), needs="detail"),),
    Shape.PAGES_CHOOSE: (Method("POST", body=FORM, answers=(HTML,)),),
    Shape.PAGES_SIGN_IN: (Method("GET", answers=(HTML,)),),
    Shape.PAGES_CALLBACK: (Method("GET", answers=(HTML,)),),
    Shape.PAGES_SIGN_OUT: (Method("POST", body=FORM, answers=(HTML,)),),
    Shape.PAGES_EXPLAIN: (Method("GET", answers=(HTML,)),),
    Shape.PAGES_FACETS: (
        Method("GET", answers=(HTML,), needs="list"),
        Method("GET", answers=(HTML,), needs="read", is_to_many=True),
    ),
    Shape.FORM_NEW: (
        Method("GET", answers=(HTML,), needs="create"),
        Method("POST", body=FORM, answers=(HTML,), needs="create"),
    ),
    Shape.FORM_IMPORT: (
        Method("GET", answers=(HTML,), needs="create"),
        Method("POST", body=FILE_FORM, answers=(HTML,), needs="create"),
    ),
    Shape.FORM_EDIT: (
        Method("GET", answers=(HTML,), needs="update"),
        Method("POST", body=FORM, answers=(HTML,), needs="update"),
    ),
    Shape.FORM_DELETE: (
        Method("GET", answers=(HTML,), needs="delete"),
        Method("POST", body=FORM, answers=(HTML,), needs="delete"),
    ),
    Shape.FORM_LINKS: (
        Method("GET", answers=(HTML,), needs="read", is_to_many=True),
        Method("POST", body=FORM, answers=(HTML,), is_to_many=True),
    ),
    Shape.PROTECTED_RESOURCE: (Method("GET", answers=(ANY,)),),
    Shape.COLLECTION: (
        Method("GET", ON_MANY, answers=LISTS, needs="list"),
        Method("POST", ON_CREATE, JSON_API, writes=("create",), preconditions=MAY_EXIST),
    ),
    Shape.RESOURCE: (
        Method("GET", READ_ONE, answers=BROWSED, needs="detail"),
        Method("PATCH", ON_ONE, JSON_API, writes=("update",), preconditions=OF_VERSION),
        Method("DELETE", writes=("delete",), preconditions=OF_VERSION),
    ),
    Shape.RELATED: (
        Method("GET", ON_MANY, answers=LISTS, needs="read", is_to_many=True),
        Method("GET", READ_ONE, answers=BROWSED, needs="read", is_to_many=False),
        Method("POST", ON_ONE, JSON_API, is_to_many=True, writes=("add", "create"), preconditions=MAY_EXIST),
        Method("PATCH", ON_ONE, JSON_API, is_to_many=False, writes=("update",), preconditions=OF_VERSION),
        Method("DELETE", is_to_many=False, writes=("delete",), preconditions=OF_VERSION),
    ),
    Shape.RELATIONSHIP: (
        Method("GET", ON_LINKAGE | {ANSWER_AS}, answers=BROWSED, needs="read", is_to_many=True),
        Method("GET", READ_ONE, answers=BROWSED, needs="read", is_to_many=False),
        Method("POST", body=JSON_API, is_to_many=True, writes=("add",), preconditions=OF_VERSION),
        Method("PATCH", ON_WRITTEN_LINKAGE, JSON_API, is_to_many=True, writes=("replace",), preconditions=OF_VERSION),
        Method("PATCH", ON_ONE, JSON_API, is_to_many=False, writes=("replace",), preconditions=OF_VERSION),
        Method("DELETE", body=JSON_API, is_to_many=True, writes=("remove",), preconditions=OF_VERSION),
    ),
    Shape.OPERATIONS: (Method("POST", body=ATOMIC_OPERATIONS, answers=(ATOMIC_OPERATIONS,)),),
    Shape.FUNCTION: (
        Method("GET", ON_MANY, answers=LISTS, needs="GET", is_to_many=True),
        Method("GET", frozenset({ANSWER_AS}), answers=BROWSED, needs="GET", is_to_many=False),
        Method("POST", ON_LINKAGE, JSON_API, needs="POST", is_to_many=True),
        Method("POST", body=JSON_API, needs="POST", is_to_many=False),
    ),
    # The declaration of a custom route is its class, which has the methods.
    Shape.CUSTOM: (
        Method("GET", answers=(ANY,), needs="GET"),
        *[
            Method(name, body=ANY, answers=(ANY,), needs=name, preconditions=None)
            for name in ("POST", "PUT", "PATCH", "DELETE")
        ],
    ),
    # `OPTIONS *` (RFC 9110, 9.3.7) lists the methods of all routes together.
    Shape.SERVER: (Method("GET"), Method("POST"), Method("PATCH"), Method("DELETE")),
}
"""The methods of each shape, in the order of Allow. HEAD is added where GET is, and OPTIONS everywhere."""

PAGES = "/-/pages/"
FORMS = {
    "bytes": (Shape.PAGES_BYTES, (Shape.RESOURCE,)),
    "facets": (Shape.PAGES_FACETS, (Shape.COLLECTION, Shape.RELATED)),
    "new": (Shape.FORM_NEW, (Shape.COLLECTION,)),
    "import": (Shape.FORM_IMPORT, (Shape.COLLECTION,)),
    "edit": (Shape.FORM_EDIT, (Shape.RESOURCE,)),
    "delete": (Shape.FORM_DELETE, (Shape.RESOURCE,)),
    "links": (Shape.FORM_LINKS, (Shape.RELATED,)),
}
"""Forms and bytes by their action: the shape of their route, and those of the routes that they are about."""

QUERY = "QUERY"
QUERIED = (Shape.COLLECTION, Shape.RESOURCE, Shape.RELATED, Shape.RELATIONSHIP, Shape.FUNCTION, Shape.SERVER)
"""The shapes that have QUERY (RFC 10008) where they have GET."""

NOT_ALLOWED = Method("")
"""Used for a method that a route does not have."""

OPTIONS = Method("OPTIONS", answers=())


@cache
def methods_of(shape: Shape, declared: frozenset[str] = frozenset(), is_to_many: bool | None = None) -> Methods:
    """Return the methods of a route. declared: those that its resource or relationship allows. is_to_many: whether its
    relationship is to-many.

    >>> list(methods_of(Shape.COLLECTION, frozenset({"create"})))
    ['POST', 'OPTIONS']
    """
    methods = {
        row.name: row
        for row in TABLE[shape]
        if (row.needs is None or row.needs in declared) and row.is_to_many in (None, is_to_many)
    }
    if "GET" in methods:
        methods["HEAD"] = methods["GET"]
        if shape in QUERIED:
            get = methods["GET"]
            answers = tuple([media_type for media_type in get.answers if media_type is not HTML])
            accepts = get.accepts - {ANSWER_AS}
            methods[QUERY] = msgspec.structs.replace(get, name=QUERY, body=FORM, accepts=accepts, answers=answers)
    return methods | {"OPTIONS": OPTIONS}


class Route(msgspec.Struct, frozen=True):
    """The route of a path. path: the canonical path, below the prefix. id: decoded. methods: those that the
    declarations allow, HEAD and OPTIONS."""

    shape: Shape
    path: str
    resource: Resource | None = None
    id: str = ""
    relationship: Relationship | None = None
    methods: Methods = {}
    function: Function | None = None

    def allows(self, name: str, catalog: Catalog) -> bool:
        """Return whether the declarations allow one of the methods. If they do not, it is always a 403."""
        writes = self.methods[name].writes
        if not writes or self.resource is None:
            return True
        declared = self.resource.methods
        if self.relationship is not None:
            links = self.relationship.methods
            if self.shape is Shape.RELATIONSHIP:
                links = catalog.linkage_methods(self.resource, self.relationship)
            declared = links | catalog.target(self.relationship).methods
        return declared.issuperset(writes)

    @property
    def is_for_everybody(self) -> bool:
        """Whether the route exists whoever asks."""
        return self.relationship is None or self.relationship.read_by == ANYONE


ADMIN: dict[str, Shape] = {str(shape): shape for shape in (Shape.LIVE, Shape.READY, Shape.METRICS)}
"""The routes for operators of the server."""


def fixed_paths(
    operations_path: str,
    *,
    has_admin: bool = True,
    has_openapi: bool = True,
    has_docs: bool = True,
    has_pages: bool = True,
    has_sign_in: bool = False,
) -> dict[str, Shape]:
    """Return the paths that do not depend on declarations. operations_path: "" disables atomic operations. has_admin:
    whether this port answers health and metrics. has_docs: whether there is a docs page, which needs has_openapi.
    has_pages: whether there are pages for people. has_sign_in: whether people can sign in there."""
    fixed = {str(Shape.ROOT): Shape.ROOT} | (ADMIN if has_admin else {})
    if has_openapi:
        fixed[str(Shape.OPENAPI)] = Shape.OPENAPI
    if has_openapi and has_docs:
        fixed |= {str(Shape.DOCS): Shape.DOCS} | {f"{Shape.DOCS}/{name}": Shape.DOCS_FILE for name in DOCS_FILES}
    if has_pages:
        fixed |= {f"/-/pages/{name}": Shape.PAGES_FILE for name in PAGES_FILES} | {
            str(page): page for page in (Shape.PAGES_GO, Shape.PAGES_CHOOSE, Shape.PAGES_EXPLAIN)
        }
    if has_pages and has_sign_in:
        fixed |= {str(page): page for page in (Shape.PAGES_SIGN_IN, Shape.PAGES_CALLBACK, Shape.PAGES_SIGN_OUT)}
    return fixed | ({operations_path: Shape.OPERATIONS} if operations_path else {})


def match_route(path: str, catalog: Catalog, fixed: dict[str, Shape]) -> Route | None:
    """Return the route of a canonical path, or None.

    >>> match_route("/users/7/relationships/group", catalog, fixed_paths("/operations")).shape
    <Shape.RELATIONSHIP: '/{collection}/{id}/relationships/{relationship}'>
    """
    shape = fixed.get(path)
    if shape is not None:
        return Route(shape, path, methods=methods_of(shape))
    if path.startswith(PAGES) and Shape.PAGES_GO in fixed:
        return _form_route(path, catalog)
    resource = catalog.by_path.get(path)
    if resource is not None:
        return Route(Shape.COLLECTION, path, resource, methods=methods_of(Shape.COLLECTION, resource.methods))
    function = catalog.functions_by_path.get(path)
    if function is not None:
        methods = methods_of(Shape.FUNCTION, frozenset({function.method}), bool(function.returns))
        returned = catalog.by_type.get(function.returns)
        return Route(Shape.FUNCTION, path, returned, methods=methods, function=function)
    collection = path
    segments: list[str] = []
    for _ in range(3):
        collection, _, segment = collection.rpartition("/")
        segments.insert(0, segment)
        resource = catalog.by_path.get(collection)
        if resource is not None:
            return _below(path, resource, segments)
    return None


def _form_route(path: str, catalog: Catalog) -> Route | None:
    """Return the route of a form: `/-/pages/edit/users/7`. What follows its action is the path that it writes. The last
    segment of the path of bytes is their attribute."""
    action, _, written = path.removeprefix(PAGES).partition("/")
    written = written.rpartition("/")[0] if action == "bytes" else written
    shape, about = FORMS.get(action, (None, ()))
    route = match_route(f"/{written}", catalog, {}) if shape is not None else None
    if shape is None or route is None or route.shape not in about or route.resource is None:
        return None
    holder = route.resource if route.relationship is None else route.relationship
    is_to_many = None if route.relationship is None else route.relationship.is_to_many
    methods = methods_of(shape, holder.methods, is_to_many)
    return msgspec.structs.replace(route, shape=shape, path=path, methods=methods)


def below_prefix(path: str, prefix: str) -> str | None:
    """Return the part of a canonical path after the prefix. Return None if the path is not below the prefix.

    >>> below_prefix("/api/users", "/api")
    '/users'
    """
    if path == prefix:
        return "/"
    return path.removeprefix(prefix) if path.startswith(f"{prefix}/") else None


def _below(path: str, resource: Resource, segments: list[str]) -> Route | None:
    try:
        id_text, *names = segments if "%" not in path else [unquote(segment, errors="strict") for segment in segments]
    except UnicodeError:
        return None
    if not names:
        methods = methods_of(Shape.RESOURCE, resource.methods)
        return Route(Shape.RESOURCE, path, resource, id_text, methods=methods)
    if len(names) == 2 and names[0] != "relationships":
        return None
    relationship = resource.relationship(names[-1])
    if relationship is None:
        return None
    shape = Shape.RELATED if len(names) == 1 else Shape.RELATIONSHIP
    methods = methods_of(shape, relationship.methods, relationship.is_to_many)
    return Route(shape, path, resource, id_text, relationship, methods)


def route_not_found(sent_path: str, catalog: Catalog, settings: Settings) -> RouteNotFound:
    """Return the error for a path without a route."""
    listed = [resource.path for resource in catalog if "list" in resource.methods] + list(catalog.functions_by_path)
    paths = [settings.path_prefix + path for path in (*listed, settings.operations_path) if path]
    known = [candidate for candidate in paths if candidate.count("/") >= sent_path.rstrip("/").count("/")]
    return RouteNotFound(f"There is nothing at {quoted(sent_path)}.{nearest(sent_path, known)}")
