"""The statements of a streamed document: their complete text, and the rows that they find in PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import asyncpg
import pytest
from msgspec import Struct
from tornado.ioloop import IOLoop

from querybuild.declarations.resource import Resource
from querybuild.planning.context import Context
from querybuild.planning.plan import ReadPlan
from querybuild.planning.planner import PlannedRead, plan_linkage, plan_related
from querybuild.planning.reads.stream_plan import plan_stream
from querybuild.planning.row_plan import RelatedScope
from querybuild.sql.statement import Statement
from querybuild.sql.stream import Part, compile_stream, row_bounds
from server.execution.arguments import Arguments
from tests.catalog import CATALOG
from tests.planning import LIMITS, limits, parsed, read_collection

BARE = "&fields[article]=&fields[author]=&fields[tag]=&fields[node]=&fields[profile]="
"""No attributes and no relationships, because only the ids are compared here."""
SCOPED = 'EXISTS (SELECT 1 FROM "corner"."article_tags" "lp" WHERE "lp"."article_id"="t0"."id" AND "lp"."tag_id"=$1)'
TAGGED = 'JOIN "corner"."article_tags" "lt0" ON "lt0"."article_id"="t0"."id"'


FAST_START = " LIMIT (SELECT NULL::bigint)"


class Case(Struct, frozen=True):
    """A streamed request and its statements. query: without its page. included: the statement of each type. No
    statement has the limit that makes PostgreSQL plan for the first rows."""

    type: str
    query: str
    data: str
    included: dict[str, str] = {}


CASES = [
    Case("article", "", 'SELECT "t0"."id" FROM "corner"."articles" "t0" ORDER BY "t0"."id"'),
    Case(
        "article",
        "sort=-author.family-name&filter[pages]=3",
        'SELECT "t0"."id" FROM "corner"."articles" "t0" LEFT JOIN "authors" "t1" ON "t1"."author_no"="t0"."author_id" '
        'WHERE "t0"."pages"=$1 ORDER BY "t1"."family" DESC,"t0"."id" DESC',
    ),
    # A key in the primary row, in the included row, and in a link table.
    Case(
        "article",
        "include=author",
        'SELECT "t0"."id","t0"."author_id" FROM "corner"."articles" "t0" ORDER BY "t0"."id"',
        {
            "author": 'SELECT "i0"."author_no" FROM "authors" "i0" WHERE EXISTS (SELECT 1 FROM "corner"."articles" '
            '"t0" WHERE "t0"."author_id"="i0"."author_no") ORDER BY "i0"."author_no"'
        },
    ),
    Case(
        "author",
        "include=profile&filter[born][gt]=1900",
        'SELECT "t0"."author_no" FROM "authors" "t0" WHERE "t0"."born">$1 ORDER BY "t0"."author_no"',
        {
            "profile": 'SELECT "i0"."id" FROM "corner"."profiles" "i0" WHERE EXISTS (SELECT 1 FROM "authors" "t0" '
            'WHERE "t0"."author_no"="i0"."author_no" AND "t0"."born">$1) ORDER BY "i0"."id"'
        },
    ),
    Case(
        "article",
        "include=tags",
        'SELECT "t0"."id" FROM "corner"."articles" "t0" ORDER BY "t0"."id"',
        {
            "tag": f'SELECT "i0"."id" FROM "tags" "i0" WHERE EXISTS (SELECT 1 FROM "corner"."articles" "t0" {TAGGED} '
            'WHERE "lt0"."tag_id"="i0"."id") ORDER BY "i0"."id"'
        },
    ),
    # A path of several relationships, the order of the types, and a condition with rows of another table.
    Case(
        "tag",
        "include=articles.author&filter[articles.pages]=3",
        'SELECT "t0"."id" FROM "tags" "t0" WHERE EXISTS (SELECT 1 FROM "corner"."articles" "t2" JOIN '
        '"corner"."article_tags" "t1" ON "t1"."article_id"="t2"."id" WHERE "t1"."tag_id"="t0"."id" AND '
        '"t2"."pages"=$1) ORDER BY "t0"."id"',
        {
            "article": 'SELECT "i0"."id","i0"."author_id" FROM "corner"."articles" "i0" WHERE EXISTS (SELECT 1 FROM '
            '"tags" "t0" JOIN "corner"."article_tags" "lt0" ON "lt0"."tag_id"="t0"."id" WHERE '
            '"lt0"."article_id"="i0"."id" AND EXISTS (SELECT 1 FROM '
            '"corner"."articles" "t2" JOIN "corner"."article_tags" "t1" ON "t1"."article_id"="t2"."id" WHERE '
            '"t1"."tag_id"="t0"."id" AND "t2"."pages"=$1)) ORDER BY "i0"."id"',
            "author": 'SELECT "i0"."author_no" FROM "authors" "i0" WHERE EXISTS (SELECT 1 FROM "corner"."articles" '
            '"i1" WHERE "i1"."author_id"="i0"."author_no" AND EXISTS (SELECT 1 FROM "tags" "t0" JOIN '
            '"corner"."article_tags" "lt0" ON "lt0"."tag_id"="t0"."id" WHERE "lt0"."article_id"="i1"."id" AND EXISTS '
            '(SELECT 1 FROM "corner"."articles" "t2" JOIN "corner"."article_tags" "t1" ON "t1"."article_id"="t2"."id" '
            'WHERE "t1"."tag_id"="t0"."id" AND "t2"."pages"=$1))) '
            'ORDER BY "i0"."author_no"',
        },
    ),
    # One type in two places.
    Case(
        "article",
        "include=author,editor",
        'SELECT "t0"."id","t0"."author_id","t0"."editor_id" FROM "corner"."articles" "t0" ORDER BY "t0"."id"',
        {
            "author": 'SELECT "i0"."author_no" FROM "authors" "i0" WHERE (EXISTS (SELECT 1 FROM "corner"."articles" '
            '"t0" WHERE "t0"."author_id"="i0"."author_no") OR EXISTS (SELECT 1 FROM "corner"."articles" "t0" WHERE '
            '"t0"."editor_id"="i0"."author_no")) ORDER BY "i0"."author_no"'
        },
    ),
    # The primary type is included again. Included are only rows that are not primary; without a condition there are
    # none.
    Case(
        "node",
        "include=parent",
        'SELECT "t0"."id","t0"."parent_id" FROM "corner"."nodes" "t0" ORDER BY "t0"."id"',
    ),
    Case(
        "node",
        "include=parent&filter[weight]=2",
        'SELECT "t0"."id","t0"."parent_id" FROM "corner"."nodes" "t0" WHERE "t0"."weight"=$1 ORDER BY "t0"."id"',
        {
            "node": 'SELECT "i0"."id" FROM "corner"."nodes" "i0" WHERE EXISTS (SELECT 1 FROM '
            '"corner"."nodes" "t0" WHERE "t0"."parent_id"="i0"."id" AND "t0"."weight"=$1) AND NOT (EXISTS (SELECT 1 '
            'FROM "corner"."nodes" "t0" WHERE "t0"."id"="i0"."id" AND "t0"."weight"=$1)) ORDER BY "i0"."id"'
        },
    ),
]


def planned(case: Case) -> PlannedRead:
    return read_collection(case.type, f"page[size]=0&{case.query}{BARE}")


def texts(plan: ReadPlan) -> tuple[str, dict[str, str]]:
    statements = compile_stream(plan_stream(plan, CATALOG))
    assert all(part.rows.sql.endswith(FAST_START) for part in statements.parts)
    return without_limit(statements.data), {
        part.node.resource.type: without_limit(part) for part in statements.included
    }


def without_limit(part: Part) -> str:
    return part.rows.sql.removesuffix(FAST_START)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.type}?{case.query}")
def test_texts(case: Case) -> None:
    assert texts(planned(case).plan) == (case.data, case.included)


def scoped(plan: Callable[..., PlannedRead], parent: str, name: str, query: str, bounds: Any = LIMITS) -> PlannedRead:
    resource = CATALOG.by_type[parent]
    relationship = resource.relationship(name)
    assert relationship is not None
    scope = RelatedScope(resource, relationship, CATALOG.target(relationship))
    return plan(parsed(f"page[size]=0&{query}{BARE}", bounds), scope, CATALOG, Context(), bounds, [])


def test_related() -> None:
    found = scoped(plan_related, "tag", "articles", "include=author")
    assert texts(found.plan) == (
        f'SELECT "t0"."id","t0"."author_id" FROM "corner"."articles" "t0" WHERE {SCOPED} ORDER BY "t0"."id"',
        {
            "author": 'SELECT "i0"."author_no" FROM "authors" "i0" WHERE EXISTS (SELECT 1 FROM "corner"."articles" '
            f'"t0" WHERE "t0"."author_id"="i0"."author_no" AND {SCOPED}) ORDER BY "i0"."author_no"'
        },
    )


def test_linkage() -> None:
    """The data are resource identifiers, and the included resources are those that they identify."""
    found = scoped(plan_linkage, "tag", "articles", "include=articles.author")
    assert texts(found.plan) == (
        f'SELECT "t0"."id" FROM "corner"."articles" "t0" WHERE {SCOPED} ORDER BY "t0"."id"',
        {
            "article": 'SELECT "i0"."id","i0"."author_id" FROM "corner"."articles" "i0" WHERE EXISTS (SELECT 1 FROM '
            f'"corner"."articles" "t0" WHERE "t0"."id"="i0"."id" AND {SCOPED}) ORDER BY "i0"."id"',
            "author": 'SELECT "i0"."author_no" FROM "authors" "i0" WHERE EXISTS (SELECT 1 FROM "corner"."articles" '
            f'"t0" WHERE "t0"."author_id"="i0"."author_no" AND {SCOPED}) ORDER BY "i0"."author_no"',
        },
    )
    assert texts(scoped(plan_linkage, "tag", "articles", "").plan)[1] == {}


def test_counts() -> None:
    """The count reads only as many rows as it needs to know that there are too many. The limit of a setting on the rows
    does not apply to a stream."""
    query = f"page[size]=0&filter[born]=1&include=profile{BARE}"
    found = read_collection("author", query, limits=limits(unpaginated=9))
    statements = compile_stream(plan_stream(found.plan, CATALOG))
    rows = 'SELECT 1 FROM "authors" "t0" WHERE "t0"."born"=$1'
    assert statements.data.count.sql == f'SELECT COUNT(*) FROM ({rows} LIMIT $2) "c"'
    assert without_limit(statements.data) == (
        'SELECT "t0"."author_no" FROM "authors" "t0" WHERE "t0"."born"=$1 ORDER BY "t0"."author_no"'
    )
    assert statements.included[0].count.sql == (
        'SELECT COUNT(*) FROM (SELECT 1 FROM "corner"."profiles" "i0" WHERE EXISTS (SELECT 1 FROM "authors" "t0" WHERE '
        '"t0"."author_no"="i0"."author_no" AND "t0"."born"=$1) LIMIT $2) "c"'
    )


def test_linkage_of_all_places() -> None:
    """A resource has the relationships of every place where its type is included. The linkage of each place has its own
    statement."""
    query = "page[size]=0&filter[born]=1&include=articles.author.edited,articles.tags"
    statements = compile_stream(plan_stream(read_collection("author", query).plan, CATALOG))
    shown = [
        (part.node.resource.type, [branch.relationship.name for branch in part.node.branches])
        for part in statements.parts
    ]
    assert shown == [
        ("author", ["articles", "edited"]),
        ("article", ["author", "tags"]),
        ("author", ["edited"]),
        ("tag", []),
    ]
    linked = [[None if one is None else one.sql for one in part.linked] for part in statements.parts]
    # An author has `edited` only if an article of a primary author leads to it. An article has `author` and `tags` only
    # if a primary author wrote it; articles that such authors only edited have none.
    reached = (
        'SELECT "i0"."author_no" FROM "authors" "i0" WHERE EXISTS (SELECT 1 FROM "corner"."articles" "i1" WHERE '
        '"i1"."author_id"="i0"."author_no" AND EXISTS (SELECT 1 FROM "authors" "t0" WHERE "t0"."author_no"='
        '"i1"."author_id" AND "t0"."born"=$1)) AND "i0"."author_no"=ANY($2)'
    )
    written = (
        'SELECT "i0"."id" FROM "corner"."articles" "i0" WHERE EXISTS (SELECT 1 FROM "authors" "t0" WHERE '
        '"t0"."author_no"="i0"."author_id" AND "t0"."born"=$1) AND "i0"."id"=ANY($2)'
    )
    assert linked == [[None, reached], [written, written], [None], []]
    assert [None if one is None else one.sql for one in statements.included[0].linkage] == [
        None,
        'SELECT "t0"."id","t1"."article_id" FROM "tags" "t0" JOIN "corner"."article_tags" "t1" ON "t1"."tag_id"='
        '"t0"."id" WHERE "t1"."article_id"=ANY($1) ORDER BY "t0"."id"',
    ]


ROWS = """
    INSERT INTO authors (given, family, born) SELECT 'a', 'b', 1898 + n FROM generate_series(1, 5) n;
    INSERT INTO corner.profiles (motto, author_no) SELECT 'm', n FROM generate_series(2, 5) n;
    INSERT INTO tags (name) SELECT 't' || n FROM generate_series(1, 3) n;
    INSERT INTO corner.articles (id, title, pages, author_id, editor_id)
        VALUES ('a', 'x', 3, 1, 2), ('b', 'y', 3, 2, 4), ('c', 'z', 4, 2, NULL);
    INSERT INTO corner.article_tags VALUES ('a', 1), ('b', 2), ('b', 3), ('c', 3);
    INSERT INTO corner.nodes (id, "Mixed Case", weight, parent_id) VALUES
        ('00000000-0000-0000-0000-00000000000a', 'root', 1, NULL),
        ('00000000-0000-0000-0000-00000000000b', 'twig', 2, '00000000-0000-0000-0000-00000000000a'),
        ('00000000-0000-0000-0000-00000000000c', 'leaf', 2, '00000000-0000-0000-0000-00000000000b');
"""
FOUND: dict[str, list[list[Any]]] = {
    "article?": [["a", "b", "c"]],
    "article?sort=-author.family-name&filter[pages]=3": [["b", "a"]],
    "article?include=author": [["a", "b", "c"], [1, 2]],
    "author?include=profile&filter[born][gt]=1900": [[3, 4, 5], [2, 3, 4]],
    "article?include=tags": [["a", "b", "c"], [1, 2, 3]],
    "tag?include=articles.author&filter[articles.pages]=3": [[1, 2, 3], ["a", "b", "c"], [1, 2]],
    "article?include=author,editor": [["a", "b", "c"], [1, 2, 4]],
    "node?include=parent": [["a", "b", "c"]],
    "node?include=parent&filter[weight]=2": [["b", "c"], ["a"]],
}
"""The ids of each part. Those of nodes are shortened to their last digit."""


def test_they_run(io_loop: IOLoop, corner_url: str) -> None:
    """Each statement runs in its own snapshot, through a cursor with bound values. Its count is the number of its
    rows."""

    async def run() -> dict[str, list[list[Any]]]:
        connection = await asyncpg.connect(corner_url)
        await connection.execute(ROWS)
        try:
            return {f"{case.type}?{case.query}": await _found(connection, planned(case)) for case in CASES}
        finally:
            await connection.close()

    assert io_loop.run_sync(run) == FOUND


async def _found(connection: asyncpg.Connection[Any], read: PlannedRead) -> list[list[Any]]:
    found = []
    for part in compile_stream(plan_stream(read.plan, CATALOG)).parts:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            portal = await connection.cursor(part.rows.sql, *_values(part.rows, read))
            rows = await portal.fetch(100)
            assert await connection.fetchval(part.count.sql, *_values(part.count, read, max_rows=100)) == len(rows)
            assert await connection.fetchval(part.count.sql, *_values(part.count, read, max_rows=1)) == 1
            await _linkage(connection, part)
        is_node = part.node.resource.type == "node"
        found.append([str(row[0])[-1] if is_node else row[0] for row in rows])
    return found


def _values(statement: Statement, read: PlannedRead, max_rows: int = 0) -> list[Any]:
    return Arguments(read.values, page=read.page_values).of(statement, max_rows=max_rows)


async def _linkage(connection: asyncpg.Connection[Any], part: Part) -> None:
    for statement in part.linkage:
        if statement is not None:
            await connection.fetch(statement.sql, [])


def test_a_stream_is_planned_for_its_first_rows(io_loop: IOLoop, corner_url: str) -> None:
    """PostgreSQL expects that a tenth of the rows will be read, as for a cursor that DECLARE opens."""

    async def run() -> int:
        connection = await asyncpg.connect(corner_url)
        await connection.execute("INSERT INTO tags (name) SELECT n::text FROM generate_series(1, 1000) n; ANALYZE tags")
        try:
            [part] = compile_stream(plan_stream(read_collection("tag", "page[size]=0").plan, CATALOG)).parts
            plan = json.loads(await connection.fetchval(f"EXPLAIN (FORMAT JSON) {part.rows.sql}"))
            return int(plan[0]["Plan"]["Plan Rows"])
        finally:
            await connection.close()

    assert io_loop.run_sync(run) == 100


def test_bounds(io_loop: IOLoop, corner_url: str) -> None:
    """The estimate is at least the number of rows of each table, and counts a table twice if two types use it. It is
    unknown for an empty table (its rows may be in other tables), for a view and for a partitioned table."""
    entry = Resource("entry", "/entries", "entries", schema="corner")
    quoted = Resource("quoted", "/quoted", "it's quoted")
    others = {name: Resource(name, f"/{name}", name) for name in ("views", "parted", "heirs")}

    async def run() -> list[list[Any]]:
        connection = await asyncpg.connect(corner_url)
        try:
            await connection.execute(
                """
                INSERT INTO corner.entries SELECT FROM generate_series(1, 1000);
                CREATE TABLE "it's quoted" (id bigint); INSERT INTO "it's quoted" VALUES (1);
                CREATE VIEW views AS SELECT 1 AS id;
                CREATE TABLE parted (id bigint) PARTITION BY HASH (id);
                CREATE TABLE heirs (id bigint); INSERT INTO heirs VALUES (1); CREATE TABLE heir () INHERITS (heirs);
                """
            )
            sets = [[entry], [entry, entry], [quoted], [CATALOG.by_type["tag"]], *[[one] for one in others.values()]]
            return [[row[0] for row in await connection.fetch(row_bounds(resources).sql)] for resources in sets]
        finally:
            await connection.close()

    one, two, written, *unknown = io_loop.run_sync(run)
    assert two == one * 2
    assert 1000 <= one[0] <= 3000
    assert written == [8192 // 28]
    assert unknown == [[None]] * 4
