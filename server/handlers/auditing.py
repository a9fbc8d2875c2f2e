"""Records the writes of requests in the audit log: what was written, before its answer is sent, and what was refused.
What comes in: the resources that a request writes. What goes out: lines of the audit log.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from querybuild.errors import SHOWN_CHARACTERS
from querybuild.principal import ANONYMOUS
from server.errors import AuditFailed, AuditUnavailable, OutcomeUnknown, error_objects
from server.execution.pacing import run_steps
from server.execution.writes.reply import Reply
from server.execution.writes.writer import Around, Writer
from server.handlers.base import Handler
from server.handlers.pipeline import MakePlan, Parse, Parsed, Planned, Result
from server.handlers.reading import ReadingHandler
from server.limits.running import ClientGone
from server.observing.audit import AuditLine, AuditLog
from server.observing.logs import iso_time
from server.routes import WRITES, Shape

DONE, CLIENT_GONE, UNKNOWN = "done", "client_gone", "outcome_unknown"
"""Outcomes in the audit log. The others are codes of errors."""

CHANGE_OF_METHOD = {"POST": "create", "PATCH": "update", "DELETE": "delete"}


class Target(msgspec.Struct, frozen=True):
    """A resource that a request writes, as far as it is known. relationship: the one that is written, if it is only
    that."""

    kind: str | None = None
    type: str | None = None
    id: str | None = None
    relationship: str | None = None


class AuditedHandler(ReadingHandler):
    """The base of handlers that write. around: what belongs to the request besides its writes."""

    around: Around | None = None
    _is_recorded = False
    _reply: Reply | None = None
    _make_reply: Callable[[Any], Reply]

    async def answer_write(
        self,
        parse: Parse[Parsed],
        plan: MakePlan[Parsed, Planned],
        execute: Callable[[Planned], Awaitable[Result]],
        reply: Callable[[Planned, Result], Reply],
    ) -> None:
        """Answer a write. reply: makes the answer of what `execute` returns: before the commit, if `around` asks for
        it."""

        async def write(planned: Planned) -> Result:
            self._make_reply = partial(reply, planned)
            return await execute(planned)

        async def send(planned: Planned, result: Result) -> None:
            await self._send_reply(reply(planned, result) if self._reply is None else self._reply)

        await self.run(parse, plan, write, send)

    async def _reply_before_commit(self, result: Any) -> Reply:
        """Return the answer with all of its bytes."""
        reply = self._make_reply(result)
        if not isinstance(reply.document, bytes | None):
            reply = msgspec.structs.replace(reply, document=b"".join(await run_steps(reply.document)))
        self._reply = reply
        return reply

    async def _send_reply(self, reply: Reply) -> None:
        if reply.media_type:
            self._headers["Content-Type"] = reply.media_type
        if reply.location:
            self._headers["Location"] = reply.location
        if reply.document is None:
            self.set_status(reply.status)
            self.clear_header("Content-Type")
            self.set_server_timing()
            self.finish()
        else:
            await self.finish_written(reply.document, reply.status)

    @property
    def writer(self) -> Writer:
        """A writer for this request."""
        on_commit = None if self.telemetry.audit is None else self._on_commit
        return Writer(
            *(self.database, self.engine, self.context, self.request.headers, self.cancel_scope, on_commit),
            *(self.around, self._reply_before_commit),
        )

    def _on_commit(self, ids: Sequence[Any]) -> None:
        self.record_done(with_ids(self.targets(), ids))

    @property
    def audit(self) -> AuditLog | None:
        """The audit log, if there is one and the request is a write."""
        return self.telemetry.audit if self.request.method in WRITES else None

    def refuse_method(self) -> Awaitable[None] | None:
        """Find out who asks first, if the refusal is recorded. Raises like `prepare_identified`."""
        return super().refuse_method() if self.audit is None else self.prepare_identified()

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
        record_written(self, targets)

    def record_failure(self, error: BaseException) -> None:
        """Record a write that was refused or has failed. Raises AuditUnavailable."""
        # The route is None if its relationship is hidden from the principal.
        if self.audit is None or self.route is None or self._is_recorded or isinstance(error, AuditUnavailable):
            return
        self._is_recorded = True
        # Another answer would tell the client to write again what may have been written.
        may_be_written = isinstance(error, (ClientGone, OutcomeUnknown))
        # While the log cannot be written, the lines of refused writes are not kept: there may be any number of them.
        is_recorded = (may_be_written or self.audit.check()) and _record(self, self.targets(), self._outcome(error))
        if not (is_recorded or may_be_written):
            raise AuditUnavailable("The audit log cannot be written; try again.") from error

    def _outcome(self, error: BaseException) -> str:
        if isinstance(error, ClientGone):
            return UNKNOWN if self.cancel_scope.is_unsure else CLIENT_GONE
        return error_objects(error, self.request_id)[0].code


def check_audit(audit: AuditLog | None) -> None:
    """Check that a write can be recorded, before it is done. Raises AuditUnavailable."""
    if audit is not None and not audit.check():
        raise AuditUnavailable("The audit log cannot be written, so nothing was done; try again.")


def with_ids(targets: Sequence[Target], ids: Sequence[Any]) -> list[Target]:
    """Return the targets with the ids of the rows that were written."""
    return [msgspec.structs.replace(target, id=str(row_id)) for target, row_id in zip(targets, ids, strict=True)]


def record_written(handler: Handler, targets: Sequence[Target]) -> None:
    """Record what a request has committed. Raises AuditFailed."""
    if not _record(handler, targets, DONE):
        raise AuditFailed("The write was done, but the audit log cannot be written.")


def _record(handler: Handler, targets: Sequence[Target], outcome: str) -> bool:
    """Write a line for each resource. Return whether they are in the audit log."""
    audit, principal = handler.telemetry.audit, handler.principal
    assert audit is not None
    subject, issuer = (None, None) if principal is ANONYMOUS else (principal.subject, principal.issuer or None)
    now = iso_time(time.time())
    lines = [
        AuditLine(now, handler.request_id, subject, issuer, one.kind, one.type, one.id, outcome, one.relationship)
        for one in targets
    ]
    return audit.add(lines)
