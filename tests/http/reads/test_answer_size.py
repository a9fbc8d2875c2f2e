"""Section 10 of the decisions: an answer has at most `max_answer_bytes`, and a stream reads at most as much at a
time."""

from __future__ import annotations

from typing import Any

import pytest
from tornado.ioloop import IOLoop

from server.resources import built_in
from tests.http.conftest import Api, Start
from tests.http.expected import error
from tests.http.streams import reading

ATOMIC = 'application/vnd.api+json;ext="https://jsonapi.org/ext/atomic"'
MOST = 65_536
LESS = (
    f"The answer would have more than {MOST} bytes: ask for a smaller page, for fewer fields (`fields[type]`), "
    "or include less."
)

ROWS = """
    INSERT INTO groups (name) VALUES ('g');
    INSERT INTO users (first_name, last_name, group_id) SELECT 'f' || n, 'l', 1 FROM generate_series(1, 40) n;
    INSERT INTO posts (title, body, user_id) SELECT 't' || n, repeat('b', 4000), n FROM generate_series(1, 40) n;
    INSERT INTO computers (name, owner_id) SELECT 'c', 1 FROM generate_series(1, 3000) n;
    INSERT INTO posts (title, body, user_id) VALUES ('long', repeat('b', 70000), 1)
"""


@pytest.fixture
def sized(io_loop: IOLoop, start: Start, database_url: str) -> Api:
    return io_loop.run_sync(lambda: start(database_url, built_in(), max_answer_bytes=MOST))


async def fill(api: Api) -> None:
    for statement in ROWS.split(";"):
        await api.sql(statement)


def too_large(parameter: str | None = None) -> Any:
    source = {} if parameter is None else {"parameter": parameter}
    return error(400, "answer_too_large", "Answer Too Large", LESS, **source)


@pytest.mark.parametrize(
    ("path", "parameter"),
    [
        ("/posts", "page[size]"),
        ("/posts?page[limit]=30", "page[limit]"),
        ("/posts?page[after]=", "page[size]"),
        ("/posts?page[size]=1000&sort=-id&page[total]=none", "page[size]"),
        ("/users?include=posts", "page[size]"),
        ("/users?include=posts,bio", "page[size]"),
        ("/users/1?include=posts", "include"),
        ("/users/1?include=computers", "include"),
        ("/posts/41", None),
        ("/users/1/posts", "page[size]"),
        ("/users/1/relationships/computers?page[size]=3000", "page[size]"),
        ("/users/1/relationships/posts?include=posts", "page[size]"),
    ],
)
async def test_reads_that_are_too_large(sized: Api, path: str, parameter: str | None) -> None:
    await fill(sized)
    answer = await sized.get(path)
    assert (answer.status, answer.errors) == (400, [too_large(parameter)])


@pytest.mark.parametrize(
    "path",
    [
        "/posts?page[size]=10",
        "/posts?page[size]=100&fields[post]=title",
        "/users?include=posts&page[size]=5&page[number]=2",
        "/users/1/relationships/computers?page[size]=1000",
    ],
)
async def test_the_requests_that_the_error_suggests_succeed(sized: Api, path: str) -> None:
    await fill(sized)
    assert (await sized.get(path)).status == 200


async def test_the_connection_is_kept_after_a_too_large_read(sized: Api) -> None:
    """The statement is cancelled."""
    await fill(sized)
    sessions = (
        "SELECT array_agg(pid ORDER BY pid) FROM pg_stat_activity "
        "WHERE application_name='waterspout' AND datname=current_database()"
    )
    assert (await sized.get("/groups")).status == 200
    before = await sized.sql(sessions)
    for _ in range(5):
        assert (await sized.get("/posts")).status == 400
        assert (await sized.get("/groups")).status == 200
    assert await sized.sql(sessions) == before


LONG = {"type": "post", "attributes": {"title": "t", "body": "b" * 70_000}}
USER = {"data": {"type": "user", "id": "1"}}


@pytest.mark.parametrize(
    ("method", "path", "data"),
    [
        ("POST", "/posts", LONG | {"relationships": {"user": USER}}),
        ("POST", "/users/1/posts", LONG),
        ("PATCH", "/posts/41", {"type": "post", "id": "41", "attributes": {"title": "other"}}),
        ("PATCH", "/posts/1", {"type": "post", "id": "1", "attributes": {"body": "b" * 70_000}}),
        ("PATCH", "/users/1?include=posts", {"type": "user", "id": "1", "attributes": {"last_name": "other"}}),
        ("PATCH", "/posts/41/user?include=posts", {"type": "user", "id": "1", "attributes": {"last_name": "other"}}),
        (
            "PATCH",
            "/groups/1/relationships/users?include=users.computers",
            [{"type": "user", "id": str(number)} for number in range(40, 0, -1)],
        ),
        # Each byte becomes six in the answer.
        ("PATCH", "/posts/1", {"type": "post", "id": "1", "attributes": {"body": "\u0001" * 20_000}}),
    ],
)
async def test_a_write_whose_answer_is_too_large_is_rolled_back(sized: Api, method: str, path: str, data: Any) -> None:
    await fill(sized)
    before = await rows_of(sized)
    answer = await sized.request(method, path, {"data": data})
    assert (answer.status, answer.errors) == (400, [too_large()])
    assert await rows_of(sized) == before
    assert (await sized.get("/groups")).status == 200


async def rows_of(api: Api) -> list[Any]:
    tables = ("users", "posts", "groups")
    return [await api.sql(f"SELECT {table}::text FROM {table} ORDER BY id") for table in tables]


async def test_operations_whose_results_are_too_large_are_rolled_back(sized: Api) -> None:
    await fill(sized)
    before = await rows_of(sized)
    short = {"type": "post", "attributes": {"title": "t", "body": "b" * 30_000}, "relationships": {"user": USER}}
    for count in (3, 20):
        adds = [{"op": "add", "data": short}] * count
        answer = await sized.request(
            "POST", "/operations", {"atomic:operations": adds}, headers={"Content-Type": ATOMIC}
        )
        assert (answer.status, [one["code"] for one in answer.errors]) == (400, ["answer_too_large"])
        assert await rows_of(sized) == before


@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize(
    "path", ["/posts?page[size]=0", "/users?page[size]=0&include=posts", "/posts?page[limit]=0&sort=-id"]
)
async def test_all_rows_are_streamed_if_they_are_too_large_for_one_answer(
    io_loop: IOLoop, sized: Api, path: str, compression: str | None
) -> None:
    await fill(sized)
    await sized.sql("DELETE FROM posts WHERE title='long'")
    answer = await sized.get(path, **({} if compression is None else {"Accept-Encoding": compression}))
    document = answer.document
    posts = document["data"] if path.startswith("/posts") else document["included"]
    assert answer.status == 200
    assert "Content-Length" not in answer.headers
    assert sorted(int(one["id"]) for one in posts) == list(range(1, 41))
    assert {len(one["attributes"]["body"]) for one in posts} == {4000}


@pytest.mark.parametrize("narrow", [0, 1, 249, 250, 251, 1000])
async def test_a_stream_reads_fewer_rows_at_a_time_if_they_are_large(sized: Api, narrow: int) -> None:
    """A batch that is too large is read again. Each row is shown once, in its place."""
    await fill(sized)
    await sized.sql("DELETE FROM posts")
    await sized.sql("INSERT INTO posts (title, body, user_id) SELECT 'n', '', 1 FROM generate_series(1, $1)", narrow)
    wide = "INSERT INTO posts (title, body, user_id) SELECT 'w', repeat('b', $1), 1 FROM generate_series(1, 20)"
    for size in (10_000, 40_000, 1):
        await sized.sql(wide, size)
    answer = await sized.get("/posts?page[size]=0")
    sizes = [len(one["attributes"]["body"]) for one in answer.document["data"]]
    assert sizes == [0] * narrow + [10_000] * 20 + [40_000] * 20 + [1] * 20
    assert answer.ids == sorted(answer.ids, key=int)


async def test_a_resource_that_is_too_large_for_a_stream(sized: Api) -> None:
    await fill(sized)
    answer = await sized.get("/posts?page[size]=0&sort=-id")
    assert (answer.status, answer.errors) == (400, [too_large()])
    async with reading(sized.port) as reader:
        assert (await reader.ask("/posts?page[size]=0"))[0] == 200
        body, is_whole = await reader.chunks()
    assert (body.count(b'"type":"post"'), is_whole) == (40, False)
    assert (await sized.get("/groups")).status == 200
