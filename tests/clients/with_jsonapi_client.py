"""jsonapi-client: sessions that cache resources, attributes that know whether they were changed, and relationships that
are fetched through their links.

In: the URL of a server with the demo rows. Out: status 0 if everything that the client does succeeds. It knows nothing
about the parts of the server.

The client uses types as paths. Where it asks for a path it gets the server's, with arguments that the client accepts.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable
from typing import Any

from jsonapi_client import Filter, Inclusion, Modifier, Session
from jsonapi_client.exceptions import DocumentError

from tests.clients.steps import step

URL = sys.argv[1]
TEXT = {"type": ["string", "null"]}
MODELS = {
    "user": {
        "properties": {
            **dict.fromkeys(("first_name", "last_name", "display_name", "email", "status"), TEXT),
            **dict.fromkeys(("birth_date", "gender", "date_create"), TEXT),
            "age": {"type": ["integer", "null"]},
            "words": {"type": ["array", "null"]},
            "computers": {"relation": "to-many", "resource": ["computer"]},
            "posts": {"relation": "to-many", "resource": ["post"]},
            "bio": {"relation": "to-one", "resource": ["user_bio"]},
            "group": {"relation": "to-one", "resource": ["group"]},
        }
    },
    "computer": {
        "properties": {
            "name": TEXT,
            "serial": TEXT,
            "owner": {"relation": "to-one", "resource": ["user"]},
        }
    },
    "group": {"properties": {"name": TEXT, "users": {"relation": "to-many", "resource": ["user"]}}},
}


def session() -> Session:
    return Session(URL, schema=MODELS)


def refusal(request: Callable[[], object]) -> DocumentError:
    try:
        request()
    except DocumentError as error:
        return error
    raise AssertionError("it was not refused")


def ids(resources: Iterable[Any]) -> list[str]:
    return [resource.id for resource in resources]


def computers_of(user_id: str) -> list[str]:
    """Return the names from a new request: a session would answer from its cache."""
    return ids(session().get(f"users/{user_id}/computers").resources)


def lists() -> None:
    page = session().get("users", Modifier("page[size]=7&sort=-last_name,id"))
    names = [user["last_name"] for user in page.resources]
    assert len(names) == page.meta["count"] == 7
    assert names == sorted(names, reverse=True)
    # Page by page, through links.next.
    everybody = ids(session().iterate("users", Modifier("page[size]=7")))
    assert len(everybody) == len(set(everybody)) == page.meta["total"]


def filters() -> None:
    blocked = session().get("users", Filter(status="block")).resources
    assert blocked
    assert {user["status"] for user in blocked} == {"block"}
    # The client's keyword arguments would replace _ by -, and no attribute here has a - in its name.
    named = session().get("users", Filter("filter[first_name]=Zoë")).resources
    assert ids(named) == ["1"]
    both = session().get("users", Filter(status="active", group__id="1") + Modifier("sort=id")).resources
    assert both
    assert set(ids(both)) <= set(ids(session().get("groups/1/users", Modifier("page[size]=0")).resources))


def includes() -> None:
    with session() as here:
        user = here.get("users/1", Inclusion("computers", "group")).resource
        assert user.computers
        assert all(computer["name"] for computer in user.computers)
        assert user.group["name"]
        # What was not included is fetched through its related link.
        assert all(post.type == "post" for post in user.posts)
        assert user.bio["birth_city"]


def create() -> str:
    with session() as here:
        fields = {"first_name": "Ida", "last_name": "Noddack", "words": ["rhenium"]}
        user = here.create("user", fields=fields, computers=["1", "2"], group="1")
        user.commit(f"{URL}/users")
        assert user.id.isdigit()
        assert user["display_name"] == "Ida Noddack"
        assert user.url == f"{URL}/users/{user.id}"
        assert computers_of(user.id) == ["1", "2"]
        return str(user.id)


def update(user_id: str) -> None:
    with session() as here:
        user = here.get("users", user_id).resource
        user["age"] = 82
        user["last_name"] = "Tacke"
        user.commit()
        assert not user.is_dirty
        assert (user["age"], user["display_name"]) == (82, "Ida Tacke")
    assert computers_of(user_id) == ["1", "2"]


def write_relationships(user_id: str) -> None:
    # The client sends a PATCH of the resource with the changed relationships. After a commit it has to read the
    # resource again.
    with session() as here:
        user = here.get(f"users/{user_id}", Inclusion("computers", "group")).resource
        user.relationships.computers.set(["3", "2"], "computer")
        user.relationships.group.set("2", "group")
        user.commit()
        assert computers_of(user_id) == ["2", "3"]
    with session() as here:
        user = here.get(f"users/{user_id}", Inclusion("group")).resource
        assert user.group.id == "2"
        user.relationships.group.set(None)
        user.commit()
    # The client does not understand the other ways to find an empty relationship, because their documents have `data:
    # null`.
    assert session().get(f"users/{user_id}", Inclusion("group")).resource.group is None
    # Here the client uses the relationship's own link.
    with session() as here:
        link = here.get("users", user_id).resource.relationships.computers.links.self.url
        computer = [{"type": "computer", "id": "4"}]
        status, document, _ = here.http_request("post", link, {"data": computer})
        assert (status, document["meta"]["message"]) == (200, "Relationship successfully created")
        assert computers_of(user_id) == ["2", "3", "4"]
        status, document, _ = here.http_request("delete", link, {"data": computer})
        assert (status, document["meta"]["message"]) == (200, "Relationship successfully updated")
        here.http_request("patch", link, {"data": computer})
        assert computers_of(user_id) == ["4"]


def delete(user_id: str) -> None:
    with session() as here:
        user = here.get("users", user_id).resource
        user.delete()
        user.commit()
    assert refusal(lambda: session().get("users", user_id)).errors["status_code"] == 404


def errors() -> None:
    with session() as here:
        user = here.create("user", fields={"first_name": "", "age": -1})
        refused = refusal(lambda: user.commit(f"{URL}/users"))
    assert refused.errors["status_code"] == 422
    assert "Invalid Attribute" in str(refused)
    pointers = {error["source"]["pointer"] for error in refused.response.json()["errors"]}
    assert pointers == {f"/data/attributes/{name}" for name in ("first_name", "last_name", "age")}


async def asynchronous() -> None:
    async with Session(URL, enable_async=True, schema=MODELS) as here:
        page = await here.get("users", Modifier("page[size]=7"))
        everybody = [user.id async for user in page.iterator()]
        assert len(set(everybody)) == page.meta["total"]
        user = here.create("user", fields={"first_name": "Ida", "last_name": "Noddack"})
        await user.commit(f"{URL}/users")
        user["age"] = 82
        await user.commit()
        assert user["age"] == 82
        user.delete()
        await user.commit()
    assert refusal(lambda: session().get("users", user.id)).errors["status_code"] == 404


step("list", lists)
step("filter", filters)
step("include", includes)
created = step("create", create)
step("update", update, created)
step("relationship write", write_relationships, created)
step("delete", delete, created)
step("error", errors)
step("asynchronous", asyncio.run, asynchronous())
