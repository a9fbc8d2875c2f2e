"""Section 5: the limits of filters, and values that PostgreSQL refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.http.conftest import Api, Serve
from tests.http.expected import error, target
from tests.http.reads.test_filter_errors import refusals, refused
from tests.http.reads.test_filters import one, two


def nested(depth: int) -> Any:
    """Return a filter object inside groups, at this depth."""
    node: Any = {"name": "age", "op": "eq", "val": 36}
    for _ in range(depth - 1):
        node = {"and": [node]}
    return [node]


async def test_depth(reader: Api) -> None:
    answer = await reader.filter("/users", nested(10))
    assert (answer.status, answer.ids) == (200, ["1"])
    place = "[0]" + ".and[0]" * 10
    await refusals(
        reader,
        "/users",
        [("filter", json.dumps(nested(11)))],
        [refused(f"{place}: filters are nested at most 10 deep")],
    )


async def test_steps(reader: Api) -> None:
    """Each step of a dotted name is an EXISTS. A long name is refused before PostgreSQL has to plan it."""
    answer = await reader.get("/users?filter[group.users.group.users.id]=1")
    assert (answer.status, answer.ids) == (200, ["1", "2"])
    name = "group.users." * 50 + "id"
    for pairs in (
        [(f"filter[{name}]", "1")],
        [("filter", json.dumps(one(name, "eq", 1)))],
        [("filter", json.dumps(two("age", "eq", name)))],
        [("filter", json.dumps(one(name.removesuffix(".id"), "any", [])))],
        [("filter", json.dumps(one("group.users." * 150 + "id", "eq", 1)))],
    ):
        answer = await reader.get(target("/users", pairs))
        found = [(error["code"], error["source"]["parameter"]) for error in answer.errors]
        parameter = pairs[0][0]
        shown = parameter if len(parameter) <= 256 else f"{parameter[:253]}..."
        assert (answer.status, found) == (400, [("invalid_filter", shown)])


async def test_node_count(reader: Api) -> None:
    answer = await reader.filter("/users", {"or": one("age", "eq", 36) * 99})
    assert (answer.status, answer.ids) == (200, ["1"])
    await refusals(
        reader,
        "/users",
        [("filter", json.dumps({"or": one("age", "eq", 36) * 100}))],
        [refused("or[99]: a filter has at most 100 filter objects and groups")],
    )


async def test_list_values(reader: Api) -> None:
    answer = await reader.filter("/users", one("age", "in_", list(range(1000))))
    assert (answer.status, answer.ids) == (200, ["1", "2", "3", "4", "6"])
    for op in ("in_", "notin_"):
        answer = await reader.filter("/users", one("age", op, list(range(1001))))
        shown = json.dumps(list(range(1001)), separators=(",", ":"))[:77]
        detail = f"[0]: the value for “age” must be a list of at most 1000, not {shown}...."
        assert (answer.status, answer.errors) == (400, [refused(detail)])


@pytest.fixture
def strict(serve: Serve, rows_url: str) -> Api:
    return serve(rows_url, max_filter_depth=1, max_filter_nodes=2, max_list_values=2)


async def test_limits_are_settings(strict: Api) -> None:
    assert (await strict.filter("/users", one("age", "in_", [36, 41]) + one("id", "eq", 1))).ids == ["1"]
    for filters, detail in [
        (one("age", "in_", [1, 2, 3]), "[0]: the value for “age” must be a list of at most 2, not [1,2,3]."),
        (one("age", "eq", 1) * 3, "[2]: a filter has at most 2 filter objects and groups"),
        ({"not": one("age", "eq", 1)[0]}, "not: filters are nested at most 1 deep"),
        (one("computers", "any", one("id", "eq", 1)), "[0].val[0]: filters are nested at most 1 deep"),
    ]:
        await refusals(strict, "/users", [("filter", json.dumps(filters))], [refused(detail)])


@pytest.mark.parametrize("is_simple", [False, True])
@pytest.mark.parametrize(
    ("op", "val", "reason"),
    [
        ("match", "(", "a regular expression is not valid"),
        ("match", "[", "a regular expression is not valid"),
        ("match", "*", "a regular expression is not valid"),
        ("match", "a{999}", "a regular expression is not valid"),
        ("match", "\\", "a regular expression is not valid"),
    ],
)
async def test_values_that_postgresql_refuses(reader: Api, op: str, val: str, reason: str, is_simple: bool) -> None:
    """The error names the parameter as it was sent."""
    parameter = f"filter[first_name][{op}]" if is_simple else "filter"
    value = val if is_simple else json.dumps(one("first_name", op, val))
    place = "" if is_simple else "[0]: "
    detail = f"{place}PostgreSQL refuses a value of the filter: {reason}."
    await refusals(
        reader,
        "/users",
        [(parameter, value)],
        [error(400, "value_refused", "Value Refused", detail, parameter=parameter)],
    )


@pytest.mark.parametrize("total", ["exact", "estimated", "capped", "none"])
async def test_an_invalid_pattern_is_refused_for_any_rows(api: Api, total: str) -> None:
    """Other rows that match first do not hide the error."""
    await api.sql("INSERT INTO persons (name) SELECT 'person ' || n FROM generate_series(1, 2000) n")
    filters = {"or": one("id", "le", 1900) + one("name", "match", "person(")}
    pairs = [("filter", json.dumps(filters)), ("page[size]", "1"), ("page[total]", total), ("fields[person]", "")]
    answer = await api.get(target("/persons", pairs))
    detail = "or[1]: PostgreSQL refuses a value of the filter: a regular expression is not valid."
    expected = error(400, "value_refused", "Value Refused", detail, parameter="filter")
    assert (answer.status, answer.errors) == (400, [expected])


async def test_refused_in_a_field(reader: Api) -> None:
    r"""`50%_off\` ends in a backslash, so it is not a valid regular expression."""
    detail = "[0]: PostgreSQL refuses a value of the filter: a regular expression is not valid."
    await refusals(
        reader,
        "/users",
        [("filter", json.dumps(two("first_name", "match", "last_name")))],
        [error(400, "value_refused", "Value Refused", detail, parameter="filter")],
    )
