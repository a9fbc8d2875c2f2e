"""Every statement whose text `tests/unit/` compares is prepared and run on PostgreSQL, with rows in every table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import asyncpg
from tornado.ioloop import IOLoop

from querybuild.planning.changes import PlannedWrite
from querybuild.planning.context import Context
from querybuild.planning.planner import plan_linkage
from querybuild.planning.row_plan import RelatedScope
from querybuild.sql.select import compile_read
from querybuild.sql.statement import Statement
from querybuild.sql.writes.modify import compile_write
from server.execution.arguments import Arguments
from tests.catalog import CATALOG, SAMPLE
from tests.link_statements import JOINS, LINKS
from tests.page_statements import PAGES
from tests.planning import (
    LIMITS,
    create,
    delete,
    filter_query,
    link,
    parsed,
    read_collection,
    read_resource,
    update,
)
from tests.statements import READS, WHERES, WRITES, linkage_of

ROWS = """
INSERT INTO authors (given, family, born) VALUES ('A', 'B', 1900), ('C', 'D', NULL);
INSERT INTO tags (name) VALUES ('x'), ('sql');
INSERT INTO corner.articles (id, title, author_id, editor_id) VALUES ('a', 'x', 1, 2), ('b', 'y', 2, NULL);
INSERT INTO corner.article_tags VALUES ('a', 1), ('a', 2);
INSERT INTO corner.profiles (motto, author_no) VALUES ('m', 1);
INSERT INTO corner.desks (room, author_no) VALUES ('1', 1), ('2', NULL);
INSERT INTO corner.nodes (id, "Mixed Case") VALUES ('123e4567-e89b-12d3-a456-426614174000', 'x');
"""
KEYS: dict[str, list[Any]] = {"int4[]": [1, 2], "int8[]": [1], "text[]": ["a", "b"], "uuid[]": []}
"""The keys of a branch, by the type that PostgreSQL gives the parameter."""

RELATED = {
    ("article", "author", "a"): (1, [1]),
    ("article", "editor", "b"): (1, []),
    ("article", "tags", "a"): (1, [1, 2]),
    ("tag", "articles", 2): (1, ["a"]),
    ("author", "articles", 2): (1, ["b"]),
    ("author", "desk", 1): (1, [1]),
    ("author", "desk", 2): (1, []),
    ("author", "articles", 77): (None, []),
}

ANY_ID = {"tag": 1, "article": "b"}

ARTICLE_TAGS = "SELECT article_id, tag_id FROM corner.article_tags ORDER BY 1, 2"
EDITORS = "SELECT id, editor_id FROM corner.articles ORDER BY 1"
NODES = "SELECT parent_id IS NOT DISTINCT FROM id FROM corner.nodes"
LINKS_OF = {
    ("article", "editor"): EDITORS,
    ("author", "edited"): EDITORS,
    ("node", "parent"): NODES,
    ("node", "children"): NODES,
    ("author", "desk"): "SELECT id, author_no FROM corner.desks ORDER BY 1",
    ("article", "tags"): ARTICLE_TAGS,
    ("tag", "articles"): ARTICLE_TAGS,
}
"""The statement that reads all links of a relationship."""

Run = Callable[[Any], Awaitable[dict[str, Any]]]


async def refusals(url: str, run: Run) -> dict[str, Any]:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(ROWS)
        written = create("sample", {"attributes": SAMPLE})
        await execute(connection, compile_write(written.plan).row, written)
        return await run(connection)
    finally:
        await connection.close()


async def execute(
    connection: asyncpg.Connection[Any],
    statement: Statement | None,
    write: PlannedWrite,
    row_id: Any = None,
    leaving: Sequence[Any] = (),
) -> list[Any]:
    if statement is None:
        return []
    others = {"row": row_id, "keys": list(leaving)}
    values = [write.values[slot.index] if slot.source == "request" else others[slot.source] for slot in statement.slots]
    return [tuple(row) for row in await connection.fetch(statement.sql, *values)]


def test_wheres(io_loop: IOLoop, corner_url: str) -> None:
    async def run(connection: asyncpg.Connection[Any]) -> dict[str, str]:
        refused = {}
        for case in WHERES:
            planned = read_collection(case.type, f"{filter_query(case.filter)}&page[size]=0")
            sql = compile_read(planned.plan).primary.sql
            try:
                await connection.fetch(sql, *planned.values)
            except asyncpg.PostgresError as error:
                refused[sql] = str(error)
        return refused

    assert io_loop.run_sync(lambda: refusals(corner_url, run)) == {}


def test_reads(io_loop: IOLoop, corner_url: str) -> None:
    async def run(connection: asyncpg.Connection[Any]) -> dict[str, str]:
        refused = {}
        for case in READS + PAGES:
            planned = read_collection(case.type, case.query)
            statements = compile_read(planned.plan)
            sent = Arguments(planned.values, page=planned.page_values)
            for statement in (statements.primary, statements.count, *statements.branches):
                if statement is None:
                    continue
                try:
                    prepared = await connection.prepare(statement.sql)
                    types = [parameter.name for parameter in prepared.get_parameters()]
                    values = [
                        KEYS[name] if slot.source in ("keys", "path") else sent.value_of(slot)
                        for slot, name in zip(statement.slots, types, strict=True)
                    ]
                    await prepared.fetch(*values)
                except asyncpg.PostgresError as error:
                    refused[statement.sql] = str(error)
        return refused

    assert io_loop.run_sync(lambda: refusals(corner_url, run)) == {}


def test_writes(io_loop: IOLoop, corner_url: str) -> None:
    plain = [update(case.type, case.id, case.data) if case.id else create(case.type, case.data) for case in WRITES]
    links = [link(case.type, case.id, case.relationship, case.mode, linkage_of(case.data)) for case in LINKS]
    joins = [case.planned() for case in JOINS]

    async def run(connection: asyncpg.Connection[Any]) -> dict[str, Any]:
        refused = {}
        for write in (*plain, *links, *joins):
            for sql, statement, row_id in statements_of(write):
                transaction = connection.transaction()
                await transaction.start()
                try:
                    await execute(connection, statement, write, row_id)
                except asyncpg.IntegrityConstraintViolationError:
                    pass  # the rows' own business, after the statement was understood
                except asyncpg.PostgresError as error:
                    refused[sql] = str(error)
                await transaction.rollback()
        return refused

    assert io_loop.run_sync(lambda: refusals(corner_url, run)) == {}


def statements_of(write: PlannedWrite) -> list[tuple[str, Statement, Any]]:
    """Return each statement with its text and the id of the written row. For a create this is any id of the type."""
    statements, plan = compile_write(write.plan), write.plan
    row_id = ANY_ID[plan.resource.type] if plan.id_slot is None and plan.links else None
    row_id = write.values[plan.id_slot] if plan.id_slot is not None else row_id
    links = [one for link in statements.links for one in (link.lock, link.detach, link.attach)]
    every = (statements.owner, *statements.joined, statements.lock, statements.row, *links)
    return [(statement.sql, statement, row_id) for statement in every if statement is not None]


def test_what_writes_of_links_leave(io_loop: IOLoop, corner_url: str) -> None:
    """Run the statements of each case in their order, and then read all links of the relationship."""

    async def run(connection: asyncpg.Connection[Any]) -> dict[str, Any]:
        wrong: dict[str, Any] = {}
        for case in LINKS:
            write = link(case.type, case.id, case.relationship, case.mode, linkage_of(case.data))
            transaction = connection.transaction()
            await transaction.start()
            found: list[Any] = []
            for _, statement, row_id in statements_of(write):
                # The rows that leave, out of the rows that the lock before this statement returned.
                named = write.values[write.plan.links[0].slot] if write.plan.links else []
                is_leaving = case.mode == "remove"
                leaving = [row[0] for row in found if row[1:] == (row_id,) and (row[0] in named) == is_leaving]
                found = await execute(connection, statement, write, row_id, leaving)
            rows = [tuple(row) for row in await connection.fetch(LINKS_OF[case.type, case.relationship])]
            if rows != case.left:
                wrong[f"{case.mode} {case.type}.{case.relationship} {case.data}"] = rows
            await transaction.rollback()
        return wrong

    assert io_loop.run_sync(lambda: refusals(corner_url, run)) == {}


def test_deletes(io_loop: IOLoop, corner_url: str) -> None:
    async def run(connection: asyncpg.Connection[Any]) -> dict[str, str]:
        found: dict[str, Any] = {}
        for type_name, id_text in (("desk", "1"), ("tag", "1"), ("country", "de")):
            write = delete(type_name, id_text)
            found[type_name] = await execute(connection, compile_write(write.plan).row, write)
        return found

    assert io_loop.run_sync(lambda: refusals(corner_url, run)) == {"desk": [(1,)], "tag": [(1,)], "country": []}


def test_rows_of_each_relationship_kind(io_loop: IOLoop, corner_url: str) -> None:
    """The rows that the statements of a document with includes find: (id, ..., parent's key)."""

    async def run(connection: asyncpg.Connection[Any]) -> dict[str, Any]:
        planned = read_resource(
            "author", "include=articles.tags,profile,desk&fields[author]=&fields[article]=&fields[tag]=name"
        )
        primary, branches = compile_read(planned.plan).primary, compile_read(planned.plan).branches
        found = {"author": [tuple(row) for row in await connection.fetch(primary.sql, 1)]}
        for name, statement, keys in zip(
            ("articles", "tags", "profile", "desk"), branches, ([1], ["a"], [1], [1]), strict=True
        ):
            assert statement is not None
            found[name] = [tuple(row) for row in await connection.fetch(statement.sql, keys)]
        return found

    assert io_loop.run_sync(lambda: refusals(corner_url, run)) == {
        "author": [(1,)],
        "articles": [("a", 1)],
        "tags": [(1, "x", "a"), (2, "sql", "a")],
        "profile": [(1, "m", 1)],
        "desk": [(1, "1", 1)],
    }


def test_rows_that_are_related_to_one(io_loop: IOLoop, corner_url: str) -> None:
    """The statements of related routes: through a key of the path's row, through a key of the other row, and through a
    link table."""

    async def run(connection: asyncpg.Connection[Any]) -> dict[str, Any]:
        found = {}
        for type_name, name, path_id in RELATED:
            parent = CATALOG.by_type[type_name]
            relationship = parent.relationship(name)
            assert relationship is not None
            scope = RelatedScope(parent, relationship, CATALOG.target(relationship))
            planned = plan_linkage(parsed("page[size]=0"), scope, CATALOG, Context(), LIMITS, [])
            statements = compile_read(planned.plan)
            assert statements.parent is not None
            is_there = await connection.fetchval(statements.parent.sql, path_id)
            rows = await connection.fetch(statements.primary.sql, path_id)
            found[type_name, name, path_id] = (is_there, [row[0] for row in rows])
        return found

    assert io_loop.run_sync(lambda: refusals(corner_url, run)) == RELATED


def test_a_document_of_one_resource_at_once(io_loop: IOLoop, corner_url: str) -> None:
    """The statement that reads primary and included rows together finds the same rows as separate statements."""

    async def run(connection: asyncpg.Connection[Any]) -> dict[str, Any]:
        query = "include=articles.tags,profile,desk&fields[author]=&fields[article]=&fields[tag]=name"
        combined = compile_read(read_resource("author", query).plan).combined
        assert combined is not None
        rows = [tuple(row) for row in await connection.fetch(combined.sql, 1)]
        return {"rows": {tuple(value for value in row if value is not None) for row in rows}}

    assert io_loop.run_sync(lambda: refusals(corner_url, run)) == {
        "rows": {(1, 1), (1, "a", 1), (1, 1, "x", "a"), (2, 2, "sql", "a"), (1, 1, "m", 1), (1, 1, "1", 1)},
    }
