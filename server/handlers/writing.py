"""Decodes, prepares and answers writes of one resource or one relationship, for all routes that have them."""

from __future__ import annotations

from typing import Literal

import msgspec

from querybuild.changes import written_relationships
from querybuild.errors import ApiError, raise_all, release_frames
from querybuild.query import Change, LinkageChange, LinkMode
from querybuild.resource import Resource
from serializers.decode import decode_linkage_document, decode_resource_document
from serializers.links import quote_segment, resource_path
from serializers.objects import MetaDocument
from server.engine import PreparedRead, PreparedWrite, ReadShape
from server.execution.answers import ReadBack
from server.execution.writer import Writer
from server.handlers.reading import ReadingHandler


def message_document(message: str) -> bytes:
    """Return a document with this message in its `meta`."""
    return msgspec.json.encode(MetaDocument({"message": message}))


class WritingHandler(ReadingHandler):
    """The base of handlers that write."""

    def decode_resource(self, kind: Literal["create", "update"], errors: list[ApiError]) -> Change | None:
        """Decode the body as a resource. Appends to errors."""
        self.stage("parse")
        return decode_resource_document(self.take_body(), errors, self.engine.limits, kind=kind)

    def decode_linkage(self, mode: LinkMode, errors: list[ApiError]) -> LinkageChange | None:
        """Decode the body as linkage. Appends to errors."""
        self.stage("parse")
        return decode_linkage_document(self.take_body(), errors, self.engine.limits, mode=mode)

    def prepare_write(
        self, resource: Resource, change: Change | None, shape: ReadShape, errors: list[ApiError]
    ) -> tuple[PreparedWrite, PreparedRead]:
        """Return the write, and the read that answers it. Raises all errors of the body and the query together."""
        self.stage("plan")
        write = None if change is None else self.engine.prepare_write(resource, change, self.context, errors)
        read = self.prepare_answer(shape, errors)
        raise_all(errors)
        assert write is not None
        assert read is not None
        return write, read

    def prepare_answer(self, shape: ReadShape, errors: list[ApiError]) -> PreparedRead | None:
        """Return the read that answers a write, or None if the query has errors. Appends to errors."""
        try:
            return self.engine.prepare_read(shape, self.request.query, self.context)
        except ApiError as error:
            release_frames(error)
            errors.append(error)
            return None

    def answer_shape(self, resource: Resource, change: Change | None) -> ReadShape:
        """Return the shape of the read that answers a write of this resource."""
        written = () if change is None else written_relationships(change, resource, self.engine.catalog)
        return ReadShape("resource", resource, written=written, accepts=self._method.accepts)

    async def answer_create(self, resource: Resource, change: Change | None, errors: list[ApiError]) -> None:
        """Create the resource and answer with it. errors: those of the body."""
        engine = self.engine
        write, read = self.prepare_write(resource, change, self.answer_shape(resource, change), errors)
        self.stage("execute")
        row_id, result = await self.writer.run([write], self.read_back(write, read))
        location = resource_path(engine.base_url, resource, quote_segment(str(row_id)))
        is_readable = "detail" in resource.methods
        links = {"self": location} if is_readable else {}
        if is_readable:
            self._headers["Location"] = location
        self.stage("encode")
        document = read.ready.encoder.document(result.rows, links, None, result.received_bytes)
        await self.finish_written(document, 201)

    def read_back(self, write: PreparedWrite, read: PreparedRead) -> ReadBack:
        """Return the answer that shows a write by this read."""
        return ReadBack(write, read, self.engine, self.context)

    @property
    def writer(self) -> Writer:
        """A writer for this request."""
        return Writer(self.database, self.engine, self.context, self.request.headers, self.cancel_scope)
