"""DELETE on a resource: its message, which rows are deleted with it, which stay, and what prevents it."""

from __future__ import annotations

from tests.http.conftest import Api
from tests.http.people import create_household, one, select
from tests.http.refusals import Refused, check_refused, error

DELETED = {"jsonapi": {"version": "1.0"}, "meta": {"message": "Object successfully deleted"}}


PATHS = [
    "/posts/1",
    "/user-bio/1",
    "/parent-to-child-association/1",
    "/parents/1",
    "/children/1",
    "/computers/1",
    "/computers/4/",
    "/users/1",
    "/groups/1",
    "/persons/1",
    "/photos/1",
]


async def test_a_deleted_resource_is_gone(api: Api) -> None:
    await create_household(api)
    for path in PATHS:
        answer = await api.delete(path)
        assert (answer.status, answer.document) == (200, DELETED), path
        assert answer.headers["Content-Type"] == "application/vnd.api+json"
        assert (await api.get(path)).status == 404
        assert (await api.delete(path)).status == 404


async def test_posts_and_bio_are_deleted_with_a_user_and_computers_stay(api: Api) -> None:
    await create_household(api)
    await api.delete("/users/1")
    assert await select(api, "SELECT count(*) FROM posts") == [(0,)]
    assert await select(api, "SELECT id FROM user_bios") == [(2,)]
    assert await select(api, "SELECT id, owner_id FROM computers ORDER BY id") == [
        (1, None),
        (2, None),
        (3, 2),
        (4, None),
    ]
    assert await select(api, "SELECT id FROM groups") == [(1,)]


async def test_association_rows_are_deleted_with_either_side(api: Api) -> None:
    await create_household(api)
    sides = {"parent": one("parent", "1"), "child": one("child", "1")}
    await api.delete("/parents/1")
    assert (await api.get("/parent-to-child-association/1")).status == 404
    assert (await api.get("/children/1")).status == 200
    sides["parent"]["id"] = await api.create("/parents", "parent", {"name": "pat"})
    path = "/parent-to-child-association"
    other = await api.create(path, "parent-to-child-association", {}, **sides)
    await api.delete("/children/1")
    assert (await api.get(f"{path}/{other}")).status == 404
    assert (await api.get(f"/parents/{sides['parent']['id']}")).status == 200


async def test_a_group_with_users_cannot_be_deleted(api: Api) -> None:
    await create_household(api)
    conflict = error("conflict", "This group is still referred to by other resources.")
    await check_refused(api, [Refused("DELETE", "/groups/1", None, [conflict])])
    await api.delete("/users/1")
    assert (await api.delete("/groups/1")).document == DELETED


async def test_a_missing_id(api: Api) -> None:
    await create_household(api)
    paths = {text: text for text in ("99", "01", "+1", "-1", "x", "1.0", str(2**63))} | {"%00": "\0", "%D9%A1": "١"}
    await check_refused(
        api,
        [
            Refused(
                "DELETE",
                f"/users/{path}",
                None,
                [error("resource_not_found", f"There is no user with the id “{shown}”.")],
            )
            for path, shown in paths.items()
        ],
    )


async def test_parameters_are_refused(api: Api) -> None:
    await create_household(api)
    await check_refused(
        api,
        [
            Refused(
                "DELETE",
                f"/users/1?{name}=x",
                None,
                [error("invalid_parameter", f"This route does not accept “{name}”.", parameter=name)],
            )
            for name in ("include", "sort", "filter")
        ],
    )
    assert (await api.delete("/users/1?fields[user]=age")).status == 400
    assert (await api.delete("/users/1?page[size]=1")).status == 400
    assert (await api.delete("/users/1?X-trace=1")).status == 200


async def test_a_body_is_ignored(api: Api) -> None:
    await create_household(api)
    bodies = [
        ("{}", "application/vnd.api+json"),
        ("not json", "text/plain"),
        ('{"data":{"type":"computer","id":"4"}}', "application/json"),
    ]
    for number, (body, media_type) in enumerate(bodies, 1):
        answer = await api.request("DELETE", f"/computers/{number}", body=body, headers={"Content-Type": media_type})
        assert (answer.status, answer.document) == (200, DELETED)
    assert await select(api, "SELECT id FROM computers") == [(4,)]


async def test_delete_of_a_collection_is_not_allowed(api: Api) -> None:
    answer = await api.delete("/users")
    assert (answer.status, answer.headers["Allow"]) == (405, "GET, POST, HEAD, QUERY, OPTIONS")
