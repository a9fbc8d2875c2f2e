"""ReadPlan and rows -> document bytes. What comes in: a plan, once; then rows by position and the links and meta of
one answer. What goes out: bytes.

A resource object is a prepared text, into which go the id, the attributes as msgspec writes them, and linkage. Nothing
here knows SQL or HTTP.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice, repeat, starmap
from operator import itemgetter
from typing import Any

import msgspec

from querybuild.plan import Node, ReadPlan
from querybuild.resource import Attribute, Relationship, Resource
from querybuild.rows import Row, with_computed
from querybuild.types import TEXT
from querybuild.values import JsonFault, load_json
from serializers.compound import Level, Linkage, has_repeated_types, identifiers, key_texts, levels, merge, only_level
from serializers.errors import answer_too_large
from serializers.links import quote_segment, related_path, relationship_path, resource_path
from serializers.objects import JSONAPI, Meta
from serializers.steps import ALL, Steps, at_once, needs_steps, piece_slices, row_slices, slices

_ENCODER = msgspec.json.Encoder()
Document = bytes | Steps[list[bytes]]
"""A document; of a long one the steps that make it, in pieces."""

HEAD = b'{"jsonapi":' + bytes(JSONAPI) + b',"data":'


class ResourceEncoder:
    """Resource objects of one type with one fieldset. linked: the relationships that carry data. has_link: whether each
    links to itself."""

    def __init__(self, node: Node, linked: tuple[str, ...], base_url: str, *, has_link: bool) -> None:
        resource, attributes, relationships = node.resource, node.attributes, node.relationships
        self._values = _values_of(node)
        self._own = itemgetter(slice(1, 1 + len(attributes)))
        self._struct = _struct_of(attributes)
        self._ids = key_texts(resource)
        self._has_quoted_ids = resource.id.type is TEXT
        self._has_attributes = bool(attributes)
        places = [linked.index(relation.name) for relation in relationships if relation.name in linked]
        text = f'{{"type":{json.dumps(resource.type)},"id":"{_ID}"' + (f',"attributes":{_OWN}' if attributes else "")
        text += _tail(resource, relationships, linked, base_url, has_link=has_link)
        self._pieces = _pieces(text, places)

    def encode(self, rows: Sequence[Row], linkage: Sequence[Linkage], ids: list[bytes] | None = None) -> list[bytes]:
        """Of each row its object. linkage: of each relationship in `linked`, of each row. ids: of the rows, where they
        have been written already.

        Texts and values are columns, and each object is a row of them, joined: no loop of ours goes over the rows.
        """
        ids = self._ids([row[0] for row in rows]) if ids is None else ids
        columns = {_ID: ids, _OWN: self._attributes(rows) if self._has_attributes else []}
        url_ids = [quote_segment(row[0]).encode() for row in rows] if self._has_quoted_ids else ids
        values: list[Iterable[bytes]] = []
        for piece in self._pieces:
            if isinstance(piece, tuple):
                values.append(map(bytes.join, url_ids, repeat(piece)))
            elif isinstance(piece, bytes):
                values.append(repeat(piece))
            else:
                values.append(linkage[piece] if isinstance(piece, int) else columns[piece])
        return list(map(b"".join, zip(*values, strict=False)))

    def _attributes(self, rows: Sequence[Row]) -> list[bytes]:
        """Of each row the object of its attributes, all in one call. The lines of JSON that comes as it is, of a `json`
        column, would be taken for objects: then each is encoded by itself."""
        structs = list(starmap(self._struct, map(self._own, rows) if self._values is None else self._values(rows)))
        lines = _ENCODER.encode_lines(structs).split(b"\n")
        lines.pop()
        return lines if len(lines) == len(rows) else [_ENCODER.encode(one) for one in structs]


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


# Where the id, the attributes, the id of a URL and linkage come in; none of these characters stands in a JSON text
# unescaped.
_URL_ID, _LINKAGE, _ID, _OWN = "\x00", "\x01", "\x02", "\x03"


def _pieces(text: str, places: Sequence[int]) -> list[bytes | tuple[bytes, ...] | int | str]:
    """The text of an object in pieces: constant ones, those that the id of a URL stands in, where linkage is found,
    and which column comes in."""
    places = list(places)
    pieces: list[bytes | tuple[bytes, ...] | int | str] = []
    for piece in re.split("([\x01-\x03])", text):
        if piece == _LINKAGE:
            pieces.append(places.pop(0))
        elif piece in (_ID, _OWN):
            pieces.append(piece)
        elif piece:
            constant = tuple(piece.encode().split(_URL_ID.encode()))
            pieces.append(constant if len(constant) > 1 else constant[0])
    return pieces


def _tail(
    resource: Resource,
    relationships: tuple[Relationship, ...],
    linked: tuple[str, ...],
    base_url: str,
    *,
    has_link: bool,
) -> str:
    """What follows the attributes of an object."""
    path = resource_path(base_url, resource, _URL_ID)
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


def closing(links: dict[str, str], meta: Meta | None) -> bytes:
    """What follows the resources of a document."""
    parts = []
    if links:
        parts += [b',"links":', _ENCODER.encode(links)]
    if meta is not None:
        parts += [b',"meta":', _ENCODER.encode(meta)]
    return b"".join((*parts, b"}"))


class _Room:
    """How many bytes an answer may still have."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = self._left = most_bytes

    def take(self, objects: Sequence[bytes]) -> None:
        """Raises AnswerTooLarge."""
        self._left -= sum(map(len, objects))
        if self._left < 0:
            raise answer_too_large(self._most_bytes)


class DocumentEncoder:
    """Whole documents of one plan."""

    def __init__(self, plan: ReadPlan, base_url: str) -> None:
        self._plan = plan
        self._base_url = base_url
        self._is_merged = has_repeated_types(plan.node)
        self._encoders: dict[tuple[Resource, tuple[str, ...]], ResourceEncoder] = {}

    def document(
        self,
        rows: Sequence[Sequence[Row]],
        links: dict[str, str],
        meta: Meta | None = None,
        received_bytes: int = 0,
        most_bytes: int = sys.maxsize,
    ) -> Document:
        """rows: of each node in pre-order; the primary rows first. received_bytes: how much PostgreSQL sent for them.
        most_bytes: of the document.

        Raises AnswerTooLarge, and so do the steps."""
        if needs_steps(rows, received_bytes):
            return self._in_steps(rows, links, meta, received_bytes, most_bytes)
        document = self.encode(rows, links, meta)
        if len(document) > most_bytes:
            raise answer_too_large(most_bytes)
        return document

    def encode(self, rows: Sequence[Sequence[Row]], links: dict[str, str], meta: Meta | None = None) -> bytes:
        """The whole document in one step."""
        node = self._plan.node
        found = at_once(levels(node, rows, in_steps=False)) if node.branches else only_level(node, rows[0])
        if self._is_merged:
            primary, included = at_once(self._merged(found, 0, _Room(sys.maxsize), in_steps=False))
        else:
            primary, *others = [
                [b",".join(self._encoder(level.node, level.linked).encode(level.rows, level.linkage, level.ids))]
                if level.rows
                else []
                for level in found
            ]
            included = list(chain.from_iterable(others))
        return b"".join(self._parts(rows[0], primary, included, links, meta))

    def _in_steps(
        self,
        rows: Sequence[Sequence[Row]],
        links: dict[str, str],
        meta: Meta | None,
        received_bytes: int,
        most_bytes: int,
    ) -> Steps[list[bytes]]:
        found = yield from levels(self._plan.node, rows, in_steps=True)
        room = _Room(most_bytes)
        if self._is_merged:
            primary, included = yield from self._merged(found, received_bytes, room, in_steps=True)
        else:
            primary, included = yield from self._apart(found, received_bytes, room)
        parts = self._parts(rows[0], primary, included, links, meta)
        if sum(map(len, parts)) > most_bytes:
            raise answer_too_large(most_bytes)
        return (yield from _joined(parts, b""))

    def _parts(
        self,
        rows: Sequence[Row],
        primary: Sequence[bytes],
        included: Sequence[bytes],
        links: dict[str, str],
        meta: Meta | None,
    ) -> list[bytes]:
        """What is joined to the document. rows: the primary ones. primary, included: their objects, some joined."""
        plan = self._plan
        if plan.is_linkage:
            included = [*primary, *included] if plan.includes_primary else included
            identifier = identifiers(plan.node.resource)
            primary = [b",".join([identifier(row[0]) for row in some]) for some in slices(rows, in_steps=True) if some]
        parts = [HEAD, b"[", *_listed(primary), b"]"] if plan.is_collection else [HEAD, *(primary or [b"null"])]
        if plan.has_included:
            parts += [b',"included":[', *_listed(included), b"]"]
        parts.append(closing(links, meta))
        return parts

    def _apart(self, found: list[Level], received_bytes: int, room: _Room) -> Steps[tuple[list[bytes], list[bytes]]]:
        """The primary resource objects and the included ones, some of them joined at a time."""
        joined = []
        for level in found:
            encoder = self._encoder(level.node, level.linked)
            own = []
            for part in row_slices(level.rows, received_bytes, in_steps=True):
                ids = None if level.ids is None else level.ids[part]
                encoded = encoder.encode(level.rows[part], [column[part] for column in level.linkage], ids)
                room.take(encoded)
                own.append(b",".join(encoded))
                yield
            joined.append(own)
        return joined[0], list(chain.from_iterable(joined[1:]))

    def _merged(
        self, found: list[Level], received_bytes: int, room: _Room, in_steps: bool
    ) -> Steps[tuple[list[bytes], list[bytes]]]:
        """The same where levels have to be merged. Objects are encoded together that show the same."""
        resources = yield from merge(found, in_steps)
        alike: dict[ResourceEncoder, list[int]] = {}
        numbered = enumerate(resources)
        for some in slices(resources, in_steps):
            for place, resource in islice(numbered, len(some)):
                alike.setdefault(self._encoder(resource.node, tuple(resource.links)), []).append(place)
            yield
        objects = [b""] * len(resources)
        for encoder, places in alike.items():
            rows = [resources[place].row for place in places]
            for part in row_slices(rows, received_bytes, in_steps):
                links = [resources[place].links.values() for place in places[part]]
                linkage = [list(column) for column in zip(*links, strict=True)]
                encoded = encoder.encode(rows[part], linkage)
                if part is not ALL:
                    room.take(encoded)
                for place, one in zip(places[part], encoded, strict=True):
                    objects[place] = one
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


def _listed(joined: Sequence[bytes]) -> Sequence[bytes]:
    """With commas between them."""
    return joined if len(joined) < 2 else [one for some in joined for one in (b",", some)][1:]


def _joined(objects: Sequence[bytes], between: bytes = b",") -> Steps[list[bytes]]:
    """Some at a time."""
    found = []
    for part in piece_slices(objects):
        found.append(between.join(objects[part]))
        yield
    return found
