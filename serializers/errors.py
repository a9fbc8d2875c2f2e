"""Errors of request documents, and error documents. What comes in: error objects. What goes out: bytes. Status
and code are given, not known here.

BodyError (querybuild/errors.py)
├── MalformedJson          the body is not JSON
├── MalformedOperations    it is JSON and no list of atomic operations
└── InvalidDocument        it is JSON and not the document that the route takes
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from querybuild.errors import BodyError
from serializers.objects import ErrorDocument, ErrorObject


class MalformedJson(BodyError):
    pass


class MalformedOperations(BodyError):
    pass


class InvalidDocument(BodyError):
    pass


def encode_errors(errors: Sequence[ErrorObject]) -> bytes:
    return msgspec.json.encode(ErrorDocument(list(errors)))
