"""A rule of the whole catalog: a column of every table, also of link tables, says for whom a row is. The answers to a
principal are those of a server whose database has no rows of others. Rows of others stay as they are."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import asyncpg
import msgspec
import pytest
from tornado.ioloop import IOLoop

from querybuild.declarations.access import SUBJECT, Allow, Claim, SignedIn
from querybuild.declarations.catalog import Everywhere
from querybuild.declarations.resource import Link, Resource, ToMany, ToOne
from querybuild.declarations.types import BIGINT, INT, JSON, TEXT
from server.settings import Settings
from tests.conftest import on_server
from tests.first_rows import set_first_rows
from tests.http.conftest import Answer, Api, Start, live_schema
from tests.http.operating import add
from tests.http.people import linked, of, one
from tests.http.writes.test_preconditions import operations
from tests.principals import HEADER, principal, trust_headers
from waterspout import Attribute, Catalog, CatalogError

TABLES = """
DROP SCHEMA public CASCADE; CREATE SCHEMA public;
CREATE TABLE authors (tenant bigint NOT NULL, id bigint PRIMARY KEY, name text NOT NULL,
    editor_id bigint REFERENCES authors);
CREATE TABLE posts (tenant bigint NOT NULL, id bigint PRIMARY KEY, title text NOT NULL,
    author_id bigint REFERENCES authors, note text);
CREATE TABLE tags (tenant bigint NOT NULL, id bigint PRIMARY KEY, name text NOT NULL);
CREATE TABLE post_tags (tenant bigint NOT NULL, post_id bigint REFERENCES posts ON DELETE CASCADE, tag_id bigint
    REFERENCES tags ON DELETE CASCADE, PRIMARY KEY (tenant, post_id, tag_id));
CREATE TABLE colours (id bigserial PRIMARY KEY, name text NOT NULL);
"""
MINE = """
INSERT INTO authors VALUES (1, 1, 'ann', NULL), (1, 2, 'bob', 1), (1, 3, 'cid', NULL);
INSERT INTO posts VALUES (1, 1, 'a', 1), (1, 2, 'b', 1), (1, 3, 'c', 2), (1, 4, 'd', NULL);
INSERT INTO tags VALUES (1, 1, 'x'), (1, 2, 'y'), (1, 3, 'z');
INSERT INTO post_tags VALUES (1, 1, 1), (1, 1, 2), (1, 2, 1);
INSERT INTO colours VALUES (1, 'red');
"""
OTHERS = """
INSERT INTO authors VALUES (2, 101, 'ann', NULL), (2, 102, 'dan', 1);
INSERT INTO posts VALUES (2, 101, 'a', 101), (2, 102, 'e', 1), (2, 103, 'f', 2);
INSERT INTO tags VALUES (2, 101, 'x'), (2, 102, 'w');
INSERT INTO post_tags VALUES (2, 101, 101), (2, 1, 3), (2, 2, 2), (2, 3, 1), (2, 3, 101), (2, 102, 1);
UPDATE authors SET editor_id = 101 WHERE id = 3;
"""
"""Rows of another tenant. Some refer to rows of the first, or link two of them, and a row of the first refers to one of
these."""
OWN_KEY = "UPDATE authors SET editor_id = NULL WHERE id = 3"

LINK = Link("post_tags", "post_id", "tag_id")
AUTHOR = Resource(
    *("author", "/authors", "authors"),
    attributes=(Attribute("name", TEXT, required=True),),
    relationships=(
        ToOne("editor", "author"),
        ToMany("posts", "post", foreign_key="author_id"),
        ToMany("edits", "author", foreign_key="editor_id"),
    ),
    client_ids=True,
)
POST = Resource(
    *("post", "/posts", "posts"),
    attributes=(Attribute("title", TEXT, required=True), Attribute("note", TEXT, nullable=True)),
    relationships=(ToOne("author", "author"), ToMany("tags", "tag", through=LINK)),
    client_ids=True,
)
TAG = Resource(
    *("tag", "/tags", "tags"),
    attributes=(Attribute("name", TEXT, required=True),),
    relationships=(ToMany("posts", "post", through=Link("post_tags", "tag_id", "post_id")),),
    client_ids=True,
)
COLOUR = Resource("colour", "/colours", "colours", attributes=(Attribute("name", TEXT, required=True),))
TENANT = Attribute("tenant", BIGINT)
EVERYWHERE = Everywhere(TENANT, Claim("org"), without=frozenset({"colours"}))
ME = principal("ann", org=1)


def catalog(*rules: Allow) -> Catalog:
    """Return the resources with these rules. Otherwise everybody who is signed in may do everything."""
    access = rules or (Allow(SignedIn(), "all"),)
    resources = [msgspec.structs.replace(one, access=access) for one in (AUTHOR, POST, TAG, COLOUR)]
    return Catalog(resources, [EVERYWHERE])


class Twins:
    """Two servers: one over the rows of two tenants, and one over those of the first alone."""

    def __init__(self, both: Api, alone: Api) -> None:
        self.both = both
        self.alone = alone

    async def same(self, method: str, path: str, body: Any = None) -> Answer:
        """Return the answer of both servers, which is the same byte for byte."""
        headers = {HEADER: ME, "X-Request-Id": "the-same"}
        one, other = [await api.request(method, path, body, headers=headers) for api in (self.both, self.alone)]
        assert (one.status, one.body) == (other.status, other.body), path
        return one


@pytest.fixture
def twins(io_loop: IOLoop, start: Start, database_url: str, corner_url: str, monkeypatch: pytest.MonkeyPatch) -> Twins:
    set_first_rows(monkeypatch, 2)
    on_server(database_url, TABLES + MINE + OTHERS)
    on_server(corner_url, TABLES + MINE + OWN_KEY)

    async def served() -> Twins:
        apis = [await start(url, catalog()) for url in (database_url, corner_url)]
        for api in apis:
            trust_headers(api.app.engine)
        return Twins(*apis)

    return io_loop.run_sync(served)


async def execute(url: str, *statements: str) -> None:
    connection = await asyncpg.connect(url)
    for statement in statements:
        await connection.execute(statement)
    await connection.close()


def filtered(path: str, tree: Any) -> str:
    return f"{path}?filter={quote(json.dumps(tree))}"


def name(name: str, op: str, val: Any) -> list[Any]:
    return [{"name": name, "op": op, "val": val}]


READS = [
    "/authors",
    "/authors?include=posts.tags,editor,edits&sort=-name",
    "/authors?include=posts&page[size]=2&sort=editor.name,id",
    "/authors?page[size]=0",
    "/authors?page[size]=0&include=posts.tags.posts,editor",
    "/authors?page[total]=estimated",
    "/authors?page[size]=1&page[after]=&sort=name",
    "/authors/3?include=editor",
    "/authors/101",
    "/authors/1/posts",
    "/authors/101/posts",
    "/authors/1/edits",
    "/authors/3/editor",
    "/authors/3/relationships/editor",
    "/authors/1/relationships/edits",
    "/posts/1/tags",
    "/posts/3/tags?include=posts",
    "/posts/2/relationships/tags",
    "/posts/1/tags?page[size]=0",
    "/posts/101/tags",
    "/tags/1/posts?page[size]=0&include=author",
    "/tags/1/relationships/posts?include=posts",
    "/tags?include=posts.author",
    "/tags?page[size]=0&include=posts",
    "/colours",
    "/authors?filter[editor]=101",
    "/posts?filter[tags.name]=z",
    filtered("/posts", name("tags", "any", {"name": "name", "op": "eq", "val": "z"})),
    filtered("/posts", name("tags", "any", {"name": "name", "op": "eq", "val": "x"})),
    filtered("/tags", [{"not": {"name": "posts", "op": "any", "val": {"name": "id", "op": "gt", "val": 0}}}]),
    filtered("/authors", name("posts", "any", {"name": "title", "op": "in_", "val": ["e", "f"]})),
    filtered("/authors", name("editor", "has", {"name": "name", "op": "eq", "val": "ann"})),
]


@pytest.mark.parametrize("path", READS)
async def test_reads(twins: Twins, path: str) -> None:
    answer = await twins.same("GET", path)
    assert answer.status in (200, 400) if "101" not in path else answer.status in (200, 404)
    assert b'"101"' not in answer.body or answer.status == 404


def to_many(kind: str, *ids: str) -> dict[str, Any]:
    return {"data": [{"type": kind, "id": one} for one in ids]}


WRITES: list[tuple[str, str, Any]] = [
    ("PATCH", "/authors/1", {"data": {"type": "author", "id": "1", "attributes": {"name": "x"}}}),
    ("PATCH", "/authors/101", {"data": {"type": "author", "id": "101", "attributes": {"name": "x"}}}),
    ("DELETE", "/posts/4", None),
    ("DELETE", "/posts/101", None),
    ("POST", "/authors", {"data": {"type": "author", "id": "7", "attributes": {"name": "x"}}}),
    (
        "POST",
        "/posts",
        {
            "data": {
                **{"type": "post", "id": "7", "attributes": {"title": "t"}},
                "relationships": linked(author=one("author", "1"), tags=of("tag", "1", "3")),
            }
        },
    ),
    ("POST", "/authors/1/posts", {"data": {"type": "post", "id": "8", "attributes": {"title": "t"}}}),
    ("POST", "/tags/2/posts", {"data": {"type": "post", "id": "9", "attributes": {"title": "t"}}}),
    ("POST", "/posts/1/relationships/tags", to_many("tag", "3")),
    ("POST", "/posts/1/relationships/tags", to_many("tag", "101")),
    ("PATCH", "/posts/1/relationships/tags", to_many("tag", "3", "2")),
    ("PATCH", "/posts/1/relationships/tags", to_many("tag")),
    ("DELETE", "/posts/2/relationships/tags", to_many("tag", "2", "1")),
    ("PATCH", "/tags/1/relationships/posts", to_many("post", "3")),
    ("PATCH", "/authors/2/relationships/editor", {"data": {"type": "author", "id": "101"}}),
    ("PATCH", "/authors/2/relationships/editor", {"data": {"type": "author", "id": "3"}}),
    ("PATCH", "/authors/1/relationships/posts", to_many("post", "3", "4")),
    ("PATCH", "/authors/1/relationships/posts", to_many("post", "101")),
    ("POST", "/authors/1/relationships/edits", to_many("author", "3")),
    (
        "POST",
        "/operations",
        operations(
            *[add("author", {"name": f"n{number}"}, id=str(20 + number)) for number in range(12)],
            add("post", {"title": "t"}, id="30", relationships=linked(tags=[{"type": "tag", "id": "1"}])),
        ),
    ),
    (
        "POST",
        "/operations",
        operations(*[add("tag", {"name": f"n{number}"}, id=str(40 + number)) for number in range(3)]),
    ),
]
ROWS = [
    f"SELECT to_jsonb(one)::text AS row FROM {table} one WHERE tenant {{}} ORDER BY 1"
    for table in ("authors", "posts", "tags", "post_tags")
]


async def rows_of(api: Api, which: str) -> list[list[str]]:
    return [[row["row"] for row in await api.sql(one.format(which))] for one in ROWS]


@pytest.mark.parametrize(("method", "path", "body"), WRITES)
async def test_writes(twins: Twins, method: str, path: str, body: Any) -> None:
    others = await rows_of(twins.both, "<> 1")
    await twins.both.sql(OWN_KEY)
    answer = await twins.same(method, path, body)
    assert answer.status in ((404, 422) if "101" in path + json.dumps(body) else (200, 201, 204)), answer.body
    assert await rows_of(twins.both, "<> 1") == others
    assert await rows_of(twins.both, "= 1") == await rows_of(twins.alone, "= 1")
    for path in ("/authors?include=posts.tags,editor,edits", "/posts?include=tags,author", "/tags?include=posts"):
        await twins.same("GET", path)


async def test_a_principal_without_the_value(twins: Twins) -> None:
    """It has no rows, creates none, and sees what is of no tenant."""
    for who in (principal("ann"), principal("ann", org="x"), principal("ann", org=None)):
        headers = {HEADER: who}
        for path in ("/authors", "/posts?include=tags", "/tags?page[size]=0"):
            assert (await twins.both.get(path, **headers)).document["data"] == []
        assert (await twins.both.get("/posts/1/tags", **headers)).status == 404
        assert (await twins.both.get("/colours", **headers)).ids == ["1"]
        made = {"data": {"type": "tag", "id": "9", "attributes": {"name": "n"}}}
        assert (await twins.both.request("POST", "/tags", made, headers=headers)).status == 403


async def test_declared_over_the_column(start: Start, database_url: str) -> None:
    """A resource may declare an attribute of the column. No client can send another value, neither at once nor later.
    Rules that allow some rows hold besides."""
    await execute(database_url, TABLES + MINE + OTHERS)
    own = Attribute("tenant", BIGINT, required=True)
    rows = {"name": "name", "op": "ne", "val": "y"}
    tag = msgspec.structs.replace(TAG, attributes=(*TAG.attributes, own), access=(Allow(SignedIn(), "all", rows=rows),))
    api = await start(database_url, Catalog([AUTHOR, POST, tag, COLOUR], [EVERYWHERE]))
    trust_headers(api.app.engine)
    headers = {HEADER: ME}
    assert (await api.get("/tags", **headers)).ids == ["1", "3"]
    for tenant, status in ((None, 201), (1, 201), (2, 403)):
        attributes = {"name": "n"} | ({} if tenant is None else {"tenant": tenant})
        made = {"data": {"type": "tag", "id": str(50 + (tenant or 0)), "attributes": attributes}}
        answer = await api.request("POST", "/tags", made, headers=headers)
        assert answer.status == status, answer.body
    moved = {"data": {"type": "tag", "id": "50", "attributes": {"tenant": 2}}}
    assert (await api.request("PATCH", "/tags/50", moved, headers=headers)).status == 403
    assert [row[0] for row in await api.sql("SELECT tenant FROM tags WHERE id IN (50, 51, 52)")] == [1, 1]


async def test_faults(database_url: str) -> None:
    """A table without the column, or with another type of it, and a value that does not fit."""
    await execute(database_url, TABLES, "ALTER TABLE tags DROP tenant", "ALTER TABLE posts ALTER tenant TYPE text")
    await execute(database_url, "ALTER TABLE post_tags DROP tenant CASCADE")
    schema = await live_schema(database_url, Settings(), catalog())
    faults = "\n".join(fault.reason for fault in schema.faults)
    for text in (
        "the table “tags” has no column “tenant”, which the rule of all tables needs",
        "the column “tenant” of the rule of all tables is text in “posts”",
        "the table “post_tags” has no column “tenant”",
    ):
        assert text in faults
    assert "colours" not in faults


@pytest.mark.parametrize(
    ("rule", "fault"),
    [
        (Everywhere(Attribute("tenant", BIGINT), "x"), "“tenant” must be a whole number"),
        (Everywhere(Attribute("tenant", JSON), SUBJECT), "“tenant” must be a column that can be compared"),
        (Everywhere(Attribute("tenant", INT), SUBJECT), "“tenant” must be"),
    ],
)
async def test_a_faulty_rule(start: Start, database_url: str, rule: Everywhere, fault: str) -> None:
    await execute(database_url, TABLES)
    with pytest.raises((CatalogError, AssertionError), match=fault):
        await start(database_url, Catalog([COLOUR], [msgspec.structs.replace(rule, without=frozenset({"colours"}))]))
