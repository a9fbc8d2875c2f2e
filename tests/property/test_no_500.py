"""No valid HTTP request causes a 500. Whatever its method, target, headers and body are, the answer is a document that
the official schema accepts, and it reveals no internals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Never
from urllib.parse import quote, unquote_to_bytes

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from tests import catalog as corner
from tests.property.rows import HIDDEN
from tests.property.served import MEDIA_TYPE, Answer, Target, served
from tests.property.wild import IDS, Request, bodies, headers, near_filters, queries, quote_all, requests

SCHEMA = jsonschema_rs.Draft202012Validator(
    json.loads((Path(__file__).parents[1] / "http" / "jsonapi_schema.json").read_text()), validate_formats=True
)
INSIDE = (
    *(
        "SELECT",
        "INSERT",
        "UPDATE ",
        "WHERE",
        'relation "',
        "constraint",
        "violates",
        "syntax error",
        "operator does not",
    ),
    *(
        "user_bios",
        "password_hash",
        "parent_child_associations",
        "photos_meta",
        "owner_id",
        "article_tags",
        "author_no",
    ),
    *("asyncpg", "Traceback", "psql", "pypika", "msgspec", ".py", "PostgresError", "invalid input", "0x"),
)


@pytest.fixture(scope="module")
def corners(postgres_url: str) -> Iterator[Target]:
    with served(postgres_url, corner.CATALOG, corner.DDL) as server:
        document = {"data": {"type": "sample", "attributes": corner.SAMPLE}}
        assert server.write("POST", "/samples", document).status == 201
        yield Target(server, corner.CATALOG)


@pytest.fixture(params=["people", "corners"])
def target(request: pytest.FixtureRequest) -> Target:
    found: Target = request.getfixturevalue(request.param)
    return found


OTHER_TYPES = (b"/-/metrics", b"/-/docs", b"/-/openapi.json")
"""The paths whose answers have other media types."""


def _constant(name: str) -> Never:
    raise AssertionError(f"{name} is not JSON")


def check(target: Target, request: Request) -> Answer:
    """Send a request, and check everything about its answer."""
    answer = target.server.raw(request.method, request.target, request.headers, request.body)
    assert answer.status < 500, (request, answer)
    if request.method == "HEAD" or answer.status == 204:
        assert answer.body == b""
        return answer
    if request.target.startswith(b"*"):
        # The target `*`: only OPTIONS is allowed for it.
        assert (answer.status, answer.body) == (400, b""), (request, answer)
        return answer
    if answer.headers["content-type"] != MEDIA_TYPE and ("Accept", "text/html") in request.headers:
        # Pages have tests of their own (`test_no_500_pages.py`).
        return answer
    if answer.headers["content-type"] == "application/json":
        # Text that is no JSON, sent as operations, has an answer of its own in the contract.
        assert (request.method, request.target.partition(b"?")[0], answer.status) == ("POST", b"/operations", 422)
        return answer
    if request.target.partition(b"?")[0] in OTHER_TYPES and answer.status == 200:
        return answer
    assert answer.headers["content-type"] == MEDIA_TYPE, (request, answer)
    assert HIDDEN.encode() not in answer.body, (request, answer)
    document = json.loads(answer.body.decode(), parse_constant=_constant)
    assert ("errors" in document) == (answer.status >= 400), (request, answer)
    if "errors" in document:
        _check_errors(request, answer, document["errors"])
    # The document of the root only has links to every collection. The contract requires this, but the schema does not
    # allow it.
    if "links" not in document or "data" in document:
        faults = [f"{fault.message[:300]} at {fault.instance_path}" for fault in SCHEMA.iter_errors(document)]
        assert not faults, (request, answer, faults)
    return answer


def _check_errors(request: Request, answer: Answer, errors: list[dict[str, Any]]) -> None:
    statuses = {error["status"] for error in errors}
    assert statuses == {str(answer.status)} or (answer.status == 400 and all(status[0] == "4" for status in statuses))
    sent = (unquote_to_bytes(request.target) + (request.body or b"")).decode("utf-8", "replace")
    for error in errors:
        assert all(isinstance(error[member], str) and error[member] for member in ("id", "code", "title", "detail"))
        assert set(error) <= {"id", "status", "code", "title", "detail", "source"}, error
        said = json.dumps(error, ensure_ascii=False)
        leaks = [word for word in INSIDE if word in said and word not in sent]
        assert not leaks, (request, error, leaks)


@given(data=st.data())
def test_queries_of_collections(target: Target, data: DataObject) -> None:
    resource = data.draw(st.sampled_from([known for known in target.catalog if "list" in known.methods]))
    query = data.draw(queries(target.catalog, resource))
    answer = check(target, Request("GET", resource.path.encode() + b"?" + query))
    assert answer.status in (200, 400, 414)


@given(data=st.data())
def test_one_filter(target: Target, data: DataObject) -> None:
    resource = data.draw(st.sampled_from([known for known in target.catalog if "list" in known.methods]))
    name, value = data.draw(near_filters(target.catalog, resource))
    answer = check(target, Request("GET", f"{resource.path}?{quote_all(name)}={quote_all(value)}".encode()))
    assert answer.status in (200, 400, 414)


@given(data=st.data())
def test_queries_below_a_resource(target: Target, data: DataObject) -> None:
    """The resource itself, its related resources and its linkage."""
    resource = data.draw(st.sampled_from([known for known in target.catalog if known.relationships]))
    relationship = data.draw(st.sampled_from(resource.relationships))
    below = data.draw(st.sampled_from(["", f"/{relationship.name}", f"/relationships/{relationship.name}"]))
    related = target.catalog.target(relationship) if below.startswith(f"/{relationship.name}") else resource
    query = data.draw(queries(target.catalog, related))
    path = f"{resource.path}/{data.draw(st.sampled_from(IDS))}{quote(below)}"
    answer = check(target, Request("GET", path.encode() + b"?" + query))
    assert answer.status in (200, 400, 404, 405, 414)


@given(data=st.data())
def test_anything_to_any_route(target: Target, data: DataObject) -> None:
    check(target, data.draw(requests(target.catalog)))


@given(data=st.data())
def test_bodies(target: Target, data: DataObject) -> None:
    """Creates, and updates of a resource that may exist."""
    resource = data.draw(st.sampled_from(target.catalog.resources))
    id_text = data.draw(st.sampled_from([None, "1", "2", "3"]))
    path = resource.path + ("" if id_text is None else f"/{id_text}")
    body = data.draw(bodies(target.catalog, resource, id_text))
    extra = tuple(pair for pair in data.draw(headers) if pair[0] != "Content-Type")
    method = "POST" if id_text is None else "PATCH"
    check(target, Request(method, path.encode(), (("Content-Type", MEDIA_TYPE), *extra), body))
