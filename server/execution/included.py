"""Reads the rows of the branches of a read, and counts its included resources. What comes in: the primary rows. What
goes out: the rows of all nodes, in pre-order.

It must not know: SQL text, documents.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from querybuild.cursors import encode_cursors
from querybuild.declarations.resource import Resource, link_of
from querybuild.planning.plan import Branch, Choice, Node
from querybuild.planning.rows import FirstRows, Row, branch_keys, first_rows, joined_rows, joined_width, row_width
from querybuild.sql.statement import Statement
from serializers.links import linkage_query
from serializers.steps import ALONE, Steps, run_steps
from server.errors import TooManyIncluded
from server.execution import pacing
from server.execution.arguments import Arguments
from server.execution.pacing import pause_collector
from server.execution.read_refusals import raise_refused_choice
from server.postgres.connection import PostgresConnection
from server.postgres.driver_errors import OF_VALUES
from server.preparing.reads import PreparedRead


def too_many_included() -> TooManyIncluded:
    """Return the error for too many included resources."""
    detail = "The answer would include too many resources: ask for a smaller page or include less."
    return TooManyIncluded(detail, parameter="include")


class IncludedCount:
    """Counts the included resources of a document. A resource that the document already contains is not counted
    again. limit: how many there may be. If linkage includes its resources, the primary rows count too."""

    def __init__(self, read: PreparedRead, primary: Sequence[Row], limit: int) -> None:
        """Raises TooManyIncluded."""
        self._room = limit - (len(primary) if read.plan.includes_primary else 0)
        self._check_room()
        self._seen: dict[Resource, list[Sequence[Row]]] = {read.plan.node.resource: [primary]}

    def max_rows(self, branch: Branch, key_count: int) -> int:
        """Return the limit for the rows of a branch: with this number there are too many included resources. 0 means no
        limit, for a branch that only has linkage."""
        if not branch.is_included:
            return 0
        known = sum(len(rows) for rows in self._seen.get(branch.node.resource, ()))
        repeats = key_count if link_of(branch.relationship) is not None else 1
        # For each parent a row is read that is not shown.
        others = 0 if branch.size is None else key_count
        return (self._room + known) * repeats + others + 1

    def add(self, branch: Branch, rows: Sequence[Row]) -> None:
        """Count the rows of a branch. Raises TooManyIncluded."""
        if not branch.is_included:
            return
        seen = self._seen.setdefault(branch.node.resource, [])
        if seen or link_of(branch.relationship) is not None:
            known = {row[0] for earlier in seen for row in earlier}
            self._room -= len({row[0] for row in rows} - known)
        else:
            self._room -= len(rows)
        seen.append(rows)
        self._check_room()

    def _check_room(self) -> None:
        if self._room < 0:
            raise too_many_included()


async def read_related(
    connection: PostgresConnection,
    read: PreparedRead,
    branch: Branch,
    statement: Statement,
    values: Sequence[Any],
    limit: int = 0,
) -> Sequence[Row]:
    """Return the rows of a branch that are shown. limit: for the rows that are read, 0 for none. Raises
    ValueRefused."""
    try:
        rows = await connection.fetch_at_most(statement.sql, values, limit)
    except OF_VALUES as error:
        raise_refused_choice(error, read, branch)
    return await shown_rows(read, branch, rows)


async def shown_rows(read: PreparedRead, branch: Branch, rows: Sequence[Row]) -> Sequence[Row]:
    """Return the rows of a branch that are shown. rows: all that were read."""
    if branch.choice is None or branch.size is None:
        return rows
    steps = _first_rows(read, branch, branch.choice, rows)
    return await pacing.run_steps(steps) if len(rows) > ALONE.short_rows else run_steps(steps)


def _first_rows(read: PreparedRead, branch: Branch, choice: Choice, rows: Sequence[Row]) -> Steps[FirstRows]:
    listed, begin = read.planned.choices[choice.index], branch.node.position_of_parent + 1
    ids, end = branch.node.rows.cursor_ids, begin + len(branch.cursor_keys)

    def onward(parents: Sequence[Any], last: Sequence[Row]) -> list[bytes]:
        query = linkage_query(read.queries.own, listed.parameters, listed.size).encode()
        values = [(str(row[0]),) for row in last] if choice.is_by_id else [row[begin:end] for row in last]
        if len(query) > listed.max_bytes:
            return [b""] * len(parents)
        # A cursor has no character that a URL would have to encode.
        cursors = encode_cursors(listed.cursor_mark, zip(map(str, parents), values, strict=True), ids)
        return [query + cursor for cursor in cursors]

    return first_rows(branch, choice, rows, onward, ALONE.step_rows)


async def read_branches(
    connection: PostgresConnection,
    read: PreparedRead,
    sent: Arguments,
    primary: Sequence[Row],
    united: Sequence[Row],
    limit: int,
) -> list[Sequence[Row]]:
    """Return the rows of each node, in pre-order, the primary ones first. united: the rows of the branch that the
    primary statement read. limit: for included resources. Raises TooManyIncluded."""
    reader = _BranchReader(connection, read, sent, primary, limit)
    begin = row_width(read.plan.node, None) + len(read.plan.cursor_keys)
    await reader.read(read.plan.node, primary, begin, united)
    return reader.parts


class _BranchReader:
    """Reads the branches of one read. parts: the rows of the nodes so far."""

    def __init__(
        self, connection: PostgresConnection, read: PreparedRead, sent: Arguments, primary: Sequence[Row], limit: int
    ) -> None:
        self.parts = [primary]
        self._connection = connection
        self._read = read
        self._sent = sent
        self._statements = iter(read.ready.statements.branches)
        self._included = IncludedCount(read, primary, limit)

    async def read(self, node: Node, rows: Sequence[Row], begin: int, united: Sequence[Row] = ()) -> None:
        """Read the rows of the branches of a node, in pre-order. rows: those of the node. begin: the position of the
        first joined column."""
        for branch in node.branches:
            statement = next(self._statements)
            keys = branch_keys(node, branch, rows) if statement is not None else []
            children: Sequence[Row] = []
            if branch.fetch == "union":
                children = await shown_rows(self._read, branch, united)
            elif branch.fetch == "join":
                children = joined_rows(rows, begin, branch.node)
                begin += joined_width(branch.node)
            elif statement is not None and keys:
                limit = self._included.max_rows(branch, len(keys))
                values = self._sent.of(statement, keys=keys)
                children = await read_related(self._connection, self._read, branch, statement, values, limit)
            if len(children) > ALONE.short_rows:
                pause_collector()
                # Each loop over all rows takes milliseconds, so other requests get a turn between the loops.
                await asyncio.sleep(0)
            self._included.add(branch, children)
            self.parts.append(children)
            if len(children) > ALONE.short_rows:
                await asyncio.sleep(0)
            await self.read(branch.node, children, row_width(branch.node, branch))
