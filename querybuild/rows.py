"""How rows of a plan hang together. What comes in: rows as `plan.Node` has them, or those of several nodes in one
statement. What goes out: the rows of each node, and the keys that the next statement is asked for.

The execution and the encoder both read rows through here, by position.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

from querybuild.plan import Branch, Node, ReadPlan, sources_of
from querybuild.resource import own_key_of

MOST_COLUMNS = 1600
"""Of a row of a result. PostgreSQL's own limit is 1,664."""

Row = Any
"""asyncpg's Record: read by position, sliced like a tuple."""


def key_position(node: Node, branch: Branch) -> int:
    """Where in a parent's row the key of the branch stands: of the target where it is the parent's own, else
    the parent's id."""
    own = own_key_of(branch.relationship)
    return 0 if own is None else node.position_of_key(own.column_name)


def branch_keys(node: Node, branch: Branch, rows: Sequence[Row]) -> list[Any]:
    """What `= ANY($1)` of the branch's statement is given: distinct, without null, in first-seen order."""
    position = key_position(node, branch)
    keys = dict.fromkeys(row[position] for row in rows)
    keys.pop(None, None)
    return list(keys)


def with_computed(node: Node, rows: Sequence[Row]) -> Sequence[Row]:
    """The rows of a node with what Python computes of them, each attribute for all rows at once. Raises what the custom
    code raises, and ValueError when it does not give a value for each row."""
    if not (node.computed and rows):
        return rows
    place_of = {attribute: place for place, attribute in enumerate(node.read, 1)}
    columns = []
    for attribute in node.computed:
        assert attribute.compute is not None
        places = [place_of[source] for source in sources_of(attribute, node.resource)]
        values = list(attribute.compute([tuple([row[place] for place in places]) for row in rows]))
        if len(values) != len(rows):
            raise ValueError(f"{attribute.name} was given {len(rows)} resources and gives {len(values)} values")
        columns.append(values)
    return [(*row, *values) for row, values in zip(rows, zip(*columns, strict=True), strict=True)]


def row_width(node: Node, branch: Branch | None) -> int:
    """How many columns the rows of a node have; branch: how it was reached, None for the primary rows."""
    return node.position_of_parent + (branch is not None and not branch.relationship.is_own_key)


def joined_width(node: Node) -> int:
    """How many columns the rows of a joined node have, with those of what is joined to it in its turn."""
    return node.position_of_parent + sum(joined_width(branch.node) for branch in node.branches if branch.is_joined)


def page_width(plan: ReadPlan) -> int:
    """How many columns the rows of the primary statement have, with what is joined to them and an exact total."""
    return joined_width(plan.node) + len(plan.cursor_keys) + (plan.total == "exact")


def part_width(plan: ReadPlan, node: Node, branch: Branch | None) -> int:
    """How many columns the rows of a node have in the one statement that has all of a document, with their number."""
    return 1 + row_width(node, branch) + (0 if branch else len(plan.cursor_keys) + (plan.total == "exact"))


def parted(plan: ReadPlan, rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """The primary rows and those of the branch united with them, which follow, and have no number at the end."""
    width = page_width(plan)
    count = bisect_left(rows, True, key=lambda row: row[-1] is None)
    own, united = itemgetter(slice(width)), itemgetter(slice(width, -1))
    return list(map(own, rows[:count])), list(map(united, rows[count:]))


def joined_rows(rows: Sequence[Row], begin: int, node: Node) -> list[Row]:
    """The rows of a joined node, each once, out of the rows that it is joined to, where its columns begin there."""
    found = {row[begin]: row for row in rows}
    found.pop(None, None)
    end = begin + joined_width(node)
    return [row[begin:end] for row in found.values()]


def nodes(node: Node, branch: Branch | None = None) -> Iterator[tuple[Node, Branch | None]]:
    """The node and all below it with the branches that lead there, in pre-order: the order of a read's statements and
    of its lists of rows."""
    yield node, branch
    for below in node.branches:
        yield from nodes(below.node, below)
