"""A read that is planned from the form of an earlier one equals one that is planned in full."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest

from querybuild.cursors import encode_cursor, mark_of
from querybuild.errors import ApiError, Several
from querybuild.planning.reads.list_names import list_name
from serializers.links import NO_QUERIES
from server.engine import ANYBODY, Engine
from server.preparing.reads import PreparedRead, ReadShape
from server.routes import ON_MANY
from server.schema.live_schema import LiveSchema
from server.settings import Settings
from tests.catalog import CATALOG
from tests.planning import parsed

ARTICLE = CATALOG.by_type["article"]


def engine() -> Engine:
    return Engine(Settings(), CATALOG, LiveSchema())


def read(asked: Engine, query: str) -> PreparedRead:
    return asked.reads.prepare(ReadShape("collection", ARTICLE, accepts=ON_MANY), quote(query, safe="=&[]"), ANYBODY)


def facts(prepared: PreparedRead) -> tuple[object, ...]:
    planned = prepared.planned
    cursor = planned.cursor_mark, planned.cursor_parent
    return planned.plan, planned.values, planned.page_values, planned.page, planned.filters, cursor, prepared.queries


def tree(name: str, op: str, val: object) -> str:
    return "filter=" + json.dumps([{"name": name, "op": op, "val": val}])


def after(sort: str, *values: str | None) -> str:
    mark = mark_of(list_name(parsed(f"sort={sort}"), ARTICLE), [])
    return f"sort={sort}&page[after]={encode_cursor(mark, values)}"


NAMED = {"name": "name", "op": "eq"}

ALIKE = [
    ("filter[pages]=1", "filter[pages]=2"),
    ("filter[pages][gt]=1&filter[title]=a", "filter[pages][gt]=2&filter[title]=b"),
    ("filter[pages][in_]=1,2", "filter[pages][in_]=3"),
    ("filter[pages][between]=1,2", "filter[pages][between]=3,40"),
    ("filter[title][ilike]=a%", "filter[title][ilike]=%b"),
    (tree("pages", "eq", 1), tree("pages", "eq", 2)),
    (tree("pages", "in_", [1, 2]), tree("pages", "in_", [])),
    (
        tree("tags", "any", {"name": "name", "op": "eq", "val": "a"}),
        tree("tags", "any", {"name": "name", "op": "eq", "val": "b"}),
    ),
    (
        'filter={"or":[{"name":"pages","op":"lt","val":1},{"not":{"name":"title","op":"eq","val":"a"}}]}',
        'filter={"or":[{"name":"pages","op":"lt","val":2},{"not":{"name":"title","op":"eq","val":"b"}}]}',
    ),
    ("filter[pages]=1&" + tree("title", "eq", "a"), "filter[pages]=2&" + tree("title", "eq", "b")),
    ("page[number]=2&page[size]=3", "page[number]=5&page[size]=3"),
    ("page[limit]=3&page[offset]=1", "page[limit]=3&page[offset]=2"),
    ("page[size]=3&page[number]=1001", "page[size]=3&page[number]=500001"),
    (after("pages", "1", "2"), after("pages", "3", "4")),
    ("ignored[x]=1&filter[pages]=1", "ignored[x]=1&filter[pages]=2"),
    ("filter-x=1&filter[pages]=1", "filter-x=1&filter[pages]=2"),
    ("filterX[y]=1&filter[pages]=1", "filterX[y]=1&filter[pages]=2"),
    ("_=1&filter-x=1&filterX[y]=1&sort=pages", "_=2&filter-x=2&filterX[y]=2&sort=pages"),
    (f"{'x-' * 60}=1&sort=pages", f"{'x-' * 60}=2&sort=pages"),
]

APART = [
    ("filter[pages][is_]=1", "filter[pages][is_]=null"),
    (tree("pages", "is_", 1), tree("pages", "is_", None)),
    ("page[number]=1", "page[number]=2"),
    ("page[size]=3&page[number]=2", "page[size]=3&page[number]=2000"),
    ("page[size]=3&page[number]=2", "page[size]=4&page[number]=2"),
    ("page[number]=2", "page[offset]=2"),
    ("page[size]=100&include=tags", "page[size]=101&include=tags"),
    (after("pages", "1", "2"), after("pages", None, "2")),
    ("sort=pages&page[after]=", after("pages", "1", "2")),
    ("filter[pages]=1", "filter[pages][gt]=1"),
    ("filter[pages]=1", tree("pages", "eq", 1)),
    ("sort=pages", "sort=-pages"),
    ("sort=pages&_=1", "sort=pages"),
]


@pytest.mark.parametrize(("first", "second"), ALIKE)
def test_one_form(first: str, second: str) -> None:
    asked = engine()
    read(asked, first)
    assert facts(read(asked, second)) == facts(read(engine(), second))
    assert (asked.caches["read_forms"].hits, len(asked.caches["read_forms"])) == (1, 1)


@pytest.mark.parametrize(("first", "second"), APART)
def test_two_forms(first: str, second: str) -> None:
    asked = engine()
    read(asked, first)
    assert facts(read(asked, second)) == facts(read(engine(), second))
    assert (asked.caches["read_forms"].hits, len(asked.caches["read_forms"])) == (0, 2)


REFUSED = [
    ("filter[pages]=1", "filter[pages]=x"),
    ("filter[pages]=1", "filter[pages]=\0"),
    ("filter[pages][between]=1,2", "filter[pages][between]=1"),
    (tree("pages", "eq", 1), tree("pages", "eq", "x")),
    (tree("pages", "in_", [1]), tree("pages", "in_", ["x"])),
    (tree("pages", "eq", 1), tree("pages", "eq", 1).replace('"val": 1', '"val": 1, "val": 2')),
    (tree("pages", "eq", 1), tree("pages", "eq", 1).replace('"val": 1', '"val" : ":", "val": 2')),
    (tree("title", "eq", "a"), tree("title", "eq", "a").replace('"a"', '"a\\u0000"')),
    (tree("title", "like", "a%"), tree("title", "like", "a%\\")),
    ("page[number]=2", "page[number]=0"),
    ("page[number]=2", "page[number]=x"),
    ("page[size]=0&page[number]=1", "page[size]=0&page[number]=2"),
    (after("pages", "1", "2"), after("pages", "1", "2").replace("sort=pages", "sort=title")),
    (after("pages", "1", "2"), "sort=pages&page[after]=x"),
    ("filter[pages]=1&sort=pages&page[after]=", "filter[pages]=2&" + after("pages", "1", "2")),
    ("page[number]=2", "page[number]=2&page[number]=3"),
]


@pytest.mark.parametrize(("first", "second"), REFUSED)
def test_a_known_form_reports_the_same_fault(first: str, second: str) -> None:
    asked = engine()
    read(asked, first)
    faults = []
    for one in (asked, engine()):
        with pytest.raises((ApiError, Several)) as raised:
            read(one, second)
        faults.append((type(raised.value), str(raised.value), getattr(raised.value, "parameter", None)))
    assert faults[0] == faults[1]
    assert len(asked.caches["read_forms"]) == 1


def test_a_cursor_is_bound_to_the_values_of_the_filter() -> None:
    asked = engine()
    marks = {read(asked, f"filter[pages]={number}&page[after]=").planned.cursor_mark for number in (1, 2, 3)}
    assert len(marks) == 3


def test_a_form_contains_no_values_of_the_request() -> None:
    asked = engine()
    read(asked, tree("pages", "in_", list(range(900))))
    [(known, _)] = asked.caches["read_forms"]._entries.values()
    held = [cell.cell_contents for _, one in known.planned.readers for cell in one.__closure__ or ()]
    assert not any(isinstance(one, list) for one in held)
    assert known.query.texts == [""]
    assert (known.planned.values, known.queries) == ((None,), NO_QUERIES)
