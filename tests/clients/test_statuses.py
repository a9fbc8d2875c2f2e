"""What the hooks of schemathesis let pass, and what they must not."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.clients

LINKS = "/films/{id}/relationships/actors"
BY_ROW = [{"name": "phone", "op": "match", "field": "code"}]


def case(method: str, path: str, filters: Any = None) -> Any:
    schema = {"/films": {"get": {}}, LINKS: {"get": {}, "post": {}}}
    query = {} if filters is None else {"filter": json.dumps(filters)}
    return SimpleNamespace(method=method, operation=SimpleNamespace(path=path, schema=schema), query=query)


def answer(status: int, code: str = "", detail: str = "", **source: str) -> Any:
    error: dict[str, Any] = {"code": code, "detail": detail} | ({"source": source} if source else {})
    document = {"errors": [error]} if code else {"data": None}
    return SimpleNamespace(status_code=status, json=lambda: document)


def allowing(methods: str) -> Any:
    return SimpleNamespace(status_code=204, headers={"allow": [methods]})


def choosing(*statuses: str) -> Any:
    """An answer with an error of a chosen include, and an error of each status."""
    errors = [{"status": "400", "code": "invalid_parameter", "source": {"parameter": "includeSort[x]"}, "detail": ""}]
    errors += [{"status": status, "code": "invalid_document", "detail": "", "source": {}} for status in statuses]
    return SimpleNamespace(status_code=400, json=lambda: {"errors": errors})


PATTERN = "[0]: PostgreSQL refuses a value of the filter: a regular expression is not valid."
NUL = "The filter is not valid JSON: a string contains U+0000, which PostgreSQL cannot store."
INCLUDE = "Include parameter is invalid: it leads over 22 relationships, and at most 20 are allowed: include less."
FREED = answer(200)
LISTED = SimpleNamespace(status_code=200, json=lambda: {"data": []})


@pytest.mark.parametrize(
    ("code", "free", "sent", "received", "is_fault"),
    [
        ("ST204", "", case("POST", "/films"), answer(403, "write_forbidden"), False),
        ("ST204", "", case("POST", "/films"), answer(403, "forbidden"), True),
        ("ST204", "", case("POST", "/films"), answer(400, "malformed_json"), True),
        ("ST204", "", case("POST", "/films"), FREED, True),
        ("ST204", "", case("PUT", "/films"), answer(403, "write_forbidden"), True),
        ("ST204", "", case("PUT", "/films"), answer(405, "method_not_allowed"), True),
        ("ST204", "", case("QUERY", "/films"), answer(405, "method_not_allowed"), True),
        ("ST204", "", case("QUERY", "/films"), answer(400, "invalid_filter"), True),
        ("ST204", "", case("QUERY", "/films"), answer(415, "unsupported_media_type", header="Content-Type"), False),
        ("ST204", "", case("PUT", "/films"), answer(415, "unsupported_media_type", header="Content-Type"), True),
        ("ST205", "", case("OPTIONS", "/films"), allowing("GET, HEAD, QUERY, OPTIONS"), False),
        ("ST205", "", case("OPTIONS", "/films"), allowing("GET, POST, HEAD, QUERY, OPTIONS"), True),
        ("ST205", "", case("OPTIONS", LINKS), allowing("GET, HEAD, QUERY, OPTIONS"), True),
        ("ST202", "", case("PATCH", "/films"), choosing(), False),
        ("ST202", "", case("PATCH", "/films"), choosing("409"), False),
        ("ST202", "", case("PATCH", "/films"), choosing("422"), True),
        ("ST204", "", case("PATCH", LINKS), answer(400, "malformed_json"), False),
        ("ST204", "", case("PATCH", LINKS), answer(400, "value_refused"), True),
        ("ST204", "", case("POST", LINKS), answer(403, "write_forbidden"), True),
        ("ST301", "DELETE /films/1", case("GET", "/films/{id}"), FREED, True),
        ("ST301", "DELETE /films/1/relationships/actors", case("GET", LINKS), LISTED, False),
        ("ST301", "DELETE /films/1/language", case("GET", "/films/{id}/language"), FREED, False),
        ("ST301", "DELETE /films/1/language", case("GET", "/films/{id}/language"), LISTED, True),
        ("ST202", "", case("GET", "/films", BY_ROW), answer(400, "value_refused", PATTERN), False),
        ("ST202", "", case("GET", "/films", {"not": BY_ROW[0]}), answer(400, "value_refused", PATTERN), False),
        ("ST202", "", case("GET", "/films", BY_ROW), answer(400, "value_refused", "[0]: out of range."), True),
        ("ST202", "", case("GET", "/films", BY_ROW), answer(400, "invalid_filter", PATTERN), True),
        (
            "ST202",
            "",
            case("GET", "/films", [{"name": "phone", "op": "match", "val": "("}]),
            answer(400, "value_refused", PATTERN),
            True,
        ),
        ("ST202", "", case("GET", "/films", {"val": {"\0": 1}}), answer(400, "invalid_filter", NUL), False),
        ("ST202", "", case("GET", "/films", BY_ROW), answer(400, "invalid_filter", NUL), True),
        ("ST202", "", case("GET", "/films"), answer(400, "invalid_include", INCLUDE), False),
        ("ST202", "", case("GET", "/films"), answer(400, "invalid_include", "Include parameter is invalid."), True),
        ("ST101", "", case("POST", "/films"), answer(500, "internal_error"), True),
    ],
)
def test_what_counts_as_a_fault(code: str, free: str, sent: Any, received: Any, is_fault: bool) -> None:
    # schemathesis is only installed where these tests run.
    from tests.clients.statuses import filter_failure

    assert filter_failure(None, SimpleNamespace(code=code, free=free), sent, received) == is_fault


def test_values_are_made_of_formats() -> None:
    from tests.clients.statuses import before_load_schema

    vector = {"type": "string", "format": "vector", "pattern": "^[^\\u0000]*$", "minLength": 1, "examples": ["[1]"]}
    schemas = {"film": {"anyOf": [vector, {"format": "date", "pattern": "^2"}]}}
    before_load_schema(None, {"components": {"schemas": schemas}})
    assert schemas == {"film": {"anyOf": [{"type": "string", "format": "vector"}, {"format": "date", "pattern": "^2"}]}}
