"""Describes the answers of operations: their statuses, headers and media types. Which errors an operation may have
follows from their classes, in `server/errors.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from querybuild import errors as query_errors
from querybuild.declarations.values import JsonSchema
from serializers.json_api import MEDIA_TYPE
from serializers.openapi.api import Schemas, ref
from serializers.openapi.documents import ERRORS as ERROR_DOCUMENT
from server import errors
from server.http.negotiation import EXTENDED
from server.routes import Method

HEADERS: Schemas = {
    "X-Request-Id": {
        "description": "The id of the request: the one that it was sent with, or a new one.",
        "required": True,
        "schema": {"type": "string"},
    },
    "Location": {"description": "The URL of the new resource.", "schema": {"type": "string"}},
    "Retry-After": {"description": "After how many seconds to try again.", "schema": {"type": "string"}},
    "WWW-Authenticate": {"description": "Which credentials to send, with a 401.", "schema": {"type": "string"}},
    "ETag": {
        "description": "The tag of the document, for If-None-Match. Of a resource or linkage, also for If-Match.",
        "schema": {"type": "string"},
    },
    "Preference-Applied": {
        "description": "`tx=rollback` if the request was only tried.",
        "schema": {"type": "string"},
    },
    "Idempotent-Replayed": {
        "description": "Whether an earlier request with the same key has done the write, and this is its answer.",
        "schema": {"type": "string", "enum": ["true", "false"]},
    },
    "Cache-Control": {"description": "Who may keep the answer, and for how long.", "schema": {"type": "string"}},
    "Server-Timing": {"description": "The time of each stage.", "schema": {"type": "string"}},
}
_TITLES = {
    200: "Done.",
    201: "Created.",
    204: "Done. There is nothing to show.",
    304: "The client has the current version.",
}


class DescribedOperation(msgspec.Struct, frozen=True):
    """What the errors of an operation depend on. row: its row of the route table. has_id: whether it names a resource
    that may not exist. is_open: whether everybody may do everything. takes_keys: whether the answers to writes with a
    key are kept. uses_database: whether it reads or writes rows. is_atomic: whether it is that of atomic operations.
    Without the media type of the extension, its errors have another form."""

    row: Method
    has_id: bool
    is_open: bool
    takes_keys: bool = False
    uses_database: bool = True
    is_atomic: bool = False

    @property
    def is_write(self) -> bool:
        """Whether it changes rows."""
        return self.row.name != "GET"


def _never(_: DescribedOperation) -> bool:
    return False


def _with_body(operation: DescribedOperation) -> bool:
    return operation.row.body is not None


def _on_write(operation: DescribedOperation) -> bool:
    return operation.is_write


def _with_match(operation: DescribedOperation) -> bool:
    return bool(operation.row.preconditions) or operation.is_atomic


def _with_tags(operation: DescribedOperation) -> bool:
    return bool(operation.row.preconditions) or not operation.is_write


def _with_key(operation: DescribedOperation) -> bool:
    return operation.is_write and operation.takes_keys


def _with_rules(operation: DescribedOperation) -> bool:
    return not operation.is_open


_WHEN: dict[type[Exception], Callable[[DescribedOperation], bool]] = {
    # They are about other paths and methods.
    errors.RouteNotFound: _never,
    errors.MethodNotAllowed: _never,
    query_errors.ResourceNotFound: lambda operation: operation.has_id,
    query_errors.BodyError: _with_body,
    errors.BodyTimeout: _with_body,
    errors.BodyTooLarge: _with_body,
    errors.UnsupportedMediaType: _with_body,
    errors.BodyValueRefused: _with_body,
    errors.TooManyChanges: lambda operation: operation.is_atomic,
    query_errors.Unauthenticated: _with_rules,
    query_errors.Forbidden: _with_rules,
    errors.AuthUnavailable: _with_rules,
    query_errors.MethodForbidden: _on_write,
    errors.ReadOnlyServer: _on_write,
    errors.ForeignOrigin: _on_write,
    errors.PreconditionUnsupported: _on_write,
    errors.PreferenceUnsupported: _on_write,
    errors.KeyFault: _with_key,
    errors.PreconditionFailed: _with_match,
    errors.PreconditionRequired: _with_match,
    errors.InvalidTag: _with_tags,
    errors.AuditUnavailable: _on_write,
    errors.AuditFailed: _on_write,
    errors.Conflict: _on_write,
    errors.NotWritten: _on_write,
    errors.DatabaseRule: _on_write,
    errors.OutcomeUnknown: _on_write,
    errors.DatabaseAnswer: lambda operation: operation.uses_database,
}
"""When an operation may have an error. Every operation may have an error that has no row here, nor any of its bases."""


def _may_have(error: type[Exception], operation: DescribedOperation) -> bool:
    for base in error.__mro__:
        if base in _WHEN:
            return _WHEN[base](operation)
    return True


class Refusals:
    """The components of the answers with errors. Operations with the same errors share them."""

    def __init__(self) -> None:
        self.components: Schemas = {}
        self._names: dict[tuple[str, ...], str] = {}

    def of(self, operation: DescribedOperation) -> JsonSchema:
        """Return the answers with errors of an operation, by their status."""
        rows = [row for error, row in errors.ERRORS.items() if _may_have(error, operation)]
        ranges = {"4XX": [row for row in rows if row.status < 500], "5XX": [row for row in rows if row.status >= 500]}
        return {name: ref(self._name(name, some, operation), "responses") for name, some in ranges.items()}

    def _name(self, status: str, rows: list[errors.ErrorRow], operation: DescribedOperation) -> str:
        codes: dict[int, list[str]] = {}
        for row in rows:
            codes.setdefault(row.status, []).append(row.code)
        lines = tuple([f"- {number}: {', '.join(dict.fromkeys(codes[number]))}" for number in sorted(codes)])
        has_two_forms = operation.is_atomic and status == "4XX"
        key = (*lines, str(has_two_forms))
        if key not in self._names:
            name = self._names[key] = f"{status}.{len(self._names)}"
            self.components[name] = refusal = _refusal(status, lines, rows)
            if has_two_forms:
                refusal["content"][EXTENDED] = refusal["content"][MEDIA_TYPE]
                refusal["content"]["application/json"] = {"schema": {"type": "object", "required": ["detail"]}}
        return self._names[key]


def _refusal(status: str, lines: tuple[str, ...], rows: list[errors.ErrorRow]) -> JsonSchema:
    row = rows[0]
    example = {"id": "7c0a.1", "status": str(row.status), "code": row.code, "title": row.title, "detail": "What to do."}
    intro = "The request was not done. Statuses and codes:" if status == "4XX" else "The server cannot answer now:"
    document = {"errors": [example], "jsonapi": {"version": "1.0"}}
    return {
        "description": "\n".join((intro, "", *lines)),
        "headers": header_refs("X-Request-Id", "Retry-After", *(["WWW-Authenticate"] if status == "4XX" else [])),
        "content": {MEDIA_TYPE: {"schema": ref(ERROR_DOCUMENT), "example": document}},
    }


def header_refs(*names: str) -> JsonSchema:
    """Return the headers of an answer."""
    return {name: ref(name, "headers") for name in names}


def response(status: int, content: JsonSchema, headers: Iterable[str] = (), description: str = "") -> JsonSchema:
    """Return an answer without errors. content: the schemas by media type."""
    described: JsonSchema = {"description": description or _TITLES[status]}
    if headers:
        described["headers"] = header_refs(*headers)
    return described | ({"content": {name: {"schema": schema} for name, schema in content.items()}} if content else {})
