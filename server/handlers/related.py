"""Answers /{collection}/{id}/{relationship}: related resources. POST creates a resource in a to-many. PATCH and DELETE
write the resource of a to-one."""

from __future__ import annotations

from typing import Any

import msgspec

from querybuild.changes import check_method
from querybuild.errors import Errors, ResourceNotFound, quoted, raise_all
from querybuild.plan import LockStrength
from querybuild.query import Change, Owner
from querybuild.resource import Resource
from serializers.decode import with_id
from server.engine import PreparedRead, PreparedWrite, ReadShape
from server.execution.execute import ReadResult
from server.execution.writes import Transaction
from server.handlers.resource import DELETED
from server.handlers.writing import WritingHandler


class RelatedHandler(WritingHandler):
    """Reads and writes related resources."""

    @property
    def target(self) -> Resource:
        """The resource at the other end of the relationship."""
        return self.engine.catalog.target(self.relationship)

    async def get(self) -> None:
        shape = ReadShape("related", self.resource, self.relationship, accepts=self._method.accepts)
        await self.answer_read(shape, self.path_id(self.resource))

    async def post(self) -> None:
        assert self.route is not None
        check_method(self.target, "create")
        self.path_id(self.resource)
        errors = Errors()
        change = self.decode_resource("create", errors)
        if change is not None:
            owner = Owner(self.resource.type, self.route.id, self.relationship.name)
            change = msgspec.structs.replace(change, owner=owner)
        await self.answer_create(self.target, change, errors)

    async def patch(self) -> None:
        check_method(self.target, "update")
        path_id = self.path_id(self.resource)
        errors = Errors()
        change = self.decode_resource("update", errors)
        self.stage("plan")
        read = self.prepare_answer(self.answer_shape(self.target, change), errors)
        raise_all(errors)
        assert change is not None
        assert read is not None
        self.stage("execute")
        result = await self.writer.transaction(lambda transaction: self._update(transaction, path_id, change, read))
        self.stage("encode")
        await self.finish_written(self.document(read, result, {}))

    async def delete(self) -> None:
        check_method(self.target, "delete")
        path_id = self.path_id(self.resource)
        self.check_parameters()
        self.stage("execute")
        await self.writer.transaction(lambda transaction: self._delete(transaction, path_id))
        self.finish_document(DELETED)

    async def _update(self, transaction: Transaction, path_id: Any, change: Change, read: PreparedRead) -> ReadResult:
        strength = LockStrength.UPDATE if change.relationships else LockStrength.NO_KEY_UPDATE
        related_id = await self._related_id(transaction, path_id, strength)
        _, result = await transaction.write_and_read(self._prepared(change, related_id), read)
        return result

    async def _delete(self, transaction: Transaction, path_id: Any) -> None:
        related_id = await self._related_id(transaction, path_id, LockStrength.UPDATE)
        await transaction.run([self._prepared(Change(kind="delete", type=None), related_id)])

    def _prepared(self, change: Change, related_id: str) -> PreparedWrite:
        """Return the write of the related resource. Its id is only known inside the transaction."""
        errors = Errors()
        write = self.engine.prepare_write(
            self.target, with_id(change, related_id, errors, of="the related resource"), errors
        )
        raise_all(errors)
        return write

    async def _related_id(self, transaction: Transaction, path_id: Any, strength: LockStrength) -> str:
        """Lock the related row with this strength and return its id. Raises ResourceNotFound if the resource of the
        path does not exist, or has no related resource."""
        assert self.route is not None
        related_id = await transaction.lock_related(self.resource, self.relationship, path_id, strength)
        if related_id is None:
            owner = f"The {self.resource.type} {quoted(self.route.id)}"
            raise ResourceNotFound(f"{owner} has no {quoted(self.relationship.name)} to write.")
        return str(related_id)
