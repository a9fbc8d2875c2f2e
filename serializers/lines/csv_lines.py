"""Writes lists as comma-separated values: a head with the names of the fields, and a line for each resource or group.

It must not know: SQL, HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from querybuild.declarations.resource import Attribute
from querybuild.declarations.types import FLOAT, REAL, is_structure
from querybuild.planning.plan import Branch, ReadPlan
from querybuild.planning.rows import Row, key_position
from serializers.compound import Level, has_text_ids
from serializers.lines.texts import NEVER_FORMULAS, as_texts, encode_lines, without_formulas, without_infinities
from serializers.objects import Meta
from serializers.representation import DocumentForm, Representation, Style
from serializers.resource_objects import value_positions

MEDIA_TYPE = "text/csv"

_Convert = Callable[[Sequence[Any], Level], Sequence[Any]]
"""Returns the fields of a column. What comes in: its values, and the level that has them."""


class CsvEncoder:
    """Writes the lines of one plan. The columns are the id and those that the plan names: attributes, and to-one
    relationships with their ids. Groups have no id: the columns are what they are grouped by, and their numbers."""

    between, comma, nothing, shows_included = b"", b"", b"", False

    def __init__(self, plan: ReadPlan, style: Style) -> None:
        columns = list(_columns(plan))
        self._conversions = [(index, column.convert) for index, column in enumerate(columns) if column.convert]
        texts = [index for index, column in enumerate(columns) if column.is_text and style.is_csv_safe]
        if 0 in texts:
            # In the encoded lines, formulas are only seen behind a comma.
            self._conversions.append((0, lambda values, _: without_formulas(values)))
            texts.remove(0)
        self._texts = texts
        self._positions = [column.position for column in columns]
        self.head = ",".join([_head_field(column.name) for column in columns]).encode() + b"\r\n"

    def primary(self, level: Level) -> list[bytes]:
        """Return the lines of all rows as one text."""
        if not level.rows:
            return [b""]
        values: list[Sequence[Any]] = list(zip(*level.rows, strict=True))
        columns = [values[position] for position in self._positions]
        for index, convert in self._conversions:
            columns[index] = convert(columns[index], level)
        return [encode_lines(columns, self._texts)]

    def included(self, level: Level) -> list[bytes]:
        """Not called: `shows_included` is false."""
        raise AssertionError(level)

    def tail(self, links: dict[str, str], meta: Meta | None) -> bytes:
        """Return nothing."""
        return b""

    def one(self, row: Row, links: dict[str, str], meta: Meta | None) -> bytes | None:
        """Return None: lists have lines."""
        return None

    def form(self, links: dict[str, str], meta: Meta | None) -> DocumentForm | None:
        """Return None: lists have lines."""
        return None


CSV = Representation(CsvEncoder)


class _Column(msgspec.Struct, frozen=True):
    """A column. position: of its values in a row. convert: how they become fields, None if they are already. is_text:
    whether they may look like formulas."""

    name: str
    position: int
    convert: _Convert | None
    is_text: bool


def _columns(plan: ReadPlan) -> Iterator[_Column]:
    node = plan.node
    known, attributes = value_positions(node), {shown.name: shown for shown in node.attributes}
    branches = {linked.relationship.name: (index, linked) for index, linked in enumerate(node.branches)}
    if plan.data != "groups":
        yield _Column("id", 0, None, has_text_ids(node.resource))
    for name in attributes if plan.data == "groups" else plan.columns:
        if name in attributes:
            attribute = attributes[name]
            is_text = attribute.type.family not in NEVER_FORMULAS or attribute.compute is not None
            yield _Column(name, known[attribute], _conversion(attribute), is_text)
        else:
            which, branch = branches[name]
            is_text, ids = has_text_ids(branch.node.resource), _linkage_ids(which, branch)
            yield _Column(f"{name}.id", key_position(node, branch), ids, is_text)


def _head_field(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if set('",\r\n') & set(name) else name


def _conversion(attribute: Attribute) -> _Convert | None:
    """Return how the values of an attribute become fields, None if they are already."""
    shown, column_type = attribute.type.json.shown, attribute.type
    if is_structure(column_type) or column_type.family == "bytea" or attribute.compute is not None:
        if shown is None:
            return lambda values, _: as_texts(values)
        return lambda values, _: as_texts(list(map(shown, values)))
    if column_type in (FLOAT, REAL):
        return lambda values, _: without_infinities(values)
    return None if shown is None else lambda values, _: list(map(shown, values))


def _linkage_ids(which: int, branch: Branch) -> _Convert | None:
    """Return how the linkage of a to-one becomes ids, None if the row has them. which: the index of the branch."""
    if branch.relationship.is_own_key:
        return None
    id_of = _number_of if branch.node.resource.id_type.is_number else _text_of
    return lambda _, level: [
        None if identifier == b"null" else id_of(identifier) for identifier in level.linkage[which]
    ]


def _number_of(identifier: bytes) -> int:
    return int(identifier[identifier.rindex(b'"', 0, -2) + 1 : -2])


def _text_of(identifier: bytes) -> str:
    return str(json.loads(identifier)["id"])
