"""Triggers that cancel a write without an error: the answer is a 409, and the whole request is rolled back. A 404 is
only for missing resources. Declared soft deletes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from server.resources import built_in
from tests.http.conftest import Api, Start
from tests.http.operating import EXTENDED, session, until_blocked_by
from tests.http.people import create_household, document, of, select, user
from tests.http.refusals import Error, Refused, check_refused, error
from waterspout import TEXT, Attribute, Catalog, Link, Resource, ToMany

Prepare = Callable[..., Awaitable[Api]]

CANCEL = """
CREATE FUNCTION cancel() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN INSERT INTO persons (name) VALUES ('by the trigger'); RETURN NULL; END $$
"""


def cancelling(table: str, when: str = "INSERT OR UPDATE OR DELETE") -> str:
    return f"CREATE TRIGGER cancel BEFORE {when} ON {table} FOR EACH ROW EXECUTE FUNCTION cancel()"


def cancelled(kind: str, type_name: str, pointer: str | None = "/data") -> Error:
    detail = f"The database did not {kind} this {type_name}: a trigger or a policy cancelled it. Nothing was written."
    return error("not_written", detail, pointer)


def unlinked(pointer: str = "/data") -> Error:
    detail = "The database did not change the relationship: a trigger or a policy cancelled it. Nothing was written."
    return error("not_written", detail, pointer)


async def prepared(api: Api, *statements: str) -> None:
    await create_household(api)
    for statement in (CANCEL, *statements):
        await api.sql(statement)


@pytest.fixture
def restarted(api: Api, start: Start, database_url: str) -> Prepare:
    """Return a function that prepares the database, and then starts a server that knows the triggers."""

    async def restart(*statements: str) -> Api:
        await prepared(api, *statements)
        return await start(database_url, built_in())

    return restart


async def test_every_route_that_writes_the_resource(restarted: Prepare) -> None:
    api = await restarted(*map(cancelling, ("computers", "user_bios")))
    changed = document("computer", {"name": "eniac"}, id="1")
    owned = document("computer", id="1", relationships={"owner": {"data": None}})
    missing = error("resource_not_found", "There is no computer with the id “9”.")
    await check_refused(
        api,
        [
            Refused("POST", "/computers", document("computer", {"name": "eniac"}), [cancelled("create", "computer")]),
            Refused(
                "POST",
                "/computers?include=owner",
                document("computer", {"name": "eniac"}),
                [cancelled("create", "computer")],
            ),
            Refused(
                "POST", "/users/1/computers", document("computer", {"name": "eniac"}), [cancelled("create", "computer")]
            ),
            Refused("PATCH", "/computers/1", changed, [cancelled("update", "computer")]),
            Refused("PATCH", "/computers/1?include=owner", changed, [cancelled("update", "computer")]),
            Refused("PATCH", "/computers/1", owned, [cancelled("update", "computer")]),
            Refused("PATCH", "/computers/1/relationships/owner", {"data": None}, [cancelled("update", "computer")]),
            Refused("DELETE", "/computers/1", None, [cancelled("delete", "computer", None)]),
            Refused(
                "PATCH",
                "/users/1/bio",
                document("user_bio", {"birth_city": "Bath"}, id="1"),
                [cancelled("update", "user_bio")],
            ),
            Refused("DELETE", "/users/1/bio", None, [cancelled("delete", "user_bio", None)]),
            Refused("PATCH", "/computers/9", document("computer", {"name": "eniac"}, id="9"), [missing]),
            Refused("PATCH", "/computers/9?include=owner", document("computer", {"name": "x"}, id="9"), [missing]),
            Refused("DELETE", "/computers/9", None, [missing]),
        ],
    )


async def test_a_trigger_that_the_server_does_not_know(api: Api) -> None:
    """The first statement is committed with what the trigger wrote, because no trigger was there at the start."""
    await prepared(api, cancelling("computers"))
    kept = "The trigger was created after the server started, so what it wrote itself may have been kept. "
    sent, changed = document("computer", {"name": "eniac"}), document("computer", {"name": "eniac"}, id="1")

    def unknown(kind: str, pointer: str | None = "/data") -> list[Error]:
        known = cancelled(kind, "computer", pointer)
        return [known | {"detail": known["detail"].replace("Nothing was written.", kept + "Reload the server.")}]

    computers = await select(api, "SELECT * FROM computers ORDER BY id")
    for method, path, body, expected in (
        ("POST", "/computers", sent, unknown("create")),
        ("PATCH", "/computers/1", changed, unknown("update")),
        ("DELETE", "/computers/1", None, unknown("delete", None)),
    ):
        answer = await api.request(method, path, body)
        assert (answer.status, answer.errors) == (409, expected)
    assert await select(api, "SELECT count(*) FROM persons WHERE name = 'by the trigger'") == [(3,)]
    assert await select(api, "SELECT * FROM computers ORDER BY id") == computers


async def test_every_route_that_writes_its_key(api: Api) -> None:
    """One cancelled row of several is enough."""
    await prepared(api, cancelling("computers", "UPDATE").replace("FOR EACH ROW", "FOR EACH ROW WHEN (OLD.id = 4)"))
    own = "/data/relationships/computers/data"
    both = {"computers": {"data": of("computer", 3, 4)}}
    await check_refused(
        api,
        [
            Refused("POST", "/users/1/relationships/computers", {"data": of("computer", 3, 4)}, [unlinked()]),
            Refused("PATCH", "/users/1/relationships/computers", {"data": of("computer", 4)}, [unlinked()]),
            Refused("POST", "/users", user(computers=of("computer", 3, 4)), [unlinked(own)]),
            Refused("PATCH", "/users/2", document("user", id="2", relationships=both), [unlinked(own)]),
        ],
    )
    await api.sql("ALTER TABLE computers DISABLE TRIGGER cancel")
    await api.sql("UPDATE computers SET owner_id = 2 WHERE id = 4")
    await api.sql("ALTER TABLE computers ENABLE TRIGGER cancel")
    await check_refused(
        api,
        [
            Refused("DELETE", "/users/2/relationships/computers", {"data": of("computer", 3, 4)}, [unlinked()]),
            Refused("PATCH", "/users/2/relationships/computers", {"data": []}, [unlinked()]),
        ],
    )
    there = await api.post("/users/2/relationships/computers", {"data": of("computer", 4)})
    assert there.status == 200


def add(name: str, **members: Any) -> dict[str, Any]:
    return {"op": "add", "data": {"type": "group", "attributes": {"name": name}, **members}}


UPDATE = {"op": "update", "data": {"type": "group", "id": "1", "attributes": {"name": "b"}}}
REMOVE = {"op": "remove", "ref": {"type": "group", "id": "1"}}
LINK = {
    "op": "update",
    "ref": {"type": "group", "id": "1", "relationship": "users"},
    "data": of("user", 1, 2),
}
OPERATIONS: list[tuple[str, str, list[Any], Error]] = [
    ("groups", "INSERT", [add("a")], cancelled("create", "group", "/atomic:operations/0/data")),
    (
        "groups",
        "INSERT",
        [add(name) for name in "abcdefghijkl"],
        cancelled("create", "group", "/atomic:operations/0/data"),
    ),
    ("groups", "UPDATE", [add("a"), UPDATE], cancelled("update", "group", "/atomic:operations/1/data")),
    ("groups", "UPDATE", [UPDATE, UPDATE], cancelled("update", "group", "/atomic:operations/0/data")),
    ("groups", "DELETE", [add("a"), REMOVE], cancelled("delete", "group", "/atomic:operations/1/ref")),
    ("groups", "DELETE", [REMOVE], cancelled("delete", "group", "/atomic:operations/0/ref")),
    (
        "groups",
        "DELETE",
        [add("a", lid="x"), {"op": "remove", "ref": {"type": "group", "lid": "x"}}],
        cancelled("delete", "group", "/atomic:operations/1/ref"),
    ),
    ("users", "UPDATE", [add("a"), LINK], unlinked("/atomic:operations/1/data")),
]


@pytest.mark.parametrize(("table", "event", "sent", "expected"), OPERATIONS)
async def test_operations(restarted: Prepare, table: str, event: str, sent: list[Any], expected: Error) -> None:
    api = await restarted("DELETE FROM posts", cancelling(table, event))
    await api.sql("ALTER TABLE users DROP CONSTRAINT users_group_id_fkey")
    body = {"atomic:operations": sent}
    extended = await api.request("POST", "/operations", body, headers={"Content-Type": EXTENDED})
    assert (extended.status, extended.errors) == (409, [expected])
    if expected != unlinked("/atomic:operations/1/data"):
        plain = await api.post("/operations", body)
        assert (plain.status, [one["msg"] for one in plain.document["detail"]["errors"]]) == (422, [expected["detail"]])
    rows = (
        "SELECT name FROM groups UNION ALL SELECT name FROM persons "
        "UNION ALL SELECT 'in 1' FROM users WHERE group_id = 1"
    )
    assert await select(api, rows) == [("rowers",), ("Noor",), ("in 1",)]


async def test_a_row_that_another_transaction_deletes_meanwhile_is_a_404(api: Api) -> None:
    await create_household(api)
    changed = document("computer", {"name": "x"}, id="1")
    for method, path, sent in (
        ("DELETE", "/computers/1", None),
        ("PATCH", "/computers/1", changed),
        ("PATCH", "/computers/1?include=owner", changed),
    ):
        await api.sql("INSERT INTO computers (id, name) VALUES (1, 'abacus') ON CONFLICT DO NOTHING")
        async with session(api) as holder, session(api) as watcher:
            await holder.execute("BEGIN; DELETE FROM computers WHERE id = 1")
            waiting = asyncio.ensure_future(api.request(method, path, sent))
            await until_blocked_by(watcher, holder.get_server_pid())
            await holder.execute("COMMIT")
            answer = await waiting
        missing = error("resource_not_found", "There is no computer with the id “1”.")
        assert (answer.status, answer.errors) == (404, [missing]), path


async def test_a_division_by_zero_in_the_database_is_a_refused_value(api: Api) -> None:
    """The server also divides by zero, to roll back a write of one statement."""
    await create_household(api)
    await api.sql("ALTER TABLE computers ADD CHECK (1 / (length(name) - 4) <> 99) NOT VALID")
    detail = "PostgreSQL refuses a value of the document: a number is divided by zero."
    changed = document("computer", {"name": "four"}, id="1")
    await check_refused(
        api, [Refused("PATCH", "/computers/1", changed, [error("body_value_refused", detail, "/data")])]
    )


async def test_a_table_with_rules(api: Api) -> None:
    """It cannot be written inside WITH, so the server uses a transaction."""
    await create_household(api)
    await api.sql("CREATE RULE note AS ON UPDATE TO computers DO ALSO INSERT INTO persons (name) VALUES (NEW.name)")
    answer = await api.patch("/computers/1", document("computer", {"name": "eniac"}, id="1"))
    assert (answer.status, answer.document["data"]["attributes"]["name"]) == (200, "eniac")
    assert await select(api, "SELECT name FROM persons WHERE id > 1") == [("eniac",)]


SHIP = Resource("ship", "/ships", "ships", attributes=(Attribute("name", TEXT, nullable=True),))
SHIPS = [
    "CREATE TABLE ships_all (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, name text, "
    "sunk boolean DEFAULT false)",
    "CREATE VIEW ships AS SELECT id, name FROM ships_all WHERE NOT sunk",
    "CREATE FUNCTION sink() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN UPDATE ships_all SET sunk = true WHERE id = OLD.id; RETURN NULL; END $$",
    "CREATE TRIGGER sink INSTEAD OF UPDATE OR DELETE ON ships FOR EACH ROW EXECUTE FUNCTION sink()",
    "CREATE FUNCTION launch() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN INSERT INTO ships_all (name) VALUES (NEW.name); RETURN NEW; END $$",
    "CREATE TRIGGER launch INSTEAD OF INSERT ON ships FOR EACH ROW EXECUTE FUNCTION launch()",
    "INSERT INTO ships_all (name) VALUES ('argo'), ('beagle')",
]


async def served(start: Start, url: str, *resources: Resource, statements: list[str]) -> Api:
    door = Api(0, url)
    for statement in statements:
        await door.sql(statement)
    await door.close()
    return await start(url, Catalog(resources))


async def test_a_view_that_no_longer_shows_the_row(start: Start, database_url: str) -> None:
    """The trigger has hidden the row before it cancels the write, but the row exists."""
    api = await served(start, database_url, SHIP, statements=SHIPS)
    changed = document("ship", {"name": "x"}, id="1")
    await check_refused(
        api,
        [
            Refused("DELETE", "/ships/1", None, [cancelled("delete", "ship", None)]),
            Refused("PATCH", "/ships/1", changed, [cancelled("update", "ship")]),
            Refused("DELETE", "/ships/9", None, [error("resource_not_found", "There is no ship with the id “9”.")]),
        ],
    )
    remove = {"atomic:operations": [{"op": "remove", "ref": {"type": "ship", "id": "2"}}]}
    answer = await api.request("POST", "/operations", remove, headers={"Content-Type": EXTENDED})
    assert (answer.status, answer.errors) == (409, [cancelled("delete", "ship", "/atomic:operations/0/ref")])


async def test_a_view_whose_trigger_returns_no_id(start: Start, database_url: str) -> None:
    """There would be nothing to answer with."""
    api = await served(start, database_url, SHIP, statements=SHIPS)
    sent, created = document("ship", {"name": "x"}), cancelled("create", "ship")
    await check_refused(api, [Refused("POST", path, sent, [created]) for path in ("/ships", "/ships?include=")])


SOFT = msgspec.structs.replace(SHIP, soft_delete=True)


async def test_a_declared_soft_delete_of_a_view(start: Start, database_url: str) -> None:
    api = await served(start, database_url, SOFT, statements=SHIPS)
    assert (await api.delete("/ships/1")).document["meta"] == {"message": "Object successfully deleted"}
    assert (await api.delete("/ships/1")).status == 404
    assert (await api.get("/ships")).ids == ["2"]
    remove = {"atomic:operations": [{"op": "remove", "ref": {"type": "ship", "id": "2"}}]}
    assert (await api.post("/operations", remove)).status == 204
    assert await select(api, "SELECT sunk FROM ships_all ORDER BY id") == [(True,), (True,)]


async def test_a_declared_soft_delete_of_a_table(start: Start, database_url: str) -> None:
    """A row that the table still shows exists, and can be deleted again."""
    catalog = Catalog(
        [msgspec.structs.replace(one, soft_delete=True) if one.type == "user_bio" else one for one in built_in()]
    )
    api = await start(database_url, catalog)
    await prepared(api, cancelling("user_bios", "DELETE"))
    for path in ("/user-bio/1", "/user-bio/1", "/users/2/bio"):
        assert (await api.delete(path)).status == 200
    remove = {"atomic:operations": [{"op": "remove", "ref": {"type": "user_bio", "id": id_text}} for id_text in "12"]}
    assert (await api.post("/operations", remove)).status == 204
    assert (await api.delete("/user-bio/9")).status == 404
    assert await select(api, "SELECT count(*) FROM persons WHERE name = 'by the trigger'") == [(5,)]


async def test_a_soft_delete_deletes_if_no_trigger_keeps_the_row(start: Start, database_url: str) -> None:
    catalog = Catalog([msgspec.structs.replace(one, soft_delete=True) for one in built_in()])
    api = await start(database_url, catalog)
    await create_household(api)
    assert [(await api.delete("/computers/1")).status for _ in range(2)] == [200, 404]


POST = Resource(
    "post",
    "/posts",
    "notes",
    attributes=(Attribute("name", TEXT, nullable=True),),
    relationships=(ToMany("tags", "tag", through=Link("note_tags", source="note_id", target="tag_id")),),
)
TAG = Resource("tag", "/tags", "tags", attributes=(Attribute("name", TEXT, nullable=True),))
NOTES = [
    "CREATE TABLE notes (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, name text)",
    "CREATE TABLE tags (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, name text)",
    "CREATE TABLE note_tags (note_id bigint NOT NULL REFERENCES notes, tag_id bigint NOT NULL REFERENCES tags, "
    "PRIMARY KEY (note_id, tag_id))",
    "INSERT INTO notes (name) VALUES ('a')",
    "INSERT INTO tags (name) VALUES ('x'), ('y'), ('z')",
    "INSERT INTO note_tags VALUES (1, 1), (1, 2)",
    CANCEL,
    "CREATE TRIGGER cancel BEFORE INSERT OR DELETE ON note_tags FOR EACH ROW EXECUTE FUNCTION cancel()",
]


async def test_a_link_table(start: Start, database_url: str) -> None:
    """A link that exists already, or that does not exist, cannot be cancelled by a trigger."""
    api = await served(start, database_url, POST, TAG, statements=NOTES)
    path, own = "/posts/1/relationships/tags", "/data/relationships/tags/data"
    sent = document("post", {}, relationships={"tags": {"data": of("tag", 3)}})
    await check_refused(
        api,
        [
            Refused("POST", path, {"data": of("tag", 1, 3)}, [unlinked()]),
            Refused("DELETE", path, {"data": of("tag", 1, 3)}, [unlinked()]),
            Refused("PATCH", path, {"data": of("tag", 1)}, [unlinked()]),
            Refused("PATCH", path, {"data": of("tag", 1, 2, 3)}, [unlinked()]),
            Refused("POST", "/posts", sent, [unlinked(own)]),
        ],
    )
    for method, linkage in (("POST", of("tag", 1, 2)), ("DELETE", of("tag", 3)), ("PATCH", of("tag", 1, 2))):
        assert (await api.request(method, path, {"data": linkage})).status == 200
