"""Finds the rows of a write by a filter, and writes them by one statement where that is possible.

Nothing here writes SQL. Rows that need more than that statement are written by `transaction.py`, like others.
"""

from __future__ import annotations

from typing import Any

from querybuild.errors import raise_as
from querybuild.planning.plan import Values
from querybuild.planning.writes.bulk import PlannedBulk
from querybuild.sql.statement import Statement
from serializers.pointers import member_pointer
from server.engine import Engine
from server.errors import TooManyChanges
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

    async def write(self) -> list[Any]:
        """Write all rows by one statement, and return their ids. If there are none, nothing was written: then `lock`
        says why. Raises what `translate_write_error` returns, and BodyValueRefused."""
        whole = self._engine.statements.of_whole_bulk(self._bulk.plan)
        return [] if whole is None else await self._fetch(whole)

    async def lock(self) -> list[Any]:
        """Lock the rows and return their ids, in the order of the ids. Raises TooManyChanges, BodyValueRefused."""
        lock, max_rows = self._engine.statements.of_bulk(self._bulk.plan), self._bulk.sent.max_rows
        ids = await self._fetch(lock)
        if len(ids) > max_rows:
            plan = self._bulk.plan
            detail = f"The filter finds more than {max_rows} resources of type {plan.rows.resource.type} to {plan.kind}"
            raise TooManyChanges(f"{detail}, so nothing was written.", pointer=self._pointer("max"))
        return ids

    async def _fetch(self, statement: Statement) -> list[Any]:
        values = self.sent.of(statement, max_rows=self._bulk.sent.max_rows + 1)
        try:
            return [row[0] for row in await fetch_locked(self._connection, statement, values)]
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
