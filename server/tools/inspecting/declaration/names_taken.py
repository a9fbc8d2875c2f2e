"""Gives each field of a resource a name that no other field has, and remembers which names had to be changed.

It must not know: columns, files.
"""

from __future__ import annotations

from collections.abc import Sequence

from querybuild.errors import nearest, quoted
from server.tools.inspecting.declaration.naming import RESERVED_FIELDS, first_free
from server.tools.inspecting.hints import TableHints


class Names:
    """The names of one resource's fields. remarks: a message for each name that is not the first choice. unhinted: the
    name without hints, for each name that hints give."""

    def __init__(self, full_name: str, hints: TableHints) -> None:
        self.full_name = full_name
        self.hints = hints
        self.taken: set[str] = set(hints.names.values())
        self.remarks: list[str] = []
        self.known: set[str] = set()
        self.used_hints: set[str] = set()
        self.unhinted: dict[str, str] = {}

    def take(self, what: str, candidates: Sequence[str], *, column: str = "", unhinted: Sequence[str] = ()) -> str:
        """Return the name that the hints give, for the column or for the name without hints; otherwise the first
        candidate that is free. what: the field in words, for a message. unhinted: the candidates without hints about
        other fields, if they differ."""
        name = first_free(candidates, self.taken)
        plain = first_free(unhinted or candidates, self.taken)
        self.known |= {column, name, plain} - {""}
        for known in (column, plain, name):
            if known and known in self.hints.names and known not in self.used_hints:
                self.used_hints.add(known)
                self.taken.add(name)
                self.unhinted[self.hints.names[known]] = plain
                return self.hints.names[known]
        if name != candidates[0]:
            wanted = candidates[0]
            is_reserved = wanted in RESERVED_FIELDS
            reason = f"{quoted(wanted)} is reserved" if is_reserved else f"another field is called {quoted(wanted)}"
            if not wanted:
                reason = "it has no letter and no digit"
            self.remarks.append(f"{self.full_name}: {what} is called {quoted(name)}: {reason}")
        self.taken.add(name)
        return name

    def unused_hints(self) -> list[str]:
        """Return a message for each hint that no field has used."""
        names = sorted(self.hints.names.keys() - self.used_hints)
        return [
            f"{self.full_name}: the hint about {quoted(name)} fits no column and no field.{nearest(name, self.known)}"
            for name in names
        ]
