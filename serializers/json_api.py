"""Writes documents in the representation of JSON:API. Resource objects are written in `resource_objects.py`.

It must not know: SQL, HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import msgspec

from querybuild.declarations.resource import Resource
from querybuild.planning.plan import Node, ReadPlan
from querybuild.planning.rows import Row, key_position, nodes
from serializers.compound import Level, has_text_ids, identifier_encoder, identifier_head, is_shown_apart
from serializers.objects import JSONAPI, Meta
from serializers.representation import DocumentForm, Representation, Style, as_form, with_gaps
from serializers.resource_objects import ResourceEncoder

MEDIA_TYPE = "application/vnd.api+json"

HEAD = b'{"jsonapi":' + bytes(JSONAPI) + b',"data":'

_ENCODER = msgspec.json.Encoder()

_Key = tuple[int, Callable[[Any], bytes], Resource, str]
"""The position of the key of a relationship in a row, the function that writes its identifier, the related resource,
and the name of the relationship."""


def encode_identifier_document(resource: Resource, row_id: Any) -> bytes:
    """Return the document of a new resource that may not be read: `{"jsonapi":...,"data":{"type":...,"id":...}}`."""
    return HEAD + identifier_encoder(resource)(row_id) + b"}"


class JsonApiEncoder:
    """Writes the documents of one plan."""

    comma, nothing, shows_included = b",", b"null", True

    def __init__(self, plan: ReadPlan, style: Style) -> None:
        self.head = HEAD + (b"[" if plan.is_collection else b"")
        self.between = (b"]" if plan.is_collection else b"") + (b',"included":[' if plan.has_included else b"")
        self._after_last = b"]" if plan.has_included else b""
        self._node, self._base_url = plan.node, style.base_url
        self._has_distance = plan.rows.nearest is not None
        self._encoders: dict[tuple[Resource, tuple[str, ...], bool], ResourceEncoder] = {}
        self._identifier = identifier_encoder(plan.node.resource) if plan.is_linkage else None
        self._keys = _keys_of_one(plan)
        self._chosen = {
            (node.resource, branch.relationship.name)
            for node, _ in nodes(plan.node)
            for branch in node.branches
            if is_shown_apart(branch)
        }

    def primary(self, level: Level) -> list[bytes]:
        """Return the resource objects, or in a document of linkage the resource identifier objects."""
        if self._identifier is None:
            encoder = self._encoder(level.node, level.linked, has_distance=self._has_distance)
            return encoder.encode(level.rows, level.linkage, level.ids)
        identifier = self._identifier
        return [identifier(row[0]) for row in level.rows]

    def included(self, level: Level) -> list[bytes]:
        """Return the resource objects."""
        return self._encoder(level.node, level.linked).encode(level.rows, level.linkage, level.ids)

    def tail(self, links: dict[str, str], meta: Meta | None) -> bytes:
        """Return the end of the last array, `links`, `meta` and the closing brace."""
        parts = [self._after_last]
        if links:
            parts += [b',"links":', _ENCODER.encode(links)]
        if meta is not None:
            parts += [b',"meta":', _ENCODER.encode(meta)]
        return b"".join((*parts, b"}"))

    def one(self, row: Row, links: dict[str, str], meta: Meta | None) -> bytes | None:
        """Return the document of one resource whose linkage is in its row."""
        if self._keys is None:
            return None
        linkage = [b"null" if row[index] is None else identifier(row[index]) for index, identifier, *_ in self._keys]
        encoder = self._encoder(self._node, tuple([name for *_, name in self._keys]))
        return self.head + encoder.encode_one(row, linkage) + self.tail(links, meta)

    def form(self, links: dict[str, str], meta: Meta | None) -> DocumentForm | None:
        """Return the form of the document that `one` writes, or None if only Python can fill it. links: they may have
        `ID_OF_FORM`."""
        form = self._form
        if form is None:
            return None
        return DocumentForm(form.text + with_gaps(self.tail(links, meta).decode()), form.heads)

    @cached_property
    def _form(self) -> DocumentForm | None:
        """The form without its end."""
        keys, node = self._keys, self._node
        if keys is None or any(has_text_ids(target) for _, _, target, _ in keys):
            return None
        encoder = self._encoder(node, tuple([name for *_, name in keys]))
        resource = encoder.form([index for index, *_ in keys])
        if resource is None:
            return None
        heads = {index: identifier_head(target).decode() for index, _, target, _ in keys}
        key_positions = range(node.width - len(node.keys), node.width)
        text = as_form(self.head.decode()) + resource
        return DocumentForm(text, tuple([heads.get(index, "") for index in key_positions]))

    def _encoder(self, node: Node, linked: tuple[str, ...], *, has_distance: bool = False) -> ResourceEncoder:
        encoder = self._encoders.get((node.resource, linked, has_distance))
        if encoder is None:
            has_link = "detail" in node.resource.methods
            is_declared = node.version is not None and bool(node.version.column)
            chosen = frozenset([name for name in linked if (node.resource, name) in self._chosen])
            encoder = ResourceEncoder(
                node,
                linked,
                self._base_url,
                has_link=has_link,
                has_version=is_declared,
                has_distance=has_distance,
                chosen=chosen,
            )
            self._encoders[node.resource, linked, has_distance] = encoder
        return encoder


JSON_API = Representation(JsonApiEncoder)


def _keys_of_one(plan: ReadPlan) -> Sequence[_Key] | None:
    """Return the keys of the document of one resource, or None for other documents, and if it may show other rows."""
    node = plan.node
    if plan.is_collection or plan.is_linkage or plan.has_included:
        return None
    if any(branch.is_included or not branch.relationship.is_own_key for branch in node.branches):
        return None
    return [
        (
            key_position(node, branch),
            identifier_encoder(branch.node.resource),
            branch.node.resource,
            branch.relationship.name,
        )
        for branch in node.branches
    ]
