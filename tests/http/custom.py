"""Creates catalogs with hooks for servers that are started within a test, and sends the writes of such tests.

In: hooks; an Api. Out: a Catalog; answers."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from querybuild.declarations.catalog import Catalog
from server.resources import built_in
from tests.http.conftest import MEDIA_TYPE, Answer, Api
from tests.http.people import document
from waterspout import Hooks

ATOMIC = f'{MEDIA_TYPE}; ext="https://jsonapi.org/ext/atomic"'


def hooked(catalog: Catalog | None = None, **hooks: Hooks) -> Catalog:
    """Return the built-in resources, or others, with hooks by type."""
    return Catalog([replace(known, hooks=hooks.get(known.type, Hooks())) for known in catalog or built_in()])


def add(type_name: str, attributes: Any, **members: Any) -> dict[str, Any]:
    return {"op": "add", "data": {"type": type_name, "attributes": attributes, **members}}


def update(type_name: str, id_text: str, attributes: Any) -> dict[str, Any]:
    return {"op": "update", "data": {"type": type_name, "id": id_text, "attributes": attributes}}


def remove(type_name: str, id_text: str) -> dict[str, Any]:
    return {"op": "remove", "ref": {"type": type_name, "id": id_text}}


async def operate(api: Api, *operations: Any, media_type: str = MEDIA_TYPE) -> Answer:
    return await api.request(
        "POST", "/operations", {"atomic:operations": operations}, headers={"Content-Type": media_type}
    )


async def written_with(api: Api, kind: str) -> Answer:
    """Write person 1, or create a person."""
    if kind == "create":
        return await api.post("/persons", document("person", {"name": "new"}))
    if kind == "update":
        return await api.patch("/persons/1", document("person", {"name": "new"}, id="1"))
    return await api.delete("/persons/1")
