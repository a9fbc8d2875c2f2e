"""Defines what a request that writes is answered with: nothing, a document, or the results of operations."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Generic, TypeVar

import msgspec

from querybuild.declarations.resource import Resource
from querybuild.errors import ResourceNotFound, Several, raise_as
from querybuild.planning.context import Context
from querybuild.planning.plan import Node
from querybuild.planning.rows import Row, nodes
from querybuild.planning.rowsets import hides
from querybuild.sql.statement import Statement
from serializers.compound import identifier_encoder
from serializers.errors import answer_too_large
from serializers.operations.reader import POINTER, Operation
from serializers.operations.results import Done
from server.engine import Engine
from server.errors import Raised
from server.execution.arguments import arguments_of
from server.execution.execute import ReadResult, check_parent, check_size, read_rows, result_of, run_combined_read
from server.execution.refusals import value_refused
from server.execution.versions import is_whole, read_linkage_version
from server.execution.writes.outcomes import WrittenRow
from server.postgres.connection import PostgresConnection
from server.postgres.driver_errors import OF_ROWS, is_of_rows
from server.preparing.reads import PreparedLinkage, PreparedRead, ReadShape
from server.preparing.writes import PreparedWrite

Result = TypeVar("Result")

LINKAGE_BYTES = 512
"""More bytes than an identifier in linkage has, if its id is not a text."""


class Answer(Generic[Result]):
    """Makes the result of a request from the outcomes of its writes. result: complete when all writes are done."""

    result: Result

    is_returned_whole = True
    """Whether the rows that the statements of the writes return are all that the answer needs, and making it cannot
    fail. Then the writes may be committed before it is made."""

    last: Statement | None = None
    """The statement that reads the answer, if it can be sent with those that write (`read_last`)."""

    def shown(self, index: int) -> Node | None:
        """Return the columns that the statement of a write returns. index: of the write in the request."""
        return None

    async def read_last(self, connection: PostgresConnection, row_id: Any) -> None:
        """Read what the answer shows of the written row with `last`, if there is one."""

    def made(self, row_id: Any) -> None:
        """Take the id of the only written row, if the statement that has written it has made the answer."""

    def begin(self) -> None:
        """Forget the outcomes so far, because the writes begin again."""

    async def add(self, indexes: range, outcomes: Sequence[WrittenRow], connection: PostgresConnection | None) -> None:
        """Take the outcomes of the writes at these indexes. connection: that of their transaction; None if they are
        committed."""

    def add_count(self, count: int) -> None:
        """Take the outcome of a write of the rows that a filter finds: how many it has written."""

    def refused(self, error: Raised, indexes: range) -> None:
        """Say in the error which of the writes it is about."""


class Nothing(Answer[None]):
    """Shows nothing of what was written."""

    result = None


class Ids(Answer[list[Any]]):
    """Shows the ids of the written rows."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.result = []

    async def add(self, indexes: range, outcomes: Sequence[WrittenRow], connection: PostgresConnection | None) -> None:
        self.result += [outcome.id for outcome in outcomes]


class LinkageVersion(Answer[str | None]):
    """Reads the version of the linkage that one write has left. Its result is None if there are too many links."""

    is_returned_whole = False

    def __init__(self, write: PreparedWrite, linkage: PreparedLinkage, context: Context) -> None:
        self._write, self._linkage, self._context = write, linkage, context
        self.last = linkage.statement

    async def read_last(self, connection: PostgresConnection, row_id: Any) -> None:
        self.result = await read_linkage_version(connection, self._linkage, self._context, row_id)

    async def add(self, indexes: range, outcomes: Sequence[WrittenRow], connection: PostgresConnection | None) -> None:
        assert connection is not None
        await _run_deferred(connection, self._write.resource)
        await self.read_last(connection, outcomes[0].id)


class ReadBack(Answer[tuple[Any, ReadResult | None]]):
    """Reads the document that shows what one write has done. Its result is the id of the written row, and the rows of
    the document. None: the row may not be read. is_update: whether a create has updated a row that was there."""

    is_update = False

    def __init__(self, write: PreparedWrite, read: PreparedRead, engine: Engine, context: Context) -> None:
        self._read = read
        self._write = write
        self._engine = engine
        self._context = context
        # Custom code and triggers may write after the row's own statement.
        is_returned = read.ready.is_one_row and not write.is_hooked and _is_returned(write)
        self._node = node = read.plan.node if is_returned else None
        self._may_be_hidden = hides(write.resource, context)
        self.is_returned_whole = node is not None and not node.computed and engine.has_room_for_rows
        if read.plan.is_linkage and not self._may_be_hidden and _is_small_page(read, write, engine):
            self.last = read.ready.statements.combined or read.ready.statements.primary

    async def read_last(self, connection: PostgresConnection, row_id: Any) -> None:
        self.result = row_id, await self._read_result(connection, row_id)

    def made(self, row_id: Any) -> None:
        self.result = row_id, None

    def shown(self, index: int) -> Node | None:
        return self._node

    async def add(self, indexes: range, outcomes: Sequence[WrittenRow], connection: PostgresConnection | None) -> None:
        [outcome] = outcomes
        read, self.is_update = self._read, outcome.is_update
        result: ReadResult | None
        if outcome.row is not None and self._may_be_hidden and not outcome.row[read.plan.node.width]:
            result = None
        elif outcome.row is not None:
            rows: list[Sequence[Row]] = [[outcome.row]]
            if read.plan.node.branches:
                rows += [[] for _ in list(nodes(read.plan.node))[1:]]
            result = result_of(read, rows)
        else:
            assert connection is not None
            await _run_deferred(connection, self._write.resource)
            result = await self._read_result(connection, outcome.id)
            if result is not None and read.plan.is_linkage and not is_whole(read, result):
                result = await self._with_version(connection, outcome.id, result)
        if connection is not None and result is not None:
            await check_size(read, result, self._engine)
        self.result = outcome.id, result

    async def _with_version(self, connection: PostgresConnection, row_id: Any, result: ReadResult) -> ReadResult:
        scope = self._read.plan.scope
        assert scope is not None
        shape = ReadShape("linkage", scope.parent, scope.relationship)
        linkage = self._engine.reads.prepare_linkage(shape, self._context)
        version = await read_linkage_version(connection, linkage, self._context, row_id)
        return msgspec.structs.replace(result, linkage_version=version)

    async def _read_result(self, connection: PostgresConnection, row_id: Any) -> ReadResult | None:
        """Return the rows of the document, or None if the written row may not be read."""
        read = self._read
        sent = arguments_of(read, self._context, row_id)
        try:
            result = await run_combined_read(connection, read, sent, self._engine)
            if self._may_be_hidden and not result.rows[0]:
                if read.plan.scope is None:
                    return None
                await check_parent(connection, read, sent)
        except ResourceNotFound:
            if self._may_be_hidden:
                return None
            raise
        return result


def _is_returned(write: PreparedWrite) -> bool:
    """Return whether the row stays as the statement that writes it returns it."""
    return write.change.kind in write.resource.abilities.returned


async def _run_deferred(connection: PostgresConnection, resource: Resource) -> None:
    """Have the triggers run that wait for the end of the transaction, before the row is read for the answer. Foreign
    keys still wait."""
    if names := resource.abilities.deferred:
        await connection.queue(connection.execute(f"SET CONSTRAINTS {','.join(names)} IMMEDIATE"))


def _is_small_page(read: PreparedRead, write: PreparedWrite, engine: Engine) -> bool:
    """Return whether one statement reads all linkage, which is not empty, and whether its document cannot fail."""
    plan, page, id_type = read.plan, read.page, read.plan.node.resource.id.key.types[0]
    max_rows = engine.settings.max_answer_bytes // LINKAGE_BYTES
    is_first = page.offset == 0 and plan.rows.keyset is None and 0 < page.size <= max_rows
    is_alone = not (plan.node.branches or plan.includes_primary or plan.total == "estimated")
    is_long = any(len(linkage.identifiers) > page.size for linkage in write.change.relationships.values())
    return is_first and is_alone and not is_long and not id_type.is_text and not read.ready.unenforced_keys


class Objects(Answer[list[Done]]):
    """Encodes the results of atomic operations: the resource object of each write, with its attributes, and the version
    of its row, if it has_versions. If a new row may not be read, its object has only the type and the id."""

    def __init__(
        self,
        operations: Sequence[Operation],
        writes: Sequence[PreparedWrite],
        engine: Engine,
        context: Context,
        *,
        has_versions: bool,
    ) -> None:
        self.operations = operations
        self.writes = writes
        self._engine = engine
        self._context = context
        self._encodings = [engine.encoders.of_objects(write.resource, has_versions=has_versions) for write in writes]
        self.begin()
        encodings = set(self._encodings)
        is_returned = all(encoding.is_returned and not encoding.node.computed for encoding in encodings) and all(
            write.change.kind == "delete" or _is_returned(write) for write in writes
        )
        # A row that may not be read is not in the answer.
        self._has_hidden = any(hides(encoding.node.resource, context) for encoding in encodings)
        self.is_returned_whole = is_returned and not self._has_hidden and engine.has_room_for_rows

    def shown(self, index: int) -> Node | None:
        encoding = self._encodings[index]
        is_shown = encoding.is_returned and not self._has_hidden and _is_returned(self.writes[index])
        return encoding.node if is_shown else None

    def begin(self) -> None:
        self.result = []
        self._left_bytes = self._engine.settings.max_answer_bytes

    async def add(self, indexes: range, outcomes: Sequence[WrittenRow], connection: PostgresConnection | None) -> None:
        encoded: list[Done] = []
        for encoding, group in groupby(zip(indexes, outcomes, strict=True), key=lambda pair: self._encodings[pair[0]]):
            shown = {index: outcome if self._has_row(index) else None for index, outcome in group}
            try:
                rows = await self._rows(encoding.node.resource, list(shown.values()), connection)
            except OF_ROWS as error:
                raise_as(self._impossible(error, list(shown)), error)
            has_object = [self._has_object(index) for index in shown]
            objects = [row if has else None for row, has in zip(rows, has_object, strict=True)]
            texts = encoding.encode_some(objects)
            if self._has_hidden:
                begin = len(encoded)
                texts = self._with_unreadable(texts, outcomes[begin:], indexes[begin:])
            encoded += zip(texts, encoding.versions(rows), strict=True)
        self.result += encoded
        self._left_bytes -= sum([len(text) for text, _ in encoded if text is not None])
        if connection is not None and self._left_bytes < 0:
            raise answer_too_large(self._engine.settings.max_answer_bytes)

    @property
    def has_counts(self) -> bool:
        """Whether a result tells how many rows were written."""
        return any(write.bulk is not None for write in self.writes)

    def add_count(self, count: int) -> None:
        self.result.append((None, count))

    @property
    def counts(self) -> list[int]:
        """How many rows each of the writes has written."""
        return [told if isinstance(told, int) else 1 for _, told in self.result]

    def _impossible(self, error: Exception, indexes: Sequence[int]) -> Exception:
        """Return what is raised if the rows of some operations cannot be read back, because a value that depends on
        what they write cannot be computed. It points to the operation if there is only one."""
        if not is_of_rows(error):
            return error
        pointer = f"{self.operations[indexes[0]].pointer}/data" if len(indexes) == 1 else POINTER
        return value_refused(error, pointer)

    def _with_unreadable(
        self, objects: Sequence[bytes | None], outcomes: Sequence[WrittenRow], indexes: Sequence[int]
    ) -> list[bytes | None]:
        return [
            identifier_encoder(write.resource)(outcome.id) if made is None and write.change.kind == "create" else made
            for made, outcome, write in zip(objects, outcomes, [self.writes[index] for index in indexes], strict=False)
        ]

    def _has_object(self, index: int) -> bool:
        return self.writes[index].change.kind != "delete" and not self.operations[index].is_linkage

    def _has_row(self, index: int) -> bool:
        """Return whether the result shows something of the row. An operation on a relationship shows its version, if
        it changes a declared one."""
        write, version = self.writes[index], self.writes[index].resource.abilities.version
        is_versioned = version is not None and version.is_written
        return is_versioned if self.operations[index].is_linkage else write.change.kind != "delete"

    async def _rows(
        self, resource: Resource, shown: Sequence[WrittenRow | None], connection: PostgresConnection | None
    ) -> list[Row | None]:
        unread = [written_row.id for written_row in shown if written_row is not None and written_row.row is None]
        if not unread:
            return [None if written_row is None else written_row.row for written_row in shown]
        assert connection is not None
        await _run_deferred(connection, resource)
        read = await read_rows(connection, resource, unread, self._engine, self._context)
        return [None if written_row is None else read.get(written_row.id, written_row.row) for written_row in shown]

    def refused(self, error: Raised, indexes: range) -> None:
        pointer = self.operations[indexes.start].pointer if len(indexes) == 1 else POINTER
        set_pointer(error, pointer)


def set_pointer(error: Raised, pointer: str) -> None:
    """Set the pointer of errors that do not point into the operations. Errors of custom code may have no pointer."""
    for cause in error.errors if isinstance(error, Several) else (error,):
        if not (getattr(cause, "pointer", None) or "").startswith(POINTER):
            vars(cause)["pointer"] = pointer
