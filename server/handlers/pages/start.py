"""Makes the start page: the collections, and how they are linked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from querybuild.declarations.access import has_principal
from querybuild.declarations.function import Function
from querybuild.declarations.resource import Resource
from querybuild.planning.context import refused_action
from serializers.pages.drawing import draw
from serializers.pages.rendering import render
from serializers.pages.view import RowLink, title_of
from server.handlers.base import Handler
from server.handlers.pages.frames import make_frame

FIND = "findText"
"""The parameter with a text that collections have in their name or description."""

OPEN_DRAWING = 24
"""Up to how many collections the drawing is shown at once."""

_ESTIMATES = """
    SELECT n.nspname AS schema, c.relname AS name, c.reltuples::bigint AS rows, n.nspname = ANY(current_schemas(false))
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relname = ANY($1) AND c.relkind IN ('r', 'p', 'm') AND c.reltuples >= 0
"""


class Collection(msgspec.Struct, frozen=True):
    """A collection on the start page. rows: PostgreSQL's estimate, None if it is not shown."""

    title: str
    url: str
    description: str
    rows: int | None
    links: list[RowLink]


async def start_page(handler: Handler) -> bytes:
    """Return the start page, with what the principal may list."""
    engine, catalog = handler.engine, handler.catalog
    base, context = engine.base_url, handler.context
    listed = [
        resource
        for resource in catalog
        if "list" in resource.methods and refused_action(resource, "read", context) is None
    ]
    types = {resource.type for resource in listed}
    estimates = await _estimates(handler, listed)
    find = handler.get_query_argument(FIND, "").strip().lower()
    collections = [
        Collection(
            title_of(resource),
            base + resource.path,
            resource.description,
            estimates.get(resource.type),
            _links(resource, catalog.by_type, types, base),
        )
        for resource in listed
        if find in f"{title_of(resource)} {resource.description}".lower()
    ]
    functions = [RowLink(base + function.route_path, function.route_path[1:]) for function in _functions(handler)]
    edges = {
        (resource.type, relation.target)
        for resource in listed
        for relation in resource.relationships
        if relation.target in types and relation.target != resource.type
    }
    nodes = {resource.type: (title_of(resource), base + resource.path) for resource in listed}
    return render(
        "start.html",
        make_frame(engine, handler.request, context.principal, "Collections", json_url=f"{base}/?answerAs=json"),
        collections=collections,
        functions=[] if find else functions,
        find=find,
        drawing=draw(nodes, edges) if edges and not find else "",
        is_open=len(listed) <= OPEN_DRAWING,
    )


def _functions(handler: Handler) -> Iterator[Function]:
    """Yield the functions that a GET of the principal may call."""
    is_authenticated, principal = handler.engine.has_authentication, handler.context.principal
    for function in handler.catalog.functions:
        audiences = function.audiences(is_authenticated=is_authenticated)
        if function.method == "GET" and any(has_principal(each, principal) for each in audiences):
            yield function


def _links(resource: Resource, by_type: Mapping[str, Resource], types: set[str], base: str) -> list[RowLink]:
    targets = dict.fromkeys(
        [relationship.target for relationship in resource.relationships if relationship.target in types]
    )
    return [RowLink(base + by_type[name].path, title_of(by_type[name])) for name in targets if name != resource.type]


async def _estimates(handler: Handler, listed: list[Resource]) -> dict[str, int]:
    """Return about how many rows the tables have. It would tell of hidden rows, so nothing is told if some may be."""
    settings, access = handler.engine.settings, handler.context.access
    if access.read or settings.has_row_security or not listed:
        return {}

    async def read(connection: Any) -> list[Any]:
        return list(await connection.fetch(_ESTIMATES, [resource.table for resource in listed]))

    rows = await handler.cancel_scope.run(handler.database.read(read, is_snapshot=False))
    exact = {(row[0], row[1]): int(row[2]) for row in rows}
    visible = {row[1]: int(row[2]) for row in rows if row[3]}
    known = {
        resource.type: exact.get((resource.schema, resource.table)) if resource.schema else visible.get(resource.table)
        for resource in listed
    }
    return {name: count for name, count in known.items() if count is not None}
