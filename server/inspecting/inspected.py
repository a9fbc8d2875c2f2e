"""Defines what was made of a database: declarations, and what to say about them.

It must not know: files, the database.
"""

from __future__ import annotations

import msgspec

from querybuild.declarations.resource import Attribute, Relationship, Resource
from server.inspecting.catalog.model import Table

Notes = tuple[str, ...]
"""Comments, one a sentence or two, without `#` and line breaks."""


class Field(msgspec.Struct, frozen=True):
    """A field of a resource, and the comments above it."""

    declaration: Attribute | Relationship
    notes: Notes = ()


class Inspected(msgspec.Struct, frozen=True):
    """The declaration of a table. notes: the comments above it. unstated: comments about fields that it does not
    have."""

    table: Table
    resource: Resource
    fields: tuple[Field, ...]
    notes: Notes = ()
    unstated: Notes = ()


class NotServed(msgspec.Struct, frozen=True):
    """A table without a resource. reason: why, and what would help."""

    full_name: str
    reason: str


class Inspection(msgspec.Struct, frozen=True):
    """All that was made of a database. remarks: what the user should know besides: names that were changed, problems of
    the tables. links: how many tables are only links between others. left_out: the kinds of those that were not
    inspected."""

    inspected: tuple[Inspected, ...]
    not_served: tuple[NotServed, ...]
    remarks: Notes
    links: int
    left_out: tuple[str, ...]

    @property
    def resources(self) -> tuple[Resource, ...]:
        """The declarations."""
        return tuple([one.resource for one in self.inspected])
