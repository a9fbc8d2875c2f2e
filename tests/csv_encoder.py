"""A representation that the server does not have: lists as comma-separated values. It shows what a new one needs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

from querybuild.planning.plan import ReadPlan
from querybuild.planning.rows import Row, key_position
from serializers.compound import Level
from serializers.objects import Meta
from serializers.representation import Representation
from serializers.resource_objects import values_of
from server.http.negotiation import MediaType


class CsvEncoder:
    """Writes a line for each primary resource: its id, its attributes and the ids of its to-one relationships."""

    between, comma, nothing, shows_included = b"", b"", b"", False

    def __init__(self, plan: ReadPlan, _: str) -> None:
        node = plan.node
        self._values = values_of(node)
        own = {one.relationship.name: key_position(node, one) for one in node.branches if one.relationship.is_own_key}
        self._positions = tuple(own.values())
        self.head = _line(["id", *[one.name for one in node.attributes], *own])

    def primary(self, level: Level) -> list[bytes]:
        return [
            _line([row[0], *values, *self._keys(row)])
            for row, values in zip(level.rows, self._values(level.rows), strict=True)
        ]

    def included(self, level: Level) -> list[bytes]:
        raise AssertionError("included resources are not shown")

    def tail(self, links: dict[str, str], meta: Meta | None) -> bytes:
        return b""

    def one(self, row: Row, links: dict[str, str], meta: Meta | None) -> None:
        return None

    def _keys(self, row: Row) -> Iterable[Any]:
        return [row[position] for position in self._positions]


def _line(values: Sequence[Any]) -> bytes:
    line = io.StringIO()
    csv.writer(line).writerow(values)
    return line.getvalue().encode()


CSV = MediaType("text/csv", representation=Representation(CsvEncoder))
