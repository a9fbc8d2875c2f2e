"""The base of every answer that is the client's doing, and the ones that reading and planning a request raise.

    ApiError                      anything that is answered with an `errors` document
    ├── Several                   independent errors that are reported together
    ├── ParameterError            a query parameter; source.parameter says which
    │   ├── IncludeError, SortError, FieldsError, PageError, FilterError
    ├── BodyError                 the request document; source.pointer says where
    │   ├── AttributeFault        an attribute is missing, unknown, read-only or has a value that is refused
    │   ├── RelationshipFault     the same of a relationship
    │   ├── TypeConflict, IdConflict, OwnerConflict, ClientIdForbidden, LinkageTypeConflict
    │   ├── RelatedNotFound       linkage to something that is not there
    │   └── RequiredLink          a write that would remove a link that must not be null
    ├── ResourceNotFound          what the path, or an operation, names is not there
    ├── BadRequest                raised by custom code
    └── MethodForbidden           a write that the declaration switches off

What comes in: facts about the fault, in the words of the request. What goes out: an exception. Status, code
and title are not known here: they are one table in `server/errors.py`. Faults of our own are no ApiError; they
stay AssertionError or RuntimeError.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

MAX_ERRORS = 100
"""The most errors that one answer reports."""

CONTROLS = "\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029\\ud800-\\udfff"
"""For a character class: what is not text, but moves a cursor, ends a line or stands for a byte that is no text."""

QUOTED_CHARACTERS = 80
"""Of the client's text in a detail."""

NAME_CHARACTERS = 256
"""Of the name of a parameter in an error, and of names in the error that shows an operation."""

SHOWN_CHARACTERS = 1000
"""Of a path in logs and traces, and of a value in the error that shows an operation."""


class ApiError(Exception):
    """`detail` tells a person what was wrong and what to do; at most one of the three sources says where. A class of a
    user's own may say its `status` (400 to 499; 400 without one), `code` and `title`.

    parameter: a query parameter's name as it was sent, such as `filter[age]`.
    pointer: an RFC 6901 pointer into the request document, "" for the whole of it.
    header: a request header's name.
    meta: what else there is to say, shown as the error object's `meta`.
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
    """Independent errors of one request, in the order in which they stand in it; never empty, never nested."""

    def __init__(self, errors: Sequence[ApiError]) -> None:
        super().__init__(f"{len(errors)} errors")
        self.errors = tuple(errors)


class BadRequest(ApiError):
    """For custom code to raise: rendered with pointer "" and with the status as a number besides its text."""

    def __init__(self, detail: str, *, pointer: str = "") -> None:
        super().__init__(detail, pointer=pointer)


class ParameterError(ApiError):
    pass


class IncludeError(ParameterError):
    pass


class SortError(ParameterError):
    pass


class FieldsError(ParameterError):
    pass


class PageError(ParameterError):
    pass


class FilterError(ParameterError):
    pass


class BodyError(ApiError):
    pass


class AttributeFault(BodyError):
    pass


class RelationshipFault(BodyError):
    pass


class TypeConflict(BodyError):
    pass


class IdConflict(BodyError):
    pass


class OwnerConflict(BodyError):
    pass


class ClientIdForbidden(BodyError):
    pass


class LinkageTypeConflict(BodyError):
    pass


class RelatedNotFound(BodyError):
    pass


class RequiredLink(BodyError):
    pass


class ResourceNotFound(ApiError):
    pass


class MethodForbidden(ApiError):
    pass


class Errors(list[ApiError]):
    """The errors of one request, as they are found. At MAX_ERRORS they are raised: a body of megabytes must not make an
    answer of megabytes, nor take the time for it."""

    def append(self, error: ApiError) -> None:
        super().append(error)
        if len(self) >= MAX_ERRORS:
            raise_all(self)

    def extend(self, errors: Iterable[ApiError]) -> None:
        for error in errors:
            self.append(error)


def raise_as(answer: BaseException, error: BaseException) -> NoReturn:
    """Raises the answer, which the error is the cause of; the error itself where that is the answer. A frame that holds
    what it raises is a reference cycle: this one holds neither when it is left."""
    try:
        if answer is error:
            raise error
        raise answer from error
    finally:
        del answer, error


def release_frames(error: BaseException) -> None:
    """Cuts an error that has been handled, and the errors behind it, from the frames through which they came. The
    frames hold bodies and documents, and often the error itself: only the cycle collector would free that memory."""
    pending: list[BaseException | None] = [error]
    seen: set[int] = set()
    while pending:
        one = pending.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        pending += [one.__cause__, one.__context__]
        one.__traceback__ = one.__cause__ = one.__context__ = None
        if isinstance(one, Several):
            pending += one.errors
        elif isinstance(one, BaseExceptionGroup):
            pending += one.exceptions


def raise_all(errors: Sequence[ApiError]) -> None:
    """Raise nothing, the one error, or all of them as `Several`."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        flat: list[ApiError] = []
        for error in errors:
            flat.extend(error.errors if isinstance(error, Several) else [error])
        raise Several(flat)


def resource_not_found(type_name: str, id_text: str, pointer: str | None = None) -> ResourceNotFound:
    return ResourceNotFound(f"There is no {type_name} with the id {quoted(id_text)}.", pointer=pointer)


def shortened(text: str, most: int = QUOTED_CHARACTERS) -> str:
    """The client's text where it is shown: in a detail, as the name of a parameter, in a log. A body of megabytes must
    not come back."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def quoted(text: str) -> str:
    """The client's text for a detail: in quotes, and shortened."""
    return f"“{shortened(text)}”"


def listed(names: Iterable[str]) -> str:
    """The declared names for a detail, in their order: `a, b, c`."""
    return ", ".join(names) or "none"


def nearest(name: str, known: Iterable[str]) -> str:
    """` Did you mean “x”?`, or nothing when no declared name is like it."""
    close = difflib.get_close_matches(name[:100], list(known), n=1, cutoff=0.6)
    return f" Did you mean {quoted(close[0])}?" if close else ""
