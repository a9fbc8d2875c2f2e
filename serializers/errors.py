"""Errors of request documents, and the encoding of error documents. It must not know: status and code of an error.

BodyError (querybuild/errors.py)
├── MalformedJson          the body is not JSON
├── MalformedOperations    the body is JSON, but not a list of atomic operations
├── MalformedLines         the body is not a file of CSV or NDJSON
├── InvalidDocument        the body is JSON, but not the document that the route expects
└── PartialLinkage         linkage was read in part, and would be written as if it were whole

ApiError
└── AnswerTooLarge         the answer would have more bytes than `max_answer_bytes`
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from querybuild.errors import ApiError, BodyError
from serializers.objects import ErrorDocument, ErrorObject


class MalformedJson(BodyError):
    """The body is not JSON."""


class MalformedOperations(BodyError):
    """The body is JSON, but not a list of atomic operations."""


class MalformedLines(BodyError):
    """The body is not a file of CSV or NDJSON, or its fields are not those of the resource."""


class InvalidDocument(BodyError):
    """The body is JSON, but not the document that the route expects."""


class PartialLinkage(BodyError):
    """Linkage was read in part, and would be written as if it were whole."""


class AnswerTooLarge(ApiError):
    """The answer would have more bytes than `max_answer_bytes`."""


def answer_too_large(max_bytes: int) -> AnswerTooLarge:
    """Return the error for an answer over this limit."""
    detail = f"The answer would have more than {max_bytes} bytes"
    return AnswerTooLarge(f"{detail}: ask for a smaller page, for fewer fields (`fields[type]`), or include less.")


def encode_errors(errors: Sequence[ErrorObject]) -> bytes:
    """Return the document of these errors."""
    return msgspec.json.encode(ErrorDocument(list(errors)))
