"""`waterspout explain`: its statements are those that the server sends, and what it prints."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from migrations import BUILT_IN
from querybuild.errors import Forbidden, Unauthenticated
from querybuild.principal import ANONYMOUS, Principal
from server.errors import StatementTimeout
from server.explaining.requested import read_url
from server.explaining.running import Explained, explain_read
from server.postgres.connection import PostgresConnection
from server.postgres.opening import open_alone
from server.postgres.row_security.roles import Roles
from server.resources import built_in
from server.settings import Settings, StartError
from server.tools import commands
from tests.conftest import on_server
from tests.faults.cluster import Cluster
from tests.first_rows import set_first_rows
from tests.http.conftest import Api, Sent, Start
from tests.http.declarations.test_text_types import available, debian_cluster  # noqa: F401
from tests.http.streams import create_many
from tests.http.supabase import ANN, Shop

OLD = json.dumps([{"name": "age", "op": "gt", "val": 30}])
HAS_COMPUTER = json.dumps([{"name": "computers", "op": "any", "val": {"name": "name", "op": "ilike", "val": "%1%"}}])

URLS = [
    "/users",
    "/users/",
    "/users?sort=-age,group.name&page[size]=2",
    f"/users?filter={quote(OLD)}&include=computers,group&page[size]=3",
    f"/users?filter={quote(HAS_COMPUTER)}&page[total]=none",
    "/users?page[size]=2&page[number]=900",
    "/users?page[total]=estimated",
    "/users/1",
    "/users/1?include=computers.owner.group",
    "/users/999999",
    "/users/1/computers?page[size]=1",
    "/users/999999/computers",
    "/users/1/group",
    "/users/1/relationships/computers",
    "/groups?include=users.computers&fields[user]=age",
]


async def explained_by(api: Api, url: str, **given: Any) -> Explained:
    engine = api.app.engine
    connection = await open_alone(api.database_url, engine.settings)
    try:
        connection.on_open(api.app.database.telemetry)
        requested = read_url(url, engine, engine.context_of(ANONYMOUS))
        return await explain_read(connection, requested, engine, **given)
    finally:
        await connection.close()


@pytest.mark.parametrize("url", URLS)
async def test_the_statements_are_those_of_the_server(start: Start, database_url: str, sent: Sent, url: str) -> None:
    api = await start(database_url, built_in())
    await create_many(api, 12, 30)
    sent.clear()
    answer = await api.get(url)
    served = [one for one in sent if one.startswith(("SELECT ", "WITH ", "(")) and "typeinfo_tree" not in one]
    explained = await explained_by(api, url)
    assert [one.sql for one in explained.statements] == served
    assert all("actual time" in one.plan[0] for one in explained.statements)
    assert "other" not in {one.name for one in explained.statements}
    assert (explained.error is None) == (answer.status == 200)


async def test_a_stream(start: Start, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    api = await start(database_url, built_in())
    set_first_rows(monkeypatch, 1, api.app.engine)
    await create_many(api, 12, 30)
    explained = await explained_by(api, "/users?page[size]=0&include=computers")
    assert explained.is_stream
    assert [one.name for one in explained.statements] == [
        "first rows",
        "all primary rows",
        "all included rows of computer",
    ]


@pytest.mark.parametrize(
    "url",
    [
        "/users",
        "/users?include=computers.owner,group&page[size]=50",
        "/users/1?include=computers",
        "/users/1/group",
    ],
)
async def test_without_running_it(start: Start, database_url: str, sent: Sent, url: str) -> None:
    """The statements are the same if there are rows. The plans have no times, and later statements no values."""
    api = await start(database_url, built_in())
    await create_many(api, 12, 30)
    run = await explained_by(api, url)
    sent.clear()
    planned = await explained_by(api, url, is_run=False)
    assert [(one.name, one.sql) for one in planned.statements] == [(one.name, one.sql) for one in run.statements]
    assert not [one for one in sent if one.startswith(('SELECT "', "WITH ", "("))]
    first, *others = [list(one.values) for one in planned.statements]
    assert (first, any(others)) == (list(run.statements[0].values), False)
    for one in planned.statements:
        assert "actual" not in "".join(one.plan)
        assert one.plan[0].startswith("The plan for all values") == (one is not planned.statements[0])
        assert one.tree["Plan"]["Node Type"]


async def test_a_statement_that_takes_too_long(start: Start, database_url: str) -> None:
    """It is cancelled, and its plan is shown without running it again."""
    api = await start(database_url, built_in(), statement_timeout_seconds=0.3)
    connection = await open_alone(api.database_url, Settings())
    await connection.execute(
        "CREATE FUNCTION slow(bigint) RETURNS bigint LANGUAGE sql VOLATILE AS 'SELECT pg_sleep(20); SELECT $1'"
    )
    await connection.execute("ALTER TABLE users RENAME TO all_users")
    await connection.execute("INSERT INTO all_users (first_name, last_name) VALUES ('a', 'b')")
    await connection.execute("CREATE VIEW users AS SELECT * FROM all_users WHERE slow(id) = id")
    await connection.close()
    explained = await explained_by(api, "/users?page[total]=none&fields[user]=age")
    assert type(explained.error) is StatementTimeout
    (statement,) = explained.statements
    assert statement.plan[0] == "PostgreSQL cancelled this statement. Its plan, without running it:"
    assert "slow(" in "".join(statement.plan)
    assert "actual" not in "".join(statement.plan)


async def test_nothing_is_left_of_it(start: Start, database_url: str) -> None:
    """Its transaction is read-only and rolled back, and its settings end with it."""
    api = await start(database_url, built_in())
    connection: PostgresConnection = await open_alone(api.database_url, api.app.engine.settings)
    connection.on_open(api.app.database.telemetry)
    requested = read_url("/users", api.app.engine, api.app.engine.context_of(ANONYMOUS))
    before = await connection.fetchval("SHOW statement_timeout")
    await explain_read(connection, requested, api.app.engine)
    assert not connection.is_in_transaction()
    assert await connection.fetchval("SHOW statement_timeout") == before
    await connection.close()


async def test_row_security(shop: Shop) -> None:
    """The statements run with the role and the claims of the principal, and PostgreSQL's plans have the policies."""
    engine = shop.api.app.engine
    connection = await open_alone(shop.api.database_url, engine.settings)
    connection.on_open(shop.api.app.database.telemetry)
    requested = read_url("/posts", engine, engine.context_of(ANONYMOUS))
    for principal, policy in ((ANONYMOUS, "Filter: published"), (Principal(subject=ANN, claims=CLAIMS), "author_id")):
        role = Roles(engine.settings).of(principal)
        explained = await explain_read(connection, requested, engine, role)
        assert explained.error is None
        assert policy in "\n".join(explained.statements[0].plan)
        assert await connection.fetchval("SELECT current_user") == "authenticator"
    role = Roles(engine.settings).of(ANONYMOUS)
    notes = await explain_read(connection, read_url("/notes", engine, engine.context_of(ANONYMOUS)), engine, role)
    assert type(notes.error) is Unauthenticated
    assert [one.plan for one in notes.statements] == [
        ("PostgreSQL refuses this statement: permission denied for schema private",)
    ]
    odd = Principal(subject="x", claims=CLAIMS | {"sub": "x"})
    posts = await explain_read(connection, requested, engine, Roles(engine.settings).of(odd))
    assert (type(posts.error), str(posts.error)) == (Forbidden, UNFIT)
    assert posts.statements[0].plan == ('PostgreSQL refuses this statement: invalid input syntax for type uuid: "x"',)
    await connection.close()


UNFIT = "The policies of the database cannot be applied to these credentials."
CLAIMS = {"sub": ANN, "role": "authenticated"}


# the command


def printed(capsys: pytest.CaptureFixture[str], url: str, database_url: str, **own: Any) -> tuple[int, str, str]:
    code = commands.explain(Settings(database_url=database_url), url, **own)
    out, err = capsys.readouterr()
    return code, out, err


def test_the_report(database_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Its stages in their order, as plain text, because this is no terminal."""
    query = f"filter={quote(OLD)}&sort=-age&fields[user]=age&page[size]=2&page[total]=none"
    code, out, err = printed(capsys, f"http://localhost:8080/users?{query}", database_url)
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    head, _, rest = out.partition("    Limit ")
    assert head == (
        "query\n"
        "    filter   age gt 30\n"
        "    sort     -age\n"
        "    fields   user: age\n"
        "    page     2 rows, total none\n"
        "\n"
        "plan\n"
        "    user (users as t0): primary rows\n"
        "        columns   id, age\n"
        "        where     t0.age gt a value of the request\n"
        "        order     t0.age descending, t0.id descending\n"
        "\n"
        "statement 1 of 1: primary rows\n"
        '    SELECT "t0"."id","t0"."age"\n'
        '    FROM "users" "t0"\n'
        '    WHERE "t0"."age">$1\n'
        '    ORDER BY "t0"."age" DESC NULLS LAST,"t0"."id" DESC\n'
        "    LIMIT $2\n"
        "\n"
        "    $1 = 30\n"
        "    $2 = 3\n"
        "\n"
    )
    assert "\n    Execution Time: " in rest
    assert rest.endswith("\nindexes\n    No index that the declarations suggest would help.\n\n")


def test_the_report_as_json(database_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    url = "/users?filter[age]=7&fields[user]=age&page[size]=2&page[total]=none"
    code, out, err = printed(capsys, url, database_url, as_json=True)
    document = json.loads(out)
    (statement,) = document["statements"]
    assert (code, err) == (0, "")
    assert document["query"][0] == {"part": "filter", "text": "age eq '7'"}
    assert document["plan"][0] == "user (users as t0): primary rows"
    assert (statement["name"], statement["parameters"]) == ("primary rows", [7, 3])
    assert statement["plan"]["Plan"]["Actual Loops"] == 1
    assert {name: document[name] for name in ("is_stream", "indexes", "errors")} == {
        "is_stream": False,
        "indexes": [],
        "errors": [],
    }
    code, out, err = printed(capsys, "/users?sort=nope", database_url, as_json=True)
    (error,) = json.loads(out)["errors"]
    assert (code, err, error["status"], error["code"], error["parameter"]) == (1, "", 400, "invalid_sort", "sort")


async def fill_without_index(database_url: str) -> None:
    connection = await open_alone(database_url, Settings())
    await connection.execute(
        "INSERT INTO users (first_name, last_name, age) SELECT 'a' || n, 'b', n % 100 FROM generate_series(1, 5000) n"
    )
    await connection.execute("DROP INDEX users_age_id_idx, users_age_desc_id_desc_idx; ANALYZE users")
    await connection.close()


@pytest.mark.parametrize(
    ("query", "is_helped"), [("filter[age]=7", True), ("sort=age", True), ("filter[id]=7", False), ("", False)]
)
def test_an_index_that_would_help(
    database_url: str, capsys: pytest.CaptureFixture[str], query: str, is_helped: bool, io_loop: Any
) -> None:
    io_loop.run_sync(lambda: fill_without_index(database_url))
    _, out, _ = printed(capsys, f"/users?{query}", database_url)
    indexes = out.partition("\nindexes\n")[2]
    statements = re.findall(r"CREATE INDEX CONCURRENTLY (\S+) .*", indexes)
    assert ("  -- user.age: filters and sorts" in indexes, bool(statements)) == (is_helped, is_helped)
    _, out, _ = printed(capsys, f"/users?{query}", database_url, as_json=True)
    assert bool(json.loads(out)["indexes"]) == is_helped


HELPED = {
    # what the read needs, the column of the advised index, how PostgreSQL uses it
    "filter[age]=7": "users_age_id_idx",
    "filter[age][gt]=60&sort=age": "users_age_id_idx",
    "sort=age": "users_age_id_idx",
    "sort=-age": "users_age_desc_id_desc_idx",
    "filter[email]=a7@b.c": "users_email_id_idx",
    "filter[group.id]=3": "users_group_id_id_idx",
}


FILL = [
    "INSERT INTO groups (name) SELECT 'g' || n FROM generate_series(1, 500) n",
    "INSERT INTO users (first_name, last_name, age, email, group_id) SELECT 'a' || n, 'b', n % 120, "
    "'a' || n || '@b.c', 1 + n % 500 FROM generate_series(1, 20000) n",
    "DO $$ DECLARE one text; BEGIN FOR one IN SELECT indexrelid::regclass FROM pg_index WHERE indrelid = "
    "'users'::regclass AND NOT indisunique LOOP EXECUTE 'DROP INDEX ' || one; END LOOP; END $$",
    "VACUUM ANALYZE users",
]


async def execute(database_url: str, *statements: str) -> None:
    connection = await open_alone(database_url, Settings())
    for one in statements:
        await connection.execute(one)
    await connection.close()


PHOTOS = [
    "INSERT INTO photos (name, meta) "
    "SELECT 'a', jsonb_build_object('iso', n, 'it''s {a}', jsonb_build_array(n % 7, n)) "
    "FROM generate_series(1, 20000) n",
    "VACUUM ANALYZE photos",
]
INSIDE = {
    "filter[words.iso]=7": "photos_words.iso_idx",
    "filter[words.it's {a}.1][between]=7,9": "photos_words.it's {a}.1_idx",
    "sort=words.iso": "photos_words.iso_id_idx",
    "sort=-words.it's {a}.0": "photos_words.it's {a}.0_desc_id_desc_idx",
}


@pytest.mark.parametrize(("path", "fill", "helped"), [("/users", FILL, HELPED), ("/photos", PHOTOS, INSIDE)])
def test_the_advised_index_is_used(
    database_url: str,
    capsys: pytest.CaptureFixture[str],
    io_loop: Any,
    path: str,
    fill: list[str],
    helped: dict[str, str],
) -> None:
    """Exactly one index is advised. With it, it is in the plan, and nothing is advised any more."""
    io_loop.run_sync(lambda: execute(database_url, *fill))

    def explained(query: str) -> list[str]:
        url = f"{path}?{quote(query, safe='[]=&')}&page[size]=3&page[total]=none"
        return printed(capsys, url, database_url)[1].split("\nindexes\n")

    for query, name in helped.items():
        _, indexes = explained(query)
        statements = re.findall(r"CREATE INDEX .*;", indexes)
        assert [re.findall('"(.*?)"', one)[0] for one in statements] == [name], (query, indexes)
        io_loop.run_sync(partial(execute, database_url, *statements, f"ANALYZE {path[1:]}"))
        plan, indexes = explained(query)
        assert re.search(f' "?{re.escape(name)}"? ', plan), (query, plan)
        assert indexes.endswith("No index that the declarations suggest would help.\n\n"), (query, indexes)
        io_loop.run_sync(partial(execute, database_url, f'DROP INDEX "{name}"'))


@pytest.fixture
def patterns_url(debian_cluster: Cluster, io_loop: Any) -> str:  # noqa: F811
    """A database on the PostgreSQL of the system, which has other collations than C, with users without indexes."""
    on_server(debian_cluster.url(), "DROP DATABASE IF EXISTS patterns WITH (FORCE)", "CREATE DATABASE patterns")
    url = debian_cluster.url("patterns")
    on_server(url, (BUILT_IN / "schema.sql").read_text(encoding="utf-8"))
    io_loop.run_sync(lambda: execute(url, *FILL))
    return url


def advised(capsys: pytest.CaptureFixture[str], url: str, operator: str, value: str) -> tuple[str, list[str]]:
    """Return the plans of a filter by e-mail, and the statements of the advised indexes."""
    sent = quote(json.dumps([{"name": "email", "op": operator, "val": value}]))
    plan, indexes = printed(capsys, f"/users?filter={sent}&page[size]=3", url)[1].split("\nindexes\n")
    return plan, re.findall(r"CREATE INDEX .*;", indexes)


@pytest.mark.parametrize(("collation", "is_needed"), [("und-x-icu", True), ("C", False)])
def test_the_index_for_a_beginning(
    patterns_url: str, capsys: pytest.CaptureFixture[str], io_loop: Any, collation: str, is_needed: bool
) -> None:
    """An index in the order of texts finds beginnings only in the order of C."""
    ordered = [f'ALTER TABLE users ALTER email TYPE text COLLATE "{collation}"', "CREATE INDEX ON users (email, id)"]
    io_loop.run_sync(lambda: execute(patterns_url, *ordered, "VACUUM ANALYZE users"))
    for operator, value in (("eq", "a77@b.c"), ("like", "%7%"), ("notlike", "a77%"), ("ilike", "%77%")):
        assert advised(capsys, patterns_url, operator, value)[1] == []
    plan, statements = advised(capsys, patterns_url, "startswith", "a77")
    assert advised(capsys, patterns_url, "like", "a77%b")[1] == statements
    if is_needed:
        [statement] = statements
        assert ' ("email" text_pattern_ops);' in statement
        io_loop.run_sync(lambda: execute(patterns_url, statement, "ANALYZE users"))
        plan, statements = advised(capsys, patterns_url, "startswith", "a77")
    assert ("Index Cond: ((email" in plan, statements) == (True, [])


def test_an_index_in_the_order_of_texts_finds_no_patterns(
    database_url: str, capsys: pytest.CaptureFixture[str], io_loop: Any
) -> None:
    io_loop.run_sync(lambda: execute(database_url, *FILL))
    for operator, value in (("ilike", "%77%"), ("notilike", "%777%"), ("match", "7{3}")):
        assert advised(capsys, database_url, operator, value)[1] == []
    assert "users_email_id_idx" in advised(capsys, database_url, "eq", "a77@b.c")[1][0]


def test_the_index_for_patterns(patterns_url: str, capsys: pytest.CaptureFixture[str], io_loop: Any) -> None:
    if "pg_trgm" not in available(patterns_url):
        pytest.skip("the system's PostgreSQL has no pg_trgm")
    patterns = (("ilike", "%A777%"), ("endswith", "777@b.c"), ("match", "a777"))
    found = [advised(capsys, patterns_url, *one)[1] for one in patterns]
    assert found[0] == found[1] == found[2]
    assert ' USING gin ("email" gin_trgm_ops);' in found[0][0]
    io_loop.run_sync(lambda: execute(patterns_url, "CREATE EXTENSION pg_trgm", *found[0], "ANALYZE users"))
    plan, statements = advised(capsys, patterns_url, "ilike", "%A777%")
    assert ("users_email_gin_trgm_idx" in plan, statements) == (True, [])
    near = "/users?nearTo[email]=a777@b.c&page[size]=3"
    indexes = printed(capsys, near, patterns_url)[1].split("\nindexes\n")[1]
    [statement] = re.findall(r"CREATE INDEX .*;", indexes)
    assert ' USING gist ("email" gist_trgm_ops);' in statement
    io_loop.run_sync(lambda: execute(patterns_url, statement, "ANALYZE users"))
    plan, indexes = printed(capsys, near, patterns_url)[1].split("\nindexes\n")
    assert ("users_email_gist_trgm_idx" in plan, "CREATE INDEX" in indexes) == (True, False)


def test_a_name_inside_json(database_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The plan names it, and a small table needs no index."""
    _, out, _ = printed(capsys, "/photos?filter[words.a.0][lt]=7&sort=-words.b", database_url)
    assert "        where     t0.words.a.0 lt a value of the request\n" in out
    assert "        order     t0.words.b descending, t0.id descending\n" in out
    assert out.endswith("No index that the declarations suggest would help.\n\n")


@pytest.mark.parametrize(
    ("url", "errors"),
    [
        ("/nothing", ["404 route_not_found: There is nothing at “/nothing”."]),
        ("/usres", ["404 route_not_found: There is nothing at “/usres”. Did you mean “/users”?"]),
        ("/users/x", ["404 resource_not_found: There is no user with the id “x”."]),
        (
            "/users?sort=nope&page[size]=x",
            [
                "400 invalid_page: Expected a whole number of at least 0, not “x”. (page[size])",
                "400 invalid_sort: There is no attribute “nope” in user to sort by.",
            ],
        ),
        ("/users/1?sort=age", ["400 invalid_parameter: "]),
    ],
)
def test_an_error_of_the_url(
    database_url: str, capsys: pytest.CaptureFixture[str], url: str, errors: list[str]
) -> None:
    """It is what the server would answer. Nothing is run."""
    code, out, err = printed(capsys, url, database_url)
    assert (code, out) == (1, "")
    found = [line for line in err.splitlines() if line.startswith("Error: ")]
    assert len(found) == len(errors)
    assert all(line.startswith(f"Error: {error}") for line, error in zip(found, errors, strict=True))


def test_a_path_of_another_database(database_url: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The paths are listed, and it says what to check. Without declarations of one's own, it says how to name them."""
    told = (
        "These are the built-in resources. Name the file of yours with --resources, or read the tables with --inspect."
    )
    assert printed(capsys, "/filmz", database_url)[2].splitlines()[1] == (
        "The paths are /users, /groups, /posts, /user-bio, /parents, /children, /parent-to-child-association, "
        f"/computers, /persons, /photos. {told}"
    )
    file = tmp_path / "film.py"
    file.write_text("from waterspout import Resource\nRESOURCES = [Resource('film', '/films', 'films')]\n")
    with pytest.raises(StartError) as raised:
        commands.explain(Settings(database_url=database_url, resources=str(file)), "/films")
    assert str(raised.value).splitlines() == [
        "the declarations do not fit the database:",
        "resource “film”: there is no table “films” in the database",
        "Check that database_url names their database. waterspout inspect prints declarations for the tables of "
        "another.",
    ]


def test_inspected_resources_are_compared_once(
    database_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were compared when they were made of the tables."""
    monkeypatch.setattr("server.startup.start.read_live_schema", None)
    assert commands.explain(Settings(database_url=database_url, inspect=True), "/users") == 0
    assert capsys.readouterr().err == ""


def test_a_row_that_is_not_there(database_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The stages are printed, and the error after them."""
    code, out, err = printed(capsys, "/users/1", database_url)
    assert (code, err) == (1, "Error: 404 resource_not_found: There is no user with the id “1”.\n")
    assert "statement 1 of 1: primary rows" in out


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("/operations", "/operations reads no resources"),
        ("/", "/ reads no resources"),
        ("users", "“users” is no URL of this server"),
        ("", "“” is no URL of this server"),
        ("ftp://host/users", "“ftp://host/users” is no URL of this server"),
    ],
)
def test_a_url_that_is_no_read(database_url: str, url: str, told: str) -> None:
    with pytest.raises(StartError) as raised:
        commands.explain(Settings(database_url=database_url), url)
    assert str(raised.value).startswith(told)


def test_a_function_is_not_explained(database_url: str) -> None:
    on_server(database_url, "CREATE FUNCTION grown() RETURNS SETOF users LANGUAGE sql STABLE AS 'SELECT * FROM users'")
    with pytest.raises(StartError, match=r"^/grown calls a function, which is not explained: name a collection, "):
        commands.explain(Settings(database_url=database_url, inspect=True), "/grown")
