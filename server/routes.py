"""The route shapes as a table, and how a path is matched. What comes in: a path as it was sent, the Catalog.
What goes out: a Route, or None. Collections are looked up in the catalogue and not in tornado's route table,
so that another catalogue is another lookup and nothing else.
"""

from __future__ import annotations

from enum import StrEnum
from urllib.parse import unquote_to_bytes

import msgspec

from querybuild.resource import Catalog, Relationship, Resource
from serializers.links import quote_segment


class Shape(StrEnum):
    ROOT = "/"
    LIVE = "/-/live"
    READY = "/-/ready"
    COLLECTION = "/{collection}"
    RESOURCE = "/{collection}/{id}"
    RELATED = "/{collection}/{id}/{relationship}"
    RELATIONSHIP = "/{collection}/{id}/relationships/{relationship}"


class Route(msgspec.Struct, frozen=True):
    """shape: what the path looks like. path: encoded one way, however it came, without a trailing slash. id:
    decoded."""

    shape: Shape
    path: str
    resource: Resource | None = None
    id: str = ""
    relationship: Relationship | None = None


_FIXED = {"/": Shape.ROOT, "/-/live": Shape.LIVE, "/-/ready": Shape.READY}


def match_route(path: str, catalog: Catalog) -> Route | None:
    """The route of a raw path; a trailing slash is the same route.

    >>> match_route("/users/7/relationships/group", catalog).shape
    <Shape.RELATIONSHIP: '/{collection}/{id}/relationships/{relationship}'>
    """
    if "://" in path and not path.startswith("/"):
        # RFC 9112, 3.2.2: a server takes the absolute form too.
        path = "/" + path.partition("://")[2].partition("/")[2]
    if not path.startswith("/") or "//" in path:
        return None
    if len(path) > 1:
        path = path.removesuffix("/")
    if path in _FIXED:
        return Route(_FIXED[path], path)
    resource = catalog.by_path.get(path)
    if resource is not None:
        return Route(Shape.COLLECTION, path, resource)
    segments = path.split("/")
    for length in (len(segments) - 1, len(segments) - 2, len(segments) - 3):
        resource = catalog.by_path.get("/".join(segments[:length])) if length > 1 else None
        if resource is not None:
            return _below(resource, segments[length:])
    return None


def _below(resource: Resource, segments: list[str]) -> Route | None:
    try:
        id_text, *names = [unquote_to_bytes(segment.encode("latin-1")).decode() for segment in segments]
    except UnicodeError:
        return None
    own = f"{resource.path}/{quote_segment(id_text)}"
    if not names:
        return Route(Shape.RESOURCE, own, resource, id_text)
    if len(names) == 2 and names[0] != "relationships":
        return None
    relationship = resource.relationship(names[-1])
    if relationship is None:
        return None
    below = quote_segment(relationship.name)
    if len(names) == 1:
        return Route(Shape.RELATED, f"{own}/{below}", resource, id_text, relationship)
    return Route(Shape.RELATIONSHIP, f"{own}/relationships/{below}", resource, id_text, relationship)
