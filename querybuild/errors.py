"""Defines the base of all errors that clients cause, and the errors of parsing and planning.

    ApiError                      anything that is answered with an `errors` document
    ├── Several                   independent errors that are reported together
    ├── ParameterError            a query parameter; source.parameter says which
    │   ├── IncludeError, SortError, FieldsError, PageError, FilterError
    ├── BodyError                 the request document; source.pointer says where
    │   ├── AttributeFault        an attribute is missing, unknown, read-only or has an invalid value
    │   ├── RelationshipFault     the same for a relationship
    │   ├── TypeConflict, IdConflict, OwnerConflict, ClientIdForbidden, LinkageTypeConflict
    │   ├── RelatedNotFound       linkage to a resource that does not exist
    │   └── RequiredLink          a write that would remove a required link
    ├── ConflictFault             `onConflict` names what is not possible
    ├── ResourceNotFound          the resource of the path, or of an operation, does not exist
    ├── BadRequest                raised by custom code
    ├── MethodForbidden           a write that the declaration does not allow
    ├── Forbidden                 the rules of access do not allow it to this principal
    └── Unauthenticated           they do not allow it to anybody without credentials

It must not know: status, code and title. They are one table in `server/errors.py`. Faults of the server are not an
ApiError; they stay AssertionError or RuntimeError.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

from querybuild.principal import Principal

MAX_ERRORS = 100
"""The most errors that one answer reports."""

CONTROLS = "\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029\\ud800-\\udfff"
"""Control characters, line separators and surrogates, for a character class of a regular expression."""

QUOTED_CHARACTERS = 80
"""The limit for a text of the client in a detail."""

NAME_CHARACTERS = 256
"""The limit for the name of a parameter in an error, and for names in an error that shows an operation."""

SHOWN_CHARACTERS = 1000
"""The limit for a path in logs and traces, and for a value in an error that shows an operation."""


class ApiError(Exception):
    """An error that is answered with an `errors` document. `detail` tells a person what was wrong and what to do. At
    most one of the three sources says where. A class of custom code may define `status` (400 to 499, by default 400),
    `code` and `title`.

    parameter: the name of a query parameter as it was sent, such as `filter[age]`.
    pointer: an RFC 6901 pointer into the request document, "" for all of it.
    header: the name of a request header.
    meta: further facts, shown as the `meta` of the error object.
    """

    meta: Mapping[str, str] = {}

    def __init__(
        self,
        detail: str,
        *,
        parameter: str | None = None,
        pointer: str | None = None,
        header: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = str(detail)
        self.parameter = parameter
        self.pointer = pointer
        self.header = header


class Several(ApiError):
    """Independent errors of one request, in its order. It is never empty and never nested."""

    def __init__(self, errors: Sequence[ApiError]) -> None:
        super().__init__(f"{len(errors)} errors")
        self.errors = tuple(errors)


class BadRequest(ApiError):
    """An error for custom code to raise. By default its pointer is "". It shows the status also as a number."""

    def __init__(self, detail: str, *, pointer: str = "") -> None:
        super().__init__(detail, pointer=pointer)


class ParameterError(ApiError):
    """A query parameter is invalid."""


class IncludeError(ParameterError):
    """`include` is invalid."""


class SortError(ParameterError):
    """`sort` is invalid."""


class FieldsError(ParameterError):
    """A sparse fieldset is invalid."""


class PageError(ParameterError):
    """A page parameter is invalid."""


class GroupError(ParameterError):
    """Groups, or a number of them, cannot be computed so."""


class FilterError(ParameterError):
    """A filter is invalid."""


class QueryTooCostly(ParameterError):
    """A query costs more than `max_query_cost`."""


class BodyError(ApiError):
    """The request document is invalid."""


class AttributeFault(BodyError):
    """An attribute is missing, unknown, read-only or has an invalid value."""


class RelationshipFault(BodyError):
    """A relationship is missing, unknown or has invalid linkage."""


class TypeConflict(BodyError):
    """The type of the document is not that of the route."""


class IdConflict(BodyError):
    """The id of the document is not that of the path."""


class OwnerConflict(BodyError):
    """The document links a new resource to another owner than the path."""


class ClientIdForbidden(BodyError):
    """Clients may not choose ids of this type."""


class LinkageTypeConflict(BodyError):
    """Linkage has a type that is not that of the relationship."""


class RelatedNotFound(BodyError):
    """Linkage names a resource that does not exist."""


class RequiredLink(BodyError):
    """The write would remove a required link."""


class ConflictFault(ApiError):
    """`onConflict` names fields by which no row can be found."""


class ResourceNotFound(ApiError):
    """The resource of the path, or of an operation, does not exist."""


class MethodForbidden(ApiError):
    """The declaration does not allow this write."""


class Forbidden(ApiError):
    """The rules of access do not allow this to the principal."""


class Unauthenticated(ApiError):
    """The rules of access do not allow this to anybody without credentials, or the credentials are not accepted. Custom
    code raises it too, also without a detail."""

    def __init__(self, detail: str = "Send valid credentials.", **source: str | None) -> None:
        super().__init__(detail, **source)


def not_allowed(principal: Principal, what: str, *, pointer: str | None = None) -> Forbidden | Unauthenticated:
    """Return the error for what the rules of access do not allow. what: a sentence that says what is not allowed. It
    must not depend on rows that are hidden from the principal."""
    if principal.is_anonymous:
        return Unauthenticated(f"{what} Send credentials.", pointer=pointer)
    return Forbidden(what, pointer=pointer)


class Errors(list[ApiError]):
    """The errors of one request, as they are found. The list raises them at MAX_ERRORS, so that a body of megabytes
    does not cause an answer of megabytes, and does not take the time for it."""

    def append(self, error: ApiError) -> None:
        """Add an error. At MAX_ERRORS, all of them are raised."""
        super().append(error)
        if len(self) >= MAX_ERRORS:
            raise_all(self)

    def extend(self, errors: Iterable[ApiError]) -> None:
        """Add errors, like `append`."""
        for error in errors:
            self.append(error)


def raise_as(answer: BaseException, error: BaseException) -> NoReturn:
    """Raise the answer with the error as its cause, or the error itself if it is the answer. A frame that refers to the
    exception that it raises is a reference cycle, so this one deletes its references."""
    try:
        if answer is error:
            raise error
        raise answer from error
    finally:
        del answer, error


def release_frames(error: BaseException) -> None:
    """Remove the tracebacks of a handled error and of its causes. Their frames refer to bodies and documents, and often
    to the error itself, so only the cycle collector would free this memory."""
    pending: list[BaseException | None] = [error]
    seen: set[int] = set()
    while pending:
        raised = pending.pop()
        if raised is None or id(raised) in seen:
            continue
        seen.add(id(raised))
        pending += [raised.__cause__, raised.__context__]
        for name in ("__traceback__", "__cause__", "__context__"):
            # asyncpg's own `__setattr__` refuses this for the errors that it takes for warnings.
            BaseException.__setattr__(raised, name, None)
        if isinstance(raised, Several):
            pending += raised.errors
        elif isinstance(raised, BaseExceptionGroup):
            pending += raised.exceptions


def raise_all(errors: Sequence[ApiError]) -> None:
    """Raise the error, or several errors as `Several`, or nothing if there are none."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        flat: list[ApiError] = []
        for error in errors:
            flat.extend(error.errors if isinstance(error, Several) else [error])
        raise Several(flat)


def related_not_found(type_name: str, id_text: str, pointer: str) -> RelatedNotFound:
    """Return the error for linkage to a missing resource."""
    return RelatedNotFound(f"There is no {type_name} with the id {quoted(id_text)}.", pointer=pointer)


def unreferable(type_name: str, id_text: str, pointer: str) -> RelationshipFault:
    """Return the error for linkage to a resource without the value that the key of the relationship refers to."""
    named = f"The {type_name} with the id {quoted(id_text)}"
    return RelationshipFault(f"{named} has no value that this relationship can refer to.", pointer=pointer)


def resource_not_found(type_name: str, id_text: str, pointer: str | None = None) -> ResourceNotFound:
    """Return the error for a missing resource."""
    return ResourceNotFound(f"There is no {type_name} with the id {quoted(id_text)}.", pointer=pointer)


def shortened(text: str, limit: int = QUOTED_CHARACTERS) -> str:
    """Shorten a text of the client for a detail, the name of a parameter or a log line. Errors must not repeat
    megabytes of a body."""
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def quoted(text: str) -> str:
    """Quote and shorten a text of the client for a detail."""
    return f"“{shortened(text)}”"


def listed(names: Iterable[str]) -> str:
    """Join declared names for a detail, in their order: `a, b, c`."""
    return ", ".join(names) or "none"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ` Did you mean “x”?`, or "" if no declared name is similar."""
    close = difflib.get_close_matches(name[:100], list(known), n=1, cutoff=0.6)
    return f" Did you mean {quoted(close[0])}?" if close else ""
