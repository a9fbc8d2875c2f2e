"""Finds the rows of a write by a filter, and writes them by one statement where that is possible.

Nothing here writes SQL. Rows that need more than that statement are written by `transaction.py`, like others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from querybuild.errors import raise_as
from querybuild.planning.page_values import Values
from querybuild.planning.rows import Row
from querybuild.planning.writes.bulk import PlannedBulk
from querybuild.sql.statement import Statement
from querybuild.sql.writes.bulk import is_decided_by_policies
from serializers.pointers import member_pointer
from server.engine import Engine
from server.errors import NotWritten, TooManyChanges
from server.execution.arguments import Arguments
from server.execution.read_refusals import refused_filter
from server.execution.refusals import translate_write_error, value_refused
from server.execution.writes.locks import fetch_locked
from server.postgres.connection import PostgresConnection
from server.postgres.driver_errors import VIOLATED, is_value_refused
from server.postgres.rules import is_rule


class BulkRows:
    """The rows of one write. context: the values of `Context`. sent: the values of the write and of its filter."""

    def __init__(self, connection: PostgresConnection, engine: Engine, context: Values, bulk: PlannedBulk) -> None:
        self.sent = Arguments(bulk.values, context)
        self._connection = connection
        self._engine = engine
        self._bulk = bulk

    async def write(self) -> list[Any] | None:
        """Write all rows by one statement, or by a second one after they are locked, and return their ids. Returns None
        if they need more than that: then nothing was written. Raises TooManyChanges, NotWritten, BodyValueRefused, and
        what `translate_write_error` returns."""
        plan, known = self._bulk.plan, self._engine.statements
        if (whole := known.of_whole_bulk(plan)) is not None:
            rows = await self._fetch(whole)
            ids = self._ids(rows)
            if is_decided_by_policies(plan) or (ids and len(ids) == rows[0][1]):
                return ids
            if ids:
                raise self._cancelled(rows[0][1], ids)
        if (locked := known.of_locked_bulk(plan)) is None:
            return None
        ids = await self.lock()
        written = [row[0] for row in await self._fetch(locked, ids)] if ids else []
        if len(written) < len(ids):
            raise self._cancelled(len(ids), written)
        return ids

    def _cancelled(self, count: int, written: list[Any]) -> NotWritten:
        detail = f"The database did not {self._bulk.plan.kind} all resources: a trigger or a policy cancelled"
        return NotWritten(f"{detail} {count - len(written)} of {count} writes. Nothing was written.")

    async def lock(self) -> list[Any]:
        """Lock the rows and return their ids, in the order of the ids. Raises TooManyChanges, BodyValueRefused."""
        return self._ids(await self._fetch(self._engine.statements.of_bulk(self._bulk.plan)))

    def _ids(self, rows: Sequence[Row]) -> list[Any]:
        plan, max_rows = self._bulk.plan, self._bulk.sent.max_rows
        if len(rows) > max_rows:
            detail = f"The filter finds more than {max_rows} resources of type {plan.rows.resource.type} to {plan.kind}"
            raise TooManyChanges(f"{detail}, so nothing was written.", pointer=self._pointer("max"))
        return [row[0] for row in rows]

    async def _fetch(self, statement: Statement, ids: list[Any] | None = None) -> Sequence[Row]:
        values = self.sent.of(statement, keys=ids, max_rows=self._bulk.sent.max_rows + 1)
        try:
            return await fetch_locked(self._connection, statement, values)
        except Exception as error:
            raise_as(self._refusal(error), error)

    def _refusal(self, error: Exception) -> Exception:
        """Return what is raised for an error of PostgreSQL: it may be about the filter, or about what is written."""
        bulk, write = self._bulk, self._bulk.write
        is_about_rows = isinstance(error, VIOLATED) or is_rule(error)
        refused = None if is_about_rows else refused_filter(error, bulk.filters, bulk.values)
        if refused is not None:
            return refused
        if write is not None:
            return translate_write_error(error, write, self._engine)
        return value_refused(error, self._pointer("filter")) if is_value_refused(error) else error

    def _pointer(self, name: str) -> str:
        return member_pointer(self._bulk.sent.pointer, name)
