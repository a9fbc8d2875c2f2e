"""Groups have the keys and the numbers that a model in plain Python computes over the same rows: with filters of rows
and of groups, sorts, pages by number and by cursor, nulls, and paths over to-one relationships."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import cmp_to_key
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject, DrawFn

from querybuild.declarations.catalog import Catalog
from tests.property import model as plain
from tests.property.filters import COUNTS, KINDS, LISTS, PATHS, TO_MANY, filters, paths
from tests.property.model import Row
from tests.property.served import PUBLIC_URL
from tests.property.subjects import SUBJECTS, Subject, open_subject

Number = Callable[[list[Any]], Any]


def _mean(values: list[Any]) -> Decimal | None:
    return Decimal(sum(values)) / len(values) if values else None


NUMBERS: dict[str, Number] = {
    "count": len,
    "count distinct": lambda values: len(set(values)),
    "sum": lambda values: sum(values) if values else None,
    "avg": _mean,
    "min": lambda values: min(values, default=None),
    "max": lambda values: max(values, default=None),
}


class Asked(msgspec.Struct):
    """Groups that are asked for. by: the keys. numbers: by its name, a function and a path, "" for the rows."""

    by: list[str]
    numbers: dict[str, tuple[str, str]]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        found = [("groupBy", ",".join(self.by))] if self.by else []
        for name, (function, path) in self.numbers.items():
            text = f"count(distinct {path})" if function == "count distinct" else f"{function}({path})"
            found.append((f"aggregateAs[{name}]", text))
        return found


@pytest.fixture(scope="module", params=SUBJECTS)
def subject(postgres_url: str, request: pytest.FixtureRequest) -> Iterator[Subject]:
    with open_subject(postgres_url, request.param, 4) as opened:
        yield opened


@st.composite
def names(draw: DrawFn, catalog: Catalog, type_name: str, kinds: set[str] | None = None) -> str:
    """Draw the path of an attribute, over to-one relationships."""
    steps, target = draw(paths(type_name, 2).filter(lambda found: not TO_MANY & set(found[0])))
    own = catalog.by_type[target]
    known = [
        name
        for name, kind in KINDS[target].items()
        if (own.attribute(name) or name == "id") and kind not in ("json", "array") and (not kinds or kind in kinds)
    ]
    return ".".join((*steps, draw(st.sampled_from(known or ["id"]))))


@st.composite
def asked(draw: DrawFn, catalog: Catalog, type_name: str) -> Asked:
    by = draw(st.lists(names(catalog, type_name), max_size=2, unique=True))
    numbers = {}
    free = [name for name in ("n", "m 1", "größe", "a-b") if name not in by]
    for name in draw(st.lists(st.sampled_from(free), min_size=not by, unique=True)):
        function = draw(st.sampled_from(sorted(NUMBERS)))
        kinds = {"int"} if function in ("sum", "avg") else None
        path = "" if function == "count" and draw(st.booleans()) else draw(names(catalog, type_name, kinds))
        if kinds and path.split(".")[-1] == "id" and type_name in ("node", "article"):
            function = "count"
        numbers[name] = function, path
    return Asked(by, numbers)


Group = dict[str, Any]


def groups(subject: Subject, type_name: str, rows: list[Row], one: Asked) -> list[Group]:
    """Return the groups, by their keys, nulls last."""
    model = subject.model
    found: dict[tuple[Any, ...], list[Row]] = {} if one.by else {(): []}
    for row in rows:
        key = tuple(model.one_value(path.split("."), type_name, row) for path in one.by)
        found.setdefault(key, []).append(row)
    made = []
    for key, members in found.items():
        group: Group = {"by": dict(zip(one.by, key, strict=True))}
        for name, (function, path) in one.numbers.items():
            values = [model.one_value(path.split("."), type_name, row) if path else 1 for row in members]
            group[name] = NUMBERS[function]([value for value in values if value is not None])
        made.append(group)
    return ordered(made, [], one)


def ordered(made: list[Group], sort: list[tuple[str, bool]], one: Asked) -> list[Group]:
    def value(group: Group, name: str) -> Any:
        return group["by"][name] if name in one.by else group[name]

    def compare(left: Group, right: Group) -> int:
        for name, is_descending in [*sort, *[(name, False) for name in one.by]]:
            a, b = value(left, name), value(right, name)
            if a is None or b is None:
                if (a is None) != (b is None):
                    return 1 if a is None else -1
            elif a != b:
                return (1 if a > b else -1) * (-1 if is_descending else 1)
        return 0

    return sorted(made, key=cmp_to_key(compare))


def shown(group: Group, one: Asked) -> Group:
    """Return a group as an answer shows it."""
    by = {name: _shown(name, value) for name, value in group["by"].items()}
    numbers = {}
    for name, (function, path) in one.numbers.items():
        value = group[name]
        numbers[name] = _shown(path, value) if function in ("min", "max") else value
    return {"by": by, **numbers}


def _shown(path: str, value: Any) -> Any:
    return str(value) if value is not None and path.split(".")[-1] == "id" else value


def check(found: list[Group], expected: list[Group], one: Asked) -> None:
    assert len(found) == len(expected), (found, expected)
    for got, wanted in zip(found, [shown(group, one) for group in expected], strict=True):
        for name, (function, _) in one.numbers.items():
            if function == "avg" and wanted[name] is not None:
                assert abs(Decimal(got.pop(name)) - wanted.pop(name)) < Decimal("1e-12")
        assert got == wanted


@given(data=st.data())
def test_groups(subject: Subject, data: DataObject) -> None:
    model = subject.model
    type_name = data.draw(st.sampled_from(subject.types))
    one = data.draw(asked(subject.catalog, type_name))
    pairs, rows = one.pairs, model.rows[type_name]
    if data.draw(st.booleans()):
        test = data.draw(filters(type_name, model.rows))
        pairs.append(("filter", json.dumps([test])))
        rows = model.matching(type_name, [test])
    expected = groups(subject, type_name, rows, one)
    counts = [name for name, (function, _) in one.numbers.items() if function.startswith("count")]
    if counts and data.draw(st.booleans()):
        name, op = data.draw(st.sampled_from(counts)), data.draw(st.sampled_from(COUNTS))
        val: Any = data.draw(st.integers(0, 4))
        val = [val, val + 2] if op == "between" else [val, val + 1] if op in LISTS else val
        pairs.append(("groupFilter", json.dumps([{"name": name, "op": op, "val": val}])))
        expected = [group for group in expected if plain.tested_value(op, group[name], val)]
    known = [*one.by, *one.numbers]
    sort = data.draw(
        st.lists(st.tuples(st.sampled_from(known), st.booleans()), max_size=2, unique_by=lambda key: key[0])
    )
    if sort:
        pairs.append(("sort", ",".join("-" * is_descending + name for name, is_descending in sort)))
        expected = ordered(expected, sort, one)
    size = data.draw(st.sampled_from((1, 3, 1000)))
    pairs.append(("page[size]", str(size)))
    if data.draw(st.booleans()):
        number = data.draw(st.integers(1, 3))
        answer = subject.server.get(PATHS[type_name], *pairs, ("page[number]", str(number)))
        assert answer.status == 200, answer.body
        meta, page = answer.document["meta"], expected[(number - 1) * size : number * size]
        check(meta["groups"], page, one)
        assert (answer.document["data"], meta["count"], meta["total"]) == ([], len(page), len(expected))
        return
    query = "&".join(f"{quote(name)}={quote(text)}" for name, text in [*pairs, ("page[after]", "")])
    url, found = f"{PUBLIC_URL}{PATHS[type_name]}?{query}", list[Group]()
    while url:
        answer = subject.server.follow(url)
        assert answer.status == 200, answer.body
        found += answer.document["meta"]["groups"]
        url = answer.document["links"].get("next", "")
    check(found, expected, one)
