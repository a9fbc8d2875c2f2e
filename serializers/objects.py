"""The specification's objects that are not resources, as msgspec Structs with their members in the
specification's order.

Resource objects are not here: they are written from templates (`encode.py`), which is where the time of a long
list goes.
Source: JSON:API 1.0 "Document Structure", "Errors".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

JSONAPI = msgspec.Raw(b'{"version":"1.0"}')


class ErrorSource(msgspec.Struct, omit_defaults=True):
    """At most one of: a pointer into the request document, a query parameter, a request header."""

    pointer: str | None = None
    parameter: str | None = None
    header: str | None = None


class ErrorObject(msgspec.Struct, omit_defaults=True):
    """status: as text. status_code: the same as a number, only where custom code raised a bad request."""

    id: str
    status: str
    code: str
    title: str
    detail: str
    source: ErrorSource | None = None
    status_code: int | None = None
    meta: Mapping[str, str] | None = None


class ErrorDocument(msgspec.Struct):
    errors: list[ErrorObject]
    jsonapi: msgspec.Raw = JSONAPI


class MetaDocument(msgspec.Struct):
    """A document that has something to say and no data, such as the answer to a DELETE."""

    meta: dict[str, Any]
    jsonapi: msgspec.Raw = JSONAPI


class LinksDocument(msgspec.Struct):
    """The root: links to every collection. A document needs one of data, errors and meta, so it has an empty meta."""

    links: dict[str, str]
    meta: dict[str, Any]
    jsonapi: msgspec.Raw = JSONAPI


class Meta(msgspec.Struct, omit_defaults=True):
    """message: what a write has done, in words. count: resources in this page. total: all that match."""

    message: str | None = None
    count: int | None = None
    total: int | None = None
    totalPages: int | None = None
    totalEstimated: bool = False
