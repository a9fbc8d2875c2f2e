"""ReadPlan and rows -> document bytes. What comes in: a plan, once; then rows by position and the links and meta of
one answer. What goes out: bytes.

A resource object is a prepared text, into which go the id, the attributes as msgspec writes them, and linkage. Nothing
here knows SQL or HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from querybuild.plan import Node, ReadPlan
from querybuild.resource import Attribute, Relationship, Resource
from querybuild.rows import Row
from querybuild.types import TEXT
from querybuild.values import load_json
from serializers.compound import Level, Linkage, Merged, has_repeated_types, id_text, identifiers, levels, merge
from serializers.links import quote_segment
from serializers.objects import JSONAPI, PageMeta

_ENCODER = msgspec.json.Encoder()
_HEAD = b'{"jsonapi":' + bytes(JSONAPI) + b',"data":'


class ResourceEncoder:
    """Resource objects of one type with one fieldset. linked: the relationships that carry data."""

    def __init__(
        self,
        resource: Resource,
        attributes: tuple[Attribute, ...],
        relationships: tuple[Relationship, ...],
        linked: tuple[str, ...],
        base_url: str,
    ) -> None:
        self._attributes_end = 1 + len(attributes)
        self._struct = _struct_of(attributes)
        self._shown = [
            (index, attribute.type.shown)
            for index, attribute in enumerate(attributes)
            if attribute.type.shown is not None
        ]
        self._id_json = id_text(resource)
        self._id_url = _id_segment if resource.id.type is TEXT else None
        self._head = f'{{"type":{json.dumps(resource.type)},"id":"'.encode()
        self._mid = b'","attributes":' if attributes else b'"'
        self._tail = [
            piece.encode().split(_URL_ID) for piece in _tail(resource, relationships, linked, base_url).split(_LINKAGE)
        ]
        self._places = [linked.index(relation.name) for relation in relationships if relation.name in linked]

    def encode(self, rows: Sequence[Row], linkage: Sequence[Linkage]) -> list[bytes]:
        """Of each row its object. linkage: of each relationship in `linked`, of each row.

        The texts between two ids are joined by the id itself, which writes all of them in one call.
        """
        head, mid, (last, *later), join = self._head, self._mid, self._tail, b"".join
        ids = [self._id_json(row[0]) for row in rows]
        urls = ids if self._id_url is None else [self._id_url(row[0]) for row in rows]
        parts = zip(ids, self._attributes(rows), urls, strict=True)
        if not later:
            return [join((head, own, mid, attributes, url.join(last))) for own, attributes, url in parts]
        data = zip(*[linkage[place] for place in self._places], strict=True)
        return [
            join((head, own, mid, attributes, url.join(last), *_alternating(links, url, later)))
            for (own, attributes, url), links in zip(parts, data, strict=True)
        ]

    def _attributes(self, rows: Sequence[Row]) -> list[bytes]:
        end, encode, struct = self._attributes_end, _ENCODER.encode, self._struct
        if end == 1:
            return [b""] * len(rows)
        if not self._shown:
            return [encode(struct(*row[1:end])) for row in rows]
        return [encode(struct(*self._shown_values(row))) for row in rows]

    def _shown_values(self, row: Row) -> list[Any]:
        values = list(row[1 : self._attributes_end])
        for index, shown in self._shown:
            values[index] = shown(values[index])
        return values


def _alternating(links: Sequence[bytes], url: bytes, tails: list[list[bytes]]) -> Iterator[bytes]:
    """Linkage, and the text up to the next one."""
    for data, tail in zip(links, tails, strict=True):
        yield data
        yield url.join(tail)


def shown_value(attribute: Attribute, value: Any) -> Any:
    """A column's value as a client reads it: the tree that `load_json` makes of what is encoded."""
    shown = attribute.type.shown
    return load_json(_ENCODER.encode(value if shown is None else shown(value)).decode())


def _struct_of(attributes: tuple[Attribute, ...]) -> Callable[..., msgspec.Struct]:
    """A Struct whose fields are the attributes by position, whatever characters their names have."""
    names = {f"f{index}": attribute.name for index, attribute in enumerate(attributes)}
    return msgspec.defstruct("Attributes", [(name, Any) for name in names], rename=names, gc=False)


def _id_segment(value: str) -> bytes:
    """A text id as a path segment."""
    return quote_segment(value).encode()


# Where the id of a URL and where linkage comes in; neither character stands in a JSON text unescaped.
_URL_ID, _LINKAGE = b"\x00", "\x01"


def _tail(resource: Resource, relationships: tuple[Relationship, ...], linked: tuple[str, ...], base_url: str) -> str:
    """What follows the attributes of an object."""
    path = f"{base_url}{resource.path}/\x00"
    members = []
    for relationship in relationships:
        parts = []
        if "read" in relationship.methods:
            segment = quote_segment(relationship.name)
            parts.append(f'"links":{{"self":"{path}/relationships/{segment}","related":"{path}/{segment}"}}')
        if relationship.name in linked:
            parts.append(f'"data":{_LINKAGE}')
        if parts:
            members.append(f"{json.dumps(relationship.name)}:{{{','.join(parts)}}}")
    text = f',"relationships":{{{",".join(members)}}}' if members else ""
    return text + (f',"links":{{"self":"{path}"}}' if "detail" in resource.methods else "") + "}"


class DocumentEncoder:
    """Documents of one plan. An answer is head, rows and tail; a whole one is the three joined."""

    def __init__(self, plan: ReadPlan, base_url: str) -> None:
        self._plan = plan
        self._base_url = base_url
        self._is_merged = has_repeated_types(plan.node)
        self._encoders: dict[tuple[Resource, tuple[str, ...]], ResourceEncoder] = {}

    def encode(self, rows: Sequence[Sequence[Row]], links: dict[str, str], meta: PageMeta | None = None) -> bytes:
        """The whole document. rows: of each node in pre-order; the primary rows first."""
        primary, included = self._objects(levels(self._plan.node, rows))
        if self._plan.is_linkage:
            identifier = identifiers(self._plan.node.resource)
            included = [*primary, *included] if self._plan.includes_primary else included
            primary = [identifier(row[0]) for row in rows[0]]
        return b"".join((self.head(), self.rows(primary), self.tail(included, links, meta)))

    def _objects(self, found: list[Level]) -> tuple[list[bytes], list[bytes]]:
        """The primary resource objects and the included ones."""
        if self._is_merged:
            objects = [self._merged_object(resource) for resource in merge(found)]
            count = len(found[0].rows)
            return objects[:count], objects[count:]
        primary, *others = [
            self._encoder(level.node, level.linked).encode(level.rows, level.linkage) for level in found
        ]
        return primary, [one for objects in others for one in objects]

    def _merged_object(self, resource: Merged) -> bytes:
        encoder = self._encoder(resource.node, tuple(resource.links))
        return encoder.encode([resource.row], [[data] for data in resource.links.values()])[0]

    def head(self) -> bytes:
        return _HEAD + b"[" if self._plan.is_collection else _HEAD

    def rows(self, objects: Iterable[bytes]) -> bytes:
        return b",".join(objects) or (b"" if self._plan.is_collection else b"null")

    def tail(self, included: Iterable[bytes], links: dict[str, str], meta: PageMeta | None) -> bytes:
        parts = [b"]" if self._plan.is_collection else b""]
        if self._plan.has_included:
            parts += [b',"included":[', b",".join(included), b"]"]
        if links:
            parts += [b',"links":', _ENCODER.encode(links)]
        if meta is not None:
            parts += [b',"meta":', _ENCODER.encode(meta)]
        return b"".join((*parts, b"}"))

    def _encoder(self, node: Node, linked: tuple[str, ...]) -> ResourceEncoder:
        encoder = self._encoders.get((node.resource, linked))
        if encoder is None:
            encoder = ResourceEncoder(node.resource, node.attributes, node.relationships, linked, self._base_url)
            self._encoders[node.resource, linked] = encoder
        return encoder
