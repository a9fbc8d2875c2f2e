"""The route shapes as a table, and how a path is matched. What comes in: a path as it was sent, the Catalog.
What goes out: a Route, or None. Collections are looked up in the catalogue and not in tornado's route table,
so that another catalogue is another lookup and nothing else.
"""

from __future__ import annotations

from enum import StrEnum
from urllib.parse import unquote_to_bytes

import msgspec

from querybuild.catalog import Catalog
from querybuild.resource import Relationship, Resource
from serializers.links import quote_segment, related_path, relationship_path, resource_path


class Shape(StrEnum):
    ROOT = "/"
    LIVE = "/-/live"
    READY = "/-/ready"
    METRICS = "/-/metrics"
    COLLECTION = "/{collection}"
    RESOURCE = "/{collection}/{id}"
    RELATED = "/{collection}/{id}/{relationship}"
    RELATIONSHIP = "/{collection}/{id}/relationships/{relationship}"
    OPERATIONS = "/operations"
    CUSTOM = "custom"


class Route(msgspec.Struct, frozen=True):
    """shape: what the path looks like. path: encoded one way, however it came, without a trailing slash. id:
    decoded."""

    shape: Shape
    path: str
    resource: Resource | None = None
    id: str = ""
    relationship: Relationship | None = None


ADMIN: dict[str, Shape] = {str(shape): shape for shape in (Shape.LIVE, Shape.READY, Shape.METRICS)}
"""What is for who runs the server."""


def fixed_paths(operations_path: str, *, has_admin: bool = True) -> dict[str, Shape]:
    """The paths that no declaration makes. operations_path: "" where there are no atomic operations. has_admin: whether
    health and metrics are not on a port of their own."""
    fixed = {str(Shape.ROOT): Shape.ROOT} | (ADMIN if has_admin else {})
    return fixed | ({operations_path: Shape.OPERATIONS} if operations_path else {})


def match_route(path: str, catalog: Catalog, fixed: dict[str, Shape]) -> Route | None:
    """The route of a raw path; a trailing slash is the same route.

    >>> match_route("/users/7/relationships/group", catalog, fixed_paths("/operations")).shape
    <Shape.RELATIONSHIP: '/{collection}/{id}/relationships/{relationship}'>
    """
    plain = plain_path(path)
    return None if plain is None else _match(plain, catalog, fixed)


def _match(path: str, catalog: Catalog, fixed: dict[str, Shape]) -> Route | None:
    if path in fixed:
        return Route(fixed[path], path)
    resource = catalog.by_path.get(path)
    if resource is not None:
        return Route(Shape.COLLECTION, path, resource)
    segments = path.split("/")
    for length in (len(segments) - 1, len(segments) - 2, len(segments) - 3):
        resource = catalog.by_path.get("/".join(segments[:length])) if length > 1 else None
        if resource is not None:
            return _below(resource, segments[length:])
    return None


def below_prefix(path: str, prefix: str) -> str | None:
    """What follows the prefix in a path as it was sent; None where the path is not below it.

    >>> below_prefix("/api/users", "/api")
    '/users'
    """
    origin = _origin_form(path)
    if origin == prefix:
        return "/"
    return origin.removeprefix(prefix) if origin.startswith(f"{prefix}/") else None


def plain_path(path: str) -> str | None:
    """A path as it was sent, without a trailing slash; None where it cannot be one of ours."""
    if not path.startswith("/"):
        path = _origin_form(path)
    if not path or "//" in path:
        return None
    return path.removesuffix("/") if len(path) > 1 else path


def _origin_form(path: str) -> str:
    """From the slash on that ends the host, or "" (RFC 9112, 3.2.2: a server takes the absolute form too)."""
    if path.startswith("/"):
        return path
    return "/" + path.partition("://")[2].partition("/")[2] if "://" in path else ""


def _below(resource: Resource, segments: list[str]) -> Route | None:
    try:
        id_text, *names = [unquote_to_bytes(segment.encode("latin-1")).decode() for segment in segments]
    except UnicodeError:
        return None
    own = resource_path("", resource, quote_segment(id_text))
    if not names:
        return Route(Shape.RESOURCE, own, resource, id_text)
    if len(names) == 2 and names[0] != "relationships":
        return None
    relationship = resource.relationship(names[-1])
    if relationship is None:
        return None
    if len(names) == 1:
        return Route(Shape.RELATED, related_path(own, relationship), resource, id_text, relationship)
    return Route(Shape.RELATIONSHIP, relationship_path(own, relationship), resource, id_text, relationship)
