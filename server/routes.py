"""The route shapes as a table, and how a canonical path (`server/http/target.py`) is matched to one. Collections are
looked up in the catalogue and not in tornado's route table, so that another catalogue is another lookup and nothing
else.
"""

from __future__ import annotations

from enum import StrEnum
from urllib.parse import unquote

import msgspec

from querybuild.catalog import Catalog
from querybuild.resource import Relationship, Resource
from server.http.target import ASTERISK


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
    SERVER = ASTERISK


class Route(msgspec.Struct, frozen=True):
    """shape: what the path looks like. path: the canonical one, below the prefix. id: decoded."""

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
    """The route of a canonical path.

    >>> match_route("/users/7/relationships/group", catalog, fixed_paths("/operations")).shape
    <Shape.RELATIONSHIP: '/{collection}/{id}/relationships/{relationship}'>
    """
    if path in fixed:
        return Route(fixed[path], path)
    resource = catalog.by_path.get(path)
    if resource is not None:
        return Route(Shape.COLLECTION, path, resource)
    segments = path.split("/")
    for length in (len(segments) - 1, len(segments) - 2, len(segments) - 3):
        resource = catalog.by_path.get("/".join(segments[:length])) if length > 1 else None
        if resource is not None:
            return _below(path, resource, segments[length:])
    return None


def below_prefix(path: str, prefix: str) -> str | None:
    """What follows the prefix in a canonical path; None where the path is not below it.

    >>> below_prefix("/api/users", "/api")
    '/users'
    """
    if path == prefix:
        return "/"
    return path.removeprefix(prefix) if path.startswith(f"{prefix}/") else None


def _below(path: str, resource: Resource, segments: list[str]) -> Route | None:
    try:
        id_text, *names = segments if "%" not in path else [unquote(one, errors="strict") for one in segments]
    except UnicodeError:
        return None
    if not names:
        return Route(Shape.RESOURCE, path, resource, id_text)
    if len(names) == 2 and names[0] != "relationships":
        return None
    relationship = resource.relationship(names[-1])
    if relationship is None:
        return None
    shape = Shape.RELATED if len(names) == 1 else Shape.RELATIONSHIP
    return Route(shape, path, resource, id_text, relationship)
