"""Makes whole documents of rows. What comes in: a plan, once; then the rows, links and meta of each response. What goes
out: bytes. The resources are written by the encoder of a representation.

It must not know: a representation, SQL, HTTP.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import islice

from querybuild.declarations.resource import Resource
from querybuild.planning.plan import ReadPlan
from querybuild.planning.rows import Row
from serializers.compound import Level, has_repeated_types, levels, merge, single_level
from serializers.errors import answer_too_large
from serializers.objects import Meta
from serializers.representation import DocumentForm, Encoder
from serializers.steps import (
    ALL,
    ALONE,
    ONE_STEP,
    Pace,
    Steps,
    needs_steps,
    piece_slices,
    row_slices,
    run_steps,
    slices,
)

Document = bytes | Steps[list[bytes]]
"""A document, or for a long one the steps that produce its pieces."""

_Resources = tuple[list[bytes], list[bytes]]
"""The primary resources, and the included ones. Each item is some of them, joined."""


class _ByteBudget:
    """Counts how many bytes an answer may still have."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = self._left = max_bytes

    def take(self, objects: Sequence[bytes]) -> None:
        """Raises AnswerTooLarge."""
        self._left -= sum(map(len, objects))
        if self._left < 0:
            raise answer_too_large(self._max_bytes)


class DocumentEncoder:
    """Makes the documents of one plan in one representation."""

    def __init__(self, plan: ReadPlan, encoder: Encoder) -> None:
        self._plan = plan
        self._encoder = encoder
        self._is_collection = plan.is_collection
        self._is_merged = encoder.shows_included and has_repeated_types(plan.node)
        # Of the levels: the first one only has the primary rows, unless these are included too.
        self._first_included = 0 if plan.includes_primary else 1

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
        if needs_steps(rows, received_bytes, pace):
            return self._in_steps(rows, links, meta, received_bytes, max_bytes, pace)
        document = self.encode(rows, links, meta)
        if len(document) > max_bytes:
            raise answer_too_large(max_bytes)
        return document

    def encode(self, rows: Sequence[Sequence[Row]], links: dict[str, str], meta: Meta | None = None) -> bytes:
        """Return the whole document, encoded in one step."""
        document = None
        if not self._is_collection and rows[0]:
            document = self._encoder.one(rows[0][0], links, meta)
        if document is None:
            steps = self._resources(rows, 0, _ByteBudget(sys.maxsize), ONE_STEP)
            document = b"".join(self._parts(*run_steps(steps), links, meta))
        return document

    def form(self, links: dict[str, str], meta: Meta | None = None) -> DocumentForm | None:
        """Return the form of the document of one resource, or None if only Python can fill it."""
        return self._encoder.form(links, meta)

    def _in_steps(
        self,
        rows: Sequence[Sequence[Row]],
        links: dict[str, str],
        meta: Meta | None,
        received_bytes: int,
        max_bytes: int,
        pace: Pace,
    ) -> Steps[list[bytes]]:
        primary, included = yield from self._resources(rows, received_bytes, _ByteBudget(max_bytes), pace.step_rows)
        parts = self._parts(primary, included, links, meta)
        if sum(map(len, parts)) > max_bytes:
            raise answer_too_large(max_bytes)
        return (yield from _joined(parts, b""))

    def _parts(
        self, primary: list[bytes], included: list[bytes], links: dict[str, str], meta: Meta | None
    ) -> list[bytes]:
        """Return the parts to join to the document."""
        encoder = self._encoder
        if not (primary or self._is_collection):
            primary = [encoder.nothing]
        between = [*_with_commas(primary, encoder.comma), encoder.between, *_with_commas(included, encoder.comma)]
        return [encoder.head, *between, encoder.tail(links, meta)]

    def _resources(
        self, rows: Sequence[Sequence[Row]], received_bytes: int, budget: _ByteBudget, step_rows: int
    ) -> Steps[_Resources]:
        node = self._plan.node
        if not node.branches:
            return self._add_levels(single_level(node, rows[0]), received_bytes, budget, step_rows)
        return self._add_related(rows, received_bytes, budget, step_rows)

    def _add_related(
        self, rows: Sequence[Sequence[Row]], received_bytes: int, budget: _ByteBudget, step_rows: int
    ) -> Steps[_Resources]:
        arranged = yield from levels(self._plan.node, rows, step_rows)
        add = self._add_merged if self._is_merged else self._add_levels
        return (yield from add(arranged, received_bytes, budget, step_rows))

    def _add_levels(
        self, arranged: list[Level], received_bytes: int, budget: _ByteBudget, step_rows: int
    ) -> Steps[_Resources]:
        encoder = self._encoder
        primary: list[bytes] = []
        included: list[bytes] = []
        written = [(arranged[0], encoder.primary, primary)]
        if encoder.shows_included:
            written += [(level, encoder.included, included) for level in arranged[self._first_included :]]
        for level, write, texts in written:
            for part in row_slices(level.rows, received_bytes, step_rows):
                encoded = write(level if part is ALL else level.part(part))
                if step_rows:
                    budget.take(encoded)
                texts.append(encoder.comma.join(encoded))
                yield
        return primary, included

    def _add_merged(
        self, arranged: list[Level], received_bytes: int, budget: _ByteBudget, step_rows: int
    ) -> Steps[_Resources]:
        """Return the included resources if levels must be merged. Objects that show the same fields are encoded at
        once. Only primary resources show their distance."""
        resources = yield from merge(arranged, step_rows)
        measured = None if self._plan.rows.nearest is None else self._plan.node
        by_fields: dict[tuple[Resource, tuple[str, ...], bool], list[int]] = {}
        numbered = enumerate(resources)
        for chunk in slices(resources, step_rows):
            for index, resource in islice(numbered, len(chunk)):
                key = resource.node.resource, tuple(resource.links), resource.node is measured
                by_fields.setdefault(key, []).append(index)
            yield
        objects = [b""] * len(resources)
        for (_, linked, is_measured), indexes in by_fields.items():
            write = self._encoder.primary if is_measured else self._encoder.included
            links = [resources[index].links.values() for index in indexes]
            linkage = [list(column) for column in zip(*links, strict=True)]
            rows = [resources[index].row for index in indexes]
            level = Level(resources[indexes[0]].node, rows, None, linked, linkage)
            for part in row_slices(rows, received_bytes, step_rows):
                encoded = write(level if part is ALL else level.part(part))
                budget.take(encoded)
                for index, text in zip(indexes[part], encoded, strict=True):
                    objects[index] = text
                yield
        count, comma = len(arranged[0].rows), self._encoder.comma
        if self._plan.is_linkage:
            primary = [comma.join(self._encoder.primary(arranged[0]))] if count else []
            count *= self._first_included
        else:
            primary = yield from _joined(objects[:count], comma)
        included = yield from _joined(objects[count:], comma)
        return primary, included


def _with_commas(texts: Sequence[bytes], comma: bytes) -> Sequence[bytes]:
    """Return the texts with commas between them."""
    return texts if len(texts) < 2 else [part for text in texts for part in (comma, text)][1:]


def _joined(objects: Sequence[bytes], between: bytes) -> Steps[list[bytes]]:
    """Join the objects to pieces of limited size."""
    pieces = []
    for part in piece_slices(objects):
        pieces.append(between.join(objects[part]))
        yield
    return pieces
