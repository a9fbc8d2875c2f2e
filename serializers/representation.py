"""Defines what writes the documents of reads in one representation, such as JSON:API.

An encoder sees resources with their rows, a few at a time. `encode.py` and `streams.py` arrange the rows, and join what
the encoder returns:

    head, resources, ..., between, included resources, ..., tail
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from querybuild.planning.plan import ReadPlan
from querybuild.planning.rows import Row
from serializers.compound import Level
from serializers.objects import Meta


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


class Style(msgspec.Struct, frozen=True):
    """How a server writes its documents. base_url: what links begin with. is_csv_safe: whether texts of CSV are made
    harmless that a program for spreadsheets would take for formulas."""

    base_url: str
    is_csv_safe: bool = True


class Representation(msgspec.Struct, frozen=True, eq=False):
    """A representation of the documents of reads. make: makes the encoder of a plan."""

    make: Callable[[ReadPlan, Style], Encoder]
