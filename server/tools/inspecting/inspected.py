"""Defines what was made of a database: declarations, and what to say about them.

It must not know: files, the database.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from querybuild.declarations.function import Function
from querybuild.declarations.resource import Attribute, Relationship, Resource
from server.tools.inspecting.catalog.model import InspectedTable

Notes = tuple[str, ...]
"""Comments, one a sentence or two, without `#` and line breaks."""


class InspectedField(msgspec.Struct, frozen=True):
    """A field of a resource, and the comments above it."""

    declaration: Attribute | Relationship
    notes: Notes = ()


class Inspected(msgspec.Struct, frozen=True):
    """The declaration of a table. notes: the comments above it. unstated: comments about fields that it does not
    have."""

    table: InspectedTable
    resource: Resource
    fields: tuple[InspectedField, ...]
    notes: Notes = ()
    unstated: Notes = ()


class InspectedFunction(msgspec.Struct, frozen=True):
    """The declaration of a function. full_name: with the types of its arguments. notes: the comments above it.
    argument_notes: those above its arguments, by their names."""

    full_name: str
    function: Function
    notes: Notes = ()
    argument_notes: Mapping[str, Notes] = {}


class NotServed(msgspec.Struct, frozen=True):
    """A table without a resource, or a function without a route. reason: why, and what would help. advice: an example
    for this one."""

    full_name: str
    reason: str
    advice: str = ""

    @property
    def text(self) -> str:
        """The reason with the advice."""
        return f"{self.reason}, in {self.advice}" if self.advice else self.reason


class Inspection(msgspec.Struct, frozen=True):
    """All that was made of a database. remarks: what the user should know besides: names that were changed, problems of
    the tables. links: how many tables are only links between others. left_out: the kinds of the tables and functions
    that were not inspected. functions, not_called: those with a route, and those without."""

    inspected: tuple[Inspected, ...]
    not_served: tuple[NotServed, ...]
    remarks: Notes
    links: int
    left_out: tuple[str, ...]
    functions: tuple[InspectedFunction, ...] = ()
    not_called: tuple[NotServed, ...] = ()

    @property
    def resources(self) -> tuple[Resource, ...]:
        """The declarations of tables."""
        return tuple([table.resource for table in self.inspected])

    @property
    def declarations(self) -> tuple[Resource | Function, ...]:
        """All declarations."""
        return (*self.resources, *[function.function for function in self.functions])
