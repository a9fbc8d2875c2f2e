"""Translates the database's refusal of a read into an answer that names the parameter. What comes in: a driver's
exception, and the read. What goes out: an ApiError; other exceptions are left as they are.

Answers contain no SQL, no names of tables or columns, and no text of the driver.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NoReturn

from querybuild.declarations.operators import PATTERN_OPERATORS, TEXT_OPERATORS, all_names
from querybuild.errors import ApiError, listed, quoted, resource_not_found
from querybuild.filters import SentFilter, fault
from querybuild.parse import NEAR_TO
from querybuild.planning.page_values import Values
from querybuild.planning.plan import Branch
from server.errors import BodyValueRefused, ImpossibleValue, ValueRefused
from server.postgres.driver_errors import (
    COLLATIONS_DIFFER,
    INTERNAL,
    OUT_OF_RANGE,
    PARSED,
    REFUSED,
    RETRYABLE,
    UNSUPPORTED,
    describe_refusal,
    has_text,
    in_one_line,
    is_quoted,
    is_schema_changed,
    is_value_refused,
    state_of,
    unknown_character,
)
from server.postgres.rules import is_rule
from server.preparing.reads import PreparedRead

log = logging.getLogger("server")


def raise_refusal(error: Exception, read: PreparedRead, path_id: object = None) -> NoReturn:
    """Raise ValueRefused if a value of the request can be the reason for an error of PostgreSQL, and ResourceNotFound
    if it is the id in the path. Otherwise raise the error itself: then an expression of the declarations failed for
    some row, or one of its functions raised it."""
    character = unknown_character(error)
    if character is not None and has_text(path_id, character):
        resource = read.plan.node.resource if read.plan.scope is None else read.plan.scope.parent
        raise resource_not_found(resource.type, str(path_id)) from error
    if (refused := refused_filter(error, read.planned.filters, read.planned.values)) is not None:
        try:
            raise refused from error
        finally:
            del refused  # a frame that refers to the error that it raises is a reference cycle
    if is_rule(error) or isinstance(error, RETRYABLE) or is_schema_changed(error):
        raise error
    if read.plan.rows.keyset is not None and isinstance(error, REFUSED) and state_of(error) not in _SUSPECTS:
        detail = f"PostgreSQL refuses the cursor: {describe_refusal(error)}."
        raise ValueRefused(detail, parameter=read.page.cursor_parameter) from error
    raise error


def raise_refused_choice(error: Exception, read: PreparedRead, branch: Branch) -> NoReturn:
    """Raise ValueRefused if a value of the filter of included rows can be the reason for an error of PostgreSQL.
    Otherwise raise the error itself."""
    if branch.choice is not None:
        names = read.planned.choices[branch.choice.index].parameters
        filters = [sent_filter for sent_filter in read.planned.filters if sent_filter.source.parameter in names]
        if (refused := refused_filter(error, filters, read.planned.values)) is not None:
            try:
                raise refused from error
            finally:
                del refused  # a frame that refers to the error that it raises is a reference cycle
    raise error


def refused_filter(error: Exception, filters: Sequence[SentFilter], values: Values) -> ApiError | None:
    """Return the error if a value of a filter can be the reason for an error of PostgreSQL. filters: all of the
    request."""
    if is_rule(error) or isinstance(error, RETRYABLE):
        return None
    if is_schema_changed(error) and not any(_is_custom(sent_filter) for sent_filter in filters):
        return None
    if (character := unknown_character(error)) is not None:
        for sent in filters:
            if any(has_text(values[slot], character) for slot in sent.slots):
                return _refused(sent, "It has a character that the database cannot store.")
    suspects = [sent_filter for sent_filter in filters if _is_suspect(sent_filter, error)]
    if state_of(error) in _OF_TEXTS:
        # A text that was right when the server started, such as the label of an enum.
        suspects = suspects or [
            sent_filter for sent_filter in filters if any(is_quoted(values[slot], error) for slot in sent_filter.slots)
        ]
    if not suspects:
        return None
    sent_filter = max(suspects, key=lambda suspect: _suspicion(suspect, error, values))
    what = "the value" if sent_filter.op == NEAR_TO else "a value of the filter"
    return _refused(sent_filter, f"PostgreSQL refuses {what}: {describe_refusal(error)}.")


def _refused(sent: SentFilter, detail: str) -> ApiError:
    return fault(sent.source, detail, ValueRefused if sent.source.pointer is None else BodyValueRefused)


def _is_suspect(sent_filter: SentFilter, error: Exception) -> bool:
    """Return whether a filter can be the reason for an error. PostgreSQL only reports the kind of the error."""
    if not isinstance(error, REFUSED) and is_value_refused(error):
        return sent_filter.is_checked
    if isinstance(error, UNSUPPORTED):
        return sent_filter.op in TEXT_OPERATORS
    if isinstance(error, COLLATIONS_DIFFER):
        return sent_filter.has_field
    if isinstance(error, PARSED):
        return isinstance(error, INTERNAL) and sent_filter.op in PATTERN_OPERATORS
    state = state_of(error)
    if _is_custom(sent_filter):
        return True
    if state in _OF_TEXTS or state == OUT_OF_RANGE:
        # Such values are checked before. A comparison of two columns may cast one to the type of the other.
        return sent_filter.has_field or sent_filter.is_checked
    return sent_filter.op in _SUSPECTS.get(state, (sent_filter.op,))


def _is_custom(sent_filter: SentFilter) -> bool:
    """Return whether the operator is one of custom code, whose values nothing checks before PostgreSQL does."""
    return sent_filter.op not in all_names()


def _suspicion(sent_filter: SentFilter, error: Exception, values: Values) -> int:
    """Return how likely a suspect is: most if PostgreSQL quotes its value."""
    if any(is_quoted(values[slot], error) for slot in sent_filter.slots if sent_filter.is_checked):
        return 2
    return 1 if sent_filter.is_checked else 0


_SUSPECTS: dict[str, frozenset[str]] = {
    "2201B": PATTERN_OPERATORS,
    # Errors of arithmetic, substrings, subscripts, and of LIKE patterns that end in a backslash. No filter causes them.
    **dict.fromkeys(("22012", "2201E", "2201F", "2201G", "22011", "2202E", "22025"), frozenset()),
    # Subqueries and functions that find several rows or none.
    **dict.fromkeys(("21000", "P0002", "P0003"), frozenset()),
}
"""SQLSTATE -> the operators that can be the reason. For any other SQLSTATE, every operator can be the reason."""

_OF_TEXTS = frozenset({"22P02", "22007", "22008"})
"""The SQLSTATEs of texts that are not a value of a type, and of dates that do not exist."""


def impossible_value(error: Exception, what: str, computed: Sequence[str] = ()) -> ImpossibleValue:
    """Return the error for stored rows with which PostgreSQL cannot compute, and log it. what: which rows. computed:
    the names of the fields that may be left out instead."""
    log.warning("a row of %s has a value that PostgreSQL cannot compute: %s", what, in_one_line(error))
    detail = f"PostgreSQL cannot compute a value of a stored row of {what}: {describe_refusal(error)}. "
    if not computed:
        return ImpossibleValue(detail + "Exclude the row by a filter.")
    names = listed(map(quoted, computed))
    return ImpossibleValue(f"{detail}Leave {names} out by `fields`, or exclude the row by a filter.")
