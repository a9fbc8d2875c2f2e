"""The names, limits and texts that `waterspout inspect` makes."""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from querybuild.declarations.database_types.composites import composite
from querybuild.declarations.types import CHAR, DATE, FLOAT, INT, NUMERIC, OPAQUE, TEXT, ColumnType
from server.tools.inspecting.catalog.model import Type
from server.tools.inspecting.catalog.view_columns import Shown, shown_columns
from server.tools.inspecting.declaration.column_types import column_type_of
from server.tools.inspecting.declaration.conditions import Stated, stated
from server.tools.inspecting.declaration.naming import constant_of, path_of, plural, singular, snake_case
from server.tools.inspecting.text.expressions import literal


@pytest.mark.parametrize(
    ("one", "many"),
    [
        *(("inventory", "inventories"), ("status", "statuses"), ("address", "addresses"), ("category", "categories")),
        *(("person", "people"), ("child", "children"), ("bus", "buses"), ("alias", "aliases"), ("hero", "heroes")),
        *(("analysis", "analyses"), ("basis", "bases"), ("criterion", "criteria"), ("index", "indices")),
        *(("cache", "caches"), ("hierarchy", "hierarchies"), ("lens", "lenses"), ("schema", "schemas")),
        *(("campus", "campuses"), ("bonus", "bonuses"), ("virus", "viruses"), ("wife", "wives"), ("box", "boxes")),
        *(("series", "series"), ("species", "species"), ("news", "news"), ("data", "data"), ("metadata", "metadata")),
        *(("staff", "staff"), ("sms", "sms"), ("equipment", "equipment"), ("media", "media"), ("sheep", "sheep")),
        *(("order_detail", "order_details"), ("film_category", "film_categories"), ("day", "days"), ("at", "at")),
        *(("specimen", "specimens"), ("db", "dbs"), ("user_ip", "user_ips"), ("stream_pos", "stream_pos")),
    ],
)
def test_singular_and_plural(one: str, many: str) -> None:
    assert (singular(one), plural(one), singular(many), plural(many)) == (one, many, one, many)


@pytest.mark.parametrize(
    ("name", "member", "path"),
    [
        ("order_id", "order_id", "/order_id"),
        ("a__b-c", "a__b-c", "/a__b-c"),
        ("OrderDetails", "order_details", "/order_details"),
        ("HTTPServer", "http_server", "/http_server"),
        ("ADDRESS2", "address2", "/address2"),
        ("Unit Price ($)", "unit_price", "/unit_price"),
        ("a.b", "a_b", "/a_b"),
        ("_x_", "x", "/x"),
        ('say "hi"\\', "say_hi", "/say_hi"),
        ("Größe", "größe", "/grosse"),
        ("日本", "日本", "/u65e5u672c"),
        ("operations", "operations", "/operations_"),
        ("🙂", "", "/"),
    ],
)
def test_names(name: str, member: str, path: str) -> None:
    assert (snake_case(name), path_of(snake_case(name))) == (member, path)


@pytest.mark.parametrize(
    ("type_name", "constant"),
    [("order_detail", "ORDER_DETAIL"), ("text", "TEXT_RESOURCE"), ("3d-shape", "R_3D_SHAPE"), ("straße", "STRASSE")],
)
def test_constants(type_name: str, constant: str) -> None:
    assert constant_of(type_name, {"TEXT"}) == constant


@pytest.mark.parametrize(
    ("expression", "column_type", "expected"),
    [
        ("(x > 0)", INT, {"minimum": 1}),
        ("((x >= 0) AND (x < 150))", INT, {"minimum": 0, "maximum": 149}),
        ("(0 <= x)", INT, {"minimum": 0}),
        ("((x >= '-5'::integer) AND (x <= 5))", INT, {"minimum": -5, "maximum": 5}),
        ("(x >= 0.50)", NUMERIC, {"minimum": Decimal("0.50")}),
        ("(x >= (0)::numeric)", NUMERIC, {"minimum": 0}),
        ("(x >= '1996-07-01'::date)", DATE, {"minimum": date(1996, 7, 1)}),
        (
            "((x > '1996-07-01'::date) AND (x < '2000-01-01'::date))",
            DATE,
            {"minimum": date(1996, 7, 2), "maximum": date(1999, 12, 31)},
        ),
        ("(x > '9999-12-31'::date)", DATE, None),
        ("((x >= '1930-01-01'::date) AND (x <= (now() - '18 years'::interval)))", DATE, {"minimum": date(1930, 1, 1)}),
        (
            "((x)::text = ANY ((ARRAY['a'::character varying, 'it''s'::character varying])::text[]))",
            TEXT,
            ("a", "it's"),
        ),
        ("(x = ANY (ARRAY['S'::bpchar, 'M'::bpchar]))", CHAR, ("S", "M")),
        ("(VALUE = ANY (ARRAY['a'::text, 'b, (c)'::text]))", TEXT, ("a", "b, (c)")),
        ("(upper((x)::text) = ANY (ARRAY['M'::text, 'F'::text]))", TEXT, None),
        ("(x = 'only'::text)", TEXT, ("only",)),
        ("((length(x) >= 2) AND (char_length(x) < 9))", TEXT, {"min_length": 2, "max_length": 8}),
        ("(length(TRIM(BOTH FROM x)) > 0)", TEXT, None),
        ("((x > 0) OR (x IS NULL))", INT, {"minimum": 1}),
        ("((x IS NULL) OR ((x > 0) AND (x < 9)))", INT, {"minimum": 1, "maximum": 8}),
        ("((x > 0) AND ((x IS NULL) OR (x < 9)))", INT, {"minimum": 1, "maximum": 8}),
        ("((x IS NULL) OR ((x)::text = ANY (ARRAY['a'::text, 'b OR c'::text])))", TEXT, ("a", "b OR c")),
        ("((x > 0) OR (y IS NULL))", INT, None),
        ("((x > 0) OR (x < -5))", INT, None),
        ("((x > 0) OR (x < -5) OR (x IS NULL))", INT, None),
        ("(x IS NULL)", INT, None),
        ("((x > 0) = true)", INT, None),
        ("(x <> 0)", INT, None),
        ("(x > y)", INT, None),
        ("(x ~ '^[A-Z]+ AND $'::text)", TEXT, None),
    ],
)
def test_conditions(expression: str, column_type: ColumnType, expected: Any) -> None:
    """A dict: these limits. A tuple: these texts. None: a comment."""
    found = stated(expression, "x", column_type)
    names = ("minimum", "maximum", "min_length", "max_length")
    limits = {name: bound for name in names if (bound := getattr(found, name)) is not None}
    if isinstance(expected, dict):
        assert limits == expected
        assert found.is_whole == ("now()" not in expression)
    else:
        assert found == (Stated(is_whole=False) if expected is None else Stated(choices=expected))


@pytest.mark.parametrize(
    ("expression", "column_type", "expected"),
    [
        ("(x > (0)::numeric)", NUMERIC, Stated(minimum=0, is_whole=False)),
        ("((x > 0.5) AND (x < (1000)::numeric))", NUMERIC, Stated(Decimal("0.5"), 1000, is_whole=False)),
        ("((x >= (0)::double precision) AND (x < (1)::double precision))", FLOAT, Stated(0, 1, is_whole=False)),
    ],
)
def test_a_bound_that_is_not_allowed_itself(expression: str, column_type: ColumnType, expected: Stated) -> None:
    """Bounds of a declaration are inclusive. PostgreSQL checks the rest, which is a comment."""
    assert stated(expression, "x", column_type) == expected


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a", '"a"'),
        ("it's", '"it\'s"'),
        ('"a"', "'\"a\"'"),
        ('it\'s "a"', "'it\\'s \"a\"'"),
        ("'\"", '"\'\\""'),
        ("\\\n\0é\u200b", '"\\\\\\n\\x00é\\u200b"'),
    ],
)
def test_literals(text: str, shown: str) -> None:
    assert literal(text) == shown
    assert eval(shown) == text


def test_dimensions_of_arrays() -> None:
    """PostgreSQL lets a column declare more of them than a value may have."""
    number = Type("int4", "b", "integer")
    numbers = Type("_int4", "b", "integer[]", element=number)
    assert [column_type_of(numbers, count).name for count in (0, 2, 7)] == ["int[]", "int[][]", "int[]"]
    pairs = Type("_pair", "b", "pair[]", element=Type("pair", "c", "pair", fields=(("a", number),)))
    assert [column_type_of(pairs, count).name for count in (0, 1, 2)] == ["pair[]", "pair[]", OPAQUE.name]


@pytest.mark.parametrize("arguments", [(7,), ("a", 7)])
def test_a_composite_type_has_a_name(arguments: Any) -> None:
    with pytest.raises(TypeError, match=r"takes the name of a type, such as .*, not 7"):
        composite(*arguments, x=INT)


def test_columns_of_a_view() -> None:
    """Entries of subqueries, hidden entries and expressions are no columns of a table. A name may contain braces."""
    entry = (
        "{{TARGETENTRY :expr {{VAR :varno 1}} :resno {} :resname {} :ressortgroupref {} :resorigtbl {} :resorigcol {} "
        ":resjunk {}}}"
    )
    inner = "{QUERY :targetList (" + entry.format(1, "x", 1, 9, 9, "false") + ") :groupClause <> :setOperations <>}"
    entries = " ".join(
        entry.format(*one)
        for one in ((1, "a\\}", 2, 16384, 2, "false"), (2, "b", 1, 0, 0, "false"), (3, "c", 3, 16384, 3, "true"))
    )
    start = f"({{QUERY :rtable ({{RANGETBLENTRY :subquery {inner}}}) :targetList ({entries}) "
    group = "{{SORTGROUPCLAUSE :tleSortGroupRef {} :eqop 98}}"
    origins = {1: (16384, 2)}
    for clauses, expected in (
        (":groupClause <> :setOperations <>", Shown(origins)),
        (f":groupClause ({group.format(2)} {group.format(1)}) :setOperations <>", Shown(origins, (1, 2))),
        (f":groupClause ({group.format(2)} {group.format(3)}) :setOperations <>", Shown(origins)),
        (f":groupClause ({group.format(2)}) :groupingSets ({{GROUPINGSET :kind 0}})", Shown(origins)),
        (f":groupClause <> :distinctClause ({group.format(1)})", Shown(origins, (2,))),
        (":groupClause <> :setOperations {SETOPERATIONSTMT :op 0}", Shown()),
    ):
        assert shown_columns(f"{start}{clauses}}})") == expected


def test_a_server_that_does_not_inspect_loads_nothing_for_it() -> None:
    code = (
        "import server.startup.start, server.tools.commands, sys; "
        "print([name for name in sys.modules if 'inspecting' in name or name == 'pluralizer'])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
