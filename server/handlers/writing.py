"""Decodes, prepares and answers writes of one resource or one relationship, for all routes that have them. Records all
writes in the audit log: what was written, before its answer is sent, and what was refused."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import msgspec

from querybuild.declarations.resource import Resource
from querybuild.errors import SHOWN_CHARACTERS, ApiError, release_frames
from querybuild.planning.writes.linkage import written_relationships
from querybuild.principal import ANONYMOUS, Principal
from querybuild.query import Change
from serializers.decode import decode_resource_document
from serializers.encode import encode_identifier_document
from serializers.links import quote_segment, resource_path
from serializers.objects import MetaDocument
from server.engine import PreparedRead, PreparedWrite, ReadShape
from server.errors import AuditFailed, AuditUnavailable, OutcomeUnknown, error_objects
from server.execution.execute import ReadResult
from server.execution.writes.answers import Nothing, ReadBack
from server.execution.writes.writer import Writer
from server.handlers.pipeline import Parse
from server.handlers.reading import ReadingHandler
from server.limits.running import ClientGone
from server.observing.audit import AuditLine, AuditLog
from server.observing.logs import iso_time
from server.routes import WRITES, Shape


def message_document(message: str) -> bytes:
    """Return a document with this message in its `meta`."""
    return msgspec.json.encode(MetaDocument({"message": message}))


DELETED = message_document("Object successfully deleted")

DONE, CLIENT_GONE, UNKNOWN = "done", "client_gone", "outcome_unknown"
"""Outcomes in the audit log. The others are codes of errors."""

KINDS = {"POST": "create", "PATCH": "update", "DELETE": "delete"}


class Target(msgspec.Struct, frozen=True):
    """A resource that a request writes, as far as it is known. relationship: the one that is written, if it is only
    that."""

    kind: str | None = None
    type: str | None = None
    id: str | None = None
    relationship: str | None = None


class AuditedHandler(ReadingHandler):
    """The base of handlers whose writes are in the audit log."""

    _is_recorded = False

    @property
    def audit(self) -> AuditLog | None:
        """The audit log, if there is one and the request is a write."""
        return self.telemetry.audit if self.request.method in WRITES else None

    def prepare_write(self) -> None:
        """Make the checks of writes. Raises AuditUnavailable if a write could not be recorded."""
        if self.telemetry.audit is not None:
            check_audit(self.telemetry.audit)
        super().prepare_write()

    def targets(self) -> list[Target]:
        """Return what the request writes."""
        route = self.route
        assert route is not None
        kind, row_id = KINDS.get(self.request.method or ""), route.id[:SHOWN_CHARACTERS] or None
        if route.shape is Shape.RELATIONSHIP:
            return [Target("update", self.resource.type, row_id, self.relationship.name)]
        if route.shape is Shape.RELATED:
            return [Target(kind, self.engine.catalog.target(self.relationship).type)]
        return [Target(kind, self.resource.type, row_id)]

    def record_written(self, ids: Sequence[Any]) -> None:
        """Record what was committed. ids: of the written rows. Raises AuditFailed."""
        self._is_recorded = True
        targets = zip(self.targets(), ids, strict=True)
        written = [msgspec.structs.replace(target, id=str(row_id)) for target, row_id in targets]
        if not self._record(written, DONE):
            raise AuditFailed("The write was done, but the audit log cannot be written.")

    def record_failure(self, error: BaseException) -> None:
        """Record a write that was refused or has failed. Raises AuditUnavailable."""
        # The route is None if its relationship is hidden from the principal.
        if self.audit is None or self.route is None or self._is_recorded or isinstance(error, AuditUnavailable):
            return
        self._is_recorded = True
        # Another answer would tell the client to write again what may have been written.
        may_be_written = isinstance(error, (ClientGone, OutcomeUnknown))
        # While the log cannot be written, the lines of refused writes are not kept: there may be any number of them.
        is_recorded = (may_be_written or self.audit.check()) and self._record(self.targets(), self._outcome(error))
        if not (is_recorded or may_be_written):
            raise AuditUnavailable("The audit log cannot be written; try again.") from error

    def _outcome(self, error: BaseException) -> str:
        if isinstance(error, ClientGone):
            return UNKNOWN if self.cancel_scope.is_unsure else CLIENT_GONE
        return error_objects(error, self.request_id)[0].code

    def _record(self, targets: Sequence[Target], outcome: str) -> bool:
        """Write a line for each resource. Return whether they are in the audit log."""
        assert self.audit is not None
        return self.audit.add(audit_lines(self.request_id, self.principal, targets, outcome))


def check_audit(audit: AuditLog | None) -> None:
    """Check that a write can be recorded, before it is done. Raises AuditUnavailable."""
    if audit is not None and not audit.check():
        raise AuditUnavailable("The audit log cannot be written, so nothing was done; try again.")


def audit_lines(
    request_id: str, principal: Principal, targets: Sequence[Target], outcome: str = DONE
) -> list[AuditLine]:
    """Return the lines of a write in the audit log."""
    subject, issuer = (None, None) if principal is ANONYMOUS else (principal.subject, principal.issuer or None)
    now = iso_time(time.time())
    return [
        AuditLine(now, request_id, subject, issuer, one.kind, one.type, one.id, outcome, one.relationship)
        for one in targets
    ]


class Writing(msgspec.Struct, frozen=True, eq=False):
    """A write, and the read that answers it."""

    write: PreparedWrite
    read: PreparedRead


class WritingHandler(AuditedHandler):
    """The base of handlers that write."""

    def decode_resource(self, kind: Literal["create", "update"], errors: list[ApiError]) -> Change | None:
        """Decode the body as a resource. Appends to errors."""
        return decode_resource_document(self.take_body(), errors, self.engine.limits, kind=kind)

    def plan_write(self, resource: Resource, change: Change | None, errors: list[ApiError]) -> PreparedWrite | None:
        """Return the write of a change, or None if it could not be decoded. Appends to errors."""
        return None if change is None else self.engine.prepare_write(resource, change, self.context, errors)

    def with_read(self, write: PreparedWrite | None, shape: ReadShape, errors: list[ApiError]) -> Writing | None:
        """Return the write with the read that answers it, or None if one of them has errors. Appends to errors."""
        try:
            read = self.engine.prepare_read(shape, self.request.query, self.context)
        except ApiError as error:
            release_frames(error)
            errors.append(error)
            return None
        return None if write is None else Writing(write, read)

    def shape_of(self, resource: Resource, change: Change | None) -> ReadShape:
        """Return the shape of the read that answers a write of this resource."""
        written = () if change is None else written_relationships(change, resource, self.catalog)
        return ReadShape("resource", resource, written=written, accepts=self._method.accepts)

    async def execute_write(self, writing: Writing) -> tuple[Any, ReadResult | None]:
        """Write, and read the answer. Returns the id of the row, and the rows of the document. None: the row may not be
        read."""
        answer = ReadBack(writing.write, writing.read, self.engine, self.context)
        return await self.writer.run([writing.write], answer)

    async def execute_unread(self, write: PreparedWrite) -> None:
        """Write what the answer shows nothing of."""
        await self.writer.run([write], Nothing())

    async def encode_written(self, writing: Writing, written: tuple[Any, ReadResult | None]) -> None:
        """Answer with the resource that was written, or with nothing if it may not be read."""
        result = written[1]
        if result is None:
            self.finish_unread()
        else:
            await self.finish_written(self.document(writing.read, result, {}))

    def finish_unread(self) -> None:
        """Answer a write of a resource that may not be read."""
        self.set_status(204)
        self.clear_header("Content-Type")
        self.set_server_timing()
        self.finish()

    async def encode_deleted(self, *_: object) -> None:
        """Answer that a resource was deleted."""
        self.finish_document(DELETED)

    async def answer_create(self, resource: Resource, parse: Parse[Change | None]) -> None:
        """Create a resource and answer with it."""
        await self.run(parse, partial(self.plan_read_back, resource), self.execute_write, self._encode_created)

    def plan_read_back(self, resource: Resource, change: Change | None, errors: list[ApiError]) -> Writing | None:
        """Return the write of a resource, with the read of this resource that answers it. Appends to errors."""
        write = self.plan_write(resource, change, errors)
        return self.with_read(write, self.shape_of(resource, change), errors)

    async def _encode_created(self, writing: Writing, written: tuple[Any, ReadResult | None]) -> None:
        row_id, result = written
        resource = writing.write.resource
        if result is None:
            self.finish_document(encode_identifier_document(resource, row_id), 201)
            return
        location = resource_path(self.engine.base_url, resource, quote_segment(str(row_id)))
        links: dict[str, str] = {}
        if "detail" in resource.methods:
            links = {"self": location}
            self._headers["Location"] = location
        document = writing.read.ready.encoder.document(result.rows, links, None, result.received_bytes)
        await self.finish_written(document, 201)

    @property
    def writer(self) -> Writer:
        """A writer for this request."""
        on_commit = None if self.telemetry.audit is None else self.record_written
        return Writer(self.database, self.engine, self.context, self.request.headers, self.cancel_scope, on_commit)
