"""Writes groups. What comes in: a plan, and the rows of its groups. What goes out: the JSON of `meta.groups`, or lines.

It must not know: SQL, HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from querybuild.planning.plan import ReadPlan
from querybuild.planning.rows import Row
from serializers.resource_objects import values_of

_ENCODER = msgspec.json.Encoder()


def encode_groups(plan: ReadPlan, rows: Sequence[Row]) -> msgspec.Raw:
    """Return an array of objects: the keys of each group in `by`, then its numbers."""
    return msgspec.Raw(_ENCODER.encode(_objects(plan, rows)))


def encode_group_lines(plan: ReadPlan, rows: Sequence[Row]) -> bytes:
    """Return the same objects, with a line for each."""
    return _ENCODER.encode_lines(_objects(plan, rows))


def _objects(plan: ReadPlan, rows: Sequence[Row]) -> list[dict[str, Any]]:
    grouping = plan.rows.grouping
    assert grouping is not None
    names, count = [attribute.name for attribute in plan.node.attributes], len(grouping.by)
    by, numbers = names[:count], names[count:]
    return [
        {"by": dict(zip(by, values[:count], strict=True)), **dict(zip(numbers, values[count:], strict=True))}
        for values in values_of(plan.node)(rows)
    ]
