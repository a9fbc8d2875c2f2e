"""Encodes rows as documents. What comes in: a plan, once; then the rows, links and meta of each response. What goes
out: bytes.

A resource object is a prepared text with gaps for the id, the attributes as msgspec writes them, and the linkage.

It must not know: SQL, HTTP.
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

from querybuild.declarations.json_texts import JsonFault, load_json
from querybuild.declarations.resource import Attribute, Relationship, Resource
from querybuild.declarations.types import SEQUENCE_TYPES
from querybuild.planning.plan import Node, ReadPlan
from querybuild.planning.rows import Row, key_position, with_computed
from serializers.compound import (
    Level,
    Linkage,
    has_repeated_types,
    has_text_ids,
    id_encoder,
    identifier_encoder,
    levels,
    merge,
    single_level,
)
from serializers.errors import answer_too_large
from serializers.links import quote_segment, related_path, relationship_path, resource_path
from serializers.objects import JSONAPI, Meta
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
_FIRST = itemgetter(0)

Document = bytes | Steps[list[bytes]]
"""A document, or for a long one the steps that produce its pieces."""

HEAD = b'{"jsonapi":' + bytes(JSONAPI) + b',"data":'


class ResourceEncoder:
    """Writes the resource objects of one type and one fieldset. linked: the relationships that have `data`. has_link:
    whether each object has a `self` link."""

    def __init__(self, node: Node, linked: tuple[str, ...], base_url: str, *, has_link: bool) -> None:
        resource, attributes, relationships = node.resource, node.attributes, node.relationships
        self._values = _values_of(node)
        self._own = itemgetter(slice(1, 1 + len(attributes)))
        self._struct = _struct_of(attributes)
        self._ids = id_encoder(resource)
        self._has_quoted_ids = has_text_ids(resource)
        self._has_attributes = bool(attributes)
        linkage_indexes = [linked.index(relation.name) for relation in relationships if relation.name in linked]
        text = f'{{"type":{json.dumps(resource.type)},"id":"{_ID}"' + (f',"attributes":{_OWN}' if attributes else "")
        text += _object_tail(resource, relationships, linked, base_url, has_link=has_link)
        pieces = _pieces(text, linkage_indexes)
        self._constants: list[Iterable[bytes]] = [repeat(one if isinstance(one, bytes) else b"") for one in pieces]
        self._urls = [(index, repeat(one)) for index, one in enumerate(pieces) if isinstance(one, tuple)]
        self._columns = [(index, one) for index, one in enumerate(pieces) if isinstance(one, str)]
        self._linkage = [(index, one) for index, one in enumerate(pieces) if isinstance(one, int)]
        self._id = _single_id(resource)
        self._text, self._gaps = _template(pieces)

    def encode_one(self, row: Row, linkage: Sequence[bytes]) -> bytes:
        """Return the object of one row. linkage: the `data` of each relationship in `linked`."""
        row_id = self._id(row[0])
        own = self._own(row) if self._values is None else next(self._values([row]))
        url_id = quote_segment(row[0]).encode() if self._has_quoted_ids else row_id
        text: bytes = self._text % self._gaps((row_id, _ENCODER.encode(self._struct(*own)), url_id, *linkage))
        return text

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
        for index, mark in self._columns:
            values[index] = columns[mark]
        for index, place in self._linkage:
            values[index] = linkage[place]
        return list(map(b"".join, zip(*values, strict=False)))

    def _attributes(self, rows: Sequence[Row]) -> list[bytes]:
        """Return the attributes object of each row, all from one call. A value of a `json` column is copied as it is
        and may contain line breaks. Then the lines are not the objects, and each object is encoded separately."""
        structs = list(starmap(self._struct, map(self._own, rows) if self._values is None else self._values(rows)))
        lines = _ENCODER.encode_lines(structs).split(b"\n")
        lines.pop()
        return lines if len(lines) == len(rows) else [_ENCODER.encode(one) for one in structs]


def _values_of(node: Node) -> Callable[[Sequence[Row]], Iterator[list[Any]]] | None:
    """Return a function that yields the shown attribute values of rows, or None if the rows already have them."""
    shown = [(index, one.type.shown) for index, one in enumerate(node.attributes) if one.type.shown is not None]
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
    index_of = {attribute: index for index, attribute in enumerate(node.read, 1)}
    index_of |= {attribute: index - len(node.computed) for index, attribute in enumerate(node.computed)}
    indexes = [index_of[attribute] for attribute in node.attributes]
    return lambda rows, _: ([row[index] for index in indexes] for row in rows)


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


# Marks for the gaps of the id in a URL, the linkage, the id, and the attributes. JSON text never contains these
# characters unescaped.
_URL_ID, _LINKAGE, _ID, _OWN = "\x00", "\x01", "\x02", "\x03"

_Piece = bytes | tuple[bytes, ...] | int | str
"""A piece of the text of an object. bytes: constant. tuple: constant texts to join with the id of a URL. int: the index
of the linkage. str: the mark of a column."""


def _pieces(text: str, linkage_indexes: Sequence[int]) -> list[_Piece]:
    """Split the text of an object into pieces."""
    linkages = iter(linkage_indexes)
    pieces: list[_Piece] = []
    for piece in re.split("([\x01-\x03])", text):
        if piece == _LINKAGE:
            pieces.append(next(linkages))
        elif piece in (_ID, _OWN):
            pieces.append(piece)
        elif piece:
            constant = tuple(piece.encode().split(_URL_ID.encode()))
            pieces.append(constant if len(constant) > 1 else constant[0])
    return pieces


def _template(pieces: Sequence[_Piece]) -> tuple[bytes, Callable[[Sequence[bytes]], Any]]:
    """Return the text of one object as a format, and a function that returns the values of its gaps, out of the id, the
    attributes, the id in a URL, and the linkage."""
    text, gaps = b"", list[int]()
    for piece in pieces:
        if isinstance(piece, tuple):
            text += b"%b".join([part.replace(b"%", b"%%") for part in piece])
            gaps += [2] * (len(piece) - 1)
        elif isinstance(piece, bytes):
            text += piece.replace(b"%", b"%%")
        else:
            text += b"%b"
            gaps.append(3 + piece if isinstance(piece, int) else 0 if piece == _ID else 1)
    return text, itemgetter(*gaps)


def _single_id(resource: Resource) -> Callable[[Any], bytes]:
    """Return what `id_encoder` does, for one id."""
    encode = id_encoder(resource)
    if resource.id.type in SEQUENCE_TYPES:
        return b"%d".__mod__
    return lambda value: encode([value])[0]


def _object_tail(
    resource: Resource,
    relationships: tuple[Relationship, ...],
    linked: tuple[str, ...],
    base_url: str,
    *,
    has_link: bool,
) -> str:
    """The text of an object after its attributes."""
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
        linkage = [b"null" if row[place] is None else identifier(row[place]) for place, identifier, _ in keys]
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
