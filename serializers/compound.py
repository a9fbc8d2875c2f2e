"""Compound documents: included resources once per (type, id), in first-seen order, with full linkage. What comes in: a
node and the rows of each node below it. What goes out: levels, the resources of one node each with their
linkage. Nothing here writes a resource object.

Source: JSON:API 1.0 "Compound Documents".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from querybuild.plan import Branch, Node
from querybuild.resource import Resource, link_of
from querybuild.rows import Row, key_position, nodes
from querybuild.types import TEXT

Linkage = list[bytes]
"""The data of one relationship, of each row of a level."""


class Level(msgspec.Struct, gc=False):
    """The resources of one node, each row once. linked: its relationships that carry data; linkage: of each of them."""

    node: Node
    rows: Sequence[Row]
    linked: tuple[str, ...]
    linkage: list[Linkage]


class Merged(msgspec.Struct, gc=False):
    """One resource that may have been met in several places, with the linkage of all of them."""

    node: Node
    row: Row
    links: dict[str, bytes]


def has_repeated_types(root: Node) -> bool:
    """Whether one resource may be met at two places, as a user is in `computers.owner`: then levels have to be
    merged."""
    resources = [node.resource for node, branch in nodes(root) if branch is None or branch.is_included]
    return len(resources) != len(set(resources))


def levels(root: Node, rows: Sequence[Sequence[Row]]) -> list[Level]:
    """The primary resources and then the included ones, in pre-order. rows: of each node, in pre-order."""
    found: list[Level] = []
    _add_level(root, rows[0], iter(rows[1:]), found)
    return found


def _add_level(node: Node, rows: Sequence[Row], below: Iterator[Sequence[Row]], found: list[Level]) -> None:
    level = Level(node, rows, tuple([branch.relationship.name for branch in node.branches]), [])
    found.append(level)
    for branch in node.branches:
        linkage, children = (_by_own_key if branch.relationship.is_own_key else _by_parent)(
            node, branch, rows, next(below)
        )
        level.linkage.append(linkage)
        if branch.is_included:
            _add_level(branch.node, children, below, found)


def _by_own_key(
    node: Node, branch: Branch, rows: Sequence[Row], children: Sequence[Row]
) -> tuple[Linkage, Sequence[Row]]:
    """Linkage, and the children in the order in which the rows name them."""
    identifier = identifiers(branch.node.resource)
    position = key_position(node, branch)
    keys = [row[position] for row in rows]
    by_id = {child[0]: child for child in children}
    ordered = [by_id[key] for key in dict.fromkeys(keys) if key in by_id]
    return [b"null" if key is None else identifier(key) for key in keys], ordered


def _by_parent(
    node: Node, branch: Branch, rows: Sequence[Row], children: Sequence[Row]
) -> tuple[Linkage, Sequence[Row]]:
    """The same, of children that carry their parent's id."""
    identifier = identifiers(branch.node.resource)
    groups: dict[Any, list[Row]] = {row[0]: [] for row in rows}
    position = branch.node.position_of_parent
    for child in children:
        groups[child[position]].append(child)
    data = [b",".join([identifier(child[0]) for child in groups[row[0]]]) for row in rows]
    if branch.relationship.is_to_many:
        linkage = [b"[" + one + b"]" for one in data]
    else:
        linkage = [one or b"null" for one in data]
    ordered = [child for row in rows for child in groups[row[0]]]
    if link_of(branch.relationship) is not None:
        ordered = list({child[0]: child for child in ordered}.values())
    return linkage, ordered


def merge(found: list[Level]) -> list[Merged]:
    """Each resource once, where it was first met: the primary resources come first, whatever leads back to them."""
    merged: dict[tuple[Resource, Any], Merged] = {}
    for level in found:
        resource = level.node.resource
        links = zip(*level.linkage, strict=True) if level.linkage else [()] * len(level.rows)
        for row, linkage in zip(level.rows, links, strict=True):
            entry = merged.setdefault((resource, row[0]), Merged(level.node, row, {}))
            entry.links.update(zip(level.linked, linkage, strict=True))
    return list(merged.values())


def identifiers(resource: Resource) -> Callable[[Any], bytes]:
    """Writes a resource identifier object: `{"type":"user","id":"7"}`."""
    template = f'{{"type":{json.dumps(resource.type)},"id":"'.encode()
    text = id_text(resource)
    return lambda value: template + text(value) + b'"}'


def id_text(resource: Resource) -> Callable[[Any], bytes]:
    """An id's text inside a JSON string."""
    if resource.id.type is TEXT:
        return lambda value: json.dumps(value)[1:-1].encode()
    return lambda value: str(value).encode()
