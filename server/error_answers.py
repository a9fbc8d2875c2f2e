"""Turns exceptions into error documents, with the status, code and title of their row in `ERRORS`."""

from __future__ import annotations

import http
from collections.abc import Sequence

import msgspec
from tornado.web import HTTPError

from querybuild.errors import MAX_ERRORS, NAME_CHARACTERS, ApiError, BadRequest, Several, shortened
from serializers.errors import encode_errors
from serializers.objects import ErrorObject, ErrorSource
from serializers.pointers import short_pointer
from server.errors import (
    ERRORS,
    RETRY_AFTER_SECONDS,
    AuditUnavailable,
    AuthUnavailable,
    ErrorRow,
    KeyInProgress,
    MethodNotAllowed,
    Overloaded,
    TooManyRequests,
    Unavailable,
)

INTERNAL = ErrorRow(500, "internal_error", "Internal Server Error")
INTERNAL_DETAIL = "The server failed to answer this request. Its log has the details under the id of the request."


class ErrorAnswer(msgspec.Struct, frozen=True):
    """An error document with its status and headers. is_fault: whether it reports a fault of the server."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    is_fault: bool


def answer(error: BaseException, request_id: str) -> ErrorAnswer:
    """Return the answer for any exception. An ApiError gets the status of its row, tornado's HTTPError its own status.
    Everything else is a 500 without internal details."""
    objects = error_objects(error, request_id)
    return ErrorAnswer(
        status=common_status({int(error_object.status) for error_object in objects}),
        headers=tuple(header for cause in _each(error) for header in _headers(cause)),
        body=encode_errors(objects),
        is_fault=any(error_object.detail is INTERNAL_DETAIL for error_object in objects),
    )


def error_objects(error: BaseException, request_id: str) -> list[ErrorObject]:
    """Return the error objects for an exception. Their ids are the id of the request with a number."""
    return [_error_object(cause, f"{request_id}.{number}") for number, cause in enumerate(_each(error), 1)]


def _each(error: BaseException) -> Sequence[BaseException]:
    """Return the errors that an answer reports, at most MAX_ERRORS."""
    return error.errors[:MAX_ERRORS] if isinstance(error, Several) else (error,)


def common_status(statuses: set[int]) -> int:
    """Return one status for all errors. Different ones become 500 if one of them is at least 500, otherwise 400."""
    if len(statuses) == 1:
        return statuses.pop()
    return 500 if any(status >= 500 for status in statuses) else 400


def row_of(error: BaseException) -> ErrorRow:
    """Return the row of the nearest class in the table. A class of custom code may define its own."""
    status = getattr(error, "status", None)
    if isinstance(error, ApiError) and isinstance(status, int) and 400 <= status < 500:
        title = str(getattr(error, "title", "") or http.HTTPStatus(status).phrase)
        return ErrorRow(status, str(getattr(error, "code", "") or _code_of(title)), title)
    for base in type(error).__mro__:
        row = ERRORS.get(base)
        if row is not None:
            return row
    return INTERNAL


def _error_object(error: BaseException, error_id: str) -> ErrorObject:
    if isinstance(error, HTTPError) and error.status_code >= 400:
        return _http_error_object(error, error_id)
    row = row_of(error)
    if not isinstance(error, ApiError) or row is INTERNAL:
        return ErrorObject(error_id, "500", INTERNAL.code, INTERNAL.title, INTERNAL_DETAIL)
    source = ErrorSource(
        pointer=None if error.pointer is None else short_pointer(error.pointer),
        parameter=None if error.parameter is None else shortened(error.parameter, NAME_CHARACTERS),
        header=error.header,
    )
    return ErrorObject(
        id=error_id,
        status=str(row.status),
        code=row.code,
        title=row.title,
        detail=error.detail,
        source=None if source == ErrorSource() else source,
        status_code=row.status if isinstance(error, BadRequest) else None,
        meta=error.meta or None,
    )


def _http_error_object(error: HTTPError, error_id: str) -> ErrorObject:
    try:
        title = error.reason or http.HTTPStatus(error.status_code).phrase
    except ValueError:
        title = "Error"
    # tornado doubles each % of a message that has no arguments.
    message = error.log_message % error.args if error.log_message else None
    detail = INTERNAL_DETAIL if error.status_code >= 500 else message or title
    pointer = getattr(error, "pointer", None)
    source = None if pointer is None else ErrorSource(pointer=pointer)
    return ErrorObject(error_id, str(error.status_code), _code_of(title), title, detail, source)


def _code_of(title: str) -> str:
    return title.lower().replace(" ", "_").replace("-", "_")


def _headers(error: BaseException) -> list[tuple[str, str]]:
    if isinstance(error, MethodNotAllowed):
        return [("Allow", ", ".join(error.allow))]
    if isinstance(error, (Unavailable, Overloaded, TooManyRequests, AuthUnavailable, AuditUnavailable, KeyInProgress)):
        return [("Retry-After", str(RETRY_AFTER_SECONDS))]
    return []
