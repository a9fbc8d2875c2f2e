"""`waterspout explain`: its statements are those that the server sends, and what it prints."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest

from querybuild.errors import Unauthenticated
from querybuild.principal import ANONYMOUS, Principal
from server import commands
from server.explaining.asked import read_url
from server.explaining.running import Explained, explain_read
from server.postgres.connection import Connection
from server.postgres.database import open_alone
from server.postgres.row_security.roles import Roles
from server.resources import built_in
from server.settings import Settings, StartError
from tests.first_rows import set_first_rows
from tests.http.conftest import Api, Sent, Start
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


async def explained_by(api: Api, url: str) -> Explained:
    engine = api.app.engine
    connection = await open_alone(api.database_url, engine.settings)
    try:
        connection.on_open(api.app.database.telemetry)
        asked = read_url(url, engine, engine.context_of(ANONYMOUS))
        return await explain_read(connection, asked, engine)
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


async def test_nothing_is_left_of_it(start: Start, database_url: str) -> None:
    """Its transaction is read-only and rolled back, and its settings end with it."""
    api = await start(database_url, built_in())
    connection: Connection = await open_alone(api.database_url, api.app.engine.settings)
    connection.on_open(api.app.database.telemetry)
    asked = read_url("/users", api.app.engine, api.app.engine.context_of(ANONYMOUS))
    before = await connection.fetchval("SHOW statement_timeout")
    await explain_read(connection, asked, api.app.engine)
    assert not connection.is_in_transaction()
    assert await connection.fetchval("SHOW statement_timeout") == before
    await connection.close()


async def test_row_security(shop: Shop) -> None:
    """The statements run with the role and the claims of the principal, and PostgreSQL's plans have the policies."""
    engine = shop.api.app.engine
    connection = await open_alone(shop.api.database_url, engine.settings)
    connection.on_open(shop.api.app.database.telemetry)
    asked = read_url("/posts", engine, engine.context_of(ANONYMOUS))
    for principal, policy in ((ANONYMOUS, "Filter: published"), (Principal(subject=ANN, claims=CLAIMS), "author_id")):
        role = Roles(engine.settings).of(principal)
        explained = await explain_read(connection, asked, engine, role)
        assert explained.error is None
        assert policy in "\n".join(explained.statements[0].plan)
        assert await connection.fetchval("SELECT current_user") == "authenticator"
    role = Roles(engine.settings).of(ANONYMOUS)
    notes = await explain_read(connection, read_url("/notes", engine, engine.context_of(ANONYMOUS)), engine, role)
    assert type(notes.error) is Unauthenticated
    assert [one.plan for one in notes.statements] == [
        ("PostgreSQL refuses this statement: permission denied for schema private",)
    ]
    await connection.close()


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
    assert ("consider  public.users (age, id): " in indexes, "CREATE INDEX CONCURRENTLY" in indexes) == (
        is_helped,
        is_helped,
    )


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
    found = err.splitlines()
    assert len(found) == len(errors)
    assert all(line.startswith(f"Error: {error}") for line, error in zip(found, errors, strict=True))


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
        ("users", "users is no URL of this server"),
        ("ftp://host/users", "ftp://host/users is no URL of this server"),
    ],
)
def test_a_url_that_is_no_read(database_url: str, url: str, told: str) -> None:
    with pytest.raises(StartError) as raised:
        commands.explain(Settings(database_url=database_url), url)
    assert str(raised.value).startswith(told)
