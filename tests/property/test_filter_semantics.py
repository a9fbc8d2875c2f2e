"""A filter over HTTP has the same result as the same filter in plain Python over the same rows. The same holds for
sorts and for the concatenation of pages."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from server.resources import built_in
from tests import catalog as corner
from tests.property.filters import (
    CORNER_TYPES,
    PATHS,
    TYPES,
    Filter,
    filters,
    one_of,
    operator_on_field,
    operator_on_value,
    simple,
    sorts,
    value_tests,
)
from tests.property.model import FIELD_OPERATORS, VALUE_OPERATORS, Model, Row
from tests.property.rows import make_corner_rows, make_rows, store, store_corner
from tests.property.served import Served, served
from tests.variables import VARIABLES

SEEDS = range(int(VARIABLES.get("WATERSPOUT_HYPOTHESIS_SEEDS", "1")))


@pytest.fixture(scope="module")
def server(postgres_url: str) -> Iterator[Served]:
    with served(postgres_url, built_in()) as running:
        yield running


@pytest.fixture(scope="module", params=SEEDS)
def model(server: Served, request: pytest.FixtureRequest) -> Model:
    rows = make_rows(request.param)
    store(server, rows)
    return Model(rows)


@pytest.fixture(scope="module")
def corner_server(postgres_url: str) -> Iterator[Served]:
    with served(postgres_url, corner.CATALOG, corner.DDL) as running:
        yield running


@pytest.fixture(scope="module", params=SEEDS)
def corner_model(corner_server: Served, request: pytest.FixtureRequest) -> Model:
    """Return the model of the sample resources: link tables, self-references, two relationships to one type, and ids of
    text, of uuid and in another column."""
    rows = make_corner_rows(request.param)
    store_corner(corner_server, rows)
    return Model(rows)


def ids(rows: list[Row]) -> list[str]:
    return [str(row["id"]) for row in rows]


def check(server: Served, model: Model, type_name: str, tests: list[Filter]) -> None:
    pairs = (("filter", json.dumps(tests)), ("page[size]", "0"), (f"fields[{type_name}]", ""))
    answer = server.get(PATHS[type_name], *pairs)
    assert answer.status == 200, answer.body
    assert answer.ids == ids(model.matching(type_name, tests))
    assert answer.document["meta"]["total"] == len(answer.ids)


@pytest.mark.parametrize("op", VALUE_OPERATORS)
@settings(max_examples=settings().max_examples // 5)
@given(data=st.data())
def test_operators(server: Served, model: Model, op: str, data: DataObject) -> None:
    """Each operator on a value: alone, under `not`, which shows the difference between unknown and false, and as a
    simple filter."""
    type_name, test = data.draw(operator_on_value(op, model.rows))
    form = data.draw(one_of(("plain", "negated", "simple")))
    pair = simple(test)
    if form == "simple" and pair is not None:
        answer = server.get(PATHS[type_name], pair, ("page[size]", "0"))
        assert answer.status == 200, answer.body
        assert answer.ids == ids(model.matching(type_name, test))
    else:
        check(server, model, type_name, [{"not": test} if form == "negated" else test])


@pytest.mark.parametrize("op", FIELD_OPERATORS)
@settings(max_examples=settings().max_examples // 2)
@given(data=st.data())
def test_field_operators(server: Served, model: Model, op: str, data: DataObject) -> None:
    """Each operator between two fields."""
    type_name, test = data.draw(operator_on_field(op))
    check(server, model, type_name, [{"not": test} if data.draw(st.booleans()) else test])


@given(data=st.data())
def test_full_filters(server: Served, model: Model, data: DataObject) -> None:
    type_name = data.draw(one_of(TYPES))
    check(server, model, type_name, data.draw(st.lists(filters(type_name, model.rows), min_size=1, max_size=2)))


@given(data=st.data())
def test_full_filters_of_corners(corner_server: Served, corner_model: Model, data: DataObject) -> None:
    type_name = data.draw(one_of(CORNER_TYPES))
    tests = data.draw(st.lists(filters(type_name, corner_model.rows), min_size=1, max_size=2))
    check(corner_server, corner_model, type_name, tests)


@given(data=st.data())
def test_sorts_of_corners(corner_server: Served, corner_model: Model, data: DataObject) -> None:
    type_name = data.draw(one_of(CORNER_TYPES))
    sort = data.draw(sorts(type_name))
    answer = corner_server.get(PATHS[type_name], ("sort", sort))
    assert answer.status == 200, answer.body
    assert answer.ids == ids(corner_model.sorted_rows(type_name, corner_model.rows[type_name], sort))


@given(data=st.data())
def test_simple_filters(server: Served, model: Model, data: DataObject) -> None:
    """Several simple filters and a full filter are combined with AND."""
    type_name = data.draw(one_of(TYPES))
    tests = data.draw(st.lists(value_tests(type_name, model.rows), min_size=1, max_size=2))
    spoken = [(test, pair) for test in tests if (pair := simple(test)) is not None]
    full = data.draw(st.lists(filters(type_name, model.rows, depth=1), max_size=1))
    pairs = [pair for _, pair in spoken] + [("filter", json.dumps(item)) for item in full]
    answer = server.get(PATHS[type_name], *pairs, ("page[size]", "0"))
    assert answer.status == 200, answer.body
    assert answer.ids == ids(model.matching(type_name, [test for test, _ in spoken] + full))


@given(data=st.data())
def test_sorts(server: Served, model: Model, data: DataObject) -> None:
    type_name = data.draw(one_of(TYPES))
    sort = data.draw(sorts(type_name))
    answer = server.get(PATHS[type_name], ("sort", sort), ("page[size]", "0"))
    assert answer.status == 200, answer.body
    assert answer.ids == ids(model.sorted_rows(type_name, model.rows[type_name], sort))


@given(data=st.data(), size=one_of((1, 2, 3, 5, 8, 13, 40)), is_offset=st.booleans())
def test_pages(server: Served, model: Model, data: DataObject, size: int, is_offset: bool) -> None:
    """The pages reached by `next` together are the whole list in its order. Walking back by `prev` gives the same
    pages."""
    type_name = data.draw(one_of(TYPES))
    sort = data.draw(sorts(type_name))
    test = data.draw(filters(type_name, model.rows, depth=2))
    whole = ids(model.sorted_rows(type_name, model.matching(type_name, test), sort))
    pairs = (("filter", json.dumps(test)), ("sort", sort), (f"page[{'limit' if is_offset else 'size'}]", str(size)))
    answer = server.get(PATHS[type_name], *pairs)
    pages = []
    while True:
        assert answer.status == 200, answer.body
        document = answer.document
        pages.append(answer.ids)
        pages_in_all = -(-len(whole) // size)
        assert document["meta"] == {"count": len(answer.ids), "total": len(whole), "totalPages": pages_in_all}
        if "next" not in document["links"]:
            break
        answer = server.follow(document["links"]["next"])
    assert [id_value for page in pages for id_value in page] == whole
    assert len(pages) == max(1, pages_in_all)
    if whole:
        assert server.follow(document["links"]["last"]).ids == pages[-1]
        assert server.follow(document["links"]["first"]).ids == pages[0]
    for page in pages[-2::-1]:
        document = server.follow(document["links"]["prev"]).document
        assert [resource["id"] for resource in document["data"]] == page
    assert "prev" not in document["links"]


@given(data=st.data())
def test_related_collections(server: Served, model: Model, data: DataObject) -> None:
    """A related to-many is a collection with the same filters and sorts."""
    parent, name = data.draw(one_of((("user", "computers"), ("user", "posts"), ("group", "users"))))
    row = data.draw(one_of(model.rows[parent]))
    type_name, related = model.related(name, parent, row)
    sort = data.draw(sorts(type_name))
    test = data.draw(filters(type_name, model.rows, depth=2))
    answer = server.get(f"{PATHS[parent]}/{row['id']}/{name}", ("filter", json.dumps(test)), ("sort", sort))
    assert answer.status == 200, answer.body
    found = [other for other in model.matching(type_name, test) if other in related]
    assert answer.ids == ids(model.sorted_rows(type_name, found, sort))
