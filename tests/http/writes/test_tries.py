"""A write with `Prefer: tx=rollback` has the answer that it would have, and leaves nothing.

Each try is compared with the same write afterwards, which is carried out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from server.resources import built_in
from tests.http.conftest import Answer, Api, Inspected, Start
from tests.http.operating import EXTENDED, add, link, remove, unchanged, update
from tests.http.people import create_household, document, linked, of
from tests.http.writes.test_versions import CATALOG, TABLES
from waterspout import TEXT, Attribute, Catalog, CustomHandler, Function, Hooks, Resource

TRY = {"Prefer": "tx=rollback"}
LEFT_OUT = {"Location", "Etag", "Date", "X-Request-Id", "Server-Timing", "Preference-Applied", "Content-Length"}

WRITES: list[tuple[str, str, Any]] = [
    ("POST", "/groups", document("group", {"name": "new"})),
    ("POST", "/users/1/computers", document("computer", {"name": "new", "serial": "n-1"})),
    ("PATCH", "/users/1?include=computers", document("user", {"first_name": "New"}, id="1")),
    ("PATCH", "/users/1", document("user", {"age": 3}, id="1", relationships=linked(computers=of("computer", "3")))),
    ("DELETE", "/computers/1", None),
    ("PATCH", "/computers/1/owner", document("user", {"first_name": "New"}, id="1")),
    ("PATCH", "/users/1/relationships/group", {"data": None}),
    ("PATCH", "/users/1/relationships/computers", {"data": of("computer", "3")}),
    ("POST", "/users/1/relationships/computers", {"data": of("computer", "3")}),
    ("DELETE", "/users/1/relationships/computers", {"data": of("computer", "1")}),
    ("POST", "/users", document("user", {"first_name": "X"})),
    ("PATCH", "/users/77", document("user", {"age": 3}, id="77")),
    ("PATCH", "/users/1", document("user", {"age": "x"}, id="1")),
    ("POST", "/operations", {"atomic:operations": [add("group", {"name": "g"}), remove("computer", id="1")]}),
    ("POST", "/operations", {"atomic:operations": [add("group", {"name": f"g{n}"}) for n in range(20)]}),
    (
        *("POST", "/operations"),
        {
            "atomic:operations": [
                update("user", {"age": 5}, id="1"),
                link("add", "user", "computers", of("computer", "3"), id="1"),
            ]
        },
    ),
]


def told(answer: Answer) -> Any:
    """Return what must be the same: all but what names a row that is not there, and numbers that were spent."""
    headers = {name: value for name, value in answer.headers.get_all() if name not in LEFT_OUT}
    document = answer.document
    for error in document.get("errors", ()):
        del error["id"]
    return answer.status, headers, without_ids(document)


def without_ids(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_ids(one) for name, one in value.items() if name not in ("id", "links", "version")}
    return [without_ids(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("method", "path", "body"), WRITES)
async def test_a_try_is_answered_like_the_write(api: Api, method: str, path: str, body: Any) -> None:
    await create_household(api)
    sent = {"Content-Type": EXTENDED} if path == "/operations" else {}
    async with unchanged(api):
        tried = await api.request(method, path, body, headers=sent | TRY)
    assert not {"ETag", "Location"} & set(tried.headers)
    assert tried.headers.get("Preference-Applied") == ("tx=rollback" if tried.status < 300 else None)
    done = await api.request(method, path, body, headers=sent)
    assert told(tried) == told(done)
    assert "Preference-Applied" not in done.headers


async def test_no_version_is_shown(inspected: Inspected) -> None:
    api = await inspected(TABLES, CATALOG)
    body = document("author", {"name": "z"}, id="1")
    for path, sent in (("/authors/1?include=posts", body), ("/posts/1/relationships/tags?include=tags", None)):
        tried = await api.request("PATCH", path, sent or {"data": of("tag", "2")}, headers=TRY)
        assert (tried.status, b'"version":"1' in tried.body.replace(b'"jsonapi":{"version":"1.0"}', b"")) == (
            200,
            False,
        )
    operations = [add("author", {"name": "z"}), update("author", {"name": "q"}, id="1")]
    for listed in (operations, operations[:1] * 12):
        tried = await api.request("POST", "/operations", {"atomic:operations": listed}, headers=TRY)
        assert [one["meta"] for one in tried.document["atomic:results"]] == [None] * len(listed)
        assert all("meta" not in one["data"] for one in tried.document["atomic:results"])
    for tag, status in (('"2"', 412), ('"1"', 200)):
        tried = await api.request("PATCH", "/authors/1", body, headers=TRY | {"If-Match": tag})
        assert tried.status == status
    assert await api.sql("SELECT FROM authors WHERE row_version > 1 OR name NOT IN ('ann', 'bob')") == []


DEFERRED = """
CREATE TABLE rooms (id bigserial PRIMARY KEY, name text NOT NULL UNIQUE DEFERRABLE INITIALLY DEFERRED);
INSERT INTO rooms (name) VALUES ('taken');
CREATE FUNCTION odd() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN IF NEW.name = 'odd' THEN RAISE EXCEPTION 'no odd rooms'; END IF; RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER odd AFTER INSERT ON rooms DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION odd();
"""


@pytest.mark.parametrize(("name", "status"), [("taken", 409), ("odd", 422), ("new", 201)])
async def test_what_the_commit_would_check(inspected: Inspected, name: str, status: int) -> None:
    api = await inspected(DEFERRED)
    body = document("room", {"name": name})
    async with unchanged(api):
        tried = await api.request("POST", "/rooms", body, headers=TRY)
    assert tried.status == status
    assert told(tried) == told(await api.post("/rooms", body))


@pytest.mark.parametrize(
    "prefer", ["tx=rolback", "tx", "tx=", "tx=ROLLBACK", 'tx="x"', "tx=commit, tx=rollback", "a;b, TX=no", "tx = x"]
)
async def test_a_preference_that_cannot_be_had(api: Api, prefer: str) -> None:
    async with unchanged(api):
        answer = await api.request("POST", "/groups", document("group", {"name": "g"}), headers={"Prefer": prefer})
    [error] = answer.document["errors"]
    assert (answer.status, error["code"], error["source"]) == (400, "preference_unsupported", {"header": "Prefer"})


@pytest.mark.parametrize("prefer", ["tx=commit", "respond-async", "return=minimal; tx=rollback", "", 'x="a,tx=b"'])
async def test_other_preferences(api: Api, prefer: str) -> None:
    answer = await api.request("POST", "/groups", document("group", {"name": "g"}), headers={"Prefer": prefer})
    assert (answer.status, len(await api.sql("SELECT FROM groups"))) == (201, 1)


@pytest.mark.parametrize("prefer", ['TX="rollback"', "wait=10 , tx = rollback;x=y"])
async def test_forms_of_the_preference(api: Api, prefer: str) -> None:
    async with unchanged(api):
        answer = await api.request("POST", "/groups", document("group", {"name": "g"}), headers={"Prefer": prefer})
    assert (answer.status, answer.headers["Preference-Applied"]) == (201, "tx=rollback")


async def test_where_nothing_can_be_tried(start: Start, database_url: str) -> None:
    class Route(CustomHandler):
        def put(self) -> None:
            self.finish("done")

    api = await start(database_url, built_in(), [("/put", Route)])
    refused = await api.request("PUT", "/put", body="", headers=TRY)
    assert (refused.status, refused.document["errors"][0]["code"]) == (400, "preference_unsupported")
    assert (await api.request("PUT", "/put", body="", headers={"Prefer": "tx=commit"})).body == b"done"
    api = await start(database_url, built_in(), allow_rollback=False)
    refused = await api.request("POST", "/groups", document("group", {"name": "g"}), headers=TRY)
    assert (refused.status, refused.document["errors"][0]["code"]) == (400, "preference_unsupported")


async def test_custom_code_and_the_audit_log(start: Start, database_url: str, tmp_path: Path) -> None:
    calls: list[str] = []

    async def after(_: Any, written: Sequence[Any]) -> None:
        calls.append(f"after {len(written)}")

    async def after_commit(written: Sequence[Any]) -> None:
        calls.append("committed")

    hooks = Hooks(after_create=after, after_commit=after_commit)
    resources = [msgspec.structs.replace(one, hooks=hooks) if one.type == "group" else one for one in built_in()]
    path = tmp_path / "audit.jsonl"
    api = await start(database_url, Catalog(resources), audit_log=str(path))
    body = document("group", {"name": "g"})
    async with unchanged(api):
        assert (await api.request("POST", "/groups", body, headers=TRY)).status == 201
    assert calls == ["after 1"]
    await api.post("/groups", body)
    assert calls == ["after 1", "after 1", "committed"]
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["kind"], line["outcome"], line.get("tried")) for line in lines] == [
        ("create", "done", True),
        ("create", "done", None),
    ]


FUNCTIONS = """
CREATE TABLE rooms (id bigserial PRIMARY KEY, name text NOT NULL);
CREATE FUNCTION furnish(name text) RETURNS bigint LANGUAGE sql AS
    $$ INSERT INTO rooms (name) VALUES (name) RETURNING id $$;
CREATE FUNCTION furnished(name text) RETURNS SETOF rooms LANGUAGE sql AS
    $$ INSERT INTO rooms (name) VALUES (name) RETURNING * $$;
"""
ROOM = Resource("room", "/rooms", "rooms", attributes=(Attribute("name", TEXT, required=True),))
ARGUMENTS = (Attribute("name", TEXT, required=True),)


@pytest.mark.parametrize("name", ["furnish", "furnished"])
async def test_a_called_function(inspected: Inspected, name: str) -> None:
    returns = "room" if name == "furnished" else ""
    function = Function(name, method="POST", arguments=ARGUMENTS, returns=returns)
    api = await inspected(FUNCTIONS, Catalog([ROOM, function]))
    body = {"meta": {"name": "x"}}
    async with unchanged(api):
        tried = await api.request("POST", f"/{name}", body, headers=TRY)
    assert (tried.status, tried.headers["Preference-Applied"]) == (200, "tx=rollback")
    done = await api.post(f"/{name}", body)
    assert without_ids(done.document).keys() == without_ids(tried.document).keys()
    assert len(await api.sql("SELECT FROM rooms")) == 1
