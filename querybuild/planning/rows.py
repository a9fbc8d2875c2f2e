"""Splits the rows of statements into the rows of each node, and finds the keys for the next statement. What comes in:
rows with the columns that `plan.Node` describes, or those of several nodes in one row.

Execution and encoding use it to read rows by position.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from operator import itemgetter
from typing import Any

from querybuild.planning.plan import Branch, Choice, Node, ReadPlan, sources_of

MAX_COLUMNS = 1600
"""The limit for the columns of a result. PostgreSQL's own limit is 1,664."""

Row = Any
"""asyncpg's Record: read by position, sliced like a tuple."""


Onward = Callable[[Sequence[Any], Sequence[Row]], Sequence[bytes]]
"""Returns for each parent the query string of the page after one of its rows."""


class FirstRows(list[Row]):
    """The first related rows of each parent. by_parent: the same by the id of the parent, without parents that have
    none. totals: of the parents, if they were requested. more: for each parent that has others after them, the query
    string of their page, empty without one."""

    def __init__(self, by_parent: dict[Any, list[Row]], totals: Mapping[Any, int], more: Mapping[Any, bytes]) -> None:
        super().__init__(chain.from_iterable(by_parent.values()))
        self.by_parent = by_parent
        self.totals = totals
        self.more = more

    def replaced(self, rows: Iterable[Row]) -> FirstRows:
        """Return the same with other rows in place of these."""
        others = iter(rows)
        by_parent = {parent: list(islice(others, len(own))) for parent, own in self.by_parent.items()}
        return FirstRows(by_parent, self.totals, self.more)


def first_rows(
    branch: Branch, choice: Choice, rows: Sequence[Row], onward: Onward, step_rows: int
) -> Generator[None, None, FirstRows]:
    """Return the rows that the parents show, in steps of so many rows. rows: as the statement of the branch returns
    them: for each parent one row more than it shows, and for one without rows a row with its total, whose id is null.
    onward: as of `FirstRows`, for the parents that have other rows, and the last that each of them shows."""
    position, size = branch.node.position_of_parent, choice.size
    assert size is not None
    by_parent: dict[Any, list[Row]] = defaultdict(list)
    for begin in range(0, len(rows), step_rows):
        for row in rows[begin : begin + step_rows]:
            by_parent[row[position]].append(row)
        yield
    totals = {}
    if choice.has_total:
        position += 1 + len(branch.cursor_keys)
        totals = {parent: own[0][position] for parent, own in by_parent.items()}
        by_parent = {parent: own for parent, own in by_parent.items() if own[0][0] is not None}
        yield
    full = [parent for parent, own in by_parent.items() if len(own) > size]
    more: dict[Any, bytes] = {}
    for begin in range(0, len(full), step_rows):
        chunk = full[begin : begin + step_rows]
        for parent in chunk:
            del by_parent[parent][size:]
        queries = onward(chunk, [by_parent[parent][-1] for parent in chunk]) if choice.has_next else [b""] * len(chunk)
        more.update(zip(chunk, queries, strict=True))
        yield
    return FirstRows(by_parent, totals, more)


def key_position(node: Node, branch: Branch) -> int:
    """Return the position of the branch's key in a parent's row. It is the id of the parent, if the parent's row does
    not contain the key."""
    return node.position_of_key(branch) if branch.relationship.is_own_key else 0


def branch_keys(node: Node, branch: Branch, rows: Sequence[Row]) -> list[Any]:
    """Return the distinct keys for `= ANY($1)` in the statement of a branch, without null, in the order of the rows."""
    keys = dict.fromkeys(map(itemgetter(key_position(node, branch)), rows))
    keys.pop(None, None)
    return list(keys)


def with_computed(node: Node, rows: Sequence[Row]) -> Sequence[Row]:
    """Return the rows of a node with the attributes computed in Python. Each is computed for all rows in one call.
    Raises any exception of the custom code, and ValueError if it does not return a value for each row."""
    if not (node.computed and rows):
        return rows
    position_of = {attribute: position for position, attribute in enumerate(node.read, 1)}
    columns = []
    for attribute in node.computed:
        assert attribute.compute is not None
        positions = [position_of[source] for source in sources_of(attribute, node.resource)]
        values = list(attribute.compute([tuple([row[position] for position in positions]) for row in rows]))
        if len(values) != len(rows):
            raise ValueError(f"{attribute.name} was given {len(rows)} resources and gives {len(values)} values")
        columns.append(values)
    made = [(*row, *values) for row, values in zip(rows, zip(*columns, strict=True), strict=True)]
    return rows.replaced(made) if isinstance(rows, FirstRows) else made


def row_width(node: Node, branch: Branch | None) -> int:
    """Return the number of columns of a node. branch: the branch of the node, None for the primary rows."""
    if branch is None or branch.relationship.is_own_key:
        return node.position_of_parent
    has_total = branch.choice is not None and branch.choice.has_total and branch.size is not None
    return node.position_of_parent + 1 + len(branch.cursor_keys) + has_total


def joined_width(node: Node) -> int:
    """Return the number of columns of a node and of all nodes that are joined to it."""
    return node.position_of_parent + sum(
        joined_width(branch.node) for branch in node.branches if branch.fetch == "join"
    )


def page_width(plan: ReadPlan) -> int:
    """Return the number of columns of the primary statement, with joined nodes, cursor texts and the exact total."""
    return joined_width(plan.node) + len(plan.cursor_keys) + plan.counts


def part_width(plan: ReadPlan, node: Node, branch: Branch | None) -> int:
    """Return the number of columns of a node in the statement that reads a whole document, with its row number."""
    return 1 + row_width(node, branch) + (0 if branch else len(plan.cursor_keys) + plan.counts)


def split_rows(plan: ReadPlan, rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Split the rows of a united statement into the primary rows and the rows of the branch, whose last column is
    null."""
    width = page_width(plan)
    own, united = itemgetter(slice(width)), itemgetter(slice(width, -1))
    count = bisect_left(rows, True, key=lambda row: row[-1] is None)
    return list(map(own, rows[:count])), list(map(united, rows[count:]))


def joined_rows(rows: Sequence[Row], begin: int, node: Node) -> list[Row]:
    """Return the distinct rows of a joined node. rows: the rows that contain it. begin: the position of its first
    column."""
    by_id = {row[begin]: row for row in rows}
    by_id.pop(None, None)
    end = begin + joined_width(node)
    return [row[begin:end] for row in by_id.values()]


def nodes(node: Node, branch: Branch | None = None) -> Iterator[tuple[Node, Branch | None]]:
    """Return a node and all nodes below it, each with its branch, in pre-order. The statements of a read and its lists
    of rows have the same order."""
    yield node, branch
    for below in node.branches:
        yield from nodes(below.node, below)
