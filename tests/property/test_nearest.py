"""`nearTo` has the rows that a model in plain Python finds, in its order: with an index, which is read from the value
in both directions, and without one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from tests.property.served import Served, served
from waterspout import (
    BIGINT,
    DATE,
    FLOAT,
    INT,
    NUMERIC,
    TIMESTAMP,
    TIMESTAMPTZ,
    Attribute,
    Catalog,
    Resource,
    ToMany,
    ToOne,
)

TYPES = {
    "whole": (INT, "integer"),
    "big": (BIGINT, "bigint"),
    "exact": (NUMERIC, "numeric"),
    "float": (FLOAT, "double precision"),
    "day": (DATE, "date"),
    "zoned": (TIMESTAMPTZ, "timestamptz"),
    "local": (TIMESTAMP, "timestamp"),
}
COLUMNS = {f"{name}{suffix}": kind for name, kind in TYPES.items() for suffix in ("", "_indexed")}
"""Each type has a column with an index and one without."""

DDL = (
    "CREATE TABLE things (id bigint PRIMARY KEY, parent_id bigint, "
    + ", ".join(f"{name} {sql}" for name, (_, sql) in COLUMNS.items())
    + ");"
    + "".join(f"CREATE INDEX ON things ({name}, id);" for name in COLUMNS if name.endswith("_indexed"))
)
CATALOG = Catalog(
    [
        Resource(
            "thing",
            "/things",
            "things",
            tuple(Attribute(name, kind, nullable=True) for name, (kind, _) in COLUMNS.items()),
            (ToOne("parent", "thing"), ToMany("children", "thing", foreign_key="parent_id")),
            client_ids=True,
        )
    ]
)
DAY, MOMENT = date(2024, 2, 27), datetime(2024, 3, 31, tzinfo=UTC)
MAKE: dict[str, Callable[[Random], Any]] = {
    "whole": lambda random: random.randint(-3, 9),
    "big": lambda random: random.choice([2**62, -(2**62), 2**53 + 1, 2**53, random.randint(-3, 9)]),
    "exact": lambda random: Decimal(random.randint(-30, 90)) / 10,
    "float": lambda random: random.randint(-30, 90) / 8,
    "day": lambda random: DAY + timedelta(days=random.randint(-5, 9)),
    "zoned": lambda random: MOMENT + timedelta(seconds=random.randint(-9, 9) / 4),
    "local": lambda random: (MOMENT + timedelta(seconds=random.randint(-9, 9) / 4)).replace(tzinfo=None),
}
ODD = {
    "exact": "'NaN', 'Infinity', '-Infinity'",
    "float": "'NaN', 'Infinity', '-Infinity'",
    "day": "'infinity', '-infinity', NULL",
    "zoned": "'infinity', '-infinity', NULL",
    "local": "'infinity', '-infinity', NULL",
}
"""Values that have no distance."""


class Things(msgspec.Struct):
    server: Served
    rows: dict[int, dict[str, Any]]


@pytest.fixture(scope="module")
def things(postgres_url: str) -> Iterator[Things]:
    random = Random(11)
    rows: dict[int, dict[str, Any]] = {}
    for number in range(80):
        made = {name: None if random.random() < 0.1 else make(random) for name, make in MAKE.items()}
        rows[number] = {f"{name}{suffix}": value for name, value in made.items() for suffix in ("", "_indexed")}
        rows[number]["parent_id"] = random.randrange(6)
    with served(postgres_url, CATALOG, DDL) as server:
        names = ["parent_id", *COLUMNS]
        places = ", ".join(f"${index}" for index in range(1, len(names) + 2))
        insert = f"INSERT INTO things (id, {', '.join(names)}) VALUES ({places})"
        server.sql(*[(insert, number, *[row[name] for name in names]) for number, row in rows.items()])
        for name, odd in ODD.items():
            server.execute(
                f"INSERT INTO things (id, {name}, {name}_indexed) SELECT row_number() OVER () + "
                f"(SELECT max(id) FROM things), one, one FROM unnest(ARRAY[{odd}]::{TYPES[name][1]}[]) one"
            )
        yield Things(server, rows)


def distance(one: Any, other: Any) -> Any:
    found = abs(one - other)
    if isinstance(found, timedelta):
        return found.days if isinstance(one, date) and not isinstance(one, datetime) else found.total_seconds()
    return found


def text_of(value: Any) -> str:
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat() + "Z"
    return str(value)


@pytest.mark.parametrize("name", COLUMNS)
@given(data=st.data())
def test_nearest(things: Things, name: str, data: DataObject) -> None:
    random = Random(data.draw(st.integers(0, 10**6)))
    value, size = MAKE[name.removesuffix("_indexed")](random), data.draw(st.sampled_from([1, 2, 5, 30, 200]))
    parent = data.draw(st.sampled_from([None, None, 0, 3]))
    pairs = [(f"nearTo[{name}]", text_of(value)), ("page[size]", str(size)), ("fields[thing]", name)]
    if least := data.draw(st.sampled_from([None, None, 2])):
        pairs.append(("filter[whole][ge]", str(least)))
    if data.draw(st.booleans()):
        pairs.append(("include", data.draw(st.sampled_from(["parent", "children", "parent.children"]))))
    expected = [
        (distance(row[name], value), number)
        for number, row in things.rows.items()
        if row[name] is not None
        and (least is None or (row["whole"] is not None and row["whole"] >= least))
        and (parent is None or row["parent_id"] == parent)
    ]
    answer = things.server.get("/things" if parent is None else f"/things/{parent}/children", *pairs)
    assert answer.status == 200, answer.body
    shown = json.loads(answer.body, parse_float=Decimal)
    found = [(one["meta"]["distance"], int(one["id"])) for one in shown["data"]]
    if name.startswith(("exact", "big", "whole", "day")):
        assert found == sorted(expected)[:size]
    else:
        assert [(float(far), number) for far, number in found] == sorted(expected)[:size]
    assert all("meta" not in one for one in shown.get("included", []))
    assert shown["meta"] == {"count": len(found)}
    assert not {"next", "last"} & shown["links"].keys()
