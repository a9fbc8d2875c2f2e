"""Answers /operations: atomic operations. What comes in: a list of writes. What goes out: the result of each, or the
error for which all of them were rolled back, in the form that the media type of the request selects.

Sources: service.md "Atomic operations route"; the JSON:API extension https://jsonapi.org/ext/atomic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from querybuild.declarations.resource import Resource
from querybuild.errors import (
    SHOWN_CHARACTERS,
    ApiError,
    Errors,
    Forbidden,
    MethodForbidden,
    Unauthenticated,
    nearest,
    quoted,
    raise_all,
    release_frames,
)
from querybuild.planning.context import check_method
from serializers.decode import parse_document
from serializers.errors import InvalidDocument
from serializers.operations.reader import CHANGE_OF_OP, Operation
from serializers.operations.requests import UniformAdds, decode_operations, load_operations, uniform_adds
from serializers.operations.results import Done, encode_operation_error, encode_results
from serializers.pointers import member_pointer
from server.error_answers import ErrorAnswer, error_objects
from server.errors import KeyFault, Overload
from server.execution.writes.answers import Objects, set_pointer
from server.execution.writes.batches import MAX_CREATES
from server.execution.writes.reply import Reply
from server.handlers.auditing import Target, with_ids
from server.handlers.writing import WritingHandler
from server.http.negotiation import ATOMIC, EXTENDED
from server.preparing.writes import PreparedRows, PreparedWrite


class Listed(msgspec.Struct, frozen=True, eq=False):
    """The operations of a request. values: as JSON values. adds: the same as columns, if they are many and alike."""

    values: list[Any]
    adds: UniformAdds | None


class Planned(msgspec.Struct, frozen=True, eq=False):
    """What a request writes: new rows with one plan, or the writes of its operations."""

    listed: Listed
    rows: PreparedRows | None
    results: Objects | None


class OperationsHandler(WritingHandler):
    """Runs a list of operations in one transaction."""

    _operations: list[Operation] | None = None
    _listed: Listed | None = None
    _results: Objects | None = None

    async def post(self) -> None:
        await self.answer_write(self._parse, self._plan, self._execute_writes, self._reply_results)

    def _parse(self, _: list[ApiError]) -> Listed:
        self._operations = []
        parsed, most = parse_document(self.received.take(), self.engine.limits), self.engine.settings.max_operations
        adds = uniform_adds(parsed, MAX_CREATES + 1, most, self.engine.limits)
        self._listed = Listed(load_operations(parsed, most) if adds is None else adds.values, adds)
        return self._listed

    def targets(self) -> list[Target]:
        """Return what the operations write, as far as they are decoded."""
        if self._operations:
            return [_target(operation) for operation in self._operations]
        if self._listed is not None and self._listed.adds is not None:
            return [Target("create", self._listed.adds.first.type)] * len(self._listed.values)
        return [Target()]

    def on_commit(self, ids: Sequence[Any]) -> None:
        """Record what was committed: an operation with a filter may have written any number of rows."""
        if self._results is None or not self._results.has_counts:
            super().on_commit(ids)
            return
        targets = zip(self.targets(), self._results.counts, strict=True)
        self.record_done(with_ids([target for target, count in targets for _ in range(count)], ids))

    def _plan(self, listed: Listed, errors: list[ApiError]) -> Planned:
        rows = None if listed.adds is None else self._plan_rows(listed.adds)
        return Planned(listed, rows, self._plan_each(listed.values, errors) if rows is None else None)

    def _plan_rows(self, adds: UniformAdds) -> PreparedRows | None:
        """Plan many adds at once. Returns None if one of them has an error."""
        resource = self.catalog.by_type.get(str(adds.first.type))
        if resource is None or not (resource.in_operations and "create" in resource.methods):
            return None
        return self.engine.writes.prepare_rows(resource, adds, self.context)

    def _plan_each(self, values: list[Any], errors: list[ApiError]) -> Objects:
        """Decode and plan each operation. Appends to errors."""
        # An error that ends the decoding shows the operation that it is about.
        self._operations = operations = list[Operation]()
        decode_operations(values, operations, errors, self.engine.limits, is_extended=self._is_extended)
        writes = [write for operation in operations if (write := self._prepare(operation, errors)) is not None]
        self._results = Objects(operations, writes, self.engine, self.context, has_versions=not self.is_tried)
        return self._results

    async def _execute_writes(self, planned: Planned) -> Sequence[Done]:
        results = planned.results
        if planned.rows is not None:
            done = await self.writer.create_rows(planned.rows)
            if done is not None:
                return done
        if results is None:
            # One of the rows is refused: running each operation tells which one it is.
            errors = Errors()
            results = self._plan_each(planned.listed.values, errors)
            raise_all(errors)
        return await self.writer.run(results.writes, results)

    def _reply_results(self, planned: Planned, done: Sequence[Done]) -> Reply:
        results = planned.results
        if (
            results is not None
            and all(operation.op == "remove" for operation in results.operations)
            and not results.has_counts
        ):
            return Reply(204)
        document = encode_results(done, has_meta=not self._is_extended)
        return Reply(200, document, media_type=EXTENDED if self._is_extended else "")

    @property
    def _is_extended(self) -> bool:
        return ATOMIC in self.applied_extensions

    def _prepare(self, operation: Operation, errors: list[ApiError]) -> PreparedWrite | None:
        """Return the write of an operation, or None if it has errors. Appends to errors."""
        change = operation.change
        faults: list[ApiError] = []
        if change is None or change.type is None:
            return None
        resource = self._resource_of(change.type, operation, faults)
        if resource is None:
            errors.extend(faults)
            return None
        try:
            if not operation.is_linkage:
                check_method(resource, change.kind)
            write = self.engine.writes.prepare(resource, change, self.context, faults)
        except (MethodForbidden, Forbidden, Unauthenticated) as error:
            release_frames(error)
            faults.append(error)
        for fault in faults:
            set_pointer(fault, operation.pointer)
        errors.extend(faults)
        return None if faults else write

    def _resource_of(self, type_name: str, operation: Operation, faults: list[ApiError]) -> Resource | None:
        resource = self.catalog.by_type.get(type_name)
        if resource is not None and resource.in_operations:
            return resource
        assert operation.change is not None
        pointer = member_pointer(operation.change.pointer, "type")
        detail = f"Resources of type {quoted(type_name)} cannot be written by atomic operations."
        if resource is None:
            known = [known.type for known in self.catalog if known.in_operations]
            detail = f"There is no resource type {quoted(type_name)}.{nearest(type_name, known)}"
        faults.append(InvalidDocument(detail, pointer=pointer))
        return None

    def error_answer(self, error: BaseException) -> ErrorAnswer:
        """Return the answer for an exception. Without the extension, errors of the client have the form of
        service.md."""
        made = super().error_answer(error)
        if made.status >= 500 or isinstance(error, Overload | KeyFault) or self._operations is None:
            return made
        if self._is_extended:
            return msgspec.structs.replace(made, headers=(*made.headers, ("Content-Type", EXTENDED)))
        body = encode_operation_error(self._operations, error_objects(error, self.request_id))
        return ErrorAnswer(422, (("Content-Type", "application/json"),), body, is_fault=False)


def _target(operation: Operation) -> Target:
    """Return what an operation writes. An operation with errors only has its kind."""
    change = operation.change
    if change is None:
        return Target("update" if operation.is_linkage else CHANGE_OF_OP.get(operation.op))
    relationship = next(iter(change.relationships)) if operation.is_linkage else None
    return Target(change.kind, _shown(change.type), _shown(change.id), relationship)


def _shown(text: str | None) -> str | None:
    return None if text is None else text[:SHOWN_CHARACTERS]
