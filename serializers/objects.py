"""Defines the objects of JSON:API documents that are not resources, as msgspec Structs.

Resource objects are written from templates in `resource_objects.py`, because a long list spends most of its time there.

Source: JSON:API 1.0 "Document Structure", "Errors".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

JSONAPI = msgspec.Raw(b'{"version":"1.0"}')


class ErrorSource(msgspec.Struct, omit_defaults=True):
    """The source of an error: a pointer into the request document, a query parameter or a request header."""

    pointer: str | None = None
    parameter: str | None = None
    header: str | None = None


class ErrorObject(msgspec.Struct, omit_defaults=True):
    """One error. status: the HTTP status as text. status_code: the same as a number, only if custom code raised a bad
    request."""

    id: str
    status: str
    code: str
    title: str
    detail: str
    source: ErrorSource | None = None
    status_code: int | None = None
    meta: Mapping[str, str] | None = None


class ErrorDocument(msgspec.Struct):
    """A document with errors."""

    errors: list[ErrorObject]
    jsonapi: msgspec.Raw = JSONAPI


class MetaDocument(msgspec.Struct):
    """A document with `meta` and without `data`, such as the answer to a DELETE."""

    meta: dict[str, Any]
    jsonapi: msgspec.Raw = JSONAPI


class LinksDocument(msgspec.Struct):
    """The document of the root: links to every collection. A document must have `data`, `errors` or `meta`, so it has
    an empty `meta`."""

    links: dict[str, str]
    meta: dict[str, Any]
    jsonapi: msgspec.Raw = JSONAPI


class Meta(msgspec.Struct, omit_defaults=True):
    """The `meta` of a document. message: what a write has done. partial: whether the document shows linkage of which a
    filter has chosen a part. count: the number of resources in this page. total: the number of all that match. groups:
    the groups of a list. page: how a QUERY goes on, if the link to the next page is longer than a URL may be. cost: of
    the read."""

    message: str | None = None
    partial: bool = False
    count: int | None = None
    total: int | None = None
    totalPages: int | None = None
    totalEstimated: bool = False
    totalCapped: bool = False
    groups: msgspec.Raw | None = None
    page: dict[str, str] | None = None
    cost: int | None = None
