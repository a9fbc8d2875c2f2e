"""Answers /operations: atomic operations. What comes in: a list of writes. What goes out: the result of each, or the
error for which all of them were rolled back, in the form that the media type of the request selects.

Sources: service.md "Atomic operations route"; the JSON:API extension https://jsonapi.org/ext/atomic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter

import msgspec
from tornado.web import HTTPError

from querybuild.changes import check_method
from querybuild.errors import ApiError, Errors, MethodForbidden, Several, nearest, quoted, raise_all, release_frames
from querybuild.query import Lid
from querybuild.resource import Resource
from querybuild.rows import Row
from serializers.errors import InvalidDocument, answer_too_large
from serializers.operations import (
    POINTER,
    Operation,
    decode_operations,
    encode_operation_error,
    encode_results,
    uses_lid,
)
from serializers.pointers import member_pointer
from server.engine import PreparedWrite
from server.errors import Conflict, DatabaseForbids, DatabaseRule, ErrorAnswer, Overload, error_objects
from server.execution.writes import Transaction
from server.handlers.writing import WritingHandler
from server.http.negotiation import ATOMIC, MEDIA_TYPE

EXTENDED = f'{MEDIA_TYPE};ext="{ATOMIC}"'

Item = tuple[Operation, PreparedWrite]
Refusal = ApiError | HTTPError


class OperationsHandler(WritingHandler):
    """Runs a list of operations in one transaction."""

    _operations: list[Operation] | None = None

    async def post(self) -> None:
        self.check_parameters()
        errors = Errors()
        self._operations = operations = list[Operation]()
        self.stage("parse")
        decode_operations(
            self.take_body(),
            operations,
            errors,
            self.engine.limits,
            max_operations=self.engine.settings.max_operations,
            takes_relationships=self._is_extended,
        )
        self.stage("plan")
        items = [item for operation in operations if (item := self._prepare(operation, errors)) is not None]
        raise_all(errors)
        self.stage("execute")
        objects = await self._create_in_one_statement(items)
        if objects is None:
            try:
                objects = await self.writer.transaction(lambda transaction: self._run(transaction, items))
            except (Conflict, DatabaseForbids, DatabaseRule) as error:
                # An error of the commit may belong to any operation.
                _set_pointer(error, POINTER)
                raise
        self.stage("encode")
        if all(operation.op == "remove" for operation in operations):
            self.set_status(204)
            self.clear_header("Content-Type")
            self.finish()
            return
        if self._is_extended:
            self.set_header("Content-Type", EXTENDED)
        self.finish_document(encode_results(objects, has_meta=not self._is_extended))

    @property
    def _is_extended(self) -> bool:
        return ATOMIC in self.applied_extensions

    def _prepare(self, operation: Operation, errors: list[ApiError]) -> Item | None:
        """Return the operation with its write, or None if it has errors. Appends to errors."""
        change, faults = operation.change, list[ApiError]()
        if change is None or change.type is None:
            return None
        resource = self._resource_of(change.type, operation, faults)
        if resource is None:
            errors.extend(faults)
            return None
        try:
            if not operation.is_linkage:
                check_method(resource, change.kind)
            write = self.engine.prepare_write(resource, change, faults)
        except MethodForbidden as error:
            release_frames(error)
            faults.append(error)
        for fault in faults:
            _set_pointer(fault, operation.pointer)
        errors.extend(faults)
        return None if faults else (operation, write)

    def _resource_of(self, type_name: str, operation: Operation, faults: list[ApiError]) -> Resource | None:
        resource = self.engine.catalog.by_type.get(type_name)
        if resource is not None and resource.in_operations:
            return resource
        assert operation.change is not None
        pointer = member_pointer(operation.change.pointer, "type")
        detail = f"Resources of type {quoted(type_name)} cannot be written by atomic operations."
        if resource is None:
            known = [known.type for known in self.engine.catalog if known.in_operations]
            detail = f"There is no resource type {quoted(type_name)}.{nearest(type_name, known)}"
        faults.append(InvalidDocument(detail, pointer=pointer))
        return None

    async def _create_in_one_statement(self, items: Sequence[Item]) -> Sequence[bytes | None] | None:
        """Run all operations as one statement and return their resource objects, or None if that is not possible."""
        writes = [write for _, write in items]
        bares = [self.engine.bare(write.resource) for write in writes]
        if not all(bare.is_returned for bare in bares):
            return None
        rows = await self.writer.creates_together(writes, [bare.node for bare in bares])
        if rows is None:
            return None
        return [
            encoded
            for bare, group in groupby(zip(bares, rows, strict=True), key=itemgetter(0))
            for encoded in bare.encode([row for _, row in group])
        ]

    async def _run(self, transaction: Transaction, items: Sequence[Item]) -> list[bytes | None]:
        """Run the operations in batches and return their resource objects, in the order of the operations."""
        objects: list[bytes | None] = []
        max_bytes = left_bytes = self.engine.settings.max_answer_bytes
        await transaction.lock([write for _, write in items])
        for batch in _batches(items):
            try:
                encoded = await self._run_batch(transaction, batch)
                objects += encoded
                left_bytes -= sum([len(one) for one in encoded if one is not None])
                if left_bytes < 0:
                    raise answer_too_large(max_bytes)
            except (ApiError, HTTPError) as error:
                _set_pointer(error, batch[0][0].pointer if len(batch) == 1 else POINTER)
                raise
        return objects

    async def _run_batch(self, transaction: Transaction, batch: Sequence[Item]) -> list[bytes | None]:
        engine, writes = self.engine, [write for _, write in batch]
        resource = writes[0].resource
        if writes[0].change.kind == "delete":
            await transaction.run(writes)
            return [None] * len(batch)
        bare = engine.bare(resource)
        outcomes = await transaction.run(writes, bare.node if bare.is_returned else None)
        shown = [None if operation.is_linkage else one for one, (operation, _) in zip(outcomes, batch, strict=True)]
        unread = [one.id for one in shown if one is not None and one.row is None]
        read = await transaction.read_rows(resource, unread) if unread else {}
        rows: list[Row | None] = [None if one is None else read.get(one.id, one.row) for one in shown]
        encoded = iter(bare.encode([row for row in rows if row is not None]))
        return [None if row is None else next(encoded) for row in rows]

    def error_answer(self, error: BaseException) -> ErrorAnswer:
        """Return the answer for an exception. Without the extension, errors of the client have the form of
        service.md."""
        made = super().error_answer(error)
        if made.status >= 500 or isinstance(error, Overload) or self._operations is None:
            return made
        if self._is_extended:
            return msgspec.structs.replace(made, headers=(*made.headers, ("Content-Type", EXTENDED)))
        body = encode_operation_error(self._operations, error_objects(error, self.request_id))
        return ErrorAnswer(422, (("Content-Type", "application/json"),), body, is_fault=False)


def _set_pointer(error: Refusal, pointer: str) -> None:
    """Set the pointer of errors that do not point into the operations. Errors of custom code may have no pointer."""
    for one in error.errors if isinstance(error, Several) else (error,):
        if not (getattr(one, "pointer", None) or "").startswith(POINTER):
            vars(one)["pointer"] = pointer


def _batches(items: Sequence[Item]) -> Iterator[list[Item]]:
    """Group consecutive writes of one resource and one kind. No write of a batch uses a lid that the same batch
    defines, and no two write the same row."""
    batch: list[Item] = []
    defined: set[Lid] = set()
    written: set[str | Lid] = set()
    ids: dict[Lid, str] = {}
    for item in items:
        write = item[1]
        identity = _identity(write, ids)
        if batch and (identity in written or uses_lid(write.change, defined) or not _is_same_kind(batch[0][1], write)):
            yield batch
            batch, defined, written = [], set(), set()
        batch.append(item)
        if write.change.kind != "create":
            written.add(identity)
        elif write.change.lid is not None:
            lid = Lid(write.resource.type, write.change.lid)
            defined.add(lid)
            if write.change.id is not None:
                ids[lid] = write.change.id
    if batch:
        yield batch


def _identity(write: PreparedWrite, ids: dict[Lid, str]) -> str | Lid:
    """Return the id of the written resource, or its lid if it has no id yet. A new resource may have both. ids: the
    ids of resources that have a lid."""
    change = write.change
    lid = Lid(write.resource.type, change.lid or "")
    return change.id if change.id is not None else ids.get(lid) or lid


def _is_same_kind(one: PreparedWrite, other: PreparedWrite) -> bool:
    return one.resource is other.resource and one.change.kind == other.change.kind
