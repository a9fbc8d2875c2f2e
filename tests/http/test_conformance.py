"""Statements of JSON:API 1.0 about all documents. docs/conformance.md names the tests of the other statements."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tests.http.conftest import Api
from tests.http.expected import COLLECTIONS
from tests.http.people import create_household, document, linked

MEMBER_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]*[A-Za-z0-9])?")
"""The names that JSON:API allows and that are safe in a URL."""


def resources(found: Any) -> list[Any]:
    primary = found["data"] if isinstance(found["data"], list) else [found["data"]]
    return [*primary, *found.get("included", [])]


def members(value: Any) -> Iterator[str]:
    """Yield the names of all members of a document, except those inside of JSON attributes."""
    if isinstance(value, list):
        for item in value:
            yield from members(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield name
            yield from () if name in ("keys_to_ids_list", "words") else members(item)


async def documents(api: Api) -> list[Any]:
    found = [(await api.get(f"/{path}")).document for path in COLLECTIONS]
    found.append((await api.get("/users?include=computers.owner,posts,bio,group")).document)
    found.append((await api.get("/users?include=x&sort=y")).document)
    return found


async def test_every_link_leads_to_its_document(api: Api) -> None:
    await create_household(api)
    for found in (await documents(api))[:-1]:
        for link in found["links"].values():
            assert (await api.get(link)).status == 200, link
        for resource in resources(found):
            answer = await api.get(resource["links"]["self"])
            assert (answer.status, answer.document["data"]["id"]) == (200, resource["id"])
            for relationship in resource.get("relationships", {}).values():
                related = await api.get(relationship["links"]["related"])
                linkage = await api.get(relationship["links"]["self"])
                assert (related.status, linkage.status) == (200, 200)
                assert identifiers(related.document["data"]) == linkage.document["data"]


def identifiers(data: Any) -> Any:
    if isinstance(data, list):
        return [identifiers(item) for item in data]
    return data and {"type": data["type"], "id": data["id"]}


async def test_member_names(api: Api) -> None:
    await create_household(api)
    for found in await documents(api):
        for name in members(found):
            assert MEMBER_NAME.fullmatch(name), name


async def test_resource_objects(api: Api) -> None:
    """type and id are strings, all fields share one namespace, and no foreign key is an attribute."""
    await create_household(api)
    shown = [resource for found in (await documents(api))[:-1] for resource in resources(found)]
    assert len({resource["type"] for resource in shown}) == len(COLLECTIONS)
    for resource in shown:
        assert isinstance(resource["id"], str)
        assert MEMBER_NAME.fullmatch(resource["type"])
        attributes, relationships = resource["attributes"], resource.get("relationships", {})
        names = ["type", "id", *attributes, *relationships]
        assert len(names) == len(set(names))
        assert not [name for name in attributes if name.endswith("_id")]
        assert not {"relationships", "links"} & attributes.keys()


async def test_a_pair_of_type_and_id_is_one_resource(api: Api) -> None:
    """A resource has the same attributes wherever it is shown."""
    await create_household(api)
    shown: dict[tuple[str, str], Any] = {}
    for found in (await documents(api))[:-1]:
        for resource in resources(found):
            attributes = shown.setdefault((resource["type"], resource["id"]), resource["attributes"])
            assert attributes == resource["attributes"]


async def test_related_links_do_not_depend_on_the_related_resources(api: Api) -> None:
    await create_household(api)
    before = (await api.get("/users/1")).document["data"]["relationships"]
    sent = document("user", id="1", relationships=linked(group=None, computers=[]))
    after = (await api.patch("/users/1", sent)).document["data"]["relationships"]
    assert {name: shown["links"] for name, shown in after.items()} == {
        name: shown["links"] for name, shown in before.items()
    }
    assert (await api.get(after["group"]["links"]["related"])).document["data"] is None
    assert (await api.get(after["computers"]["links"]["related"])).document["data"] == []
