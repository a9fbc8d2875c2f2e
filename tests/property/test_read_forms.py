"""Earlier requests do not change how a read is prepared. An engine that has answered many requests creates the same
plan, statements, values, links, cursor marks and errors as a new one."""

from __future__ import annotations

from random import Random
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from querybuild.cursors import encode_cursor
from querybuild.declarations.catalog import Catalog
from querybuild.declarations.resource import Resource
from querybuild.errors import ApiError, Several
from server.engine import ANYBODY, Engine
from server.preparing.reads import PreparedRead, ReadShape
from server.resources import built_in
from server.routes import ON_MANY, ON_ONE, Shape, methods_of
from server.schema.live_schema import LiveSchema
from server.settings import Settings
from tests import catalog as corner
from tests.property.filters import CORNER_TYPES, TYPES
from tests.property.query_forms import CursorText, Filling, FormMaker, Value

NARROW = Settings(
    page_size=5,
    max_page_size=100,
    total="none",
    unpaginated="off",
    max_filter_nodes=4,
    max_filter_depth=2,
    max_list_values=2,
    max_json_depth=5,
    max_includes=1,
)
FORMS = 10
"""How many forms of a route are in one example."""

KINDS: tuple[Literal["collection", "related", "linkage", "resource"], ...]
KINDS = ("collection", "collection", "collection", "related", "linkage", "resource")
SHAPES = {"related": Shape.RELATED, "linkage": Shape.RELATIONSHIP}


class Subject(msgspec.Struct, frozen=True):
    """A catalog, and the types for which filters can be drawn."""

    catalog: Catalog
    types: tuple[str, ...]

    def engine(self, limits: Settings) -> Engine:
        return Engine(limits, self.catalog, LiveSchema())


@pytest.fixture(scope="module", params=["people", "corners"])
def subject(request: pytest.FixtureRequest) -> Subject:
    if request.param == "people":
        return Subject(built_in(), TYPES)
    return Subject(corner.CATALOG, CORNER_TYPES)


def shape_of(random: Random, catalog: Catalog, resource: Resource) -> ReadShape:
    """Draw a route whose answer shows rows of the resource."""
    kind = random.choice(KINDS)
    if kind == "resource":
        return ReadShape(kind, resource, accepts=ON_ONE)
    found = [(one, by) for one in catalog for by in one.relationships if catalog.target(by) is resource]
    if kind == "collection" or not found:
        return ReadShape("collection", resource, accepts=ON_MANY)
    owner, by = random.choice(found)
    methods = methods_of(SHAPES[kind], frozenset({"read"}), by.is_to_many)
    return ReadShape(kind, owner, by, accepts=methods["GET"].accepts)


def query_string(filling: Filling, mark: str) -> str:
    """Return the query string of a request. mark: that of the list, for cursors."""
    texts = []
    for name, value in filling.parameters:
        if isinstance(value, CursorText):
            value = encode_cursor(mark if value.of_list else "0" * 12, value.values, value.parent)
        texts.append(f"{filling.encode(name)}={filling.encode(value)}")
    return "&".join(texts)


def mark_of(engine: Engine, shape: ReadShape, filling: Filling) -> str:
    """Return the mark for cursors of the list, or "" if the request is invalid or has no cursors."""
    if not any(isinstance(value, CursorText) for _, value in filling.parameters):
        return ""
    begun: list[tuple[str, Value]] = [
        (name, "" if isinstance(value, CursorText) else value)
        for name, value in filling.parameters
        if name != "page[before]"
    ]
    if "page[after]" not in dict(begun):
        begun.append(("page[after]", ""))
    try:
        return engine.reads.prepare(
            shape, query_string(Filling(begun, filling.encode), ""), ANYBODY
        ).planned.cursor_mark
    except (ApiError, Several):
        return ""


def facts(engine: Engine, shape: ReadShape, query: str) -> tuple[object, ...]:
    try:
        read = engine.reads.prepare(shape, query, ANYBODY)
    except Several as several:
        return tuple([described(error) for error in several.errors])
    except ApiError as error:
        return (described(error),)
    return plans(read)


def plans(read: PreparedRead) -> tuple[object, ...]:
    statements = [(one.sql, one.slots) for one in read.ready.statements.all()]
    # The values 1, 1.0 and True are equal in Python, but not for PostgreSQL.
    planned = read.planned
    values = repr((planned.values, planned.page_values))
    cursor = planned.cursor_mark, planned.cursor_parent
    return planned.plan, statements, values, planned.page, planned.filters, cursor, read.queries


def described(error: ApiError) -> tuple[Any, ...]:
    return type(error), str(error), getattr(error, "parameter", None)


@given(random=st.randoms(use_true_random=True))
def test_earlier_requests_change_no_read(subject: Subject, random: Random) -> None:
    limits = random.choice((Settings(), Settings(), Settings(), NARROW))
    type_name = random.choice(subject.types)
    shape = shape_of(random, subject.catalog, subject.catalog.by_type[type_name])
    known, forms = subject.engine(limits), FormMaker(random, type_name)
    for filling in [filling for _ in range(FORMS) for filling in forms.fillings(shape.accepts)]:
        query = query_string(filling, mark_of(subject.engine(limits), shape, filling))
        expected = facts(subject.engine(limits), shape, query)
        # At the third time the query string is in the cache.
        for _ in range(3):
            assert facts(known, shape, query) == expected, query
