"""Section 6, relationship routes: POST adds, DELETE removes, PATCH replaces, wherever the key is.

The result of each write is compared with a model: a set of pairs (owner, target)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import asyncpg
import msgspec
import pytest

from server.resources import built_in
from tests.catalog import CATALOG
from tests.http.conftest import MEDIA_TYPE, Api, Sent, Serve, Start
from tests.http.people import create_household, of, one, select
from tests.http.reads.test_snapshot import Between, between, writer
from tests.http.transport.test_response_schema import faults, public_api

__all__ = ["between", "public_api"]

CREATED = {"jsonapi": {"version": "1.0"}, "meta": {"message": "Relationship successfully created"}}
REMOVED = {"jsonapi": {"version": "1.0"}, "meta": {"message": "Relationship successfully updated"}}
ROOT, TWIG, LEAF, SEED = (f"00000000-0000-0000-0000-00000000000{digit}" for digit in "abcd")

ROWS = f"""
INSERT INTO authors (given, family) VALUES ('Ann', 'A'), ('Bob', 'B'), ('Cid', 'C');
INSERT INTO corner.profiles (motto, author_no) VALUES ('go', 1), ('stay', 2);
INSERT INTO corner.desks (room, author_no) VALUES ('east', 1), ('west', 2), ('attic', NULL);
INSERT INTO corner.articles (id, title, author_id, editor_id) VALUES
    ('a', 't', 1, 1), ('b', 't', 1, NULL), ('c/2 "%', 't', 2, 2), ('d', 't', 2, NULL);
INSERT INTO tags (name) VALUES ('x'), ('y'), ('z'), ('w');
INSERT INTO corner.article_tags VALUES ('a', 1), ('b', 2);
INSERT INTO corner.nodes (id, "Mixed Case", parent_id) VALUES
    ('{ROOT}', 'root', NULL), ('{TWIG}', 'twig', '{ROOT}'), ('{LEAF}', 'leaf', '{TWIG}'), ('{SEED}', 'seed', NULL);
INSERT INTO corner.entries (line) VALUES ('x');
"""

Pairs = set[tuple[str, str]]


@pytest.fixture
def corners(serve: Serve, corner_url: str) -> Api:
    return serve(corner_url, CATALOG)


async def fill(api: Api) -> None:
    connection = await asyncpg.connect(api.database_url)
    try:
        await connection.execute(ROWS)
    finally:
        await connection.close()


def linkage(data: Any) -> dict[str, Any]:
    return {"data": data}


class Kind(msgspec.Struct, frozen=True):
    """A kind of relationship, by the place of its key. path: that of its owners. owner: the one that is written. ids:
    four targets in their order. links: all its links as texts. is_exclusive: whether a target has at most one owner."""

    path: str
    owner: str
    name: str
    target: str
    ids: tuple[str, ...]
    links: str
    is_exclusive: bool

    @property
    def route(self) -> str:
        return f"{self.path}/{quote(self.owner, safe='')}/relationships/{self.name}"

    async def pairs(self, api: Api) -> Pairs:
        return {(row[0], row[1]) for row in await api.sql(self.links)}


ARTICLES = ("a", "b", 'c/2 "%', "d")
COMPUTERS = Kind(
    "/users",
    "1",
    "computers",
    "computer",
    ("1", "2", "3", "4"),
    "SELECT owner_id::text, id::text FROM computers WHERE owner_id IS NOT NULL",
    True,
)
EDITED = Kind(
    "/authors",
    "1",
    "edited",
    "article",
    ARTICLES,
    "SELECT editor_id::text, id FROM corner.articles WHERE editor_id IS NOT NULL",
    True,
)
CHILDREN = Kind(
    "/nodes",
    TWIG,
    "children",
    "node",
    (ROOT, TWIG, LEAF, SEED),
    "SELECT parent_id::text, id::text FROM corner.nodes WHERE parent_id IS NOT NULL",
    True,
)
TAGS = Kind(
    "/articles",
    "a",
    "tags",
    "tag",
    ("1", "2", "3", "4"),
    "SELECT article_id, tag_id::text FROM corner.article_tags",
    False,
)
TAGGED = Kind(
    "/tags",
    "1",
    "articles",
    "article",
    ARTICLES,
    "SELECT tag_id::text, article_id FROM corner.article_tags",
    False,
)
TO_MANY = [EDITED, CHILDREN, TAGS, TAGGED]

STEPS = [
    ("POST", [0, 1]),
    ("POST", [0, 1]),
    ("POST", [2, 1, 2]),
    ("POST", []),
    ("DELETE", [0]),
    ("DELETE", [0]),
    ("DELETE", [3, 1, 3]),
    ("DELETE", []),
    ("PATCH", [3, 0, 3]),
    ("PATCH", [0, 3]),
    ("PATCH", [1, 0]),
    ("PATCH", []),
    ("PATCH", []),
    ("DELETE", [0, 1, 2, 3]),
    ("PATCH", [2]),
    ("POST", [3, 2, 1, 0]),
]
"""Methods, each with the targets that it names, of four. Each method occurs twice in a row."""


def after(kind: Kind, pairs: Pairs, owner: str, method: str, ids: Sequence[str]) -> Pairs:
    """Return the model: all links of the kind after a write."""
    named = {(owner, target) for target in ids}
    if method == "DELETE":
        return pairs - named
    kept = {pair for pair in pairs if method == "POST" or pair[0] != owner}
    taken = {pair for pair in kept if kind.is_exclusive and pair[1] in ids}
    return (kept - taken) | named


async def check_steps(api: Api, kind: Kind) -> None:
    pairs = await kind.pairs(api)
    for method, places in STEPS:
        ids = [kind.ids[place] for place in places]
        answer = await api.request(method, kind.route, linkage(of(kind.target, *ids)))
        pairs = after(kind, pairs, kind.owner, method, ids)
        assert answer.status == 200, (method, ids, answer.body)
        assert "Location" not in answer.headers
        assert await kind.pairs(api) == pairs, (method, ids)
        shown = (await api.get(kind.route)).document
        assert shown["data"] == of(kind.target, *sorted(target for owner, target in pairs if owner == kind.owner))
        if method == "PATCH":
            shown["meta"]["message"] = "Relationship successfully updated"
            assert answer.document == shown
        else:
            assert answer.document == (CREATED if method == "POST" else REMOVED)


@pytest.mark.parametrize("kind", TO_MANY, ids=lambda kind: kind.name)
async def test_a_to_many(corners: Api, kind: Kind) -> None:
    await fill(corners)
    await check_steps(corners, kind)


async def test_a_built_in_to_many(api: Api) -> None:
    await create_household(api)
    await check_steps(api, COMPUTERS)


async def test_the_whole_answer_of_a_replacement(api: Api) -> None:
    await create_household(api)
    path = "/users/1/relationships/computers"
    answer = await api.patch(path, linkage(of("computer", "4", 2)))
    assert (answer.status, answer.headers["Content-Type"]) == (200, MEDIA_TYPE)
    assert answer.document == {
        "jsonapi": {"version": "1.0"},
        "data": of("computer", "2", "4"),
        "links": {
            "self": path,
            "first": f"{path}?page%5Bnumber%5D=1",
            "last": f"{path}?page%5Bnumber%5D=1",
            "related": "/users/1/computers",
        },
        "meta": {"message": "Relationship successfully updated", "count": 2, "total": 2, "totalPages": 1},
    }


REPLACEMENTS = (["4", "2"], ["2", "4"], ["2"], ["2", "3"])
"""Of the computers of user 1, who has 1 and 2 first."""


async def test_a_replacement_updates_only_links_that_change(api: Api) -> None:
    await create_household(api)
    path, versions = "/users/1/relationships/computers", "SELECT id, ctid FROM computers"
    rows, changed = set(await select(api, versions)), []
    for ids in REPLACEMENTS:
        answer = await api.patch(path, linkage(of("computer", *ids)))
        assert answer.document["data"] == of("computer", *sorted(ids))
        before, rows = rows, set(await select(api, versions))
        changed.append(len(rows - before))
    assert changed == [2, 0, 1, 1]


async def test_a_trigger_for_statements_sees_only_those_that_change_links(start: Start, database_url: str) -> None:
    """The server reads at its start that there is one."""
    connection = await asyncpg.connect(database_url)
    await connection.execute(
        """CREATE TABLE log (event text);
        CREATE FUNCTION log() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO log VALUES (TG_OP); RETURN NULL;
        END $$;
        CREATE TRIGGER log AFTER UPDATE ON computers FOR EACH STATEMENT EXECUTE FUNCTION log()"""
    )
    await connection.close()
    api = await start(database_url, built_in())
    await create_household(api)
    seen, logged = 0, []
    for ids in REPLACEMENTS:
        answer = await api.patch("/users/1/relationships/computers", linkage(of("computer", *ids)))
        assert answer.document["data"] == of("computer", *sorted(ids))
        [(count,)] = await select(api, "SELECT count(*) FROM log")
        logged.append(count - seen)
        seen = count
    assert logged == [2, 0, 1, 1]


@pytest.mark.parametrize("table", ["computers", "users"])
async def test_links_are_written_after_a_migration_changed_a_type(api: Api, table: str) -> None:
    """What the driver knows of its statements is stale: nothing that it repeats may be taken for the whole write."""
    await create_household(api)
    path = "/users/1/relationships/computers"
    assert (await api.patch(path, linkage(of("computer", "1")))).status == 200
    await api.sql(f"ALTER TABLE {table} ALTER COLUMN id TYPE integer")
    assert (await api.patch(path, linkage(of("computer", "2", "3")))).document["data"] == of("computer", "2", "3")
    assert await select(api, "SELECT id FROM computers WHERE owner_id = 1 ORDER BY id") == [(2,), (3,)]
    assert (await api.request("POST", path, linkage(of("computer", "4")))).status == 200
    assert (await api.request("DELETE", path, linkage(of("computer", "2")))).status == 200
    assert await select(api, "SELECT id FROM computers WHERE owner_id = 1 ORDER BY id") == [(3,), (4,)]


async def test_required_links_can_be_added_and_kept(api: Api) -> None:
    """Posts need a user: they move to another one, and are sent again together with existing ones."""
    await create_household(api)
    path = "/users/2/relationships/posts"
    for method, ids, owners in (
        ("POST", ["1"], [(1, 2), (2, 1)]),
        ("PATCH", ["1"], [(1, 2), (2, 1)]),
        ("PATCH", ["2", "1"], [(1, 2), (2, 2)]),
        ("DELETE", [], [(1, 2), (2, 2)]),
        ("DELETE", ["77"], [(1, 2), (2, 2)]),
    ):
        answer = await api.request(method, path, linkage(of("post", *ids)))
        assert answer.status == 200, answer.body
        assert await select(api, "SELECT id, user_id FROM posts ORDER BY id") == owners
    answer = await api.delete("/users/1/relationships/posts", linkage(of("post", "1", "2")))
    assert (answer.status, answer.document) == (200, REMOVED)
    assert await select(api, "SELECT id, user_id FROM posts ORDER BY id") == [(1, 2), (2, 2)]


class Single(msgspec.Struct, frozen=True):
    """A to-one. steps: the documents that are sent, and the links after each."""

    route: str
    target: str
    links: str
    steps: tuple[tuple[str | None, list[tuple[Any, ...]]], ...]


DESKS = "SELECT id, author_no FROM corner.desks ORDER BY id"
SINGLES = [
    # the key in the row itself
    Single(
        "/articles/a/relationships/editor",
        "author",
        "SELECT id, editor_id FROM corner.articles WHERE id < 'c' ORDER BY id",
        (
            ("2", [("a", 2), ("b", None)]),
            ("2", [("a", 2), ("b", None)]),
            (None, [("a", None), ("b", None)]),
            (None, [("a", None), ("b", None)]),
            ("1", [("a", 1), ("b", None)]),
        ),
    ),
    Single(
        "/articles/c%2F2%20%22%25/relationships/author",
        "author",
        "SELECT author_id FROM corner.articles WHERE starts_with(id, 'c')",
        (("3", [(3,)]), ("3", [(3,)]), ("2", [(2,)])),
    ),
    Single(
        f"/nodes/{SEED}/relationships/parent",
        "node",
        f"SELECT parent_id::text FROM corner.nodes WHERE id = '{SEED}'",
        ((SEED, [(SEED,)]), (LEAF, [(LEAF,)]), (None, [(None,)])),
    ),
    # the key in the related row, nullable
    Single(
        "/authors/1/relationships/desk",
        "desk",
        DESKS,
        (
            ("1", [(1, 1), (2, 2), (3, None)]),
            ("2", [(1, None), (2, 1), (3, None)]),
            ("3", [(1, None), (2, None), (3, 1)]),
            (None, [(1, None), (2, None), (3, None)]),
            (None, [(1, None), (2, None), (3, None)]),
            ("1", [(1, 1), (2, None), (3, None)]),
        ),
    ),
    # the key in the related row, not nullable
    Single(
        "/authors/3/relationships/profile",
        "profile",
        "SELECT id, author_no FROM corner.profiles ORDER BY id",
        ((None, [(1, 1), (2, 2)]), ("2", [(1, 1), (2, 3)]), ("2", [(1, 1), (2, 3)])),
    ),
]


@pytest.mark.parametrize("single", SINGLES, ids=lambda single: single.route)
async def test_a_to_one(corners: Api, single: Single) -> None:
    await fill(corners)
    for sent, left in single.steps:
        data = None if sent is None else one(single.target, sent)
        answer = await corners.patch(single.route, linkage(data))
        assert answer.status == 200, answer.body
        assert await select(corners, single.links) == left, sent
        shown = (await corners.get(single.route)).document
        assert shown["data"] == data
        assert answer.document == shown | {"meta": {"message": "Relationship successfully updated"}}


async def test_a_reverse_to_one_moves(api: Api) -> None:
    await create_household(api)
    await api.create("/users", "user", {"first_name": "Cy", "last_name": "Byron"})
    answer = await api.patch("/users/3/relationships/bio", linkage(one("user_bio", "2")))
    assert answer.document == {
        "jsonapi": {"version": "1.0"},
        "data": one("user_bio", "2"),
        "links": {"self": "/users/3/relationships/bio", "related": "/users/3/bio"},
        "meta": {"message": "Relationship successfully updated"},
    }
    assert await select(api, "SELECT id, user_id FROM user_bios ORDER BY id") == [(1, 1), (2, 3)]
    assert (await api.get("/users/2/relationships/bio")).document["data"] is None


async def test_only_the_link_is_written(api: Api) -> None:
    await create_household(api)
    before = (await api.get("/users/1?include=computers,posts,bio&fields[user]=age,words,computers,posts,bio")).document
    await api.patch("/users/1/relationships/group", linkage(None))
    await api.delete("/users/1/relationships/computers", linkage(of("computer", "1")))
    await api.post("/users/1/relationships/computers", linkage(of("computer", "1")))
    found = (await api.get("/users/1?include=computers,posts,bio&fields[user]=age,words,computers,posts,bio")).document
    assert found == before


# the answer's form


async def test_pages_includes_and_fieldsets_of_a_replacement(api: Api) -> None:
    await create_household(api)
    path = "/users/1/relationships/computers"
    query = "include=computers.owner&page%5Bsize%5D=1&page%5Bnumber%5D=2&fields%5Bcomputer%5D=name&fields%5Buser%5D="
    answer = await api.patch(f"{path}?{query}", linkage(of("computer", "3", "4", "2")))
    assert (answer.status, answer.document["data"]) == (200, of("computer", "3"))
    assert answer.document["meta"] == {
        "message": "Relationship successfully updated",
        "count": 1,
        "total": 3,
        "totalPages": 3,
    }
    found = (await api.get(f"{path}?{query}")).document
    assert {**answer.document, "meta": None} == {**found, "meta": None}
    assert [(item["type"], item["id"]) for item in found["included"]] == [("computer", "3"), ("user", "1")]


@pytest.mark.parametrize(
    ("path", "sent", "included"),
    [
        ("/users/1/relationships/group?include=group&fields[group]=name", one("group", "1"), [("group", "1")]),
        ("/users/1/relationships/group?include=group", None, []),
        ("/users/1/relationships/bio?include=bio.user&fields[user]=", one("user_bio", "1"), ["user_bio", "user"]),
        ("/users/1/relationships/computers?include=", [], []),
        ("/users/2/relationships/posts?include=posts.user", of("post", "1"), ["post", "user"]),
    ],
)
async def test_include_on_the_answer(api: Api, path: str, sent: Any, included: list[Any]) -> None:
    await create_household(api)
    answer = await api.patch(path, linkage(sent))
    assert (answer.status, answer.document["data"]) == (200, sent)
    shown = [(item["type"], item["id"]) for item in answer.document["included"]]
    assert [
        name[0] if isinstance(given, str) else name for name, given in zip(shown, included, strict=True)
    ] == included
    found = (await api.get(path)).document
    assert {**answer.document, "meta": None} == {**found, "meta": None}


async def test_an_empty_page_of_a_replacement(api: Api) -> None:
    await create_household(api)
    answer = await api.patch("/users/1/relationships/computers?page[number]=9", linkage(of("computer", "4")))
    assert (answer.status, answer.document["data"]) == (200, [])
    assert answer.document["meta"]["total"] == 1
    assert await COMPUTERS.pairs(api) == {("1", "4"), ("2", "3")}


async def test_the_answer_to_a_replacement_is_one_snapshot(corners: Api, between: Between) -> None:
    """Between each two statements of the request in turn, another client changes the editor of every article. Both
    sides of the relationship show the editor."""
    await fill(corners)
    await corners.sql("UPDATE corner.articles SET editor_id = 1, author_id = 1")
    turn_round = "UPDATE corner.articles SET editor_id = CASE WHEN editor_id = 1 THEN 2 ELSE 1 END"
    path = "/tags/1/relationships/articles?include=articles.editor,articles.author.edited"
    async with writer(corners) as connection:
        for place in itertools.count(1):
            between.arm(place, lambda: connection.execute(turn_round))
            answer = await corners.patch(path, linkage(of("article", "a", "b")))
            assert answer.status == 200, answer.body
            shown = {(item["type"], item["id"]): item["relationships"] for item in answer.document["included"]}
            edited = {item["id"] for item in shown["author", "1"]["edited"]["data"]}
            by_first = {id_text for id_text in ("a", "b") if shown["article", id_text]["editor"]["data"]["id"] == "1"}
            assert edited & {"a", "b"} == by_first, place
            if between.count <= place:
                break


@pytest.mark.parametrize(
    ("method", "path", "sent"),
    [
        ("POST", "computers", of("computer", "4")),
        ("DELETE", "computers", of("computer", "4")),
        ("PATCH", "computers?include=computers.owner&page[size]=1", of("computer", "4", "1")),
        ("PATCH", "computers", []),
        ("PATCH", "group", None),
        ("PATCH", "bio?include=bio", one("user_bio", "1")),
        ("POST", "computers", of("computer", "77")),
        ("PATCH", "posts", []),
    ],
)
async def test_answers_fit_the_official_schema(public_api: Api, method: str, path: str, sent: Any) -> None:
    await create_household(public_api)
    answer = await public_api.request(method, f"/users/1/relationships/{path}", linkage(sent))
    assert faults(answer.document) == []


# how many statements


@pytest.fixture
def logged(sent: Sent, serve: Serve, corner_url: str) -> Api:
    return serve(corner_url, CATALOG)


ID_COUNT = 2000
THOUSANDS = f"""
INSERT INTO corner.articles (id, title, author_id) SELECT 'n' || n, 't', 1 FROM generate_series(1, {ID_COUNT}) n;
INSERT INTO tags (id, name) SELECT n + 10, 'n' || n FROM generate_series(1, {ID_COUNT}) n;
INSERT INTO corner.nodes (id, "Mixed Case")
    SELECT ('00000000-0000-0000-0000-' || lpad(n::text, 12, '0'))::uuid, 't' FROM generate_series(1, {ID_COUNT}) n;
"""
MANY_IDS = {
    "article": [f"n{number}" for number in range(1, ID_COUNT + 1)],
    "tag": [str(number + 10) for number in range(1, ID_COUNT + 1)],
    "node": [f"00000000-0000-0000-0000-{number:012}" for number in range(1, ID_COUNT + 1)],
}


@pytest.mark.parametrize("kind", TO_MANY, ids=lambda kind: kind.name)
async def test_a_thousand_links_need_as_many_statements_as_a_hundred(logged: Api, sent: Sent, kind: Kind) -> None:
    """The same SQL text, for an addition, for replacements of all and some, and for a removal. Fewer links than a page
    has need one less: the page tells the version of the linkage."""
    await fill(logged)
    for statement in THOUSANDS.split(";\n")[:-1]:
        await logged.sql(statement)
    few, many = [await statements_of_links(logged, sent, kind, count) for count in (100, 1000)]
    assert few == many
    assert all(3 <= len(statements) <= 11 for statements in many), many


async def statements_of_links(api: Api, sent: Sent, kind: Kind, count: int) -> list[Sent]:
    ids = MANY_IDS[kind.target]
    first, second = ids[:count], ids[count : 2 * count]
    await api.patch(kind.route, linkage([]))
    told = []
    for method, named in (
        ("POST", first),
        ("POST", first),
        ("PATCH", second),
        ("PATCH", [*first[1:], *second[:1]]),
        ("DELETE", [*first, *second]),
        ("PATCH", first),
        ("PATCH", []),
    ):
        before = await kind.pairs(api)
        sent.clear()
        answer = await api.request(method, kind.route, linkage(of(kind.target, *named)))
        told.append(list(sent))
        assert answer.status == 200, answer.body
        assert await kind.pairs(api) == after(kind, before, kind.owner, method, named)
    return told
