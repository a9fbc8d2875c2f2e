"""jsonapi-requests: sends objects as it read them, to paths that end in a slash.

In: the URL of a server with the demo rows. Out: status 0 if everything that the client does succeeds. It knows nothing
about the parts of the server.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

from jsonapi_requests import JsonApiObject, orm
from jsonapi_requests.request_factory import ApiClientError

from tests.clients.steps import step

api = orm.OrmApi.config({"API_ROOT": sys.argv[1]})


class Group(orm.ApiModel):
    class Meta:
        type = "group"
        path = "groups"
        api = api

    name = orm.AttributeField("name")


class Computer(orm.ApiModel):
    class Meta:
        type = "computer"
        path = "computers"
        api = api

    name = orm.AttributeField("name")
    owner = orm.RelationField("owner")


class User(orm.ApiModel):
    class Meta:
        type = "user"
        path = "users"
        api = api

    first_name = orm.AttributeField("first_name")
    last_name = orm.AttributeField("last_name")
    display_name = orm.AttributeField("display_name")
    age = orm.AttributeField("age")
    status = orm.AttributeField("status")
    computers = orm.RelationField("computers")
    group = orm.RelationField("group")


def refusal(request: Callable[[], object]) -> ApiClientError:
    try:
        request()
    except ApiClientError as error:
        return error
    raise AssertionError("it was not refused")


def computers_of(user_id: str) -> list[str]:
    return [computer.id for computer in api.endpoint(f"users/{user_id}/computers").get().data]


def lists() -> None:
    page = api.endpoint("users").get(params={"page[size]": 7, "sort": "-last_name,id"}).content
    names = [user.attributes["last_name"] for user in page.data]
    assert len(names) == page.meta["count"] == 7
    assert names == sorted(names, reverse=True)
    assert {"self", "first", "next", "last"} == set(page.links)
    assert len(User.get_list(params={"page[size]": 0})) == page.meta["total"]


def filters() -> None:
    blocked = User.get_list(params={"filter[status]": "block"})
    assert blocked
    assert {user.status for user in blocked} == {"block"}
    filters = [{"name": "computers", "op": "any", "val": {"name": "name", "op": "ilike", "val": "LAPTOP"}}]
    with_laptop = User.get_list(params={"filter": json.dumps(filters), "include": "computers"})
    assert with_laptop
    assert all(any("laptop" in computer.name for computer in user.computers) for user in with_laptop)


def includes() -> None:
    user = User.from_response_content(api.endpoint("users/1").get(params={"include": "computers,group"}).content)
    assert user.computers
    assert all(computer.raw_object.attributes["name"] for computer in user.computers)
    assert user.group.name
    # Without an include, a relationship has only links.
    assert User.from_id("1").computers is None


def create() -> str:
    user = User()
    user.first_name = "Ida"
    user.last_name = "Noddack"
    user.computers = [Computer.from_id("1"), Computer.from_id("2")]
    user.group = Group.from_id("1")
    user.save()
    assert user.id.isdigit()
    assert user.display_name == "Ida Noddack"
    assert computers_of(user.id) == ["1", "2"]
    return str(user.id)


def update(user_id: str) -> None:
    # The client sends back everything that it read: links without linkage, and read-only attributes with their old
    # values.
    user = User.from_id(user_id)
    user.last_name = "Tacke"
    user.age = 82
    sent = user.raw_object.as_data()
    assert sent["attributes"]["display_name"] == "Ida Noddack"
    assert set(sent["relationships"]["computers"]) == {"links"}
    user.save()
    assert (user.display_name, user.age) == ("Ida Tacke", 82)
    assert computers_of(user_id) == ["1", "2"]
    linkage = api.endpoint(f"users/{user_id}/relationships/group").get().data
    assert (linkage.type, linkage.id) == ("group", "1")


def write_relationships(user_id: str) -> None:
    # The client sends a changed relationship together with the rest of the object.
    user = User.from_id(user_id)
    user.refresh()
    user.computers = [Computer.from_id("2"), Computer.from_id("3")]
    user.save()
    assert computers_of(user_id) == ["2", "3"]
    # The routes of relationships.
    route = api.endpoint(f"users/{user_id}/relationships/computers")
    computer = {"data": [{"type": "computer", "id": "4"}]}
    assert route.post(json=computer).content.meta["message"] == "Relationship successfully created"
    assert computers_of(user_id) == ["2", "3", "4"]
    assert route.delete(json=computer).content.meta["message"] == "Relationship successfully updated"
    assert computers_of(user_id) == ["2", "3"]
    route.patch(json=computer)
    assert computers_of(user_id) == ["4"]
    route.patch(json={"data": []})
    assert computers_of(user_id) == []
    api.endpoint("computers/5/relationships/owner").patch(object=JsonApiObject(type="user", id=user_id))
    assert computers_of(user_id) == ["5"]


def delete(user_id: str) -> None:
    # The client sends the object with the DELETE request.
    user = User.from_id(user_id)
    user.refresh()
    user.delete()
    assert refusal(lambda: api.endpoint(f"users/{user_id}").get()).status_code == 404
    assert not User.exists(user_id)


def errors() -> None:
    user = User()
    user.first_name = ""
    user.age = -1
    refused = refusal(user.save)
    assert refused.status_code == 422
    faults = json.loads(refused.content)["errors"]
    assert {fault["title"] for fault in faults} == {"Invalid Attribute"}
    assert {fault["source"]["pointer"] for fault in faults} == {
        f"/data/attributes/{name}" for name in ("first_name", "last_name", "age")
    }


step("list", lists)
step("filter", filters)
step("include", includes)
created = step("create", create)
step("update", update, created)
step("relationship write", write_relationships, created)
step("delete", delete, created)
step("error", errors)
