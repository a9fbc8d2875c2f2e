"""POST on a collection: attributes and names that are refused, missing ones, and several errors together."""

from __future__ import annotations

from typing import Any

from tests.http.conftest import Api
from tests.http.people import create_household, create_user, document, linked, one, select, user
from tests.http.refusals import Refused, attribute, check_refused, error

INT = "a whole number from -2147483648 to 2147483647"
DATE = "a date such as 2024-05-31, from 0001-01-02 to 9999-12-30"


def refused_attribute(name: str, value: Any, detail: str) -> Refused:
    return Refused("POST", "/users", user({name: value}), [attribute(name, detail)])


async def test_attributes_that_are_refused(api: Api) -> None:
    long = "x" * 321
    null = "must be a value, since it cannot be null."
    cases = [
        ("age", "1", f'must be {INT}, not "1".'),
        ("age", True, f"must be {INT}, not true."),
        ("age", 3.5, f"must be {INT}, not 3.5."),
        ("age", 1e30, f"must be {INT}, not 1E+30."),
        ("age", 2**31, f"must be {INT}, not 2147483648."),
        ("age", [1], f"must be {INT}, not [1]."),
        ("age", {}, f"must be {INT}, not {{}}."),
        ("age", -1, "must be from 0 to 150, not -1."),
        ("age", 151, "must be from 0 to 150, not 151."),
        ("first_name", None, null),
        ("first_name", 7, "must be a string, not 7."),
        ("first_name", "", 'must be from 1 to 255 characters long, not "".'),
        ("first_name", "x" * 256, f'must be from 1 to 255 characters long, not "{"x" * 76}....'),
        ("email", "ab", 'must be from 3 to 320 characters long, not "ab".'),
        ("email", long, f'must be from 3 to 320 characters long, not "{"x" * 76}....'),
        ("status", None, null),
        ("status", "gone", 'must be one of active, block, archive, not "gone".'),
        ("status", "Active", 'must be one of active, block, archive, not "Active".'),
        ("gender", "x", 'must be one of female, male, other, not "x".'),
        ("gender", 1, "must be one of female, male, other, not 1."),
        ("birth_date", "2023-02-29", f'must be {DATE}, not "2023-02-29".'),
        ("birth_date", "0001-01-01", f'must be {DATE}, not "0001-01-01".'),
        ("birth_date", "9999-12-31", f'must be {DATE}, not "9999-12-31".'),
        ("birth_date", "2024-1-1", f'must be {DATE}, not "2024-1-1".'),
        ("birth_date", "2024-01-01T00:00:00Z", f'must be {DATE}, not "2024-01-01T00:00:00Z".'),
        ("birth_date", 0, f"must be {DATE}, not 0."),
        ("words", None, null),
        ("words", "a", 'must be a list of text values, not "a".'),
        ("words", {"a": 1}, 'must be a list of text values, not {"a":1}.'),
    ]
    await check_refused(api, [refused_attribute(name, value, f"“{name}” {detail}") for name, value, detail in cases])


async def test_a_list_with_a_wrong_item(api: Api) -> None:
    for value in ([1], [None], [["a"]], ["a", {}]):
        answer = await api.post("/users", user({"words": value}))
        assert answer.status == 422
        assert [found["source"] for found in answer.errors] == [{"pointer": "/data/attributes/words"}]


async def test_names_that_are_refused(api: Api) -> None:
    await check_refused(
        api,
        [
            refused_attribute("frist_name", "x", "user has no attribute “frist_name”. Did you mean “first_name”?"),
            refused_attribute("a/b~c", 1, "user has no attribute “a/b~c”."),
            refused_attribute("", 1, "user has no attribute “”."),
            refused_attribute("First_name", 1, "user has no attribute “First_name”. Did you mean “first_name”?"),
            refused_attribute("group_id", 1, "user has no attribute “group_id”."),
            refused_attribute("group", 1, "“group” is a relationship: put it under `relationships`."),
            refused_attribute("display_name", "Ada Byron", "“display_name” is read-only: leave it out."),
            refused_attribute("display_name", None, "“display_name” is read-only: leave it out."),
            refused_attribute("date_create", "2020-01-01", "“date_create” is read-only: leave it out."),
            Refused(
                "POST",
                "/users",
                user(gruop=None),
                [
                    error(
                        "invalid_relationship",
                        "user has no relationship “gruop”. Did you mean “group”?",
                        "/data/relationships/gruop",
                    )
                ],
            ),
            Refused(
                "POST",
                "/photos",
                document("photo", {"name": "n", "meta": {}}),
                [attribute("meta", "photo has no attribute “meta”.")],
            ),
        ],
    )


NONE_SENT: dict[str, Any] = {}


async def test_required_attributes(api: Api) -> None:
    await create_household(api)
    required = {
        ("/users", "user"): ["first_name", "last_name"],
        ("/groups", "group"): ["name"],
        ("/posts", "post"): ["title", "body"],
        ("/user-bio", "user_bio"): ["birth_city"],
        ("/parents", "parent"): ["name"],
        ("/children", "child"): ["name"],
        ("/computers", "computer"): ["name"],
        ("/persons", "person"): ["name"],
        ("/photos", "photo"): ["name"],
    }
    cases = [
        Refused(
            "POST",
            path,
            document(type_name, attributes, relationships=linked(user=one("user", "1"))),
            [attribute(name, f"The attribute “{name}” is required.") for name in names],
        )
        for (path, type_name), names in required.items()
        for attributes in (NONE_SENT, None)
    ]
    for case in cases:
        if case.path not in ("/posts", "/user-bio"):
            del case.document["data"]["relationships"]
    await check_refused(api, cases)


WRONG_SHAPES: list[Any] = [[], "x", 7, *({"a": [item]} for item in ("x", 1.5, None, True, [1])), {"a": 1}, {"a": {}}]


async def test_json_of_another_shape_than_declared(api: Api) -> None:
    await create_user(api)
    for value in WRONG_SHAPES:
        sent = {"birth_city": "x", "keys_to_ids_list": value}
        answer = await api.post("/user-bio", document("user_bio", sent, relationships=linked(user=one("user", "1"))))
        assert answer.status == 422
        (found,) = answer.errors
        assert found["source"] == {"pointer": "/data/attributes/keys_to_ids_list"}
        assert found["detail"].startswith("“keys_to_ids_list” must be JSON of the declared shape (")
    assert await select(api, "SELECT count(*) FROM user_bios") == [(0,)]


async def test_photo_words_are_an_object(api: Api) -> None:
    values: list[Any] = [[], "x", 7, False]
    for value in values:
        answer = await api.post("/photos", document("photo", {"name": "n", "words": value}))
        assert answer.status == 422
        assert answer.errors[0]["source"] == {"pointer": "/data/attributes/words"}


# several faults together


async def test_all_faults_of_one_status_keep_it(api: Api) -> None:
    sent = {"first_name": "", "age": 151, "colour": "red", "display_name": "x"}
    await check_refused(
        api,
        [
            Refused(
                "POST",
                "/users",
                document("user", sent, relationships=linked(gruop=None, computers=None)),
                [
                    attribute("first_name", '“first_name” must be from 1 to 255 characters long, not "".'),
                    attribute("age", "“age” must be from 0 to 150, not 151."),
                    attribute("colour", "user has no attribute “colour”."),
                    attribute("display_name", "“display_name” is read-only: leave it out."),
                    error(
                        "invalid_relationship",
                        "user has no relationship “gruop”. Did you mean “group”?",
                        "/data/relationships/gruop",
                    ),
                    error(
                        "invalid_relationship",
                        "The data of “computers” must be an array of resource identifiers.",
                        "/data/relationships/computers/data",
                    ),
                    attribute("last_name", "The attribute “last_name” is required."),
                ],
            )
        ],
    )


async def test_different_statuses_together_are_a_400(api: Api) -> None:
    await create_household(api)
    sent = document(
        "computer",
        {"name": 7},
        id="9",
        relationships={"owner": {"data": one("group", "1")}, "oner": {"data": one("user", "x")}},
    )
    two = document("computer", {"name": "c"}, id="9", relationships=linked(owner=one("user", "x")))
    forbidden = error("client_id_forbidden", "The server chooses ids of type “computer”: leave `id` out.", "/data/id")
    await check_refused(
        api,
        [
            Refused(
                "POST",
                "/computers",
                sent,
                [
                    forbidden,
                    attribute("name", "“name” must be a string, not 7."),
                    error(
                        "linkage_type_conflict",
                        "This relationship is to resources of type “user”, not “group”.",
                        "/data/relationships/owner/data/type",
                    ),
                    error(
                        "invalid_relationship",
                        "computer has no relationship “oner”. Did you mean “owner”?",
                        "/data/relationships/oner",
                    ),
                ],
                status=400,
            ),
            Refused(
                "POST",
                "/computers",
                two,
                [
                    forbidden,
                    error("related_not_found", "There is no user with the id “x”.", "/data/relationships/owner/data"),
                ],
                status=400,
            ),
        ],
    )


async def test_every_error_has_an_id_of_the_request_and_its_number(api: Api) -> None:
    answer = await api.request(
        "POST", "/users", document("user", {}), headers={"X-Request-Id": "r-1", "Content-Type": "application/json"}
    )
    assert [found["id"] for found in answer.document["errors"]] == ["r-1.1", "r-1.2"]
    assert answer.document["jsonapi"] == {"version": "1.0"}
    assert answer.headers["X-Request-Id"] == "r-1"


async def test_parameters_that_are_refused(api: Api) -> None:
    await check_refused(
        api,
        [
            Refused(
                "POST",
                "/groups?include=user&sort=name&fields[group]=title",
                document("group", {"name": "g"}),
                [
                    error("invalid_parameter", "This route does not accept “sort”.", parameter="sort"),
                    error(
                        "invalid_include",
                        "Include parameter is invalid: group has no relationship “user”. "
                        "Did you mean “users”? There are: users.",
                        parameter="include",
                    ),
                    error("invalid_fields", "group has no field “title”.", parameter="fields[group]"),
                ],
            )
        ],
    )
