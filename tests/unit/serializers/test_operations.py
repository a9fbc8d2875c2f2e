"""serializers/operations.py: the decoding of operations with their errors, and the encoding of results and errors."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from querybuild.errors import ApiError
from querybuild.query import Change, Identifier, Lid, Limits, LinkageChange
from serializers.decode import parse_document
from serializers.errors import InvalidDocument, MalformedJson, MalformedOperations
from serializers.operations.reader import Operation, uses_lid
from serializers.operations.requests import UniformAdds, decode_operations, load_operations, uniform_adds
from serializers.operations.results import encode_results
from tests.planning import LIMITS

AT = "/atomic:operations/0"


def decode(*operations: Any, is_extended: bool = True, max_operations: int = 10) -> tuple[Any, list[ApiError]]:
    """Return the changes of the operations, and the errors."""
    found: list[Operation] = []
    errors: list[ApiError] = []
    body = json.dumps({"atomic:operations": operations}).encode()
    listed = load_operations(parse_document(body, LIMITS), max_operations)
    decode_operations(listed, found, errors, LIMITS, is_extended=is_extended)
    return [operation.change for operation in found], errors


PERSON = {"type": "person"}
CHANGES: list[tuple[dict[str, Any], Change]] = [
    (
        {"op": "add", "data": PERSON | {"lid": "a", "attributes": {"name": "x"}}},
        Change(kind="create", type="person", lid="a", attributes={"name": "x"}, pointer=f"{AT}/data"),
    ),
    (
        {"op": "add", "ref": PERSON, "data": PERSON},
        Change(kind="create", type="person", pointer=f"{AT}/data"),
    ),
    (
        {"op": "update", "data": PERSON | {"id": 7}},
        Change(kind="update", type="person", id="7", pointer=f"{AT}/data", id_pointer=f"{AT}/data/id"),
    ),
    (
        {"op": "update", "ref": PERSON | {"id": "7"}, "data": PERSON | {"attributes": {"name": "x"}}},
        Change(
            kind="update",
            type="person",
            id="7",
            attributes={"name": "x"},
            pointer=f"{AT}/data",
            id_pointer=f"{AT}/ref/id",
        ),
    ),
    (
        {"op": "remove", "ref": PERSON | {"id": "7"}},
        Change(kind="delete", type="person", id="7", pointer=f"{AT}/ref", id_pointer=f"{AT}/ref/id"),
    ),
]


@pytest.mark.parametrize(("operation", "change"), CHANGES)
def test_changes(operation: dict[str, Any], change: Change) -> None:
    assert decode(operation) == ([change], [])


@pytest.mark.parametrize(("op", "mode"), [("add", "add"), ("update", "replace"), ("remove", "remove")])
def test_an_operation_on_a_relationship_is_an_update_of_its_owner(op: str, mode: Any) -> None:
    ref = {"type": "user", "id": "1", "relationship": "computers"}
    [change], errors = decode({"op": op, "ref": ref, "data": [{"type": "computer", "id": "2"}]})
    assert errors == []
    assert (change.kind, change.type, change.id, change.attributes) == ("update", "user", "1", None)
    assert change.id_pointer == f"{AT}/ref/id"
    [(name, linkage)] = change.relationships.items()
    assert (name, linkage.mode, linkage.is_list, linkage.pointer) == ("computers", mode, True, f"{AT}/data")
    assert linkage.identifiers == (Identifier("computer", "2", f"{AT}/data/0"),)


def test_lids_belong_to_their_type() -> None:
    made = [{"op": "add", "data": {"type": name, "lid": "a"}} for name in ("person", "user")]
    changes, errors = decode(*made, {"op": "remove", "ref": PERSON | {"lid": "a"}})
    assert errors == []
    assert (changes[2].id, changes[2].lid, changes[2].id_pointer) == (None, "a", "/atomic:operations/2/ref/lid")


@pytest.mark.parametrize(
    ("operations", "pointer"),
    [
        ([{"op": "remove", "ref": PERSON | {"lid": "a"}}, {"op": "add", "data": PERSON | {"lid": "a"}}], "0/ref/lid"),
        ([{"op": "add", "data": PERSON | {"lid": "a"}}] * 2, "1/data/lid"),
        (
            [
                {
                    "op": "add",
                    "data": PERSON | {"lid": "a", "relationships": {"friend": {"data": PERSON | {"lid": "a"}}}},
                }
            ],
            "0/data/relationships/friend/data/lid",
        ),
    ],
    ids=["later", "repeated", "its own"],
)
def test_invalid_lids(operations: list[Any], pointer: str) -> None:
    _, errors = decode(*operations)
    assert [(type(error), error.pointer) for error in errors] == [(InvalidDocument, f"/atomic:operations/{pointer}")]


@pytest.mark.parametrize("name", [None, 7, [], {}, True])
def test_an_invalid_relationship_name_does_not_remove_the_resource(name: Any) -> None:
    [change], errors = decode({"op": "remove", "ref": PERSON | {"id": "1", "relationship": name}, "data": []})
    assert change is None
    assert [(type(error), error.pointer) for error in errors] == [(MalformedOperations, f"{AT}/ref/relationship")]


@pytest.mark.parametrize("value", [None, True, [], {}, 1.5])
def test_an_update_with_an_invalid_id(value: Any) -> None:
    [change], errors = decode({"op": "update", "data": PERSON | {"id": value}})
    assert change is None
    assert [(type(error), error.pointer) for error in errors] == [(InvalidDocument, f"{AT}/data/id")]


def test_faults_are_collected() -> None:
    changes, errors = decode({"op": "nix"}, {"op": "remove"}, {"op": "add", "data": PERSON}, 7)
    assert [change is None for change in changes] == [True, True, False, True]
    pointers = [error.pointer for error in errors]
    assert pointers == [f"/atomic:operations/{path}" for path in ("0/op", "1/ref", "3")]


def test_too_many() -> None:
    operation = {"op": "add", "data": PERSON}
    assert len(decode(operation, operation, max_operations=2)[0]) == 2
    with pytest.raises(MalformedOperations) as refusal:
        decode(operation, operation, operation, max_operations=2)
    assert (refusal.value.detail, refusal.value.pointer) == (
        "There are 3 operations; a request has at most 2.",
        "/atomic:operations",
    )


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"a":1,"a":2}'])
def test_invalid_json(body: bytes) -> None:
    with pytest.raises(MalformedJson):
        load_operations(parse_document(body, LIMITS), 10)


ALIKE = [
    {
        "op": "add",
        "data": {
            "type": "person",
            "lid": str(number),
            "attributes": {"name": f"n {number}", "age": number or None},
            "relationships": {"friend": {"data": {"type": "person", "id": str(number)}}},
        },
    }
    for number in range(3)
]


def alike(operations: list[Any], limits: Limits = LIMITS, **others: Any) -> UniformAdds | None:
    body = json.dumps({"atomic:operations": operations, **others})
    return uniform_adds(parse_document(body.encode(), limits), 3, 3, limits)


def test_adds_with_the_same_members_are_columns() -> None:
    found = alike(ALIKE)
    assert found is not None
    [first, *_], errors = decode(*ALIKE)
    assert (found.first, errors) == (first, [])
    assert (found.attributes, found.linked) == (
        [("n 0", "n 1", "n 2"), (None, 1, 2)],
        [("person", ("0", "1", "2"))],
    )


def nested(value: Any) -> list[Any]:
    return [{"op": "add", "data": {"type": "person", "attributes": {"tree": value}}}] * 3


def test_adds_of_another_number_are_no_columns() -> None:
    assert alike(ALIKE[:2]) is None
    assert alike([*ALIKE, ALIKE[0] | {"lid": "4"}]) is None


@pytest.mark.parametrize("is_long", [True, False])
def test_depth_of_adds(is_long: bool) -> None:
    """Short texts are read by another decoder."""
    depth = 8 if is_long else 64
    limits = msgspec.structs.replace(LIMITS, max_json_depth=depth)
    deepest: Any = 1
    for number in range(depth - 5):
        deepest = [deepest] if number % 2 else {"a": deepest}
    others: Any = deepest
    for _ in range(4):
        others = [others]
    found = alike(nested(deepest), limits, meta=others)
    assert found is not None
    assert found.attributes == [(deepest,) * 3]
    if is_long:
        assert alike(nested([deepest]), limits) is None
        assert alike(nested(1), limits, meta=[others]) is None
        assert alike(ALIKE, msgspec.structs.replace(LIMITS, max_json_depth=6)) is None


@pytest.mark.parametrize(
    "body",
    [
        '{"atomic:operations":[%s,%s,%s]}',
        '{"jsonapi" :{"a":{"b":1}},"atomic:operations" :[%s,%s,%s]}',
        '{"atomic:operations":[%s,%s,%s],"a":[1,{"c":"y: "}]}',
    ],
)
def test_duplicate_names_in_adds(body: str) -> None:
    """Each place where a name may occur twice."""
    limits = msgspec.structs.replace(LIMITS, max_json_depth=9)
    add = '{"op":"add","data":{"type":"person","attributes":{"a":{"b":[{"c":"x: y"}]}}}}'
    assert uniform_adds(parse_document((body % (add, add, add)).encode(), limits), 3, 3, limits) is not None
    for name in ("op", "data", "type", "attributes", "a", "b", "c"):
        twice = add.replace(f'"{name}":', f'"{name}" :1,"{name}":')
        for adds in ((twice, add, add), (twice, twice, twice)):
            parsed = parse_document((body % adds).encode(), limits)
            assert uniform_adds(parsed, 3, 3, LIMITS) is None
            with pytest.raises(MalformedJson):
                load_operations(parsed, 3)


@pytest.mark.parametrize(
    "changed",
    [
        {"op": "update"},
        {"op": []},
        {"meta": {}},
        {"ref": PERSON},
        {"data": None},
        {"data": ["type"]},
        {"data": PERSON},
        {"data": ALIKE[1]["data"] | {"type": "user"}},
        {"data": ALIKE[1]["data"] | {"type": {}}},
        {"data": ALIKE[1]["data"] | {"id": "1"}},
        {"data": ALIKE[1]["data"] | {"lid": "0"}},
        {"data": ALIKE[1]["data"] | {"lid": ""}},
        {"data": ALIKE[1]["data"] | {"lid": 1}},
        {"data": ALIKE[1]["data"] | {"attributes": None}},
        {"data": ALIKE[1]["data"] | {"attributes": {"name": "x"}}},
        {"data": ALIKE[1]["data"] | {"attributes": {"age": 1, "name": "x"}}},
        {"data": ALIKE[1]["data"] | {"attributes": {"name": "a\0b", "age": 1}}},
        *[
            {"data": ALIKE[1]["data"] | {"relationships": {"friend": linkage}}}
            for linkage in (
                None,
                {},
                {"data": None},
                {"data": []},
                {"data": PERSON},
                {"data": PERSON | {"lid": "0"}},
                {"data": PERSON | {"id": 1}},
                {"data": PERSON | {"id": "1", "lid": "0"}},
                {"data": {"type": "user", "id": "1"}},
                {"data": PERSON | {"id": "1"}, "links": {}},
            )
        ],
    ],
)
def test_other_operations_are_no_columns(changed: dict[str, Any]) -> None:
    assert alike([ALIKE[0], ALIKE[1] | changed, ALIKE[2]]) is None


LINKAGE = {"friend": LinkageChange((Identifier("person", "", "", "a"),), False, "")}


@pytest.mark.parametrize(
    ("change", "is_used"),
    [
        (Change(kind="create", type="person", lid="a"), False),
        (Change(kind="update", type="person", lid="a"), True),
        (Change(kind="delete", type="person", lid="a"), True),
        (Change(kind="delete", type="user", lid="a"), False),
        (Change(kind="update", type="person", lid="a", id="1"), False),
        (Change(kind="create", type="user", relationships=LINKAGE), True),
    ],
)
def test_uses_lid(change: Change, is_used: bool) -> None:
    assert uses_lid(change, {Lid("person", "a")}) is is_used
    assert uses_lid(change, set()) is False


def test_results() -> None:
    done = [(b"{}", None), (None, None), (b"{}", "7")]
    assert encode_results(done, has_meta=True) == (
        b'{"atomic:results":[{"data":{},"meta":null},{"data":null,"meta":null},{"data":{},"meta":{"version":"7"}}]}'
    )
    assert encode_results(done, has_meta=False) == (
        b'{"atomic:results":[{"data":{}},{"data":null},{"data":{},"meta":{"version":"7"}}]}'
    )
