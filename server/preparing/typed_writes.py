"""Decodes and plans a write in one step, if a document of the same form was planned before: its decoder checks the
types, and only the values are new. What comes in: a body. What goes out: the planned write; or None if there may be an
error or anything unusual. Then the handler decodes and plans it step by step.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import compress
from typing import Any, Literal

import msgspec

from querybuild.cache import BoundedCache
from querybuild.declarations.resource import Resource
from querybuild.errors import ApiError
from querybuild.planning.changes import PlannedWrite, plan_write
from querybuild.planning.context import Context, View
from querybuild.planning.write_plan_cache import TypedForm, plan_typed, write_form_of
from querybuild.planning.writes.json_types import JsonType, json_type
from querybuild.planning.writes.linkage import written_relationships
from querybuild.query import Change, Limits
from querybuild.shortcuts import Knows
from serializers import pointers
from serializers.decode import decode_resource_document
from serializers.typed_documents import MIN_DEPTH, Member, RelatedType, Typed, TypedDocument
from server.preparing.statements import ENTRY_BYTES

ASKED = Knows(Change, used=("kind", "type", "id"))
"""What the path knows of a change, besides its document."""

_MEMBER_BYTES = 2_000
"""The assumed size of the decoder of one attribute."""


class TypedCaches(msgspec.Struct, frozen=True, eq=False):
    """What was made for documents that are decoded in one step. The names are those of the metrics."""

    typed_documents: BoundedCache[tuple[TypedDocument, tuple[JsonType, ...]]]
    typed_forms: BoundedCache[TypedForm | Literal[False]]


class TypedWrites:
    """Plans the documents of one set of declarations."""

    def __init__(self, limits: Limits, make_cache: Callable[[], BoundedCache[Any]]) -> None:
        self.caches = TypedCaches(make_cache(), make_cache())
        self._limits = limits

    def plan(
        self, resource: Resource, asked: Change, body: bytes, context: Context, view: View
    ) -> tuple[Change, PlannedWrite, tuple[str, ...]] | None:
        """Return the change of a document without its values, its plan with them, and the relationships whose linkage
        its answer shows. asked: the change as the request asks for it besides its document."""
        if not ASKED.takes(asked):
            return None
        # Each value of a document has at least one byte.
        if self._limits.max_json_depth < MIN_DEPTH or len(body) > self._limits.max_json_values:
            return None
        key = (resource, context.access)
        document = self.caches.typed_documents.get(key)
        if document is None:
            document = self._document(resource, view)
            self.caches.typed_documents.put(key, document, _MEMBER_BYTES * (1 + len(document[1])))
        typed = document[0].decode(body)
        if typed is None or (asked.id is not None and typed.id != asked.id):
            return None
        form_key = (resource, asked.kind, context.access, typed.shape)
        form = self.caches.typed_forms.get(form_key)
        if form is None:
            form = self._learn(resource, asked, body, typed, document[1], context, view)
            if form is None:
                return None
            self.caches.typed_forms.put(form_key, form, ENTRY_BYTES)
        if form is False:
            return None
        planned = plan_typed(form, typed.id, typed.values, typed.linked, context.values)
        if planned is None:
            return None
        change = msgspec.structs.replace(asked, type=resource.type, id=typed.id, pointer=form.pointer)
        return change, planned, form.written

    def _document(self, resource: Resource, view: View) -> tuple[TypedDocument, tuple[JsonType, ...]]:
        types = tuple([json_type(attribute, view.checks_of(attribute)) for attribute in resource.attributes])
        members = [
            Member(attribute.name, own.type, own.is_open)
            for attribute, own in zip(resource.attributes, types, strict=True)
        ]
        related = [
            RelatedType(relationship.name, relationship.target, relationship.is_to_many)
            for relationship in resource.relationships
        ]
        return TypedDocument(resource.type, members, related, self._limits.max_json_depth), types

    def _learn(
        self,
        resource: Resource,
        asked: Change,
        body: bytes,
        typed: Typed,
        types: tuple[JsonType, ...],
        context: Context,
        view: View,
    ) -> TypedForm | Literal[False] | None:
        """Plan a document step by step. Returns its form, False if a document like it has none, None if there are
        errors."""
        errors: list[ApiError] = []
        change = decode_resource_document(body, asked, errors, self._limits)
        if change is None or errors:
            return None
        change = _in_order(change, resource)
        planned = plan_write(change, resource, view, context, pointers, errors)
        if errors:
            return None
        # Several links are written in the order of the document: they may be of the same rows.
        is_ordered = len(planned.plan.links) > 1
        form = None if is_ordered else write_form_of(change, planned, view, context.access)
        if form is None:
            return False
        sent = compress(types, typed.shape[1] or ())
        reads = tuple([(index, own.read) for index, own in enumerate(sent) if own.read is not None])
        written = written_relationships(change, resource, view.catalog)
        return TypedForm(form, reads, tuple(planned.places), change.pointer, written)


def _in_order(change: Change, resource: Resource) -> Change:
    """Return the change with its members in the order of the declarations."""
    sent, linked = change.attributes, change.relationships
    names = [attribute.name for attribute in resource.attributes]
    return msgspec.structs.replace(
        change,
        attributes=None if sent is None else {name: sent[name] for name in names if name in sent},
        relationships={
            relationship.name: linked[relationship.name]
            for relationship in resource.relationships
            if relationship.name in linked
        },
    )
