"""Bodies that are not JSON, or not a document with one resource: the errors, and that nothing is written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from serializers.json_api import MEDIA_TYPE
from tests.http.conftest import Answer, Api
from tests.http.people import ADA, create_household, document, linked, one, user
from tests.http.refusals import Refused, check_refused, error

GROUP = '{"data":{"type":"group","attributes":{"name":%s}}}'


def malformed(body: str | bytes, detail: str) -> list[Refused]:
    """Return the same body, sent to both routes that accept one."""
    errors = [error("malformed_json", detail, "")]
    return [
        Refused(method, path, None, errors, body=body) for method, path in (("POST", "/groups"), ("PATCH", "/groups/1"))
    ]


async def test_bodies_that_are_not_json(api: Api) -> None:
    await create_household(api)
    cases = [
        ("", "unexpected text at line 1, column 1"),
        ("  \n", "unexpected text at line 2, column 1"),
        ("{", "unexpected text at line 1, column 2"),
        ("'a'", "unexpected text at line 1, column 1"),
        (GROUP % "NaN", "NaN is not JSON"),
        (GROUP % "-Infinity", "-Infinity is not JSON"),
        (GROUP % '"a"' + " x", "unexpected text at line 1, column 53"),
        (GROUP % "1" * 2, "unexpected text at line 1, column 50"),
        ("\ufeff" + GROUP % '"a"', "unexpected text at line 1, column 1"),
        (GROUP % ("1" * 5000), "a number has too many digits"),
        ("[" + "{}," * 50_000 + "{}]", "more than 100000 values"),
    ]
    await check_refused(
        api,
        [case for body, detail in cases for case in malformed(body, f"The body is not valid JSON: {detail}.")],
    )


async def test_raw_control_characters_are_not_json(api: Api) -> None:
    for character in ("\0", "\n", "\x1f"):
        answer = await api.request(
            "POST",
            "/groups",
            headers={"Content-Type": "application/vnd.api+json"},
            body=GROUP % f'"a{character}"',
        )
        assert (answer.status, answer.errors[0]["code"]) == (400, "malformed_json")


async def test_bodies_that_are_not_utf_8(api: Api) -> None:
    await create_household(api)
    cases: list[tuple[bytes, int]] = [
        (b"\xff", 0),
        (b'{"data":"\xc3("}', 9),
        ((GROUP % '"a"').encode("utf-16"), 0),
        (b'{"data":"\xed\xa0\x80"}', 9),
        (b'{"data":"\xc0\x80"}', 9),
    ]
    await check_refused(
        api, [case for body, place in cases for case in malformed(body, f"The body is not UTF-8 at byte {place}.")]
    )


async def test_duplicate_names(api: Api) -> None:
    await create_household(api)
    cases = [
        ('{"data":{"type":"group","type":"group","attributes":{"name":"a"}}}', "type"),
        ('{"data":{"type":"group","attributes":{"name":"a","name":"a"}}}', "name"),
        ('{"data":1,"data":{"type":"group","attributes":{"name":"a"}}}', "data"),
        ('{"meta":{"x":1,"x":2},"data":{"type":"group","attributes":{"name":"a"}}}', "x"),
        ('{"data":{"type":"group","attributes":{"name":"a","\\u006eame":"b"}}}', "name"),
    ]
    await check_refused(
        api,
        [
            case
            for body, name in cases
            for case in malformed(body, f'The body is not valid JSON: the name "{name}" occurs twice in one object.')
        ],
    )


async def test_characters_that_postgresql_cannot_hold(api: Api) -> None:
    await create_household(api)
    half = "The body is not valid JSON: a string contains half of a surrogate pair."
    cases = [
        (GROUP % '"\\ud800"', half),
        (GROUP % '"\\udc00\\ud800"', half),
        (GROUP % '{"a":["\\udfff"]}', half),
    ]
    await check_refused(api, [case for body, detail in cases for case in malformed(body, detail)])


@pytest.mark.parametrize(
    ("path", "attributes", "pointer"),
    [
        ("/groups", {"name": "a\0"}, "/data/attributes/name"),
        ("/groups", {"name": "a", "na\0me": "b"}, "/data/attributes/na\0me"),
        ("/photos", {"name": "a", "words": {"b": ["c\0"]}}, "/data/attributes/words"),
        ("/photos", {"name": "a", "words": {"b\0": 1}}, "/data/attributes/words"),
        ("/users", {"first_name": "a", "last_name": "b", "words": ["\0"]}, "/data/attributes/words"),
    ],
)
async def test_u_0000_is_valid_json_but_not_a_valid_value(api: Api, path: str, attributes: Any, pointer: str) -> None:
    """The error is reported for its attribute, together with all others."""
    answer = await api.post(path, {"data": {"type": path[1:-1], "attributes": attributes}})
    assert (answer.status, [error["source"] for error in answer.errors]) == (422, [{"pointer": pointer}])


async def test_a_surrogate_pair_is_one_character(api: Api) -> None:
    answer = await api.request(
        "POST", "/groups", headers={"Content-Type": "application/vnd.api+json"}, body=GROUP % '"\\ud83d\\udea3"'
    )
    assert (answer.status, answer.document["data"]["attributes"]) == (201, {"name": "\U0001f6a3"})


async def test_nesting(api: Api) -> None:
    """64 levels are allowed by default. The words of a photo are at the fourth level."""
    media = {"Content-Type": "application/vnd.api+json"}
    for depth, status in ((61, 201), (62, 400), (1000, 400), (200_000, 400)):
        words = '{"a":' * depth + "1" + "}" * depth
        body = '{"data":{"type":"photo","attributes":{"name":"n","words":' + words + "}}}"
        answer = await api.request("POST", "/photos", headers=media, body=body)
        assert answer.status == status, depth
        if status == 400:
            assert answer.errors[0]["code"] == "malformed_json"
        else:
            (row,) = await api.sql("SELECT meta FROM photos")
            assert json.loads(row["meta"]) == json.loads(words)


async def test_json_that_is_not_a_document(api: Api) -> None:
    await create_household(api)
    is_an_object = error("invalid_document", "A document is a JSON object.", "")
    no_data = error("invalid_document", "The document has no `data`.", "/data")
    one_object = error("invalid_document", "`data` must be one resource object.", "/data")
    bodies = [
        *((body, is_an_object) for body in ("[]", "null", '"x"', "7", "true", '[{"data":{}}]')),
        *((body, no_data) for body in ("{}", '{"errors":[]}', '{"meta":{}}', '{"Data":{}}')),
        *((f'{{"data":{data}}}', one_object) for data in ("null", "[]", '"x"', "7", '[{"type":"group"}]')),
    ]
    await check_refused(
        api,
        [
            Refused(method, path, None, [found], body=body)
            for body, found in bodies
            for method, path in (("POST", "/groups"), ("PATCH", "/groups/1"))
        ],
    )


async def test_members_of_the_wrong_kind(api: Api) -> None:
    no_type = error("invalid_document", "There is no `type`.", "/data/type")
    not_text = error("invalid_document", "`type` must be a string.", "/data/type")
    relationships = error("invalid_document", "`relationships` must be an object.", "/data/relationships")
    name = {"name": "a"}
    cases: list[tuple[dict[str, Any], list[Any]]] = [
        ({"attributes": name}, [no_type]),
        ({"type": None, "attributes": name}, [not_text]),
        ({"type": 7, "attributes": name}, [not_text]),
        ({"type": "group", "attributes": name, "relationships": None}, [relationships]),
        (
            {"type": "group", "attributes": name, "relationships": [], "id": {}},
            [
                relationships,
                error("invalid_document", "`id` must be a string or a whole number.", "/data/id"),
            ],
        ),
    ]
    await check_refused(api, [Refused("POST", "/groups", {"data": data}, errors) for data, errors in cases])


async def test_attributes_that_are_not_an_object(api: Api) -> None:
    await create_household(api)
    found = error("invalid_document", "`attributes` must be an object.", "/data/attributes")
    values: list[Any] = [None, [], "x", 7]
    for value in values:
        sent = document("group")
        sent["data"]["attributes"] = value
        await check_refused(api, [Refused("POST", "/groups", sent, [found])])
        sent["data"]["id"] = "1"
        await check_refused(api, [Refused("PATCH", "/groups/1", sent, [found])])


async def test_a_type_of_another_collection(api: Api) -> None:
    await create_household(api)
    await check_refused(
        api,
        [
            Refused(
                "POST",
                "/groups",
                document(sent, {"name": "a"}),
                [
                    error(
                        "type_conflict",
                        f"This route is for resources of type “group”, not “{sent}”.",
                        "/data/type",
                    )
                ],
            )
            for sent in ("user", "groups", "Group", "", "nothing")
        ],
    )


async def test_a_lid_outside_operations(api: Api) -> None:
    await create_household(api)
    detail = "A `lid` is only allowed in atomic operations."

    def lid(pointer: str) -> Any:
        return error("invalid_document", detail, pointer)

    await check_refused(
        api,
        [
            Refused("POST", "/groups", document("group", {"name": "a"}, lid="x"), [lid("/data/lid")]),
            Refused("PATCH", "/groups/1", document("group", {"name": "a"}, id="1", lid=7), [lid("/data/lid")]),
        ],
    )


async def test_a_lid_in_linkage_outside_operations(api: Api) -> None:
    await create_household(api)
    for linkage in ({"type": "group", "lid": "x"}, {"type": "group", "id": "1", "lid": "x"}):
        for method, path, sent in (
            ("POST", "/users", user(group=linkage)),
            ("PATCH", "/users/1", document("user", id="1", relationships=linked(group=linkage))),
        ):
            answer = await api.request(method, path, sent)
            assert answer.status == 422
            assert {"pointer": "/data/relationships/group/data/lid"} in [found["source"] for found in answer.errors]


async def test_faults_of_form_and_of_names_are_reported_together(api: Api) -> None:
    await create_household(api)
    sent = document(
        "user",
        ADA | {"age": "x"},
        lid="q",
        relationships={"group": {}, "bio": {"data": 7}, "gruop": {"data": one("group", "1")}},
    )
    await check_refused(
        api,
        [
            Refused(
                "POST",
                "/users",
                sent,
                [
                    error("invalid_document", "A `lid` is only allowed in atomic operations.", "/data/lid"),
                    error("invalid_document", "The relationship has no `data`.", "/data/relationships/group/data"),
                    error(
                        "invalid_document",
                        "Resource linkage must consist of resource identifier objects, or be null.",
                        "/data/relationships/bio/data",
                    ),
                    error(
                        "invalid_attribute",
                        '“age” must be a whole number from -2147483648 to 2147483647, not "x".',
                        "/data/attributes/age",
                    ),
                    error(
                        "invalid_relationship",
                        "user has no relationship “gruop”. Did you mean “group”?",
                        "/data/relationships/gruop",
                    ),
                ],
            )
        ],
    )


async def test_faults_after_a_missing_type(api: Api) -> None:
    """The route determines the type, so the rest of the body is checked."""
    answer = await api.post("/users", {"data": {"attributes": {"age": "x"}}})
    assert answer.status == 422
    assert [found["source"]["pointer"] for found in answer.errors] == [
        "/data/type",
        "/data/attributes/age",
        "/data/attributes/first_name",
        "/data/attributes/last_name",
    ]


SANE = "JSON whose numbers are less than 1e400, and no smaller than 1e-400"


@pytest.mark.parametrize(
    ("number", "count", "expected"),
    [
        ("1e400000", 1, SANE),
        ("1e400", 1, SANE),
        # The same number.
        ("1" + "0" * 400, 1, SANE),
        ("1e399", 99_900, "a value whose numbers have exponents for at most 4194304 zeros in all"),
    ],
    ids=lambda value: str(value)[:10],
)
async def test_numbers_of_jsonb_with_too_many_digits(api: Api, number: str, count: int, expected: str) -> None:
    answer = await post_photo(api, f"[{','.join([number] * count)}]")
    [told] = answer.errors
    refused, _, sent = told.pop("detail").partition(", not ")
    source = {"pointer": "/data/attributes/words"}
    assert told == {"status": "422", "code": "invalid_attribute", "title": "Invalid Attribute", "source": source}
    assert refused == f"“words” must be {expected}"
    assert len(sent) < 100
    assert (await api.get("/photos")).document["meta"]["total"] == 0


async def test_a_number_of_jsonb_with_the_most_digits(api: Api) -> None:
    for number in ("1e399", "1" + "0" * 399):
        answer = await post_photo(api, number)
        assert (answer.status, answer.body.count(b"0" * 399)) == (201, 1)


async def post_photo(api: Api, number: str) -> Answer:
    body = f'{{"data":{{"type":"photo","attributes":{{"name":"n","words":{{"a":{number}}}}}}}}}'
    return await api.request("POST", "/photos", headers={"Content-Type": MEDIA_TYPE}, body=body)


async def test_no_text_of_the_database_reaches_a_client(api: Api) -> None:
    """The error comes from PostgreSQL: a name that is too long for its index."""
    await create_household(api)
    name = "".join(chr(0x4E00 + number * 7919 % 20000) for number in range(3000))
    detail = "PostgreSQL refuses a value of the document: a value is too large for PostgreSQL or for an index."
    await check_refused(
        api,
        [
            Refused(
                "POST", "/groups", document("group", {"name": name}), [error("body_value_refused", detail, "/data")]
            ),
            Refused(
                "PATCH",
                "/groups/1",
                document("group", {"name": name}, id="1"),
                [error("body_value_refused", detail, "/data")],
            ),
        ],
    )


async def test_at_most_a_hundred_errors(api: Api) -> None:
    names = [f"x{number}" for number in range(250)]
    answer = await api.post("/groups", document("group", {"name": "a", **dict.fromkeys(names, 1)}))
    assert answer.status == 422
    assert [one["source"]["pointer"] for one in answer.errors] == [f"/data/attributes/{name}" for name in names[:100]]
