"""ReadPlan and rows -> document bytes. What comes in: a plan, once; then rows by position and the links and meta of
one answer. What goes out: bytes.

A resource object is a prepared text, into which go the id, the attributes as msgspec writes them, and linkage. Nothing
here knows SQL or HTTP.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from querybuild.plan import Node, ReadPlan
from querybuild.resource import Attribute, Relationship, Resource
from querybuild.rows import Row, with_computed
from querybuild.types import TEXT
from querybuild.values import JsonFault, load_json
from serializers.compound import Level, Linkage, Merged, has_repeated_types, id_text, identifiers, levels, merge
from serializers.links import quote_segment, related_path, relationship_path, resource_path
from serializers.objects import JSONAPI, Meta

_ENCODER = msgspec.json.Encoder()
_HEAD = b'{"jsonapi":' + bytes(JSONAPI) + b',"data":'


class ResourceEncoder:
    """Resource objects of one type with one fieldset. linked: the relationships that carry data. has_link: whether each
    links to itself."""

    def __init__(self, node: Node, linked: tuple[str, ...], base_url: str, *, has_link: bool) -> None:
        resource, attributes, relationships = node.resource, node.attributes, node.relationships
        self._values = _values_of(node)
        self._attributes_end = 1 + len(attributes)
        self._struct = _struct_of(attributes)
        self._id_json = id_text(resource)
        self._id_url = _id_segment if resource.id.type is TEXT else None
        self._head = f'{{"type":{json.dumps(resource.type)},"id":"'.encode()
        self._mid = b'","attributes":' if attributes else b'"'
        self._tail = [
            piece.encode().split(_URL_ID)
            for piece in _tail(resource, relationships, linked, base_url, has_link=has_link).split(_LINKAGE)
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
        end, encode, struct, values = self._attributes_end, _ENCODER.encode, self._struct, self._values
        if end == 1:
            return [b""] * len(rows)
        if values is None:
            return [encode(struct(*row[1:end])) for row in rows]
        return [encode(struct(*shown)) for shown in values(rows)]


def _values_of(node: Node) -> Callable[[Sequence[Row]], Iterator[list[Any]]] | None:
    """Makes of rows the values of the attributes shown; None where a row has them as they are."""
    shown = [(index, one.type.shown) for index, one in enumerate(node.attributes) if one.type.shown is not None]
    arranged = _computed(node) if node.computed else _arranged
    if not shown and arranged is _arranged:
        return None

    def values(rows: Sequence[Row]) -> Iterator[list[Any]]:
        for one in arranged(rows, len(node.attributes)):
            for index, show in shown:
                one[index] = show(one[index])
            yield one

    return values


def _arranged(rows: Sequence[Row], count: int) -> Iterator[list[Any]]:
    """The attributes of rows that have them in the order in which they are shown."""
    return (list(row[1 : 1 + count]) for row in rows)


def _computed(node: Node) -> Callable[[Sequence[Row], int], Iterator[list[Any]]]:
    """The same where some are computed in Python and stand at the end of a row."""
    place_of = {attribute: place for place, attribute in enumerate(node.read, 1)}
    place_of |= {attribute: place - len(node.computed) for place, attribute in enumerate(node.computed)}
    places = [place_of[attribute] for attribute in node.attributes]
    return lambda rows, _: ([row[place] for place in places] for row in rows)


def _alternating(links: Sequence[bytes], url: bytes, tails: list[list[bytes]]) -> Iterator[bytes]:
    """Linkage, and the text up to the next one."""
    for data, tail in zip(links, tails, strict=True):
        yield data
        yield url.join(tail)


def shown_values(node: Node, row: Row) -> list[Any]:
    """The attributes of a row as a client reads them: the trees that `load_json` makes of what is encoded."""
    [row] = with_computed(node, [row])
    values = _values_of(node)
    shown = row[1 : 1 + len(node.attributes)] if values is None else next(values([row]))
    return [_as_read(value) for value in shown]


def _as_read(value: Any) -> Any:
    """JSON that `load_json` refuses, such as a name that stands twice, no client can send: it is like nothing."""
    try:
        return load_json(_ENCODER.encode(value).decode(), sys.maxsize)
    except (JsonFault, RecursionError):
        return object()


def _struct_of(attributes: tuple[Attribute, ...]) -> Callable[..., msgspec.Struct]:
    """A Struct whose fields are the attributes by position, whatever characters their names have."""
    names = {f"f{index}": attribute.name for index, attribute in enumerate(attributes)}
    return msgspec.defstruct("Attributes", [(name, Any) for name in names], rename=names, gc=False)


def _id_segment(value: str) -> bytes:
    """A text id as a path segment."""
    return quote_segment(value).encode()


# Where the id of a URL and where linkage comes in; neither character stands in a JSON text unescaped.
_URL_ID, _LINKAGE = b"\x00", "\x01"


def _tail(
    resource: Resource,
    relationships: tuple[Relationship, ...],
    linked: tuple[str, ...],
    base_url: str,
    *,
    has_link: bool,
) -> str:
    """What follows the attributes of an object."""
    path = resource_path(base_url, resource, "\x00")
    members = []
    for relationship in relationships:
        parts = []
        if "read" in relationship.methods:
            own, related = relationship_path(path, relationship), related_path(path, relationship)
            parts.append(f'"links":{{"self":"{own}","related":"{related}"}}')
        if relationship.name in linked:
            parts.append(f'"data":{_LINKAGE}')
        if parts:
            members.append(f"{json.dumps(relationship.name)}:{{{','.join(parts)}}}")
    text = f',"relationships":{{{",".join(members)}}}' if members else ""
    return text + (f',"links":{{"self":"{path}"}}' if has_link else "") + "}"


class DocumentEncoder:
    """Documents of one plan. An answer is head, rows and tail; a whole one is the three joined."""

    def __init__(self, plan: ReadPlan, base_url: str) -> None:
        self._plan = plan
        self._base_url = base_url
        self._is_merged = has_repeated_types(plan.node)
        self._encoders: dict[tuple[Resource, tuple[str, ...]], ResourceEncoder] = {}

    def encode(self, rows: Sequence[Sequence[Row]], links: dict[str, str], meta: Meta | None = None) -> bytes:
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

    def tail(self, included: Iterable[bytes], links: dict[str, str], meta: Meta | None) -> bytes:
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
            has_link = "detail" in node.resource.methods
            encoder = ResourceEncoder(node, linked, self._base_url, has_link=has_link)
            self._encoders[node.resource, linked] = encoder
        return encoder
