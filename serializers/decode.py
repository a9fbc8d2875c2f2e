"""Body bytes -> Change. What comes in: the bytes of a request document. What goes out: a Change, or linkage, whose
names are not resolved, and each fault of the document's form with its JSON pointer. Members that JSON:API does not
define are ignored, as it demands.

Nothing here knows a resource. Source: JSON:API 1.0 "Creating, Updating and Deleting Resources".
"""

from __future__ import annotations

from typing import Any, Literal

from querybuild.changes import escape_pointer
from querybuild.errors import ApiError
from querybuild.query import Change, Identifier, Limits, LinkageChange, LinkMode
from querybuild.values import JsonFault, check_values, load_json
from serializers.errors import InvalidDocument, MalformedJson


def decode_resource_document(
    body: bytes, errors: list[ApiError], limits: Limits, *, kind: Literal["create", "update"]
) -> Change | None:
    """The document of a POST or PATCH; None when it has no resource object to go on with.

    Raises MalformedJson. Appends InvalidDocument to errors.
    """
    decoder = Decoder(errors, takes_lids=False)
    document = decoder.document(body, limits)
    return None if document is None else decoder.resource(document["data"], "/data", kind=kind)


def decode_linkage_document(
    body: bytes, errors: list[ApiError], limits: Limits, *, mode: LinkMode
) -> LinkageChange | None:
    """The document of a relationship route; None when it has no linkage to go on with. Raises and appends as above."""
    decoder = Decoder(errors, takes_lids=False)
    document = decoder.document(body, limits)
    return None if document is None else decoder.linkage(document["data"], "/data", mode=mode)


def load_document(body: bytes, limits: Limits) -> Any:
    """A body as a tree. Raises MalformedJson."""
    try:
        text = body.decode()
        check_values(text, limits.max_json_values)
        return load_json(text, limits.max_json_depth, allows_nul=True)
    except UnicodeDecodeError as error:
        raise MalformedJson(f"The body is not UTF-8 at byte {error.start}.", pointer="") from error
    except JsonFault as error:
        raise MalformedJson(f"The body is not valid JSON: {error}.", pointer="") from error


class Decoder:
    """Reads the objects of one request document and keeps their faults. takes_lids: whether an id may be a `lid`, as in
    atomic operations."""

    def __init__(self, errors: list[ApiError], *, takes_lids: bool) -> None:
        self.errors = errors
        self.takes_lids = takes_lids

    def fault(self, detail: str, pointer: str) -> None:
        self.errors.append(InvalidDocument(detail, pointer=pointer))

    def document(self, body: bytes, limits: Limits) -> dict[str, Any] | None:
        """A document that has `data`. Raises MalformedJson."""
        document = load_document(body, limits)
        if not isinstance(document, dict):
            self.fault("A document is a JSON object.", "")
            return None
        if "data" not in document:
            self.fault("The document has no `data`.", "/data")
            return None
        return document

    def resource(self, data: Any, pointer: str, *, kind: Literal["create", "update"]) -> Change | None:
        """A resource object that stands at the pointer."""
        if not isinstance(data, dict):
            self.fault("`data` must be one resource object.", pointer)
            return None
        lid = self.lid(data, pointer)
        undecoded = {name for name in ("attributes", "relationships") if not isinstance(data.get(name, {}), dict)}
        linkages: dict[str, LinkageChange] = {}
        for name, value in (self._object(data, "relationships", pointer) or {}).items():
            if kind == "update" and _is_as_read(value):
                continue
            linkage = self._relationship(value, f"{pointer}/relationships/{escape_pointer(name)}")
            if linkage is None:
                undecoded.add(f"relationships/{name}")
            else:
                linkages[name] = linkage
        return Change(
            kind=kind,
            type=self.string(data, "type", pointer),
            # Some clients write the id that a new resource does not have yet as null.
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
        """Resource linkage: null, one resource identifier object, or an array of them."""
        if data is None:
            return LinkageChange((), False, pointer, mode)
        if isinstance(data, list):
            found = [self._identifier(item, f"{pointer}/{index}") for index, item in enumerate(data)]
            return LinkageChange(tuple(item for item in found if item is not None), True, pointer, mode)
        identifier = self._identifier(data, pointer)
        return None if identifier is None else LinkageChange((identifier,), False, pointer, mode)

    def lid(self, data: dict[str, Any], pointer: str) -> str | None:
        if "lid" not in data:
            return None
        lid = data["lid"]
        if not self.takes_lids:
            self.fault("A `lid` has a meaning in atomic operations alone.", f"{pointer}/lid")
        elif not isinstance(lid, str) or not lid:
            self.fault("`lid` must be a string that is not empty.", f"{pointer}/lid")
        else:
            return lid
        return None

    def string(self, data: dict[str, Any], name: str, pointer: str) -> str | None:
        value = data.get(name)
        if isinstance(value, str):
            return value
        what = f"`{name}` must be a string." if name in data else f"There is no `{name}`."
        self.fault(what, f"{pointer}/{name}")
        return None

    def id(self, data: dict[str, Any], pointer: str, *, is_required: bool) -> str | None:
        """An id's text; a JSON number stands for its digits."""
        value = data.get("id")
        if isinstance(value, str):
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if "id" in data or is_required:
            what = "`id` must be a string or a whole number." if "id" in data else "There is no `id`."
            self.fault(what, f"{pointer}/id")
        return None

    def is_one_name(self, id_text: str | None, lid: str | None, pointer: str) -> bool:
        """What exists has an id, what an operation makes has a lid."""
        if id_text is not None and lid is not None:
            self.fault("A resource is named by its `id` or by its `lid`, not by both.", f"{pointer}/lid")
            return False
        return True

    def _object(self, data: dict[str, Any], name: str, pointer: str) -> dict[str, Any] | None:
        if name not in data:
            return None
        value = data[name]
        if isinstance(value, dict):
            return value
        self.fault(f"`{name}` must be an object.", f"{pointer}/{name}")
        return None

    def _relationship(self, value: Any, pointer: str) -> LinkageChange | None:
        if not isinstance(value, dict):
            self.fault("A relationship must be an object with `data`.", pointer)
            return None
        if "data" not in value:
            self.fault("The relationship has no `data`.", f"{pointer}/data")
            return None
        return self.linkage(value["data"], f"{pointer}/data")

    def _identifier(self, value: Any, pointer: str) -> Identifier | None:
        if not isinstance(value, dict):
            self.fault("Resource linkage is made of resource identifier objects, or null.", pointer)
            return None
        lid = self.lid(value, pointer)
        type_name = self.string(value, "type", pointer)
        id_text = self.id(value, pointer, is_required="lid" not in value)
        if type_name is None or (id_text is None and lid is None) or not self.is_one_name(id_text, lid, pointer):
            return None
        return Identifier(type_name, id_text or "", pointer, lid)


def _is_as_read(value: Any) -> bool:
    """A relationship as answers show it, with links and without data: a client that sends back the whole of
    what it read asks for no change of it."""
    return isinstance(value, dict) and "data" not in value and "links" in value
