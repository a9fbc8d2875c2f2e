"""The decoding of bodies: the structure of a document, and each error with its pointer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from querybuild.errors import ApiError
from querybuild.query import Change, Identifier, LinkageChange
from serializers.decode import decode_resource_document
from serializers.errors import InvalidDocument, MalformedJson
from tests.planning import limits


def decoded(body: bytes, *, kind: Any = "create", **changed: int) -> tuple[Change | None, list[tuple[str, str]]]:
    errors: list[ApiError] = []
    change = decode_resource_document(body, Change(kind=kind, type=None), errors, limits(**changed))
    assert all(type(error) is InvalidDocument for error in errors)
    return change, [(str(error.pointer), error.detail) for error in errors]


def data(content: Any) -> bytes:
    return json.dumps({"data": content}).encode()


def change(**changed: Any) -> Change:
    return Change(
        **(
            {
                "kind": "create",
                "type": "a",
                "id": None,
                "attributes": None,
                "relationships": {},
                "undecoded": frozenset(),
                "pointer": "/data",
            }
            | changed
        )
    )


POINTER = "/data/relationships/r/data"


def related(content: Any) -> bytes:
    return data({"type": "a", "relationships": {"r": {"data": content}}})


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (data({"type": "a"}), change()),
        (data({"type": "a", "attributes": {}}), change(attributes={})),
        (
            data({"type": "a", "id": "7", "attributes": {"x": [1, {"y": None}]}}),
            change(id="7", attributes={"x": [1, {"y": None}]}),
        ),
        (data({"type": "a", "id": 7}), change(id="7")),
        (data({"type": "a", "id": -7}), change(id="-7")),
        (data({"type": "a", "id": None}), change()),
        (data({"type": "a", "links": 1, "meta": None, "x": []}), change()),
        (json.dumps({"data": {"type": "a"}, "jsonapi": 1, "included": {}, "meta": 2}).encode(), change()),
        (related(None), change(relationships={"r": LinkageChange((), False, POINTER)})),
        (related([]), change(relationships={"r": LinkageChange((), True, POINTER)})),
        (
            related({"type": "b", "id": 1, "meta": {}}),
            change(relationships={"r": LinkageChange((Identifier("b", "1", POINTER),), False, POINTER)}),
        ),
        (
            related([{"type": "b", "id": "1"}, {"type": "c", "id": "2"}]),
            change(
                relationships={
                    "r": LinkageChange(
                        (Identifier("b", "1", f"{POINTER}/0"), Identifier("c", "2", f"{POINTER}/1")), True, POINTER
                    )
                }
            ),
        ),
    ],
)
def test_documents(body: bytes, expected: Change) -> None:
    assert decoded(body) == (expected, [])


@pytest.mark.parametrize(
    ("body", "faults"),
    [
        (b"[]", [("", "A document is a JSON object.")]),
        (b"null", [("", "A document is a JSON object.")]),
        (b"{}", [("/data", "The document has no `data`.")]),
        (b'{"Data":{}}', [("/data", "The document has no `data`.")]),
        (data(None), [("/data", "`data` must be one resource object.")]),
        (data([{"type": "a"}]), [("/data", "`data` must be one resource object.")]),
        (data({}), [("/data/type", "There is no `type`.")]),
        (data({"type": 1}), [("/data/type", "`type` must be a string.")]),
        (data({"type": None}), [("/data/type", "`type` must be a string.")]),
        (data({"type": "a", "id": 1.5}), [("/data/id", "`id` must be a string or a whole number.")]),
        (data({"type": "a", "id": True}), [("/data/id", "`id` must be a string or a whole number.")]),
        (data({"type": "a", "lid": "x"}), [("/data/lid", "A `lid` is only allowed in atomic operations.")]),
        (data({"type": "a", "attributes": []}), [("/data/attributes", "`attributes` must be an object.")]),
        (data({"type": "a", "attributes": None}), [("/data/attributes", "`attributes` must be an object.")]),
        (data({"type": "a", "relationships": []}), [("/data/relationships", "`relationships` must be an object.")]),
        (
            data({"type": "a", "relationships": {"r": None}}),
            [("/data/relationships/r", "A relationship must be an object with `data`.")],
        ),
        (
            data({"type": "a", "relationships": {"r/s": {"links": {}}}}),
            [("/data/relationships/r~1s/data", "The relationship has no `data`.")],
        ),
        (related(1), [(POINTER, "Resource linkage must consist of resource identifier objects, or be null.")]),
        (
            related([None]),
            [(f"{POINTER}/0", "Resource linkage must consist of resource identifier objects, or be null.")],
        ),
        (related({"id": "1"}), [(f"{POINTER}/type", "There is no `type`.")]),
        (related({"type": "b"}), [(f"{POINTER}/id", "There is no `id`.")]),
        (
            data({"id": [], "attributes": 1, "relationships": {"r": {"data": [{"type": 1}, 2]}, "s": 3}}),
            [
                (f"{POINTER}/0/type", "`type` must be a string."),
                (f"{POINTER}/0/id", "There is no `id`."),
                (f"{POINTER}/1", "Resource linkage must consist of resource identifier objects, or be null."),
                ("/data/relationships/s", "A relationship must be an object with `data`."),
                ("/data/type", "There is no `type`."),
                ("/data/id", "`id` must be a string or a whole number."),
                ("/data/attributes", "`attributes` must be an object."),
            ],
        ),
    ],
)
def test_faults(body: bytes, faults: list[tuple[str, str]]) -> None:
    assert decoded(body)[1] == faults


@pytest.mark.parametrize(
    ("sent", "expected"), [("7", "7"), ("3.0", "3"), ("-0.0", "0"), ("1e2", "100"), ("1E9999", None)]
)
def test_a_whole_number_is_an_id(sent: str, expected: str | None) -> None:
    found, errors = decoded(f'{{"data":{{"type":"a","id":{sent}}}}}'.encode(), kind="update")
    assert found is not None
    assert (found.id, errors == []) == (expected, expected is not None)


def test_an_update_needs_its_id() -> None:
    assert decoded(data({"type": "a", "id": None}), kind="update")[1] == [
        ("/data/id", "`id` must be a string or a whole number.")
    ]
    assert decoded(data({"type": "a"}), kind="update")[1] == [("/data/id", "There is no `id`.")]
    assert decoded(data({"type": "a", "id": "1"}), kind="update") == (change(kind="update", id="1"), [])


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b"", "The body is not valid JSON: unexpected text at line 1, column 1."),
        (b"[1", "The body is not valid JSON: unexpected text at line 1, column 3."),
        (
            b'{"data":{"type":"a","type":"a"}}',
            'The body is not valid JSON: the name "type" occurs twice in one object.',
        ),
        (b'{"data":NaN}', "The body is not valid JSON: NaN is not JSON."),
        (b'{"data":"\\ud800"}', "The body is not valid JSON: a string contains half of a surrogate pair."),
        (b'{"data":"\xff"}', "The body is not UTF-8 at byte 9."),
        (b"\xff\xfe{\0}\0", "The body is not UTF-8 at byte 0."),
        (b"[" * 100_000, "The body is not valid JSON: nested deeper than 5 levels."),
        (b"[" * 6 + b"]" * 6, "The body is not valid JSON: nested deeper than 5 levels."),
    ],
    ids=lambda value: str(value)[:30],
)
def test_invalid_json(body: bytes, detail: str) -> None:
    with pytest.raises(MalformedJson) as raised:
        decoded(body, max_json_depth=5)
    assert (raised.value.pointer, raised.value.detail) == ("", detail)


@pytest.mark.parametrize(
    ("value", "count"),
    [
        ([1, 2, 3], 3),
        ({"a": 1, "b": {"c": [1, 2]}}, 5),
        ([[], {}, [[]]], 7),
        ([",", "[{", '",,"', "\\", '\\",[', "é,"], 6),
        ({'"': "\\\\", ",,": '\\"'}, 2),
        (["x" * 5000, 1.5, None], 3),
    ],
)
def test_values_are_counted_before_they_are_read(value: Any, count: int) -> None:
    """An empty array or object counts as one. The document and its resource object count as two of the others."""
    body = b"   " * 10 + data({"x": value})
    with pytest.raises(MalformedJson) as raised:
        decoded(body, max_json_values=count + 1)
    assert raised.value.detail == f"The body is not valid JSON: more than {count + 1} values."
    decoded(body, max_json_values=count + 2)


def test_invalid_members_are_not_reported_as_missing() -> None:
    found, faults = decoded(data({"attributes": [], "relationships": {"r": 1, "s": {"data": None}}}))
    assert found == change(
        type=None,
        relationships={"s": LinkageChange((), False, "/data/relationships/s/data")},
        undecoded=frozenset({"attributes", "relationships/r"}),
    )
    assert [pointer for pointer, _ in faults] == ["/data/relationships/r", "/data/type", "/data/attributes"]
