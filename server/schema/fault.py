"""Defines what comparing the declarations with the database finds, and its text."""

from __future__ import annotations

import msgspec

from querybuild.errors import quoted


class Fault(msgspec.Struct, frozen=True):
    """A declaration that does not fit the database. reason: what is wrong, and what would help.

    The others name the declaration, and are empty if they do not apply: a resource with one of its fields, or a
    function with one of its arguments. A fault of a role names neither, and that of a rule may say in its reason where
    the rule is. path: that of the function, because several may have its name.
    """

    reason: str
    resource: str = ""
    attribute: str = ""
    relationship: str = ""
    function: str = ""
    argument: str = ""
    path: str = ""

    def __str__(self) -> str:
        return f"{_label('resource', self.resource)}{_label('function', self.function)}{self.text_within}"

    @property
    def text_within(self) -> str:
        """The text where it is known which resource or function it is about."""
        members = (("attribute", self.attribute), ("relationship", self.relationship), ("argument", self.argument))
        return "".join([_label(*one) for one in members]) + self.reason

    @property
    def field(self) -> str:
        """The name of its attribute or relationship."""
        return self.attribute or self.relationship


def _label(kind: str, name: str) -> str:
    return f"{kind} {quoted(name)}: " if name else ""
