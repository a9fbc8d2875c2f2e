"""The parsing of filters: the nodes, and where in the filter an error is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from querybuild.errors import FilterError
from querybuild.query import FieldFilter, FilterGroup, FilterNode, RelationFilter, Source
from tests.planning import filter_query, limits, parsed, refused

EQ = {"name": "a", "op": "eq", "val": 1}


def eq(path: str, name: str = "a", val: Any = 1, index: int = 0) -> FieldFilter:
    return FieldFilter(name, "eq", val, None, False, Source("filter", path), index)


@pytest.mark.parametrize(
    ("filters", "nodes"),
    [
        ([], ()),
        ([EQ], (eq("[0]"),)),
        (EQ, (eq(""),)),
        ([EQ, EQ], (eq("[0]"), eq("[1]", index=1))),
        (
            [{"name": "a", "op": "is_", "val": None}],
            (FieldFilter("a", "is_", None, None, False, Source("filter", "[0]")),),
        ),
        (
            [{"name": "a", "op": "gt", "field": "b.c"}],
            (FieldFilter("a", "gt", None, "b.c", False, Source("filter", "[0]")),),
        ),
        ([{"or": [EQ, EQ]}], (FilterGroup("or", (eq("[0].or[0]"), eq("[0].or[1]", index=1))),)),
        ({"and": []}, (FilterGroup("and", ()),)),
        ({"and": [EQ]}, (FilterGroup("and", (eq("and[0]"),)),)),
        ([{"not": EQ}], (FilterGroup("not", (eq("[0].not"),)),)),
        ([{"not": [EQ]}], (FilterGroup("not", (eq("[0].not"),)),)),
        (
            [{"not": {"or": [EQ, {"and": [EQ]}]}}],
            (
                FilterGroup(
                    "not",
                    (
                        FilterGroup(
                            "or", (eq("[0].not.or[0]"), FilterGroup("and", (eq("[0].not.or[1].and[0]", index=1),)))
                        ),
                    ),
                ),
            ),
        ),
        (
            [{"name": "r", "op": "any", "val": EQ}],
            (RelationFilter("r", "any", (eq("[0].val"),), Source("filter", "[0]")),),
        ),
        (
            {"name": "r", "op": "has", "val": [EQ, EQ]},
            (RelationFilter("r", "has", (eq("val[0]"), eq("val[1]", index=1)), Source("filter", "")),),
        ),
        ([{"name": "r", "op": "any", "val": []}], (RelationFilter("r", "any", (), Source("filter", "[0]")),)),
        (
            [{"name": "r", "op": "any", "val": {"or": [EQ]}}],
            (RelationFilter("r", "any", (FilterGroup("or", (eq("[0].val.or[0]"),)),), Source("filter", "[0]")),),
        ),
        # a val is any JSON
        ([EQ | {"val": {"and": [1]}}], (eq("[0]", val={"and": [1]}),)),
    ],
)
def test_nodes(filters: Any, nodes: tuple[FilterNode, ...]) -> None:
    assert parsed(filter_query(filters)).filter == nodes


@pytest.mark.parametrize(
    ("filters", "detail"),
    [
        ("", "The filter is not valid JSON: unexpected text at line 1, column 1."),
        ("[", "The filter is not valid JSON: unexpected text at line 1, column 2."),
        (
            '[{"name" 1}]',
            "The filter is not valid JSON: unexpected text at line 1, column 10.",
        ),
        ('{"a":1,"a":2}', 'The filter is not valid JSON: the name "a" occurs twice in one object.'),
        ("[NaN]", "The filter is not valid JSON: NaN is not JSON."),
        ('["\\u0000"]', "The filter is not valid JSON: a string contains U+0000, which PostgreSQL cannot store."),
        ('["\\udc00"]', "The filter is not valid JSON: a string contains half of a surrogate pair."),
        ("null", "expected a filter object, a group, or a list of them"),
        ("1", "expected a filter object, a group, or a list of them"),
        ([1], "[0]: expected a filter object or a group"),
        ([[EQ]], "[0]: expected a filter object or a group"),
        ([{"or": EQ}], "[0].or: `or` takes a list of filters"),
        ([{"and": None}], "[0].and: `and` takes a list of filters"),
        ([{"not": [EQ, EQ]}], "[0].not: `not` takes one filter object or group"),
        ([{"not": []}], "[0].not: `not` takes one filter object or group"),
        ({"not": 1}, "not: `not` takes one filter object or group"),
        ([{"or": [], "and": []}], "[0]: a group has exactly one member, `and`, `or` or `not`"),
        ([EQ | {"or": []}], "[0]: a group has exactly one member, `and`, `or` or `not`"),
        ([EQ | {"vall": 1}], "[0]: “vall” is not a member of a filter object. Did you mean “val”?"),
        ([EQ | {"field": "b"}], "[0]: a filter object has either `val` or `field`"),
        ([{"name": "a", "op": "eq"}], "[0]: a filter object has either `val` or `field`"),
        ([{"name": "a", "op": "any"}], "[0]: a filter object has either `val` or `field`"),
        (
            [{"name": "a", "op": "any", "field": "b"}],
            "[0]: `any` takes a `val`: a filter object, a group, or a list of them",
        ),
        ([{"name": "a", "op": "eq", "field": 1}], "[0]: `field` is the name of another field, a string"),
        ([{"op": "eq", "val": 1}], "[0]: a filter object has a `name`, a string"),
        ([{"name": "a", "op": None, "val": 1}], "[0]: a filter object has a `op`, a string"),
        ([{"name": "a", "op": "any", "val": 1}], "[0].val: expected a filter object, a group, or a list of them"),
        ([EQ, {"or": [EQ, {"not": {"name": "b"}}]}], None),
    ],
)
def test_refused(filters: Any, detail: str | None) -> None:
    with refused() as told:
        parsed(filter_query(filters))
    details = [
        "[1].or[1].not: a filter object has a `op`, a string",
        "[1].or[1].not: a filter object has either `val` or `field`",
    ]
    assert told == [(FilterError, "filter", text) for text in (details if detail is None else [detail])]


def test_faults_in_several_places_are_reported_together() -> None:
    with refused() as told:
        parsed(filter_query([1, EQ, {"or": [2]}, {"name": "a"}]))
    assert [detail.partition(":")[0] for _, _, detail in told] == ["[0]", "[2].or[0]", "[3]", "[3]"]


def nested(depth: int) -> Any:
    """Return a filter object inside this many nested groups."""
    return EQ if depth == 1 else {"not": nested(depth - 1)}


def test_depth() -> None:
    assert len(parsed(filter_query([nested(10)])).filter) == 1
    with refused() as told:
        parsed(filter_query([nested(11)]))
    path = "[0]" + ".not" * 10
    assert told == [(FilterError, "filter", f"{path}: filters are nested at most 10 deep")]
    with refused() as told:
        parsed(
            filter_query([{"name": "r", "op": "any", "val": {"name": "r", "op": "any", "val": []}}]),
            limits(max_filter_depth=1),
        )
    assert told == [(FilterError, "filter", "[0].val: filters are nested at most 1 deep")]


def test_node_count() -> None:
    assert len(parsed(filter_query([EQ] * 100)).filter) == 100
    with refused() as told:
        parsed(filter_query([EQ] * 100_0))
    assert told == [(FilterError, "filter", "[100]: a filter has at most 100 filter objects and groups")]
    with refused() as told:
        parsed(filter_query([{"or": [EQ, EQ]}]), limits(max_filter_nodes=2))
    assert told == [(FilterError, "filter", "[0].or[1]: a filter has at most 2 filter objects and groups")]


def test_the_nodes_of_all_filters_of_a_request_count() -> None:
    query = "&".join(["filter[a]=1"] * 60 + [filter_query([EQ] * 41)])
    with refused() as told:
        parsed(query)
    assert told == [(FilterError, "filter", "[40]: a filter has at most 100 filter objects and groups")]
    with refused() as told:
        parsed("&".join(f"filter[a{number}]=1" for number in range(120)))
    assert told == [(FilterError, "filter[a100]", "a filter has at most 100 filter objects and groups")]


def test_depth_beyond_the_limit_of_the_json_parser() -> None:
    with refused() as told:
        parsed(filter_query("[" * 100_000))
    assert told == [(FilterError, "filter", "The filter is not valid JSON: nested deeper than 64 levels.")]
    with refused() as told:
        parsed(filter_query(json.dumps(json.loads("[" * 65 + "]" * 65))))
    assert told == [(FilterError, "filter", "The filter is not valid JSON: nested deeper than 64 levels.")]
