"""Decodes single operations. What comes in: a JSON value. What goes out: an operation, and each error with its pointer.

Each `lid` is checked here: exactly one `add` defines it, and only later operations use it. It must not know: resources.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from querybuild.errors import ApiError, quoted
from querybuild.filters import FilterReader
from querybuild.parse import ON_CONFLICT, conflict_names
from querybuild.query import Bulk, Change, ChangeKind, Identifier, Lid, Limits, LinkMode, OnConflict, VersionMatch
from serializers.decode import Decoder
from serializers.errors import InvalidDocument, MalformedOperations
from serializers.tags import read_match

MEMBER = "atomic:operations"
POINTER = f"/{MEMBER}"

_MODES: dict[str, LinkMode] = {"add": "add", "update": "replace", "remove": "remove"}

CHANGE_OF_OP: dict[str, ChangeKind] = {"add": "create", "update": "update", "remove": "delete"}
"""What an operation on a resource does."""

_BULK_MEMBERS = {"filter", "max"}
"""What the `meta` of an operation on many resources has."""


class Operation(msgspec.Struct, frozen=True):
    """One operation of a request. change: None if the operation has errors. is_linkage: whether it only writes a
    relationship. object: the operation as it was sent, shown in its error."""

    op: str
    pointer: str
    change: Change | None
    is_linkage: bool
    object: dict[str, Any]


class Reader:
    """Decodes the operations of one request, and keeps the lids that were defined so far."""

    def __init__(self, errors: list[ApiError], limits: Limits, *, is_extended: bool) -> None:
        self._errors = errors
        self._limits = limits
        self._decoder = Decoder(errors, takes_lids=True)
        self._filters = FilterReader(limits, errors)
        self._is_extended = is_extended
        self._defined_lids: set[Lid] = set()

    def operation(self, item: Any, pointer: str) -> Operation:
        """Decode one operation, and check its lids."""
        if not isinstance(item, dict):
            self._malformed("An operation must be an object.", pointer)
            return Operation("", pointer, None, False, {})
        op, is_linkage = item.get("op"), "relationship" in object_of(item.get("ref"))
        change = None
        if not isinstance(op, str) or op not in _MODES:
            self._malformed("`op` must be add, update or remove.", f"{pointer}/op")
        elif "href" in item:
            self._malformed("`href` is not supported: name a resource by `ref`.", f"{pointer}/href")
        elif is_linkage:
            change = self._linkage(item, Change(kind="update", type=None), _MODES[op], pointer)
        elif op != "add" and _BULK_MEMBERS & object_of(item.get("meta")).keys():
            change = self._bulk(item, Change(kind=CHANGE_OF_OP[op], type=None), pointer)
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
        of_linkage = "relationship" in object_of(item.get("ref"))
        return msgspec.structs.replace(change, match=VersionMatch(versions, of_linkage=of_linkage, pointer=pointer))

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
        if asked.kind == "create" and "ref" in item and item["ref"] != {"type": object_of(item["data"]).get("type")}:
            self._malformed("The `ref` of an `add` names the type of its `data`, or a relationship.", f"{pointer}/ref")
            return None
        change = self._decoder.resource(item["data"], f"{pointer}/data", asked)
        return self._addressed(change, item, pointer) if change is not None and asked.kind == "update" else change

    def _bulk(self, item: dict[str, Any], asked: Change, pointer: str) -> Change | None:
        """Decode an operation on the resources that a filter finds. asked: as for `_resource`."""
        known, ref, meta = len(self._errors), object_of(item.get("ref")), item["meta"]
        if self._is_extended:
            detail = "The `atomic` extension has no operation with a filter: send it without the `ext`."
            self._malformed(detail, f"{pointer}/meta")
        elif ref.keys() & {"id", "lid"} or "ref" not in item:
            detail = (
                "An operation with a filter has a `ref` with only the `type`: it names no resource by `id` or `lid`."
            )
            self._malformed(detail, f"{pointer}/ref")
        if "ifMatch" in meta:
            self._malformed(
                "An operation with a filter has no `ifMatch`: name one resource.", f"{pointer}/meta/ifMatch"
            )
        if len(self._errors) > known:
            return None
        type_name = self._decoder.string(ref, "type", f"{pointer}/ref")
        bulk = self._found(meta, f"{pointer}/meta")
        change = msgspec.structs.replace(asked, type=type_name, bulk=bulk, pointer=f"{pointer}/ref")
        if asked.kind == "update":
            change = self._same_for_all(item.get("data"), change, f"{pointer}/data")
        return change if len(self._errors) == known else None

    def _found(self, meta: dict[str, Any], pointer: str) -> Bulk | None:
        """Decode which resources an operation with a filter writes."""
        most, max_rows = self._limits.max_bulk_rows, meta.get("max")
        if type(max_rows) is not int or not 1 <= max_rows <= most:
            detail = f"`max` must be a whole number from 1 to {most}: if more resources are found, nothing is written."
            self._malformed(detail, f"{pointer}/max")
        if "filter" not in meta:
            detail = "There must be a `filter`, as in a list: `[]` finds all resources of the type."
            self._malformed(detail, f"{pointer}/filter")
            return None
        nodes = self._filters.tree("filter", meta["filter"], f"{pointer}/filter")
        return Bulk(nodes, max_rows, pointer) if isinstance(max_rows, int) else None

    def _same_for_all(self, data: Any, change: Change, pointer: str) -> Change:
        """Return the change with the attributes that all found resources get."""
        if not isinstance(data, dict) or "attributes" not in data:
            self._malformed("An update with a filter must have `data` with `attributes`.", pointer)
            return change
        for name in ("id", "lid", "relationships"):
            if name in data:
                self._invalid("An update with a filter only has attributes.", f"{pointer}/{name}")
        if data.get("type", change.type) != change.type:
            self._invalid("The `type` of `data` is not that of `ref`.", f"{pointer}/type")
        sent = {"type": change.type, "attributes": data["attributes"]}
        return self._decoder.resource(sent, pointer, change) or change

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
        if not self._is_extended:
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
        if self._decoder.is_partial(item, pointer):
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


def unread(item: Any, pointer: str) -> Operation:
    """Return an operation that is not decoded."""
    return Operation(_op_name(item), pointer, None, False, object_of(item))


def _op_name(item: Any) -> str:
    op = object_of(item).get("op")
    return op if isinstance(op, str) and op in _MODES else ""


def uses_lid(change: Change, lids: set[Lid]) -> bool:
    """Whether the change refers to a resource by one of these lids."""
    if change.kind != "create" and change.lid is not None and change.id is None:
        return Lid(str(change.type), change.lid) in lids
    return any(
        identifier.lid is not None and Lid(identifier.type, identifier.lid) in lids
        for identifier in _identifiers(change)
    )


def object_of(value: Any) -> dict[str, Any]:
    """Return a JSON value if it is an object, otherwise an empty one."""
    return value if isinstance(value, dict) else {}
