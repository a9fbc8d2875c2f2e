"""Body bytes -> Change. What comes in: the bytes of a request document. What goes out: a Change whose names
are not resolved, and each fault of the document's form with its JSON pointer. Members that JSON:API does not
define are ignored, as it demands.

Nothing here knows a resource. Source: JSON:API 1.0 "Creating, Updating and Deleting Resources".
"""

from __future__ import annotations

from typing import Any

from querybuild.changes import escape_pointer
from querybuild.errors import ApiError
from querybuild.query import Change, Identifier, LinkageChange
from querybuild.values import JsonFault, load_json
from serializers.errors import InvalidDocument, MalformedJson


def decode_resource_document(body: bytes, errors: list[ApiError], *, needs_id: bool, max_depth: int) -> Change | None:
    """The document of a POST or PATCH; None when it has no resource object to go on with.

    Raises MalformedJson. Appends InvalidDocument to errors.
    """
    document = load_document(body, max_depth)
    if not isinstance(document, dict):
        errors.append(InvalidDocument("A document is a JSON object.", pointer=""))
        return None
    if "data" not in document:
        errors.append(InvalidDocument("The document has no `data`.", pointer="/data"))
        return None
    return decode_resource(document["data"], "/data", errors, needs_id=needs_id)


def load_document(body: bytes, max_depth: int) -> Any:
    """A body as a tree. Raises MalformedJson."""
    try:
        return load_json(body.decode(), max_depth, allows_nul=True)
    except UnicodeDecodeError as error:
        raise MalformedJson(f"The body is not UTF-8 at byte {error.start}.", pointer="") from error
    except JsonFault as error:
        raise MalformedJson(f"The body is not valid JSON: {error}.", pointer="") from error


def decode_resource(data: Any, pointer: str, errors: list[ApiError], *, needs_id: bool) -> Change | None:
    """A resource object that stands at the pointer."""
    if not isinstance(data, dict):
        errors.append(InvalidDocument("`data` must be one resource object.", pointer=pointer))
        return None
    _refuse_lid(data, pointer, errors)
    undecoded = {name for name in ("attributes", "relationships") if not isinstance(data.get(name, {}), dict)}
    linkages: dict[str, LinkageChange] = {}
    for name, value in (_object(data, "relationships", pointer, errors) or {}).items():
        if needs_id and _is_as_read(value):
            continue
        linkage = _relationship(value, f"{pointer}/relationships/{escape_pointer(name)}", errors)
        if linkage is None:
            undecoded.add(f"relationships/{name}")
        else:
            linkages[name] = linkage
    return Change(
        type=_string(data, "type", pointer, errors),
        id=_id(data, pointer, errors, is_required=needs_id),
        attributes=_object(data, "attributes", pointer, errors),
        relationships=linkages,
        undecoded=frozenset(undecoded),
        pointer=pointer,
    )


def _refuse_lid(data: dict[str, Any], pointer: str, errors: list[ApiError]) -> None:
    if "lid" in data:
        detail = "A `lid` has a meaning in atomic operations alone."
        errors.append(InvalidDocument(detail, pointer=f"{pointer}/lid"))


def _string(data: dict[str, Any], name: str, pointer: str, errors: list[ApiError]) -> str | None:
    value = data.get(name)
    if isinstance(value, str):
        return value
    what = f"`{name}` must be a string." if name in data else f"There is no `{name}`."
    errors.append(InvalidDocument(what, pointer=f"{pointer}/{name}"))
    return None


def _id(data: dict[str, Any], pointer: str, errors: list[ApiError], *, is_required: bool) -> str | None:
    """An id's text; a JSON number stands for its digits."""
    value = data.get("id")
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if "id" in data or is_required:
        what = "`id` must be a string or a whole number." if "id" in data else "There is no `id`."
        errors.append(InvalidDocument(what, pointer=f"{pointer}/id"))
    return None


def _object(data: dict[str, Any], name: str, pointer: str, errors: list[ApiError]) -> dict[str, Any] | None:
    if name not in data:
        return None
    value = data[name]
    if isinstance(value, dict):
        return value
    errors.append(InvalidDocument(f"`{name}` must be an object.", pointer=f"{pointer}/{name}"))
    return None


def _is_as_read(value: Any) -> bool:
    """A relationship as answers show it, with links and without data: a client that sends back the whole of
    what it read asks for no change of it."""
    return isinstance(value, dict) and "data" not in value and "links" in value


def _relationship(value: Any, pointer: str, errors: list[ApiError]) -> LinkageChange | None:
    if not isinstance(value, dict):
        errors.append(InvalidDocument("A relationship must be an object with `data`.", pointer=pointer))
        return None
    if "data" not in value:
        errors.append(InvalidDocument("The relationship has no `data`.", pointer=f"{pointer}/data"))
        return None
    return decode_linkage(value["data"], f"{pointer}/data", errors)


def decode_linkage(data: Any, pointer: str, errors: list[ApiError]) -> LinkageChange | None:
    """Resource linkage: null, one resource identifier object, or an array of them."""
    if data is None:
        return LinkageChange((), False, pointer)
    if isinstance(data, list):
        found = [_identifier(item, f"{pointer}/{index}", errors) for index, item in enumerate(data)]
        return LinkageChange(tuple(item for item in found if item is not None), True, pointer)
    identifier = _identifier(data, pointer, errors)
    return None if identifier is None else LinkageChange((identifier,), False, pointer)


def _identifier(value: Any, pointer: str, errors: list[ApiError]) -> Identifier | None:
    if not isinstance(value, dict):
        detail = "Resource linkage is made of resource identifier objects, or null."
        errors.append(InvalidDocument(detail, pointer=pointer))
        return None
    _refuse_lid(value, pointer, errors)
    type_name = _string(value, "type", pointer, errors)
    id_text = _id(value, pointer, errors, is_required="lid" not in value)
    if type_name is None or id_text is None:
        return None
    return Identifier(type_name, id_text, pointer)
