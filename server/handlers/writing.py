"""Decodes, prepares and answers writes of one resource or one relationship, for all routes that have them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import cache, partial
from typing import Any

import msgspec

from querybuild.declarations.resource import Resource
from querybuild.errors import SHOWN_CHARACTERS, ApiError, release_frames
from querybuild.planning.writes.linkage import written_relationships
from querybuild.query import Change, ChangeKind, VersionMatch
from serializers.decode import decode_resource_document, with_id
from serializers.json_api import encode_identifier_document
from serializers.links import quote_segment, resource_path
from serializers.objects import Meta, MetaDocument
from serializers.representation import ID_OF_FORM, DocumentForm, as_form, with_gaps
from serializers.tags import entity_tag
from server.error_answers import ErrorAnswer, error_objects
from server.errors import (
    IDEMPOTENCY_KEY,
    AuditUnavailable,
    BodyTooLarge,
    Conflict,
    KeyInProgress,
    KeyMismatch,
    KeyRequired,
    OutcomeUnknown,
    PreconditionFailed,
    PreconditionUnsupported,
    RequestFault,
)
from server.execution.execute import ReadResult
from server.execution.pacing import run_steps
from server.execution.versions import form_of_tag, shown_version
from server.execution.writes.answers import Nothing, ReadBack
from server.execution.writes.keys import KeyClaim, KeyRefused
from server.execution.writes.reply import Reply, ReplyForm
from server.execution.writes.writer import Around, Writer
from server.handlers.auditing import (
    CHANGE_OF_METHOD,
    CLIENT_GONE,
    UNKNOWN,
    Target,
    check_audit,
    record,
    record_written,
    with_ids,
)
from server.handlers.keyed import keyed_request
from server.handlers.pipeline import MakePlan, Parse, Parsed, Planned, Result, run_stages
from server.handlers.reading import ReadingHandler
from server.http.idempotency import IDEMPOTENT_REPLAYED, sent_key
from server.http.preconditions import IF_MATCH, IF_NONE_MATCH, sent_tags
from server.http.preferences import PREFER, PREFERENCE_APPLIED, ROLLBACK
from server.limits.running import ClientGone
from server.observing.audit import AuditLog
from server.observing.metrics import KEYED
from server.postgres.database import Committed
from server.preparing.reads import PreparedRead, ReadShape
from server.preparing.writes import PreparedWrite, TypedWrite
from server.routes import WRITES, Shape

log = logging.getLogger("server")


def message_document(message: str) -> bytes:
    """Return a document with this message in its `meta`."""
    return msgspec.json.encode(MetaDocument({"message": message}))


DELETED = message_document("Object successfully deleted")


@cache
def warn_of_ignored_keys() -> None:
    """Warn, once, that a key was sent and no answers are kept."""
    log.warning("clients send an %s, and idempotency is off: their retries may write twice", IDEMPOTENCY_KEY)


class AnsweredWrite(msgspec.Struct, frozen=True, eq=False):
    """A write, and the read that answers it."""

    write: PreparedWrite
    read: PreparedRead


class WritingHandler(ReadingHandler):
    """The base of handlers that write. around: what belongs to the request besides its writes. committed:
    what follows each commit."""

    around: Around | None = None
    committed: Committed | None = None
    _is_recorded = False
    _is_replayed = False
    _key: str | None = None
    _fault: RequestFault | None = None
    """What the request is refused for, if its key is new."""
    _answer: ReadBack
    _reply: Reply | None = None
    _make_reply: Callable[[Any], Reply]
    _make_form: Callable[[], ReplyForm | None]

    async def answer_write(
        self,
        parse: Parse[Parsed],
        plan: MakePlan[Parsed, Planned],
        execute: Callable[[Planned], Awaitable[Result]],
        reply: Callable[[Planned, Result], Reply],
        form: Callable[[Planned], ReplyForm | None] = lambda _: None,
    ) -> None:
        """Answer a write. reply: makes the answer of what `execute` returns: before the commit, if `around` asks for
        it. form: makes the form of the same answer. If an earlier request with the same key has done the write, its
        answer is repeated."""
        if self._key is None or self.is_tried:
            await self._run_write(parse, plan, execute, reply, form)
            return
        kept = await self._run_keyed(self._key, partial(self._run_write, parse, plan, execute, reply, form))
        self.telemetry.meter.add(KEYED, "done" if kept is None else "replayed")
        if kept is not None:
            self._is_replayed = True
            if self.audit is not None:
                self.record_done(self.targets())
            await self._send_reply(kept)

    async def _run_keyed(self, key: str, run: Callable[[], Awaitable[None]]) -> Reply | None:
        """Run a write with a key. Returns the kept answer if it was carried out before."""
        settings = self.engine.settings
        asked = await keyed_request(self, key)
        self.around = claim = KeyClaim(asked, settings.idempotency_hours, settings.idempotency_max_bytes)
        try:
            if self._fault is not None:
                raise self._fault
            await run()
        except (ApiError, KeyRefused):
            # A fault may have been found before the writes began, and the key comes first.
            kept = None if claim.is_held else await self._look_up(claim)
            if kept is None:
                raise
            return kept
        return None

    async def _look_up(self, claim: KeyClaim) -> Reply | None:
        return await self.cancel_scope.run(claim.look_up(self.database.acting_as_server("write")))

    async def _run_write(
        self,
        parse: Parse[Parsed],
        plan: MakePlan[Parsed, Planned],
        execute: Callable[[Planned], Awaitable[Result]],
        reply: Callable[[Planned, Result], Reply],
        form: Callable[[Planned], ReplyForm | None],
    ) -> None:
        if self.around is None:
            await run_stages(
                self, parse, plan, execute, lambda planned, result: self._send_reply(reply(planned, result))
            )
            return

        async def write(planned: Planned) -> Result:
            self._make_reply, self._make_form = partial(reply, planned), partial(form, planned)
            try:
                return await execute(planned)
            finally:
                # They refer to the handler, which refers to them.
                del self._make_reply, self._make_form

        async def send(planned: Planned, result: Result) -> None:
            await self._send_reply(reply(planned, result) if self._reply is None else self._reply)

        await run_stages(self, parse, plan, write, send)

    def reply_form(self) -> ReplyForm | None:
        """Return the form of the answer, or None if PostgreSQL cannot complete it."""
        return self._make_form()

    def take_reply(self, reply: Reply) -> None:
        """Take the answer that PostgreSQL has completed."""
        self._reply = reply

    async def reply_before_commit(self, result: Any) -> Reply:
        """Return the answer with all of its bytes."""
        reply = self._make_reply(result)
        document = reply.document
        if not isinstance(document, bytes | None):
            document = b"".join(await run_steps(document))
        etag = entity_tag(reply.version, document) if reply.has_tag and document is not None else ""
        self._reply = reply = msgspec.structs.replace(reply, document=document, etag=etag)
        return reply

    async def _send_reply(self, reply: Reply) -> None:
        if reply.media_type:
            self._headers["Content-Type"] = reply.media_type
        if self.is_tried:
            self._headers[PREFERENCE_APPLIED] = ROLLBACK
            reply = msgspec.structs.replace(reply, location="", has_tag=False)
        elif self._key is not None:
            self._headers[IDEMPOTENT_REPLAYED] = "true" if self._is_replayed else "false"
        if reply.location:
            self._headers["Location"] = reply.location
        if reply.document is None:
            self.set_status(reply.status)
            self.clear_header("Content-Type")
            self.set_server_timing()
            self.finish()
        else:
            await self.finish_written(reply)

    @property
    def imports(self) -> asyncio.Lock:
        """Held by the import of this worker."""
        return self._running.imports

    @property
    def writer(self) -> Writer:
        """A writer for this request."""
        on_commit = None if self.telemetry.audit is None else self.on_commit
        return Writer(
            *(self.database, self.engine, self.context, self.request.headers, self.cancel_scope, on_commit),
            *(self.around, self, self.committed, self.is_tried),
        )

    def on_commit(self, ids: Sequence[Any]) -> None:
        """Record what was committed. ids: those of the written rows."""
        self.record_done(with_ids(self.targets(), ids))

    @property
    def audit(self) -> AuditLog | None:
        """The audit log, if there is one and the request is a write."""
        return self.telemetry.audit if self.request.method in WRITES else None

    def refuse_method(self) -> Awaitable[None] | None:
        """Find out who asks first, if the refusal is recorded. Raises like `prepare_identified`."""
        return super().refuse_method() if self.audit is None else self.prepare_identified()

    def check_request(self) -> None:
        """Make the checks of `Handler`. If the request has a key, its faults are raised when it is known that the key
        is new. Raises KeyFault."""
        settings, headers = self.engine.settings, self.request.headers
        if self.method.name not in WRITES or not (settings.keeps_answers or IDEMPOTENCY_KEY in headers.by_name):
            super().check_request()
        elif not settings.keeps_answers:
            warn_of_ignored_keys()
            super().check_request()
        else:
            self._check_keyed_request()

    def _check_keyed_request(self) -> None:
        headers = self.request.headers
        self._key = sent_key(headers)
        # A request that may be a try has its other faults first: it needs no key, and no answer is kept for it.
        may_be_tried = PREFER in headers.by_name
        if self._key is None and not may_be_tried:
            self._check_key()
        try:
            super().check_request()
        except RequestFault as error:
            if self._key is None or may_be_tried or isinstance(error, BodyTooLarge):
                raise
            release_frames(error)
            self._fault = error
        if not self.is_tried:
            self._check_key()

    def _check_key(self) -> None:
        if self._key is None and self.engine.settings.idempotency == "required":
            detail = f"Each write needs an {IDEMPOTENCY_KEY} here, such as a random UUID, and each retry has the same."
            raise KeyRequired(detail)

    def error_answer(self, error: BaseException) -> ErrorAnswer:
        """Return the answer for an exception."""
        if isinstance(error, KeyInProgress | KeyMismatch):
            self.telemetry.meter.add(KEYED, "in_progress" if isinstance(error, KeyInProgress) else "mismatch")
        elif isinstance(error, OutcomeUnknown) and self._key is not None:
            error.detail = (
                "It is not known whether the write was done. Send the request again with the same "
                f"{IDEMPOTENCY_KEY}: it is carried out once."
            )
        return super().error_answer(error)

    def prepare_write(self) -> None:
        """Make the checks of writes. Raises AuditUnavailable if a write could not be recorded."""
        if self.telemetry.audit is not None:
            check_audit(self.telemetry.audit)
        super().prepare_write()

    def targets(self) -> list[Target]:
        """Return what the request writes."""
        route = self.route
        assert route is not None
        kind, row_id = CHANGE_OF_METHOD.get(self.request.method or ""), route.id[:SHOWN_CHARACTERS] or None
        if route.shape is Shape.RELATIONSHIP:
            return [Target("update", self.resource.type, row_id, self.relationship.name)]
        if route.shape is Shape.RELATED:
            return [Target(kind, self.engine.catalog.target(self.relationship).type)]
        return [Target(kind, self.resource.type, row_id)]

    def record_done(self, targets: Sequence[Target]) -> None:
        """Record what was committed. Raises AuditFailed."""
        self._is_recorded = True
        record_written(self, targets, is_replayed=self._is_replayed)

    def record_failure(self, error: BaseException) -> None:
        """Record a write that was refused or has failed. Raises AuditUnavailable."""
        # The route is None if its relationship is hidden from the principal.
        if self.audit is None or self.route is None or self._is_recorded or isinstance(error, AuditUnavailable):
            return
        self._is_recorded = True
        # Another answer would tell the client to write again what may have been written.
        may_be_written = isinstance(error, (ClientGone, OutcomeUnknown))
        # While the log cannot be written, the lines of refused writes are not kept: there may be any number of them.
        is_recorded = (may_be_written or self.audit.check()) and record(self, self.targets(), self._outcome(error))
        if not (is_recorded or may_be_written):
            raise AuditUnavailable("The audit log cannot be written; try again.") from error

    def _outcome(self, error: BaseException) -> str:
        if isinstance(error, ClientGone):
            return UNKNOWN if self.cancel_scope.is_unsure else CLIENT_GONE
        return error_objects(error, self.request_id)[0].code

    def asked(self, kind: ChangeKind, id_text: str | None = None) -> Change:
        """Return the change that the request asks for, without what its body says. id_text: that of the path, if it is
        the written resource's. Raises InvalidTag."""
        headers, match = self.request.headers, None
        if IF_MATCH in headers.by_name and (tags := sent_tags(headers, IF_MATCH)) is not None:
            assert self.route is not None
            match = VersionMatch(tags.versions, of_linkage=self.route.shape is Shape.RELATIONSHIP)
        return Change(kind=kind, type=None, id=id_text, match=match)

    def decode_resource(self, asked: Change, errors: list[ApiError]) -> Change | None:
        """Decode the body as a resource. Appends to errors."""
        return self._decode(self.received.take(), asked, errors)

    def decode_write(self, asked: Change, errors: list[ApiError]) -> Change | TypedWrite | None:
        """Decode the body as the resource of the route. Appends to errors."""
        body = self.received.take()
        typed = self.engine.writes.prepare_typed(self.resource, asked, body, self.context)
        return self._decode(body, asked, errors) if typed is None else typed

    def _decode(self, body: bytes, asked: Change, errors: list[ApiError]) -> Change | None:
        change = decode_resource_document(body, asked, errors, self.engine.limits)
        return change if change is None or asked.id is None else with_id(change, asked.id, errors)

    def plan_write(self, resource: Resource, change: Change | None, errors: list[ApiError]) -> PreparedWrite | None:
        """Return the write of a change, or None if it could not be decoded. Appends to errors."""
        return None if change is None else self.engine.writes.prepare(resource, change, self.context, errors)

    def with_read(self, write: PreparedWrite | None, shape: ReadShape, errors: list[ApiError]) -> AnsweredWrite | None:
        """Return the write with the read that answers it, or None if one of them has errors. Appends to errors."""
        if self.is_tried:
            shape = msgspec.structs.replace(shape, has_versions=False)
        try:
            read = self.engine.reads.prepare(shape, self.request.query, self.context)
        except ApiError as error:
            release_frames(error)
            errors.append(error)
            return None
        return None if write is None else AnsweredWrite(write, read)

    def shape_of(self, resource: Resource, change: Change | None) -> ReadShape:
        """Return the shape of the read that answers a write of this resource."""
        written = () if change is None else written_relationships(change, resource, self.catalog)
        return ReadShape("resource", resource, written=written, accepts=self.method.accepts)

    async def execute_write(self, answered: AnsweredWrite) -> tuple[Any, ReadResult | None]:
        """Write, and read the answer. Returns the id of the row, and the rows of the document. None: the row may not be
        read."""
        self._answer = answer = ReadBack(answered.write, answered.read, self.engine, self.context)
        return await self.writer.run([answered.write], answer)

    async def execute_unread(self, write: PreparedWrite) -> None:
        """Write what the answer shows nothing of."""
        await self.writer.run([write], Nothing())

    def reply_written(self, answered: AnsweredWrite, written: tuple[Any, ReadResult | None]) -> Reply:
        """Return the answer with the resource that was written, or with nothing if it may not be read."""
        return self.reply_shown(answered.read, written[1], {})

    def reply_shown(
        self, read: PreparedRead, result: ReadResult | None, links: dict[str, str], meta: Meta | None = None
    ) -> Reply:
        """Return the answer with a document of what was written, or with nothing if it may not be read. links, meta: as
        for `document`."""
        if result is None:
            return Reply(204)
        version = shown_version(read, result)
        has_tag = version is not None or not read.plan.is_linkage
        return Reply(200, self.document(read, result, links, meta), has_tag=has_tag, version=version)

    def form_of_written(self, answered: AnsweredWrite) -> ReplyForm | None:
        """Return the form of the answer with the resource of the path, or None if only Python can fill it."""
        form = self.encoder_of(answered.read).form(self.own_links(answered.read))
        return None if form is None else ReplyForm(200, form, etag=form_of_tag(answered.read))

    def reply_deleted(self, *_: object) -> Reply:
        """Return the answer that a resource was deleted."""
        return Reply(200, DELETED)

    def form_of_deleted(self, _: PreparedWrite) -> ReplyForm:
        """Return the form of the same answer, which has no gaps."""
        return ReplyForm(200, DocumentForm(as_form(DELETED.decode())))

    async def answer_create(self, resource: Resource, parse: Parse[Change | TypedWrite | None]) -> None:
        """Create a resource and answer with it."""
        execute = self.execute_write if IF_NONE_MATCH not in self.request.headers.by_name else self._execute_if_none
        plan = partial(self.plan_read_back, resource)
        await self.answer_write(parse, plan, execute, self._reply_created, self._form_of_created)

    async def _execute_if_none(self, answered: AnsweredWrite) -> tuple[Any, ReadResult | None]:
        """Create a resource if none has its id. Raises PreconditionFailed, PreconditionUnsupported."""
        write = answered.write
        has_id = write.change.id is not None or (write.planned is not None and write.planned.plan.id_slot is not None)
        if not has_id or write.change.on_conflict is not None:
            why = "the body names none" if not has_id else "onConflict updates it"
            detail = f"{IF_NONE_MATCH} is about the resource with the id of the body, and {why}."
            raise PreconditionUnsupported(detail, header=IF_NONE_MATCH)
        try:
            return await self.execute_write(answered)
        except Conflict as error:
            if error.pointer != "/data/id":
                raise
            detail = f"There is a {write.resource.type} with this id already."
            raise PreconditionFailed(detail, header=IF_NONE_MATCH) from error

    def plan_read_back(
        self, resource: Resource, change: Change | TypedWrite | None, errors: list[ApiError]
    ) -> AnsweredWrite | None:
        """Return the write of a resource, with the read of this resource that answers it. Appends to errors."""
        if isinstance(change, TypedWrite):
            shape = ReadShape("resource", resource, written=change.written, accepts=self.method.accepts)
            return self.with_read(change.write, shape, errors)
        write = self.plan_write(resource, change, errors)
        return self.with_read(write, self.shape_of(resource, change), errors)

    def _reply_created(self, answered: AnsweredWrite, written: tuple[Any, ReadResult | None]) -> Reply:
        if self._answer.is_update:
            return self.reply_written(answered, written)
        row_id, result = written
        resource = answered.write.resource
        if result is None:
            return Reply(201, encode_identifier_document(resource, row_id))
        location = self._location_of(resource, quote_segment(str(row_id)))
        links = {"self": location} if location else {}
        document = self.encoder_of(answered.read).document(result.rows, links, None, result.received_bytes)
        return Reply(201, document, location, has_tag=True, version=shown_version(answered.read, result))

    def _form_of_created(self, answered: AnsweredWrite) -> ReplyForm | None:
        location = self._location_of(answered.write.resource, ID_OF_FORM)
        form = self.encoder_of(answered.read).form({"self": location} if location else {})
        return None if form is None else ReplyForm(201, form, with_gaps(location), form_of_tag(answered.read))

    def _location_of(self, resource: Resource, segment: str) -> str:
        """Return the URL of a new resource, or nothing if it has none. segment: the id in the URL."""
        return resource_path(self.engine.base_url, resource, segment) if "detail" in resource.methods else ""
