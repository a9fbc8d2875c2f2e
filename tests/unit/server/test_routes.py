"""The matching of canonical paths to routes."""

from __future__ import annotations

import msgspec
import pytest

from server.routes import Route, Shape, below_prefix, fixed_paths, match_route
from tests.catalog import AUTHOR, CATALOG, COUNTRY, DESK, NODE

ARTICLES = AUTHOR.relationship("articles")


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/", Route(Shape.ROOT, "/")),
        ("/-/live", Route(Shape.LIVE, "/-/live")),
        ("/-/ready", Route(Shape.READY, "/-/ready")),
        ("/authors", Route(Shape.COLLECTION, "/authors", AUTHOR)),
        ("/office/desks", Route(Shape.COLLECTION, "/office/desks", DESK)),
        ("/authors/7", Route(Shape.RESOURCE, "/authors/7", AUTHOR, "7")),
        ("/office/desks/7", Route(Shape.RESOURCE, "/office/desks/7", DESK, "7")),
        ("/authors/x%20y", Route(Shape.RESOURCE, "/authors/x%20y", AUTHOR, "x y")),
        ("/countries/a%2Fb", Route(Shape.RESOURCE, "/countries/a%2Fb", COUNTRY, "a/b")),
        ("/countries/%C3%B6", Route(Shape.RESOURCE, "/countries/%C3%B6", COUNTRY, "ö")),
        ("/countries/relationships", Route(Shape.RESOURCE, "/countries/relationships", COUNTRY, "relationships")),
        ("/countries/a%25%3Ab", Route(Shape.RESOURCE, "/countries/a%25%3Ab", COUNTRY, "a%:b")),
        ("/authors/7/articles", Route(Shape.RELATED, "/authors/7/articles", AUTHOR, "7", ARTICLES)),
        (
            "/authors/7/relationships/articles",
            Route(Shape.RELATIONSHIP, "/authors/7/relationships/articles", AUTHOR, "7", ARTICLES),
        ),
        (
            "/office/desks/1/relationships/author",
            Route(Shape.RELATIONSHIP, "/office/desks/1/relationships/author", DESK, "1", DESK.relationships[0]),
        ),
        ("/nodes/a/children", Route(Shape.RELATED, "/nodes/a/children", NODE, "a", NODE.relationships[1])),
    ],
)
def test_route(path: str, route: Route) -> None:
    found = match_route(path, CATALOG, fixed_paths("/operations"))
    assert found is not None
    assert msgspec.structs.replace(found, methods={}) == route


@pytest.mark.parametrize(
    "path",
    [
        "/Authors",
        "/author",
        "/office",
        "/authors/7/nope",
        "/authors/7/born",
        "/authors/7/relationships",
        "/authors/7/relationships/nope",
        "/authors/7/articles/1",
        "/authors/7/relationship/articles",
        "/authors/7/relationships/articles/1",
        "/authors/%FF",
        "/-",
        "/-/nope",
        "/desks",
    ],
)
def test_no_route(path: str) -> None:
    assert match_route(path, CATALOG, fixed_paths("/operations")) is None


@pytest.mark.parametrize(
    ("path", "below"),
    [
        ("/api", "/"),
        ("/api/users/7", "/users/7"),
        ("/api/api", "/api"),
        ("/", None),
        ("/users", None),
        ("/apis", None),
        ("/apis/users", None),
        ("/API/users", None),
        ("/x/api/users", None),
    ],
)
def test_below_a_prefix(path: str, below: str | None) -> None:
    assert below_prefix(path, "/api") == below
