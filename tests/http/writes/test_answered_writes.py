"""A write with an Idempotency-Key that PostgreSQL answers by itself, in one statement: when it is done, what it leaves
to a transaction, and what becomes of it if something breaks. tests/property/test_shortcuts.py compares the answers."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import pytest

from server.execution.writes.keys import NOT_KEPT
from server.postgres.opening import PREPARED_STATEMENT_BYTES
from server.resources import built_in
from tests.http.access.test_rights_races import WAITING
from tests.http.conftest import Answer, Api, Inspected, Sent, Start
from tests.http.people import create_household, document, linked, one, user
from tests.http.writes.test_keyed_writes import as_, count_keys, held, key, keyed, replayed, shown
from tests.principals import trust_headers
from tests.waiting import until
from waterspout import ANYONE, TEXT, Allow, Attribute, Catalog, Claim, Resource, Version

__all__ = ["keyed"]

KEYS = count()
NOTES = """
    CREATE TABLE notes (
        id bigserial PRIMARY KEY, text text UNIQUE, team text DEFAULT 'a', version bigint NOT NULL DEFAULT 1
    )
"""
ATTRIBUTES = [Attribute("text", TEXT, nullable=True), Attribute("team", TEXT, nullable=True)]
NOTE = Resource("note", "/notes", "notes", attributes=ATTRIBUTES)
BODY = document("note", {"text": '100 %s of "it" \\ \u0001 é \ue000'})


async def check(api: Api, sent: Sent, method: str, path: str, body: Any, **headers: str) -> tuple[Answer, bool]:
    """Send a write with a new key, and once more. Return the answer, and whether it was done by one statement."""
    asked = key(f"k{next(KEYS)}") | headers
    sent.clear()
    first = await api.request(method, path, body, headers=asked)
    statements = [sql for sql in sent if "notes" in sql or "users" in sql or "computers" in sql]
    assert (first.status < 300, replayed(first)) == (True, "false"), first.body
    again = await api.request(method, path, body, headers=asked)
    assert (shown(again), replayed(again)) == (shown(first), "true")
    return first, len(statements) == 1 and '"the answer"' in statements[0]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/users", user()),
        ("POST", "/users?fields[user]=email,group", user()),
        ("POST", "/users", user(group=one("group", 1))),
        ("POST", "/users", user(group=None)),
        ("PATCH", "/users/1", document("user", {"age": 7}, id="1")),
        ("PATCH", "/users/1?fields[user]=age", document("user", {"age": 7}, id="1")),
        ("PATCH", "/users/1", document("user", {"age": 7}, id="1", relationships=linked(group=None))),
        ("DELETE", "/computers/1", None),
    ],
)
async def test_one_statement(sent: Sent, keyed: Api, method: str, path: str, body: Any) -> None:
    await create_household(keyed)
    answer, is_one = await check(keyed, sent, method, path, body)
    assert is_one
    if method == "DELETE":
        assert (await keyed.get(path)).status == 404
        return
    query = path.partition("?")[2]
    read = await keyed.get(f"{answer.headers.get('Location', '/users/1')}?{query}")
    assert answer.document["data"]["attributes"] == read.document["data"]["attributes"]
    assert answer.headers["Etag"].split(".")[0] == read.headers["Etag"].split(".")[0]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/users?include=group", user()),
        ("POST", "/users", user(computers=[one("computer", 1)])),
        ("PATCH", "/users/1", document("user", {}, id="1", relationships=linked(computers=[]))),
    ],
)
async def test_answers_that_need_more(sent: Sent, keyed: Api, method: str, path: str, body: Any) -> None:
    await create_household(keyed)
    assert not (await check(keyed, sent, method, path, body))[1]


async def test_what_is_refused(keyed: Api) -> None:
    """As without a key; nothing is written and nothing is kept."""
    await create_household(keyed)
    other = {"If-Match": '"1"'}
    changed, no_user = document("user", {"age": 7}, id="1"), document("user", {"age": 7}, id="77")
    await keyed.create("/groups", "group", {"name": "sailors"})
    for method, path, body, headers, status in (
        ("PATCH", "/users/1", changed, other, 412),
        ("DELETE", "/users/1", None, other, 412),
        ("PATCH", "/users/77", no_user, {}, 404),
        ("DELETE", "/users/77", None, {}, 404),
        ("POST", "/groups", document("group", {"name": "rowers"}), {}, 409),
        ("PATCH", "/groups/2", document("group", {"name": "rowers"}, id="2"), {}, 409),
        ("POST", "/users", user(group=one("group", 77)), {}, 404),
    ):
        plain = await keyed.request(method, path, body, headers=headers)
        answer = await keyed.request(method, path, body, headers=headers | key())
        assert plain.status == answer.status == status, (method, path, plain.body, answer.body)
        assert [error | {"id": ""} for error in plain.errors] == [error | {"id": ""} for error in answer.errors]
        assert replayed(answer) is None
    assert await count_keys(keyed) == 0


async def test_a_precondition_that_holds(sent: Sent, keyed: Api) -> None:
    await create_household(keyed)
    for method, body in (("PATCH", document("user", {"age": 7}, id="2")), ("DELETE", None)):
        tag = (await keyed.get("/users/2")).headers["Etag"]
        assert (await check(keyed, sent, method, "/users/2", body, **{"If-Match": tag}))[1]


async def test_a_declared_version(sent: Sent, inspected: Inspected) -> None:
    versioned = Resource("note", "/notes", "notes", attributes=ATTRIBUTES, version=Version("version"))
    api = await inspected(NOTES, Catalog([versioned]), idempotency="on")
    created, is_one = await check(api, sent, "POST", "/notes", BODY)
    assert is_one
    assert (created.document["data"]["meta"], created.headers["Etag"][:3]) == ({"version": "1"}, '"1.')
    changed, is_one = await check(api, sent, "PATCH", "/notes/1", document("note", {"team": "b"}, id="1"))
    assert is_one
    assert (changed.document["data"]["meta"], changed.headers["Etag"][:3]) == ({"version": "2"}, '"2.')
    assert changed.body == (await api.get("/notes/1")).body


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("NEW.text := upper(NEW.text); RETURN NEW;", 201),
        ("INSERT INTO notes (text) VALUES ('from the trigger'); RETURN NULL;", 409),
        ("RAISE EXCEPTION USING ERRCODE = 'PT422', MESSAGE = 'no';", 422),
    ],
)
async def test_triggers(sent: Sent, inspected: Inspected, body: str, expected: int) -> None:
    trigger = f"""
        CREATE FUNCTION own() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF pg_trigger_depth() > 1 THEN RETURN NEW; END IF; {body} END $$;
        CREATE TRIGGER own BEFORE INSERT ON notes FOR EACH ROW EXECUTE FUNCTION own();
    """
    api = await inspected(f"{NOTES}; {trigger}", Catalog([NOTE]), idempotency="on")
    if expected == 201:
        answer, is_one = await check(api, sent, "POST", "/notes", BODY)
        assert is_one
        assert answer.document["data"]["attributes"]["text"] == BODY["data"]["attributes"]["text"].upper()
        return
    answer = await api.request("POST", "/notes", BODY, headers=key())
    assert (answer.status, await count_keys(api)) == (expected, 0)
    assert await api.sql("SELECT FROM notes") == []


async def test_a_deferred_constraint(inspected: Inspected) -> None:
    """It fails at the end of the only statement."""
    deferred = "ALTER TABLE notes ADD UNIQUE (team) DEFERRABLE INITIALLY DEFERRED"
    api = await inspected(f"{NOTES}; {deferred}", Catalog([NOTE]), idempotency="on")
    assert (await api.request("POST", "/notes", BODY, headers=key())).status == 201
    again = await api.request("POST", "/notes", document("note", {"text": "t"}), headers=key("other"))
    assert (again.status, await count_keys(api)) == (409, 1)


RULES = [
    Allow(ANYONE, "create", rows={"name": "team", "op": "in_", "val": ["a", "b"]}),
    Allow(ANYONE, "read", "update", rows={"name": "team", "op": "eq", "val": Claim("team")}),
]


@pytest.mark.parametrize(("team", "status"), [("a", 201), ("b", 201), ("c", 403)])
async def test_rules(sent: Sent, inspected: Inspected, team: str, status: int) -> None:
    """A row that may not be created, and one that may not be read."""
    resource = Resource("note", "/notes", "notes", attributes=ATTRIBUTES, access=RULES)
    api = await inspected(NOTES, Catalog([resource]), idempotency="on")
    trust_headers(api.app.engine)
    body = document("note", {"text": "t", "team": team})
    if status == 403:
        answer = await api.request("POST", "/notes", body, headers=key() | as_("ann", team="a"))
        assert (answer.status, await count_keys(api), await api.sql("SELECT FROM notes")) == (403, 0, [])
        return
    answer, is_one = await check(api, sent, "POST", "/notes", body, **as_("ann", team="a"))
    assert is_one == (team == "a")
    assert ("attributes" in answer.document["data"]) == (team == "a")


@pytest.mark.parametrize(("type_name", "is_one"), [("uuid", True), ("text", False)])
async def test_ids(sent: Sent, inspected: Inspected, type_name: str, is_one: bool) -> None:
    """PostgreSQL does not quote texts for URLs."""
    table = f"CREATE TABLE notes (id {type_name} PRIMARY KEY DEFAULT gen_random_uuid(), text text, team text)"
    api = await inspected(table, idempotency="on")
    answer, is_answered = await check(api, sent, "POST", "/notes", BODY)
    assert (answer.status, is_answered) == (201, is_one)
    assert answer.headers["Location"] == f"/notes/{answer.document['data']['id']}"


@pytest.mark.parametrize("count", [30, 60])
async def test_many_attributes(sent: Sent, inspected: Inspected, count: int) -> None:
    """A statement that is too long to be kept prepared would take longer than two."""
    names = [f"attribute_{number}" for number in range(count)]
    table = f"CREATE TABLE notes (id bigserial PRIMARY KEY, {','.join(f'{name} text' for name in names)})"
    api = await inspected(table, idempotency="on")
    answer, is_one = await check(api, sent, "POST", "/notes", document("note", dict.fromkeys(names[:3], "a")))
    assert is_one == (count == 30)
    assert list(answer.document["data"]["attributes"]) == names
    if is_one:
        assert max(map(len, sent)) <= PREPARED_STATEMENT_BYTES


async def test_a_document_that_is_too_large(sent: Sent, start: Start, database_url: str) -> None:
    api = await start(database_url, built_in(), idempotency="on", idempotency_max_bytes=1000)
    small, large = user({"words": []}), user({"words": ["w" * 400]})
    assert (await check(api, sent, "POST", "/users", small))[1]
    first = await api.request("POST", "/users", large, headers=key())
    again = await api.request("POST", "/users", large, headers=key())
    assert (first.status, again.body, again.headers["Etag"]) == (201, NOT_KEPT, first.headers["Etag"])
    assert len(await api.sql("SELECT FROM users")) == 2


async def test_a_kept_tag_survives_other_rights(inspected: Inspected) -> None:
    """The document is left out. The tag is that of the document all the same."""
    resource = Resource("note", "/notes", "notes", attributes=ATTRIBUTES, access=RULES)
    api = await inspected(NOTES, Catalog([resource]), idempotency="on")
    trust_headers(api.app.engine)
    first = await api.request("POST", "/notes", BODY, headers=key() | as_("ann", team="a"))
    again = await api.request("POST", "/notes", BODY, headers=key() | as_("ann", team="b"))
    assert (again.status, again.body, replayed(again)) == (201, NOT_KEPT, "true")
    assert again.headers["Etag"] == first.headers["Etag"]


@pytest.mark.parametrize("how", ["pg_terminate_backend", "pg_cancel_backend"])
async def test_a_backend_that_ends_while_it_writes(keyed: Api, how: str) -> None:
    """Nothing was written, and the next request with the key writes it once."""
    await create_household(keyed)
    body = document("user", {"age": 77}, id="1")
    async with held(keyed, "SELECT FROM users FOR UPDATE"):
        first = asyncio.ensure_future(keyed.request("PATCH", "/users/1", body, headers=key()))
        await until(lambda: keyed.sql(WAITING))
        await keyed.sql(f"SELECT {how}(pid) FROM ({WAITING.replace('FROM', 'pid FROM', 1)}) waiting")
        await asyncio.sleep(0.1)
    answer = await first
    if answer.status != 200:
        assert (answer.status in (503, 504), replayed(answer)) == (True, None), answer.body
        answer = await keyed.request("PATCH", "/users/1", body, headers=key())
    assert (answer.status, replayed(answer)) == (200, "false")
    again = await keyed.request("PATCH", "/users/1", body, headers=key())
    assert (shown(again), replayed(again)) == (shown(answer), "true")


async def test_the_table_changes_while_the_server_runs(sent: Sent, inspected: Inspected) -> None:
    """The prepared statement is stale: it is sent again, and writes once."""
    api = await inspected(NOTES, Catalog([NOTE]), idempotency="on")
    assert (await check(api, sent, "POST", "/notes", BODY))[1]
    await api.sql("ALTER TABLE notes ALTER COLUMN team TYPE varchar(20)")
    answer, _ = await check(api, sent, "POST", "/notes", document("note", {"text": "t"}))
    assert answer.document["data"]["attributes"] == {"text": "t", "team": "a"}
    assert len(await api.sql("SELECT FROM notes")) == 2
