"""Rows -> a document in pieces, as the rows come. What comes in: the nodes of its parts, once, the primary data first;
then rows of one part after the other. What goes out: bytes, which joined are a document. Nothing here knows SQL or
HTTP.

    head, batch, batch, ..., included, batch, ..., tail
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any

from querybuild.plan import Node, ReadPlan
from querybuild.rows import Row
from serializers.compound import Level, identifiers, levels
from serializers.encode import HEAD, ResourceEncoder, closing
from serializers.objects import Meta
from serializers.steps import at_once

Linked = Sequence[Container[Any] | None]
"""Of each branch of a node, the ids of the resources that show its linkage; None where all do."""

Batch = Callable[[Sequence[Sequence[Row]], Linked], bytes]
"""Given the rows of a node and of each of its branches, gives the objects with commas between them."""


class StreamEncoder:
    """parts: what writes the objects of each part. head: up to the first resource. between: from the last one of the
    primary data to the first one of `included`."""

    def __init__(self, plan: ReadPlan, nodes: Sequence[Node], base_url: str) -> None:
        primary, *included = nodes
        shown = _identifiers(primary) if plan.is_linkage else _objects(primary, base_url)
        self.parts: list[Batch] = [shown, *[_objects(node, base_url) for node in included]]
        self.head = HEAD + b"["
        self.between = b'],"included":[' if plan.has_included else b""

    def tail(self, links: dict[str, str], meta: Meta) -> bytes:
        return b"]" + closing(links, meta)


def _identifiers(node: Node) -> Batch:
    identifier = identifiers(node.resource)
    return lambda rows, linked: b",".join([identifier(row[0]) for row in rows[0]])


def _objects(node: Node, base_url: str) -> Batch:
    encoders: dict[tuple[str, ...], ResourceEncoder] = {}

    def encoder_of(linked: tuple[str, ...]) -> ResourceEncoder:
        if linked not in encoders:
            encoders[linked] = ResourceEncoder(node, linked, base_url, has_link="detail" in node.resource.methods)
        return encoders[linked]

    def objects(rows: Sequence[Sequence[Row]], linked: Linked) -> bytes:
        [level] = at_once(levels(node, rows, in_steps=False))
        if all(ids is None for ids in linked):
            return b",".join(encoder_of(level.linked).encode(level.rows, level.linkage, level.ids))
        return b",".join(_each_linked(level, linked, encoder_of))

    return objects


def _each_linked(level: Level, linked: Linked, encoder_of: Callable[[tuple[str, ...]], ResourceEncoder]) -> list[bytes]:
    """Objects in their order, though those are encoded together that show the linkage of the same branches."""
    alike: dict[tuple[int, ...], list[int]] = {}
    for place, row in enumerate(level.rows):
        shown = tuple([index for index, ids in enumerate(linked) if ids is None or row[0] in ids])
        alike.setdefault(shown, []).append(place)
    objects = [b""] * len(level.rows)
    for shown, places in alike.items():
        names = tuple([level.linked[index] for index in shown])
        linkage = [[level.linkage[index][place] for place in places] for index in shown]
        encoded = encoder_of(names).encode([level.rows[place] for place in places], linkage)
        for place, one in zip(places, encoded, strict=True):
            objects[place] = one
    return objects
