"""Conditions of rows are in the SQL wherever the rows are read or written, not only where requests have them today."""

from __future__ import annotations

import msgspec
import pytest

from querybuild.planning.plan import Branch, Logic, Node, ReadPlan
from querybuild.planning.stream_plan import plan_stream
from querybuild.sql.modify import compile_write
from querybuild.sql.select import compile_read
from querybuild.sql.stream import compile_stream
from tests.catalog import CATALOG
from tests.planning import read_collection, update

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
    assert statements.row is not None
    assert statements.there is not None
    assert ["FALSE" in one.sql for one in (statements.row, statements.there)] == [True, True]
    assert (statements.is_limited, statements.alone) == (True, None)
