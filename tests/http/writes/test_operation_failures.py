"""Sections 7 and 8 of the decisions, and "Atomic operations error" of the specification: every kind of error in both
forms, with nothing changed, and errors of the request itself.

test_operation_rollback.py tests failures between the server and PostgreSQL."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from tornado.ioloop import IOLoop

from server.resources import built_in
from tests.conftest import cloned
from tests.http.conftest import MEDIA_TYPE, Api
from tests.http.operating import (
    EXTENDED,
    add,
    by_lid,
    detail,
    extended,
    extended_errors,
    operate,
    remove,
    unchanged,
    update,
)
from tests.http.people import ADA, create_household, linked, of, one
from tests.http.rows import reading_server

MEMBERS = ("attributes", "id", "lid", "relationships", "type")
FIRST = add("parent", {"name": "first"}, lid="first")
LONG = "9" * 5000


class Case(msgspec.Struct, frozen=True):
    """An operation that fails at position 1. faults: code, path and detail of each. title: the title in the message
    without the extension, if the status is not 422."""

    operation: Any
    status: int
    faults: list[tuple[str, list[str | int], str]]
    title: str = "Validation error"


def failing(operation: Any, status: int, code: str, path: str, said: str, title: str = "Validation error") -> Case:
    """path: as in a pointer; numbers in it are positions."""
    parts: list[str | int] = [int(part) if part.isdecimal() else part for part in path.split("/") if part]
    return Case(operation, status, [(code, parts, said)], title)


def malformed(operation: Any, path: str, said: str) -> Case:
    return failing(operation, 400, "malformed_operations", path, said, "Malformed Operations")


def invalid(operation: Any, path: str, said: str) -> Case:
    return failing(operation, 422, "invalid_document", path, said)


PERSON = {"type": "person", "id": "1"}
GROUPED = "data/relationships/group/data"
OWNED = "data/relationships/computers/data"
NO_LID = "No operation before this one adds a resource of type “{}” with this `lid`."
NOT_BOTH = "A resource is identified by its `id` or by its `lid`, not by both."
NO_REF = "There must be a `ref`, an object of `type` and `id` or `lid`."
CASES: dict[str, Case] = {
    # what the specification shows
    "an update without an id": invalid(update("person", {"name": "x"}), "data/id", "There is no `id`."),
    "a required attribute": failing(
        update("user_bio", {"favourite_movies": "x"}, id="1"),
        422,
        "invalid_attribute",
        "data/attributes/birth_city",
        "The attribute “birth_city” is required.",
    ),
    "an update whose id is none": invalid(
        update("person", {"name": "x"}, id=None), "data/id", "`id` must be a string or a whole number."
    ),
    "an update whose lid is none": invalid(
        update("person", {"name": "x"}, lid=7), "data/lid", "`lid` must be a string that is not empty."
    ),
    # the form of an operation
    "no object": malformed(7, "", "An operation must be an object."),
    "no op": malformed({"data": PERSON}, "op", "`op` must be add, update or remove."),
    "an op of another kind": malformed({"op": "delete", "ref": PERSON}, "op", "`op` must be add, update or remove."),
    "an op that is no text": malformed({"op": ["add"]}, "op", "`op` must be add, update or remove."),
    "href": malformed(
        {"op": "remove", "href": "/persons/1"}, "href", "`href` is not supported: name a resource by `ref`."
    ),
    "href beside ref": malformed(
        remove("person", id="1") | {"href": "/persons/1"}, "href", "`href` is not supported: name a resource by `ref`."
    ),
    "add without data": malformed({"op": "add"}, "data", "An add must have `data`."),
    "update without data": malformed({"op": "update", "ref": PERSON}, "data", "An update must have `data`."),
    "add of null": invalid({"op": "add", "data": None}, "data", "`data` must be one resource object."),
    "add of a list": invalid({"op": "add", "data": [PERSON]}, "data", "`data` must be one resource object."),
    "add with a ref": malformed(
        add("person", {"name": "x"}) | {"ref": PERSON},
        "ref",
        "The `ref` of an `add` names the type of its `data`, or a relationship.",
    ),
    "remove without a ref": malformed({"op": "remove"}, "ref", NO_REF),
    "remove by data": malformed({"op": "remove", "data": PERSON}, "ref", NO_REF),
    "a ref that is a text": malformed({"op": "remove", "ref": "1"}, "ref", NO_REF),
    "a ref without a type": invalid({"op": "remove", "ref": {"id": "1"}}, "ref/type", "There is no `type`."),
    "a ref without an id": invalid({"op": "remove", "ref": {"type": "person"}}, "ref/id", "There is no `id`."),
    "a ref and other data": invalid(
        {"op": "update", "ref": PERSON, "data": {"type": "person", "id": "2"}},
        "data/id",
        "The `id` of `data` is not that of `ref`.",
    ),
    "an unknown type": invalid(
        add("persn", {"name": "x"}), "data/type", "There is no resource type “persn”. Did you mean “person”?"
    ),
    "an unknown type of a ref": invalid(
        remove("persn", id="1"), "ref/type", "There is no resource type “persn”. Did you mean “person”?"
    ),
    # the resource
    "an unknown attribute": failing(
        add("person", {"name": "x", "~/9": 1}),
        422,
        "invalid_attribute",
        "",
        "person has no attribute “~/9”.",
    ),
    "a value of another type": failing(
        add("person", {"name": 7}), 422, "invalid_attribute", "data/attributes/name", "“name” must be a string, not 7."
    ),
    "read-only": failing(
        add("user", ADA | {"display_name": "x"}),
        422,
        "invalid_attribute",
        "data/attributes/display_name",
        "“display_name” is read-only: leave it out.",
    ),
    "read-only and changed": failing(
        update("user", {"display_name": "x"}, id="1"),
        422,
        "invalid_attribute",
        "data/attributes/display_name",
        "“display_name” is read-only: leave it out, or send the value it has.",
    ),
    "a required relationship": failing(
        add("post", {"title": "t", "body": "b"}),
        422,
        "invalid_relationship",
        "data/relationships/user",
        "The relationship “user” is required.",
    ),
    "a client's id": failing(
        add("group", {"name": "x"}, id="9"),
        403,
        "client_id_forbidden",
        "data/id",
        "The server chooses ids of type “group”: leave `id` out.",
        "Client-Generated Id Forbidden",
    ),
    "an id that is taken": failing(
        add("person", {"name": "x"}, id="1"),
        409,
        "conflict",
        "data/id",
        "Another person has this value already: “id”.",
        "Conflict",
    ),
    "a value that is taken": failing(
        add("group", {"name": "rowers"}),
        409,
        "conflict",
        "data/attributes/name",
        "Another group has this value already: “name”.",
        "Conflict",
    ),
    "still referred to": failing(
        remove("group", id="1"),
        409,
        "conflict",
        "ref",
        "This group is still referred to by other resources.",
        "Conflict",
    ),
    "update of what is not there": failing(
        update("person", {"name": "x"}, id="9"),
        404,
        "resource_not_found",
        "data/id",
        "There is no person with the id “9”.",
        "Resource Not Found",
    ),
    "update by ref of what is not there": failing(
        {"op": "update", "ref": {"type": "person", "id": "9"}, "data": {"type": "person", "attributes": {"name": "x"}}},
        404,
        "resource_not_found",
        "ref/id",
        "There is no person with the id “9”.",
        "Resource Not Found",
    ),
    "remove of what is not there": failing(
        remove("person", id="9"),
        404,
        "resource_not_found",
        "ref/id",
        "There is no person with the id “9”.",
        "Resource Not Found",
    ),
    "remove of what cannot be there": failing(
        remove("person", id="07"),
        404,
        "resource_not_found",
        "ref/id",
        "There is no person with the id “07”.",
        "Resource Not Found",
    ),
    # linkage
    "to-one linkage to nothing": failing(
        add("user", ADA, relationships=linked(group=one("group", "9"))),
        404,
        "related_not_found",
        GROUPED,
        "There is no group with the id “9”.",
        "Related Resource Not Found",
    ),
    "to-many linkage to nothing": failing(
        update("user", id="1", relationships=linked(computers=of("computer", "4", "9"))),
        404,
        "related_not_found",
        f"{OWNED}/1",
        "There is no computer with the id “9”.",
        "Related Resource Not Found",
    ),
    "linkage of another type": failing(
        add("user", ADA, relationships=linked(group=one("user", "1"))),
        409,
        "linkage_type_conflict",
        f"{GROUPED}/type",
        "This relationship is to resources of type “group”, not “user”.",
        "Linkage Type Conflict",
    ),
    "a link that must stay": failing(
        update("user", id="1", relationships=linked(posts=[])),
        403,
        "required_link",
        "data/relationships/posts/data",
        "post 1, 2 would be left without a required relationship: delete or move first.",
        "Required Link",
    ),
    # local ids
    "an unknown lid": invalid(
        add("user", ADA, relationships=linked(group=by_lid("group", "x"))), f"{GROUPED}/lid", NO_LID.format("group")
    ),
    "an unknown lid of a ref": invalid(remove("person", lid="x"), "ref/lid", NO_LID.format("person")),
    "an unknown lid of an update": invalid(update("person", {}, lid="x"), "data/lid", NO_LID.format("person")),
    "an unknown lid in a list": invalid(
        update("user", id="1", relationships=linked(computers=[one("computer", "1"), by_lid("computer", "x")])),
        f"{OWNED}/1/lid",
        NO_LID.format("computer"),
    ),
    "a later lid": invalid(remove("parent", lid="last"), "ref/lid", NO_LID.format("parent")),
    "another type's lid": invalid(remove("child", lid="first"), "ref/lid", NO_LID.format("child")),
    "its own lid": invalid(
        add("user", ADA, lid="me", relationships=linked(computers=[by_lid("computer", "me")])),
        f"{OWNED}/0/lid",
        NO_LID.format("computer"),
    ),
    "a repeated lid": invalid(
        add("parent", {"name": "x"}, lid="first"), "data/lid", "Another operation already has this `lid`."
    ),
    "an id and a lid": invalid(update("parent", {}, id="1", lid="first"), "data/lid", NOT_BOTH),
    "an id and a lid of a ref": invalid(remove("parent", id="1", lid="first"), "ref/lid", NOT_BOTH),
    "an id and a lid of linkage": invalid(
        update("user", id="1", relationships=linked(group={**by_lid("group", "x"), "id": "1"})),
        f"{GROUPED}/lid",
        NOT_BOTH,
    ),
    "an empty lid": invalid(
        add("parent", {"name": "x"}, lid=""), "data/lid", "`lid` must be a string that is not empty."
    ),
    "a lid that is a number": invalid(
        add("parent", {"name": "x"}, lid=7), "data/lid", "`lid` must be a string that is not empty."
    ),
}
CASES["an unknown attribute"].faults[0][1].extend(["data", "attributes", "~/9"])


def pointer(path: list[str | int]) -> str:
    escaped = [str(part).replace("~", "~0").replace("/", "~1") for part in path]
    return "/".join(["/atomic:operations/1", *escaped])


def plain(case: Case) -> dict[str, Any]:
    """Return the error document without the extension."""
    operation = case.operation if isinstance(case.operation, dict) else {}
    data = operation.get("data")
    op = operation.get("op")
    named = f" {op}" if op in ("add", "update", "remove") else ""
    return {
        "data": {name: data.get(name) if isinstance(data, dict) else None for name in MEMBERS},
        "errors": [{"loc": path, "msg": said, "type": code} for code, path, said in case.faults],
        "message": f"{case.title} on operation{named} (at position 1)",
        "ref": operation.get("ref"),
    }


def between(case: Case) -> list[Any]:
    return [FIRST, case.operation, add("parent", {"name": "last"}, lid="last")]


@pytest.fixture(scope="module")
def shared(administer: Callable[[str], object], postgres_url: str, template: str) -> Iterator[tuple[int, str]]:
    """Yield a server over the rows of a household, for tests that change nothing: its port, and the URL of its
    database."""
    name = f"waterspout_failures_{os.getpid()}"
    with cloned(administer, postgres_url, name, template) as url, reading_server(url, built_in()) as port:

        async def fill() -> None:
            api = Api(port, url)
            await create_household(api)
            await api.close()

        asyncio.run(fill())
        yield port, url


@pytest.fixture
def household(io_loop: IOLoop, shared: tuple[int, str]) -> Iterator[Api]:
    api = Api(*shared)
    yield api
    io_loop.run_sync(api.close)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_without_the_extension(household: Api, case: Case) -> None:
    for media_type in (MEDIA_TYPE, "application/json"):
        async with unchanged(household):
            answer = await operate(household, *between(case), media_type=media_type)
        assert detail(answer) == plain(case)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_with_the_extension(household: Api, case: Case) -> None:
    async with unchanged(household):
        status, errors = extended_errors(await extended(household, *between(case)))
    found = [(each["status"], each["code"], each["detail"], each["source"]) for each in errors]
    wanted = [(str(case.status), code, said, {"pointer": pointer(path)}) for code, path, said in case.faults]
    assert (status, found) == (case.status, wanted)


# several faults


SEVERAL = (
    add("person", {"nam": 1, "name": 2}),
    add("group", {"name": "x"}, id="9"),
    {"op": "nix"},
)


async def test_several_faults_without_the_extension(api: Api) -> None:
    """Only those of the first operation that fails."""
    async with unchanged(api):
        said = detail(await operate(api, FIRST, *SEVERAL))
    assert said["message"] == "Validation error on operation add (at position 1)"
    assert [fault["loc"] for fault in said["errors"]] == [["data", "attributes", "nam"], ["data", "attributes", "name"]]


async def test_several_faults_with_the_extension(api: Api) -> None:
    """All are reported together. Different 4xx statuses become a 400, and each error has its own status."""
    async with unchanged(api):
        status, errors = extended_errors(await extended(api, FIRST, *SEVERAL))
    assert status == 400
    assert {(each["source"]["pointer"], each["status"]) for each in errors} == {
        ("/atomic:operations/1/data/attributes/nam", "422"),
        ("/atomic:operations/1/data/attributes/name", "422"),
        ("/atomic:operations/2/data/id", "403"),
        ("/atomic:operations/3/op", "400"),
    }


async def test_the_error_of_the_first_operation_is_among_the_first_hundred(api: Api) -> None:
    """An answer has at most a hundred errors. The error of an earlier operation is one of them, and is the one without
    the extension."""
    wild = add("person", {"name": "x"} | {f"a{number}": 1 for number in range(150)})
    operations = (add("person", {"nam": 1, "name": "x"}), wild)
    status, errors = extended_errors(await extended(api, *operations))
    assert (status, len(errors)) == (422, 100)
    assert errors[0]["source"] == {"pointer": "/atomic:operations/0/data/attributes/nam"}
    said = detail(await operate(api, *operations))
    assert said["message"] == "Validation error on operation add (at position 0)"
    assert [fault["loc"] for fault in said["errors"]] == [["data", "attributes", "nam"]]


async def test_more_malformed_operations_than_reported_errors(api: Api) -> None:
    operations = [FIRST, *[{"op": "remove", "data": {"type": "person"}}] * 150]
    assert len(extended_errors(await extended(api, *operations))[1]) == 100
    said = detail(await operate(api, *operations))
    assert said["message"] == "Malformed Operations on operation remove (at position 1)"
    assert said["data"] == dict.fromkeys(MEMBERS) | {"type": "person"}


@pytest.mark.parametrize("name", ["0", "7", "99999999999999999999999", LONG, "٣", ""])
async def test_an_attribute_whose_name_is_a_number(api: Api, name: str) -> None:
    """It is a name in the path, not a position."""
    async with unchanged(api):
        said = detail(await operate(api, add("person", {"name": "x", name: 1})))
    assert said["errors"][0]["loc"] == ["data", "attributes", name]


@pytest.mark.parametrize("number", ["1e999", "1" + "0" * 100, "-0", "1.50", "0.1"])
async def test_the_sent_operation_is_shown(api: Api, number: str) -> None:
    """Numbers of any size are returned as JSON."""
    person = '{"type":"person","attributes":{"nam":' + number + "}}"
    body = '{"atomic:operations":[{"op":"add","data":' + person + "}]}"
    answer = await api.request("POST", "/operations", body=body, headers={"Content-Type": MEDIA_TYPE})
    assert float(detail(answer)["data"]["attributes"]["nam"]) == float(number)


@pytest.mark.parametrize("operation", [update("person", {"name": "x"}, id="1"), remove("person", id="1")])
async def test_a_resource_that_an_earlier_operation_removed_is_not_found(api: Api, operation: Any) -> None:
    await api.create("/persons", "person", {"name": "p"})
    answer = await extended(api, remove("person", id="1"), operation)
    assert (answer.status, [each["code"] for each in answer.errors]) == (404, ["resource_not_found"])
    assert (await api.get("/persons/1")).status == 200


async def test_a_lid_of_a_removed_resource(api: Api) -> None:
    """Created, removed, and referred to again. The error does not show the internal form of the lid."""
    gone = (add("group", {"name": "g"}, lid="gone"), remove("group", lid="gone"))
    async with unchanged(api):
        status, errors = extended_errors(
            await extended(api, *gone, add("user", ADA, relationships=linked(group=by_lid("group", "gone"))))
        )
    assert (status, errors[0]["code"]) == (404, "related_not_found")
    assert errors[0]["source"] == {"pointer": "/atomic:operations/2/data/relationships/group/data"}
    assert "Lid" not in errors[0]["detail"]
    for operation in (update("group", {"name": "x"}, lid="gone"), remove("group", lid="gone")):
        async with unchanged(api):
            status, errors = extended_errors(await extended(api, *gone, operation))
        assert (status, errors[0]["code"]) == (404, "resource_not_found")
        assert errors[0]["source"]["pointer"].startswith("/atomic:operations/2/")
        assert "Lid" not in errors[0]["detail"]


@pytest.mark.parametrize("count", [3, 1000])
@pytest.mark.parametrize("place", ["first", "middle", "last"])
async def test_the_failed_operation_of_a_batch_is_named(api: Api, count: int, place: str) -> None:
    """Although the driver does not report which one it was."""
    await create_household(api)
    index = {"first": 0, "middle": count // 2, "last": count - 1}[place]
    batches = [
        ([add("group", {"name": f"g {number}"}) for number in range(count)], add("group", {"name": "rowers"}), 409),
        (
            [update("person", {"name": f"p {number}"}, id="1") for number in range(count)],
            update("person", {"name": "x"}, id="9"),
            404,
        ),
    ]
    for operations, bad, wanted in batches:
        operations[index] = bad
        async with unchanged(api):
            status, errors = extended_errors(await extended(api, *operations))
        assert (status, len(errors)) == (wanted, 1)
        assert errors[0]["source"]["pointer"].startswith(f"/atomic:operations/{index}/")
        async with unchanged(api):
            said = detail(await operate(api, *operations))
        assert said["message"].endswith(f" on operation {bad['op']} (at position {index})")


def machine(name: Any, owner: str) -> dict[str, Any]:
    return add("computer", {"name": name}, relationships=linked(owner=one("user", owner)))


@pytest.mark.parametrize(
    "bad",
    [
        machine(None, "1"),
        machine(7, "1"),
        machine("a\0b", "1"),
        machine("x", "01"),
        machine("x", "99"),
        add("computer", {"name": "x"}, relationships=linked(owner=one("group", "1"))),
        add("computer", {"nix": "x"}, relationships=linked(owner=one("user", "1"))),
    ],
)
async def test_adds_with_the_same_members_fail_as_others_do(api: Api, bad: dict[str, Any]) -> None:
    """They are planned together. An operation with another member makes the server plan them one by one."""
    await create_household(api)
    for place in (0, 6, 11):
        operations = [machine(f"c {number}", "1") for number in range(12)]
        operations[place] = bad
        other = [*operations[:-1], operations[-1] | {"meta": {}}]
        async with unchanged(api):
            assert detail(await operate(api, *operations)) == detail(await operate(api, *other))
            assert extended_errors(await extended(api, *operations)) == extended_errors(await extended(api, *other))


# the whole document


NO_LIST = "The document must have `atomic:operations`, an array of operations."
DOCUMENTS: list[tuple[str, str, str, str]] = [
    ("{}", "malformed_operations", "/atomic:operations", NO_LIST),
    ("[]", "malformed_operations", "/atomic:operations", NO_LIST),
    ("null", "malformed_operations", "/atomic:operations", NO_LIST),
    ('{"atomic:operations":[]}', "malformed_operations", "/atomic:operations", NO_LIST),
    ('{"atomic:operations":null}', "malformed_operations", "/atomic:operations", NO_LIST),
    ('{"atomic:operations":{}}', "malformed_operations", "/atomic:operations", NO_LIST),
    ('{"operations":[]}', "malformed_operations", "/atomic:operations", NO_LIST),
    ("{", "malformed_json", "", ""),
    ("", "malformed_json", "", ""),
    ('{"atomic:operations":[],"atomic:operations":[]}', "malformed_json", "", ""),
]


@pytest.mark.parametrize(("body", "code", "where", "said"), DOCUMENTS)
async def test_no_operations(api: Api, body: str, code: str, where: str, said: str) -> None:
    """A malformed or empty request is a 422 without the extension, and a 400 with it."""
    answer = await api.request("POST", "/operations", body=body, headers={"Content-Type": MEDIA_TYPE})
    found = detail(answer)
    title = "Malformed JSON" if code == "malformed_json" else "Malformed Operations"
    assert (found["data"], found["ref"], found["message"]) == (None, None, f"{title} on operations")
    [fault] = found["errors"]
    assert (fault["loc"], fault["type"]) == ([where[1:]] if where else [], code)
    answer = await api.request("POST", "/operations", body=body, headers={"Content-Type": EXTENDED})
    status, [told] = extended_errors(answer)
    assert (status, told["code"], told["source"]) == (400, code, {"pointer": where})
    if said:
        assert (fault["msg"], told["detail"]) == (said, said)
