"""The route table: the methods of each route shape for each kind of declaration, with what they accept."""

from __future__ import annotations

import pytest

from querybuild.declarations.resource import RELATIONSHIP_METHODS, RESOURCE_METHODS
from querybuild.parse import FAMILIES
from server.handlers import HANDLERS
from server.handlers.custom import CustomHandler, defined_methods
from server.http.negotiation import ANY, ATOMIC_OPERATIONS, BROWSED, FILE_FORM, FORM, JSON_API, LISTS
from server.routes import OPENMETRICS, QUERIED, QUERY, TABLE, TEXT, Shape, methods_of

ALL = RESOURCE_METHODS | RELATIONSHIP_METHODS
UNREAD = ALL - {"list", "detail", "read"}

INCLUDES = "include includeFilter includePage includeSort"
READ_ONE = f"answerAs fields {INCLUDES}"
CREATE, ONE, LINKAGE = f"fields {INCLUDES} onConflict", f"fields {INCLUDES}", f"fields {INCLUDES} page"
LINKAGE_READ = f"fields filter {INCLUDES} page sort"
READ_LINKAGE = f"answerAs {LINKAGE_READ}"
MANY = f"aggregateAs answerAs fields filter groupBy groupFilter {INCLUDES} nearTo page searchText sort timeZone"
NAMES = {None: "", JSON_API: "json:api", ATOMIC_OPERATIONS: "atomic", ANY: "any", FORM: "form", FILE_FORM: "file"}


@pytest.mark.parametrize(
    ("shape", "declared", "is_to_many", "rows"),
    [
        (Shape.ROOT, ALL, None, ["GET|answerAs|"]),
        (Shape.LIVE, ALL, None, ["GET||"]),
        (Shape.READY, ALL, None, ["GET||"]),
        (Shape.METRICS, ALL, None, ["GET||"]),
        (Shape.PROTECTED_RESOURCE, ALL, None, ["GET||"]),
        *((shape, ALL, None, ["GET||"]) for shape in (Shape.OPENAPI, Shape.DOCS, Shape.DOCS_FILE)),
        *((shape, ALL, None, ["GET||"]) for shape in (Shape.PAGES_FILE, Shape.PAGES_GO)),
        *(
            (shape, ALL, None, ["GET||", "POST||form"])
            for shape in (Shape.FORM_NEW, Shape.FORM_EDIT, Shape.FORM_DELETE)
        ),
        (Shape.FORM_IMPORT, ALL, None, ["GET||", "POST||file"]),
        (Shape.PAGES_BYTES, ALL, None, ["GET||"]),
        (Shape.PAGES_FACETS, ALL, None, ["GET||"]),
        (Shape.PAGES_FACETS, {"read"}, True, ["GET||"]),
        (Shape.PAGES_FACETS, {"read"}, False, []),
        (Shape.PAGES_CHOOSE, ALL, None, ["POST||form"]),
        (Shape.FORM_NEW, {"list"}, None, []),
        (Shape.FORM_LINKS, ALL, True, ["GET||", "POST||form"]),
        (Shape.COLLECTION, ALL, None, [f"GET|{MANY}|", f"POST|{CREATE}|json:api"]),
        (Shape.COLLECTION, {"list"}, None, [f"GET|{MANY}|", f"POST|{CREATE}|json:api"]),
        (Shape.COLLECTION, UNREAD, None, [f"POST|{CREATE}|json:api"]),
        (Shape.RESOURCE, ALL, None, [f"GET|{READ_ONE}|", f"PATCH|{ONE}|json:api", "DELETE||"]),
        (Shape.RESOURCE, {"detail"}, None, [f"GET|{READ_ONE}|", f"PATCH|{ONE}|json:api", "DELETE||"]),
        (Shape.RESOURCE, UNREAD, None, [f"PATCH|{ONE}|json:api", "DELETE||"]),
        (Shape.RELATED, ALL, True, [f"GET|{MANY}|", f"POST|{ONE}|json:api"]),
        (Shape.RELATED, ALL, False, [f"GET|{READ_ONE}|", f"PATCH|{ONE}|json:api", "DELETE||"]),
        (Shape.RELATED, UNREAD, True, [f"POST|{ONE}|json:api"]),
        (Shape.RELATED, UNREAD, False, [f"PATCH|{ONE}|json:api", "DELETE||"]),
        (
            *(Shape.RELATIONSHIP, ALL, True),
            [f"GET|{READ_LINKAGE}|", "POST||json:api", f"PATCH|{LINKAGE}|json:api", "DELETE||json:api"],
        ),
        (Shape.RELATIONSHIP, ALL, False, [f"GET|{READ_ONE}|", f"PATCH|{ONE}|json:api"]),
        (Shape.RELATIONSHIP, UNREAD, True, ["POST||json:api", f"PATCH|{LINKAGE}|json:api", "DELETE||json:api"]),
        (Shape.RELATIONSHIP, UNREAD, False, [f"PATCH|{ONE}|json:api"]),
        (Shape.OPERATIONS, ALL, None, ["POST||atomic"]),
        (Shape.FUNCTION, {"GET"}, True, [f"GET|{MANY}|"]),
        (Shape.FUNCTION, {"GET"}, False, ["GET|answerAs|"]),
        (Shape.FUNCTION, {"POST"}, True, [f"POST|{LINKAGE_READ}|json:api"]),
        (Shape.FUNCTION, {"POST"}, False, ["POST||json:api"]),
        (Shape.SERVER, ALL, None, ["GET||", "POST||", "PATCH||", "DELETE||"]),
        (Shape.CUSTOM, {"GET", "PUT"}, None, ["GET||", "PUT||any"]),
        (Shape.CUSTOM, {"DELETE", "POST", "PATCH"}, None, ["POST||any", "PATCH||any", "DELETE||any"]),
        (Shape.CUSTOM, (), None, []),
    ],
)
def test_methods(shape: Shape, declared: set[str], is_to_many: bool | None, rows: list[str]) -> None:
    """Each row is a method, its parameter families and the media type of its body."""
    methods = methods_of(shape, frozenset(declared), is_to_many)
    shown = [
        f"{name}|{' '.join(sorted(row.accepts))}|{NAMES[row.body]}"
        for name, row in methods.items()
        if name not in ("HEAD", "OPTIONS", QUERY)
    ]
    assert shown == rows
    # In the order of Allow.
    names = [row.partition("|")[0] for row in rows]
    reads = ["HEAD", *[QUERY] * (shape in QUERIED)] if "GET" in names else []
    assert list(methods) == [*names, *reads, "OPTIONS"]
    assert methods.get("HEAD") is methods.get("GET")
    if QUERY in methods:
        assert methods[QUERY].accepts == methods["GET"].accepts - {"answerAs"}
    assert methods["OPTIONS"].body is None


def test_media_types_of_answers() -> None:
    answers = {shape: {one.name for row in rows for one in row.answers} for shape, rows in TABLE.items()}
    others = {Shape.METRICS: {TEXT, OPENMETRICS}, Shape.CUSTOM: {"*/*"}, Shape.PROTECTED_RESOURCE: {"*/*"}}
    others |= {Shape.OPENAPI: {"application/json"}, Shape.DOCS: {"text/html"}, Shape.DOCS_FILE: {"*/*"}}
    others |= {shape: {"*/*"} for shape in (Shape.PAGES_FILE, Shape.PAGES_GO, Shape.PAGES_BYTES)}
    others |= {
        shape: {"text/html"} for shape in Shape if shape.name.startswith(("FORM_", "PAGES_")) and shape not in others
    }
    others |= {shape: {one.name for one in BROWSED} for shape in (Shape.ROOT, Shape.RESOURCE, Shape.RELATIONSHIP)}
    others |= {shape: {one.name for one in LISTS} for shape in (Shape.COLLECTION, Shape.RELATED, Shape.FUNCTION)}
    assert answers == {shape: others.get(shape, {JSON_API.name}) for shape in Shape}
    extended = {shape for shape, rows in TABLE.items() for row in rows if ATOMIC_OPERATIONS in row.answers}
    assert extended == {Shape.OPERATIONS}


def test_every_parameter_family_is_accepted_somewhere() -> None:
    accepted = {family for rows in TABLE.values() for row in rows for family in row.accepts}
    assert accepted == set(FAMILIES)


def test_rows_need_what_declarations_have() -> None:
    others = (Shape.CUSTOM, Shape.FUNCTION)
    needed = {row.needs for shape, rows in TABLE.items() for row in rows if shape not in others}
    assert needed - {None} <= ALL


@pytest.mark.parametrize("shape", HANDLERS)
def test_handlers_define_the_methods_of_their_shape(shape: Shape) -> None:
    assert defined_methods(HANDLERS[shape]) == {row.name for row in TABLE[shape]}


def test_every_shape_has_methods() -> None:
    assert set(TABLE) == set(Shape)


def test_the_server_has_the_methods_of_all_shapes() -> None:
    shapes = set(TABLE) - {Shape.SERVER, Shape.CUSTOM}
    assert {row.name for row in TABLE[Shape.SERVER]} == {row.name for shape in shapes for row in TABLE[shape]}


def test_custom_routes_have_the_methods_of_their_class() -> None:
    class Own(CustomHandler):
        def put(self) -> None: ...

    class Further(Own):
        async def get(self) -> None: ...

        def helper(self) -> None: ...

    assert defined_methods(CustomHandler) == set()
    assert defined_methods(Own) == {"PUT"}
    assert defined_methods(Further) == {"GET", "PUT"}
