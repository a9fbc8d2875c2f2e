"""Section 5: filters that are refused. Each answer is compared in full, except the ids of errors."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest

from tests.http.conftest import Api
from tests.http.expected import Pairs, error, target
from tests.http.reads.test_filters import one, two

USER_FIELDS = (
    "id, first_name, last_name, display_name, age, email, status, birth_date, gender, words, date_create, "
    "computers, posts, bio, group"
)
NUMBER_OPERATORS = "eq, ne, lt, le, gt, ge, between, in_, notin_, is_, isnot"
INT_RANGE = "a whole number from -2147483648 to 2147483647"
LIST = f"a list of values, each {INT_RANGE}"
NO_NULLS = "a list without null, which `is_` and `isnot` find"
BIGINT_RANGE = "a whole number from -9223372036854775808 to 9223372036854775807"
A_DATE = "a date such as 2024-05-31, from 0001-01-02 to 9999-12-30"

SIMPLE = "A simple filter is filter[field], filter[field][operator] or filter[relationship][count][operator]."


def refused(detail: str, parameter: str = "filter") -> dict[str, Any]:
    return error(400, "invalid_filter", "Invalid Filter", detail, parameter=parameter)


async def refusals(api: Api, path: str, pairs: Pairs, errors: list[dict[str, Any]]) -> None:
    answer = await api.get(target(path, pairs))
    assert answer.status == 400
    assert set(answer.document) == {"errors", "jsonapi"}
    assert answer.document["jsonapi"] == {"version": "1.0"}
    assert answer.errors == errors


@pytest.mark.parametrize(
    ("path", "filters", "detail"),
    [
        # null
        ("/users", one("age", "eq", None), "[0]: `eq` never matches null: ask with `is_` or `isnot`."),
        ("/users", one("age", "ne", None), "[0]: `ne` never matches null: ask with `is_` or `isnot`."),
        ("/users", one("group", "eq", None), "[0]: `eq` never matches null: ask with `is_` or `isnot`."),
        # the wrong operator for the type
        (
            "/users",
            one("age", "like", "1"),
            f"[0]: “age” is int and has no operator “like”. “age” has: {NUMBER_OPERATORS}.",
        ),
        (
            "/users",
            one("age", "jsonb_contains", {}),
            f"[0]: “age” is int and has no operator “jsonb_contains”. “age” has: {NUMBER_OPERATORS}.",
        ),
        (
            "/users",
            one("birth_date", "match", "1"),
            f"[0]: “birth_date” is date and has no operator “match”. “birth_date” has: {NUMBER_OPERATORS}.",
        ),
        (
            "/users",
            one("words", "lt", ["a"]),
            "[0]: “words” is text[] and has no operator “lt”. “words” has: eq, ne, in_, notin_, is_, isnot.",
        ),
        *[
            (
                "/users",
                one("words", op, "a"),
                f"[0]: {told} “{op}”. Use “in_” to find the arrays that contain a value. “words” has: eq, ne, in_, "
                "notin_, is_, isnot.",
            )
            for op, told in (("ilike", "“words” is text[] and has no operator"), ("icontains", "There is no operator"))
        ],
        (
            "/users",
            one("first_name", "contains", "a"),
            "[0]: “first_name” is text and has no operator “contains”. Use “ilike” to find a part of a text. "
            f"“first_name” has: {NUMBER_OPERATORS}, like, ilike, notlike, notilike, startswith, endswith, match.",
        ),
        (
            "/photos",
            one("words", "contains", "a"),
            "[0]: “words” is jsonb and has no operator “contains”. Use “jsonb_contains” to find a part. “words” has: "
            "is_, isnot, jsonb_contains.",
        ),
        (
            "/users",
            one("status", "match", "a"),
            f"[0]: “status” is enum and has no operator “match”. “status” has: {NUMBER_OPERATORS}, like, ilike, "
            "notlike, notilike, startswith, endswith.",
        ),
        (
            "/users",
            one("group.id", "startswith", "a"),
            f"[0]: “group.id” is bigint and has no operator “startswith”. “group.id” has: {NUMBER_OPERATORS}.",
        ),
        (
            "/photos",
            one("words", "eq", {"a": 1}),
            "[0]: “words” is jsonb and has no operator “eq”. “words” has: is_, isnot, jsonb_contains.",
        ),
        ("/photos", one("words", "is_", {}), "[0]: `is_` of jsonb takes only null."),
        ("/photos", one("words", "isnot", {}), "[0]: `isnot` of jsonb takes only null."),
        (
            "/photos",
            one("words", "jsonb_contains", 1),
            "[0]: the value for “words” must be a JSON object or array, not 1.",
        ),
        (
            "/photos",
            one("words", "jsonb_contains", None),
            "[0]: the value for “words” must be a JSON object or array, not null.",
        ),
        # a pattern that PostgreSQL would only refuse if a row reaches its end
        *[
            (
                "/users",
                one("first_name", op, pattern),
                "[0]: the value for “first_name” must be a LIKE pattern that does not end in a single backslash (write "
                f"two for a literal one), not {shown}.",
            )
            for op in ("like", "ilike", "notlike", "notilike")
            for pattern, shown in (("nobody%\\", r'"nobody%\\"'), ("%\\\\\\", r'"%\\\\\\"'))
        ],
        # relationships
        ("/users", one("group", "any", []), "[0]: “group” is to-one: its operator is `has`."),
        ("/users", one("computers", "has", []), "[0]: “computers” is to-many: its operator is `any`."),
        (
            "/users",
            one("computers", "eq", "1"),
            "[0]: “computers” is to-many: ask with `any`, or name a field of it, computers.id.",
        ),
        (
            "/users",
            one("age", "any", []),
            f"[0]: “age” is int and has no operator “any”. “age” has: {NUMBER_OPERATORS}.",
        ),
        (
            "/users",
            one("agee", "has", []),
            "[0]: user has no relationship “agee”. There are: computers, posts, bio, group.",
        ),
        (
            "/users",
            two("computers", "any", "posts"),
            "[0]: `any` takes a `val`: a filter object, a group, or a list of them",
        ),
        ("/users", one("computers", "any", "x"), "[0].val: expected a filter object, a group, or a list of them"),
        ("/users", one("computers", "any", None), "[0].val: expected a filter object, a group, or a list of them"),
        # unknown names, with the nearest declared one
        (
            "/users",
            one("first_nam", "eq", "x"),
            "[0]: user has no attribute or relationship “first_nam”. Did you mean “first_name”? "
            f"There are: {USER_FIELDS}.",
        ),
        (
            "/users",
            one("password_hash", "is_", None),
            f"[0]: user has no attribute or relationship “password_hash”. There are: {USER_FIELDS}.",
        ),
        (
            "/users",
            one("group.nam", "eq", "x"),
            "[0]: group has no attribute or relationship “nam”. Did you mean “name”? There are: id, name, users.",
        ),
        (
            "/users",
            one("age.id", "eq", "x"),
            "[0]: user has no relationship “age”. There are: computers, posts, bio, group.",
        ),
        (
            "/photos",
            one("meta", "jsonb_contains", {}),
            "[0]: photo has no attribute or relationship “meta”. There are: id, name, words.",
        ),
        ("/users", one("", "eq", "x"), f"[0]: user has no attribute or relationship “”. There are: {USER_FIELDS}."),
        (
            "/users",
            one("age", "eqq", 1),
            f"[0]: There is no operator “eqq”. Did you mean “eq”? “age” has: {NUMBER_OPERATORS}.",
        ),
        # values of the wrong type
        ("/users", one("age", "eq", "36"), f'[0]: the value for “age” must be {INT_RANGE}, not "36".'),
        ("/users", one("age", "eq", True), f"[0]: the value for “age” must be {INT_RANGE}, not true."),
        ("/users", one("age", "eq", 1.5), f"[0]: the value for “age” must be {INT_RANGE}, not 1.5."),
        ("/users", one("age", "eq", 2**31), f"[0]: the value for “age” must be {INT_RANGE}, not 2147483648."),
        ("/users", one("age", "eq", [1]), f"[0]: the value for “age” must be {INT_RANGE}, not [1]."),
        ("/users", one("age", "eq", {"a": 1}), f'[0]: the value for “age” must be {INT_RANGE}, not {{"a":1}}.'),
        ("/users", one("age", "in_", [1, "2"]), f'[0]: the value for “age” must be {LIST}, not [1,"2"].'),
        ("/users", one("age", "in_", [1, None]), f"[0]: the value for “age” must be {NO_NULLS}, not [1,null]."),
        ("/users", one("age", "in_", 5), "[0]: the value for “age” must be a list, not 5."),
        (
            "/users",
            one("age", "between", [1]),
            "[0]: the value for “age” must be a list of two, the lowest and the highest, not [1].",
        ),
        ("/users", one("age", "between", 5), "[0]: the value for “age” must be a list, not 5."),
        ("/users", one("first_name", "eq", 5), "[0]: the value for “first_name” must be a string, not 5."),
        ("/users", one("first_name", "like", ["a"]), '[0]: the value for “first_name” must be a string, not ["a"].'),
        (
            "/users",
            one("first_name", "match", "x" * 201),
            "[0]: the value for “first_name” must be a regular expression of at most 200 characters, "
            f'not "{"x" * 76}....',
        ),
        (
            "/users",
            one("first_name", "match", "(.{0,100}){0,100}(.{0,100}){0,100}z"),
            "[0]: the value for “first_name” must be a regular expression that is shorter when its repetitions are "
            'written out, not "(.{0,100}){0,100}(.{0,100}){0,100}z".',
        ),
        (
            "/users",
            one("status", "eq", "nope"),
            '[0]: the value for “status” must be one of active, block, archive, not "nope".',
        ),
        (
            "/users",
            one("birth_date", "eq", "10.12.1815"),
            f'[0]: the value for “birth_date” must be {A_DATE}, not "10.12.1815".',
        ),
        (
            "/users",
            one("birth_date", "eq", "0001-01-01"),
            f'[0]: the value for “birth_date” must be {A_DATE}, not "0001-01-01".',
        ),
        (
            "/users",
            one("birth_date", "eq", "9999-12-31"),
            f'[0]: the value for “birth_date” must be {A_DATE}, not "9999-12-31".',
        ),
        (
            "/users",
            one("words", "eq", "math"),
            '[0]: the value for “words” must be a list of text values, not "math".',
        ),
        (
            "/users",
            one("words", "in_", 5),
            "[0]: the value for “words” must be a list of values, each a string, not 5.",
        ),
        ("/users", one("id", "eq", True), f"[0]: the value for “id” must be {BIGINT_RANGE}, not true."),
        (
            "/users",
            one("id", "eq", 2**63),
            f"[0]: the value for “id” must be {BIGINT_RANGE}, not 9223372036854775808.",
        ),
        (
            "/users",
            one("id", "eq", "07"),
            '[0]: the value for “id” must be a whole number without plus sign, blanks or leading zeros, not "07".',
        ),
        # the field form
        ("/users", two("age", "gt", "first_name"), "[0]: “age” and “first_name” do not compare: int with text."),
        ("/users", two("birth_date", "gt", "age"), "[0]: “birth_date” and “age” do not compare: date with int."),
        ("/users", two("age", "between", "id"), "[0]: `between` has no `field` form."),
        ("/users", two("age", "in_", "words"), "[0]: `in_` has no `field` form."),
        (
            "/users",
            two("age", "gt", "agee"),
            f"[0]: user has no attribute or relationship “agee”. Did you mean “age”? There are: {USER_FIELDS}.",
        ),
        (
            "/users",
            two("age", "gt", "computers"),
            "[0]: “computers” is to-many: ask with `any`, or name a field of it, computers.id.",
        ),
        # form
        ("/users", 1, "expected a filter object, a group, or a list of them"),
        ("/users", None, "expected a filter object, a group, or a list of them"),
        ("/users", [1], "[0]: expected a filter object or a group"),
        ("/users", [[]], "[0]: expected a filter object or a group"),
        ("/users", [{"name": "age", "op": "eq"}], "[0]: a filter object has either `val` or `field`"),
        (
            "/users",
            [{"name": "age", "op": "eq", "val": 1, "field": "id"}],
            "[0]: a filter object has either `val` or `field`",
        ),
        ("/users", [{"name": "age", "val": 1}], "[0]: a filter object has a `op`, a string"),
        ("/users", [{"op": "eq", "val": 1}], "[0]: a filter object has a `name`, a string"),
        ("/users", [{"name": 1, "op": "eq", "val": 1}], "[0]: a filter object has a `name`, a string"),
        ("/users", [{"name": "age", "op": "eq", "field": 1}], "[0]: `field` is the name of another field, a string"),
        (
            "/users",
            [{"name": "age", "op": "eq", "val": 1, "value": 1}],
            "[0]: “value” is not a member of a filter object. Did you mean “val”?",
        ),
        ("/users", {"and": [], "or": []}, "a group has exactly one member, `and`, `or` or `not`"),
        ("/users", {"and": [], "op": "eq"}, "a group has exactly one member, `and`, `or` or `not`"),
        ("/users", {"or": one("age", "eq", 1)[0]}, "or: `or` takes a list of filters"),
        ("/users", {"not": []}, "not: `not` takes one filter object or group"),
        ("/users", {"not": one("age", "eq", 1) * 2}, "not: `not` takes one filter object or group"),
        ("/users", {"not": 1}, "not: `not` takes one filter object or group"),
    ],
)
async def test_refused(reader: Api, path: str, filters: Any, detail: str) -> None:
    await refusals(reader, path, [("filter", json.dumps(filters))], [refused(detail)])


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("", "unexpected text at line 1, column 1"),
        ('[{"name":"age"', "unexpected text at line 1, column 15"),
        ("[NaN]", "NaN is not JSON"),
        ('[{"name":"age","op":"eq","op":"ne","val":1}]', 'the name "op" occurs twice in one object'),
        ('[{"name":"email","op":"eq","val":"\\u0000"}]', "a string contains U+0000, which PostgreSQL cannot store"),
        ('[{"name":"email","op":"eq","val":"\\ud800"}]', "a string contains half of a surrogate pair"),
        ('[{"name":"age","op":"eq","val":' + "9" * 5000 + "}]", "a number has too many digits"),
        ('[{"name":"age","op":"eq","val":1e99999999999999999999}]', "a number has too many digits"),
        ('[{"name":"age","op":"eq","val":-1e99999999999999999999}]', "a number has too many digits"),
        ("[" * 100 + "]" * 100, "nested deeper than 64 levels"),
    ],
)
async def test_bad_json(reader: Api, text: str, detail: str) -> None:
    expected = refused(f"The filter is not valid JSON: {detail}.")
    await refusals(reader, "/users", [("filter", text)], [expected])


async def test_json_too_deep_for_the_parser(reader: Api) -> None:
    await refusals(
        reader,
        "/users",
        [("filter", "[" * 2000 + "]" * 2000)],
        [refused("The filter is not valid JSON: nested deeper than 64 levels.")],
    )


@pytest.mark.parametrize("exponent", ["1e400", "1e999999", "1E+99999", "123456789012345678901234567890"])
async def test_numbers_far_out_of_range(reader: Api, exponent: str) -> None:
    answer = await reader.get(target("/users", [("filter", f'[{{"name":"age","op":"in_","val":[{exponent}]}}]')]))
    assert (answer.status, [error["code"] for error in answer.errors]) == (400, ["invalid_filter"])


@pytest.mark.parametrize(
    ("parameter", "value", "detail"),
    [
        ("filter[age]", "x", f"the value for “age” must be {INT_RANGE}, not “x”."),
        ("filter[age]", "3.5", f"the value for “age” must be {INT_RANGE}, not “3.5”."),
        ("filter[age]", "", f"the value for “age” must be {INT_RANGE}, not “”."),
        ("filter[age]", "null", f"the value for “age” must be {INT_RANGE}, not “null”."),
        ("filter[age]", "9" * 41, f"the value for “age” must be {INT_RANGE}, not “{'9' * 41}”."),
        ("filter[age][in_]", "1,,2", f"the value for “age” must be {LIST}, not “1,,2”."),
        (
            "filter[age][between]",
            "1,2,3",
            "the value for “age” must be a list of two, the lowest and the highest, not “1,2,3”.",
        ),
        (
            "filter[age][like]",
            "1",
            f"“age” is int and has no operator “like”. “age” has: {NUMBER_OPERATORS}.",
        ),
        ("filter[age][nix]", "1", f"There is no operator “nix”. “age” has: {NUMBER_OPERATORS}."),
        (
            "filter[agee]",
            "1",
            f"user has no attribute or relationship “agee”. Did you mean “age”? There are: {USER_FIELDS}.",
        ),
        (
            "filter[id]",
            "07",
            "the value for “id” must be a whole number without plus sign, blanks or leading zeros, not “07”.",
        ),
        (
            "filter[group]",
            "null",
            "the value for “group” must be a whole number without plus sign, blanks or leading zeros, not “null”.",
        ),
        (
            "filter[computers]",
            "1",
            "“computers” is to-many: ask with `any`, or name a field of it, computers.id.",
        ),
        ("filter[first_name]", "a\0b", "The value contains U+0000, which PostgreSQL cannot store."),
        ("filter[a][b][c]", "1", SIMPLE),
        ("filter[]", "1", SIMPLE),
        ("filter[age][]", "1", SIMPLE),
    ],
)
async def test_simple(reader: Api, parameter: str, value: str, detail: str) -> None:
    await refusals(reader, "/users", [(parameter, value)], [refused(detail, parameter)])


async def test_simple_json(reader: Api) -> None:
    detail = "the value for “words” must be JSON (unexpected text at line 1, column 2), not “{a”."
    parameter = "filter[words][jsonb_contains]"
    await refusals(reader, "/photos", [(parameter, "{a")], [refused(detail, parameter)])


async def test_several_are_reported_together(reader: Api) -> None:
    filters = [*one("agee", "eq", 1), {"or": [*one("age", "like", "1"), {"not": 1}]}]
    await refusals(
        reader,
        "/users",
        [("filter", json.dumps(filters)), ("filter[age]", "x")],
        [
            refused("[1].or[1].not: `not` takes one filter object or group"),
            refused(
                f"[0]: user has no attribute or relationship “agee”. Did you mean “age”? There are: {USER_FIELDS}."
            ),
            refused(f"[1].or[0]: “age” is int and has no operator “like”. “age” has: {NUMBER_OPERATORS}."),
            refused(f"the value for “age” must be {INT_RANGE}, not “x”.", "filter[age]"),
        ],
    )


async def test_the_position_inside_any(reader: Api) -> None:
    filters = [
        {"name": "computers", "op": "any", "val": {"and": [{"name": "owner.computerz", "op": "any", "val": []}]}}
    ]
    await refusals(
        reader,
        "/users",
        [("filter", json.dumps(filters))],
        [
            refused(
                "[0].val.and[0]: user has no relationship “computerz”. Did you mean “computers”? "
                "There are: computers, posts, bio, group."
            )
        ],
    )


INVALID = {"name": "first_name", "op": "match", "val": "a{2"}


@pytest.mark.parametrize(
    ("path", "filters"),
    [
        ("/users", [INVALID]),
        ("/users", [{"name": "id", "op": "eq", "val": "-1"}, INVALID]),
        ("/users", [INVALID, {"name": "id", "op": "in_", "val": []}]),
        ("/users", [{"or": [{"name": "id", "op": "isnot", "val": None}, INVALID]}]),
        ("/users", [{"and": [{"name": "id", "op": "is_", "val": None}, {"not": INVALID}]}]),
        ("/computers", [{"name": "owner", "op": "has", "val": INVALID}, {"name": "id", "op": "eq", "val": "-1"}]),
        ("/groups/1/users", [{"name": "id", "op": "eq", "val": "-1"}, INVALID]),
    ],
)
async def test_an_invalid_pattern_is_refused_whatever_the_plan_is(reader: Api, path: str, filters: Any) -> None:
    for page in ("", "&page[number]=99", "&page[total]=none", "&page[total]=estimated"):
        for _ in range(7):
            answer = await reader.get(f"{path}?filter={quote(json.dumps(filters))}{page}")
            assert (answer.status, answer.errors[0]["code"]) == (400, "value_refused"), (page, answer.body)
