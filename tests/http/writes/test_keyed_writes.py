"""A write with an Idempotency-Key that is sent again is carried out once, and has the same answer."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from querybuild.query import Change
from server.execution.writes.keys import NOT_KEPT, KeyClaim
from server.execution.writes.reply import Reply
from server.handlers.writing import warn_of_ignored_keys
from server.postgres.database import Database
from server.postgres.old_keys import BATCH_ROWS, remove_all
from server.resources import built_in
from tests.http.access.test_rights_races import WAITING
from tests.http.conftest import MEDIA_TYPE, Answer, Api, Inspected, Serve, Start
from tests.http.operating import EXTENDED, add, remove, session
from tests.http.people import create_household, document, select, user
from tests.http.reads.test_functions import FILM, FUNCTIONS, MAKER, ROLE, as_ann, functions_url
from tests.http.writes.test_around_writes import EVERY
from tests.http.writes.test_preconditions import ROWS, operations
from tests.principals import HEADER, principal, trust_headers
from tests.waiting import until
from waterspout import SIGNED_IN, TEXT, Allow, Attribute, Catalog, Claim, CustomHandler, Hooks, Resource

__all__ = ["functions_url"]

GROUP = document("group", {"name": "g"})
SAME = ("Content-Type", "Location", "Etag", "Vary")


@pytest.fixture
def keyed(serve: Serve, database_url: str) -> Api:
    """The built-in resources; answers are kept."""
    return serve(database_url, idempotency="on")


def key(text: str = "k", **headers: str) -> dict[str, str]:
    return {"Idempotency-Key": text} | headers


def shown(answer: Answer) -> Any:
    return answer.status, answer.body, {name: answer.headers.get(name) for name in SAME}


def replayed(answer: Answer) -> str | None:
    return answer.headers.get("Idempotent-Replayed")


def code_of(answer: Answer) -> tuple[int, str]:
    [error] = answer.errors
    assert error["source"] == {"header": "Idempotency-Key"}
    return answer.status, error["code"]


async def count_keys(api: Api) -> int:
    [row] = await api.sql("SELECT count(*)::int FROM waterspout.idempotency_keys")
    return int(row[0])


@EVERY
async def test_every_write(keyed: Api, method: str, path: str, sent: Any) -> None:
    await create_household(keyed)
    first = await keyed.request(method, path, sent, headers=key())
    assert (first.status < 300, replayed(first)) == (True, "false"), first.body
    rows = await select(keyed, ROWS)
    for _ in range(2):
        again = await keyed.request(method, path, sent, headers=key())
        assert (shown(again), replayed(again)) == (shown(first), "true")
    assert (await select(keyed, ROWS), await count_keys(keyed)) == (rows, 1)


async def test_the_answer_is_that_of_a_request_without_key(keyed: Api, api: Api) -> None:
    """But for the version in the tag, which counts transactions."""
    await create_household(keyed)
    body = document("user", {"first_name": "New"}, id="1")
    plain = await api.request("PATCH", "/users/1?include=computers", body)
    with_key = await keyed.request("PATCH", "/users/1?include=computers", body, headers=key())
    assert (plain.status, plain.body) == (with_key.status, with_key.body)
    assert plain.headers["Etag"].split(".")[1] == with_key.headers["Etag"].split(".")[1]


@pytest.mark.parametrize(("path", "meta"), [("/add-film", {"title": "e", "year": 1}), ("/copy-films", {"n": 1})])
async def test_functions(start: Start, functions_url: str, path: str, meta: dict[str, Any]) -> None:
    """A value, and resources."""
    api = await start(functions_url, Catalog([FILM, *FUNCTIONS, MAKER, ROLE]), idempotency="on")
    trust_headers(api.app.engine)
    first = await api.request("POST", path, {"meta": meta}, headers=key() | as_ann())
    assert (first.status, replayed(first)) == (200, "false"), first.body
    count = await api.sql("SELECT count(*) FROM films")
    again = await api.request("POST", path, {"meta": meta}, headers=key() | as_ann())
    assert (shown(again), replayed(again)) == (shown(first), "true")
    assert await api.sql("SELECT count(*) FROM films") == count
    assert replayed(await api.request("POST", path, {"meta": meta}, headers=key())) != "true"


@pytest.mark.parametrize("extension", [{}, {"Content-Type": EXTENDED}])
async def test_operations_in_both_forms(keyed: Api, extension: dict[str, str]) -> None:
    body = operations(add("group", {"name": "a"}), add("group", {"name": "b"}))
    first = await keyed.request("POST", "/operations", body, headers=key() | extension)
    assert (first.status, replayed(first)) == (200, "false")
    again = await keyed.request("POST", "/operations", body, headers=key() | extension)
    assert (shown(again), replayed(again)) == (shown(first), "true")
    other = await keyed.request("POST", "/operations", operations(remove("group", id="1")), headers=key() | extension)
    assert code_of(other) == (422, "idempotency_mismatch")
    refused = await keyed.request("POST", "/operations", {"atomic:operations": []}, headers=key("e") | extension)
    assert refused.status in (200, 400, 422)


async def test_large_answers_are_compressed_again(start: Start, database_url: str) -> None:
    keyed = await start(database_url, built_in(), idempotency="on", compression="gzip")
    body = operations(*[add("group", {"name": f"g{n}"}) for n in range(100)])
    first = await keyed.request("POST", "/operations", body, headers=key() | {"Accept-Encoding": "identity"})
    again = await keyed.request("POST", "/operations", body, headers=key() | {"Accept-Encoding": "gzip"})
    assert (again.headers["X-Consumed-Content-Encoding"], again.body) == ("gzip", first.body)


# What must be the same.


@pytest.mark.parametrize(
    ("method", "path", "headers", "body"),
    [
        ("PATCH", "/groups", {}, GROUP),
        ("POST", "/computers", {}, GROUP),
        ("POST", "/groups?include=users", {}, GROUP),
        ("POST", "/groups", {"Content-Type": "application/json"}, GROUP),
        ("POST", "/groups", {"Content-Type": "text/plain"}, GROUP),
        ("POST", "/groups", {"Accept": MEDIA_TYPE}, GROUP),
        ("POST", "/groups", {"Accept": "text/html"}, GROUP),
        ("POST", "/groups", {}, document("group", {"name": "h"})),
        ("POST", "/groups", {}, {"data": 7}),
        ("POST", "/groups?nothing=7", {}, GROUP),
        ("DELETE", "/groups/1", {}, None),
        ("PATCH", "/groups/77", {}, document("group", {"name": "h"}, id="77")),
        ("PATCH", "/groups/1", {"If-Match": '"7"'}, document("group", {"name": "h"}, id="1")),
        ("POST", "/groups", {"If-Match": '"7"'}, document("group", {"name": "h"})),
    ],
)
async def test_another_request_with_the_key(
    keyed: Api, method: str, path: str, headers: dict[str, str], body: Any
) -> None:
    assert (await keyed.request("POST", "/groups", GROUP, headers=key())).status == 201
    answer = await keyed.request(method, path, body, headers=key() | headers)
    if method == "PATCH" and path == "/groups":
        assert answer.status == 405
    else:
        assert code_of(answer) == (422, "idempotency_mismatch")
    assert len(await keyed.sql("SELECT FROM groups")) == 1


async def test_forms_of_the_same_request(keyed: Api) -> None:
    """Quotation marks around the key, percent-encoding, and headers that are no part of the request."""
    await create_household(keyed)
    body = json.dumps(document("user", {"first_name": "N"}, id="1"))
    sent = {"Content-Type": MEDIA_TYPE}
    first = await keyed.request("PATCH", "/users/1?fields[user]=age,email", headers=key() | sent, body=body)
    assert replayed(first) == "false"
    for path, other in (
        ("/users/1?fields%5Buser%5D=age%2Cemail", {}),
        ("/%75sers/1?fields[user]=age,email", {"X-Request-Id": "7", "User-Agent": "x", "If-Match": '"9"'}),
        ("/users/1?fields[user]=age,email", {"Idempotency-Key": '"k"', "If-Match": "*"}),
    ):
        again = await keyed.request("PATCH", path, headers=key() | sent | other, body=body)
        assert (shown(again), replayed(again)) == (shown(first), "true")


@pytest.mark.parametrize(
    "value", ["", '""', "a b", '"a', 'a"', 'a"b', "a\\b", "ä", "k" * 256, '"k";x=1', " "], ids=repr
)
async def test_malformed_keys(keyed: Api, value: str) -> None:
    answer = await keyed.request("POST", "/groups", GROUP, headers={"Idempotency-Key": value})
    assert code_of(answer) == (400, "invalid_idempotency_key")
    assert await keyed.sql("SELECT FROM groups") == []


@pytest.mark.parametrize("value", ["k" * 255, "!#$%&'()*+,-./:;<=>?@[]^_`{|}~", "0", '"0"'])
async def test_keys(keyed: Api, value: str) -> None:
    for expected in ("false", "true"):
        assert replayed(await keyed.request("POST", "/groups", GROUP, headers=key(value))) == expected


async def test_two_keys(keyed: Api) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", keyed.port)
    body = json.dumps(GROUP).encode()
    head = f"POST /groups HTTP/1.1\r\nHost: localhost\r\nContent-Type: {MEDIA_TYPE}\r\nContent-Length: {len(body)}\r\n"
    writer.write(f"{head}Idempotency-Key: a\r\nIdempotency-Key: a\r\nConnection: close\r\n\r\n".encode() + body)
    answer = await reader.read()
    writer.close()
    assert (answer[:12], b"invalid_idempotency_key" in answer) == (b"HTTP/1.1 400", True)


# What comes first.


async def test_a_kept_answer_comes_before_the_state_of_the_rows(keyed: Api) -> None:
    await create_household(keyed)
    body, tag = document("user", {"first_name": "N"}, id="1"), (await keyed.get("/users/1")).headers["Etag"]
    first = await keyed.request("PATCH", "/users/1", body, headers=key() | {"If-Match": tag})
    assert first.status == 200
    assert (await keyed.patch("/users/1", document("user", {"first_name": "O"}, id="1"))).status == 200
    again = await keyed.request("PATCH", "/users/1", body, headers=key() | {"If-Match": tag})
    assert (shown(again), replayed(again)) == (shown(first), "true")
    assert (await keyed.delete("/users/1")).status == 200
    again = await keyed.request("PATCH", "/users/1", body, headers=key() | {"If-Match": tag})
    assert (shown(again), replayed(again)) == (shown(first), "true")
    assert (await keyed.request("PATCH", "/users/1", body, headers=key("new"))).status == 404


async def test_what_was_not_done_is_tried_again(keyed: Api) -> None:
    await keyed.create("/groups", "group", {"name": "g"})
    refused = await keyed.request("POST", "/groups", GROUP, headers=key())
    assert (refused.status, replayed(refused)) == (409, None)
    invalid = await keyed.request("POST", "/groups", document("group", {}), headers=key())
    assert (invalid.status, await count_keys(keyed)) == (422, 0)
    await keyed.sql("DELETE FROM groups")
    done = await keyed.request("POST", "/groups", GROUP, headers=key())
    assert (done.status, replayed(done)) == (201, "false")


@asynccontextmanager
async def held(api: Api, sql: str) -> AsyncIterator[None]:
    """Hold a transaction open that has executed this statement."""
    async with session(api) as connection, connection.transaction():
        await connection.execute(sql)
        yield


async def test_while_the_first_one_is_at_work(keyed: Api) -> None:
    await create_household(keyed)
    body = document("user", {"first_name": "N"}, id="1")
    async with held(keyed, "SELECT FROM users FOR UPDATE"):
        first = asyncio.ensure_future(keyed.request("PATCH", "/users/1", body, headers=key()))
        await until(lambda: keyed.sql(WAITING))
        for sent, other in ((body, {}), ({"data": 7}, {}), (GROUP, {"Content-Type": "text/plain"})):
            again = await keyed.request("PATCH", "/users/1", sent, headers=key() | other)
            assert (*code_of(again), again.headers["Retry-After"]) == (409, "idempotency_in_progress", "1")
        other_key = await keyed.request("POST", "/groups", GROUP, headers=key("another"))
        assert other_key.status == 201
    done = await first
    assert (done.status, replayed(done)) == (200, "false")
    again = await keyed.request("PATCH", "/users/1", body, headers=key())
    assert (shown(again), replayed(again)) == (shown(done), "true")


@pytest.mark.parametrize("path", ["/users/1", "/users/1?include=computers"])
async def test_the_first_one_is_rolled_back_before_its_answer_is_looked_for(
    keyed: Api, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """The second one does not know what was written, and may be sent again. path: of a write in one statement, and of
    one in a transaction."""
    await create_household(keyed)
    body, look_up = document("user", {"first_name": "N"}, id="1"), KeyClaim.look_up
    async with held(keyed, "SELECT FROM users FOR UPDATE"):
        first = asyncio.ensure_future(keyed.request("PATCH", path, body, headers=key()))
        await until(lambda: keyed.sql(WAITING))

        async def later(claim: KeyClaim, database: Database) -> Reply | None:
            monkeypatch.undo()
            await keyed.sql(f"SELECT pg_cancel_backend(pid) FROM ({WAITING.replace('FROM', 'pid FROM', 1)}) waiting")
            assert (await first).status == 504
            return await look_up(claim, database)

        monkeypatch.setattr(KeyClaim, "look_up", later)
        second = await keyed.request("PATCH", path, body, headers=key())
        assert (*code_of(second), second.headers["Retry-After"]) == (409, "idempotency_in_progress", "1")
    assert replayed(await keyed.request("PATCH", path, body, headers=key())) == "false"


@pytest.mark.parametrize("count", [2, 12])
async def test_all_at_once(keyed: Api, count: int) -> None:
    """One of them does it; the others are told to wait, or get its answer."""

    async def retried() -> Answer:
        while True:
            answer = await keyed.request("POST", "/groups", GROUP, headers=key())
            if answer.status != 409:
                return answer
            await asyncio.sleep(0.01)

    for _ in range(5):
        answers = await asyncio.gather(*[retried() for _ in range(count)])
        assert len({one.body for one in answers}) == 1
        assert sorted(replayed(one) or "" for one in answers) == ["false"] + ["true"] * (count - 1)
        [row] = await keyed.sql("WITH gone AS (DELETE FROM groups RETURNING 1) SELECT count(*)::int FROM gone")
        assert row[0] == 1
        await keyed.sql("DELETE FROM waterspout.idempotency_keys")


# Settings.


async def test_off(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    warn_of_ignored_keys.cache_clear()
    with caplog.at_level(logging.WARNING):
        for name in ("a", "b"):
            answer = await api.request("POST", "/groups", document("group", {"name": name}), headers=key("not valid"))
            assert (answer.status, replayed(answer)) == (201, None)
    assert len([one for one in caplog.records if "Idempotency-Key" in one.getMessage()]) == 1


async def test_required(start: Start, database_url: str) -> None:
    api = await start(database_url, built_in(), idempotency="required")
    for method, path, body in (
        ("POST", "/groups", GROUP),
        ("POST", "/groups", {"data": 7}),
        ("PATCH", "/groups/7", {"data": 7}),
        ("DELETE", "/groups/7", None),
        ("POST", "/operations", operations(add("group", {"name": "h"}))),
    ):
        assert code_of(await api.request(method, path, body)) == (400, "idempotency_key_required")
    assert (await api.get("/groups")).document["data"] == []
    tried = await api.request("POST", "/groups", GROUP, headers={"Prefer": "tx=rollback"})
    assert (tried.status, replayed(tried)) == (201, None)
    assert (await api.request("POST", "/groups", GROUP, headers=key())).status == 201


async def test_a_try_keeps_no_answer(keyed: Api) -> None:
    tried = await keyed.request("POST", "/groups", GROUP, headers=key() | {"Prefer": "tx=rollback"})
    assert (tried.status, replayed(tried), await count_keys(keyed)) == (201, None, 0)
    assert replayed(await keyed.request("POST", "/groups", GROUP, headers=key())) == "false"
    tried = await keyed.request("POST", "/groups", GROUP, headers=key() | {"Prefer": "tx=rollback"})
    assert (tried.status, replayed(tried)) == (409, None)


async def test_a_large_document_is_not_kept(start: Start, database_url: str) -> None:
    api = await start(database_url, built_in(), idempotency="on", idempotency_max_bytes=300)
    small = await api.request("POST", "/groups", GROUP, headers=key())
    assert len(small.body) < 300
    assert shown(await api.request("POST", "/groups", GROUP, headers=key())) == shown(small)
    large = await api.request("POST", "/users", user(), headers=key("u"))
    again = await api.request("POST", "/users", user(), headers=key("u"))
    assert (again.status, again.body, replayed(again)) == (201, NOT_KEPT, "true")
    assert [again.headers[name] for name in ("Location", "Etag")] == [
        large.headers[name] for name in ("Location", "Etag")
    ]
    await api.create("/computers", "computer", {"name": "c", "serial": "s"})
    for _ in range(2):
        deleted = await api.request("POST", "/operations", operations(remove("computer", id="1")), headers=key("d"))
        assert (deleted.status, deleted.body) == (204, b"")


async def test_old_keys(keyed: Api) -> None:
    assert (await keyed.request("POST", "/groups", GROUP, headers=key())).status == 201
    await keyed.sql("UPDATE waterspout.idempotency_keys SET created_at = now() - interval '23 hours 59 minutes'")
    assert replayed(await keyed.request("POST", "/groups", GROUP, headers=key())) == "true"
    await keyed.sql("UPDATE waterspout.idempotency_keys SET created_at = now() - interval '24 hours'")
    again = document("group", {"name": "new"})
    assert replayed(await keyed.request("POST", "/groups", again, headers=key())) == "false"
    assert replayed(await keyed.request("POST", "/groups", again, headers=key())) == "true"
    assert code_of(await keyed.request("POST", "/groups", GROUP, headers=key())) == (422, "idempotency_mismatch")
    assert await count_keys(keyed) == 1


async def test_old_keys_are_removed_in_batches(keyed: Api) -> None:
    fill = """
        INSERT INTO waterspout.idempotency_keys
        SELECT n::text, '', '', '', '', '', '', 200, '', '', '', false, null, now()
            - n * interval '1 hour' FROM generate_series(1, $1) n
    """
    await keyed.sql(fill, BATCH_ROWS + 100)
    database = keyed.app.database
    lock = "SELECT pg_advisory_xact_lock(hashtextextended('waterspout old keys', 0))"
    async with held(keyed, lock):
        await remove_all(database, 24)
        assert await count_keys(keyed) == BATCH_ROWS + 100
    await remove_all(database, 24)
    assert await count_keys(keyed) == 23
    assert b"waterspout_idempotency_keys_removed_total 577" in (await keyed.get("/-/metrics")).body


async def test_metrics(keyed: Api) -> None:
    for body in (GROUP, GROUP, {"data": 7}, GROUP):
        await keyed.request("POST", "/groups", body, headers=key())
    figures = (await keyed.get("/-/metrics")).body.decode()
    for outcome, count in (("done", 1), ("replayed", 2), ("mismatch", 1)):
        assert f'waterspout_keyed_requests_total{{outcome="{outcome}"}} {count}' in figures


# Who asks.


RULES = Catalog(
    [
        Resource(
            "note",
            "/notes",
            "notes",
            attributes=[Attribute("text", TEXT), Attribute("team", TEXT)],
            access=[Allow(SIGNED_IN, "read", "create", rows={"name": "team", "op": "eq", "val": Claim("team")})],
        )
    ]
)
NOTES = "CREATE TABLE notes (id bigserial PRIMARY KEY, text text NOT NULL DEFAULT '', team text NOT NULL DEFAULT '')"
NOTE = document("note", {"text": "t", "team": "a"})


def as_(subject: str = "", **claims: Any) -> dict[str, str]:
    return {HEADER: principal(subject, **claims)}


async def test_principals_do_not_meet(inspected: Inspected) -> None:
    api = await inspected(NOTES, RULES, idempotency="on")
    trust_headers(api.app.engine)
    answers = [
        await api.request("POST", "/notes", NOTE, headers=key() | as_(subject, team="a")) for subject in ("ann", "bob")
    ]
    assert [(one.status, replayed(one)) for one in answers] == [(201, "false")] * 2
    assert answers[0].headers["Location"] != answers[1].headers["Location"]
    again = await api.request("POST", "/notes", NOTE, headers=key() | as_("ann", team="a"))
    assert (shown(again), replayed(again)) == (shown(answers[0]), "true")


@pytest.mark.parametrize(
    ("then", "is_kept"),
    [
        ({"team": "a"}, True),
        ({"team": "a", "other": 7}, True),
        ({"team": "b"}, False),
        ({}, False),
        ({"team": "a", "roles": ("editor",)}, False),
        ({"team": "a", "scopes": ("write",)}, False),
    ],
)
async def test_rights_that_have_changed(inspected: Inspected, then: dict[str, Any], is_kept: bool) -> None:
    api = await inspected(NOTES, RULES, idempotency="on")
    trust_headers(api.app.engine)
    first = await api.request("POST", "/notes", NOTE, headers=key() | as_("ann", team="a"))
    assert first.status == 201
    again = await api.request("POST", "/notes", NOTE, headers=key() | as_("ann", **then))
    assert (again.status, replayed(again), again.headers["Location"]) == (201, "true", first.headers["Location"])
    assert again.body == (first.body if is_kept else NOT_KEPT)
    assert len(await api.sql("SELECT FROM notes")) == 1


async def test_clients_without_a_subject_have_their_address(inspected: Inspected) -> None:
    api = await inspected(NOTES, idempotency="on", trusted_proxies="127.0.0.1")
    body = document("note", {"text": "t"})
    for address, expected in (("192.0.2.1", "false"), ("192.0.2.2", "false"), ("192.0.2.1", "true")):
        answer = await api.request("POST", "/notes", body, headers=key() | {"X-Forwarded-For": address})
        assert (answer.status, replayed(answer)) == (201, expected)


async def test_strange_subjects(inspected: Inspected) -> None:
    api = await inspected(NOTES, RULES, idempotency="on")
    trust_headers(api.app.engine)
    for subject in ("a\0b", "ä" * 3000, "it's"):
        for expected in ("false", "true"):
            headers = key() | {HEADER: json.dumps({"subject": subject, "claims": {"team": "a"}})}
            answer = await api.request("POST", "/notes", NOTE, headers=headers)
            assert (answer.status, replayed(answer)) == (201, expected), answer.body


# What else belongs to a write.


async def test_no_hook_runs_for_a_repeated_answer(inspected: Inspected, tmp_path: Path) -> None:
    ran = []

    async def before(_: Any, changes: list[Change]) -> None:
        ran.append("before")

    async def after(_: Any, done: Any) -> None:
        ran.append("after")

    async def committed(done: Any) -> None:
        ran.append("committed")

    hooks = Hooks(before_create=before, after_create=after, after_commit=committed)
    catalog = Catalog([Resource("note", "/notes", "notes", attributes=[Attribute("text", TEXT)], hooks=hooks)])
    audit = tmp_path / "audit"
    api = await inspected(NOTES, catalog, idempotency="on", audit_log=str(audit))
    body = document("note", {"text": "t"})
    for _ in range(3):
        assert (await api.request("POST", "/notes", body, headers=key())).status == 201
    assert ran == ["before", "after", "committed"]
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    assert [(one["outcome"], one.get("replayed"), one["type"]) for one in lines] == [
        ("done", None, "note"),
        ("done", True, "note"),
        ("done", True, "note"),
    ]


async def test_a_refusal_of_a_hook_keeps_nothing(inspected: Inspected) -> None:
    async def before(_: Any, changes: list[Change]) -> None:
        raise ValueError("no")

    hooks = Hooks(before_create=before)
    catalog = Catalog([Resource("note", "/notes", "notes", attributes=[Attribute("text", TEXT)], hooks=hooks)])
    api = await inspected(NOTES, catalog, idempotency="on")
    answer = await api.request("POST", "/notes", document("note", {"text": "t"}), headers=key())
    assert (answer.status, await count_keys(api)) == (500, 0)


async def test_custom_routes_and_reads_take_no_notice(start: Start, database_url: str) -> None:
    class Own(CustomHandler):
        async def post(self) -> None:
            ids = await self.write([Change(kind="create", type="group", id=None, attributes={"name": "g"})])
            self.finish({"ids": ids})

    api = await start(database_url, built_in(), [("/own", Own)], idempotency="required")
    answer = await api.request("POST", "/own", {}, headers=key("not valid"))
    assert (answer.status, replayed(answer)) == (200, None)
    assert (await api.get("/groups", **key("not valid"))).status == 200
