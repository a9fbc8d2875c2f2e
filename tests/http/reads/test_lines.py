"""Lists as CSV and as NDJSON."""

from __future__ import annotations

import csv
import io
import json

import asyncpg
import pytest

from server.http.negotiation import JSON_API
from server.resources import built_in
from tests.http.conftest import Answer, Api, Start
from tests.http.streams import create_many, small_batches
from tests.lines import read_csv

__all__ = ["small_batches"]

USERS = 30
FIELDS = "fields[user]=first_name,age,group"
CSV = "text/csv; charset=utf-8; header=present"


async def ask(api: Api, path: str, accept: str = "text/csv", **headers: str) -> Answer:
    return await api.request("GET", path, headers={"Accept": accept, **headers})


def lines(answer: Answer) -> list[list[str]]:
    assert (answer.status, answer.headers["Content-Type"]) == (200, CSV), answer.body
    return list(csv.reader(io.StringIO(answer.body.decode(), newline="")))


async def expected(api: Api, path: str) -> list[list[str]]:
    """Return the lines of what the same list shows as JSON:API."""
    shown = (await api.get(f"{path}&include=group")).document["data"]
    rows = [
        [one["id"], *map(str, one["attributes"].values()), one["relationships"]["group"]["data"]["id"]] for one in shown
    ]
    return [["id", "first_name", "age", "group.id"], *rows]


@pytest.mark.parametrize("path", ["/users?page[size]=7&sort=-age", "/users?page[size]=0&sort=-id", "/groups/3/users?"])
async def test_a_list(api: Api, path: str) -> None:
    """It is the same as a page and as a whole list without pages."""
    await create_many(api, USERS, 2 * USERS)
    path += f"&{FIELDS}"
    assert lines(await ask(api, path)) == await expected(api, path)


async def test_without_a_page_there_are_all_rows(api: Api) -> None:
    await create_many(api, 100)
    assert lines(await ask(api, f"/users?{FIELDS}")) == await expected(api, f"/users?{FIELDS}&page[size]=0")


@pytest.mark.parametrize("path", ["/users?", "/users?page[size]=0&sort=-age&", "/groups/3/users?"])
async def test_a_stream(api: Api, small_batches: None, path: str) -> None:
    await create_many(api, USERS, 2 * USERS)
    answer = await ask(api, f"{path}{FIELDS}")
    assert "Content-Length" not in answer.headers
    whole = path if "page" in path else f"{path}page[size]=0&"
    assert lines(answer) == await expected(api, f"{whole}{FIELDS}")


async def test_a_stream_of_ndjson(api: Api, small_batches: None) -> None:
    await create_many(api, USERS, 2 * USERS)
    answer = await ask(api, "/users", "application/x-ndjson")
    shown = (await api.get("/users?page[size]=0&include=group,bio")).document["data"]
    found = [json.loads(line) for line in answer.body.decode().splitlines()]
    for one, line in zip(shown, found, strict=True):
        linkage = {name: {"data": one["relationships"][name]["data"]} for name in ("bio", "group")}
        assert line == {
            "type": "user",
            "id": one["id"],
            "attributes": one["attributes"],
            "relationships": linkage,
        }


async def test_a_long_page(api: Api) -> None:
    """It is encoded in steps."""
    await create_many(api, 6000)
    path = f"/users?page[size]=6000&{FIELDS}"
    found = lines(await ask(api, path))
    assert len(found) == 6001
    assert found == await expected(api, path)


async def test_a_list_without_rows_has_its_head(api: Api) -> None:
    answer = await ask(api, f"/users?{FIELDS}")
    assert (answer.status, answer.body) == (200, b"id,first_name,age,group.id\r\n")
    answer = await ask(api, "/users", "application/x-ndjson")
    assert (answer.status, answer.body) == (200, b"")


async def test_columns_are_in_the_order_of_fields(api: Api) -> None:
    await create_many(api, 1)
    answer = await ask(api, "/users?fields[user]=group,computers,age,first_name,age")
    assert answer.body == b'id,group.id,age,first_name\r\n1,2,1,"first 1"\r\n'
    assert (await ask(api, "/users?fields[user]=")).body == b"id\r\n1\r\n"


async def test_a_to_one_whose_key_is_in_the_other_row(api: Api) -> None:
    await create_many(api, 3)
    await api.sql("INSERT INTO user_bios (id, user_id, birth_city) VALUES (7, 2, 'Rome')")
    answer = await ask(api, "/users?fields[user]=bio&sort=id")
    assert answer.body == b"id,bio.id\r\n1,\r\n2,7\r\n3,\r\n"


ODD = [
    "",
    "a,b",
    'say "no"',
    "two\nlines",
    "two\r\nlines",
    "\\.",
    "=1+1",
    "-5",
    "'=x",
    "''=x",
    "'x",
    "＝1",
    "\t",
    " a ",
]


async def names_of(api: Api, path: str, *, is_safe: bool) -> list[str | None]:
    answer = await ask(api, path)
    return [line["name"] for line in read_csv(answer.body.decode(), is_safe=is_safe)]


async def test_odd_texts(api: Api) -> None:
    """Each is read back as it was, also beside plain texts only."""
    for name in ODD:
        await api.sql("INSERT INTO groups (name) VALUES ($1)", name)
    assert await names_of(api, "/groups?fields[group]=name&sort=id", is_safe=True) == ODD
    for number, name in enumerate(ODD, 1):
        path = f'/groups?fields[group]=name&filter=[{{"name":"id","op":"eq","val":"{number}"}}]'
        assert await names_of(api, path, is_safe=True) == [name]
    shown = await names_of(api, "/groups?fields[group]=name&sort=id", is_safe=False)
    marked = ["'=1+1", "'-5", "''=x", "'''=x", "'＝1", "'\t"]
    assert [name for name in shown if name not in ODD] == [one for one in marked if one not in ODD]


async def test_odd_texts_without_marks_for_formulas(start: Start, database_url: str) -> None:
    api = await start(database_url, built_in(), csv_safe=False)
    for name in ODD:
        await api.sql("INSERT INTO groups (name) VALUES ($1)", name)
    assert await names_of(api, "/groups?fields[group]=name&sort=id", is_safe=False) == ODD


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        ("text/csv", CSV),
        ("application/x-ndjson", "application/x-ndjson"),
        ("text/csv;q=0.5, application/x-ndjson", "application/x-ndjson"),
        ("text/*", JSON_API.name),
        ("application/vnd.api+json, text/csv", JSON_API.name),
        ("application/json, text/csv", JSON_API.name),
        ("application/vnd.api+json;q=0.5, text/csv", CSV),
        ('application/vnd.api+json;foo="1";q=0.5, text/csv', CSV),
        ("text/csv;q=0.5, */*", JSON_API.name),
        ("text/csv, */*;q=0.1", CSV),
        ("text/csv;q=0", JSON_API.name),
        ("text/csv;q=2", JSON_API.name),
        ("*/*", JSON_API.name),
    ],
)
async def test_what_accept_prefers(api: Api, accept: str, media_type: str) -> None:
    assert (await ask(api, "/users", accept)).headers["Content-Type"] == media_type


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/users?answerAs=csv", "users.csv"),
        ("/users?answerAs=ndjson&sort=id", "users.ndjson"),
        ("/users?sort=id&answerAs=json", None),
        ("/groups/1/users?answerAs=csv", "users.csv"),
        ("/users", None),
    ],
)
async def test_answer_as_comes_before_accept(api: Api, path: str, name: str | None) -> None:
    """A link cannot choose what a client accepts. What it asks for is saved as a file."""
    await create_many(api, 1)
    answer = await ask(api, path, "*/*")
    assert answer.headers.get("Content-Disposition") == (None if name is None else f'attachment; filename="{name}"')
    if "answerAs=json" in path:
        assert (await ask(api, path)).headers["Content-Type"] == JSON_API.name


@pytest.mark.parametrize("path", ["/users/1", "/users/1/group", "/users/1/relationships/computers", "/users?sort=a"])
async def test_where_there_are_no_lines(api: Api, path: str) -> None:
    """Also for errors."""
    assert (await ask(api, path)).headers["Content-Type"] == JSON_API.name


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("include=group", "include"),
        ("includePage[computers][size]=1", "includePage[computers][size]"),
        ("page[size]=1&page[total]=exact", "page[total]"),
        ("page[total]=none", "page[total]"),
        ("answerAs=xls", "answerAs"),
        ("answerAs=csv&answerAs=json", "answerAs"),
        ("answerAs[a]=csv", "answerAs[a]"),
        ("answeras=csv", "answeras"),
    ],
)
async def test_what_lines_cannot_show(api: Api, query: str, parameter: str) -> None:
    answer = await ask(api, f"/users?{query}")
    assert answer.status == 400
    assert {error["source"]["parameter"] for error in answer.errors} == {parameter}


GROUPS = "groupBy=group.name,age&aggregateAs[n]=count()&aggregateAs[mean]=avg(age)&aggregateAs[last]=max(first_name)"


@pytest.mark.parametrize("path", ["/users", "/groups/3/users"])
async def test_groups(api: Api, path: str) -> None:
    await create_many(api, USERS)
    await api.sql("UPDATE users SET age = NULL WHERE id % 4 = 0")
    await api.sql("UPDATE groups SET name = '=a' WHERE id = 3")
    await api.sql("UPDATE users SET first_name = '=a' WHERE id % 5 = 0")
    for query, size in ((f"{GROUPS}&sort=-n", None), ("aggregateAs[n]=count()", None), (f"{GROUPS}&sort=mean", 2)):
        shown = (await api.get(f"{path}?page[size]=1000&{query}")).document["meta"]["groups"][:size]
        asked = f"{path}?{query}" + (f"&page[size]={size}" if size else "")
        head, *rest = lines(await ask(api, asked))
        assert head == [*shown[0]["by"], *[name for name in shown[0] if name != "by"]]
        assert rest == [
            [csv_text(value) for value in (*group.pop("by").values(), *group.values())]
            for group in [dict(group) for group in shown]
        ]
        answer = await ask(api, asked, "application/x-ndjson")
        assert [json.loads(line) for line in answer.body.splitlines()] == shown


def csv_text(value: object) -> str:
    return "" if value is None else "'=a" if value == "=a" else str(value)


async def test_more_groups_than_a_page_has(start: Start, database_url: str) -> None:
    api = await start(database_url, built_in(), max_groups=5)
    await create_many(api, 6)
    answer = await ask(api, "/users?groupBy=id")
    assert (answer.status, answer.errors[0]["source"]) == (400, {"parameter": "page[size]"})
    assert "more than 5 groups" in answer.errors[0]["detail"]
    assert len(lines(await ask(api, "/users?groupBy=id&page[size]=5"))) == 6
    assert len(lines(await ask(api, "/users?groupBy=id&page[size]=5&page[number]=2"))) == 2
    await api.sql("DELETE FROM users WHERE id = 1")
    assert len(lines(await ask(api, "/users?groupBy=id"))) == 6


@pytest.mark.parametrize("path", ["/users/1?answerAs=csv", "/users/1/relationships/computers?answerAs=ndjson"])
async def test_other_routes_have_no_lines(api: Api, path: str) -> None:
    await create_many(api, 1)
    answer = await api.get(path)
    assert (answer.status, answer.headers["Content-Type"]) == (200, JSON_API.name)


async def test_a_server_that_only_has_pages(start: Start, database_url: str) -> None:
    api = await start(database_url, built_in(), unpaginated="off")
    await create_many(api, 3)
    answer = await ask(api, "/users")
    assert (answer.status, answer.errors[0]["source"]) == (400, {"parameter": "page[size]"})
    assert len(lines(await ask(api, "/users?page[size]=2"))) == 3


async def test_the_nearest_rows(api: Api) -> None:
    """They are a page, whose lines of NDJSON have the distance."""
    await create_many(api, 50)
    answer = await ask(api, "/users?nearTo[age]=20&page[size]=2&fields[user]=age")
    assert lines(answer) == [["id", "age"], ["20", "20"], ["19", "19"]]
    answer = await ask(api, "/users?nearTo[age]=20&page[size]=2&fields[user]=age", "application/x-ndjson")
    assert [json.loads(line)["meta"]["distance"] for line in answer.body.splitlines()] == [0, 1]


async def test_postgresql_reads_what_the_server_writes(start: Start, database_url: str) -> None:
    """COPY tells null from an empty text."""
    api = await start(database_url, built_in(), csv_safe=False)
    for name in ("", "a,b", 'say "no"', "\r\n", "\\."):
        await api.sql("INSERT INTO groups (name) VALUES ($1)", name)
    await api.sql("INSERT INTO users (first_name, last_name, group_id) VALUES ('a', 'x', NULL), ('a,b', 'y', 2)")
    connection = await asyncpg.connect(api.database_url)
    try:
        for path, columns in (("/groups?fields[group]=name", "id,name"), ("/users?fields[user]=first_name,group", "")):
            answer = await ask(api, path)
            await connection.execute(
                "DROP TABLE IF EXISTS copied; CREATE TABLE copied (id text, name text, other text)"
            )
            names = columns.split(",") if columns else ["id", "name", "other"]
            await connection.copy_to_table(
                "copied", source=io.BytesIO(answer.body), columns=names, format="csv", header=True
            )
            copied = await connection.fetch("SELECT * FROM copied ORDER BY id::int")
            table = ("SELECT id, name, NULL" if columns else "SELECT id, first_name, group_id") + (
                " FROM groups" if columns else " FROM users"
            )
            real = await connection.fetch(f"{table} ORDER BY id")
            assert [[row[0], row[1], row[2]] for row in copied] == [
                [str(row[0]), row[1], None if row[2] is None else str(row[2])] for row in real
            ]
    finally:
        await connection.close()
