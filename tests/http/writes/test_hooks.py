"""Hooks around writes: which hooks run for which request, with which arguments, and the effect of their results and
exceptions.

test_hook_sessions.py tests sessions and retried transactions."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from server.resources import built_in
from tests.catalog import CATALOG
from tests.http.conftest import MEDIA_TYPE, Api, Serve, Start
from tests.http.custom import ATOMIC, add, hooked, operate, remove, update, written_with
from tests.http.people import ADA, create_household, document, linked, of, one, select
from waterspout import Attribute, BadRequest, Catalog, Change, Hooks, Writing, Written

KINDS = ("create", "update", "delete")
Calls = list[tuple[str, list[Any]]]


def shown(change: Change) -> tuple[Any, ...]:
    """Return a change as a hook sees it: id, attributes, and the mode and the ids of each relationship."""
    links = {name: (link.mode, [one.id for one in link.identifiers]) for name, link in change.relationships.items()}
    return change.id, change.attributes, links


class Journal:
    """Records the arguments of hooks: (resource type, hook), the changes before, the ids after."""

    def __init__(self) -> None:
        self.calls: Calls = []

    def hooks(self, type_name: str) -> Hooks:
        def before(kind: str) -> Any:
            async def hook(writing: Writing, changes: list[Change]) -> None:
                assert {change.kind for change in changes} == {kind}
                self.calls.append((f"{type_name} before {kind}", [shown(change) for change in changes]))

            return hook

        def after(kind: str) -> Any:
            async def hook(writing: Writing, written: list[Written]) -> None:
                assert {each.change.kind for each in written} == {kind}
                self.calls.append((f"{type_name} after {kind}", [each.id for each in written]))

            return hook

        async def after_commit(written: list[Written]) -> None:
            self.calls.append((f"{type_name} committed", [(each.change.kind, each.id) for each in written]))

        around = {f"before_{kind}": before(kind) for kind in KINDS} | {f"after_{kind}": after(kind) for kind in KINDS}
        return Hooks(**around, after_commit=after_commit)

    def around(self, catalog: Catalog) -> Catalog:
        return hooked(catalog, **{each.type: self.hooks(each.type) for each in catalog})


@pytest.fixture
def journal() -> Journal:
    return Journal()


@pytest.fixture
def noted(serve: Serve, database_url: str, journal: Journal) -> Api:
    """Return the built-in resources with hooks that record every call."""
    return serve(database_url, journal.around(built_in()))


def around(kind: str, type_name: str, sent: list[Any], ids: list[int]) -> Calls:
    return [
        (f"{type_name} before {kind}", sent),
        (f"{type_name} after {kind}", ids),
        (f"{type_name} committed", [(kind, each) for each in ids]),
    ]


EMPTY: dict[str, Any] = {}
ROUTES: list[tuple[str, str, Any, Calls]] = [
    (
        "POST",
        "/users",
        document("user", ADA, relationships=linked(group=one("group", "1"), computers=of("computer", "4", "3"))),
        around(
            "create", "user", [(None, ADA, {"group": ("replace", ["1"]), "computers": ("replace", ["4", "3"])})], [3]
        ),
    ),
    (
        "PATCH",
        "/users/1",
        document("user", {"age": 37}, id="1"),
        around("update", "user", [("1", {"age": 37}, {})], [1]),
    ),
    ("PATCH", "/users/1", document("user", id="1"), around("update", "user", [("1", None, {})], [1])),
    ("DELETE", "/computers/4", None, around("delete", "computer", [("4", None, {})], [4])),
    # the foreign key deletes posts and the biography with the user
    ("DELETE", "/users/1", None, around("delete", "user", [("1", None, {})], [1])),
    (
        "POST",
        "/users/1/relationships/computers",
        {"data": of("computer", "3", "4")},
        around("update", "user", [("1", None, {"computers": ("add", ["3", "4"])})], [1]),
    ),
    (
        "DELETE",
        "/users/1/relationships/computers",
        {"data": of("computer", "1")},
        around("update", "user", [("1", None, {"computers": ("remove", ["1"])})], [1]),
    ),
    (
        "PATCH",
        "/users/1/relationships/computers",
        {"data": []},
        around("update", "user", [("1", None, {"computers": ("replace", [])})], [1]),
    ),
    (
        "PATCH",
        "/users/1/relationships/group",
        {"data": None},
        around("update", "user", [("1", None, {"group": ("replace", [])})], [1]),
    ),
    (
        "PATCH",
        "/user-bio/1/relationships/user",
        {"data": one("user", "1")},
        around("update", "user_bio", [("1", None, {"user": ("replace", ["1"])})], [1]),
    ),
    (
        "POST",
        "/users/1/computers",
        document("computer", {"name": "eniac"}),
        around("create", "computer", [(None, {"name": "eniac"}, {})], [5]),
    ),
    (
        "PATCH",
        "/computers/3/owner",
        document("user", {"age": 1}, id="2"),
        around("update", "user", [("2", {"age": 1}, {})], [2]),
    ),
    ("DELETE", "/users/1/bio", None, around("delete", "user_bio", [("1", None, {})], [1])),
]


@pytest.mark.parametrize(("method", "path", "body", "calls"), ROUTES, ids=[f"{row[0]} {row[1]}" for row in ROUTES])
async def test_every_route_that_writes(
    noted: Api, journal: Journal, method: str, path: str, body: Any, calls: Calls
) -> None:
    await create_household(noted)
    answer = await noted.request(method, path, body)
    assert answer.status == (201 if method == "POST" and "relationships" not in path else 200), answer.body
    assert journal.calls == calls


async def test_links_of_a_link_table(start: Start, corner_url: str, journal: Journal) -> None:
    api = await start(corner_url, journal.around(CATALOG))
    author = await api.create("/authors", "author", {"given-name": "Ann", "family-name": "A"})
    tag = await api.create("/tags", "tag", {"name": "x"})
    data = document("article", {"title": "t"}, id="a", relationships=linked(author=one("author", author)))
    assert (await api.post("/articles", data)).status == 201
    journal.calls.clear()
    assert (await api.post("/articles/a/relationships/tags", {"data": of("tag", tag)})).status == 200
    assert journal.calls == around("update", "article", [("a", None, {"tags": ("add", [tag])})], ["a"])  # type: ignore[list-item]
    journal.calls.clear()
    assert (await api.post("/articles/a/tags", document("tag", {"name": "y"}))).status == 201
    assert [name for name, _ in journal.calls] == ["tag before create", "tag after create", "tag committed"]


async def test_reads_run_no_hooks(noted: Api, journal: Journal) -> None:
    await create_household(noted)
    for path in ("/users?include=computers", "/users/1", "/users/1/computers", "/users/1/relationships/group"):
        assert (await noted.get(path)).status == 200
    assert (await noted.request("OPTIONS", "/users")).status == 204
    assert journal.calls == []


async def test_refused_requests_run_no_hooks(noted: Api, journal: Journal) -> None:
    """A document that cannot be decoded, an invalid query, a method that is not allowed."""
    for method, path, body in (
        ("POST", "/persons", {"data": []}),
        ("POST", "/persons?include=x", document("person", {"name": "n"})),
        ("PATCH", "/persons/1", document("person", {"name": "n"}, id="2")),
        ("DELETE", "/persons/1?sort=name", None),
        ("POST", "/persons/1", document("person", {"name": "n"})),
    ):
        assert (await noted.request(method, path, body)).status >= 400
    assert journal.calls == []


@pytest.mark.parametrize("media_type", [MEDIA_TYPE, ATOMIC])
async def test_consecutive_operations_are_one_batch(noted: Api, journal: Journal, media_type: str) -> None:
    """If they have the same type and kind. An operation that needs the id of another one comes after it. Hooks after
    the commit come last."""
    await create_household(noted)
    operations = (
        add("group", {"name": "a"}, lid="g"),
        add("group", {"name": "b"}),
        add("user", ADA, relationships=linked(group={"type": "group", "lid": "g"})),
        update("computer", "1", {"name": "x"}),
        update("computer", "2", {"name": "y"}),
        remove("computer", "4"),
        remove("computer", "3"),
        add("group", {"name": "c"}),
    )
    answer = await operate(noted, *operations, media_type=media_type)
    assert answer.status == 200, answer.body
    assert journal.calls == [
        ("group before create", [(None, {"name": "a"}, {}), (None, {"name": "b"}, {})]),
        ("group after create", [2, 3]),
        ("user before create", [(None, ADA, {"group": ("replace", [""])})]),
        ("user after create", [3]),
        ("computer before update", [("1", {"name": "x"}, {}), ("2", {"name": "y"}, {})]),
        ("computer after update", [1, 2]),
        ("computer before delete", [("4", None, {}), ("3", None, {})]),
        ("computer after delete", [4, 3]),
        ("group before create", [(None, {"name": "c"}, {})]),
        ("group after create", [4]),
        ("group committed", [("create", 2), ("create", 3)]),
        ("user committed", [("create", 3)]),
        ("computer committed", [("update", 1), ("update", 2)]),
        ("computer committed", [("delete", 4), ("delete", 3)]),
        ("group committed", [("create", 4)]),
    ]


async def test_an_operation_that_needs_the_id_of_another_comes_after_it(
    start: Start, corner_url: str, journal: Journal
) -> None:
    api = await start(corner_url, journal.around(CATALOG))
    parent = linked(parent={"type": "node", "lid": "root"})
    operations = (add("node", {"title": "r"}, lid="root"), add("node", {"title": "l"}, relationships=parent))
    assert (await operate(api, *operations)).status == 200
    assert [name for name, _ in journal.calls] == [
        *["node before create", "node after create"] * 2,
        *["node committed"] * 2,
    ]


async def test_a_relationship_of_an_operation(noted: Api, journal: Journal) -> None:
    await create_household(noted)
    ref = {"type": "user", "id": "1", "relationship": "computers"}
    operation = {"op": "remove", "ref": ref, "data": of("computer", "2")}
    assert (await operate(noted, operation, media_type=ATOMIC)).status == 204
    assert journal.calls == around("update", "user", [("1", None, {"computers": ("remove", ["2"])})], [1])


# what a hook changes


async def test_before_can_change_the_written_attributes(start: Start, database_url: str) -> None:
    """Attributes that the client sent, attributes that it did not send, and attributes that it may not send."""

    async def before(writing: Writing, changes: list[Change]) -> list[Change]:
        return [change.assign(last_name="Hook", date_create="2001-02-03", age=7) for change in changes]

    api = await start(database_url, hooked(user=Hooks(before_create=before, before_update=before)))
    created = await api.post("/users", document("user", ADA))
    assert created.status == 201
    attributes = created.document["data"]["attributes"]
    assert (attributes["first_name"], attributes["last_name"], attributes["age"]) == ("Ada", "Hook", 7)
    assert attributes["date_create"] == "2001-02-03"
    await api.sql("UPDATE users SET last_name = 'x', age = 1, date_create = '2000-01-01'")
    updated = await api.patch("/users/1?fields[user]=last_name,age,date_create", document("user", id="1"))
    assert updated.document["data"]["attributes"] == {"last_name": "Hook", "age": 7, "date_create": "2001-02-03"}


async def test_before_can_set_required_attributes(start: Start, database_url: str) -> None:
    async def before(writing: Writing, changes: list[Change]) -> list[Change]:
        return [change.assign(first_name="A", last_name="B") for change in changes]

    api = await start(database_url, hooked(user=Hooks(before_create=before)))
    assert (await api.post("/users", document("user"))).status == 201
    # An invalid value of the client does not matter if the hook replaces it.
    assert (await api.post("/users", document("user", {"first_name": 1}))).status == 201


async def test_before_can_return_other_changes(start: Start, database_url: str) -> None:
    async def before(writing: Writing, changes: Sequence[Change]) -> Sequence[Change]:
        return tuple(replace(change, attributes={"name": "other"}, relationships={}) for change in changes)

    api = await start(database_url, hooked(computer=Hooks(before_create=before)))
    sent = document("computer", {"name": "mine"}, relationships=linked(owner=one("user", "99")))
    answer = await api.post("/computers", sent)
    assert (answer.status, answer.document["data"]["attributes"]["name"]) == (201, "other")


@pytest.mark.parametrize(
    ("assigned", "detail"),
    [
        ({"age": -1}, "“age” must be from 0 to 150, not -1."),
        ({"age": "x"}, '“age” must be a whole number from -2147483648 to 2147483647, not "x".'),
        ({"date_create": "soon"}, None),
        ({"status": None}, None),
    ],
)
async def test_values_of_hooks_are_checked_like_those_of_clients(
    start: Start, database_url: str, assigned: dict[str, Any], detail: str | None
) -> None:
    async def before(writing: Writing, changes: list[Change]) -> list[Change]:
        return [change.assign(**assigned) for change in changes]

    api = await start(database_url, hooked(user=Hooks(before_create=before)))
    answer = await api.post("/users", document("user", ADA))
    (error,) = answer.errors
    (name,) = assigned
    assert (answer.status, error["code"], error["source"]) == (
        422,
        "invalid_attribute",
        {"pointer": f"/data/attributes/{name}"},
    )
    assert detail is None or error["detail"] == detail
    assert await select(api, "SELECT * FROM users") == []


async def test_before_runs_before_the_checks(noted: Api, journal: Journal) -> None:
    """So it can correct the change. All faults of all changes are reported."""
    answer = await noted.post("/persons", document("person", {"nam": 1}))
    assert (answer.status, [error["source"]["pointer"] for error in answer.errors]) == (
        422,
        ["/data/attributes/nam", "/data/attributes/name"],
    )
    assert journal.calls == [("person before create", [(None, {"nam": 1}, {})])]
    both = await operate(noted, add("person", {"nam": 1}), add("person", {"name": 2}), media_type=ATOMIC)
    assert [error["source"]["pointer"] for error in both.errors] == [
        "/atomic:operations/0/data/attributes/nam",
        "/atomic:operations/0/data/attributes/name",
        "/atomic:operations/1/data/attributes/name",
    ]


async def test_after_sees_the_rows_and_the_answer_shows_its_writes(start: Start, database_url: str) -> None:
    seen: list[Any] = []

    async def after(writing: Writing, written: list[Written]) -> None:
        ids = [each.id for each in written]
        seen.append(await writing.connection.fetchval("SELECT count(*) FROM computers WHERE owner_id = ANY($1)", ids))
        await writing.connection.execute("UPDATE users SET age = 99 WHERE id = ANY($1)", ids)

    api = await start(database_url, hooked(user=Hooks(after_create=after, after_update=after)))
    await api.create("/computers", "computer", {"name": "a"})
    created = await api.post(
        "/users?fields[user]=age", document("user", ADA, relationships=linked(computers=of("computer", "1")))
    )
    updated = await api.patch("/users/1?fields[user]=age", document("user", {"age": 3}, id="1"))
    operated = await operate(api, add("user", ADA), add("user", ADA))
    ages = [result["data"]["attributes"]["age"] for result in operated.document["atomic:results"]]
    assert [created.document["data"]["attributes"], updated.document["data"]["attributes"]] == [{"age": 99}] * 2
    assert (ages, seen) == ([99, 99], [1, 1, 0])


async def test_headers_in_any_case(start: Start, database_url: str) -> None:
    seen = []

    async def before(writing: Writing, changes: list[Change]) -> None:
        seen.append((writing.headers["x-actor"], writing.headers.get("X-ACTOR"), writing.headers.get("X-Other")))

    api = await start(database_url, hooked(person=Hooks(before_create=before)))
    sent = document("person", {"name": "n"})
    operations = {"atomic:operations": [add("person", {"name": "n"})]}
    for path, body in (("/persons", sent), ("/operations", operations)):
        assert (await api.request("POST", path, body, headers={"X-Actor": "ada"})).status < 300
    assert seen == [("ada", "ada", None)] * 2


# after the commit


async def test_after_commit_runs_once_after_the_commit(start: Start, database_url: str) -> None:
    seen: list[Any] = []

    async def after_commit(written: list[Written]) -> None:
        connection = await asyncpg.connect(database_url)
        try:
            seen.append(await connection.fetchval("SELECT count(*) FROM persons WHERE id = $1", written[0].id))
        finally:
            await connection.close()

    api = await start(database_url, hooked(person=Hooks(after_commit=after_commit)))
    assert (await written_with(api, "create")).status == 201
    assert (await written_with(api, "update")).status == 200
    assert (await written_with(api, "delete")).status == 200
    assert seen == [1, 1, 0]
    assert (await written_with(api, "update")).status == 404
    assert (await written_with(api, "delete")).status == 404
    assert (await api.post("/persons", document("person", {"name": None}))).status == 422
    failing = await operate(api, add("person", {"name": "x"}), remove("person", "99"))
    assert failing.status == 422
    assert len(seen) == 3


async def test_exceptions_of_after_commit_are_logged_and_the_answer_is_sent(
    start: Start, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    ran = []

    async def fails(written: list[Written]) -> None:
        raise BadRequest("too late")

    async def runs(written: list[Written]) -> None:
        ran.append(len(written))

    catalog = hooked(person=Hooks(after_commit=fails), parent=Hooks(after_commit=runs))
    api = await start(database_url, catalog)
    with caplog.at_level(logging.ERROR, "server"):
        assert (await written_with(api, "create")).status == 201
        answer = await operate(api, add("person", {"name": "x"}), add("parent", {"name": "p"}))
    assert answer.status == 200
    assert [record.getMessage() for record in caplog.records] == [
        "after_commit of person failed; what was written stands"
    ] * 2
    assert ran == [1]
    assert await select(api, "SELECT count(*) FROM persons") == [(2,)]


async def test_hooks_see_attributes_that_clients_do_not(start: Start, database_url: str) -> None:
    """A hook may assign an attribute that is not readable."""

    async def before(writing: Writing, changes: list[Change]) -> list[Change]:
        return [change.assign(password_hash="hashed") for change in changes]

    catalog = hooked(user=Hooks(before_create=before))
    user = catalog.by_type["user"]
    secret = Attribute("password_hash", user.attributes[0].type, nullable=True, readable=False, creatable=False)
    others = [each for each in catalog if each is not user]
    api = await start(database_url, Catalog([replace(user, attributes=(*user.attributes, secret)), *others]))
    created = await api.post("/users", document("user", ADA))
    assert "password_hash" not in created.document["data"]["attributes"]
    assert await select(api, "SELECT password_hash FROM users") == [("hashed",)]
    assert (await api.post("/users", document("user", ADA | {"password_hash": "x"}))).status == 422
