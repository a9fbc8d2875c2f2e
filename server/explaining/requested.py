"""Reads a URL as the server does: finds its route, and prepares the read.

What comes in: a URL, an engine, a context. What goes out: the query, the plan, and the values for its statements.
"""

from __future__ import annotations

import msgspec

from querybuild.declarations.catalog import Catalog
from querybuild.declarations.values import ValueFault
from querybuild.errors import Errors, quoted, raise_all, resource_not_found
from querybuild.parse import parse, split_pairs
from querybuild.planning.context import Context
from querybuild.query import Query
from server.engine import Engine
from server.errors import MethodNotAllowed
from server.execution.arguments import Arguments, arguments_of
from server.http.target import canonical_path, read_target, shown_path
from server.preparing.reads import PreparedRead, ReadKind, ReadShape
from server.routes import Route, Shape, below_prefix, match_route, route_not_found
from server.settings import StartError

READ_KINDS: dict[Shape, ReadKind] = {
    Shape.COLLECTION: "collection",
    Shape.RESOURCE: "resource",
    Shape.RELATED: "related",
    Shape.RELATIONSHIP: "linkage",
}


class NotARead(StartError):
    """A URL that reads no resources."""


class RequestedRead(msgspec.Struct, frozen=True, eq=False):
    """A read that a URL asks for. sent: the values for its statements."""

    route: Route
    shape: ReadShape
    query: Query
    prepared: PreparedRead
    sent: Arguments


def read_url(url: str, engine: Engine, context: Context) -> RequestedRead:
    """Prepare the read of a URL, with or without scheme and host. Raises ApiError for what the server would refuse, and
    NotARead for what is no read of resources."""
    path, _, query_string = _target(url).partition("?")
    catalog = engine.view_of(context).catalog
    route = _route(path, engine, catalog)
    kind = READ_KINDS.get(route.shape)
    if kind is None or route.resource is None:
        what = "calls a function, which is not explained" if route.function else "reads no resources"
        raise NotARead(f"{path} {what}: name a collection, a resource or a relationship")
    method = route.methods.get("GET")
    if method is None:
        raise MethodNotAllowed(f"GET is not allowed here; allowed are {', '.join(route.methods)}.", list(route.methods))
    shape = ReadShape(kind, route.resource, route.relationship, accepts=method.accepts)
    path_id = None if kind == "collection" else _path_id(route, shape)
    engine.reads.check(shape, context)
    prepared = engine.reads.prepare(shape, query_string, context)
    errors = Errors()
    query = parse(split_pairs(query_string, errors), shape.accepts, engine.limits, errors)
    raise_all(errors)
    return RequestedRead(route, shape, query, prepared, arguments_of(prepared, context, path_id))


def _target(url: str) -> str:
    """Return the path and the query of a URL, encoded as in a request. Raises NotARead."""
    # A client sends UTF-8, and no fragment.
    url = url.partition("#")[0].encode().decode("latin-1")
    if url.startswith("/"):
        return url
    try:
        return read_target(url)[1]
    except ValueError:
        raise NotARead(f"{quoted(url)} is no URL of this server: expected a path such as '/users?sort=age'") from None


def _route(path: str, engine: Engine, catalog: Catalog) -> Route:
    """Return the route of a path. catalog: as the principal sees it. Raises RouteNotFound."""
    canonical = canonical_path(path)
    if canonical is not None and engine.settings.path_prefix:
        canonical = below_prefix(canonical, engine.settings.path_prefix)
    route = None if canonical is None else match_route(canonical, catalog, engine.fixed_paths)
    if route is None:
        raise route_not_found(shown_path(path), engine.catalog, engine.settings)
    return route


def _path_id(route: Route, shape: ReadShape) -> object:
    try:
        row_id: object = shape.resource.id_type.read(route.id)
    except ValueFault:
        raise resource_not_found(shape.resource.type, route.id) from None
    return row_id
