"""Makes the encoders of documents, and keeps them: those of each plan are made once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import msgspec

from querybuild.cache import BoundedCache
from querybuild.declarations.resource import Resource, RowVersion
from querybuild.planning.context import Context
from querybuild.planning.plan import Node, ReadPlan, node_of
from querybuild.planning.row_plan import FIRST_ALIAS
from querybuild.planning.rows import Row, with_computed
from querybuild.planning.rowsets import open_rows
from querybuild.sql.stream import StreamStatements
from querybuild.sql.terms import reads_other_rows
from serializers.encode import DocumentEncoder
from serializers.json_api import JSON_API
from serializers.pages.view import PageView
from serializers.representation import Representation, Style
from serializers.resource_objects import ResourceEncoder
from serializers.streams import StreamEncoder
from server.preparing.statements import ENTRY_BYTES


class ObjectEncoding(msgspec.Struct, frozen=True, eq=False):
    """The encoding of a resource without relationships and links. is_returned: whether RETURNING of the statement that
    writes it has all values."""

    node: Node
    encoder: ResourceEncoder
    is_returned: bool

    def encode(self, rows: Sequence[Row]) -> list[bytes]:
        """Return the resource object of each row."""
        return self.encoder.encode(with_computed(self.node, rows), ())

    def encode_some(self, rows: Sequence[Row | None]) -> list[bytes | None]:
        """Return the resource object of each row, and None where there is no row."""
        encoded = iter(self.encode([row for row in rows if row is not None]))
        return [None if row is None else next(encoded) for row in rows]

    def versions(self, rows: Sequence[Row | None]) -> list[str | None]:
        """Return the version of each row, and None where there is no row, or no declared version."""
        if self.node.version is None:
            return [None] * len(rows)
        position = self.node.position_of_version
        return [None if row is None else row[position] for row in rows]


class DocumentEncoders:
    """The encoders of the documents of one plan, by their representations."""

    def __init__(self, plan: ReadPlan, style: Style) -> None:
        self._plan = plan
        self._style = style
        self._made: dict[Representation, DocumentEncoder] = {}

    def of(self, representation: Representation) -> DocumentEncoder:
        """Return the encoder of a representation."""
        encoder = self._made.get(representation)
        if encoder is None:
            encoder = DocumentEncoder(self._plan, representation.make(self._plan, self._style))
            self._made[representation] = encoder
        return encoder

    @cached_property
    def view(self) -> PageView:
        """What shows the rows on pages for people."""
        return PageView(self._plan, self._style)


class EncoderCaches(msgspec.Struct, frozen=True, eq=False):
    """Encoders by their plans and representations. The names are those of the metrics."""

    document_encoders: BoundedCache[DocumentEncoders]
    stream_encoders: BoundedCache[StreamEncoder]


class Encoders:
    """The encoders of one engine. style: how they write."""

    def __init__(self, style: Style, make_cache: Callable[[], BoundedCache[Any]]) -> None:
        self.caches = EncoderCaches(*[make_cache() for _ in EncoderCaches.__struct_fields__])
        self._style = style
        self._objects: BoundedCache[ObjectEncoding] = make_cache()

    def of_documents(self, plan: ReadPlan) -> DocumentEncoders:
        """Return the encoders of the documents of a read."""
        make = lambda: DocumentEncoders(plan, self._style)  # noqa: E731
        return self.caches.document_encoders.get_or_make(plan, make, lambda _: ENTRY_BYTES)

    def of_stream(
        self, plan: ReadPlan, statements: StreamStatements, representation: Representation = JSON_API
    ) -> StreamEncoder:
        """Return the encoder of the streamed documents of a read. statements: those of the stream."""
        nodes = [part.node for part in statements.parts]
        make = lambda: StreamEncoder(representation.make(plan, self._style), nodes)  # noqa: E731
        return self.caches.stream_encoders.get_or_make((plan, representation), make, lambda _: ENTRY_BYTES)

    def of_objects(self, resource: Resource, *, has_versions: bool = True) -> ObjectEncoding:
        """Return the encoding of a resource with only its attributes, as in results of atomic operations. has_versions:
        whether declared versions are shown."""
        version = resource.abilities.version if has_versions else None
        version = version if version is not None and version.column else None
        make = lambda: self._make_objects(resource, version)  # noqa: E731
        return self._objects.get_or_make((resource, version), make, lambda _: ENTRY_BYTES)

    def _make_objects(self, resource: Resource, version: RowVersion | None) -> ObjectEncoding:
        node = node_of(open_rows(resource, FIRST_ALIAS, Context()), resource.readable_attributes, version=version)
        encoder = ResourceEncoder(node, (), self._style.base_url, has_link=False, has_version=version is not None)
        return ObjectEncoding(node, encoder, not reads_other_rows(node))
