"""Defines the errors of HTTP and the database. The table ERRORS has the status, code and title of each class;
`error_answers.py` makes documents of them.

    ApiError (querybuild/errors.py)
    ├── BadRequest             raised by custom code; defined there
    ├── RequestFault           an error in the HTTP request
    │   ├── RouteNotFound, MethodNotAllowed, NotAcceptable, UnsupportedMediaType, BodyTooLarge, UrlTooLong, BodyTimeout
    │   └── ForeignOrigin, UnknownHost, PreconditionUnsupported, ReadOnlyServer
    ├── Unauthenticated        no credentials, or none that are accepted; defined there
    │   └── InvalidToken (ExpiredToken)
    ├── AuthUnavailable        a token cannot be verified now
    ├── SignInFailed           somebody cannot sign in: the attempt is not known, or the issuer refuses
    │   └── SignInRefused
    ├── Overload               too many requests in progress, or the request took too long
    │   └── Overloaded, TooManyRequests, RequestTimeout
    ├── AuditUnavailable, AuditFailed   the audit log cannot be written
    ├── ResourceNotFound       the resource of the path does not exist; defined there
    └── DatabaseAnswer         the database refused a valid request, or could not answer it
        ├── AmbiguousIds, Conflict (NoFreeId), NotWritten, DatabaseRule, DatabaseForbids (MissingPrivilege)
        ├── ValueRefused, BodyValueRefused, ImpossibleValue, TooManyIncluded, TooManyRows, TooExpensive
        ├── TooManyChanges
        ├── Unavailable
        │   └── Busy, SchemaChanged, TooManyStreams, NotReady
        └── OutcomeUnknown, StatementTimeout

Any other exception is a fault of the server: a 500 that only contains the id of the request, and a log line with the
details.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from tornado.web import HTTPError

from querybuild import errors as query_errors
from querybuild.errors import ApiError, BadRequest
from serializers import errors as document_errors

RETRY_AFTER_SECONDS = 1


Raised = ApiError | HTTPError
RAISED = (ApiError, HTTPError)
"""What ends a request with an answer of its own: our errors, and Tornado's, which custom code may raise."""


class RequestFault(ApiError):
    """An error in the HTTP request."""


class RouteNotFound(RequestFault):
    """No route has this path."""


class MethodNotAllowed(RequestFault):
    """The route does not have this method. allow: the methods that it has."""

    def __init__(self, detail: str, allow: Sequence[str]) -> None:
        super().__init__(detail)
        self.allow = tuple(allow)


class NotAcceptable(RequestFault):
    """The server cannot answer in a media type that the client accepts."""


class UnsupportedMediaType(RequestFault):
    """The body has a media type or an encoding that the server does not accept."""


class BodyTooLarge(RequestFault):
    """The body has more bytes than `max_body_bytes`."""


class UrlTooLong(RequestFault):
    """The URL has more bytes than `max_url_bytes`."""


class BodyTimeout(RequestFault):
    """The body took too long to arrive."""


class ForeignOrigin(RequestFault):
    """A web page of another origin tried to write."""


class UnknownHost(RequestFault):
    """The host of the request is not a name of this server."""


class PreconditionUnsupported(RequestFault):
    """The request has a precondition that its route or its resource does not have."""


class PreferenceUnsupported(RequestFault):
    """The request has a preference about its transaction that cannot be had."""


class InvalidTag(RequestFault):
    """If-Match or If-None-Match has something else than tags."""


class PreconditionFailed(RequestFault):
    """What the request is about is not as its precondition demands."""


class PreconditionRequired(RequestFault):
    """The resource is only written with If-Match."""


IDEMPOTENCY_KEY = "Idempotency-Key"


class KeyFault(RequestFault):
    """The request cannot be carried out with its Idempotency-Key."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail, header=IDEMPOTENCY_KEY)


class InvalidIdempotencyKey(KeyFault):
    """The Idempotency-Key is malformed, or there are several."""


class KeyRequired(KeyFault):
    """The server only accepts writes with an Idempotency-Key."""


class KeyInProgress(KeyFault):
    """A request with the same Idempotency-Key is being carried out."""


class KeyMismatch(KeyFault):
    """The Idempotency-Key belongs to another request."""


class ReadOnlyServer(RequestFault):
    """The server does not accept writes."""


class InvalidToken(query_errors.Unauthenticated):
    """The token of the request is not accepted. The detail must not quote the token."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail, header="Authorization")


class ExpiredToken(InvalidToken):
    """The token of the request has expired."""


class AuthUnavailable(ApiError):
    """The token of the request cannot be verified now, because the issuer cannot be reached."""


class SignInFailed(ApiError):
    """Somebody cannot sign in on the pages, because the attempt is not known."""


class SignInRefused(SignInFailed):
    """Somebody cannot sign in on the pages, because the issuer refuses, or its tokens are not accepted."""


class Overload(ApiError):
    """The server or the client has too many requests in progress, or the request took too long."""


class Overloaded(Overload):
    """The server has too many requests in progress, or no memory left for bodies."""


class TooManyRequests(Overload):
    """This client has too many requests in progress."""


def too_many_requests() -> TooManyRequests:
    """Return the error for a client with too many requests in progress."""
    return TooManyRequests("This client has too many requests in progress; wait for their answers, and try again.")


class RequestTimeout(Overload):
    """The request took too long."""


class AuditUnavailable(ApiError):
    """The audit log cannot be written, so nothing was done."""


class AuditFailed(ApiError):
    """The write was done, but the audit log could not be written afterwards."""


class DatabaseAnswer(ApiError):
    """The database refused a valid request, or could not answer it."""


class Conflict(DatabaseAnswer):
    """The write conflicts with other rows."""


class NoFreeId(Conflict):
    """The sequence of an id is exhausted."""


def no_free_id(type_name: str) -> NoFreeId:
    """Return the error for a new resource of this type without a free id."""
    return NoFreeId(f"There is no free id left for a new {type_name}: its sequence is exhausted.")


class ValueRefused(DatabaseAnswer):
    """PostgreSQL refused a value of the query string."""


class BodyValueRefused(DatabaseAnswer):
    """PostgreSQL refused a value of the document."""


class DatabaseRule(DatabaseAnswer):
    """A rule in the database refused the write. status: 400 to 499, chosen by the rule."""

    code, title = "database_rule", "Database Rule"

    def __init__(self, detail: str, *, status: int = 422, pointer: str | None = None) -> None:
        super().__init__(detail, pointer=pointer)
        self.status = status


class ImpossibleValue(DatabaseAnswer):
    """PostgreSQL cannot compute a value of a stored row."""


class AmbiguousIds(DatabaseAnswer):
    """Two rows have the same id, or an id is null. This is only possible if no constraint prevents it."""


class NotWritten(DatabaseAnswer):
    """A trigger or a policy cancelled a write."""


class DatabaseForbids(DatabaseAnswer):
    """The role of the server lacks a privilege, row security refuses the row, or a table no longer accepts writes."""


class MissingPrivilege(DatabaseForbids):
    """The role lacks a privilege, or row security refuses the row. said: the message of a RAISE with this error."""

    said = ""


class TooManyIncluded(DatabaseAnswer):
    """The read would include too many resources."""


class TooManyRows(DatabaseAnswer):
    """The request would read too many rows."""


class TooManyChanges(DatabaseAnswer):
    """The write would change more rows than it says."""


class TooExpensive(DatabaseAnswer):
    """PostgreSQL would need more temporary files for the request than a connection may have."""


class Unavailable(DatabaseAnswer):
    """The database cannot be reached."""


class Busy(Unavailable):
    """No connection became free in time."""


class SchemaChanged(Unavailable):
    """A statement of this server does not fit the tables any more, because they have changed since it has read them."""


class TooManyStreams(Unavailable):
    """Too many answers are being streamed."""


class NotReady(Unavailable):
    """The server should get no requests, for example because it stops."""


class OutcomeUnknown(DatabaseAnswer):
    """It is not known whether the write was done."""


class StatementTimeout(DatabaseAnswer):
    """A statement or a stream took too long."""


class ErrorRow(msgspec.Struct, frozen=True):
    """What an error document says of an error class."""

    status: int
    code: str
    title: str


ERRORS: dict[type[Exception], ErrorRow] = {
    # query string
    query_errors.ParameterError: ErrorRow(400, "invalid_parameter", "Invalid Parameter"),
    query_errors.IncludeError: ErrorRow(400, "invalid_include", "BadRequest"),
    query_errors.SortError: ErrorRow(400, "invalid_sort", "Invalid Sort"),
    query_errors.FieldsError: ErrorRow(400, "invalid_fields", "Invalid Sparse Fieldset"),
    query_errors.PageError: ErrorRow(400, "invalid_page", "Invalid Page"),
    query_errors.GroupError: ErrorRow(400, "invalid_groups", "Invalid Groups"),
    query_errors.QueryTooCostly: ErrorRow(400, "query_too_costly", "Query Too Costly"),
    query_errors.FilterError: ErrorRow(400, "invalid_filter", "Invalid Filter"),
    ValueRefused: ErrorRow(400, "value_refused", "Value Refused"),
    TooManyIncluded: ErrorRow(400, "too_many_included", "Too Many Included Resources"),
    TooManyRows: ErrorRow(400, "too_many_rows", "Too Many Rows"),
    TooExpensive: ErrorRow(400, "too_expensive", "Too Expensive"),
    document_errors.AnswerTooLarge: ErrorRow(400, "answer_too_large", "Answer Too Large"),
    # document
    document_errors.MalformedJson: ErrorRow(400, "malformed_json", "Malformed JSON"),
    document_errors.MalformedOperations: ErrorRow(400, "malformed_operations", "Malformed Operations"),
    document_errors.MalformedLines: ErrorRow(400, "malformed_lines", "Malformed Lines"),
    document_errors.InvalidDocument: ErrorRow(422, "invalid_document", "Invalid Document"),
    document_errors.PartialLinkage: ErrorRow(422, "partial_linkage", "Partial Linkage"),
    query_errors.AttributeFault: ErrorRow(422, "invalid_attribute", "Invalid Attribute"),
    query_errors.RelationshipFault: ErrorRow(422, "invalid_relationship", "Invalid Relationship"),
    BodyValueRefused: ErrorRow(422, "body_value_refused", "Value Refused"),
    TooManyChanges: ErrorRow(422, "too_many_changes", "Too Many Changes"),
    query_errors.TypeConflict: ErrorRow(409, "type_conflict", "Type Conflict"),
    query_errors.IdConflict: ErrorRow(409, "id_conflict", "Id Conflict"),
    query_errors.OwnerConflict: ErrorRow(409, "owner_conflict", "Owner Conflict"),
    query_errors.LinkageTypeConflict: ErrorRow(409, "linkage_type_conflict", "Linkage Type Conflict"),
    query_errors.ConflictFault: ErrorRow(400, "invalid_on_conflict", "Invalid onConflict"),
    query_errors.ClientIdForbidden: ErrorRow(403, "client_id_forbidden", "Client-Generated Id Forbidden"),
    query_errors.RelatedNotFound: ErrorRow(404, "related_not_found", "Related Resource Not Found"),
    query_errors.RequiredLink: ErrorRow(403, "required_link", "Required Link"),
    query_errors.MethodForbidden: ErrorRow(403, "write_forbidden", "Write Forbidden"),
    # access
    query_errors.Unauthenticated: ErrorRow(401, "unauthenticated", "Unauthenticated"),
    InvalidToken: ErrorRow(401, "invalid_token", "Invalid Token"),
    ExpiredToken: ErrorRow(401, "expired_token", "Expired Token"),
    query_errors.Forbidden: ErrorRow(403, "forbidden", "Forbidden"),
    AuthUnavailable: ErrorRow(503, "auth_unavailable", "Authentication Unavailable"),
    SignInFailed: ErrorRow(400, "sign_in_failed", "Sign-In Failed"),
    SignInRefused: ErrorRow(403, "sign_in_refused", "Sign-In Refused"),
    Conflict: ErrorRow(409, "conflict", "Conflict"),
    NoFreeId: ErrorRow(409, "conflict", "Conflict"),
    AmbiguousIds: ErrorRow(409, "ambiguous_ids", "Ambiguous Ids"),
    ImpossibleValue: ErrorRow(409, "impossible_value", "Impossible Value"),
    NotWritten: ErrorRow(409, "not_written", "Not Written"),
    DatabaseRule: ErrorRow(422, DatabaseRule.code, DatabaseRule.title),
    DatabaseForbids: ErrorRow(403, "database_forbids", "Database Forbids"),
    # HTTP
    ApiError: ErrorRow(400, "bad_request", "Bad Request"),
    BadRequest: ErrorRow(400, "bad_request", "Bad Request"),
    PreconditionUnsupported: ErrorRow(400, "precondition_unsupported", "Precondition Unsupported"),
    PreferenceUnsupported: ErrorRow(400, "preference_unsupported", "Preference Unsupported"),
    InvalidTag: ErrorRow(400, "invalid_tag", "Invalid Tag"),
    PreconditionFailed: ErrorRow(412, "precondition_failed", "Precondition Failed"),
    PreconditionRequired: ErrorRow(428, "precondition_required", "Precondition Required"),
    InvalidIdempotencyKey: ErrorRow(400, "invalid_idempotency_key", "Invalid Idempotency Key"),
    KeyRequired: ErrorRow(400, "idempotency_key_required", "Idempotency Key Required"),
    KeyInProgress: ErrorRow(409, "idempotency_in_progress", "Idempotency In Progress"),
    KeyMismatch: ErrorRow(422, "idempotency_mismatch", "Idempotency Mismatch"),
    ReadOnlyServer: ErrorRow(403, "read_only", "Read-Only Server"),
    RouteNotFound: ErrorRow(404, "route_not_found", "Not Found"),
    query_errors.ResourceNotFound: ErrorRow(404, "resource_not_found", "Resource Not Found"),
    MethodNotAllowed: ErrorRow(405, "method_not_allowed", "Method Not Allowed"),
    NotAcceptable: ErrorRow(406, "not_acceptable", "Not Acceptable"),
    BodyTimeout: ErrorRow(408, "body_timeout", "Body Timeout"),
    BodyTooLarge: ErrorRow(413, "body_too_large", "Body Too Large"),
    UrlTooLong: ErrorRow(414, "url_too_long", "URL Too Long"),
    UnsupportedMediaType: ErrorRow(415, "unsupported_media_type", "Unsupported Media Type"),
    UnknownHost: ErrorRow(421, "unknown_host", "Unknown Host"),
    ForeignOrigin: ErrorRow(403, "foreign_origin", "Foreign Origin"),
    # load
    TooManyRequests: ErrorRow(429, "too_many_requests", "Too Many Requests"),
    Overloaded: ErrorRow(503, "overloaded", "Overloaded"),
    RequestTimeout: ErrorRow(504, "request_timeout", "Request Timeout"),
    AuditUnavailable: ErrorRow(503, "audit_unavailable", "Audit Log Unavailable"),
    AuditFailed: ErrorRow(503, "audit_failed", "Audit Log Failed"),
    # database
    Unavailable: ErrorRow(503, "unavailable", "Database Unavailable"),
    Busy: ErrorRow(503, "busy", "Busy"),
    SchemaChanged: ErrorRow(503, "schema_changed", "Schema Changed"),
    TooManyStreams: ErrorRow(503, "too_many_streams", "Too Many Streams"),
    NotReady: ErrorRow(503, "not_ready", "Not Ready"),
    OutcomeUnknown: ErrorRow(503, "outcome_unknown", "Outcome Unknown"),
    StatementTimeout: ErrorRow(504, "statement_timeout", "Statement Timeout"),
}


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error, its cause, the cause of that, and so on. An error of custom code may be its own cause."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__
