"""Makes the batches of a streamed document while its rows arrive. What comes in: the nodes of its parts, once, the
primary data first; then the rows of one part after the other. What goes out: bytes. The resources are written by the
encoder of a representation.

It must not know: a representation, SQL, HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any

from querybuild.planning.plan import Node
from querybuild.planning.rows import Row
from serializers.compound import Level, levels
from serializers.representation import Encoder
from serializers.steps import ONE_STEP, run_steps

Linked = Sequence[Container[Any] | None]
"""For each branch of a node, the ids of the resources that show its linkage. None means all resources."""

BatchEncoder = Callable[[Sequence[Sequence[Row]], Linked], bytes]
"""Takes the rows of a node and of each of its branches. Returns the objects with commas between them."""


class StreamEncoder:
    """Makes the batches of one streamed document. nodes: those of its parts. parts: the encoder of the batches of each
    part that is shown."""

    def __init__(self, encoder: Encoder, nodes: Sequence[Node]) -> None:
        primary, *included = nodes
        self.encoder = encoder
        self.parts = [_batches(primary, encoder.primary, encoder.comma)]
        if encoder.shows_included:
            self.parts += [_batches(node, encoder.included, encoder.comma) for node in included]


def _batches(node: Node, write: Callable[[Level], list[bytes]], comma: bytes) -> BatchEncoder:
    def batch(rows: Sequence[Sequence[Row]], linked: Linked) -> bytes:
        [level] = run_steps(levels(node, rows, ONE_STEP))
        return comma.join(write(level) if all(ids is None for ids in linked) else _by_linkage(level, linked, write))

    return batch


def _by_linkage(level: Level, linked: Linked, write: Callable[[Level], list[bytes]]) -> list[bytes]:
    """Return the resources in the order of the rows. Those that show the linkage of the same branches are written
    together."""
    by_branches: dict[tuple[int, ...], list[int]] = {}
    for index, row in enumerate(level.rows):
        branches = tuple([branch for branch, ids in enumerate(linked) if ids is None or row[0] in ids])
        by_branches.setdefault(branches, []).append(index)
    objects = [b""] * len(level.rows)
    for branches, indexes in by_branches.items():
        rows, names = [level.rows[index] for index in indexes], tuple([level.linked[branch] for branch in branches])
        linkage = [[level.linkage[branch][index] for index in indexes] for branch in branches]
        for index, text in zip(indexes, write(Level(level.node, rows, None, names, linkage)), strict=True):
            objects[index] = text
    return objects
