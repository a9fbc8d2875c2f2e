"""Runs an import: creates a row for each record of a file, all in one transaction or none. What comes in: batches of
records. What goes out: how many rows were created, or the faults with their lines.

Faults that the server finds itself are all looked for before one of PostgreSQL is. If PostgreSQL refuses a batch, this
is divided by savepoints, until the first faulty record is found.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from querybuild.declarations.resource import Resource
from querybuild.errors import ApiError, Errors, Several, raise_as, release_frames
from querybuild.planning.context import Context
from querybuild.planning.plan import Node, node_of
from querybuild.planning.row_plan import FIRST_ALIAS
from querybuild.planning.rowsets import open_rows
from serializers.lines.reading import MAX_FAULTS, Batch, at
from server.engine import Engine
from server.errors import RAISED, Conflict, DatabaseForbids, DatabaseRule, NotWritten, StatementTimeout
from server.execution.refusals import is_refusal, translate_write_error
from server.execution.writes.answers import Ids
from server.execution.writes.transaction import NotAllWritten, Transaction
from server.execution.writes.writer import Writer, run_after_commit
from server.postgres.connection import PostgresConnection
from server.preparing.writes import PreparedRows, PreparedWrite

Records = Callable[[], Iterator[Batch]]
"""Reads the file from its beginning: a transaction that another one has made fail begins again."""


class Import:
    """One import. records: of the file."""

    def __init__(self, writer: Writer, engine: Engine, context: Context, resource: Resource, records: Records) -> None:
        self._writer, self._engine, self._context = writer, engine, context
        self._resource, self._records = resource, records
        self._ids: Node = node_of(open_rows(resource, FIRST_ALIAS, Context()))
        hooks = resource.hooks
        self._keeps_written = writer.on_commit is not None or bool(hooks.after_commit)
        self._transaction: Transaction | None = None

    async def run(self) -> int:
        """Create the rows, and return how many there are. Raises Several, and what single creates raise."""
        count = await self._writer.transact(self._run)
        written = [] if self._transaction is None else self._transaction.written
        if self._writer.on_commit is not None:
            self._writer.on_commit([row.id for _, batch in written for row in batch])
        if not self._writer.is_tried:
            await run_after_commit(written)
        return count

    async def _run(self, connection: PostgresConnection) -> int:
        access = self._context.access
        checks_sent = bool(access.check_create or access.check_update)
        self._transaction = transaction = Transaction(
            connection, self._engine, self._context, self._writer.headers, checks_sent=checks_sent
        )
        count, faults, batches = 0, Errors(), self._records()
        end = time.monotonic() + self._engine.settings.stream_seconds
        for batch in batches:
            prepared = self._prepare(batch, faults)
            if len(faults) >= MAX_FAULTS:
                break
            if not faults:
                try:
                    await self._write(transaction, prepared)
                except Exception as error:
                    if not _is_of_record(error):
                        raise
                    release_frames(error)
                    await self._raise_first_fault(transaction, batch, batches)
                count += len(batch.numbers)
            if time.monotonic() > end:
                raise StatementTimeout("The import took too long, and nothing was written: send the file in parts.")
            # Reading and planning a batch take some milliseconds, in which nobody else is answered.
            await asyncio.sleep(0)
        if faults:
            raise Several(faults[:MAX_FAULTS])
        return count

    def _prepare(self, batch: Batch, faults: list[ApiError]) -> PreparedRows | list[PreparedWrite]:
        """Return what a batch writes. Appends to faults."""
        adds = batch.uniform()
        rows = None if adds is None else self._engine.writes.prepare_rows(self._resource, adds, self._context)
        if rows is not None:
            return rows
        writes = []
        for index, number in enumerate(batch.numbers):
            errors = Errors()
            change = batch.change(index, errors)
            if change is not None:
                try:
                    writes.append(self._engine.writes.prepare(self._resource, change, self._context, errors))
                except ApiError as error:
                    errors.append(error)
            faults += [at(fault, number, suffix=batch.suffix) for fault in errors]
            if len(faults) >= MAX_FAULTS:
                break
        return writes

    async def _write(self, transaction: Transaction, prepared: PreparedRows | Sequence[PreparedWrite]) -> None:
        """Write a batch in a savepoint. If it is refused, nothing of it is written."""
        savepoint = transaction.connection.transaction()
        await savepoint.start()
        try:
            if isinstance(prepared, PreparedRows):
                await transaction.create_rows(prepared, self._ids)
            else:
                await transaction.run(prepared, Ids())
        except BaseException as error:
            if isinstance(error, Exception) and _is_of_record(error):
                await savepoint.rollback()
            raise
        await savepoint.commit()
        if not self._keeps_written:
            transaction.forget()

    async def _raise_first_fault(self, transaction: Transaction, batch: Batch, others: Iterable[Batch]) -> None:
        """Raise the faults that the server finds in the other batches, or if there are none that of the first record
        that PostgreSQL refuses."""
        faults = Errors()
        for other in others:
            self._prepare(other, faults)
            if len(faults) >= MAX_FAULTS:
                break
            await asyncio.sleep(0)
        if faults:
            raise Several(faults[:MAX_FAULTS])
        low, high = 0, len(batch.numbers)
        while high - low > 1:
            middle = (low + high) // 2
            try:
                await self._write(transaction, self._single(batch, range(low, middle)))
                low = middle
            except Exception as error:
                if not _is_of_record(error):
                    raise
                release_frames(error)
                high = middle
        [write] = self._single(batch, range(low, high))
        try:
            await self._write(transaction, [write])
        except Exception as error:
            if not _is_of_record(error):
                raise
            translated = error if isinstance(error, RAISED) else self._translated(error, write)
            if isinstance(translated, ApiError):
                translated = at(translated, batch.numbers[low], suffix=batch.suffix)
            raise_as(translated, error)
        # A trigger for statements may refuse records only together.
        raise at(NotWritten("The database refuses these records, and each of them alone it takes."), batch.numbers[low])

    def _translated(self, error: Exception, write: PreparedWrite) -> Exception:
        return error if write.planned is None else translate_write_error(error, write.planned, self._engine)

    def _single(self, batch: Batch, indexes: range) -> list[PreparedWrite]:
        """Return the writes of records that the server has found nothing wrong with."""
        writes = []
        for index in indexes:
            change = batch.change(index, Errors())
            assert change is not None
            writes.append(self._engine.writes.prepare(self._resource, change, self._context, Errors()))
        return writes


def _is_of_record(error: Exception) -> bool:
    """Return whether a record has caused an error, so that the transaction need not be repeated."""
    return isinstance(error, (NotAllWritten, Conflict, DatabaseForbids, DatabaseRule, *RAISED)) or is_refusal(error)
