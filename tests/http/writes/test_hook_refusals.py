"""Exceptions and invalid results of hooks around writes: the answers in all forms, and that nothing is written."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tornado.web import HTTPError

from tests.http.conftest import Start
from tests.http.custom import ATOMIC, add, hooked, operate, written_with
from tests.http.people import ADA, document, select
from waterspout import ApiError, BadRequest, Change, Hooks, Writing, Written


class Closed(BadRequest):
    """A custom class derived from an error of the server."""


class OutOfStock(ApiError):
    """A custom class derived from the base of all errors."""


class Locked(ApiError):
    """It has its own status, and the title is the name of this status."""

    status = 423


class Lent(BadRequest):
    """It has all possible facts."""

    status = 409
    title = "Lent Out"
    code = "lent"


BAD_REQUEST = {
    "status": "400",
    "code": "bad_request",
    "title": "Bad Request",
    "detail": "Not today.",
    "source": {"pointer": ""},
    "status_code": 400,
}
REFUSALS: list[tuple[Exception, int, dict[str, Any]]] = [
    (BadRequest("Not today."), 400, BAD_REQUEST),
    (Closed("Not today."), 400, BAD_REQUEST),
    (
        BadRequest("Not today.", pointer="/data/attributes/name"),
        400,
        BAD_REQUEST | {"source": {"pointer": "/data/attributes/name"}},
    ),
    (
        OutOfStock("There is none.", pointer="/data"),
        400,
        {
            "status": "400",
            "code": "bad_request",
            "title": "Bad Request",
            "detail": "There is none.",
            "source": {"pointer": "/data"},
        },
    ),
    (ApiError("No."), 400, {"status": "400", "code": "bad_request", "title": "Bad Request", "detail": "No."}),
    (Locked("No."), 423, {"status": "423", "code": "locked", "title": "Locked", "detail": "No."}),
    (
        HTTPError(409, "It is taken."),
        409,
        {"status": "409", "code": "conflict", "title": "Conflict", "detail": "It is taken."},
    ),
    (HTTPError(403), 403, {"status": "403", "code": "forbidden", "title": "Forbidden", "detail": "Forbidden"}),
    (
        HTTPError(418, "Tea alone.", reason="Teapot"),
        418,
        {"status": "418", "code": "teapot", "title": "Teapot", "detail": "Tea alone."},
    ),
]
HOOKS = ("before_create", "after_create", "before_update", "after_update", "before_delete", "after_delete")


def raising(error: Exception) -> Any:
    async def hook(writing: Writing, items: Any) -> None:
        await writing.connection.execute("INSERT INTO groups (name) VALUES ('by the hook')")
        raise error

    return hook


@pytest.mark.parametrize(("error", "status", "expected"), REFUSALS, ids=repr)
async def test_a_refusal(
    start: Start, database_url: str, error: Exception, status: int, expected: dict[str, Any]
) -> None:
    """Nothing is written, whichever hook raises it, also nothing by the hook."""
    committed: list[Written] = []

    async def after_commit(written: list[Written]) -> None:
        committed.extend(written)

    for name in HOOKS:
        hooks = replace(Hooks(after_commit=after_commit), **{name: raising(error)})
        api = await start(database_url, hooked(person=hooks))
        await api.sql("INSERT INTO persons (id, name) VALUES (1, 'old') ON CONFLICT DO NOTHING")
        answer = await written_with(api, name.partition("_")[2])
        assert (answer.status, answer.errors) == (status, [expected]), name
        assert await select(api, "SELECT name FROM persons UNION ALL SELECT name FROM groups") == [("old",)]
    assert committed == []


async def test_a_class_with_its_own_code_and_title(start: Start, database_url: str) -> None:
    api = await start(database_url, hooked(person=Hooks(before_create=raising(Lent("It is out.")))))
    answer = await written_with(api, "create")
    (error,) = answer.errors
    assert (answer.status, error["status"], error["code"], error["title"]) == (409, "409", "lent", "Lent Out")


@pytest.mark.parametrize("name", HOOKS)
async def test_a_fault(start: Start, database_url: str, name: str, caplog: pytest.LogCaptureFixture) -> None:
    api = await start(database_url, hooked(person=Hooks(**{name: raising(KeyError("secret"))})))
    await api.sql("INSERT INTO persons (id, name) VALUES (1, 'old')")
    answer = await written_with(api, name.partition("_")[2])
    assert (answer.status, [error["code"] for error in answer.errors]) == (500, ["internal_error"])
    assert b"secret" not in answer.body
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], KeyError)
    assert await select(api, "SELECT name FROM persons UNION ALL SELECT name FROM groups") == [("old",)]


@pytest.mark.parametrize(
    ("error", "message", "kind", "status"),
    [
        (BadRequest("No."), "Bad Request on operation add (at position 1)", "bad_request", "400"),
        (HTTPError(409, "No."), "Conflict on operation add (at position 1)", "conflict", "409"),
        (Closed("No."), "Bad Request on operation add (at position 1)", "bad_request", "400"),
        (Locked("No."), "Locked on operation add (at position 1)", "locked", "423"),
    ],
    ids=repr,
)
async def test_a_refusal_of_one_operation(
    start: Start, database_url: str, error: Exception, message: str, kind: str, status: str
) -> None:
    """In both forms the error names the operation, and the others are rolled back."""
    api = await start(database_url, hooked(person=Hooks(before_create=raising(error))))
    operations = (add("parent", {"name": "p"}), add("person", {"name": "x"}, lid="l"), add("child", {"name": "c"}))
    plain = await operate(api, *operations)
    assert (plain.status, plain.headers["Content-Type"]) == (422, "application/json")
    assert plain.document == {
        "detail": {
            "data": {"attributes": {"name": "x"}, "id": None, "lid": "l", "relationships": None, "type": "person"},
            "errors": [{"loc": [], "msg": "No.", "type": kind}],
            "message": message,
            "ref": None,
        }
    }
    extended = await operate(api, *operations, media_type=ATOMIC)
    (told,) = extended.errors
    assert (extended.status, told["status"], told["source"]) == (
        int(status),
        status,
        {"pointer": "/atomic:operations/1"},
    )
    assert "ext=" in extended.headers["Content-Type"]
    tables = "SELECT name FROM persons UNION ALL SELECT name FROM parents UNION ALL SELECT name FROM groups"
    assert await select(api, tables) == []


async def test_a_refusal_in_a_batch_of_operations(start: Start, database_url: str) -> None:
    """A hook that got several changes can name one by a pointer. Without a pointer it means all."""

    async def before(writing: Writing, changes: list[Change]) -> None:
        for change in changes:
            name = (change.attributes or {})["name"]
            if name == "bad":
                raise BadRequest("Bad.", pointer=f"{change.pointer}/attributes/name")
            if name == "worse":
                raise BadRequest("Worse.")

    api = await start(database_url, hooked(person=Hooks(before_create=before)))
    bad = (add("person", {"name": "good"}), add("person", {"name": "bad"}))
    worse = (add("person", {"name": "good"}), add("person", {"name": "worse"}))
    detail = (await operate(api, *bad)).document["detail"]
    assert (detail["message"], detail["errors"][0]["loc"]) == (
        "Bad Request on operation add (at position 1)",
        ["data", "attributes", "name"],
    )
    pointers = [(await operate(api, *each, media_type=ATOMIC)).errors[0]["source"]["pointer"] for each in (bad, worse)]
    assert pointers == ["/atomic:operations/1/data/attributes/name", "/atomic:operations"]
    assert (await operate(api, *worse)).document["detail"]["message"] == "Bad Request on operations"


# what hooks get wrong


def giving(result: Any) -> Any:
    async def hook(writing: Writing, changes: list[Change]) -> Any:
        return result(changes)

    return hook


@pytest.mark.parametrize(
    ("before", "told"),
    [
        (giving(lambda changes: []), "custom code was given 1 changes"),
        (giving(lambda changes: changes * 2), "custom code was given 1 changes"),
        (giving(lambda changes: [changes[0].assign(nam="x")]), "custom code assigns 'nam'"),
        (giving(lambda changes: 7), ""),
        (giving(lambda changes: [{}]), ""),
    ],
)
async def test_invalid_results_of_a_hook(
    start: Start, database_url: str, before: Any, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    api = await start(database_url, hooked(person=Hooks(before_create=before)))
    answer = await written_with(api, "create")
    assert (answer.status, [error["code"] for error in answer.errors]) == (500, ["internal_error"])
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert record.exc_info is not None
    assert told in str(record.exc_info[1])
    assert await select(api, "SELECT * FROM persons") == []


async def test_an_attribute_without_a_column_is_not_assigned(start: Start, database_url: str) -> None:
    before = giving(lambda changes: [changes[0].assign(display_name="x")])
    api = await start(database_url, hooked(user=Hooks(before_create=before)))
    assert (await api.post("/users", document("user", ADA))).status == 500
    assert await select(api, "SELECT * FROM users") == []
