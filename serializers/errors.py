"""Errors of request documents, and error documents. What comes in: error objects. What goes out: bytes. Status
and code are given, not known here.

BodyError (querybuild/errors.py)
├── MalformedJson          the body is not JSON
├── MalformedOperations    it is JSON and no list of atomic operations
└── InvalidDocument        it is JSON and not the document that the route takes

ApiError
└── AnswerTooLarge         the answer would have more bytes than one may have
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from querybuild.errors import ApiError, BodyError
from serializers.objects import ErrorDocument, ErrorObject


class MalformedJson(BodyError):
    pass


class MalformedOperations(BodyError):
    pass


class InvalidDocument(BodyError):
    pass


class AnswerTooLarge(ApiError):
    """The answer would have more bytes than one may have."""


def answer_too_large(most_bytes: int) -> AnswerTooLarge:
    detail = f"The answer would have more than {most_bytes} bytes"
    return AnswerTooLarge(f"{detail}: ask for a smaller page, for fewer fields (`fields[type]`), or include less.")


def encode_errors(errors: Sequence[ErrorObject]) -> bytes:
    return msgspec.json.encode(ErrorDocument(list(errors)))
