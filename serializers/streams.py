"""Rows -> a document in pieces, as the rows come. What comes in: the nodes of its parts, once, the primary data first;
then rows of one part after the other. What goes out: bytes, which joined are a document. Nothing here knows SQL or
HTTP.

    head, batch, batch, ..., included, batch, ..., tail
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from querybuild.plan import Node, ReadPlan
from querybuild.rows import Row
from serializers.compound import identifiers, levels
from serializers.encode import HEAD, ResourceEncoder, closing
from serializers.objects import Meta

Batch = Callable[[Sequence[Sequence[Row]]], bytes]
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
    return lambda rows: b",".join([identifier(row[0]) for row in rows[0]])


def _objects(node: Node, base_url: str) -> Batch:
    linked = tuple([branch.relationship.name for branch in node.branches])
    encoder = ResourceEncoder(node, linked, base_url, has_link="detail" in node.resource.methods)

    def objects(rows: Sequence[Sequence[Row]]) -> bytes:
        [level] = levels(node, rows)
        return b",".join(encoder.encode(level.rows, level.linkage, level.ids))

    return objects
