"""How rows of a plan hang together. What comes in: rows as `plan.Node` has them. What goes out: the keys that
the next statement is asked for.

The execution and the encoder both read rows through here, by position.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from querybuild.plan import Branch, Node
from querybuild.resource import own_key_of

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


def needs_rows(branch: Branch) -> bool:
    """Whether a branch has a statement: linkage whose keys stand in the parents' rows has none."""
    return branch.is_included or not branch.relationship.is_own_key


def row_width(node: Node, branch: Branch | None) -> int:
    """How many columns the rows of a node have; branch: how it was reached, None for the primary rows."""
    return node.position_of_parent + (branch is not None and not branch.relationship.is_own_key)


def nodes(node: Node, branch: Branch | None = None) -> Iterator[tuple[Node, Branch | None]]:
    """The node and all below it with the branches that lead there, in pre-order: the order of a read's statements and
    of its lists of rows."""
    yield node, branch
    for below in node.branches:
        yield from nodes(below.node, below)
