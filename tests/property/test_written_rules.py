"""Rules for writes: with random rules, every answer and every row afterwards is that of a server whose database does
not have the hidden rows. And a write is allowed if its row meets the filters, evaluated in plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject, DrawFn

from querybuild.declarations.catalog import Catalog
from server.resources import built_in
from tests import catalog as corner
from tests.property.filters import CORNER_TYPES, KINDS, OPERATORS, TYPES, filters, one_of, pool_of, val
from tests.property.model import Model, Rows
from tests.property.rows import make_corner_rows, make_rows, store, store_corner
from tests.property.served import Served, served
from tests.property.test_hidden_rows import (
    CHANCE,
    EXTENDED,
    HEADERS,
    Hides,
    Pair,
    hidden,
    hidden_ids,
    without_hidden,
    writes,
)
from tests.property.test_operations import bodies
from tests.property.wild import quote_all
from waterspout import ANYONE, Allow

WRITES = 12
BODIES = 3
"""How many requests each example sends. Setting up an example takes longer."""
SOURCES = {
    "people": (built_in(), "", TYPES, make_rows, store),
    "corner": (corner.CATALOG, corner.DDL, CORNER_TYPES, make_corner_rows, store_corner),
}
ALWAYS = {"name": "id", "op": "isnot", "val": None}
seen = Counter[int]()


@pytest.fixture(scope="module", params=SOURCES)
def pair(postgres_url: str, request: pytest.FixtureRequest) -> Iterator[Pair]:
    catalog, ddl, types, make, fill = SOURCES[request.param]
    rows = make(1)
    ids = hidden_ids(rows, types)
    hides: Hides = {name: (None, lambda row, _, some=some: row["id"] not in some) for name, some in ids.items()}
    with served(postgres_url, catalog, ddl) as hiding, served(postgres_url, catalog, ddl) as bare:
        yield Pair(hiding, bare, catalog, types, rows, without_hidden(rows, hides), fill)


@st.composite
def own_filters(draw: DrawFn, type_name: str, rows: Rows) -> Any:
    """Draw a filter for the own columns of a row. A step over a relationship could lead to a hidden row, and a rule
    sees all rows."""
    found = []
    for _ in range(draw(st.integers(1, 2))):
        name = draw(one_of([known for known in KINDS[type_name] if not known.endswith("_id")]))
        kind = KINDS[type_name][name]
        op = draw(one_of(OPERATORS[kind]))
        found.append({"name": name, "op": op, "val": draw(val(kind, op, pool_of(rows, type_name, name)))})
    return {"or": found}


def sometimes(strategy: Any) -> Any:
    return st.one_of(st.none(), st.none(), st.none(), strategy)


@st.composite
def rules(draw: DrawFn, pair: Pair) -> dict[str, tuple[Allow, ...]]:
    """Draw rules for writes, by type."""
    found: dict[str, tuple[Allow, ...]] = {}
    for name in pair.types:
        some = []
        for action in ("create", "update", "delete"):
            for _ in range(draw(st.sampled_from((0, *[1] * 8, 2)))):
                rows, check = [draw(sometimes(own_filters(name, pair.rows))) for _ in range(2)]
                checked = None if action == "delete" else ALWAYS if check is None else check
                some.append(Allow(ANYONE, action, rows=rows, check=checked))
        found[name] = tuple(some)
    return found


def with_rules(catalog: Catalog, rules: dict[str, tuple[Allow, ...]], read: dict[str, Any]) -> Catalog:
    return Catalog(
        [
            msgspec.structs.replace(one, access=(Allow(ANYONE, "read", rows=read.get(one.type)), *rules[one.type]))
            if one.type in rules
            else one
            for one in catalog
        ]
    )


def use(pair: Pair, written: dict[str, tuple[Allow, ...]]) -> None:
    ids = hidden_ids(pair.rows, pair.types)
    read = {name: {"name": "id", "op": "notin_", "val": list(map(str, some))} for name, some in ids.items()}
    pair.hiding.use(with_rules(pair.catalog, written, read))
    pair.bare.use(with_rules(pair.catalog, written, {}))
    pair.reset()


def check_rows(pair: Pair, before: list[Any], *, has_deleted: bool) -> None:
    """Check that the rows are the same on both servers, but for the hidden ones, which are as they were."""
    for type_name in pair.types:
        resource = pair.catalog.by_type[type_name]
        names = ",".join([relationship.name for relationship in resource.relationships])
        pair.check(f"{resource.path}?page[size]=0{f'&include={names}' if names else ''}".encode())
    # Deleting a visible row may delete hidden rows, or set their keys to null.
    assert has_deleted or hidden(pair) == before


@settings(max_examples=max(8, settings().max_examples // 12))
@given(data=st.data())
def test_writes(pair: Pair, data: DataObject) -> None:
    use(pair, data.draw(rules(pair)))
    before, has_deleted = hidden(pair), False
    for thousands in range(1, 1 + WRITES):
        pair.number(thousands)
        method, path, document = data.draw(writes(pair))
        hiding, bare = pair.write(method, path, document)
        assert hiding.status < 500, (method, path, document, hiding)
        if 409 in (hiding.status, bare.status):
            # The unique value or the foreign key of a hidden row may refuse a write.
            return
        assert (hiding.status, hiding.body) == (bare.status, bare.body), (method, path, document)
        seen[hiding.status] += 1
        has_deleted = has_deleted or (method == "DELETE" and "/relationships/" not in path)
    check_rows(pair, before, has_deleted=has_deleted)


def test_some_writes_were_done_and_some_were_forbidden() -> None:
    assert {200, 201, 401, 404, 422} <= set(seen)
    assert min(seen[200], seen[401]) > 10, seen


@settings(max_examples=max(8, settings().max_examples // 12))
@given(data=st.data())
def test_operations(pair: Pair, data: DataObject) -> None:
    use(pair, data.draw(rules(pair)))
    headers = (*HEADERS, ("Content-Type", EXTENDED))
    for thousands in range(1, 1 + BODIES):
        pair.number(thousands)
        before = hidden(pair)
        body = data.draw(bodies(pair.catalog).filter(lambda found: not CHANCE & set(found.split(b'"'))))
        hiding, bare = [server.raw("POST", b"/operations", headers, body) for server in (pair.hiding, pair.bare)]
        assert hiding.status < 500, body
        if 409 in (hiding.status, bare.status):
            return
        assert (hiding.status, hiding.body) == (bare.status, bare.body), body
        check_rows(pair, before, has_deleted=b'"remove"' in body)


@pytest.fixture(scope="module", params=SOURCES)
def one(postgres_url: str, request: pytest.FixtureRequest) -> Iterator[tuple[Served, Catalog, tuple[str, ...], Rows]]:
    catalog, ddl, types, make, fill = SOURCES[request.param]
    rows = make(1)
    with served(postgres_url, catalog, ddl) as server:
        fill(server, rows)
        yield server, catalog, types, rows


@settings(max_examples=settings().max_examples // 4)
@given(data=st.data())
def test_a_write_is_allowed_if_its_row_meets_the_filters(one: Any, data: DataObject) -> None:
    """Filters of any kind, with steps over relationships. The writes change nothing, so the same rows meet them."""
    server, catalog, types, rows = one
    type_name = data.draw(st.sampled_from([name for name in types if name != "node"]))
    resource, model = catalog.by_type[type_name], Model(rows)
    read, update, check = [data.draw(st.one_of(st.none(), filters(type_name, rows, 2))) for _ in range(3)]
    rule = Allow(ANYONE, "update", rows=update, check=ALWAYS if check is None else check)
    access = (Allow(ANYONE, "read", rows=read), rule)
    server.use(
        Catalog([msgspec.structs.replace(each, access=access) if each is resource else each for each in catalog])
    )
    met = [
        {row["id"] for row in (rows[type_name] if each is None else model.matching(type_name, each))}
        for each in (read, update, check)
    ]
    for row in rows[type_name]:
        data_object = {"type": type_name, "id": str(row["id"])}
        answer = server.write("PATCH", f"{resource.path}/{quote_all(str(row['id']))}", {"data": data_object})
        is_readable, is_writable, is_right = [row["id"] in each for each in met]
        expected = 404 if not is_readable else 200 if is_writable and is_right else 401
        assert answer.status == expected, (row["id"], answer.body)
