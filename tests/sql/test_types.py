"""Every type: a JSON value is written by the compiled INSERT and read back by SELECT and the encoder. The result equals
what was sent."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from typing import Any

import asyncpg
import msgspec
import pytest
from pypika import Field
from tornado.ioloop import IOLoop

from querybuild.declarations.database_types.selected import float_json
from querybuild.declarations.terms import sql_of
from querybuild.planning.changes import PlannedWrite
from querybuild.sql.select import compile_read
from querybuild.sql.writes.answered import compile_answered
from querybuild.sql.writes.modify import compile_write
from serializers.encode import DocumentEncoder
from serializers.json_api import JsonApiEncoder
from serializers.representation import ID_OF_FORM, Style
from tests.catalog import SAMPLE, SAMPLE_TYPE
from tests.planning import create, read_resource, update

EMPTY = {attribute.name: None for attribute in SAMPLE_TYPE.attributes}

Case = dict[str, Any]

SAME: list[Case] = [
    SAMPLE,
    {},
    {"flag": False, "flags": [], "numbers": [], "texts": [], "trees": [], "spans": []},
    {"small": 32767, "medium": -2147483648, "large": 9223372036854775807, "percent": 0},
    {"large": -9223372036854775808},
    {"exact": "0.00", "price": -9999999999.99, "amounts": ["0.1", "100000000000000000000000000000000"]},
    {"exact": "-123456789012345678901234567890.123456789012345678901234567890"},
    {"double": 1.7976931348623157e308, "single": 3.4028235e38},
    {"double": 5e-324, "single": 1e-45},
    {"double": -0.1, "single": 0.1, "singles": [0.1, -3.4028235e38]},
    {"words": "", "short": "", "label": "", "texts": [""]},
    {"words": '"\\/\b\f\n\r\t\u007f\u2028 %_ \ud7ff\ue000\U0010ffff'},
    {"short": "𝄞" * 10, "fixed": "äöüßñ!", "fixeds": ["a", "ab", "abc"]},
    {"texts": ["NULL", "null", '"', "\\", "{}", ",", " "]},
    {"mood": "sad", "colour": "blue", "moods": ["sad", "ok", "happy"]},
    {"token": "00000000-0000-0000-0000-000000000000", "tokens": ["ffffffff-ffff-ffff-ffff-ffffffffffff"]},
    {"day": "0001-01-02", "days": ["9999-12-30", "2000-02-29"]},
    {"clock": "00:00:00", "clocks": ["00:00:00.000001", "23:59:59.999999"]},
    {"clock": "24:00:00", "clocks": ["24:00:00", "00:00:00"]},
    {"moment": "0001-01-02T00:00:00Z", "moments": ["9999-12-30T23:59:59.999999Z"]},
    {"instant": "0001-01-02T00:00:00Z", "instants": ["9999-12-30T23:59:59.999999Z", "1969-12-31T23:59:59Z"]},
    {"span": "PT0S", "spans": ["P-1Y-2M3DT-4H-5M-6.789S", "P178956970Y7M", "P2147483647D", "PT0.000001S"]},
    {"blob": "", "blobs": ["", "AA==", "/+8="]},
    {"plain_json": [], "tree": {}},
    {"plain_json": "text", "tree": "text"},
    {"plain_json": 0, "tree": False},
    {"plain_json": {"z": 1, "a": 2}, "tree": {"": [{}, [], "", None, -1, 99999999999999999999]}},
    {"tree": {"deep": [[[[[[[[[[1]]]]]]]]]], "ключ": "ключ", "\u2028": "𝄞"}},
]

# What is sent and what is shown, if the two differ.
OTHER: list[tuple[Case, Case]] = [
    ({"medium": Decimal("3.0"), "small": Decimal("1e2")}, {"medium": 3, "small": 100}),
    ({"exact": 1, "price": "12.345"}, {"exact": "1", "price": Decimal("12.35")}),
    ({"exact": Decimal("1.10")}, {"exact": "1.10"}),
    ({"double": 1, "single": 16777217}, {"double": 1.0, "single": 16777216.0}),
    ({"fixed": "ab  ", "fixeds": ["a "]}, {"fixed": "ab", "fixeds": ["a"]}),
    ({"token": "123E4567-E89B-12D3-A456-426614174000"}, {"token": "123e4567-e89b-12d3-a456-426614174000"}),
    ({"clock": "12:00:00.500", "clocks": ["24:00:00.0"]}, {"clock": "12:00:00.500000", "clocks": ["24:00:00"]}),
    (
        {"moment": "2024-05-31T12:00:00+02:00", "instant": "2024-05-31t12:00:00.120z"},
        {"moment": "2024-05-31T10:00:00Z", "instant": "2024-05-31T12:00:00.120000Z"},
    ),
    ({"span": "P14M", "spans": ["P1W", "PT90M", "P0001D"]}, {"span": "P1Y2M", "spans": ["P7D", "PT1H30M", "P1D"]}),
    ({"tree": {"b": 1.50, "a": 1e2}}, {"tree": {"a": Decimal("100.0"), "b": Decimal("1.5")}}),
]


@pytest.fixture
def connection(io_loop: IOLoop, corner_url: str) -> Any:
    connection = io_loop.run_sync(lambda: asyncpg.connect(corner_url))
    yield connection
    io_loop.run_sync(connection.close)


async def round_trip(connection: Any, attributes: Case) -> Case:
    """Return what is read back, after comparing it with what the INSERT returns for the answer."""
    plan = read_resource("sample").plan
    written = create("sample", {"attributes": attributes})
    insert = compile_write(written.plan, plan.node).row
    assert insert is not None
    returned = await connection.fetch(insert.sql, *[written.values[slot.index] for slot in insert.slots])
    rows = await connection.fetch(compile_read(plan).primary.sql, returned[0][0])
    encoder = DocumentEncoder(plan, JsonApiEncoder(plan, Style("")))
    assert encoder.encode([returned], {}) == encoder.encode([rows], {})
    document = json.loads(encoder.encode([rows], {}), parse_float=Decimal)
    found: Case = document["data"]["attributes"]
    assert list(found) == [attribute.name for attribute in SAMPLE_TYPE.attributes]
    return found


def all_round_trips(io_loop: IOLoop, url: str, cases: list[Case]) -> list[Case]:
    async def run() -> list[Case]:
        connection = await asyncpg.connect(url)
        try:
            return [await round_trip(connection, case) for case in cases]
        finally:
            await connection.close()

    found: list[Case] = io_loop.run_sync(run)
    return found


def exactly(tree: Any) -> Any:
    """Return the tree with numbers that are as precise as their text."""
    return json.loads(json.dumps(tree, default=float), parse_float=Decimal)


def test_same(io_loop: IOLoop, corner_url: str) -> None:
    found = all_round_trips(io_loop, corner_url, SAME)
    for one, case in zip(found, SAME, strict=True):
        assert one == exactly(EMPTY | case)


def test_other_form(io_loop: IOLoop, corner_url: str) -> None:
    found = all_round_trips(io_loop, corner_url, [sent for sent, _ in OTHER])
    assert found == [exactly(EMPTY | shown) for _, shown in OTHER]


BY_PYTHON = {"singles", "clocks", "span", "spans", "moments", "instants", "blobs", "trees", "origin", "origins"}
"""The attributes whose JSON PostgreSQL writes otherwise than the encoder, or only with more than a cast."""
BY_POSTGRES = [attribute.name for attribute in SAMPLE_TYPE.attributes if attribute.name not in BY_PYTHON]


FLOATS = ("double", "single")


async def check_answers(connection: Any, write: PlannedWrite, *, is_made: bool = True) -> None:
    """Compare the document that the statement of a write makes with that of the encoder. is_made: whether it makes
    one."""
    plan = read_resource("sample", f"fields[sample]={','.join(BY_POSTGRES)}").plan
    encoder = DocumentEncoder(plan, JsonApiEncoder(plan, Style("/50%25")))
    form = encoder.form({"self": f"/50%25/{ID_OF_FORM}"})
    statement = compile_answered(write.plan, plan.node)
    assert form is not None
    assert statement is not None
    values = [write.values[slot.index] for slot in statement.slots]
    sql = statement.sql + 'SELECT * FROM "the answer"'
    if not is_made:
        with pytest.raises(asyncpg.DivisionByZeroError):
            await connection.fetchrow(sql, *values, form.text, "", "")
        return
    row_id, document, location, tag = await connection.fetchrow(sql, *values, form.text, "/%%/%1$s", '""')
    rows = await connection.fetch(compile_read(plan).primary.sql, row_id)
    assert document == encoder.encode([rows], {"self": f"/50%25/{row_id}"})
    assert (location, tag) == (f"/%/{row_id}", '""')


@pytest.mark.parametrize("case", [*SAME, *[sent for sent, _ in OTHER]], ids=str)
async def test_the_answer_of_a_create(connection: Any, case: Case) -> None:
    is_extreme = any(0 < abs(case.get(name) or 0) < 1e-4 or abs(case.get(name) or 0) > 1e15 for name in FLOATS)
    await check_answers(connection, create("sample", {"attributes": case}), is_made=not is_extreme)


async def test_the_answer_of_an_update_of_rows_of_other_writers(connection: Any) -> None:
    for column, value, _ in ROWS:
        row_id = await connection.fetchval(f"INSERT INTO corner.samples ({column}) VALUES ({value}) RETURNING id")
        name = "flag" if column != "flag" else "small"
        write = update("sample", str(row_id), {"attributes": {name: None}})
        await check_answers(connection, write, is_made=column not in FLOATS)


async def test_floats_as_json(connection: Any) -> None:
    chance = random.Random(7)
    numbers = [sign * chance.random() * 10 ** chance.randint(-3, 15) for sign in (1, -1) for _ in range(2000)]
    numbers += [
        0.0,
        -0.0,
        1.0,
        1e-4,
        0.00011,
        123456789012345.6,
        999999999999999.9,
        1e14,
        5e14,
        2.0**49,
        1 / 3,
        0.1 + 0.2,
    ]
    numbers = [number for number in numbers if number == 0 or 1e-4 <= abs(number) < 1e15]
    sql = f"SELECT {sql_of(float_json(Field('x')))} FROM unnest($1::float8[]) x"
    assert [row[0] for row in await connection.fetch(sql, numbers)] == [
        msgspec.json.encode(number).decode() for number in numbers
    ]


def test_what_postgres_cannot_write_as_json() -> None:
    assert {attribute.name for attribute in SAMPLE_TYPE.attributes if attribute.type.sql.as_json is None} == BY_PYTHON
    write = create("sample", {"attributes": {}}).plan
    for name in BY_PYTHON:
        assert compile_answered(write, read_resource("sample", f"fields[sample]=flag,{name}").plan.node) is None


def test_a_page_is_not_compiled(io_loop: IOLoop, corner_url: str) -> None:
    """By `jit`, which takes longer than the page: PostgreSQL does it if the statement seems to cost 100,000."""
    columns = compile_read(read_resource("sample").plan).primary.sql.partition(" WHERE ")[0]

    async def costs() -> list[str]:
        connection = await asyncpg.connect(corner_url)
        try:
            return [row[0] for row in await connection.fetch(f"EXPLAIN {columns} LIMIT 1000")]
        finally:
            await connection.close()

    plan = io_loop.run_sync(costs)
    assert float(plan[0].partition("..")[2].partition(" ")[0]) < 50_000, plan


TOKEN = "123e4567-e89b-12d3-a456-426614174000"

DAY, MOMENT = "2024-05-31", "2024-05-31T12:00:00Z"

ROWS: list[tuple[str, str, Any]] = [
    # values that only another program can have written
    ("double", "'NaN'", None),
    ("double", "'-Infinity'", None),
    ("single", "'Infinity'", None),
    ("price", "'NaN'", None),
    ("exact", "'NaN'", "NaN"),
    ("flags", "'{true,NULL}'", [True, None]),
    ("numbers", "'{1,NULL}'", [1, None]),
    ("amounts", "'{NULL,2.50}'", [None, "2.50"]),
    ("spans", "'{NULL,1 day}'", [None, "P1D"]),
    ("trees", "ARRAY[NULL,'null']::jsonb[]", [None, None]),
    ("blobs", r"'{NULL,\\x00}'", [None, "AA=="]),
    ("trees", "ARRAY[ARRAY['1','null'],ARRAY[NULL,'[2]']]::jsonb[]", [[1, None], [None, [2]]]),
    ("tokens", f"'{{{{{TOKEN},NULL}},{{NULL,{TOKEN}}}}}'", [[TOKEN, None], [None, TOKEN]]),
    ("amounts", "'{{1.50,NULL},{NaN,4}}'", [["1.50", None], ["NaN", "4"]]),
    ("singles", "'{{0.1,NULL},{NaN,4}}'", [[0.1, None], [None, 4.0]]),
    ("spans", "'{{1 day,NULL},{-0.5 s,1 year}}'", [["P1D", None], ["PT-0.5S", "P1Y"]]),
    ("spans", "'{{1 day,2 days,3 days},{4 days,NULL,6 days}}'", [["P1D", "P2D", "P3D"], ["P4D", None, "P6D"]]),
    ("spans", "'[0:1][5:5]={{1 day},{2 days}}'", [["P1D"], ["P2D"]]),
    ("spans", "'{{{1 day,NULL},{-0.5 s,1 year}}}'", ["P1D", None, "PT-0.5S", "P1Y"]),
    ("moments", f"'{{{{{MOMENT}}},{{infinity}}}}'", [[MOMENT], [None]]),
    ("days", f"'{{{{{DAY}}},{{infinity}}}}'", [[DAY], [None]]),
    ("numbers", "'{{{1},{NULL}}}'", [[[1], [None]]]),
    ("exact", "'Infinity'", "Infinity"),
    ("exact", "'-Infinity'", "-Infinity"),
    *((name, "NULL", None) for name in ("tokens", "amounts", "fixeds", "clocks", "singles", "spans")),
    *((name, "'{}'", []) for name in ("tokens", "amounts", "fixeds", "clocks", "singles", "spans")),
    ("spans", "'{-1 year 1 day -0.000001 s,-1 mon 1 h}'", ["P-1Y1DT-0.000001S", "P-1MT1H"]),
    ("moment", "'0099-12-31 23:59:59.9'", "0099-12-31T23:59:59.900000Z"),
    ("instant", "'1883-11-18 12:03:58.00001+00'", "1883-11-18T12:03:58.000010Z"),
    ("day", "'0099-12-31'", "0099-12-31"),
    ("span", "'178000000 years'", "P178000000Y"),
    ("span", "'-178000000 years'", "P-178000000Y"),
    ("tree", "'null'", None),
    ("place", "'(1,2)'", "(1,2)"),
    ("address", "'10.0.0.0/8'", "10.0.0.0/8"),
]

# dates that Python does not have, and dates that the contract does not have
UNSHOWN = ("infinity", "-infinity", "4713-01-01 BC", "0001-12-31 BC", "0001-01-01", "9999-12-31", "10000-01-01")
UNSHOWN_MOMENTS = (*UNSHOWN, "0001-01-01 23:59:59.999999+00", "9999-12-31 00:00+00", "294276-12-31 23:59:59.999999+00")
ROWS += [
    *(("day", f"'{day}'", None) for day in (*UNSHOWN, "5874897-12-31")),
    *((name, f"'{moment}'", None) for name in ("moment", "instant") for moment in UNSHOWN_MOMENTS),
    *(("days", f"'{{NULL,{day},{DAY}}}'", [None, None, DAY]) for day in UNSHOWN),
    *(
        (name, f"'{{{MOMENT},\"{moment}\",NULL}}'", [MOMENT, None, None])
        for name in ("moments", "instants")
        for moment in UNSHOWN_MOMENTS
    ),
    *((name, "'{}'", []) for name in ("days", "moments", "instants")),
    *((name, "'{NULL}'", [None]) for name in ("days", "moments", "instants")),
    ("days", f"'{{{{{DAY}}},{{9999-12-30}}}}'", [[DAY], ["9999-12-30"]]),
]


async def test_rows_of_other_writers(connection: Any) -> None:
    plan = read_resource("sample").plan
    sql = compile_read(plan).primary.sql
    found = []
    for column, value, _ in ROWS:
        insert = f"INSERT INTO corner.samples ({column}) VALUES ({value}) RETURNING id"
        row_id = await connection.fetchval(insert)
        rows = await connection.fetch(sql, row_id)
        document = json.loads(DocumentEncoder(plan, JsonApiEncoder(plan, Style(""))).encode([rows], {}))
        found.append((column, value, document["data"]["attributes"][column]))
    assert found == ROWS


async def test_infinite_intervals(connection: Any, postgres_version: int) -> None:
    if postgres_version < 17:
        pytest.skip("an interval is infinite from PostgreSQL 17 on")
    plan = read_resource("sample").plan
    insert = (
        "INSERT INTO corner.samples (span, spans) VALUES ($1::text::interval, ARRAY[$1, '1 day', NULL]::interval[])"
    )
    for value in ("infinity", "-infinity"):
        row_id = await connection.fetchval(f"{insert} RETURNING id", value)
        rows = await connection.fetch(compile_read(plan).primary.sql, row_id)
        document = json.loads(DocumentEncoder(plan, JsonApiEncoder(plan, Style(""))).encode([rows], {}))
        shown = document["data"]["attributes"]
        assert (shown["span"], shown["spans"]) == (None, [None, "P1D", None])
