"""Decodes requests of atomic operations and encodes their results. What comes in: the bytes of a body, and later the
resource objects that were written. What goes out: operations in their order, each error with its pointer; a document.

Each `lid` is checked here: exactly one `add` defines it, and only later operations use it. It must not know: resources.

Sources: service.md "Atomic operations route"; the JSON:API extension https://jsonapi.org/ext/atomic.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import chain, takewhile
from typing import Any

import msgspec

from querybuild.declarations.json_texts import ParsedJson, count_names
from querybuild.errors import NAME_CHARACTERS, SHOWN_CHARACTERS, ApiError, quoted, shortened
from querybuild.parse import ON_CONFLICT, conflict_names
from querybuild.query import Change, ChangeKind, Identifier, Lid, LinkMode, Match, OnConflict
from serializers.decode import Decoder, checked_document
from serializers.errors import InvalidDocument, MalformedOperations
from serializers.objects import ErrorObject
from serializers.pointers import tokens
from serializers.tags import read_match

MEMBER = "atomic:operations"
POINTER = f"/{MEMBER}"

SHOWN_VALUES = 1000
"""How many values of a failed operation its error shows."""

_MODES: dict[str, LinkMode] = {"add": "add", "update": "replace", "remove": "remove"}

CHANGE_OF_OP: dict[str, ChangeKind] = {"add": "create", "update": "update", "remove": "delete"}
"""What an operation on a resource does."""


class Operation(msgspec.Struct, frozen=True):
    """One operation of a request. change: None if the operation has errors. is_linkage: whether it only writes a
    relationship. object: the operation as it was sent, shown in its error."""

    op: str
    pointer: str
    change: Change | None
    is_linkage: bool
    object: dict[str, Any]


def load_operations(parsed: ParsedJson, max_operations: int) -> list[Any]:
    """Return the JSON values of the operations of a request. Raises MalformedJson, MalformedOperations."""
    document = checked_document(parsed)
    listed = document.get(MEMBER) if isinstance(document, dict) else None
    if not isinstance(listed, list) or not listed:
        raise MalformedOperations(f"The document must have `{MEMBER}`, an array of operations.", pointer=POINTER)
    if len(listed) > max_operations:
        detail = f"There are {len(listed)} operations; a request has at most {max_operations}."
        raise MalformedOperations(detail, pointer=POINTER)
    return listed


def decode_operations(
    listed: list[Any], operations: list[Operation], errors: list[ApiError], *, takes_relationships: bool
) -> None:
    """Decode operations. They are appended in their order, so that an error that is raised halfway can show the
    operation that it is about. takes_relationships: whether a `ref` may name a relationship, as in the extension.

    Appends MalformedOperations and InvalidDocument to errors.
    """
    reader = _Reader(errors, takes_relationships)
    for index, item in enumerate(listed):
        pointer = f"{POINTER}/{index}"
        # It is appended before it is decoded, because an error shows the operation.
        operations.append(Operation(_op_name(item), pointer, None, False, _object(item)))
        operations[-1] = reader.operation(item, pointer)


class UniformAdds(msgspec.Struct, frozen=True):
    """Adds of one type whose documents have the same members. values: as JSON values. first: the first one.
    attributes: the values of each attribute in all of them, in the order of the document. linked: for each
    relationship, all of which are to-one, the type and the ids."""

    values: list[Any]
    first: Change
    attributes: Sequence[Sequence[Any]]
    linked: Sequence[tuple[str, Sequence[str]]]


_ALIKE_MEMBERS = {"type", "lid", "attributes", "relationships"}


_ATTRIBUTE_DEPTH, _ALIKE_DEPTH = 5, 7
"""How deep the attributes of an operation are in the document, and how deep linkage is."""


def uniform_adds(parsed: ParsedJson, min_operations: int, max_operations: int) -> UniformAdds | None:
    """Decode operations column by column. Returns None if they are not alike or of another number, if there may be an
    error in the JSON or in their structure, or if the text may contain U+0000: then they are decoded one by one."""
    document, text = parsed.tree, parsed.text
    listed = document.get(MEMBER) if isinstance(document, dict) else None
    if not isinstance(listed, list) or not min_operations <= len(listed) <= max_operations:
        return None
    if parsed.max_depth < _ALIKE_DEPTH or ("\\" in text and "\\u0000" in text):
        return None
    reader = _ColumnReader()
    try:
        attributes, linked = reader.adds(listed)
    except (KeyError, TypeError, ValueError):
        return None
    if not parsed.is_checked and not parsed.has_names(_names(parsed, reader, attributes)):
        return None
    errors: list[ApiError] = []
    first = _Reader(errors, takes_relationships=False).operation(listed[0], f"{POINTER}/0").change
    return None if first is None or errors else UniformAdds(listed, first, attributes, linked)


def _names(parsed: ParsedJson, reader: _ColumnReader, attributes: Sequence[Sequence[Any]]) -> int | None:
    """Return how many names the document has, or None if it is nested too deep. Only what may be nested is looked
    at."""
    document, containers = parsed.tree, parsed.containers
    others = count_names([document[name] for name in document if name != MEMBER], containers, parsed.max_depth - 1)
    inner: int | None = 0
    if reader.objects < containers - 2:
        inner = count_names(chain.from_iterable(attributes), containers, parsed.max_depth - _ATTRIBUTE_DEPTH)
    return None if others is None or inner is None else len(document) + others + reader.names + inner


class _ColumnReader:
    """Reads the members of similar objects as columns. objects, names: how many objects it has read, and how many names
    they have together."""

    def __init__(self) -> None:
        self.objects = self.names = 0

    def adds(self, listed: Sequence[Any]) -> tuple[list[Sequence[Any]], list[tuple[str, Sequence[str]]]]:
        """Return the attributes and the linkage of adds. Raises KeyError, TypeError, ValueError if they are not
        alike."""
        operations = self._columns(listed)
        data = self._columns(operations.pop("data"))
        if "meta" in operations:
            [(name, values)] = self._columns(operations.pop("meta")).items()
            if name != ON_CONFLICT or not _only(values):
                raise ValueError
        if set(operations) != {"op"} or not data.keys() <= _ALIKE_MEMBERS or _only(operations["op"]) != "add":
            raise ValueError
        _only(data["type"])
        lids = data.get("lid", ())
        if len(set(lids)) < len(lids) or not all(lids) or not set(map(type, lids)) <= {str}:
            raise ValueError
        attributes = self._columns(data["attributes"]) if "attributes" in data else {}
        relationships = self._columns(data["relationships"]) if "relationships" in data else {}
        return list(attributes.values()), [self._linked(linkage) for linkage in relationships.values()]

    def _linked(self, objects: Sequence[Any]) -> tuple[str, Sequence[str]]:
        """Return the type and the ids of to-one linkage. Raises KeyError, TypeError, ValueError if that is not all."""
        linkage = self._columns(objects)
        identifiers = self._columns(linkage.pop("data"))
        type_name, ids = _only(identifiers.pop("type")), identifiers.pop("id")
        if linkage or identifiers or set(map(type, ids)) != {str}:
            raise ValueError
        return type_name, ids

    def _columns(self, objects: Sequence[Any]) -> dict[str, Sequence[Any]]:
        """Return the members of objects as columns. Raises TypeError if one is no object, ValueError if their names
        differ or have another order."""
        [names] = set(map(tuple, objects))
        self.objects += len(objects)
        self.names += len(objects) * len(names)
        # Of other types than dict this raises TypeError.
        return dict(zip(names, zip(*map(dict.values, objects), strict=True), strict=True))


def _only(values: Sequence[Any]) -> Any:
    """Return the value that all are. Raises ValueError, or TypeError if they cannot be compared."""
    [value] = set(values)
    return value


class _Reader:
    """Decodes the operations of one request, and keeps the lids that were defined so far."""

    def __init__(self, errors: list[ApiError], takes_relationships: bool) -> None:
        self._errors = errors
        self._decoder = Decoder(errors, takes_lids=True)
        self._takes_relationships = takes_relationships
        self._defined_lids: set[Lid] = set()

    def operation(self, item: Any, pointer: str) -> Operation:
        """Decode one operation, and check its lids."""
        if not isinstance(item, dict):
            self._malformed("An operation must be an object.", pointer)
            return Operation("", pointer, None, False, {})
        op, is_linkage = item.get("op"), "relationship" in _object(item.get("ref"))
        change = None
        if not isinstance(op, str) or op not in _MODES:
            self._malformed("`op` must be add, update or remove.", f"{pointer}/op")
        elif "href" in item:
            self._malformed("`href` is not supported: name a resource by `ref`.", f"{pointer}/href")
        elif is_linkage:
            change = self._linkage(item, Change(kind="update", type=None), _MODES[op], pointer)
        else:
            change = self._resource(item, Change(kind=CHANGE_OF_OP[op], type=None), pointer)
        if change is not None:
            change = self._or_update(self._matched(change, item, pointer), item, pointer)
            self._check_lids(change, pointer)
        return Operation(_op_name(item), pointer, change, is_linkage, item)

    def _matched(self, change: Change, item: dict[str, Any], pointer: str) -> Change:
        """Return the change with the version that `ifMatch` in the `meta` of the operation demands."""
        meta = item.get("meta")
        if not isinstance(meta, dict) or "ifMatch" not in meta:
            return change
        pointer = f"{pointer}/meta/ifMatch"
        if item["op"] == "add":
            self._malformed("An `add` has no `ifMatch`: it changes nothing that was read.", pointer)
            return change
        try:
            versions = read_match(meta["ifMatch"]).versions
        except ValueError:
            self._malformed("`ifMatch` must be a version, a tag with its quotes, an array of these, or `*`.", pointer)
            return change
        of_linkage = "relationship" in _object(item.get("ref"))
        return msgspec.structs.replace(change, match=Match(versions, of_linkage=of_linkage, pointer=pointer))

    def _or_update(self, change: Change, item: dict[str, Any], pointer: str) -> Change:
        """Return the change with the fields that `onConflict` in the `meta` of the operation names."""
        meta = item.get("meta")
        if not isinstance(meta, dict) or ON_CONFLICT not in meta:
            return change
        pointer, text = f"{pointer}/meta/{ON_CONFLICT}", meta[ON_CONFLICT]
        names = conflict_names(text) if isinstance(text, str) else None
        if change.kind != "create":
            self._malformed(f"Only an `add` of a resource has `{ON_CONFLICT}`.", pointer)
        elif names is None:
            self._malformed(f"`{ON_CONFLICT}` must be a text with the fields of one unique key, each once.", pointer)
        else:
            return msgspec.structs.replace(change, on_conflict=OnConflict(names, pointer=pointer))
        return change

    def _resource(self, item: dict[str, Any], asked: Change, pointer: str) -> Change | None:
        """Decode an operation on a resource. asked: the change as the operation asks for it besides its target and its
        data."""
        if asked.kind == "delete":
            return self._target(item.get("ref"), asked, f"{pointer}/ref")
        if "data" not in item:
            self._malformed(f"An {item['op']} must have `data`.", f"{pointer}/data")
            return None
        if asked.kind == "create" and "ref" in item and item["ref"] != {"type": _object(item["data"]).get("type")}:
            self._malformed("The `ref` of an `add` names the type of its `data`, or a relationship.", f"{pointer}/ref")
            return None
        change = self._decoder.resource(item["data"], f"{pointer}/data", asked)
        return self._addressed(change, item, pointer) if change is not None and asked.kind == "update" else change

    def _addressed(self, change: Change, item: dict[str, Any], pointer: str) -> Change | None:
        """Return the update with the target that `ref` names, or `data` if there is no `ref`. The two must not
        differ."""
        if "ref" not in item:
            if change.id is None and change.lid is None:
                if not {"id", "lid"} & item["data"].keys():
                    self._invalid("There is no `id`.", f"{change.pointer}/id")
                return None
            if not self._decoder.check_id_or_lid(change.id, change.lid, change.pointer):
                return None
            member = "lid" if change.id is None else "id"
            return msgspec.structs.replace(change, id_pointer=f"{change.pointer}/{member}")
        target = self._target(item["ref"], Change(kind="update", type=None), f"{pointer}/ref")
        if target is None:
            return None
        for name in ("type", "id", "lid"):
            sent, named = getattr(change, name), getattr(target, name)
            if sent is not None and sent != named:
                self._invalid(f"The `{name}` of `data` is not that of `ref`.", f"{change.pointer}/{name}")
                return None
        return msgspec.structs.replace(
            change, type=target.type, id=target.id, lid=target.lid, id_pointer=target.id_pointer
        )

    def _target(self, ref: Any, asked: Change, pointer: str) -> Change | None:
        """Return the change with the target that a `ref` names: a type, and an id or a lid."""
        if not isinstance(ref, dict):
            self._malformed("There must be a `ref`, an object of `type` and `id` or `lid`.", pointer)
            return None
        type_name, lid = self._decoder.string(ref, "type", pointer), self._decoder.lid(ref, pointer)
        id_text = self._decoder.id(ref, pointer, is_required="lid" not in ref)
        if type_name is None or (id_text is None and lid is None):
            return None
        if not self._decoder.check_id_or_lid(id_text, lid, pointer):
            return None
        id_pointer = f"{pointer}/{'lid' if id_text is None else 'id'}"
        return msgspec.structs.replace(
            asked, type=type_name, id=id_text, lid=lid, pointer=pointer, id_pointer=id_pointer
        )

    def _linkage(self, item: dict[str, Any], asked: Change, mode: LinkMode, pointer: str) -> Change | None:
        """Decode an operation on a relationship. It is an update of the resource that has the relationship."""
        target = self._target(item["ref"], asked, f"{pointer}/ref")
        if not self._takes_relationships:
            detail = "Relationships can only be changed here with the media type of the `atomic` extension."
            self._malformed(detail, f"{pointer}/ref/relationship")
            return None
        name = item["ref"]["relationship"]
        if not isinstance(name, str):
            self._malformed("`relationship` must be a string.", f"{pointer}/ref/relationship")
            return None
        if "data" not in item:
            self._malformed("An operation on a relationship must have `data`.", f"{pointer}/data")
            return None
        linkage = self._decoder.linkage(item["data"], f"{pointer}/data", mode=mode)
        if target is None or linkage is None:
            return None
        linkage = msgspec.structs.replace(linkage, name_pointer=f"{pointer}/ref/relationship")
        return msgspec.structs.replace(target, relationships={name: linkage})

    def _check_lids(self, change: Change, pointer: str) -> None:
        if change.kind != "create" and change.lid is not None and change.type is not None:
            self._check_defined(Lid(change.type, change.lid), str(change.id_pointer))
        for identifier in _identifiers(change):
            if identifier.lid is not None:
                self._check_defined(Lid(identifier.type, identifier.lid), f"{identifier.pointer}/lid")
        if change.kind == "create" and change.lid is not None and change.type is not None:
            defined = Lid(change.type, change.lid)
            if defined in self._defined_lids:
                self._invalid("Another operation already has this `lid`.", f"{change.pointer}/lid")
            self._defined_lids.add(defined)

    def _check_defined(self, lid: Lid, pointer: str) -> None:
        if lid not in self._defined_lids:
            what = f"a resource of type {quoted(lid.type)} with this `lid`"
            self._invalid(f"No operation before this one adds {what}.", pointer)

    def _malformed(self, detail: str, pointer: str) -> None:
        self._errors.append(MalformedOperations(detail, pointer=pointer))

    def _invalid(self, detail: str, pointer: str) -> None:
        self._errors.append(InvalidDocument(detail, pointer=pointer))


def _identifiers(change: Change) -> Iterator[Identifier]:
    for linkage in change.relationships.values():
        yield from linkage.identifiers


def _op_name(item: Any) -> str:
    op = _object(item).get("op")
    return op if isinstance(op, str) and op in _MODES else ""


def uses_lid(change: Change, lids: set[Lid]) -> bool:
    """Whether the change refers to a resource by one of these lids."""
    if change.kind != "create" and change.lid is not None and change.id is None:
        return Lid(str(change.type), change.lid) in lids
    return any(
        identifier.lid is not None and Lid(identifier.type, identifier.lid) in lids
        for identifier in _identifiers(change)
    )


class OperationFault(msgspec.Struct):
    """One error of an operation. loc: the path to the wrong value, inside the operation."""

    loc: list[str | int]
    msg: str
    type: str


class OperationErrorDetail(msgspec.Struct):
    """The failed operation and its errors. data: the `data` of the operation, with null for absent members."""

    data: dict[str, Any] | None
    errors: list[OperationFault]
    message: str
    ref: Any


class OperationErrorDocument(msgspec.Struct):
    """The error document of the operations route, as service.md defines it."""

    detail: OperationErrorDetail


def encode_operation_error(operations: Sequence[Operation], errors: Sequence[ErrorObject]) -> bytes:
    """Encode the errors of the first operation that has one. If no error points to an operation, encode them as those
    of the whole request. Source: service.md, "Atomic operations route"."""
    locations = [_location(error) for error in errors]
    first = min((index for index, _ in locations if index is not None), default=None)
    operation = None if first is None or first >= len(operations) else operations[first]
    found = [(error, path) for error, (index, path) in zip(errors, locations, strict=True) if index == first]
    faults = [OperationFault(path, error.detail, error.code) for error, path in found]
    what = "Validation error" if found[0][0].status == "422" else found[0][0].title
    where = "" if operation is None else " ".join(["", *filter(None, [operation.op]), f"(at position {first})"])
    shown = {} if operation is None else _shown(operation.object, [SHOWN_VALUES])
    data = _object(shown.get("data"))
    detail = OperationErrorDetail(
        data=None if operation is None else {name: data.get(name) for name in _DATA_MEMBERS},
        errors=faults,
        message=f"{what} on operation{where}" if where else f"{what} on operations",
        ref=shown.get("ref"),
    )
    return _ENCODER.encode(OperationErrorDocument(detail))


_ENCODER = msgspec.json.Encoder(decimal_format="number")


def _shown(value: Any, left: list[int]) -> Any:
    """Return a part of the request as an error shows it: long names and texts are shortened, and it has at most
    `left[0]` values."""
    left[0] -= 1
    if isinstance(value, dict):
        pairs = takewhile(lambda _: left[0] > 0, value.items())
        return {shortened(name, NAME_CHARACTERS): _shown(one, left) for name, one in pairs}
    if isinstance(value, list):
        return [_shown(one, left) for one in takewhile(lambda _: left[0] > 0, value)]
    if isinstance(value, Decimal) and len(value.as_tuple().digits) > SHOWN_CHARACTERS:
        return shortened(str(value), SHOWN_CHARACTERS)
    return shortened(value, SHOWN_CHARACTERS) if isinstance(value, str) else value


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


_DATA_MEMBERS = ("attributes", "id", "lid", "relationships", "type")


def _location(error: ErrorObject) -> tuple[int | None, list[str | int]]:
    """Return the index of the operation that the error's pointer is in, and the path inside it."""
    pointer = None if error.source is None else error.source.pointer
    parts = tokens(pointer or "")
    # Only the operations and linkage are arrays. Elsewhere a number is a name.
    path: list[str | int] = [
        int(part) if before in (MEMBER, "data") and re.fullmatch("[0-9]{1,9}", part) else part
        for before, part in zip(["", *parts], parts, strict=False)
    ]
    if len(path) < 2 or path[0] != MEMBER or not isinstance(path[1], int):
        return None, path
    return path[1], path[2:]


Done = tuple[bytes | None, str | None]
"""What an operation has done: the resource object, or None if it has none; and the version of the row that it wrote."""


def encode_results(done: Sequence[Done], *, has_meta: bool) -> bytes:
    """Encode `{"atomic:results":[...]}`. has_meta: whether each result without a version has `"meta":null`, as
    service.md requires. The extension has no such member."""
    without = b',"meta":null}' if has_meta else b"}"
    tails = [without if one is None else b',"meta":{"version":"' + one.encode() + b'"}}' for _, one in done]
    shown = [b"null" if one is None else one for one, _ in done]
    results = [b'{"data":' + one + tail for one, tail in zip(shown, tails, strict=True)]
    return b'{"atomic:results":[' + b",".join(results) + b"]}"
