"""Defines what writes the documents of reads in one representation, such as JSON:API.

An encoder sees resources with their rows, a few at a time. `encode.py` and `streams.py` arrange the rows, and join what
the encoder returns:

    head, resources, ..., between, included resources, ..., tail

The document of one resource may also be a form: a text with gaps, which PostgreSQL fills with its function `format`.
A gap has the number of the column that fills it. Apart from gaps, a per cent sign is written twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from querybuild.planning.plan import ReadPlan
from querybuild.planning.rows import Row
from serializers.compound import Level
from serializers.objects import Meta

ID_OF_FORM = "\ue000"
"""Stands for the id in the URLs of a form. They have no other characters than those of ASCII."""


class DocumentForm(msgspec.Struct, frozen=True):
    """The form of the document of one resource. heads: for each key of its row, in their order, what comes before the
    id in the identifier of the related resource; empty if the document does not show it."""

    text: str
    heads: tuple[str, ...] = ()


def gap(position: int) -> str:
    """Return the gap for a column. position: in the row, from 0 for the id.

    >>> gap(0)
    '%1$s'
    """
    return f"%{position + 1}$s"


def as_form(text: str) -> str:
    """Return a text without gaps as a part of a form.

    >>> as_form("/50%25/")
    '/50%%25/'
    """
    return text.replace("%", "%%")


def with_gaps(text: str) -> str:
    """Return a text with the id of its URLs as a part of a form.

    >>> with_gaps(f"/50%25/{ID_OF_FORM}")
    '/50%%25/%1$s'
    """
    return as_form(text).replace(ID_OF_FORM, gap(0))


class Encoder(Protocol):
    """Writes the documents of one plan.

    head: what comes before the first resource.
    between: what comes between the primary resources and the included ones.
    comma: what comes between two resources.
    nothing: what stands for a resource that does not exist.
    shows_included: whether it writes included resources.
    """

    head: bytes
    between: bytes
    comma: bytes
    nothing: bytes
    shows_included: bool

    def primary(self, level: Level) -> list[bytes]:
        """Return the primary resources of these rows, one text for each row."""

    def included(self, level: Level) -> list[bytes]:
        """Return the included resources of these rows."""

    def tail(self, links: dict[str, str], meta: Meta | None) -> bytes:
        """Return what comes after the last resource."""

    def one(self, row: Row, links: dict[str, str], meta: Meta | None) -> bytes | None:
        """Return the whole document of one resource, if its row is all that the document shows. Otherwise None."""

    def form(self, links: dict[str, str], meta: Meta | None) -> DocumentForm | None:
        """Return the form of the document that `one` writes, or None if only Python can fill it."""


class Style(msgspec.Struct, frozen=True):
    """How a server writes its documents. base_url: what links begin with. is_csv_safe: whether texts of CSV are made
    harmless that a program for spreadsheets would take for formulas."""

    base_url: str
    is_csv_safe: bool = True


class Representation(msgspec.Struct, frozen=True, eq=False):
    """A representation of the documents of reads. make: makes the encoder of a plan."""

    make: Callable[[ReadPlan, Style], Encoder]
