"""No list of operations causes a 500. It is executed completely, or refused in the form of its media type. A refusal
changes no row."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject, DrawFn, SearchStrategy

from querybuild.declarations.catalog import Catalog
from querybuild.declarations.resource import Resource
from tests import catalog as corner
from tests.property.rows import HIDDEN
from tests.property.served import MEDIA_TYPE, Answer, Served, Target, served
from tests.property.test_no_500 import INSIDE
from tests.property.values import dump, texts, trees
from tests.property.wild import IDS, documents, mutated, mutated_texts, one_of

EXTENDED = f'{MEDIA_TYPE};ext="https://jsonapi.org/ext/atomic"'
MEMBERS = ("attributes", "id", "lid", "relationships", "type")
STATUSES = (200, 204, 400, 403, 404, 409, 422)
LIDS = ("a", "b", "c")


@pytest.fixture(scope="module")
def corners(postgres_url: str) -> Iterator[Target]:
    with served(postgres_url, corner.CATALOG, corner.DDL) as server:
        yield Target(server, corner.CATALOG)


@pytest.fixture(params=["people", "corners"])
def target(request: pytest.FixtureRequest) -> Target:
    found: Target = request.getfixturevalue(request.param)
    return found


# operations


def names(is_wild: bool) -> SearchStrategy[dict[str, Any]]:
    """Return a strategy for the members that identify a resource, besides its type."""
    ids: SearchStrategy[Any] = st.integers(1, 12).map(str)
    if is_wild:
        ids = st.one_of(ids, st.sampled_from(IDS), trees)
    lids = st.one_of(st.sampled_from(LIDS), trees) if is_wild else st.sampled_from(LIDS)
    by_id, by_lid = st.fixed_dictionaries({"id": ids}), st.fixed_dictionaries({"lid": lids})
    return st.one_of(by_id, by_lid, st.fixed_dictionaries({"id": ids, "lid": lids})) if is_wild else by_id | by_lid


@st.composite
def operations(draw: DrawFn, catalog: Catalog, is_wild: bool) -> dict[str, Any]:
    resource = draw(st.sampled_from(catalog.resources))
    named = {"type": resource.type, **draw(names(is_wild))}
    match draw(st.integers(0, 6)):
        case 0 | 1 | 2:
            data = _with_lids(draw, draw(documents(catalog, resource, None))["data"])
            return {"op": "add", "data": data | draw(one_of({}, {"lid": draw(st.sampled_from(LIDS))}))}
        case 3:
            return {"op": "update", "data": _with_lids(draw, draw(documents(catalog, resource, None))["data"]) | named}
        case 4:
            data = draw(documents(catalog, resource, None))["data"]
            return {"op": "update", "ref": named, "data": draw(one_of(data, data | named))}
        case 5:
            return {"op": "remove", "ref": named}
        case _:
            return draw(linkages(catalog, resource, named, is_wild))


def _with_lids(draw: DrawFn, data: dict[str, Any]) -> dict[str, Any]:
    """Return the data with some of its linkage by lid."""
    relationships = {}
    for name, relationship in data.get("relationships", {}).items():
        linkage = relationship["data"]
        if isinstance(linkage, dict) and draw(st.booleans()):
            linkage = {"type": linkage["type"], "lid": draw(st.sampled_from(LIDS))}
        relationships[name] = {"data": linkage}
    return data | ({"relationships": relationships} if relationships else {})


@st.composite
def linkages(draw: DrawFn, catalog: Catalog, resource: Resource, named: dict[str, Any], is_wild: bool) -> Any:
    found = resource.relationships
    relationship = draw(st.sampled_from(found)) if found else None
    name = draw(trees) if relationship is None or (is_wild and draw(st.booleans())) else relationship.name
    type_name = resource.type if relationship is None else relationship.target
    one = names(is_wild).map(lambda found: {"type": type_name, **found})
    data = draw(st.one_of(st.lists(one, max_size=3), one, st.none()))
    return {"op": draw(one_of("add", "update", "remove")), "ref": named | {"relationship": name}, "data": data}


@st.composite
def bodies(draw: DrawFn, catalog: Catalog) -> bytes:
    is_wild = draw(st.booleans())
    tree: Any = {"atomic:operations": draw(st.lists(operations(catalog, is_wild), min_size=1, max_size=6))}
    for _ in range(draw(one_of(0, 1, 1, 2)) if is_wild else 0):
        tree = draw(mutated(tree))
    text = dump(tree)
    if is_wild and draw(st.integers(0, 9)) == 0:
        text = draw(mutated_texts(text))
    return text.encode("utf-8", "surrogatepass")


# answers


def contents(server: Served) -> list[Any]:
    tables = server.sql(
        ("SELECT schemaname, tablename FROM pg_tables WHERE schemaname IN ('public', 'corner') ORDER BY 1, 2",)
    )
    rows = [f'SELECT \'{table}\' AS place, t::text AS shown FROM "{schema}"."{table}" t' for schema, table in tables]
    return [tuple(row) for row in server.sql((" UNION ALL ".join(rows) + " ORDER BY 1, 2",))]


def check(target: Target, body: bytes, media_type: str) -> Answer:
    before = contents(target.server)
    answer = target.server.raw("POST", b"/operations", (("Content-Type", media_type),), body)
    assert answer.status in STATUSES, (body, answer)
    assert HIDDEN.encode() not in answer.body
    if answer.status < 300:
        _check_results(answer, body, media_type)
    else:
        assert contents(target.server) == before, (body, answer)
        _check_refusal(answer, body, media_type)
    return answer


def _check_results(answer: Answer, body: bytes, media_type: str) -> None:
    sent = json.loads(body)["atomic:operations"]
    assert (answer.status == 204) == all(operation["op"] == "remove" for operation in sent)
    if answer.status == 204:
        assert answer.body == b""
        return
    assert answer.headers["content-type"] == media_type
    results = answer.document["atomic:results"]
    assert len(results) == len(sent)
    for operation, result in zip(sent, results, strict=True):
        is_shown = operation["op"] != "remove" and "relationship" not in operation.get("ref", {})
        assert (result["data"] is not None) == is_shown, (operation, result)
        assert set(result) == ({"data"} if media_type == EXTENDED else {"data", "meta"})
        assert not is_shown or set(result["data"]) <= {"type", "id", "attributes"}


def _check_refusal(answer: Answer, body: bytes, media_type: str) -> None:
    sent = body.decode("utf-8", "replace")
    if media_type == EXTENDED:
        assert answer.headers["content-type"] == EXTENDED
        told = [{name: text for name, text in error.items() if name != "id"} for error in answer.document["errors"]]
        assert all(error["source"]["pointer"].startswith(("/atomic:operations", "")) for error in told)
    else:
        assert (answer.status, answer.headers["content-type"]) == (422, "application/json"), (body, answer)
        detail = answer.document["detail"]
        assert set(detail) == {"data", "errors", "message", "ref"}
        assert detail["data"] is None or tuple(detail["data"]) == MEMBERS
        assert detail["errors"]
        assert all(set(fault) == {"loc", "msg", "type"} for fault in detail["errors"])
        told = [*detail["errors"], detail["message"]]
    said = json.dumps(told, ensure_ascii=False)
    leaks = [word for word in (*INSIDE, "Lid(") if word in said and word not in sent]
    assert not leaks, (body, said, leaks)


@pytest.mark.parametrize("media_type", [MEDIA_TYPE, EXTENDED])
@settings(max_examples=settings().max_examples // 2)
@given(data=st.data())
def test_operations(target: Target, media_type: str, data: DataObject) -> None:
    check(target, data.draw(bodies(target.catalog)), media_type)


@pytest.mark.parametrize("media_type", [MEDIA_TYPE, EXTENDED])
@given(tree=st.one_of(trees, texts.map(lambda text: {"atomic:operations": text})))
def test_anything_for_a_body(people: Target, media_type: str, tree: Any) -> None:
    assert check(people, dump(tree).encode("utf-8", "surrogatepass"), media_type).status in (400, 422)
