"""The texts of `waterspout explain`, and the choice of indexes."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from querybuild.declarations.resource import Attribute
from querybuild.declarations.types import TEXT
from querybuild.sql.expressions import MatchedText, matched_texts
from server.explaining.filters import value_text
from server.explaining.running import ExplainedStatement, Scan
from server.explaining.texts import plan_lines, query_parts, sql_lines
from server.resources import built_in
from server.tools.advising.index_advisor import Suggestion
from server.tools.console.lines import wrapped
from server.tools.explaining.indexes import helpful, wanted_for_text
from tests.planning import filter_query, parsed, read_collection

CATALOG = built_in()
VALUE = "a value of the request"
EITHER = {"or": [{"name": "a", "op": "eq", "val": 1}, {"not": {"name": "b", "op": "gt", "field": "c"}}]}


@pytest.mark.parametrize(
    ("query_string", "lines"),
    [
        ("", ["page     30 rows, total exact"]),
        ("page[size]=0&page[total]=none", ["page     all rows, total none"]),
        ("page[number]=3&page[size]=5", ["page     5 rows after row 10, total exact"]),
        ("filter[age]=7", ["filter   age eq '7'", "page     30 rows, total exact"]),
        (
            filter_query([EITHER]),
            ["filter   a eq 1 or not (b gt the field c)", "page     30 rows, total exact"],
        ),
        (
            filter_query([{"name": "a", "op": "any", "val": {"name": "b", "op": "in_", "val": ["x", None]}}]),
            ["filter   a any (b in_ ['x', null])", "page     30 rows, total exact"],
        ),
        (
            "sort=-age,group.name&include=computers,group.users&fields[user]=age,email&fields[group]=",
            [
                "sort     -age, group.name",
                "include  computers, group.users",
                "fields   user: age, email",
                "fields   group: none",
                "page     30 rows, total exact",
            ],
        ),
    ],
)
def test_a_query(query_string: str, lines: list[str]) -> None:
    assert [f"{part:8} {text}" for part, text in query_parts(parsed(query_string), has_pages=True)] == lines
    assert len(list(query_parts(parsed(query_string), has_pages=False))) == len(lines) - 1


def plan_text(query_string: str) -> str:
    fields = "&fields[user]=age&fields[computer]=name&fields[group]=name"
    return "\n".join(plan_lines(read_collection("user", query_string + fields, catalog=CATALOG).plan))


def test_a_plan_with_includes() -> None:
    assert plan_text("include=computers.owner,group&sort=group.name,-age") == (
        "user (users as t0): primary rows\n"
        "    columns   id, age, group_id\n"
        "    joins     group (groups as t1): t0.group_id = t1.id\n"
        "    order     t1.name, t0.age descending, t0.id descending\n"
        "    computer (computers as t0): included by computers, in a statement of its own\n"
        "        columns   id, name, owner_id\n"
        "        attached  t0.id = t0.owner_id\n"
        "        user (users as t0): included by owner, in a statement of its own\n"
        "            columns   id, age\n"
        "            attached  t0.owner_id = t0.id\n"
        "    group (groups as j1): included by group, joined to the rows above\n"
        "        columns   id, name\n"
        "        attached  t0.group_id = j1.id"
    )


@pytest.mark.parametrize(
    ("filters", "text"),
    [
        ({"name": "age", "op": "between", "val": [1, 2]}, f"t0.age between {VALUE}, {VALUE}"),
        ({"name": "age", "op": "is_", "val": None}, "t0.age is_ null"),
        ({"name": "first_name", "op": "ne", "field": "last_name"}, "t0.first_name ne t0.last_name"),
        (
            {"and": [{"name": "age", "op": "gt", "val": 1}, {"not": {"name": "id", "op": "eq", "val": 3}}]},
            "(t0.age gt a value of the request and not (t0.id eq a value of the request))",
        ),
        (
            {"name": "computers", "op": "any", "val": {"name": "name", "op": "eq", "val": "x"}},
            "there is computer (computers as t1) with t0.id = t1.owner_id and t1.name eq a value of the request",
        ),
        ({"name": "group", "op": "has", "val": []}, "there is group (groups as t1) with t0.group_id = t1.id"),
    ],
)
def test_a_condition(filters: Any, text: str) -> None:
    assert f"    where     {text}\n" in plan_text(filter_query([filters]))


def test_clauses_in_parentheses_and_in_names_stay_on_their_line() -> None:
    sql = 'SELECT "a FROM b",(SELECT COUNT(*) FROM "t") FROM "t" LEFT JOIN "u" ON 1 WHERE "x"=\' LIMIT \' LIMIT $1'
    assert sql_lines(sql) == [
        'SELECT "a FROM b",(SELECT COUNT(*) FROM "t")',
        'FROM "t"',
        'LEFT JOIN "u" ON 1',
        "WHERE \"x\"=' LIMIT '",
        "LIMIT $1",
    ]
    assert " ".join(sql_lines(sql)) == sql


@pytest.mark.parametrize(
    ("line", "lines"),
    [
        ("", [""]),
        ("short", ["short"]),
        (
            "  where  (age > 30) and (name = 'a b c d e')",
            ["  where  (age > 30)", "      and (name =", "      'a b c d e')"],
        ),
        ('SELECT "t0"."id","t0"."a, b","t0"."c"', ['SELECT "t0"."id",', '    "t0"."a, b",', '    "t0"."c"']),
        ("x" * 30, ["x" * 30]),
        ("it's 'unclosed text of a line", ["it's 'unclosed text", "    of a line"]),
    ],
)
def test_a_long_line(line: str, lines: list[str]) -> None:
    assert list(wrapped(line, 20)) == lines
    assert list(wrapped(line, 1000)) == [line]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "1"),
        (0, "0"),
        (True, "true"),
        (None, "null"),
        ("O'Hara", "'O''Hara'"),
        ("\x1b[2J\n", r"'\x1b[2J\n'"),
        (date(2026, 1, 2), "2026-01-02"),
        ([1, "a", None], "[1, 'a', null]"),
        ("x" * 300, "'" + "x" * 199 + "..."),
    ],
)
def test_a_value(value: Any, text: str) -> None:
    assert value_text(value) == text


@pytest.mark.parametrize(
    ("table", "has_condition", "expression", "is_helped"),
    [
        ("public.users", False, "(t0.age > 30)", True),
        ("public.users", False, 't0."age"', True),
        ("public.users", False, "(t0.agency = 1)", False),
        ("public.users", False, "(t0.id = 1)", False),
        ("public.users", True, "(t0.age > 30)", False),
        ("other.users", False, "(t0.age > 30)", False),
        ("public.users", False, "t0.age DESC", True),
        ("public.users", False, "t0.age DESC NULLS LAST", False),
    ],
)
def test_an_index_helps_a_scan_without_a_condition(
    table: str, has_condition: bool, expression: str, is_helped: bool
) -> None:
    suggestion = Suggestion("missing", "public.users", ("age", "id"), "", "CREATE")
    statement = ExplainedStatement("", "", (), (), None, (Scan(table, has_condition),), (expression,))
    assert helpful([suggestion], [statement]) == ([suggestion] if is_helped else [])


@pytest.mark.parametrize(
    ("operator", "value", "use"),
    [
        ("startswith", "a", "beginning"),
        ("startswith", "%", "beginning"),
        ("like", "a%", "beginning"),
        ("like", "_a%", None),
        ("like", "ann", "trigrams"),
        ("like", "%an%", None),
        ("ilike", "Ann%", "trigrams"),
        ("ilike", r"%a\_nn%", None),
        ("endswith", "ann", "trigrams"),
        ("endswith", "an", None),
        ("match", "^ann", "trigrams"),
        ("match", "[ann]", None),
        ("match", "ann|b", None),
        ("match", r"\d\d\d", None),
        ("notlike", "ann%", None),
        ("eq", "ann", None),
    ],
)
def test_what_an_index_finds(operator: str, value: str, use: str | None) -> None:
    """The beginning of a text, or three letters or digits in a row; None for nothing."""
    planned = read_collection("user", filter_query([{"name": "email", "op": operator, "val": value}]), catalog=CATALOG)
    values = planned.values
    found = list(matched_texts(planned.plan, lambda slot: values[slot.position[1]]))
    assert [matched.use for matched in found] == ([] if use is None else [use])


def test_no_index_finds_computed_texts_and_labels() -> None:
    """Nor texts inside JSON; of related rows, it is an index of their table."""
    texts = [{"name": name, "op": "like", "val": "ann%"} for name in ("display_name", "status", "group.name")]
    planned = read_collection("user", filter_query(texts), catalog=CATALOG)
    [matched] = matched_texts(planned.plan, lambda slot: planned.values[slot.position[1]])
    assert (matched.resource.table, matched.attribute.name) == ("groups", "name")
    planned = read_collection("photo", filter_query([{"name": "words.a", "op": "like", "val": "ann"}]), catalog=CATALOG)
    assert not list(matched_texts(planned.plan, lambda slot: planned.values[slot.position[1]]))


def test_an_index_for_a_beginning_may_be_of_another_kind() -> None:
    """A text of any length gets one on trigrams, and needs none if a btree finds its beginning."""
    wanted = wanted_for_text(MatchedText(CATALOG.by_type["user"], Attribute("note", TEXT), "beginning"))
    assert (wanted.operator_class, wanted.probe) == ("gin_trgm_ops", """WHERE "note" LIKE 'aaa%'""")
