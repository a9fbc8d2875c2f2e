"""Encodes rows as documents. What comes in: a plan, once; then the rows, links and meta of each response. What goes
out: bytes. Resource objects are written in `resource_objects.py`.

It must not know: SQL, HTTP.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import chain, islice
from typing import Any

import msgspec

from querybuild.declarations.resource import Resource
from querybuild.planning.plan import Node, ReadPlan
from querybuild.planning.rows import Row, key_position
from serializers.compound import Level, has_repeated_types, identifier_encoder, levels, merge, single_level
from serializers.errors import answer_too_large
from serializers.objects import JSONAPI, Meta
from serializers.resource_objects import ResourceEncoder
from serializers.steps import (
    ALL,
    ALONE,
    HEAVY_BYTES,
    ONE_STEP,
    Pace,
    Steps,
    needs_steps,
    piece_slices,
    row_slices,
    run_steps,
    slices,
)

_ENCODER = msgspec.json.Encoder()

Document = bytes | Steps[list[bytes]]
"""A document, or for a long one the steps that produce its pieces."""

HEAD = b'{"jsonapi":' + bytes(JSONAPI) + b',"data":'


def encode_identifier_document(resource: Resource, row_id: Any) -> bytes:
    """Return the document of a new resource that may not be read: `{"jsonapi":...,"data":{"type":...,"id":...}}`."""
    return HEAD + identifier_encoder(resource)(row_id) + b"}"


def document_tail(links: dict[str, str], meta: Meta | None) -> bytes:
    """Return the text of a document after its resources: links, meta and the closing brace."""
    parts = []
    if links:
        parts += [b',"links":', _ENCODER.encode(links)]
    if meta is not None:
        parts += [b',"meta":', _ENCODER.encode(meta)]
    return b"".join((*parts, b"}"))


class _ByteBudget:
    """Counts how many bytes an answer may still have."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = self._left = max_bytes

    def take(self, objects: Sequence[bytes]) -> None:
        """Raises AnswerTooLarge."""
        self._left -= sum(map(len, objects))
        if self._left < 0:
            raise answer_too_large(self._max_bytes)


_Key = tuple[int, Callable[[Any], bytes], str]
"""The position of the key of a relationship in a row, the function that writes its identifier, and its name."""


def _keys_of_one(plan: ReadPlan) -> tuple[_Key, ...] | None:
    """Return the keys of the document of one resource, or None for other documents, and if it may show other rows."""
    node = plan.node
    if plan.is_collection or plan.is_linkage or plan.has_included:
        return None
    if any(branch.is_included or not branch.relationship.is_own_key for branch in node.branches):
        return None
    return tuple(
        [
            (key_position(node, one), identifier_encoder(one.node.resource), one.relationship.name)
            for one in node.branches
        ]
    )


class DocumentEncoder:
    """Encodes the documents of one plan."""

    def __init__(self, plan: ReadPlan, base_url: str) -> None:
        self._plan = plan
        self._base_url = base_url
        self._is_merged = has_repeated_types(plan.node)
        self._encoders: dict[tuple[Resource, tuple[str, ...]], ResourceEncoder] = {}
        self._keys = _keys_of_one(plan)

    def document(
        self,
        rows: Sequence[Sequence[Row]],
        links: dict[str, str],
        meta: Meta | None = None,
        received_bytes: int = 0,
        max_bytes: int = sys.maxsize,
        pace: Pace = ALONE,
    ) -> Document:
        """Return the document, or for a long one its steps. rows: the rows of each node in pre-order. received_bytes:
        how much PostgreSQL sent for them. max_bytes: the limit of the document. pace: of the steps.

        Raises AnswerTooLarge, and so do the steps.
        """
        if self._keys is not None and rows[0] and received_bytes <= HEAVY_BYTES:
            document = self._encode_one(rows[0][0], self._keys, links, meta)
        elif needs_steps(rows, received_bytes, pace):
            return self._in_steps(rows, links, meta, received_bytes, max_bytes, pace)
        else:
            document = self.encode(rows, links, meta)
        if len(document) > max_bytes:
            raise answer_too_large(max_bytes)
        return document

    def encode(self, rows: Sequence[Sequence[Row]], links: dict[str, str], meta: Meta | None = None) -> bytes:
        """Return the whole document, encoded in one step."""
        node = self._plan.node
        found = run_steps(levels(node, rows, ONE_STEP)) if node.branches else single_level(node, rows[0])
        if self._is_merged:
            primary, included = run_steps(self._merged(found, 0, _ByteBudget(sys.maxsize), ONE_STEP))
        else:
            primary, *others = [
                [b",".join(self._encoder(level.node, level.linked).encode(level.rows, level.linkage, level.ids))]
                if level.rows
                else []
                for level in found
            ]
            included = list(chain.from_iterable(others))
        return b"".join(self._parts(rows[0], primary, included, links, meta))

    def _encode_one(self, row: Row, keys: Sequence[_Key], links: dict[str, str], meta: Meta | None) -> bytes:
        """Return the document of one resource whose linkage is in its row."""
        node = self._plan.node
        linkage = [b"null" if row[index] is None else identifier(row[index]) for index, identifier, _ in keys]
        encoder = self._encoder(node, tuple([name for _, _, name in keys]))
        return HEAD + encoder.encode_one(row, linkage) + document_tail(links, meta)

    def _in_steps(
        self,
        rows: Sequence[Sequence[Row]],
        links: dict[str, str],
        meta: Meta | None,
        received_bytes: int,
        max_bytes: int,
        pace: Pace,
    ) -> Steps[list[bytes]]:
        found = yield from levels(self._plan.node, rows, pace.step_rows)
        budget = _ByteBudget(max_bytes)
        if self._is_merged:
            primary, included = yield from self._merged(found, received_bytes, budget, pace.step_rows)
        else:
            primary, included = yield from self._unmerged(found, received_bytes, budget, pace.step_rows)
        parts = self._parts(rows[0], primary, included, links, meta)
        if sum(map(len, parts)) > max_bytes:
            raise answer_too_large(max_bytes)
        return (yield from _joined(parts, b""))

    def _parts(
        self,
        rows: Sequence[Row],
        primary: Sequence[bytes],
        included: Sequence[bytes],
        links: dict[str, str],
        meta: Meta | None,
    ) -> list[bytes]:
        """Return the parts to join to the document. rows: the primary rows. primary, included: their objects; each
        item may be several objects joined."""
        plan = self._plan
        if plan.is_linkage:
            included = [*primary, *included] if plan.includes_primary else included
            identifier = identifier_encoder(plan.node.resource)
            chunks = slices(rows, ALONE.step_rows)
            primary = [b",".join([identifier(row[0]) for row in chunk]) for chunk in chunks if chunk]
        parts = [HEAD, b"[", *_with_commas(primary), b"]"] if plan.is_collection else [HEAD, *(primary or [b"null"])]
        if plan.has_included:
            parts += [b',"included":[', *_with_commas(included), b"]"]
        parts.append(document_tail(links, meta))
        return parts

    def _unmerged(
        self, found: list[Level], received_bytes: int, budget: _ByteBudget, step_rows: int
    ) -> Steps[tuple[list[bytes], list[bytes]]]:
        """The primary resource objects and the included ones. Each item is several objects joined."""
        joined = []
        for level in found:
            encoder = self._encoder(level.node, level.linked)
            own = []
            for part in row_slices(level.rows, received_bytes, step_rows):
                ids = None if level.ids is None else level.ids[part]
                encoded = encoder.encode(level.rows[part], [column[part] for column in level.linkage], ids)
                budget.take(encoded)
                own.append(b",".join(encoded))
                yield
            joined.append(own)
        return joined[0], list(chain.from_iterable(joined[1:]))

    def _merged(
        self, found: list[Level], received_bytes: int, budget: _ByteBudget, step_rows: int
    ) -> Steps[tuple[list[bytes], list[bytes]]]:
        """The same if levels must be merged. Objects that show the same fields are encoded together."""
        resources = yield from merge(found, step_rows)
        by_encoder: dict[ResourceEncoder, list[int]] = {}
        numbered = enumerate(resources)
        for chunk in slices(resources, step_rows):
            for index, resource in islice(numbered, len(chunk)):
                by_encoder.setdefault(self._encoder(resource.node, tuple(resource.links)), []).append(index)
            yield
        objects = [b""] * len(resources)
        for encoder, indexes in by_encoder.items():
            rows = [resources[index].row for index in indexes]
            for part in row_slices(rows, received_bytes, step_rows):
                links = [resources[index].links.values() for index in indexes[part]]
                linkage = [list(column) for column in zip(*links, strict=True)]
                encoded = encoder.encode(rows[part], linkage)
                if part is not ALL:
                    budget.take(encoded)
                for index, text in zip(indexes[part], encoded, strict=True):
                    objects[index] = text
                yield
        count = len(found[0].rows)
        primary = yield from _joined(objects[:count])
        included = yield from _joined(objects[count:])
        return primary, included

    def _encoder(self, node: Node, linked: tuple[str, ...]) -> ResourceEncoder:
        encoder = self._encoders.get((node.resource, linked))
        if encoder is None:
            has_link = "detail" in node.resource.methods
            encoder = ResourceEncoder(node, linked, self._base_url, has_link=has_link)
            self._encoders[node.resource, linked] = encoder
        return encoder


def _with_commas(texts: Sequence[bytes]) -> Sequence[bytes]:
    """The texts with commas between them."""
    return texts if len(texts) < 2 else [part for text in texts for part in (b",", text)][1:]


def _joined(objects: Sequence[bytes], between: bytes = b",") -> Steps[list[bytes]]:
    """Join the objects to pieces of limited size."""
    found = []
    for part in piece_slices(objects):
        found.append(between.join(objects[part]))
        yield
    return found
