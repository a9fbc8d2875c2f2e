"""Writes lists as comma-separated values: a head with the names of the fields, and a line for each resource.

It must not know: SQL, HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any

from querybuild.declarations.resource import Attribute
from querybuild.planning.plan import Branch, Node, ReadPlan
from querybuild.planning.rows import Row, key_position
from serializers.compound import Level, has_text_ids
from serializers.lines.texts import field, fields
from serializers.objects import Meta
from serializers.representation import Representation, Style
from serializers.resource_objects import values_of

MEDIA_TYPE = "text/csv"

_END = "\r\n"

_NEVER_FORMULAS = frozenset({"number", "date", "time", "interval", "bool", "uuid", "bytea"})
"""The families of types whose values are no texts, even if they begin like a formula."""

_Column = Callable[[Level, Sequence[Sequence[Any]]], Sequence[str]]
"""Returns the fields of a column. The second argument: the values of each attribute."""


class CsvEncoder:
    """Writes the lines of one plan. The columns are the id and those that the plan names: attributes, and to-one
    relationships with their ids."""

    between, comma, nothing, shows_included = b"", b"", b"", False

    def __init__(self, plan: ReadPlan, style: Style) -> None:
        node = plan.node
        self._values = values_of(node)
        attributes = {one.name: index for index, one in enumerate(node.attributes)}
        branches = {one.relationship.name: one for one in node.branches}
        self._columns = [_of_ids(itemgetter(0), is_safe=style.is_csv_safe and has_text_ids(node.resource))]
        names = ["id"]
        for name in plan.columns:
            if name in attributes:
                names.append(name)
                self._columns.append(_of_attribute(attributes[name], node.attributes[attributes[name]], style))
            else:
                names.append(f"{name}.id")
                self._columns.append(_of_to_one(node, branches[name], style))
        self.head = (",".join(map(field, names)) + _END).encode()

    def primary(self, level: Level) -> list[bytes]:
        """Return a line for each row."""
        values = list(zip(*self._values(level.rows), strict=True))
        columns = [write(level, values) for write in self._columns]
        # The last column ends the line.
        columns[-1] = list(map(str.__add__, columns[-1], repeat(_END)))
        return list(map(str.encode, map(",".join, zip(*columns, strict=True))))

    def included(self, level: Level) -> list[bytes]:
        """Not called: `shows_included` is false."""
        raise AssertionError(level)

    def tail(self, links: dict[str, str], meta: Meta | None) -> bytes:
        """Return nothing."""
        return b""

    def one(self, row: Row, links: dict[str, str], meta: Meta | None) -> bytes | None:
        """Return None: lists have lines."""
        return None


CSV = Representation(CsvEncoder, "rows")


def _of_attribute(index: int, attribute: Attribute, style: Style) -> _Column:
    is_safe = style.is_csv_safe and attribute.type.family not in _NEVER_FORMULAS
    return lambda _, values: fields(values[index], is_safe=is_safe) if values else ()


def _of_ids(id_of: Callable[[Row], Any], *, is_safe: bool) -> _Column:
    return lambda level, _: fields(list(map(id_of, level.rows)), is_safe=is_safe)


def _of_to_one(node: Node, branch: Branch, style: Style) -> _Column:
    """Return the ids of the related resources. If the row has no key, they are in the linkage."""
    is_safe = style.is_csv_safe and has_text_ids(branch.node.resource)
    if branch.relationship.is_own_key:
        return _of_ids(itemgetter(key_position(node, branch)), is_safe=is_safe)
    index = node.branches.index(branch)
    return lambda level, _: fields(list(map(_id_of, level.linkage[index])), is_safe=is_safe)


def _id_of(linkage: bytes) -> str | None:
    found = json.loads(linkage)
    return None if found is None else found["id"]
