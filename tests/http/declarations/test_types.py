"""Sections 1 and 5: reads, sorts and filters of every attribute type, over the samples of `tests/catalog.py`."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any
from urllib.parse import quote, unquote

import msgspec
import pytest

from tests import catalog
from tests.catalog import SAMPLE
from tests.http.conftest import Api, Serve
from tests.http.expected import error, target
from waterspout import Catalog

ATTRIBUTES = tuple(attribute.name for attribute in catalog.SAMPLE_TYPE.attributes)
OPAQUE = ("place", "address")
ARRAYS = (
    *("flags", "numbers", "amounts", "singles", "texts", "fixeds", "moods", "tokens", "days", "clocks"),
    *("moments", "instants", "spans", "blobs", "trees", "origins"),
)
NUMBERS = ("small", "medium", "large", "exact", "price", "double", "single", "percent")
TEXTS = ("words", "short", "fixed", "label", "code")
ENUMS = ("mood", "colour")
TIMES = ("day", "clock", "moment", "instant", "span")
ORDERED = (*NUMBERS, *TEXTS, *ENUMS, *TIMES)
SCALARS = (*ORDERED, "flag", "token")
JSONS = ("plain_json", "tree")


@pytest.fixture
def samples(serve: Serve, corner_url: str) -> Api:
    return serve(corner_url, catalog.CATALOG)


async def fill(api: Api) -> None:
    """Row 1 has the values of the sample, row 2 null everywhere."""
    assert await api.create("/samples", "sample", SAMPLE) == "1"
    assert await api.create("/samples", "sample", {}) == "2"


async def ids(api: Api, name: str, op: str, val: Any) -> list[str]:
    filters = json.dumps([{"name": name, "op": op, "val": val}])
    answer = await api.get(target("/samples", [("filter", filters), ("fields[sample]", "")]))
    assert answer.status == 200, (name, op, val, answer.body)
    return answer.ids


async def test_read(samples: Api) -> None:
    await fill(samples)
    full, empty = (await samples.get("/samples")).document["data"]
    assert full["attributes"] == SAMPLE | dict.fromkeys(OPAQUE)
    assert empty["attributes"] == dict.fromkeys(ATTRIBUTES)


async def test_every_type_has_its_operators(samples: Api) -> None:
    """Null only matches is_ and isnot, and notin_ with an empty list."""
    await fill(samples)
    for name in (*SCALARS, *(name for name in ARRAYS if name not in ("blobs", "trees"))):
        value = SAMPLE[name]
        assert await ids(samples, name, "eq", value) == ["1"]
        assert await ids(samples, name, "ne", value) == []
        assert await ids(samples, name, "is_", value) == ["1"]
        assert await ids(samples, name, "isnot", value) == ["2"]
    for name in SCALARS:
        value = SAMPLE[name]
        assert await ids(samples, name, "in_", [value]) == ["1"]
        assert await ids(samples, name, "in", [value, value]) == ["1"]
        assert await ids(samples, name, "notin_", [value]) == []
    for name in (*SCALARS, *ARRAYS):
        assert await ids(samples, name, "in_", []) == [], name
        assert await ids(samples, name, "notin_", []) == ["1", "2"], name
    for name in ATTRIBUTES:
        assert await ids(samples, name, "is_", None) == (["2"] if name not in OPAQUE else ["1", "2"])
        assert await ids(samples, name, "isnot", None) == (["1"] if name not in OPAQUE else [])


async def test_ordered_types(samples: Api) -> None:
    await fill(samples)
    for name in ORDERED:
        value = SAMPLE[name]
        assert await ids(samples, name, "ge", value) == ["1"]
        assert await ids(samples, name, "le", value) == ["1"]
        assert await ids(samples, name, "gt", value) == []
        assert await ids(samples, name, "lt", value) == []
        assert await ids(samples, name, "between", [value, value]) == ["1"]


def other_case(text: str) -> str:
    """Only of ASCII: in the locale C, PostgreSQL knows no other letters."""
    return "".join([letter.swapcase() if letter.isascii() else letter for letter in text])


async def test_text_types(samples: Api) -> None:
    """Text and enum have like and similar operators. The padding of a char is never visible."""
    await fill(samples)
    for name in (*TEXTS, *ENUMS):
        value = SAMPLE[name]
        for op in ("like", "ilike", "startswith", "endswith"):
            assert await ids(samples, name, op, value) == ["1"], (name, op)
        assert await ids(samples, name, "like", f"{value}%") == ["1"]
        assert await ids(samples, name, "endswith", value[1:]) == ["1"]
        assert await ids(samples, name, "notlike", value) == []
        assert await ids(samples, name, "notilike", other_case(value)) == []
    for name in TEXTS:
        assert await ids(samples, name, "match", f"^{SAMPLE[name]}$") == ["1"]


async def test_arrays_by_their_elements(samples: Api) -> None:
    await fill(samples)
    for name in ARRAYS:
        if name in ("blobs", "trees"):
            continue
        first, *_ = SAMPLE[name]
        assert await ids(samples, name, "in", first) == ["1"], name
        assert await ids(samples, name, "in_", [first]) == ["1"], name
        assert await ids(samples, name, "notin_", [first]) == [], name


async def test_simple_filters(samples: Api) -> None:
    """The text is converted to the attribute's type."""
    await fill(samples)
    for name in SCALARS:
        value = SAMPLE[name]
        text = json.dumps(value) if isinstance(value, bool | int | float) else value
        answer = await samples.get(target("/samples", [(f"filter[{name}]", text)]))
        assert (answer.status, answer.ids) == (200, ["1"]), name
        answer = await samples.get(target("/samples", [(f"filter[{name}][in_]", text.replace(",", "\\,"))]))
        assert (answer.status, answer.ids) == (200, ["1"]), name


async def test_sort(samples: Api) -> None:
    """Nulls are last in both directions, for every type. JSON has no order."""
    await fill(samples)
    for name in ATTRIBUTES:
        for sort in (name, f"-{name}"):
            answer = await samples.get(f"/samples?sort={sort}&fields[sample]=")
            if name in (*JSONS, "trees", "spot", "origin", "origins"):
                assert answer.status == 400, name
            elif name not in OPAQUE:
                assert (answer.status, answer.ids) == (200, ["1", "2"]), name


async def test_the_end_of_a_day_is_accepted_as_it_is_shown(samples: Api) -> None:
    """24:00:00 is a time in PostgreSQL, but not in Python."""
    clocks = ("24:00:00", "23:59:59.999999", "00:00:00")
    for clock in clocks:
        await samples.create("/samples", "sample", {"clock": clock})
    shown = [each["attributes"]["clock"] for each in (await samples.get("/samples")).document["data"]]
    assert tuple(shown) == clocks
    for op, value, found in (
        ("eq", "24:00:00", ["1"]),
        ("is_", "24:00:00.0", ["1"]),
        ("gt", "23:59:59.999999", ["1"]),
        ("lt", "24:00:00", ["2", "3"]),
        ("between", ["23:00:00", "24:00:00"], ["1", "2"]),
        ("in_", ["24:00:00", "00:00:00"], ["1", "3"]),
    ):
        assert await ids(samples, "clock", op, value) == found, (op, value)
    assert (await samples.get("/samples?filter[clock]=24:00:00&sort=clock")).ids == ["1"]
    page = await samples.get("/samples?sort=-clock&page[size]=1&page[after]=")
    walked = page.ids
    while "next" in page.document["links"]:
        page = await samples.get(unquote(page.document["links"]["next"]))
        walked += page.ids
    assert walked == ["1", "2", "3"]
    body = {"data": {"type": "sample", "id": "3", "attributes": {"clock": "24:00:00", "clocks": ["24:00:00"]}}}
    changed = (await samples.patch("/samples/3", body)).document["data"]["attributes"]
    assert (changed["clock"], changed["clocks"]) == ("24:00:00", ["24:00:00"])


async def test_a_fraction_of_a_second_has_six_digits(samples: Api) -> None:
    sent = {"clock": "12:00:00.5", "clocks": ["12:00:00.25", "12:00:00"], "instant": "2024-05-31T12:00:00.5Z"}
    await samples.create("/samples", "sample", sent)
    made = (await samples.get("/samples/1")).document["data"]["attributes"]
    assert (made["clock"], made["clocks"], made["instant"]) == (
        "12:00:00.500000",
        ["12:00:00.250000", "12:00:00"],
        "2024-05-31T12:00:00.500000Z",
    )
    assert await ids(samples, "clock", "eq", made["clock"]) == ["1"]


FIELD_FORMS: tuple[tuple[str, str, str, list[str]], ...] = (
    ("day", "lt", "instant", ["1"]),
    ("instant", "gt", "moment", ["1"]),
    ("moment", "ge", "day", ["1"]),
    ("small", "lt", "exact", ["1"]),
    ("exact", "lt", "large", ["1"]),
    ("double", "lt", "single", ["1"]),
    ("words", "ne", "mood", ["1"]),
    ("mood", "gt", "colour", ["1"]),
    ("fixed", "lt", "label", ["1"]),
    ("colour", "eq", "colour", ["1"]),
    ("mood", "eq", "mood", ["1"]),
    ("fixed", "eq", "fixed", ["1"]),
    ("mood", "isnot", "short", ["1"]),
    ("percent", "le", "id", []),
    ("id", "lt", "percent", ["1"]),
)


async def test_field_forms(samples: Api) -> None:
    await fill(samples)
    for left, op, right, found in FIELD_FORMS:
        answer = await samples.filter("/samples", [{"name": left, "op": op, "field": right}])
        assert (answer.status, answer.ids) == (200, found), (left, op, right)


@pytest.mark.parametrize("number", ["1e200000", "1e-200000"])
async def test_a_number_beyond_the_range_of_postgresql(samples: Api, number: str) -> None:
    answer = await samples.get("/samples?filter[tree][jsonb_contains]=" + quote(f'{{"a":[{number}]}}'))
    assert (answer.status, answer.errors[0]["code"]) == (400, "invalid_filter")


async def test_a_number_beyond_the_range_of_the_other_field(samples: Api) -> None:
    """PostgreSQL compares the two as `double precision`."""
    await samples.create("/samples", "sample", {"exact": "1e400", "double": 1})
    answer = await samples.filter("/samples", [{"name": "exact", "op": "gt", "field": "double"}])
    detail = "[0]: PostgreSQL refuses a value of the filter: a number is out of range."
    expected = error(400, "value_refused", "Value Refused", detail, parameter="filter")
    assert (answer.status, answer.errors) == (400, [expected])


@pytest.mark.parametrize(
    ("name", "op", "detail"),
    [
        ("flag", "lt", "“flag” is bool and has no operator “lt”. “flag” has: eq, ne, in_, notin_, is_, isnot."),
        ("plain_json", "eq", "“plain_json” is json and has no operator “eq”. “plain_json” has: is_, isnot."),
        (
            "plain_json",
            "jsonb_contains",
            "“plain_json” is json and has no operator “jsonb_contains”. “plain_json” has: is_, isnot.",
        ),
        ("tree", "in_", "“tree” is jsonb and has no operator “in_”. “tree” has: is_, isnot, jsonb_contains."),
        (
            "numbers",
            "between",
            "“numbers” is int[] and has no operator “between”. “numbers” has: eq, ne, in_, notin_, is_, isnot.",
        ),
        (
            "texts",
            "like",
            "“texts” is text[] and has no operator “like”. Use “in_” to find the arrays that contain a value. "
            "“texts” has: eq, ne, in_, notin_, is_, isnot.",
        ),
    ],
)
async def test_wrong_pairings(corner_reader: Api, name: str, op: str, detail: str) -> None:
    answer = await corner_reader.filter("/samples", [{"name": name, "op": op, "val": "x"}])
    expected = error(400, "invalid_filter", "Invalid Filter", f"[0]: {detail}", parameter="filter")
    assert (answer.status, answer.errors) == (400, [expected])


async def test_values_at_their_limits(samples: Api) -> None:
    """As PostgreSQL stores them, not as a client sent them."""
    await samples.sql(
        """INSERT INTO corner.samples (double, single, exact, price, fixed, moment, instant, clock, span, blob, numbers,
                                       large, tree, place, address, singles, day) VALUES
           ('NaN', 'Infinity', 'NaN', 'NaN', 'a', '2024-05-31 12:00:00.000001', '2024-05-31 14:00:00+02', '00:00:00',
            '1 year -2 days 03:00:00.5', '\\x', '{1,NULL}', 9223372036854775807, '{"n": 12345678901234567890.5}',
            '(1,2)', '10.0.0.1', '{NaN,1.5}', '0001-01-02')"""
    )
    answer = await samples.get("/samples/1")
    shown = json.loads(answer.body, parse_float=Decimal)["data"]["attributes"]
    assert {name: value for name, value in shown.items() if value is not None} == {
        "exact": "NaN",
        "fixed": "a",
        "moment": "2024-05-31T12:00:00.000001Z",
        "instant": "2024-05-31T12:00:00Z",
        "clock": "00:00:00",
        "span": "P1Y-2DT3H0.5S",
        "blob": "",
        "numbers": [1, None],
        "large": 9223372036854775807,
        "tree": {"n": Decimal("12345678901234567890.5")},
        "place": "(1,2)",
        "address": "10.0.0.1/32",
        "singles": [None, Decimal("1.5")],
        "day": "0001-01-02",
    }


async def test_dates_that_cannot_be_shown(samples: Api) -> None:
    """They are shown as null, and filters and sorts treat them as null."""
    await samples.sql(
        """INSERT INTO corner.samples (day, moment, instant, days) VALUES
           ('infinity', 'infinity', 'infinity', '{-infinity,2024-02-29}'),
           ('0044-03-15 BC', '0044-03-15 BC', '0044-03-15 BC', '{10000-01-01}'),
           ('2024-02-29', '2024-02-29', '2024-02-29', '{}'), (NULL, NULL, NULL, NULL)"""
    )
    answer = await samples.get("/samples?fields[sample]=day,moment,instant,days&sort=day")
    moment = "2024-02-29T00:00:00Z"
    assert [tuple(resource["attributes"].values()) for resource in answer.document["data"]] == [
        (None, None, None, [None]),
        ("2024-02-29", moment, moment, []),
        (None, None, None, [None, "2024-02-29"]),
        (None, None, None, None),
    ]
    for name, value in (("day", "2024-02-29"), ("moment", moment), ("instant", moment)):
        assert await ids(samples, name, "is_", None) == ["4"]
        assert await ids(samples, name, "lt", value) == ["2"]
        assert await ids(samples, name, "gt", value) == ["1"]


STORED_JSON = (
    ("plain_json", """'{"a": 1, "a": 2}'""", {"a": 2}),
    ("plain_json", r"""'"\u0000"'""", "x"),
    ("plain_json", r"""'"\ud800"'""", "x"),
    ("plain_json", "(repeat('[', 1000) || repeat(']', 1000))::json", []),
    ("plain_json", "(repeat('[', 5000) || repeat(']', 5000))::json", []),
    ("tree", "'1e131071'", 1),
)


@pytest.fixture
def unwritable(serve: Serve, corner_url: str) -> Api:
    attributes = tuple(
        msgspec.structs.replace(attribute, updatable=False)
        for attribute in catalog.SAMPLE_TYPE.attributes
        if attribute.name in JSONS
    )
    return serve(corner_url, Catalog([msgspec.structs.replace(catalog.SAMPLE_TYPE, attributes=attributes)]))


async def test_stored_json_that_no_client_can_send(unwritable: Api) -> None:
    """It is shown. If a client sends the attribute and it is read-only, it never equals the stored value."""
    for name, stored, sent in STORED_JSON:
        (row,) = await unwritable.sql(f"INSERT INTO corner.samples ({name}) VALUES ({stored}) RETURNING id")
        path, attributes = f"/samples/{row['id']}", {name: sent}
        assert (await unwritable.get(path)).status == 200
        answer = await unwritable.patch(
            path, {"data": {"type": "sample", "id": str(row["id"]), "attributes": attributes}}
        )
        assert (answer.status, [one["code"] for one in answer.errors]) == (422, ["invalid_attribute"]), (name, stored)
