"""Compound documents: included resources once per (type, id), in first-seen order, with full linkage. What
comes in: a node and the rows of each node below it. What goes out: what is to be shown, resource by resource.
Nothing here writes bytes but linkage.

Source: JSON:API 1.0 "Compound Documents".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from querybuild.plan import Branch, Node
from querybuild.resource import Resource
from querybuild.rows import Row, is_own_key, key_position
from querybuild.types import TEXT


class Shown(msgspec.Struct, gc=False):
    """A resource object to be: its row, and the linkage of each of its relationships that carry data."""

    node: Node
    row: Row
    linked: tuple[str, ...]
    linkage: list[bytes]


Links = dict[str, bytes]


def show(root: Node, rows: Sequence[Sequence[Row]]) -> tuple[list[Shown], list[Shown]]:
    """The primary resources in their order, and the included ones. rows: of each node, in pre-order."""
    if not root.branches:
        return [Shown(root, row, (), []) for row in rows[0]], []
    walk = _Walk()
    walk.node(root, rows[0], iter(rows[1:]))
    primary = [walk.take(root.resource, row[0]) for row in rows[0]]
    return primary, list(walk.rest())


class _Walk:
    """One document's resources so far. A resource that is met in two places is one object, with the linkage of both."""

    def __init__(self) -> None:
        self._entries: dict[tuple[Resource, Any], tuple[Node, Row, Links]] = {}

    def node(self, node: Node, rows: Sequence[Row], below: Iterator[Sequence[Row]]) -> None:
        """Takes in the rows of a node, then those of its branches; `below` yields the rows of the nodes below
        in pre-order."""
        links: list[Links] = []
        resource = node.resource
        for row in rows:
            entry = self._entries.get((resource, row[0]))
            if entry is None:
                entry = self._entries[resource, row[0]] = (node, row, {})
            links.append(entry[2])
        for branch in node.branches:
            children = next(below)
            ordered = _link(node, branch, rows, children, links)
            if branch.is_included:
                self.node(branch.node, ordered, below)

    def take(self, resource: Resource, id_value: Any) -> Shown:
        return _shown(*self._entries.pop((resource, id_value)))

    def rest(self) -> Iterator[Shown]:
        for node, row, links in self._entries.values():
            yield _shown(node, row, links)


def _shown(node: Node, row: Row, links: Links) -> Shown:
    return Shown(node, row, tuple(links), list(links.values()))


def _link(node: Node, branch: Branch, rows: Sequence[Row], children: Sequence[Row], links: list[Links]) -> list[Row]:
    """Writes the linkage of one relationship of all rows, and gives the children in the order in which the
    rows name them, each once."""
    position = key_position(node, branch)
    name = branch.relationship.name
    identifier = identifiers(branch.node.resource)
    if is_own_key(branch):
        by_id = {child[0]: child for child in children}
        for row, link in zip(rows, links, strict=True):
            link[name] = b"null" if row[position] is None else identifier(row[position])
        found = [by_id.get(row[position]) for row in rows]
        return list({child[0]: child for child in found if child is not None}.values())
    groups: dict[Any, list[Row]] = {}
    parent = branch.node.position_of_parent
    for child in children:
        groups.setdefault(child[parent], []).append(child)
    ordered: dict[Any, Row] = {}
    is_to_many = branch.relationship.is_to_many
    for row, link in zip(rows, links, strict=True):
        group = groups.get(row[0], ())
        data = b",".join([identifier(child[0]) for child in group])
        link[name] = b"[" + data + b"]" if is_to_many else data or b"null"
        for child in group:
            ordered.setdefault(child[0], child)
    return list(ordered.values())


def identifiers(resource: Resource) -> Any:
    """Writes a resource identifier object: `{"type":"user","id":"7"}`."""
    template = f'{{"type":{json.dumps(resource.type)},"id":"'.encode()
    if resource.id.type is TEXT:
        return lambda value: template + json.dumps(value)[1:-1].encode() + b'"}'
    return lambda value: template + str(value).encode() + b'"}'
