"""ReadPlan and rows -> document bytes. What comes in: a plan, once; then rows by position and the links and
meta of one answer. What goes out: bytes.

A resource object is a prepared template, into which go the id, the attributes as msgspec writes them, and
linkage. Nothing here knows SQL or HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from querybuild.plan import Node, ReadPlan
from querybuild.resource import Attribute, Relationship, Resource
from querybuild.rows import Row
from querybuild.types import TEXT
from serializers.compound import Shown, identifiers, show
from serializers.links import quote_segment
from serializers.objects import JSONAPI, PageMeta

_ENCODER = msgspec.json.Encoder()
_HEAD = b'{"jsonapi":' + bytes(JSONAPI) + b',"data":'


class ResourceEncoder:
    """Resource objects of one type with one fieldset. linked: the relationships that carry data, in declared order."""

    def __init__(
        self,
        resource: Resource,
        attributes: tuple[Attribute, ...],
        relationships: tuple[Relationship, ...],
        linked: tuple[str, ...],
        base_url: str,
    ) -> None:
        self.linked = linked
        self._attributes_end = 1 + len(attributes)
        self._struct = _struct_of(attributes)
        self._shown = [
            (index, attribute.type.shown)
            for index, attribute in enumerate(attributes)
            if attribute.type.shown is not None
        ]
        self._id_forms = id_forms(resource)
        self._template, self._slots = _template(resource, bool(attributes), relationships, linked, base_url)

    def encode(self, row: Row, linkage: Sequence[bytes]) -> bytes:
        """linkage: the data of each linked relationship, in the order of `linked`."""
        id_json, id_url = self._id_forms(row[0])
        values: Sequence[Any] = row[1 : self._attributes_end]
        if self._shown:
            values = list(values)
            for index, shown in self._shown:
                values[index] = shown(values[index])
        pieces = (id_json, id_url, _ENCODER.encode(self._struct(*values)), *linkage)
        return self._template % tuple([pieces[slot] for slot in self._slots])


def _struct_of(attributes: tuple[Attribute, ...]) -> Callable[..., msgspec.Struct]:
    """A Struct whose fields are the attributes by position, whatever characters their names have."""
    names = {f"f{index}": attribute.name for index, attribute in enumerate(attributes)}
    return msgspec.defstruct("Attributes", [(name, Any) for name in names], rename=names, gc=False)


def id_forms(resource: Resource) -> Callable[[Any], tuple[bytes, bytes]]:
    """An id's text inside a JSON string, and as a path segment."""
    if resource.id.type is TEXT:
        return lambda value: (json.dumps(value)[1:-1].encode(), quote_segment(value).encode())

    def plain(value: Any) -> tuple[bytes, bytes]:
        text = str(value).encode()
        return text, text

    return plain


_ID, _URL, _ATTRIBUTES, _FIRST_LINKAGE = range(4)


def _template(
    resource: Resource,
    has_attributes: bool,
    relationships: tuple[Relationship, ...],
    linked: tuple[str, ...],
    base_url: str,
) -> tuple[bytes, tuple[int, ...]]:
    """The object's bytes with `%b` where something comes in, and which piece comes into each."""
    text, slots = "", [_ID]

    def literal(part: str) -> str:
        return part.replace("%", "%%")

    path = literal(base_url + resource.path) + "/%b"
    text = f'{{"type":{literal(json.dumps(resource.type))},"id":"%b"'
    if has_attributes:
        text += ',"attributes":%b'
        slots.append(_ATTRIBUTES)
    members = []
    for relationship in relationships:
        parts = []
        if "read" in relationship.methods:
            segment = literal(quote_segment(relationship.name))
            parts.append(f'"links":{{"self":"{path}/relationships/{segment}","related":"{path}/{segment}"}}')
            slots.extend((_URL, _URL))
        if relationship.name in linked:
            parts.append('"data":%b')
            slots.append(_FIRST_LINKAGE + linked.index(relationship.name))
        if parts:
            members.append(f"{literal(json.dumps(relationship.name))}:{{{','.join(parts)}}}")
    if members:
        text += f',"relationships":{{{",".join(members)}}}'
    if "detail" in resource.methods:
        text += f',"links":{{"self":"{path}"}}'
        slots.append(_URL)
    return (text + "}").encode(), tuple(slots)


class DocumentEncoder:
    """Documents of one plan. An answer is head, rows and tail; a whole one is the three joined."""

    def __init__(self, plan: ReadPlan, base_url: str) -> None:
        self._plan = plan
        self._base_url = base_url
        self._encoders: dict[tuple[Resource, tuple[str, ...]], ResourceEncoder] = {}

    def encode(self, rows: Sequence[Sequence[Row]], links: dict[str, str], meta: PageMeta | None = None) -> bytes:
        """The whole document. rows: of each node in pre-order; the primary rows first."""
        primary, included = show(self._plan.node, rows)
        if self._plan.is_linkage:
            identifier = identifiers(self._plan.node.resource)
            objects = [identifier(shown.row[0]) for shown in primary]
            included = [*primary, *included] if self._plan.includes_primary else included
        else:
            objects = [self._object(shown) for shown in primary]
        return b"".join((self.head(), self.rows(objects), self.tail(included, links, meta)))

    def head(self) -> bytes:
        return _HEAD + b"[" if self._plan.is_collection else _HEAD

    def rows(self, objects: Iterable[bytes]) -> bytes:
        return b",".join(objects) or (b"" if self._plan.is_collection else b"null")

    def tail(self, included: Iterable[Shown], links: dict[str, str], meta: PageMeta | None) -> bytes:
        parts = [b"]" if self._plan.is_collection else b""]
        if self._plan.has_included:
            parts += [b',"included":[', b",".join([self._object(shown) for shown in included]), b"]"]
        parts += [b',"links":', _ENCODER.encode(links)]
        if meta is not None:
            parts += [b',"meta":', _ENCODER.encode(meta)]
        return b"".join((*parts, b"}"))

    def _object(self, shown: Shown) -> bytes:
        return self._encoder(shown.node, shown.linked).encode(shown.row, shown.linkage)

    def _encoder(self, node: Node, linked: tuple[str, ...]) -> ResourceEncoder:
        key = (node.resource, linked)
        encoder = self._encoders.get(key)
        if encoder is None:
            encoder = ResourceEncoder(node.resource, node.attributes, node.relationships, linked, self._base_url)
            self._encoders[key] = encoder
        return encoder
