"""Conditions of rows are in the SQL wherever the rows are read or written, not only where requests have them today."""

from __future__ import annotations

import msgspec
import pytest

from querybuild.planning.plan import Branch, Node, ReadPlan
from querybuild.planning.reads.stream_plan import plan_stream
from querybuild.planning.row_plan import Logic
from querybuild.sql.select import compile_read
from querybuild.sql.stream import compile_stream
from querybuild.sql.writes.locks import compile_check
from querybuild.sql.writes.modify import compile_write
from tests.catalog import CATALOG
from tests.planning import create, filter_query, read_collection, read_resource, update

NEVER = Logic("or", ())
"""A condition that no row meets: `FALSE`."""


def conditioned(plan: ReadPlan) -> ReadPlan:
    """The plan with this condition in the rows of each include."""
    return msgspec.structs.replace(plan, node=_below(plan.node))


def _below(node: Node) -> Node:
    return msgspec.structs.replace(node, branches=tuple([_of(branch) for branch in node.branches]))


def _of(branch: Branch) -> Branch:
    rows = msgspec.structs.replace(branch.node.rows, conditions=(NEVER,))
    return msgspec.structs.replace(branch, node=msgspec.structs.replace(_below(branch.node), rows=rows))


@pytest.mark.parametrize(
    ("type_name", "query"),
    [
        ("article", "include=author"),
        ("author", "include=articles"),
        ("article", "include=tags"),
        ("author", "include=articles.tags,desk"),
        ("article", "include=author.articles&page[size]=200"),
    ],
)
def test_included_rows(type_name: str, query: str) -> None:
    plan = conditioned(read_collection(type_name, query).plan)
    statements = compile_read(plan)
    sql = statements.primary.sql + "".join([one.sql for one in statements.branches if one is not None])
    includes = len(query.partition("=")[2].partition("&")[0].replace(",", ".").split("."))
    assert sql.count("FALSE") == includes


def test_streamed_rows() -> None:
    plan = conditioned(read_collection("author", "include=articles.tags&page[size]=0").plan)
    stream = compile_stream(plan_stream(plan, CATALOG))
    # Tags are reached over articles, which have the condition as well.
    assert [part.rows.sql.count("FALSE") for part in stream.parts] == [0, 1, 2]
    assert [part.count.sql.count("FALSE") for part in stream.parts] == [0, 1, 2]


def test_written_rows() -> None:
    write = update("author", "1", {"attributes": {"born": 1}})
    rows = msgspec.structs.replace(write.plan.rows, conditions=(NEVER,))
    statements = compile_write(msgspec.structs.replace(write.plan, rows=rows))
    some = (statements.row, statements.there, statements.lock, statements.standalone)
    assert [one is not None and one.sql.count("FALSE") for one in some] == [1, 1, 1, 2]
    assert (statements.is_limited, statements.is_repeatable, statements.has_rights) == (True, True, False)


def test_the_rights_of_written_rows() -> None:
    write = update("author", "1", {"attributes": {"born": 1}})
    rows = msgspec.structs.replace(write.plan.rows, rights=(NEVER,))
    statements = compile_write(msgspec.structs.replace(write.plan, rows=rows))
    some = (statements.row, statements.there, statements.lock, statements.standalone)
    assert [one is not None and one.sql.count("FALSE") for one in some] == [1, 1, 1, 1]
    assert (statements.is_limited, statements.is_repeatable, statements.has_rights) == (True, True, True)


def test_what_a_written_row_must_be() -> None:
    """The only statement of a write tests it. Otherwise a further statement does, after all writes of the request."""
    write, node = (
        create("author", {"attributes": {"given-name": "a", "family-name": "b"}}),
        read_resource("author").plan.node,
    )
    checked = msgspec.structs.replace(write.plan.rows, rights=(NEVER,))
    shown = msgspec.structs.replace(node, rows=msgspec.structs.replace(node.rows, criteria=(NEVER,)))
    for plan, read, count in (
        (msgspec.structs.replace(write.plan, checked=checked), None, 1),
        (write.plan, shown, 1),
        (msgspec.structs.replace(write.plan, checked=checked), shown, 2),
    ):
        statements = compile_write(plan, read)
        assert statements.standalone is not None
        assert statements.standalone.sql.count("FALSE") == count
    assert compile_check(checked).sql.count("FALSE") == 1


def test_criteria_that_read_other_rows_need_a_lock() -> None:
    other = read_collection("author", filter_query([{"name": "articles", "op": "any", "val": []}])).plan.rows.conditions
    write = update("author", "1", {"attributes": {"born": 1}})
    hidden = msgspec.structs.replace(write.plan.rows, criteria=other)
    forbidden = msgspec.structs.replace(write.plan.rows, rights=other)
    for plan in (
        msgspec.structs.replace(write.plan, rows=hidden),
        msgspec.structs.replace(write.plan, rows=forbidden),
    ):
        statements = compile_write(plan)
        assert statements.lock is not None
        assert (statements.standalone, statements.lock.decides_again) == (None, True)
        assert not statements.is_repeatable
    assert compile_write(msgspec.structs.replace(write.plan, checked=forbidden)).standalone is None
