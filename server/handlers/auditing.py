"""Records the writes of requests in the audit log: what was written, before its answer is sent, and what was refused.
What comes in: the resources that a request writes. What goes out: lines of the audit log.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from querybuild.principal import ANONYMOUS
from server.errors import AuditFailed, AuditUnavailable
from server.handlers.base import Handler
from server.observing.audit import AuditLine, AuditLog
from server.observing.logs import iso_time

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


def check_audit(audit: AuditLog | None) -> None:
    """Check that a write can be recorded, before it is done. Raises AuditUnavailable."""
    if audit is not None and not audit.check():
        raise AuditUnavailable("The audit log cannot be written, so nothing was done; try again.")


def with_ids(targets: Sequence[Target], ids: Sequence[Any]) -> list[Target]:
    """Return the targets with the ids of the rows that were written."""
    return [msgspec.structs.replace(target, id=str(row_id)) for target, row_id in zip(targets, ids, strict=True)]


def record_written(handler: Handler, targets: Sequence[Target], *, is_replayed: bool = False) -> None:
    """Record what a request has committed. is_replayed: whether an earlier one did, whose answer is repeated. Raises
    AuditFailed."""
    if not record(handler, targets, DONE, is_replayed=is_replayed):
        raise AuditFailed("The write was done, but the audit log cannot be written.")


def record(handler: Handler, targets: Sequence[Target], outcome: str, *, is_replayed: bool = False) -> bool:
    """Write a line for each resource. Return whether they are in the audit log."""
    audit, principal = handler.telemetry.audit, handler.sender.principal
    assert audit is not None
    subject, issuer = (None, None) if principal is ANONYMOUS else (principal.subject, principal.issuer or None)
    now = iso_time(time.time())
    lines = [
        AuditLine(
            *(now, handler.request_id, subject, issuer, target.kind, target.type, target.id, outcome),
            *(target.relationship, handler.is_tried, is_replayed),
        )
        for target in targets
    ]
    return audit.add(lines)
