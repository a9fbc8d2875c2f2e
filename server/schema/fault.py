"""Defines what comparing the declarations with the database finds, and its text."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from querybuild.declarations.terms import quote_ident
from querybuild.errors import quoted

FEW = 5
"""Up to so many missing privileges are listed one by one."""
_ORDER = ("SELECT", "INSERT", "UPDATE", "DELETE", "USAGE")


class Grant(msgspec.Struct, frozen=True):
    """A privilege that a role lacks. on: quoted names of what it is for. kind: `SCHEMA ` or `SEQUENCE `, or nothing for
    a table."""

    privilege: str
    on: str
    role: str
    kind: str = ""

    def __str__(self) -> str:
        return f"GRANT {self.privilege} ON {self.kind}{self.on} TO {quote_ident(self.role)}"


class Denied(str):
    """The reason of a fault that is a missing privilege."""

    grant: Grant

    def __new__(cls, text: str, grant: Grant) -> Denied:
        """Return the text, with the privilege."""
        made = super().__new__(cls, text)
        made.grant = grant
        return made


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
        return "".join([_label(*member) for member in members]) + self.reason

    @property
    def of_resource(self) -> Fault:
        """The same as a fault of the whole resource."""
        return msgspec.structs.replace(self, reason=self.text_within, attribute="", relationship="")

    @property
    def field(self) -> str:
        """The name of its attribute or relationship."""
        return self.attribute or self.relationship


def _label(kind: str, name: str) -> str:
    return f"{kind} {quoted(name)}: " if name else ""


def shown(faults: Iterable[Fault]) -> tuple[list[str], list[str]]:
    """Return the texts of faults, and statements below them. Many missing privileges are one text, and few statements
    that grant them."""
    known = list(faults)
    grants = list(dict.fromkeys(fault.reason.grant for fault in known if isinstance(fault.reason, Denied)))
    if len(grants) <= FEW:
        return list(map(str, known)), []
    texts = [str(fault) for fault in known if not isinstance(fault.reason, Denied)]
    roles = ", ".join(dict.fromkeys(quoted(grant.role) for grant in grants))
    advice = "grant those that it needs, and take the other methods out of the declarations"
    return [*texts, f"the role {roles} lacks {len(grants)} privileges: {advice}"], _statements(grants)


def _statements(grants: Iterable[Grant]) -> list[str]:
    """Return one statement for all objects that need the same privileges."""
    privileges: dict[tuple[str, str, str], list[str]] = {}
    for grant in grants:
        privileges.setdefault((grant.role, grant.kind, grant.on), []).append(grant.privilege)
    objects: dict[Grant, list[str]] = {}
    for (role, kind, on), own in privileges.items():
        own.sort(key=lambda text: (_ORDER.index(text.split(" ")[0]), text))
        objects.setdefault(Grant(", ".join(own), "", role, kind), []).append(on)
    return [f"{msgspec.structs.replace(grant, on=', '.join(names))};" for grant, names in objects.items()]
