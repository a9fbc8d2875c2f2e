"""The conversion of JSON and text to native values: which values each type accepts, and its errors for others."""

from __future__ import annotations

import json
from contextlib import nullcontext
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID as Uuid

import pytest

from querybuild.declarations.arrays import split_list
from querybuild.declarations.attributes import read_attribute
from querybuild.declarations.json_texts import JsonFault, dump_json, load_json
from querybuild.declarations.types import ColumnType
from querybuild.declarations.values import EndOfDay, ValueFault, interval_shown
from tests.catalog import SAMPLE_TYPE, attribute_of
from waterspout import (
    BIGINT,
    BOOL,
    BYTEA,
    CHAR,
    DATE,
    FLOAT,
    INT,
    INTERVAL,
    JSON,
    JSONB,
    NUMERIC,
    NUMERIC_NUMBER,
    OPAQUE,
    REAL,
    SMALLINT,
    TEXT,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    UUID,
    Attribute,
    array,
    enum,
)

COLOUR = enum("red", "green")
TOKEN = "123e4567-e89b-12d3-a456-426614174000"


@pytest.mark.parametrize(
    ("column_type", "value", "native"),
    [
        (BOOL, True, True),
        (BOOL, False, False),
        (SMALLINT, -32768, -32768),
        (SMALLINT, Decimal("3.0"), 3),
        (INT, 2147483647, 2147483647),
        (INT, Decimal("-0.0"), 0),
        (BIGINT, -(2**63), -(2**63)),
        (BIGINT, Decimal("1e3"), 1000),
        (NUMERIC, "1.50", Decimal("1.50")),
        (NUMERIC, "-.5e3", Decimal("-.5e3")),
        (NUMERIC, "1e131071", Decimal("1e131071")),
        (NUMERIC, "1e-16383", Decimal("1e-16383")),
        (NUMERIC, 10**30, Decimal(10**30)),
        (NUMERIC_NUMBER, Decimal("0.1"), Decimal("0.1")),
        (FLOAT, 1, 1.0),
        (FLOAT, Decimal("-1.7976931348623157e308"), -1.7976931348623157e308),
        (FLOAT, Decimal("1e-400"), 0.0),
        (REAL, Decimal("3.4028235e38"), 3.4028235e38),
        (TEXT, "", ""),
        (TEXT, "Käse 🧀", "Käse 🧀"),
        (CHAR, "a ", "a "),
        (COLOUR, "red", "red"),
        (UUID, TOKEN, Uuid(TOKEN)),
        (UUID, TOKEN.upper(), Uuid(TOKEN)),
        (DATE, "0001-01-02", date(1, 1, 2)),
        (DATE, "9999-12-30", date(9999, 12, 30)),
        (TIME, "00:00:00", time(0)),
        (TIME, "23:59:59.9", time(23, 59, 59, 900_000)),
        (TIMESTAMPTZ, "2024-05-31T12:00:00Z", datetime(2024, 5, 31, 12, tzinfo=UTC)),
        (TIMESTAMPTZ, "2024-05-31t14:00:00.000001+02:00", datetime(2024, 5, 31, 12, 0, 0, 1, tzinfo=UTC)),
        (TIMESTAMPTZ, "0001-01-01T23:00:00-02:00", datetime(1, 1, 2, 1, tzinfo=UTC)),
        (TIMESTAMP, "2024-05-31T14:00:00+02:00", datetime(2024, 5, 31, 12)),
        (INTERVAL, "P1Y2M3W4DT5H6M7.123456S", "P1Y2M3W4DT5H6M7.123456S"),
        (INTERVAL, "PT-0.5S", "PT-0.5S"),
        (INTERVAL, "P178956970YT2562047788H", "P178956970YT2562047788H"),
        (BYTEA, "", b""),
        (BYTEA, "AP+A", b"\0\xff\x80"),
        (JSON, {"b": 1, "a": [None]}, '{"b":1,"a":[null]}'),
        (JSONB, Decimal("1.10"), "1.10"),
        (JSONB, [10**30, {"a": Decimal("1e300")}], '[1000000000000000000000000000000,{"a":1E+300}]'),
        (OPAQUE, "(1,2)", "(1,2)"),
        (array(INT), [], []),
        (array(INT), [1, Decimal("2.0")], [1, 2]),
        (array(DATE), ["2024-02-29"], [date(2024, 2, 29)]),
        (array(COLOUR), ["red", "red"], ["red", "red"]),
        (array(JSONB), [{"a": 1}], ['{"a":1}']),
    ],
)
def test_accepted(column_type: ColumnType, value: Any, native: Any) -> None:
    read = column_type.json.from_json(value)
    assert (type(read), read) == (type(native), native)


WHOLE = {16: "from -32768 to 32767", 32: "from -2147483648 to 2147483647", 64: f"from {-(2**63)} to {2**63 - 1}"}
RANGE = "from 0001-01-02 to 9999-12-30"

REFUSED: list[tuple[ColumnType, str, list[Any]]] = [
    (BOOL, "true or false", [0, 1, "true", [], {}]),
    (SMALLINT, f"a whole number {WHOLE[16]}", [32768, -32769, Decimal("0.5"), "1", True, Decimal("1e999999999")]),
    (INT, f"a whole number {WHOLE[32]}", [2**31, -(2**31) - 1, Decimal("1.5"), "", False]),
    (BIGINT, f"a whole number {WHOLE[64]}", [2**63, -(2**63) - 1, "1", []]),
    (
        NUMERIC,
        "a number, or a string that contains one",
        [
            "",
            "nan",
            "inf",
            "+Infinity",
            "sNaN",
            "NaN1",
            " 1",
            "1 ",
            "1_0",
            "١",
            "0x1",
            True,
            "1e131072",
            "1e-16384",
            Decimal("1e999999"),
            [],
        ],
    ),
    (NUMERIC_NUMBER, "a number, or a string that contains one", ["NaN", "Infinity", "-Infinity"]),
    (FLOAT, "a number from -1.79769e+308 to 1.79769e+308", [Decimal("1e309"), 10**400, "1", True]),
    (REAL, "a number from -3.40282e+38 to 3.40282e+38", [Decimal("3.5e38"), "1"]),
    (TEXT, "a string", [1, True, [], {}]),
    (CHAR, "a string", [1]),
    (COLOUR, "one of red, green", ["Red", "", "blue", 1, ["red"]]),
    (
        UUID,
        f"a UUID such as {TOKEN}",
        [
            "",
            TOKEN[:-1],
            TOKEN.replace("-", ""),
            "{" + TOKEN + "}",
            "+" + TOKEN[1:],
            "1_" + TOKEN[2:],
            "١" + TOKEN[1:],
            "123e-4567e89b-12d3-a456-426614174000",
            1,
        ],
    ),
    (
        DATE,
        f"a date such as 2024-05-31, {RANGE}",
        [
            "2024-02-30",
            "2023-02-29",
            "0001-01-01",
            "9999-12-31",
            "0000-01-01",
            "10000-01-01",
            "2024-1-1",
            "20240101",
            "2024-W01-1",
            "2024-05-31T00:00:00Z",
            "infinity",
            "today",
            5,
        ],
    ),
    (
        TIME,
        "a time of day such as 23:59:59 or 23:59:59.999999, 24:00:00 at most",
        [
            "24:00:00.000001",
            "24:00:01",
            "24:01:00",
            "25:00:00",
            "23:59:60",
            "23:59",
            "1:00:00",
            "12:00:00Z",
            "12:00:00+01:00",
            "12:00:00.",
            "12:00:00.1234567",
            5,
        ],
    ),
    (
        TIMESTAMPTZ,
        f"a date and time with its offset such as 2024-05-31T23:59:59Z (RFC 3339), {RANGE}",
        [
            "2024-05-31T12:00:00",
            "2024-05-31",
            "2024-05-31T12:00Z",
            "2024-05-31T12:00:00.1234567Z",
            "2024-05-31T12:00:00.0000000Z",
            "2024-05-31T12:00:00+0200",
            "2024-05-31T12:00:00+02",
            "2024-05-31T24:00:00Z",
            "2024-05-31T23:59:60Z",
            "2024-02-30T12:00:00Z",
            "20240531T120000Z",
            "0001-01-01T00:00:00Z",
            "0001-01-01T00:00:00+02:00",
            "9999-12-31T00:00:00Z",
            "2024-05-31T12:00:00+24:00",
            " 2024-05-31T12:00:00Z",
            1717156800,
            True,
        ],
    ),
    (
        INTERVAL,
        "an ISO 8601 duration such as P1Y2M3DT4H5M6S",
        ["", "P", "PT", "P1", "P1H", "P1YT", "-P1Y", "P+1Y", "P1.5Y", "PT1.S", "p1y", "P1M1Y", "1 day", "P1Y ", 1],
    ),
    (
        INTERVAL,
        "an ISO 8601 duration of less than 2^31 months, 2^31 days and 2^63 microseconds",
        ["P178956971Y", "P-178956971Y", "P1Y2147483640M", "P2147483648D", "P306783379W", "PT2562047789H"],
    ),
    (BYTEA, "a string in base64", ["A", "AAE", "AA=E", "====", "AAE=\n", "-_-_", "Ä", 1, []]),
    (
        JSONB,
        "JSON whose numbers are less than 1e400, and no smaller than 1e-400",
        [Decimal("1e400"), [[Decimal("1e-401")]], {"a": Decimal("1e999999")}, 10**400, [-(10**400)]],
    ),
    (
        JSONB,
        "a value whose numbers have exponents for at most 4194304 zeros in all",
        [[Decimal("1e399")] * 10513, {"a": [[Decimal("2.5e-399")]] * 10513}],
    ),
    (
        array(NUMERIC),
        "a value whose numbers have exponents for at most 4194304 zeros in all",
        [["1e131071"] * 33, ["1e-16383"] * 257],
    ),
    (OPAQUE, "a string", [1, [1]]),
]


@pytest.mark.parametrize(
    ("column_type", "expected", "value"),
    [(column_type, expected, value) for column_type, expected, values in REFUSED for value in values],
    ids=lambda value: str(value)[:30],
)
def test_refused(column_type: ColumnType, expected: str, value: Any) -> None:
    with pytest.raises(ValueFault) as raised:
        column_type.json.from_json(value)
    assert str(raised.value) == expected


@pytest.mark.parametrize(
    ("column_type", "value"),
    [
        (JSONB, [Decimal("1e399")] * 10512),
        (JSONB, [10**399, -(10**399), Decimal("1e-399")]),
        # Numbers without an exponent take no more space than in the request.
        (JSONB, [10**399] * 20_000),
        (array(NUMERIC), ["9" * 131072] * 33),
        (array(NUMERIC), ["1e131071"] * 32),
    ],
    ids=lambda value: str(value)[:30],
)
def test_long_numbers_are_accepted(column_type: ColumnType, value: Any) -> None:
    column_type.json.from_json(value)


@pytest.mark.parametrize(
    "column_type", [BOOL, INT, NUMERIC, FLOAT, TEXT, COLOUR, UUID, DATE, TIMESTAMPTZ, BYTEA, array(INT)]
)
def test_no_type_accepts_null(column_type: ColumnType) -> None:
    with pytest.raises(ValueFault):
        column_type.json.from_json(None)


@pytest.mark.parametrize(
    "value",
    [
        *(
            "a",
            1,
            {},
            ["1"],
            [1, True],
            [[1], 2],
            [[1], [2, 3]],
            [[1], None],
            [[]],
            [[1], []],
            [["1"]],
            [[[1]], [[2, 3]]],
        ),
        *([[[[[[[1]]]]]]], [[[1]], [2]]),
    ],
)
def test_array_refused(value: Any) -> None:
    with pytest.raises(ValueFault) as raised:
        array(INT).json.from_json(value)
    assert str(raised.value).startswith("a list of int values")


@pytest.mark.parametrize(
    ("column_type", "value", "native"),
    [
        (array(INT), [1, None], [1, None]),
        (array(INT), [None], [None]),
        (array(INT, dimensions=2), [[1, None], [None, 2]], [[1, None], [None, 2]]),
        (array(INT, dimensions=6), [[[[[[1]]]]]], [[[[[[1]]]]]]),
        (array(TEXT, dimensions=2), [["a", "b"]], [["a", "b"]]),
        (array(NUMERIC), ["NaN", None], [Decimal("NaN"), None]),
        # A list and null are JSON values.
        (array(JSONB), [[1], None, {"a": []}], ["[1]", None, '{"a":[]}']),
    ],
)
def test_array_with_nulls_and_dimensions(column_type: ColumnType, value: Any, native: Any) -> None:
    assert str(column_type.json.from_json(value)) == str(native)


@pytest.mark.parametrize(
    ("column_type", "text", "native"),
    [
        (BOOL, "true", True),
        (INT, "-7", -7),
        (BIGINT, "9223372036854775807", 2**63 - 1),
        (NUMERIC, "1e2", Decimal("1e2")),
        (FLOAT, "1e2", 100.0),
        (TEXT, "null", "null"),
        (COLOUR, "red", "red"),
        (UUID, TOKEN, Uuid(TOKEN)),
        (DATE, "2024-02-29", date(2024, 2, 29)),
        (JSONB, '{"a": 1.0}', '{"a":1.0}'),
        (OPAQUE, "10.0.0.1", "10.0.0.1"),
        (array(INT), "", []),
        (array(INT), "1,2", [1, 2]),
        (array(INT), "[1,null]", [1, None]),
        (array(INT, dimensions=2), "[[1],[2]]", [[1], [2]]),
        (array(TEXT), '["a,b",null]', ["a,b", None]),
        (array(TEXT), "[a,b]", ["[a", "b]"]),
        (array(TEXT), r"a,b\,c,\\", ["a", "b,c", "\\"]),
    ],
)
def test_text_accepted(column_type: ColumnType, text: str, native: Any) -> None:
    read = column_type.json.from_text(text)
    assert (type(read), read) == (type(native), native)


@pytest.mark.parametrize(
    ("column_type", "text", "expected"),
    [
        (BOOL, "True", "true or false"),
        (BOOL, "1", "true or false"),
        (SMALLINT, "40000", f"a whole number {WHOLE[16]}"),
        (SMALLINT, "3.0", f"a whole number {WHOLE[16]}"),
        (SMALLINT, "9" * 5000, f"a whole number {WHOLE[16]}"),
        (SMALLINT, "", f"a whole number {WHOLE[16]}"),
        (SMALLINT, "٣", f"a whole number {WHOLE[16]}"),
        (FLOAT, "NaN", "a number, or a string that contains one"),
        (FLOAT, "1e309", "a number from -1.79769e+308 to 1.79769e+308"),
        (JSONB, "{", "JSON (unexpected text at line 1, column 2)"),
        (JSONB, "NaN", "JSON (NaN is not JSON)"),
    ],
)
def test_text_refused(column_type: ColumnType, text: str, expected: str) -> None:
    with pytest.raises(ValueFault) as raised:
        column_type.json.from_text(text)
    assert str(raised.value) == expected


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("", []),
        ("a", ["a"]),
        ("a,b", ["a", "b"]),
        (",", ["", ""]),
        ("a,", ["a", ""]),
        (r"a\,b", ["a,b"]),
        (r"a\\,b", ["a\\", "b"]),
        (r"a\b", [r"a\b"]),
        ("a\nb,c", ["a\nb", "c"]),
        ("a\\", ["a\\"]),
    ],
)
def test_split_list(text: str, items: list[str]) -> None:
    assert split_list(text) == items


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("null", None),
        (" [1] ", [1]),
        ('{"a":{"a":1},"b":{"a":1}}', {"a": {"a": 1}, "b": {"a": 1}}),
        ("1.10", Decimal("1.10")),
        ("1E2", Decimal("1E2")),
        ("123456789012345678901234567890", 123456789012345678901234567890),
        (r'"\ud83d\ude00"', "😀"),
        (r'"\\u0000"', r"\u0000"),
        (r'"\ufffe"', "\ufffe"),
        ("[" * 64 + "]" * 64, json.loads("[" * 64 + "]" * 64)),
        ('"' + "[" * 1000 + '"', "[" * 1000),
    ],
)
def test_json(text: str, tree: Any) -> None:
    assert load_json(text) == tree


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("", "unexpected text at line 1, column 1"),
        ("[1\n2]", "unexpected text at line 2, column 1"),
        ('"a', "unexpected text at line 1, column 1"),
        ("1 2", "unexpected text at line 1, column 3"),
        ("01", "unexpected text at line 1, column 2"),
        ("'a'", "unexpected text at line 1, column 1"),
        ("nul", "unexpected text at line 1, column 1"),
        ('"\t"', "unexpected text at line 1, column 2"),
        ('"\0"', "unexpected text at line 1, column 2"),
        ('"\\x"', "unexpected text at line 1, column 2"),
        ("NaN", "NaN is not JSON"),
        ("[Infinity]", "Infinity is not JSON"),
        ("-Infinity", "-Infinity is not JSON"),
        ('{"a":1,"a":1}', 'the name "a" occurs twice in one object'),
        ('[{"b":{"a":1,"b":2,"a":3}}]', 'the name "a" occurs twice in one object'),
        (r'{"a":1,"\u0061":1}', 'the name "a" occurs twice in one object'),
        (r'"\u0000"', "a string contains U+0000, which PostgreSQL cannot store"),
        (r'{"\u0000":1}', "a string contains U+0000, which PostgreSQL cannot store"),
        (r'["\ud800"]', "a string contains half of a surrogate pair"),
        (r'"\udc00\ud800"', "a string contains half of a surrogate pair"),
        (r'{"\udfff":1}', "a string contains half of a surrogate pair"),
        ("[" * 65 + "]" * 65, "nested deeper than 64 levels"),
        ('{"a":' * 65 + "1" + "}" * 65, "nested deeper than 64 levels"),
        ("[" * 100_000, "nested deeper than 64 levels"),
        ("1" * 5000, "a number has too many digits"),
        ("1e9999999999999999999", "a number has too many digits"),
        ("[1e-9999999999999999999]", "a number has too many digits"),
    ],
    ids=lambda text: text[:30],
)
def test_json_refused(text: str, detail: str) -> None:
    with pytest.raises(JsonFault) as raised:
        load_json(text)
    assert str(raised.value) == detail


@pytest.mark.parametrize(
    "text",
    [
        "null",
        "[1,2.50,-0.0]",
        '{"b":[],"a":{}}',
        '"\\"\\\\"',
        "123456789012345678901234567890",
        "[1E+300,1E-300]",
        '"Käse🧀"',
    ],
)
def test_json_is_written_as_it_was_read(text: str) -> None:
    assert dump_json(load_json(text)) == text


@pytest.mark.parametrize(
    ("microseconds", "days", "months", "shown"),
    [
        (0, 0, 0, "PT0S"),
        (1, 0, 0, "PT0.000001S"),
        (-500_000, 0, 0, "PT-0.5S"),
        (3_661_000_000, 2, 14, "P1Y2M2DT1H1M1S"),
        (86_400_000_000, 0, 0, "PT24H"),
        (0, 1, 0, "P1D"),
        (-61_000_000, -1, -13, "P-1Y-1M-1DT-1M-1S"),
        (1_000_000, -1, 0, "P-1DT1S"),
        (60_000_000, 0, -12, "P-1YT1M"),
    ],
)
def test_interval_shown(microseconds: int, days: int, months: int, shown: str) -> None:
    parts = microseconds.to_bytes(8, "big", signed=True) + days.to_bytes(4, "big", signed=True)
    assert interval_shown(parts + months.to_bytes(4, "big", signed=True)) == shown


def test_interval_of_null() -> None:
    assert interval_shown(None) is None


def test_families() -> None:
    """Which types can be compared in the `field` form."""
    families: dict[str, list[str]] = {}
    for attribute in SAMPLE_TYPE.attributes:
        families.setdefault(attribute.type.family, []).append(attribute.name)
    assert list(families.values()) == [
        ["flag"],
        ["small", "medium", "large", "exact", "price", "double", "single", "percent"],
        ["words", "short", "fixed", "mood", "colour", "label", "code"],
        ["token"],
        ["day", "moment", "instant"],
        ["clock"],
        ["span"],
        ["blob"],
        ["plain_json"],
        ["tree"],
        ["flags"],
        ["numbers", "grid"],
        ["amounts"],
        ["singles"],
        ["texts", "fixeds", "moods"],
        ["tokens"],
        ["days"],
        ["clocks"],
        ["moments"],
        ["instants"],
        ["spans"],
        ["blobs"],
        ["trees"],
        ["place", "address"],
        ["network"],
        ["nights"],
        ["spot"],
        ["origin"],
        ["origins"],
    ]
    assert attribute_of(SAMPLE_TYPE, "trees").type.name == "jsonb[]"


@pytest.mark.parametrize(
    ("low", "high", "is_taken"),
    [
        (time(8), None, True),
        (time.max, None, True),
        (None, time.max, False),
        (time.min, time(23, 59), False),
    ],
)
def test_the_end_of_a_day_is_after_every_time(low: time | None, high: time | None, is_taken: bool) -> None:
    attribute = Attribute("clock", TIME, minimum=low, maximum=high)
    taken: list[object] = []
    with nullcontext() if is_taken else pytest.raises(ValueFault):
        taken.append(read_attribute(attribute, "24:00:00"))
    assert taken == [EndOfDay()] * is_taken


@pytest.mark.parametrize(
    ("values", "is_fast"),
    [
        ([1, 2], True),
        ([2**31 - 1, -(2**31)], True),
        ([2**31], False),
        ([1, True], False),
        ([1, Decimal("2.0")], False),
        ([1, None], False),
        ([1, "2"], False),
        ([1, 2.0], False),
        ((1, 2), True),
        ([], True),
    ],
)
def test_many_whole_numbers_are_read_at_once(values: list[Any], is_fast: bool) -> None:
    assert INT.json.read_all is not None
    assert INT.json.read_all(values) == (list(values) if is_fast else None)


@pytest.mark.parametrize(
    ("texts", "is_fast"),
    [
        (["1", "-2", "0"], True),
        (["2147483647"], True),
        (["2147483648"], False),
        (["01"], False),
        (["-0"], False),
        (["+1"], False),
        ([" 1"], False),
        (["1_0"], False),
        (["\u0661"], False),
        (["x"], False),
        (["1", 2], False),
        ([1, -2, 0], True),
        ([2147483648], False),
        ([1, True], False),
        ([1, Decimal("2.0")], False),
        ([], True),
    ],
)
def test_many_ids_are_read_at_once(texts: list[Any], is_fast: bool) -> None:
    """What is not read at once is read by the function for one, which may refuse it."""
    assert INT.id_type.read_all is not None
    expected = [text if isinstance(text, int) else INT.id_type.read(text) for text in texts if is_fast]
    assert INT.id_type.read_all(texts) == (expected if is_fast else None)
