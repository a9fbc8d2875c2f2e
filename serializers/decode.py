"""Decodes request documents. What comes in: the bytes of a body. What goes out: a Change, or linkage, and each error in
the structure of the document with its JSON pointer. Names are not resolved here. Members that JSON:API does not define
are ignored, as the specification requires.

It must not know: resources. Source: JSON:API 1.0 "Creating, Updating and Deleting Resources".
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec

from querybuild.declarations.json_texts import JsonFault, ParsedJson, check_values, parse_json
from querybuild.errors import ApiError, IdConflict, quoted
from querybuild.query import Change, Identifier, Limits, LinkageChange, LinkMode
from serializers.errors import InvalidDocument, MalformedJson, PartialLinkage
from serializers.pointers import META, member_pointer, relationship_pointer

_MAX_DIGITS = 40
"""More digits than any id has that is a whole number. An exponent may stand for millions of them."""


def decode_resource_document(body: bytes, asked: Change, errors: list[ApiError], limits: Limits) -> Change | None:
    """Decode the document of a POST or PATCH. Returns None if it has no resource object. asked: the change as the
    request asks for it besides its document, without an id.

    Raises MalformedJson. Appends InvalidDocument to errors.
    """
    decoder = Decoder(errors, takes_lids=False)
    document = decoder.document(body, limits)
    return None if document is None else decoder.resource(document["data"], "/data", asked)


def decode_linkage_document(
    body: bytes, errors: list[ApiError], limits: Limits, *, mode: LinkMode
) -> LinkageChange | None:
    """Decode the document of a relationship route. Returns None if it has no linkage.

    Raises MalformedJson. Appends InvalidDocument to errors.
    """
    decoder = Decoder(errors, takes_lids=False)
    document = decoder.document(body, limits)
    if document is None or decoder.is_partial(document, ""):
        return None
    return decoder.linkage(document["data"], "/data", mode=mode)


def load_document(body: bytes, limits: Limits) -> Any:
    """Return the JSON value of a body. Raises MalformedJson."""
    return checked_document(parse_document(body, limits))


def parse_document(body: bytes, limits: Limits) -> ParsedJson:
    """Return the JSON value of a body, which may have to be checked. Raises MalformedJson."""
    try:
        text = body.decode()
        check_values(text, limits.max_json_values)
        return parse_json(text, limits.max_json_depth, allows_nul=True)
    except UnicodeDecodeError as error:
        raise MalformedJson(f"The body is not UTF-8 at byte {error.start}.", pointer="") from error
    except JsonFault as error:
        raise _invalid_json(error) from error


def checked_document(parsed: ParsedJson) -> Any:
    """Return the JSON value. Raises MalformedJson."""
    try:
        return parsed.checked()
    except JsonFault as error:
        raise _invalid_json(error) from error


def _invalid_json(error: JsonFault) -> MalformedJson:
    return MalformedJson(f"The body is not valid JSON: {error}.", pointer="")


def with_id(change: Change, id_text: str, errors: list[ApiError], *, of: str = "the path") -> Change:
    """Return the change of the resource that the path names, or that is related to it. Appends IdConflict if the
    document names another."""
    if change.id is not None and change.id != id_text:
        detail = f"The document's id {quoted(change.id)} is not the id {quoted(id_text)} of {of}."
        errors.append(IdConflict(detail, pointer=member_pointer(change.pointer, "id")))
    return msgspec.structs.replace(change, id=id_text)


def decode_meta(body: bytes, errors: list[ApiError], limits: Limits) -> dict[str, Any] | None:
    """Return the `meta` of a document that has nothing else, or None if it has no valid one. An empty body is an empty
    `meta`. Raises MalformedJson. Appends InvalidDocument to errors."""
    document = checked_document(parse_document(body, limits)) if body else {}
    meta = document.get("meta", {}) if isinstance(document, dict) else None
    if isinstance(meta, dict):
        return meta
    pointer = META if isinstance(document, dict) else ""
    errors.append(InvalidDocument("The document must be an object whose `meta` is an object.", pointer=pointer))
    return None


class Decoder:
    """Reads the objects of one request document and collects their errors. takes_lids: whether a `lid` may replace an
    `id`, as in atomic operations."""

    def __init__(self, errors: list[ApiError], *, takes_lids: bool) -> None:
        self.errors = errors
        self.takes_lids = takes_lids

    def add_error(self, detail: str, pointer: str) -> None:
        """Add an InvalidDocument to the errors."""
        self.errors.append(InvalidDocument(detail, pointer=pointer))

    def document(self, body: bytes, limits: Limits) -> dict[str, Any] | None:
        """Return the document, or None if it has no `data`. Raises MalformedJson."""
        document = load_document(body, limits)
        if not isinstance(document, dict):
            self.add_error("A document is a JSON object.", "")
            return None
        if "data" not in document:
            self.add_error("The document has no `data`.", "/data")
            return None
        return document

    def resource(self, data: Any, pointer: str, asked: Change) -> Change | None:
        """Return the change with what the resource object at the pointer has, or None if there is no object."""
        kind = asked.kind
        if not isinstance(data, dict):
            self.add_error("`data` must be one resource object.", pointer)
            return None
        lid = self.lid(data, pointer)
        undecoded = {name for name in ("attributes", "relationships") if not isinstance(data.get(name, {}), dict)}
        linkages: dict[str, LinkageChange] = {}
        for name, value in (self._object(data, "relationships", pointer) or {}).items():
            if kind == "update" and _is_unchanged(value):
                continue
            linkage = self._relationship(value, relationship_pointer(pointer, name))
            if linkage is None:
                undecoded.add(f"relationships/{name}")
            else:
                linkages[name] = linkage
        return msgspec.structs.replace(
            asked,
            type=self.string(data, "type", pointer),
            # Some clients send null as the id of a new resource.
            id=None
            if kind == "create" and data.get("id") is None
            else self.id(data, pointer, is_required=kind == "update" and not self.takes_lids),
            lid=lid,
            attributes=self._object(data, "attributes", pointer),
            relationships=linkages,
            undecoded=frozenset(undecoded),
            pointer=pointer,
        )

    def linkage(self, data: Any, pointer: str, *, mode: LinkMode = "replace") -> LinkageChange | None:
        """Decode resource linkage: null, one resource identifier object, or an array of them."""
        if data is None:
            return LinkageChange((), False, pointer, mode)
        if isinstance(data, list):
            identifiers = [self._identifier(item, f"{pointer}/{index}") for index, item in enumerate(data)]
            return LinkageChange(tuple(item for item in identifiers if item is not None), True, pointer, mode)
        identifier = self._identifier(data, pointer)
        return None if identifier is None else LinkageChange((identifier,), False, pointer, mode)

    def is_partial(self, value: dict[str, Any], pointer: str) -> bool:
        """Return whether linkage is only a part of all, as a read has shown it. Then add an error: written back, it
        would remove the links that were not shown."""
        if not _has_partial(value):
            return False
        detail = (
            "This linkage was read in part, and the write would remove the links that were not shown. Read all of it "
            "first, or add and remove single links. If these are meant to be all links, send it without `meta.partial`."
        )
        self.errors.append(PartialLinkage(detail, pointer=f"{pointer}/meta/partial"))
        return True

    def lid(self, data: dict[str, Any], pointer: str) -> str | None:
        """Return the `lid` of an object, or None if it has no valid one."""
        if "lid" not in data:
            return None
        lid = data["lid"]
        if not self.takes_lids:
            self.add_error("A `lid` is only allowed in atomic operations.", f"{pointer}/lid")
        elif not isinstance(lid, str) or not lid:
            self.add_error("`lid` must be a string that is not empty.", f"{pointer}/lid")
        else:
            return lid
        return None

    def string(self, data: dict[str, Any], name: str, pointer: str) -> str | None:
        """Return the member with this name, or None if it is not a string."""
        value = data.get(name)
        if isinstance(value, str):
            return value
        what = f"`{name}` must be a string." if name in data else f"There is no `{name}`."
        self.add_error(what, f"{pointer}/{name}")
        return None

    def id(self, data: dict[str, Any], pointer: str, *, is_required: bool) -> str | None:
        """Return the id as text, or None if there is no valid one. A whole number is accepted as its digits, also if it
        is written as `3.0`."""
        value = data.get("id")
        if isinstance(value, str):
            return value
        if isinstance(value, Decimal) and abs(value.adjusted()) < _MAX_DIGITS and value == value.to_integral_value():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if "id" in data or is_required:
            what = "`id` must be a string or a whole number." if "id" in data else "There is no `id`."
            self.add_error(what, f"{pointer}/id")
        return None

    def check_id_or_lid(self, id_text: str | None, lid: str | None, pointer: str) -> bool:
        """Return whether at most one of the two is given. Otherwise add an error."""
        if id_text is not None and lid is not None:
            self.add_error("A resource is identified by its `id` or by its `lid`, not by both.", f"{pointer}/lid")
            return False
        return True

    def _object(self, data: dict[str, Any], name: str, pointer: str) -> dict[str, Any] | None:
        if name not in data:
            return None
        value = data[name]
        if isinstance(value, dict):
            return value
        self.add_error(f"`{name}` must be an object.", f"{pointer}/{name}")
        return None

    def _relationship(self, value: Any, pointer: str) -> LinkageChange | None:
        if not isinstance(value, dict):
            self.add_error("A relationship must be an object with `data`.", pointer)
            return None
        if "data" not in value:
            self.add_error("The relationship has no `data`.", f"{pointer}/data")
            return None
        if self.is_partial(value, pointer):
            return None
        return self.linkage(value["data"], f"{pointer}/data")

    def _identifier(self, value: Any, pointer: str) -> Identifier | None:
        if not isinstance(value, dict):
            self.add_error("Resource linkage must consist of resource identifier objects, or be null.", pointer)
            return None
        lid = self.lid(value, pointer)
        type_name = self.string(value, "type", pointer)
        id_text = self.id(value, pointer, is_required="lid" not in value)
        if type_name is None or (id_text is None and lid is None) or not self.check_id_or_lid(id_text, lid, pointer):
            return None
        return Identifier(type_name, id_text or "", pointer, lid)


def _is_unchanged(value: Any) -> bool:
    """Whether a relationship has links and no `data`, as in responses, or shows none of its links. A client that sends
    back a resource as it was read does not want to change such a relationship."""
    return isinstance(value, dict) and "data" not in value and ("links" in value or _has_partial(value))


def _has_partial(value: dict[str, Any]) -> bool:
    meta = value.get("meta")
    return isinstance(meta, dict) and meta.get("partial") is True
