"""Rules of the database that refuse requests: RAISE in functions, WITH CHECK OPTION, privileges and row security.

A refused request is rolled back completely."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import msgspec
import pytest

from server.postgres.rules import MAX_MESSAGE_CHARACTERS
from server.resources import built_in
from tests.http.conftest import Answer, Api, Start
from tests.http.people import create_household, document, of, one, select, user
from tests.http.refusals import Error, Refused, check_refused, error
from waterspout import TEXT, Attribute, Catalog, CustomHandler, Hooks, Id, Resource, ToMany, Writing

ATOMIC = 'application/vnd.api+json;ext="https://jsonapi.org/ext/atomic"'


def raising(table: str, statement: str, *, when: str = "BEFORE INSERT OR UPDATE OR DELETE") -> str:
    """Return a trigger that refuses every row."""
    return f"""
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {statement}; END $$;
    CREATE TRIGGER refuse {when} ON {table} FOR EACH ROW EXECUTE FUNCTION refuse();
    """


def rule(message: str, pointer: str | None = "/data", *, status: int = 422, **meta: str) -> Error:
    found = error("database_rule", message, pointer) | {"status": str(status)}
    return found | ({"meta": meta} if meta else {})


BACKENDS = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'waterspout%' AND datname = current_database()"

RAISED: list[tuple[str, Error]] = [
    ("RAISE EXCEPTION 'No groups on %.', 'Sundays'", rule("No groups on Sundays.")),
    (
        "RAISE EXCEPTION 'No.' USING DETAIL = 'It is Sunday.', HINT = 'Come back tomorrow.'",
        rule("No.", detail="It is Sunday.", hint="Come back tomorrow."),
    ),
    ("RAISE EXCEPTION ''", rule("A rule of the database refuses this.")),
    ("RAISE EXCEPTION 'No.' USING COLUMN = 'name'", rule("No.", "/data/attributes/name")),
    ("RAISE EXCEPTION 'No.' USING COLUMN = 'name', TABLE = TG_TABLE_NAME", rule("No.", "/data/attributes/name")),
    ("RAISE EXCEPTION 'No.' USING COLUMN = 'name', TABLE = 'users'", rule("No.")),
    ("RAISE EXCEPTION 'No.' USING COLUMN = 'unknown'", rule("No.")),
    ("RAISE EXCEPTION 'No.' USING CONSTRAINT = 'groups_name_key'", rule("No.", "/data/attributes/name")),
    ("RAISE SQLSTATE 'PT402' USING MESSAGE = 'Pay first.'", rule("Pay first.", status=402)),
    ("RAISE SQLSTATE 'PT499' USING MESSAGE = 'The last one.'", rule("The last one.", status=499)),
    ("RAISE SQLSTATE 'PT200' USING MESSAGE = 'Fine?'", rule("Fine?")),
    ("RAISE SQLSTATE 'PT500' USING MESSAGE = 'Not ours.'", rule("Not ours.")),
    ("RAISE SQLSTATE 'U0001' USING MESSAGE = 'Of our own class.'", rule("Of our own class.")),
    ("RAISE SQLSTATE '22023' USING MESSAGE = 'A bad value.'", rule("A bad value.")),
    # The codes of a connection that ends, and of a full disk.
    ("RAISE SQLSTATE '57P01' USING MESSAGE = 'Closed.', HINT = 'Wait.'", rule("Closed.", hint="Wait.")),
    ("RAISE SQLSTATE '08006' USING MESSAGE = 'Not there.'", rule("Not there.")),
    ("RAISE SQLSTATE '28000' USING MESSAGE = 'Not you.'", rule("Not you.")),
    ("RAISE SQLSTATE '53100' USING MESSAGE = 'The boat house is full.'", rule("The boat house is full.")),
    # The driver adds a hint of its own.
    ("RAISE SQLSTATE '26000' USING MESSAGE = 'No name.'", rule("No name.")),
    ("RAISE SQLSTATE '42P05' USING MESSAGE = 'Twice.'", rule("Twice.")),
    ("RAISE check_violation USING MESSAGE = 'Checked by hand.'", rule("Checked by hand.")),
    ("RAISE unique_violation USING MESSAGE = 'There is one.'", error("conflict", "There is one.", "/data")),
    (
        "RAISE foreign_key_violation USING MESSAGE = 'Still used.', HINT = 'Move it.'",
        error("conflict", "Still used.", "/data") | {"meta": {"hint": "Move it."}},
    ),
    ("RAISE insufficient_privilege USING MESSAGE = 'Not yours.'", error("database_forbids", "Not yours.", "/data")),
]


@pytest.mark.parametrize(("statement", "expected"), RAISED, ids=[statement for statement, _ in RAISED])
async def test_a_raise_is_an_answer_with_its_message(api: Api, statement: str, expected: Error) -> None:
    await api.sql("INSERT INTO groups (name) VALUES ('rowers')")
    await install(api, "groups", statement)
    bare = {**expected}
    bare.pop("source", None)
    await check_refused(
        api,
        [
            Refused("POST", "/groups", document("group", {"name": "new"}), [expected]),
            Refused("PATCH", "/groups/1", document("group", {"name": "other"}, id="1"), [expected]),
            Refused("DELETE", "/groups/1", None, [bare]),
        ],
    )


@pytest.mark.parametrize("state", ["57P01", "08006", "28000"])
async def test_a_raise_with_the_code_of_a_lost_connection_closes_none(api: Api, state: str) -> None:
    await install(api, "groups", f"RAISE SQLSTATE '{state}' USING MESSAGE = 'No.'")
    await api.get("/groups")
    pids = await select(api, BACKENDS)
    assert (await api.post("/groups", document("group", {"name": "new"}))).errors == [rule("No.")]
    assert len(pids) > 0
    assert set(pids) <= set(await select(api, BACKENDS))


async def test_a_long_message_is_shortened(api: Api) -> None:
    await install(api, "groups", "RAISE EXCEPTION '%', NEW.name")
    answer = await api.post("/groups", document("group", {"name": "x" * 20_000}))
    assert answer.errors == [rule("x" * (MAX_MESSAGE_CHARACTERS - 3) + "...")]


@pytest.mark.parametrize("statement", ["ASSERT false, 'secret'", "PERFORM 1 FROM secret", "PERFORM secret()"])
async def test_a_fault_of_a_trigger_stays_a_fault(api: Api, statement: str) -> None:
    await install(api, "groups", f"{statement}; RETURN NEW")
    answer = await api.post("/groups", document("group", {"name": "new"}))
    assert (answer.status, [one["code"] for one in answer.errors]) == (500, ["internal_error"])


async def install(api: Api, table: str, statement: str, **options: str) -> None:
    for part in raising(table, statement, **options).split(";\n"):
        if part.strip():
            await api.sql(part)


NO = "RAISE EXCEPTION 'No.'"


async def test_every_route_that_writes(api: Api) -> None:
    """A to-many and a reverse to-one write the rows of the other resource."""
    await create_household(api)
    await install(api, "computers", NO)
    own, computers = rule("No."), {"computers": {"data": of("computer", 4)}}
    of_user = "/data/relationships/computers/data"
    await check_refused(
        api,
        [
            Refused("POST", "/users/1/computers", document("computer", {"name": "eniac"}), [own]),
            Refused("POST", "/users/1/relationships/computers", {"data": of("computer", 4)}, [own]),
            Refused("PATCH", "/users/1/relationships/computers", {"data": of("computer", 4)}, [own]),
            Refused("DELETE", "/users/1/relationships/computers", {"data": of("computer", 1)}, [own]),
            Refused("PATCH", "/computers/1/relationships/owner", {"data": None}, [own]),
            Refused("POST", "/users", user(computers=of("computer", 4)), [rule("No.", of_user)]),
            Refused("PATCH", "/users/2", document("user", id="2", relationships=computers), [rule("No.", of_user)]),
            # With an include the answer is read in the transaction.
            Refused("PATCH", "/computers/1?include=owner", document("computer", {"name": "b"}, id="1"), [own]),
        ],
    )
    await api.sql("DROP TRIGGER refuse ON computers")
    await api.sql("CREATE TRIGGER refuse BEFORE UPDATE OR DELETE ON user_bios FOR EACH ROW EXECUTE FUNCTION refuse()")
    await api.sql("INSERT INTO users (id, first_name, last_name) VALUES (9, 'Cy', 'Byron')")
    city = document("user_bio", {"birth_city": "Rome"}, id="1")
    await check_refused(
        api,
        [
            Refused("PATCH", "/users/1/bio", city, [own]),
            Refused("DELETE", "/users/1/bio", None, [rule("No.", None)]),
            Refused("PATCH", "/users/9/relationships/bio", {"data": one("user_bio", 2)}, [own]),
        ],
    )


def operations(*sent: Any) -> dict[str, Any]:
    return {"atomic:operations": list(sent)}


def add(name: str) -> dict[str, Any]:
    return {"op": "add", "data": {"type": "group", "attributes": {"name": name}}}


OPERATIONS: list[tuple[str, list[Any], str]] = [
    ("INSERT", [add("a")], "/atomic:operations/0/data"),
    ("INSERT", [add(name) for name in "abcdefghijklm"], "/atomic:operations/0/data"),
    (
        "UPDATE",
        [add("a"), {"op": "update", "data": {"type": "group", "id": "1", "attributes": {"name": "b"}}}],
        "/atomic:operations/1/data",
    ),
    ("DELETE", [add("a"), {"op": "remove", "ref": {"type": "group", "id": "1"}}], "/atomic:operations/1/ref"),
]


@pytest.mark.parametrize(("event", "sent", "pointer"), OPERATIONS)
async def test_operations(api: Api, event: str, sent: list[Any], pointer: str) -> None:
    await api.sql("INSERT INTO groups (name) VALUES ('rowers')")
    await install(api, "groups", NO + " USING HINT = 'Rest.'", when=f"BEFORE {event}")
    extended = await api.request("POST", "/operations", operations(*sent), headers={"Content-Type": ATOMIC})
    assert (extended.status, extended.errors) == (422, [rule("No.", pointer, hint="Rest.")])
    plain = await api.post("/operations", operations(*sent))
    assert (plain.status, [one["msg"] for one in plain.document["detail"]["errors"]]) == (422, ["No."])
    assert await select(api, "SELECT name FROM groups") == [("rowers",)]


async def test_only_the_operation_that_is_refused_is_named(api: Api) -> None:
    await install(
        api, "groups", "IF NEW.name = 'j' THEN RAISE EXCEPTION 'No j.'; END IF; RETURN NEW", when="BEFORE INSERT"
    )
    sent = operations(*[add(name) for name in "abcdefghijklm"])
    answer = await api.request("POST", "/operations", sent, headers={"Content-Type": ATOMIC})
    assert (answer.status, answer.errors) == (422, [rule("No j.", "/atomic:operations/9/data")])
    assert await select(api, "SELECT name FROM groups") == []


async def test_a_constraint_trigger_at_the_commit(api: Api) -> None:
    await create_household(api)
    await api.sql(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'Too late.'; END $$"
    )
    for table in ("groups", "computers"):
        await api.sql(
            f"CREATE CONSTRAINT TRIGGER refuse AFTER INSERT OR UPDATE ON {table} DEFERRABLE INITIALLY DEFERRED "
            "FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
    late = rule("Too late.")
    await check_refused(
        api,
        [
            Refused("POST", "/groups", document("group", {"name": "new"}), [late]),
            Refused("PATCH", "/groups/1?include=users", document("group", {"name": "new"}, id="1"), [late]),
            Refused("PATCH", "/users/2/relationships/computers", {"data": of("computer", 4)}, [late]),
        ],
    )
    for sent, pointer in (
        ([add("a")], "/atomic:operations/0/data"),
        ([add(name) for name in "abcdefghij"], "/atomic:operations"),
    ):
        answer = await api.request("POST", "/operations", operations(*sent), headers={"Content-Type": ATOMIC})
        assert (answer.status, answer.errors) == (422, [rule("Too late.", pointer)])
    assert await select(api, "SELECT name FROM groups") == [("rowers",)]


READS = frozenset({"list", "detail"})
TIDE = Resource("tide", "/tides", "tides", attributes=(Attribute("name", TEXT, nullable=True),))
TIDES = """
CREATE TABLE tides_all (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, name text NOT NULL);
CREATE VIEW tides AS SELECT id, name FROM tides_all WHERE name <> 'ebb' WITH CHECK OPTION;
INSERT INTO tides_all (name) VALUES ('flood');
"""
FORBIDDEN = "The database does not allow this server to do this. The server's log says what is missing."


async def test_with_check_option(start: Start, database_url: str) -> None:
    api = await started(start, database_url, TIDES)
    detail = "The database does not allow these values: the view that holds the resource would not show it."
    await check_refused(
        api,
        [
            Refused("POST", "/tides", document("tide", {"name": "ebb"}), [rule(detail)]),
            Refused("PATCH", "/tides/1", document("tide", {"name": "ebb"}, id="1"), [rule(detail)]),
        ],
    )


async def started(start: Start, url: str, ddl: str, *resources: Resource) -> Api:
    connection_api = Api(0, url)
    for statement in ddl.split(";\n"):
        if statement.strip():
            await connection_api.sql(statement)
    await connection_api.close()
    return await start(url, Catalog(resources or [TIDE]))


async def test_a_missing_privilege(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    """The answer is a 403, and a line in the log names the missing privilege."""
    await api.sql("INSERT INTO groups (name) VALUES ('rowers')")
    sent, changed = document("group", {"name": "new"}), document("group", {"name": "b"}, id="1")
    nowhere, whole = error("database_forbids", FORBIDDEN), error("database_forbids", FORBIDDEN, "/data")
    writes: list[tuple[str, str, Any, Error]] = [
        ("POST", "/groups", sent, whole),
        ("PATCH", "/groups/1", changed, whole),
        ("PATCH", "/groups/1?include=users", changed, whole),
        ("DELETE", "/groups/1", None, nowhere),
    ]
    paths = ("/groups", "/groups/1", "/groups?page[size]=0", "/users/1/group")
    reads = [("GET", path, None, nowhere) for path in paths]
    for revoked, requests in (("INSERT, UPDATE, DELETE", writes), ("SELECT", [*writes, *reads])):
        await api.sql(f"REVOKE {revoked} ON groups FROM CURRENT_USER")
        for method, path, body, expected in requests:
            caplog.clear()
            answer = await api.request(method, path, body)
            assert (answer.status, answer.errors) == (403, [expected]), (method, path)
            lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
            assert lines == ["PostgreSQL forbids what a request needs: permission denied for table groups"], path
    await api.sql("GRANT ALL ON groups TO CURRENT_USER")
    assert await select(api, "SELECT id, name FROM groups") == [(1, "rowers")]


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE persons ALTER id SET GENERATED ALWAYS",
        "ALTER TABLE persons RENAME TO people; CREATE VIEW persons AS SELECT DISTINCT id, name, xmin FROM people",
    ],
)
async def test_a_table_that_became_unwritable_after_the_start(
    api: Api, caplog: pytest.LogCaptureFixture, statement: str
) -> None:
    for part in statement.split("; "):
        await api.sql(part)
    answer = await api.post("/persons", {"data": {"type": "person", "id": "7", "attributes": {"name": "a"}}})
    assert (answer.status, [one["code"] for one in answer.errors]) == (403, ["database_forbids"])
    assert "PostgreSQL forbids what a request needs: " in caplog.text


async def test_row_security(api: Api) -> None:
    """Rows that it hides do not exist for a request. Rows that it refuses are a 403."""
    for statement in (
        "INSERT INTO groups (name) VALUES ('mine'), ('theirs')",
        "ALTER TABLE groups ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE groups FORCE ROW LEVEL SECURITY",
        "CREATE POLICY own ON groups USING (name LIKE 'm%')",
    ):
        await api.sql(statement)
    assert (await api.get("/groups")).ids == ["1"]
    refused = error("database_forbids", FORBIDDEN, "/data")
    missing = error("resource_not_found", "There is no group with the id “2”.")
    await check_refused(
        api,
        [
            Refused("PATCH", "/groups/2", document("group", {"name": "m"}, id="2"), [missing]),
            Refused("DELETE", "/groups/2", None, [missing]),
            Refused("POST", "/groups", document("group", {"name": "x"}), [refused]),
            Refused("PATCH", "/groups/1", document("group", {"name": "x"}, id="1"), [refused]),
        ],
    )


RAISING_VIEW = """
CREATE FUNCTION shown(name text) RETURNS text LANGUAGE plpgsql AS
$$ BEGIN RAISE SQLSTATE '22023' USING MESSAGE = 'Not today.'; END $$;
CREATE VIEW tides AS SELECT 1::bigint AS id, shown('flood') AS name
"""


async def test_a_raise_while_reading(start: Start, database_url: str) -> None:
    """The error blames no value of the request."""
    shown = msgspec.structs.replace(TIDE, methods=frozenset({"list", "detail"}))
    api = await started(start, database_url, RAISING_VIEW, shown)
    for path in ("/tides", "/tides/1", "/tides?filter[name]=x", "/tides?page[size]=0", "/tides?page[after]="):
        answer = await api.get(path)
        assert (answer.status, answer.errors) == (422, [rule("Not today.", None)]), path


async def logged(writing: Writing, items: Any) -> None:
    await writing.connection.execute("INSERT INTO groups (name) VALUES ('by the hook')")


async def test_a_rule_about_a_statement_of_custom_code(start: Start, database_url: str) -> None:
    """The error has no pointer, because the document was not refused."""

    class Guarded(CustomHandler):
        async def get(self) -> None:
            await self.database.read(lambda connection: connection.fetch("SELECT refuse_read()"))

        async def post(self) -> None:
            await self.database.write(lambda connection: connection.execute("INSERT INTO groups (name) VALUES ('x')"))

    catalog = Catalog(
        [
            msgspec.structs.replace(one, hooks=Hooks(before_create=logged)) if one.type == "person" else one
            for one in built_in()
        ]
    )
    api = await start(database_url, catalog, [("/guarded", Guarded)])
    await install(api, "groups", NO)
    await api.sql(
        "CREATE FUNCTION refuse_read() RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'Not read.'; END $$"
    )
    person = {"op": "add", "data": {"type": "person", "attributes": {"name": "Noor"}}}
    cases: list[tuple[Awaitable[Answer], list[Error]]] = [
        (api.post("/persons", document("person", {"name": "Noor"})), [rule("No.", None)]),
        (
            api.request("POST", "/operations", operations(person), headers={"Content-Type": ATOMIC}),
            [rule("No.", "/atomic:operations/0")],
        ),
        (api.get("/guarded"), [rule("Not read.", None)]),
        (api.request("POST", "/guarded", body=b""), [rule("No.", None)]),
    ]
    for sent, expected in cases:
        answer = await sent
        assert (answer.status, answer.errors) == (422, expected)
    assert await select(api, "SELECT name FROM persons UNION ALL SELECT name FROM groups") == []


@pytest.mark.parametrize("kind", ["VIEW", "MATERIALIZED VIEW"])
async def test_a_table_whose_rows_cannot_be_locked_since_the_start(start: Start, database_url: str, kind: str) -> None:
    """Rows of such a relation are linked without a lock if the server has found it at its start."""
    ddl = (
        "CREATE TABLE notes (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, sum_id bigint);\n"
        "INSERT INTO notes DEFAULT VALUES;\n"
        "CREATE TABLE sums (id bigint PRIMARY KEY)"
    )
    notes = ToMany("notes", "note", foreign_key="sum_id")
    sums = Resource("sum", "/sums", "sums", id=Id(unique=True), methods=READS, relationships=(notes,))
    note = Resource("note", "/notes", "notes")
    api = await started(start, database_url, ddl, sums, note)
    for statement in ("DROP TABLE sums", f"CREATE {kind} sums AS SELECT id, count(*) AS n FROM notes GROUP BY 1"):
        await api.sql(statement)
    linkage = {"data": of("note", "1")}
    answer = await api.post("/sums/1/relationships/notes", linkage)
    assert (answer.status, answer.errors[0]["code"]) == (403, "database_forbids")
    restarted = await start(database_url, Catalog([sums, note]))
    assert (await restarted.post("/sums/1/relationships/notes", linkage)).status == 200
    assert (await restarted.get("/sums/1/notes")).ids == ["1"]
