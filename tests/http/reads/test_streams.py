"""Sections 3 and 4 of the decisions: a streamed answer without pages has the same content as a whole one."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from querybuild.declarations.catalog import Catalog
from querybuild.planning import planner
from server.execution import execute, streams
from server.postgres.connection import PostgresConnection
from server.resources import built_in
from tests.catalog import CATALOG
from tests.first_rows import set_first_rows
from tests.http.conftest import Answer, Api, Serve, Start
from tests.http.expected import error
from tests.http.reads.test_snapshot import agree
from tests.http.streams import create_many, reading, small_batches
from waterspout import INT, Attribute

__all__ = ["small_batches"]

BUILT_IN = [
    "/users?page[size]=0",
    "/users?page[limit]=0",
    "/users?page[size]=0&page[total]=none",
    "/users?page[size]=0&page[total]=estimated",
    "/users?page[size]=0&include=",
    "/users?page[size]=0&sort=-age,last_name",
    "/users?page[size]=0&sort=group.name,-id",
    "/users?page[size]=0&fields[user]=display_name,words",
    "/users?page[size]=0&fields[user]=&include=computers&fields[computer]=name",
    "/users?page[size]=0&include=computers",
    "/users?page[size]=0&include=bio,computers,group,posts",
    "/users?page[size]=0&filter[age][ge]=36&include=computers,group",
    "/users?page[size]=0&filter[group.name]=alpha&include=group",
    '/users?page[size]=0&filter=[{"name":"computers","op":"any","val":[]}]&include=computers',
    "/computers?page[size]=0&include=owner",
    "/computers?page[size]=0&include=owner.group&sort=-name",
    "/computers?page[size]=0&filter[serial][like]=A&include=owner.bio,owner.posts",
    "/parents?page[size]=0&include=children.child",
    "/groups/1/users?page[size]=0&include=computers",
    "/groups/1/users?page[size]=0&sort=-first_name&filter[age][gt]=1",
    "/groups/2/relationships/users?page[size]=0",
    "/users/1/relationships/posts?page[size]=0&include=posts",
    "/users/2/relationships/computers?page[size]=0&include=computers.owner.group",
    "/persons?page[size]=0&sort=-name",
]
CORNERS = [
    "/articles?page[size]=0&include=tags",
    "/articles?page[size]=0&include=author,tags&sort=-title",
    "/articles?page[size]=0&filter[tags.name]=xy&include=tags",
    "/tags?page[size]=0&include=articles",
    "/tags?page[size]=0&filter[articles.pages][gt]=3&include=articles.author",
    "/tags/2/articles?page[size]=0&include=author",
    "/tags/2/relationships/articles?page[size]=0&include=articles.editor",
    "/articles/a%2F1%20%22%25/tags?page[size]=0&include=articles",
    "/authors?page[size]=0&include=articles,profile,desk",
    "/nodes?page[size]=0",
]
TWICE = [
    "/users?page[size]=0&include=group.users.computers",
    "/users?page[size]=0&filter[age][lt]=50&include=group.users.computers",
    "/users?page[size]=0&filter[age][lt]=50&include=computers.owner.group,posts.user.bio",
    "/computers?page[size]=0&filter[id][lt]=4&include=owner.computers.owner,owner.group.users",
    "/posts?page[size]=0&include=user.posts.user",
    "/groups/1/users?page[size]=0&include=group.users.bio",
    "/users?page[size]=0&include=group.users.computers,computers",
    "/users?page[size]=0&include=computers.owner.computers,group.users",
    "/users?page[size]=0&filter[age][lt]=50&include=group.users.computers,posts",
    "/users?page[size]=0&filter[age][lt]=50&include=group.users.group,computers.owner.bio",
    "/users?page[size]=0&include=posts.user.group,bio.user.computers",
    "/users?page[size]=0&fields[user]=posts&include=group.users.computers,posts",
    "/users/1/relationships/posts?page[size]=0&include=posts.user.posts",
    "/groups/1/relationships/users?page[size]=0&include=users.group.users",
    "/parents?page[size]=0&include=children.child.parents",
]
TWICE_CORNERS = [
    "/articles?page[size]=0&include=author,editor",
    "/articles?page[size]=0&include=author.articles.tags,editor.edited",
    "/articles?page[size]=0&filter[pages][gt]=2&include=tags.articles.author",
    "/nodes?page[size]=0&filter[weight]=1&include=parent.children,children",
    "/nodes?page[size]=0&filter[parent][isnot]=null&include=parent,children",
    "/authors?page[size]=0&include=articles.editor.profile,edited.author.desk",
    "/nodes?page[size]=0&include=parent.children",
    "/nodes?page[size]=0&include=parent.parent.children",
    "/nodes?page[size]=0&include=children.children",
    "/nodes?page[size]=0&include=children.parent.children",
    "/nodes?page[size]=0&filter[title][ne]=own&include=children.children.parent",
    "/articles?page[size]=0&include=tags.articles.tags",
    "/articles?page[size]=0&include=author.articles.editor,editor",
]


@pytest.fixture
def stream_api(serve: Serve, rows_url: str, small_batches: None) -> Api:
    return serve(rows_url)


@pytest.fixture
def stream_corners(serve: Serve, corner_rows_url: str, small_batches: None) -> Api:
    return serve(corner_rows_url, CATALOG)


async def both(api: Api, path: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Answer, Answer]:
    """Return the whole answer, and the streamed one."""
    set_first_rows(monkeypatch, 1000, api.app.engine)
    whole = await api.get(path)
    set_first_rows(monkeypatch, 1, api.app.engine)
    streamed = await api.get(path)
    assert (whole.status, streamed.status) == (200, 200)
    assert "Content-Length" in whole.headers
    assert "Content-Length" not in streamed.headers
    assert streamed.headers["Content-Type"] == whole.headers["Content-Type"]
    return whole, streamed


def by_key(resources: list[Any]) -> dict[tuple[str, str], Any]:
    found = {(one["type"], one["id"]): one for one in resources}
    assert len(found) == len(resources)
    return found


async def is_the_same(api: Api, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, streamed = (answer.document for answer in await both(api, path, monkeypatch))
    included = whole.pop("included", None), streamed.pop("included", None)
    assert streamed == whole
    assert (included[0] is None) == (included[1] is None)
    assert by_key(included[0] or []) == by_key(included[1] or [])


async def is_fully_linked(api: Api, path: str) -> None:
    """Linkage in a stream only names resources of its document, and every included resource is named."""
    document = (await api.get(path)).document
    resources = [*document["data"], *document["included"]]
    held = {(one["type"], one["id"]) for one in resources}
    assert linked(resources) <= held
    assert is_linked(document) or "fields[" in path
    agree(document)


def linked(resources: list[Any]) -> set[tuple[str, str]]:
    """Return the linkage of these resources."""
    relations = [relation for one in resources for relation in one.get("relationships", {}).values()]
    linkage = [relation["data"] for relation in relations if relation.get("data") is not None]
    named = [one for data in linkage for one in (data if isinstance(data, list) else [data])]
    return {(one["type"], one["id"]) for one in named}


def is_linked(document: Any) -> bool:
    """Return whether everything included is identified, by the primary data or by other included resources."""
    named = linked([*document["data"], *document["included"]])
    primary = [one for one in document["data"] if "links" not in one]
    return by_key(document["included"]).keys() <= named | {(one["type"], one["id"]) for one in primary}


@pytest.mark.parametrize("path", BUILT_IN)
async def test_a_stream_equals_the_whole_answer(stream_api: Api, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    await is_the_same(stream_api, path, monkeypatch)


@pytest.mark.parametrize("path", CORNERS)
async def test_a_stream_equals_the_whole_answer_for_other_resources(
    stream_corners: Api, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    await is_the_same(stream_corners, path, monkeypatch)


@pytest.mark.parametrize("path", TWICE)
async def test_linkage_of_a_type_at_several_places(stream_api: Api, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    await is_the_same(stream_api, path, monkeypatch)
    await is_fully_linked(stream_api, path)


@pytest.mark.parametrize("path", TWICE_CORNERS)
async def test_linkage_of_a_type_at_several_places_for_other_resources(
    stream_corners: Api, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    await is_the_same(stream_corners, path, monkeypatch)
    await is_fully_linked(stream_corners, path)


@pytest.mark.parametrize("path", [path for path in BUILT_IN if "include=" in path and "relationships" not in path])
async def test_every_included_resource_is_linked(stream_api: Api, path: str) -> None:
    answer = await stream_api.get(path)
    assert is_linked(answer.document) or "fields[user]=&" in path


async def test_included_is_in_the_order_of_type_and_id(api: Api, small_batches: None) -> None:
    await create_many(api, users=15, computers=30)
    answer = await api.get("/users?page[size]=0&sort=-id&include=group,computers")
    keys = [(one["type"], int(one["id"])) for one in answer.document["included"]]
    assert answer.ids == [str(number) for number in range(15, 0, -1)]
    assert keys == sorted(keys)
    assert len(keys) == 30 + 10


async def test_a_small_answer_is_not_streamed(reader: Api) -> None:
    """It equals a page of this size byte for byte, except its links."""
    whole = await reader.get("/users?page[size]=0&include=computers")
    page = await reader.get("/users?page[size]=6&include=computers")
    assert whole.headers["Content-Length"] == str(len(whole.body))
    assert whole.body.partition(b'"links":{"self":"/users?')[0] == page.body.partition(b'"links":{"self":"/users?')[0]


async def test_answers_over_the_first_rows_are_streamed(api: Api) -> None:
    await api.sql("INSERT INTO persons (name) SELECT 'p' FROM generate_series(1, $1)", planner.FIRST_ROWS)
    whole = await api.get("/persons?page[size]=0")
    await api.sql("INSERT INTO persons (name) VALUES ('p')")
    streamed = await api.get("/persons?page[size]=0")
    assert ("Content-Length" in whole.headers, "Content-Length" in streamed.headers) == (True, False)
    counts = [answer.document["meta"]["count"] for answer in (whole, streamed)]
    assert counts == [len(whole.ids), len(streamed.ids)] == [planner.FIRST_ROWS, planner.FIRST_ROWS + 1]


async def test_a_few_rows_with_many_included_resources(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are streamed, too, because included resources take memory."""
    monkeypatch.setattr(execute, "FIRST_INCLUDED", 20)
    await create_many(api, users=20)
    whole = await api.get("/groups?page[size]=0&include=users")
    await api.sql("INSERT INTO users (first_name, last_name, group_id) VALUES ('a', 'b', 1)")
    streamed = await api.get("/groups?page[size]=0&include=users")
    assert ("Content-Length" in whole.headers, "Content-Length" in streamed.headers) == (True, False)
    assert [len(answer.document["included"]) for answer in (whole, streamed)] == [20, 21]
    assert streamed.ids == whole.ids


@pytest.mark.parametrize("rows", [2, 3, 4, 5, 6])
async def test_the_last_batch_may_be_full_or_not(api: Api, small_batches: None, rows: int) -> None:
    await create_many(api, users=rows, computers=rows)
    answer = await api.get("/users?page[size]=0&include=computers")
    assert "Content-Length" not in answer.headers
    assert answer.ids == [str(number) for number in range(1, rows + 1)]
    assert answer.document["meta"] == {"count": rows, "total": rows, "totalPages": 1}
    assert len(answer.document["included"]) == rows


async def test_much_linkage_is_read_in_parts(api: Api, small_batches: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """No batch is much larger than others, however many rows it has."""
    monkeypatch.setattr(streams, "BATCH_ROWS", 100)
    monkeypatch.setattr(streams, "BATCH_LINKAGE", 10)
    await create_many(api, users=60, computers=300)
    shown: list[int] = []
    fetch = PostgresConnection.fetch_at_most

    async def counted(connection: Any, sql: str, *values: Any) -> Any:
        rows = await fetch(connection, sql, *values)
        if "ANY($1)" in sql:
            shown.append(len(rows))
        return rows

    monkeypatch.setattr(PostgresConnection, "fetch_at_most", counted)
    answer = await api.get("/users?page[size]=0&include=computers")
    # The first part is a guess.
    assert (sum(shown), max(shown[1:])) == (300, 10)
    assert len(answer.document["included"]) == 300


async def test_one_snapshot(api: Api, small_batches: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes between two batches do not appear in any part of the answer."""
    await create_many(api, users=9, computers=18)
    path = "/users?page[size]=0&include=computers,group"
    before = (await api.get(path)).document
    send = streams.PartReader.next

    async def written_between(reader: streams.PartReader) -> bytes:
        piece = await send(reader)
        await api.sql("UPDATE computers SET name = name || '!', owner_id = 10 - owner_id")
        await api.sql("INSERT INTO users (first_name, last_name, group_id) VALUES ('new', 'new', 1)")
        await api.sql("UPDATE groups SET name = name || '!'")
        return piece

    monkeypatch.setattr(streams.PartReader, "next", written_between)
    during = (await api.get(path)).document
    monkeypatch.setattr(streams.PartReader, "next", send)
    assert during == before
    assert (await api.get(path)).document != before


async def test_computed_attributes(start: Start, rows_url: str, small_batches: None) -> None:
    batches: list[int] = []

    def lengths(names: Any) -> list[int]:
        batches.append(len(names))
        return [len(name) for (name,) in names]

    shout = Attribute("letters", INT, of=("first_name",), compute=lengths)
    known = [replace(one, attributes=(*one.attributes, shout)) if one.type == "user" else one for one in built_in()]
    api = await start(rows_url, Catalog(known))
    answer = await api.get("/users?page[size]=0&fields[user]=letters&sort=id")
    assert [one["attributes"] for one in answer.document["data"]] == [{"letters": n} for n in (3, 4, 5, 4, 4, 3)]
    # The first two statements find that there are too many rows for a whole answer.
    assert batches == [2, 2, 2]
    included = await api.get("/computers?page[size]=0&fields[user]=letters&include=owner")
    assert [one["attributes"] for one in included.document["included"]] == [{"letters": n} for n in (3, 4, 4)]


async def test_head(api: Api, small_batches: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only headers, and no rows beyond those that determine them."""
    await create_many(api, users=9, computers=9)
    read: list[int] = []
    following = streams.PartReader.next

    async def counted(reader: streams.PartReader) -> bytes:
        read.append(1)
        return await following(reader)

    monkeypatch.setattr(streams.PartReader, "next", counted)
    async with reading(api.port) as reader:
        status, headers = await reader.ask("/users?page[size]=0&include=computers", "HEAD")
        assert (status, len(read)) == (200, 1)
        assert not [line for line in headers if line.startswith("Content-Length")]
        # There is no body: the next bytes are the next answer.
        status, _ = await reader.ask("/groups/1", "HEAD")
        assert status == 200


async def test_http_1_0(api: Api, small_batches: None) -> None:
    """Without chunks. The end of the connection is the end of the answer, even if the client wants to keep it."""
    await create_many(api, users=9)
    expected = (await api.get("/users?page[size]=0")).body
    async with reading(api.port) as reader:
        status, headers = await reader.ask("/users?page[size]=0", "GET", "1.0", "Connection: keep-alive")
        assert (status, await reader.rest()) == (200, expected)
        assert [line for line in headers if line.startswith(("Connection", "Transfer-Encoding"))] == [
            "Connection: close"
        ]


async def test_the_connection_is_kept_after_a_stream(api: Api, small_batches: None) -> None:
    await create_many(api, users=9)
    async with reading(api.port) as reader:
        for _ in range(3):
            assert (await reader.ask("/users?page[size]=0"))[0] == 200
            body, is_whole = await reader.chunks()
            assert is_whole
            assert body == (await api.get("/users?page[size]=0")).body


async def test_more_than_a_hundred_thousand_rows(api: Api) -> None:
    """The document is valid."""
    await create_many(api, users=20_000, computers=90_000)
    answer = await api.get("/users?page[size]=0&include=computers&fields[user]=computers&fields[computer]=name")
    document = answer.document
    assert answer.ids == [str(number) for number in range(1, 20_001)]
    assert [one["id"] for one in document["included"]] == [str(number) for number in range(1, 90_001)]
    assert document["meta"] == {"count": 20_000, "total": 20_000, "totalPages": 1}
    assert list(document) == ["jsonapi", "data", "included", "links", "meta"]


# errors before the first byte


async def test_a_value_that_postgresql_refuses(api: Api, small_batches: None) -> None:
    await create_many(api, users=9)
    answer = await api.get("/users?page[size]=0&filter[first_name][match]=(")
    detail = "PostgreSQL refuses a value of the filter: a regular expression is not valid."
    expected = error(400, "value_refused", "Value Refused", detail, parameter="filter[first_name][match]")
    assert (answer.status, answer.errors) == (400, [expected])


async def test_too_many_rows(start: Start, database_url: str, small_batches: None) -> None:
    api = await start(database_url, built_in(), unpaginated=8)
    await create_many(api, users=8)
    assert (await api.get("/users?page[size]=0")).status == 200
    await api.sql("INSERT INTO users (first_name, last_name) VALUES ('a', 'b')")
    for parameter in ("page[size]", "page[limit]"):
        answer = await api.get(f"/users?{parameter}=0")
        detail = "There are more than 8 resources: ask for pages."
        assert (answer.status, answer.errors) == (
            400,
            [error(400, "too_many_rows", "Too Many Rows", detail, parameter=parameter)],
        )
    assert (await api.get("/users?page[size]=0&filter[first_name]=a")).ids == ["9"]


TOO_MANY = error(
    400,
    "too_many_included",
    "Too Many Included Resources",
    "The answer would include too many resources: ask for a smaller page or include less.",
    parameter="include",
)


@pytest.mark.parametrize(
    ("path", "count"),
    [
        ("/users?page[size]=0&include=computers", 12),
        ("/users?page[size]=0&include=computers,group", 18),
        ("/users?page[size]=0&filter[id][gt]=3&include=computers", 6),
        ("/users?page[size]=0&include=computers.owner", 12),
        ("/computers?page[size]=0&include=owner.group", 12),
        ("/computers?page[size]=0&filter[id][gt]=2&include=owner.computers", 8),
        ("/groups/1/relationships/users?page[size]=0&include=users", 6),
    ],
)
async def test_too_many_included(start: Start, database_url: str, small_batches: None, path: str, count: int) -> None:
    exact = await start(database_url, built_in(), max_included=count)
    fewer = await start(database_url, built_in(), max_included=count - 1)
    await create_many(exact, users=6, computers=12)
    if path.startswith("/groups"):
        await exact.sql("UPDATE users SET group_id = 1")
    if "owner.computers" in path:
        await exact.sql("UPDATE computers SET owner_id = 1 WHERE id < 5")
    answer = await exact.get(path)
    assert (answer.status, len(answer.document["included"])) == (200, count)
    refused = await fewer.get(path)
    assert (refused.status, refused.errors) == (400, [TOO_MANY])
    head = await fewer.request("HEAD", path)
    assert head.status == 400


async def test_a_missing_parent(api: Api, small_batches: None) -> None:
    assert (await api.get("/groups/7/users?page[size]=0")).status == 404
