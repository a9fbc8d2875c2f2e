"""Defines what a request that writes is answered with, before it is sent."""

from __future__ import annotations

import msgspec

from serializers.encode import Document
from serializers.representation import DocumentForm


class Reply(msgspec.Struct, frozen=True):
    """An answer to a write. document: None for an answer without one. location: the URL of a new resource. media_type:
    if it is not the usual one. has_tag: whether the document shows one resource or linkage. version: that of what it
    shows. etag: the tag of the document, if it is known already."""

    status: int
    document: Document | None = None
    location: str = ""
    media_type: str = ""
    etag: str = ""
    has_tag: bool = False
    version: str | None = None


class ReplyForm(msgspec.Struct, frozen=True):
    """An answer to a write that PostgreSQL completes. document, location, etag: forms. The gap of the tag has the
    version; its hash is left out."""

    status: int
    document: DocumentForm
    location: str = ""
    etag: str = ""

    @property
    def values(self) -> tuple[str, ...]:
        """The values of the parameters of a statement that makes its own answer (`answered.py`)."""
        return self.document.text, self.location, self.etag, *self.document.heads
