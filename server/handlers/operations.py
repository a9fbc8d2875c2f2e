"""Answers /operations: atomic operations. What comes in: a list of writes. What goes out: the result of each, or the
error for which all of them were rolled back, in the form that the media type of the request selects.

Sources: service.md "Atomic operations route"; the JSON:API extension https://jsonapi.org/ext/atomic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from querybuild.changes import check_method
from querybuild.errors import ApiError, Errors, MethodForbidden, nearest, quoted, raise_all, release_frames
from querybuild.resource import Resource
from serializers.errors import InvalidDocument
from serializers.operations import (
    AlikeAdds,
    Operation,
    alike_adds,
    decode_operations,
    encode_operation_error,
    encode_results,
    load_operations,
)
from serializers.pointers import member_pointer
from server.engine import PreparedWrite
from server.errors import ErrorAnswer, Overload, error_objects
from server.execution.answers import Objects, set_pointer
from server.execution.batches import MOST_TOGETHER
from server.handlers.writing import WritingHandler
from server.http.negotiation import ATOMIC, MEDIA_TYPE

EXTENDED = f'{MEDIA_TYPE};ext="{ATOMIC}"'


class OperationsHandler(WritingHandler):
    """Runs a list of operations in one transaction."""

    _operations: list[Operation] | None = None

    async def post(self) -> None:
        self.check_parameters()
        self._operations = []
        self.stage("parse")
        body = self.take_body()
        listed = load_operations(body, self.engine.limits, self.engine.settings.max_operations)
        objects = await self._add_alike(alike_adds(listed, body)) if len(listed) > MOST_TOGETHER else None
        if objects is None:
            objects = await self._run(listed, self._operations)
        self.stage("encode")
        if self._operations and all(operation.op == "remove" for operation in self._operations):
            self.set_status(204)
            self.clear_header("Content-Type")
            self.finish()
            return
        if self._is_extended:
            self.set_header("Content-Type", EXTENDED)
        self.finish_document(encode_results(objects, has_meta=not self._is_extended))

    async def _add_alike(self, adds: AlikeAdds | None) -> Sequence[bytes | None] | None:
        """Create many resources with the same members and return their resource objects. Returns None if the
        operations are something else, or one of them has an error or is refused: then nothing was written, and running
        them one by one tells which one it is."""
        resource = None if adds is None else self.engine.catalog.by_type.get(str(adds.first.type))
        if adds is None or resource is None or not (resource.in_operations and "create" in resource.methods):
            return None
        self.stage("plan")
        bare = self.engine.encoders.bare(resource)
        rows = self.engine.prepare_rows(resource, adds, self.context) if bare.is_returned else None
        if rows is None:
            return None
        self.stage("execute")
        return await self.writer.create_rows(rows, bare)

    async def _run(self, listed: list[Any], operations: list[Operation]) -> Sequence[bytes | None]:
        """Run the operations and return their resource objects. operations: they are added here."""
        errors = Errors()
        decode_operations(listed, operations, errors, takes_relationships=self._is_extended)
        self.stage("plan")
        writes = [write for operation in operations if (write := self._prepare(operation, errors)) is not None]
        raise_all(errors)
        self.stage("execute")
        return await self.writer.run(writes, Objects(operations, writes, self.engine, self.context))

    @property
    def _is_extended(self) -> bool:
        return ATOMIC in self.applied_extensions

    def _prepare(self, operation: Operation, errors: list[ApiError]) -> PreparedWrite | None:
        """Return the write of an operation, or None if it has errors. Appends to errors."""
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
            write = self.engine.prepare_write(resource, change, self.context, faults)
        except MethodForbidden as error:
            release_frames(error)
            faults.append(error)
        for fault in faults:
            set_pointer(fault, operation.pointer)
        errors.extend(faults)
        return None if faults else write

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
