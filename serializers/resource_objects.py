"""Writes resource objects. What comes in: a node, once; then rows and their linkage. What goes out: bytes.

A resource object is a prepared text with gaps for the id, the attributes as msgspec writes them, and the linkage.

It must not know: documents, SQL, HTTP.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat, starmap
from operator import itemgetter
from typing import Any

import msgspec

from querybuild.declarations.json_texts import JsonFault, load_json
from querybuild.declarations.resource import Attribute, Relationship
from querybuild.planning.plan import Node
from querybuild.planning.rows import Row, with_computed
from serializers.compound import ChosenLinkage, Linkage, has_text_ids, id_encoder, ids_encoder
from serializers.links import quote_segment, related_path, relationship_path, resource_path
from serializers.representation import as_form, gap

UNNAMEABLE = frozenset({"", ".", ".."})
"""Ids that no path can name: clients and proxies remove such segments."""

_ENCODER = msgspec.json.Encoder()
_FIRST = itemgetter(0)


class ResourceEncoder:
    """Writes the resource objects of one type and one fieldset. linked: the relationships that have `data`. chosen:
    those of them whose linkage is a `ChosenLinkage`. has_link: whether each object has a `self` link. has_links:
    whether its relationships have links. has_version, has_distance: whether each object shows the version of its row,
    and how far it is from the value that the rows are near to.

    An object whose id no path can name has no links: its `self` would be the collection."""

    def __init__(
        self,
        node: Node,
        linked: tuple[str, ...],
        base_url: str,
        *,
        has_link: bool,
        has_links: bool = True,
        has_version: bool = False,
        has_distance: bool = False,
        chosen: frozenset[str] = frozenset(),
    ) -> None:
        resource, attributes, relationships = node.resource, node.attributes, node.relationships
        self._node = node
        self._values = _values_of(node)
        self._own = itemgetter(slice(1, 1 + len(attributes)))
        self._struct = _struct_of(attributes)
        self._ids = ids_encoder(resource)
        self._has_quoted_ids = has_text_ids(resource)
        self._has_attributes = bool(attributes)
        linkage_indexes = [linked.index(relation.name) for relation in relationships if relation.name in linked]
        text = f'{{"type":{json.dumps(resource.type)},"id":"{_ID}"' + (f',"attributes":{_OWN}' if attributes else "")
        path = resource_path(base_url, resource, _URL_ID)
        text += _object_tail(path, relationships, linked, chosen, has_link=has_link, has_links=has_links)
        meta = [f'"version":"{_VERSION}"'] * has_version + [f'"distance":{_DISTANCE}'] * has_distance
        text += f',"meta":{{{",".join(meta)}}}}}' if meta else "}"
        self._version = itemgetter(node.position_of_version) if has_version else None
        # It is the first text of a sort key.
        self._distance = itemgetter(node.width) if has_distance else None
        self._pieces = pieces = _pieces(text, linkage_indexes)
        self._constants: list[Iterable[bytes]] = [
            repeat(piece if isinstance(piece, bytes) else b"") for piece in pieces
        ]
        self._urls = [(index, repeat(piece)) for index, piece in enumerate(pieces) if isinstance(piece, tuple)]
        self._columns = [(index, piece) for index, piece in enumerate(pieces) if isinstance(piece, str)]
        self._linkage = [(index, piece) for index, piece in enumerate(pieces) if isinstance(piece, int)]
        self._chosen = {
            linked.index(relationship.name): _next_format(relationship_path(path, relationship))
            if has_links and "read" in relationship.methods
            else None
            for relationship in relationships
            if relationship.name in chosen and relationship.name in linked
        }
        self._id = id_encoder(resource)
        self._text, self._gaps = _template(pieces)
        self._without_links = self
        if self._has_quoted_ids and has_links:
            self._without_links = ResourceEncoder(
                node,
                linked,
                base_url,
                has_link=False,
                has_links=False,
                has_version=has_version,
                has_distance=has_distance,
                chosen=chosen,
            )

    def encode_one(self, row: Row, linkage: Sequence[Any]) -> bytes:
        """Return the object of one row. linkage: the `data` of each relationship in `linked`."""
        if row[0] in UNNAMEABLE and self._without_links is not self:
            return self._without_links.encode_one(row, linkage)
        row_id = self._id(row[0])
        own = self._own(row) if self._values is None else next(self._values([row]))
        url_id = quote_segment(row[0]).encode() if self._has_quoted_ids else row_id
        if self._chosen:
            linkage = [
                self._members(index, [each], [url_id])[0] if index in self._chosen else each
                for index, each in enumerate(linkage)
            ]
        version = b"" if self._version is None else self._version(row).encode()
        distance = b"" if self._distance is None else _distance(self._distance(row))
        known = row_id, _ENCODER.encode(self._struct(*own)), url_id, version, distance
        text: bytes = self._text % self._gaps((*known, *linkage))
        return text

    def form(self, linkage: Sequence[int]) -> str | None:
        """Return the object of one row with gaps, or None if only Python can fill them. linkage: for each relationship
        in `linked`, the position of its key in a row."""
        node = self._node
        if self._has_quoted_ids or self._chosen or self._distance is not None or node.computed:
            return None
        positions = value_positions(node)
        names = [_ENCODER.encode(attribute.name).decode() for attribute in node.attributes]
        values = [gap(positions[attribute]) for attribute in node.attributes]
        own = [f"{as_form(name)}:{value}" for name, value in zip(names, values, strict=True)]
        known = {_ID: gap(0), _OWN: f"{{{','.join(own)}}}", _VERSION: gap(node.position_of_version)}
        parts = []
        for piece in self._pieces:
            if isinstance(piece, tuple):
                parts.append(gap(0).join([as_form(part.decode()) for part in piece]))
            elif isinstance(piece, int):
                parts.append(gap(linkage[piece]))
            else:
                parts.append(as_form(piece.decode()) if isinstance(piece, bytes) else known[piece])
        return "".join(parts)

    def encode(self, rows: Sequence[Row], linkage: Sequence[Linkage], ids: list[bytes] | None = None) -> list[bytes]:
        """Return the object of each row. linkage: for each relationship in `linked`, the `data` of each row. ids: the
        encoded ids of the rows, if they exist already.

        Constant texts and values are columns. Each object is one row of these columns, joined, so no Python loop runs
        over the rows.
        """
        ids = self._ids(list(map(_FIRST, rows))) if ids is None else ids
        url_ids = [quote_segment(row[0]).encode() for row in rows] if self._has_quoted_ids else ids
        values: list[Iterable[bytes]] = self._constants.copy()
        for index, texts in self._urls:
            values[index] = map(bytes.join, url_ids, texts)
        columns = {_ID: ids, _OWN: self._attributes(rows) if self._has_attributes else []}
        if self._version is not None:
            columns[_VERSION] = list(map(str.encode, map(self._version, rows)))
        if self._distance is not None:
            columns[_DISTANCE] = list(map(_distance, map(self._distance, rows)))
        for index, mark in self._columns:
            values[index] = columns[mark]
        for index, which in self._linkage:
            values[index] = self._members(which, linkage[which], url_ids) if which in self._chosen else linkage[which]
        objects = list(map(b"".join, zip(*values, strict=False)))
        if self._without_links is not self:
            for index, row in enumerate(rows):
                if row[0] in UNNAMEABLE:
                    objects[index] = self._without_links.encode_one(row, [column[index] for column in linkage])
        return objects

    def _members(self, which: int, linkage: Sequence[ChosenLinkage], url_ids: Sequence[bytes]) -> list[bytes]:
        """Return the members of a chosen relationship from the end of its links on, for each row."""
        with_next = self._chosen[which]
        if with_next is None:
            return [members for members, _ in linkage]
        return [
            with_next % (url_id, query, members) if query else b"},%b" % members
            for (members, query), url_id in zip(linkage, url_ids, strict=True)
        ]

    def _attributes(self, rows: Sequence[Row]) -> list[bytes]:
        """Return the attributes object of each row, all from one call. A value of a `json` column is copied as it is
        and may contain line breaks. Then the lines are not the objects, and each object is encoded separately."""
        structs = list(starmap(self._struct, map(self._own, rows) if self._values is None else self._values(rows)))
        lines = _ENCODER.encode_lines(structs).split(b"\n")
        lines.pop()
        return lines if len(lines) == len(rows) else [_ENCODER.encode(struct) for struct in structs]


def _distance(text: str) -> bytes:
    """Return a distance as JSON. NaN and infinity are null: of vectors of zeros, for example."""
    return b"null" if text.endswith(("NaN", "Infinity")) else text.encode()


def _next_format(path: str) -> bytes:
    """Return the format of the members of a relationship from the end of its links on, with a link to the next page: of
    the id in the URL, the query, and the other members. path: that of the linkage, with the mark of the id."""
    before, after = path.encode().replace(b"%", b"%%").split(_URL_ID.encode())
    return b',"next":"%b%%b%b?%%b"},%%b' % (before, after)


def values_of(node: Node) -> Callable[[Sequence[Row]], Iterator[list[Any]]]:
    """Return a function that yields the shown attribute values of rows."""
    values = _values_of(node)
    return values if values is not None else lambda rows: _in_row_order(rows, len(node.attributes))


def _values_of(node: Node) -> Callable[[Sequence[Row]], Iterator[list[Any]]] | None:
    """Return a function that yields the shown attribute values of rows, or None if the rows already have them."""
    shown = [
        (index, attribute.type.json.shown)
        for index, attribute in enumerate(node.attributes)
        if attribute.type.json.shown is not None
    ]
    in_order = _in_shown_order(node) if node.computed else _in_row_order
    if not shown and in_order is _in_row_order:
        return None

    def values(rows: Sequence[Row]) -> Iterator[list[Any]]:
        for row_values in in_order(rows, len(node.attributes)):
            for index, show in shown:
                row_values[index] = show(row_values[index])
            yield row_values

    return values


def _in_row_order(rows: Sequence[Row], count: int) -> Iterator[list[Any]]:
    """The attributes of rows that have them in the order in which they are shown."""
    return (list(row[1 : 1 + count]) for row in rows)


def _in_shown_order(node: Node) -> Callable[[Sequence[Row], int], Iterator[list[Any]]]:
    """The same if some attributes are computed in Python: their values are at the end of the row."""
    positions = value_positions(node)
    indexes = [positions[attribute] for attribute in node.attributes]
    return lambda rows, _: ([row[index] for index in indexes] for row in rows)


def value_positions(node: Node) -> dict[Attribute, int]:
    """Return the position of each attribute in a row. Those computed in Python are at its end."""
    positions = {attribute: index for index, attribute in enumerate(node.read, 1)}
    return positions | {attribute: index - len(node.computed) for index, attribute in enumerate(node.computed)}


def shown_values(node: Node, row: Row) -> list[Any]:
    """Return the attributes of a row as a client reads them: encoded, and then loaded by `load_json`."""
    [row] = with_computed(node, [row])
    values = _values_of(node)
    shown = row[1 : 1 + len(node.attributes)] if values is None else next(values([row]))
    return [_as_client_reads(value) for value in shown]


def _as_client_reads(value: Any) -> Any:
    """The value after encoding and loading. JSON that `load_json` refuses, such as a duplicate name, becomes an object
    that equals nothing, because no client can send it."""
    try:
        return load_json(_ENCODER.encode(value).decode(), sys.maxsize)
    except (JsonFault, RecursionError):
        return object()


def _struct_of(attributes: tuple[Attribute, ...]) -> Callable[..., msgspec.Struct]:
    """Return a Struct with the attributes as fields by position. Attribute names may contain any character."""
    names = {f"f{index}": attribute.name for index, attribute in enumerate(attributes)}
    return msgspec.defstruct("Attributes", [(name, Any) for name in names], rename=names, gc=False)


# Marks for the gaps of the id in a URL, the linkage, the id, the attributes, the version, and the distance. JSON text
# never contains these characters unescaped.
_URL_ID, _LINKAGE, _ID, _OWN, _VERSION, _DISTANCE = "\x00", "\x01", "\x02", "\x03", "\x04", "\x05"

_Piece = bytes | tuple[bytes, ...] | int | str
"""A piece of the text of an object. bytes: constant. tuple: constant texts to join with the id of a URL. int: the index
of the linkage. str: the mark of a column."""


def _pieces(text: str, linkage_indexes: Sequence[int]) -> list[_Piece]:
    """Split the text of an object into pieces."""
    linkages = iter(linkage_indexes)
    pieces: list[_Piece] = []
    for piece in re.split("([\x01-\x05])", text):
        if piece == _LINKAGE:
            pieces.append(next(linkages))
        elif piece in (_ID, _OWN, _VERSION, _DISTANCE):
            pieces.append(piece)
        elif piece:
            constant = tuple(piece.encode().split(_URL_ID.encode()))
            pieces.append(constant if len(constant) > 1 else constant[0])
    return pieces


def _template(pieces: Sequence[_Piece]) -> tuple[bytes, Callable[[Sequence[bytes]], Any]]:
    """Return the text of one object as a format, and a function that returns the values of its gaps, out of the id, the
    attributes, the id in a URL, the version, the distance, and the linkage."""
    known = {_ID: 0, _OWN: 1, _VERSION: 3, _DISTANCE: 4}
    text, gaps = b"", list[int]()
    for piece in pieces:
        if isinstance(piece, tuple):
            text += b"%b".join([part.replace(b"%", b"%%") for part in piece])
            gaps += [2] * (len(piece) - 1)
        elif isinstance(piece, bytes):
            text += piece.replace(b"%", b"%%")
        else:
            text += b"%b"
            gaps.append(5 + piece if isinstance(piece, int) else known[piece])
    return text, itemgetter(*gaps)


def _object_tail(
    path: str,
    relationships: tuple[Relationship, ...],
    linked: tuple[str, ...],
    chosen: frozenset[str],
    *,
    has_link: bool,
    has_links: bool,
) -> str:
    """The text of an object after its attributes, without its end. path: that of the resource. Of a chosen relationship
    the linkage begins in its links, which may have `next`."""
    members = []
    for relationship in relationships:
        parts, is_chosen = [], relationship.name in linked and relationship.name in chosen
        links = ""
        if has_links and "read" in relationship.methods:
            own, related = relationship_path(path, relationship), related_path(path, relationship)
            links = f'"links":{{"self":"{own}","related":"{related}"'
        if is_chosen:
            parts.append(links + _LINKAGE)
        elif links:
            parts.append(links + "}")
        if relationship.name in linked and not is_chosen:
            parts.append(f'"data":{_LINKAGE}')
        if parts:
            members.append(f"{json.dumps(relationship.name)}:{{{','.join(parts)}}}")
    text = f',"relationships":{{{",".join(members)}}}' if members else ""
    return text + (f',"links":{{"self":"{path}"}}' if has_link else "")
