"""Encodes the pieces of a streamed document while its rows arrive. What comes in: the nodes of its parts, once, the
primary data first; then the rows of one part after the other. What goes out: bytes that together are a document.

    head, batch, batch, ..., between, batch, ..., tail

It must not know: SQL, HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any

from querybuild.planning.plan import Node, ReadPlan
from querybuild.planning.rows import Row
from serializers.compound import Level, identifier_encoder, levels
from serializers.encode import HEAD, document_tail
from serializers.objects import Meta
from serializers.resource_objects import ResourceEncoder
from serializers.steps import ONE_STEP, run_steps

Linked = Sequence[Container[Any] | None]
"""For each branch of a node, the ids of the resources that show its linkage. None means all resources."""

BatchEncoder = Callable[[Sequence[Sequence[Row]], Linked], bytes]
"""Takes the rows of a node and of each of its branches. Returns the objects with commas between them."""


class StreamEncoder:
    """Encodes one streamed document. parts: the encoder of each part. head: the text before the first resource.
    between: the text between the primary data and the first included resource."""

    def __init__(self, plan: ReadPlan, nodes: Sequence[Node], base_url: str) -> None:
        primary, *included = nodes
        encode_primary = _identifiers(primary) if plan.is_linkage else _objects(primary, base_url)
        self.parts: list[BatchEncoder] = [encode_primary, *[_objects(node, base_url) for node in included]]
        self.head = HEAD + b"["
        self.between = b'],"included":[' if plan.has_included else b""

    def tail(self, links: dict[str, str], meta: Meta) -> bytes:
        """Return the text after the last resource."""
        return b"]" + document_tail(links, meta)


def _identifiers(node: Node) -> BatchEncoder:
    identifier = identifier_encoder(node.resource)
    return lambda rows, linked: b",".join([identifier(row[0]) for row in rows[0]])


def _objects(node: Node, base_url: str) -> BatchEncoder:
    encoders: dict[tuple[str, ...], ResourceEncoder] = {}

    def encoder_for(linked: tuple[str, ...]) -> ResourceEncoder:
        if linked not in encoders:
            encoders[linked] = ResourceEncoder(node, linked, base_url, has_link="detail" in node.resource.methods)
        return encoders[linked]

    def objects(rows: Sequence[Sequence[Row]], linked: Linked) -> bytes:
        [level] = run_steps(levels(node, rows, ONE_STEP))
        if all(ids is None for ids in linked):
            return b",".join(encoder_for(level.linked).encode(level.rows, level.linkage, level.ids))
        return b",".join(_encode_by_linkage(level, linked, encoder_for))

    return objects


def _encode_by_linkage(
    level: Level, linked: Linked, encoder_for: Callable[[tuple[str, ...]], ResourceEncoder]
) -> list[bytes]:
    """Return the objects in the order of the rows. Objects that show the linkage of the same branches are encoded
    together."""
    by_branches: dict[tuple[int, ...], list[int]] = {}
    for index, row in enumerate(level.rows):
        branches = tuple([branch for branch, ids in enumerate(linked) if ids is None or row[0] in ids])
        by_branches.setdefault(branches, []).append(index)
    objects = [b""] * len(level.rows)
    for branches, indexes in by_branches.items():
        names = tuple([level.linked[branch] for branch in branches])
        linkage = [[level.linkage[branch][index] for index in indexes] for branch in branches]
        encoded = encoder_for(names).encode([level.rows[index] for index in indexes], linkage)
        for index, text in zip(indexes, encoded, strict=True):
            objects[index] = text
    return objects
