"""Decides how the related rows of each branch are fetched: `plan.Fetch`. It is the only place that does.

By the keys of the parents always works. The other ways save a round trip, and step aside if the rows ask for more than
they know.
"""

from __future__ import annotations

import msgspec

from querybuild.declarations.resource import Relationship
from querybuild.planning.plan import Branch, Fetch, Node
from querybuild.planning.row_plan import Rows
from querybuild.planning.rows import MAX_COLUMNS, joined_width, nodes, row_width
from querybuild.shortcuts import Knows

JOINED = Knows(Rows, used=("resource", "alias", "parent", "pair", "criteria"))
"""What a join to the rows that refer to them knows of related rows."""

UNITED = Knows(Rows, used=("resource", "alias", "parent", "pair", "through", "criteria"))
BRANCH = Knows(Branch, used=("relationship", "node", "is_included", "fetch"))
"""What one statement for several parts of a document knows of related rows: a union with the primary rows, and a
statement that reads the whole document."""


UNITED_CHOICE = Knows(
    Rows, used=("resource", "alias", "parent", "pair", "through", "criteria", "conditions", "joins", "order")
)
CHOSEN_BRANCH = Knows(Branch, used=("relationship", "node", "is_included", "fetch", "choice"))
"""What a union with the primary rows knows of related rows that a request chooses."""


def linkage_fetch(relationship: Relationship) -> Fetch:
    """Return how linkage is fetched if its resources are not included."""
    return "row" if relationship.is_own_key else "keys"


def included_fetch(relationship: Relationship, related: Rows, *, is_joining: bool) -> Fetch:
    """Return how included rows are fetched. is_joining: whether rows may be joined to those of the parents."""
    return "join" if is_joining and relationship.is_own_key and JOINED.takes(related) else "keys"


def chosen_fetch(related: Rows, size: int | None) -> Fetch:
    """Return how the rows are fetched of which each parent shows some. size: the most of each. Without an index on
    their key, a subquery for each parent would read the whole table each time."""
    if size is None:
        return "keys"
    through = related.through
    if through is not None:
        indexed, column = through.link.indexed, through.near[1].columns[0]
    else:
        assert related.pair is not None
        indexed, column = related.resource.abilities.indexed, related.pair[1].columns[0]
    return "each" if column in indexed else "ranked"


def is_one_of_several(branch: Branch) -> bool:
    """Return whether the rows of a branch can be read in one statement with others."""
    return BRANCH.takes(branch) and UNITED.takes(branch.node.rows)


def _may_be_united(branch: Branch) -> bool:
    rows = branch.node.rows
    if branch.choice is not None:
        return branch.fetch == "each" and CHOSEN_BRANCH.takes(branch) and UNITED_CHOICE.takes(rows)
    # The rows are sorted by a column of the result. A text is not in the order of the id.
    return is_one_of_several(branch) and not rows.resource.id.key.is_text


def united(node: Node) -> Node:
    """Return the primary rows with a branch that is read in their statement, if it is the only one that would have a
    statement of its own."""
    separate = [branch for below, _ in nodes(node) for branch in below.branches if branch.has_statement]
    if len(separate) != 1 or separate[0] not in node.branches or not _may_be_united(separate[0]):
        return node
    if joined_width(node) + row_width(separate[0].node, separate[0]) > MAX_COLUMNS:
        return node
    branches: list[Branch] = [
        msgspec.structs.replace(branch, fetch="union") if branch is separate[0] else branch for branch in node.branches
    ]
    return msgspec.structs.replace(node, branches=tuple(branches))
