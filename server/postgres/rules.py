"""Translates refusals by the database's own rules into answers: RAISE, WITH CHECK OPTION, privileges, row security.

    RAISE EXCEPTION                  422 `database_rule`, its message as the detail
    RAISE SQLSTATE 'PT409'           the same with the status 409
    RAISE ... ERRCODE = 'unique_violation' (23503, 23001, 23P01)    409 `conflict`, its message as the detail
    WITH CHECK OPTION                422 `database_rule`
    a missing privilege, row security, a view whose rows cannot be
    locked, a column or a view that is not writable any more
    since the start                                                 403 `database_forbids`, and a log line

Only messages that the author of a function wrote with RAISE are shown. All other texts of PostgreSQL contain names of
tables and columns, and go only to the log.
"""

from __future__ import annotations

import logging
import re

from asyncpg import exceptions as pg

from querybuild.errors import ApiError, shortened
from server.errors import Conflict, DatabaseForbids, DatabaseRule, MissingPrivilege
from server.postgres.driver_errors import RETRYABLE, PostgresMessage, in_one_line, is_raised
from server.postgres.said import said

log = logging.getLogger("server")

MAX_MESSAGE_CHARACTERS = 4096
"""The maximum length of a message that is shown. It may quote a value of the request, which may have megabytes."""

_NOT_RULES = (*RETRYABLE, pg.QueryCanceledError, pg.LockNotAvailableError, pg.ReadOnlySQLTransactionError)
"""Errors that keep their own meaning, even if a RAISE caused them."""

_HINTED_BY_DRIVER = (pg.InvalidSQLStatementNameError, pg.DuplicatePreparedStatementError)
"""Errors to whose hint asyncpg adds its own, about poolers."""

_CHOSEN_STATUS = re.compile("PT(4[0-9][0-9])")
_CHOOSES_STATUS = re.compile("PT[0-9]{3}")
_CONFLICTS = (
    pg.UniqueViolationError,
    pg.ForeignKeyViolationError,
    pg.RestrictViolationError,
    pg.ExclusionViolationError,
)


_FORBIDDEN = (pg.InsufficientPrivilegeError, pg.GeneratedAlwaysError)
_VIEW_NOT_UPDATABLE = ("error_view_not_updatable", "rewriteTargetView", "RewriteQuery")
"""Functions of src/backend/rewrite/rewriteHandler.c."""
_WRITES = "is not allowed in a non-volatile function"
"""What PostgreSQL says about a function that is declared as STABLE or IMMUTABLE, and writes."""
_CANNOT_LOCK = ("CheckSelectLocking", "CheckValidRowMarkRel")
"""Functions of PostgreSQL that check FOR UPDATE and the like. They refuse views that group, and materialized views."""


def _is_forbidden(error: BaseException) -> bool:
    if isinstance(error, pg.ObjectNotInPrerequisiteStateError):
        return said(error).server_source_function in _VIEW_NOT_UPDATABLE
    if _is_write_of_stable(error):
        return True
    if isinstance(error, (pg.FeatureNotSupportedError, pg.WrongObjectTypeError)):
        return said(error).server_source_function in _CANNOT_LOCK
    return isinstance(error, _FORBIDDEN)


def _is_write_of_stable(error: BaseException) -> bool:
    return isinstance(error, pg.FeatureNotSupportedError) and _WRITES in str(error)


def is_rule(error: BaseException) -> bool:
    """Return whether a rule of the database caused the error, so that `rule_answer` has an answer."""
    if not isinstance(error, PostgresMessage) or isinstance(error, _NOT_RULES):
        return False
    if isinstance(error, (pg.RaiseError, pg.WithCheckOptionViolationError)) or _is_forbidden(error):
        return True
    return is_raised(error) or _CHOOSES_STATUS.fullmatch(error.sqlstate or "") is not None


def rule_answer(error: BaseException, pointer: str | None = None) -> ApiError | None:
    """Return the answer to a refusal by a rule of the database, or None for any other error. pointer: for the
    answer."""
    if not is_rule(error):
        return None
    assert isinstance(error, PostgresMessage)
    if _is_forbidden(error):
        return _forbidden(error, pointer)
    if isinstance(error, pg.WithCheckOptionViolationError) and not is_raised(error):
        detail = "The database does not allow these values: the view that holds the resource would not show it."
        return DatabaseRule(detail, pointer=pointer)
    detail = shortened(said(error).message, MAX_MESSAGE_CHARACTERS) or "A rule of the database refuses this."
    made: ApiError
    if isinstance(error, _CONFLICTS):
        made = Conflict(detail, pointer=pointer)
    else:
        chosen = _CHOSEN_STATUS.fullmatch(error.sqlstate or "")
        made = DatabaseRule(detail, status=422 if chosen is None else int(chosen[1]), pointer=pointer)
    hint = "" if isinstance(error, _HINTED_BY_DRIVER) else said(error).hint
    parts = {"detail": said(error).detail, "hint": hint}
    made.meta = {name: shortened(text, MAX_MESSAGE_CHARACTERS) for name, text in parts.items() if text}
    return made


def raise_rule(error: Exception, pointer: str | None = None) -> None:
    """Raise the answer to a refusal by a rule of the database. Does nothing for any other error."""
    answer = rule_answer(error, pointer)
    try:
        if answer is not None:
            raise answer from error
    finally:
        # A frame that refers to the error that it raises is a reference cycle.
        del answer


def _forbidden(error: PostgresMessage, pointer: str | None) -> DatabaseForbids:
    log.warning("PostgreSQL forbids what a request needs: %s", in_one_line(error))
    detail = "The database does not allow this server to do this. The server's log says what is missing."
    if _is_write_of_stable(error):
        detail = "A function of the database writes, and is not declared as VOLATILE: declare it so."
    raised = shortened(said(error).message, MAX_MESSAGE_CHARACTERS) if is_raised(error) else ""
    if not isinstance(error, pg.InsufficientPrivilegeError):
        return DatabaseForbids(raised or detail, pointer=pointer)
    made = MissingPrivilege(raised or detail, pointer=pointer)
    made.said = raised
    return made
