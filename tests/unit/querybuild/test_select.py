"""The SQL text of reads."""

from __future__ import annotations

import json

import pytest

from querybuild.errors import ApiError
from querybuild.planning import planner
from querybuild.planning.planner import MAX_JOINED_ROWS, Context, plan_linkage, plan_related
from querybuild.planning.reads import fetching
from querybuild.planning.row_plan import LIMIT, RelatedScope, Slot
from querybuild.sql import select
from querybuild.sql.select import ReadStatements, compile_read
from tests.catalog import CATALOG
from tests.page_statements import PAGES
from tests.planning import LIMITS, filter_query, parsed, read_collection, read_resource, values_of
from tests.statements import AUTHOR_COLUMNS, NODE_COLUMNS, READS, TABLES, WHERES, Read, Where
from waterspout import TEXT, Attribute, Catalog, Operator, Resource, Template


@pytest.mark.parametrize("case", WHERES, ids=lambda case: f"{case.type} {json.dumps(case.filter)[:90]}")
def test_where(case: Where) -> None:
    planned = read_collection(case.type, f"{filter_query(case.filter)}&fields[{case.type}]=&page[size]=0")
    statement = compile_read(planned.plan).primary
    table, key = TABLES[case.type]
    where = f" WHERE {case.sql}" if case.sql else ""
    assert statement.sql == f'SELECT "t0"."{key}" FROM {table} "t0"{where} ORDER BY "t0"."{key}"'
    assert statement.slots == tuple(Slot("request", index) for index in range(len(case.values)))
    assert planned.values == case.values


@pytest.mark.parametrize("case", READS + PAGES, ids=lambda case: f"{case.type}?{case.query}")
def test_read(case: Read) -> None:
    planned = read_collection(case.type, case.query)
    statements = compile_read(planned.plan)
    assert statements.primary.sql == case.primary
    assert values_of(planned) == case.values
    assert (None if statements.count is None else statements.count.sql) == case.count
    assert tuple(None if branch is None else branch.sql for branch in statements.branches) == case.branches


@pytest.mark.parametrize(
    ("tests", "sql", "values"),
    [
        (
            [("id", "in_", [3, 1]), ("name", "eq", "x"), ("id", "in", [2, 1]), ("id", "in_", [])],
            '("t0"."id"=ANY($1) OR "t0"."name"=$2)',
            ([3, 1, 2, 1], "x"),
        ),
        (
            [("id", "in_", [1]), ("name", "in_", ["x"]), ("name", "in_", ["y"]), ("id", "in_", [2])],
            '("t0"."id"=ANY($1) OR "t0"."name"=ANY($2))',
            ([1, 2], ["x", "y"]),
        ),
        ([("id", "notin_", [1]), ("id", "notin_", [2])], '("t0"."id"<>ALL($1) OR "t0"."id"<>ALL($2))', ([1], [2])),
    ],
)
def test_lists_of_one_column_are_one_list(
    tests: list[tuple[str, str, object]], sql: str, values: tuple[object, ...]
) -> None:
    filters = [{"or": [{"name": name, "op": op, "val": val} for name, op, val in tests]}]
    planned = read_collection("tag", f"{filter_query(filters)}&fields[tag]=&page[size]=0")
    primary = compile_read(planned.plan).primary
    assert primary.sql == f'SELECT "t0"."id" FROM {TABLES["tag"][0]} "t0" WHERE {sql} ORDER BY "t0"."id"'
    assert tuple(planned.values[slot.index] for slot in primary.slots) == values


def test_resource() -> None:
    statements = compile_read(read_resource("node").plan)
    assert statements.primary.sql == f'SELECT {NODE_COLUMNS} FROM "corner"."nodes" "t0" WHERE "t0"."id"=$1'
    assert statements.primary.slots == (Slot("path"),)
    assert (statements.count, statements.branches) == (None, ())


def test_a_short_page_with_one_to_many_include_is_one_statement() -> None:
    """The additional row that is read for the next page includes nothing."""
    query = "include=articles&fields[author]=full-name&fields[article]=title&page[size]=7&page[total]=none"
    planned = read_collection("author", query)
    statements = compile_read(planned.plan)
    assert planned.plan.is_single_statement
    assert statements.branches == (None,)
    assert statements.primary.sql == (
        'WITH "the page" ("c0","c1") AS MATERIALIZED (SELECT "t0"."author_no","t0"."given"||\' \'||"t0"."family"'
        ' FROM "authors" "t0" ORDER BY "t0"."author_no" LIMIT $1)'
        ' SELECT "the page".*,NULL,NULL,NULL,row_number() OVER () FROM "the page"'
        ' UNION ALL SELECT NULL,NULL,"t0"."id","t0"."title","t0"."author_id",NULL FROM "corner"."articles" "t0"'
        ' WHERE "t0"."author_id"=ANY(ARRAY(SELECT "c0" FROM "the page" LIMIT $1-1)) ORDER BY 6,3'
    )
    two = compile_read(read_collection("author", "include=articles,edited&page[size]=7").plan)
    assert None not in two.branches
    long = compile_read(read_collection("author", f"include=articles&page[size]={MAX_JOINED_ROWS + 1}").plan)
    assert None not in long.branches


ARTICLES = (
    'LEFT JOIN (SELECT "{0}"."author_id",COUNT(*) AS "the count" FROM "corner"."articles" "{0}" WHERE NOT '
    '"{0}"."author_id" IS NULL GROUP BY "{0}"."author_id") "{0}" ON "{0}"."author_id"="{1}"."author_no"'
)
TAGS = (
    'LEFT JOIN (SELECT "t1"."article_id",COUNT(*) AS "the count" FROM "tags" "t2" JOIN "corner"."article_tags" "t1" ON '
    '"t1"."tag_id"="t2"."id" WHERE NOT "t1"."article_id" IS NULL GROUP BY "t1"."article_id") "t1" ON '
    '"t1"."article_id"="t0"."id"'
)


@pytest.mark.parametrize(
    ("type_name", "query", "sql"),
    [
        (
            "author",
            "sort=-count(articles),count(articles)",
            f'SELECT "t0"."author_no" FROM "authors" "t0" {ARTICLES.format("t1", "t0")} '
            'ORDER BY COALESCE("t1"."the count",0) DESC,"t0"."author_no"',
        ),
        (
            "article",
            "sort=count(tags),-count(author.articles)",
            f'SELECT "t0"."id" FROM "corner"."articles" "t0" LEFT JOIN "authors" "t3" ON "t3"."author_no"='
            f'"t0"."author_id" {TAGS} {ARTICLES.format("t4", "t3")} '
            'ORDER BY COALESCE("t1"."the count",0),COALESCE("t4"."the count",0) DESC,"t0"."id" DESC',
        ),
        (
            "author",
            "sort=-count(articles)&filter[id][gt]=1",
            'SELECT "t0"."author_no" FROM "authors" "t0" WHERE "t0"."author_no">$1 ORDER BY (SELECT COUNT(*) FROM '
            '"corner"."articles" "t1" WHERE "t1"."author_id"="t0"."author_no") DESC,"t0"."author_no" DESC',
        ),
    ],
)
def test_a_sort_by_a_number(type_name: str, query: str, sql: str) -> None:
    """Related rows are counted at once if all rows are sorted, and otherwise for each row."""
    planned = read_collection(type_name, f"{query}&fields[{type_name}]=&page[size]=0")
    assert compile_read(planned.plan).primary.sql == sql


def test_linkage_of_a_write_is_read_without_the_related_rows() -> None:
    plan = read_resource("article", "fields[article]=author,tags", written=("author", "tags", "editor")).plan
    statements = compile_read(plan)
    assert statements.primary.sql == (
        'SELECT "t0"."id","t0"."author_id" FROM "corner"."articles" "t0" WHERE "t0"."id"=$1'
    )
    assert [branch and branch.sql for branch in statements.branches] == [
        None,
        'SELECT "t0"."id","t1"."article_id" FROM "tags" "t0"'
        ' JOIN "corner"."article_tags" "t1" ON "t1"."tag_id"="t0"."id" WHERE "t1"."article_id"=ANY($1)'
        ' ORDER BY "t0"."id"',
    ]


def test_a_slot_that_is_used_twice_is_one_parameter() -> None:
    """The count inside the statement is for the same rows, with the same parameters."""
    statement = compile_read(read_collection("tag", "page[size]=1&fields[tag]=&filter[name]=x").plan).primary
    assert statement.sql == (
        'SELECT "t0"."id",(SELECT COUNT(*) FROM "tags" "t0" WHERE "t0"."name"=$1) FROM "tags" "t0"'
        ' WHERE "t0"."name"=$1 ORDER BY "t0"."id" LIMIT $2'
    )
    assert statement.slots == (Slot("request"), LIMIT)


def test_a_custom_criterion_is_one_operand() -> None:
    """`a OR b` in a conjunction becomes `(a OR b)`."""
    either = Operator(
        "either",
        read=lambda value: value,
        criterion=lambda attribute, column, bound, name: (Template("{} IS NULL OR {}={}", column, column, bound), []),
    )
    thing = Resource("thing", "/things", "things", attributes=(Attribute("a", TEXT, operators=(either,)),))
    test = {"name": "a", "op": "either", "val": "x"}
    query = f"{filter_query([{'and': [test, test]}])}&page[size]=0&fields[thing]="
    sql = compile_read(read_collection("thing", query, catalog=Catalog([thing])).plan).primary.sql
    assert sql == (
        'SELECT "t0"."id" FROM "things" "t0" WHERE (("t0"."a" IS NULL OR "t0"."a"=$1)'
        ' AND ("t0"."a" IS NULL OR "t0"."a"=$2)) ORDER BY "t0"."id"'
    )


def scoped(type_name: str, relationship: str, kind: str, query: str = "") -> ReadStatements:
    """Return the statements of a related (or relationship) route."""
    parent = CATALOG.by_type[type_name]
    found = parent.relationship(relationship)
    assert found is not None
    scope = RelatedScope(parent, found, CATALOG.target(found))
    errors: list[ApiError] = []
    plan = plan_related if kind == "related" else plan_linkage
    planned = plan(parsed(query), scope, CATALOG, Context(), LIMITS, errors)
    assert errors == []
    return compile_read(planned.plan)


LINKED_TAGS = (
    'EXISTS (SELECT 1 FROM "corner"."article_tags" "lp" WHERE "lp"."tag_id"="t0"."id" AND "lp"."article_id"=$1)'
)
OWN_KEY = '"t0"."author_no"=(SELECT "p"."author_id" FROM "corner"."articles" "p" WHERE "p"."id"=$1)'


@pytest.mark.parametrize(
    ("type_name", "relationship", "kind", "query", "primary"),
    [
        ("article", "author", "related", "", f'SELECT {AUTHOR_COLUMNS} FROM "authors" "t0" WHERE {OWN_KEY}'),
        ("article", "author", "linkage", "", f'SELECT "t0"."author_no" FROM "authors" "t0" WHERE {OWN_KEY}'),
        (
            "author",
            "desk",
            "linkage",
            "",
            'SELECT "t0"."id" FROM "corner"."desks" "t0" WHERE "t0"."author_no"=$1',
        ),
        (
            "node",
            "children",
            "related",
            "page[size]=0&sort=-weight",
            f'SELECT {NODE_COLUMNS} FROM "corner"."nodes" "t0" WHERE "t0"."parent_id"=$1'
            ' ORDER BY "t0"."weight" DESC,"t0"."id" DESC',
        ),
        (
            "article",
            "tags",
            "related",
            "page[total]=none&filter[name]=x",
            f'SELECT "t0"."id","t0"."name" FROM "tags" "t0" WHERE {LINKED_TAGS} AND "t0"."name"=$2'
            ' ORDER BY "t0"."id" LIMIT $3',
        ),
        (
            "article",
            "tags",
            "linkage",
            "page[size]=1",
            f'SELECT "t0"."id",(SELECT COUNT(*) FROM "tags" "t0" WHERE {LINKED_TAGS}) FROM "tags" "t0"'
            f' WHERE {LINKED_TAGS} ORDER BY "t0"."id" LIMIT $2',
        ),
    ],
)
def test_rows_related_to_one_parent(type_name: str, relationship: str, kind: str, query: str, primary: str) -> None:
    statements = scoped(type_name, relationship, kind, query)
    assert statements.primary.sql == primary
    assert statements.primary.slots[0] == Slot("path")
    assert statements.parent is not None
    table, key = TABLES[type_name]
    assert statements.parent.sql == f'SELECT 1 FROM {table} "p" WHERE "p"."{key}"=$1'


def test_a_document_of_one_resource_in_one_statement() -> None:
    plan = read_resource("tag", "include=articles.author&fields[tag]=&fields[article]=&fields[author]=").plan
    statement = compile_read(plan).combined
    tags = '"tags" "t0" WHERE "t0"."id"=$1'
    articles = (
        '"corner"."articles" "t0" JOIN "corner"."article_tags" "t1" ON "t1"."article_id"="t0"."id"'
        f' WHERE "t1"."tag_id"=ANY(ARRAY(SELECT "t0"."id" FROM {tags}))'
    )
    assert statement is not None
    assert statement.sql == (
        f'SELECT * FROM (SELECT row_number() OVER (ORDER BY "t0"."id"),"t0"."id" FROM {tags}) "p0"'
        ' FULL JOIN (SELECT row_number() OVER (ORDER BY "t0"."id"),"t0"."id","t0"."author_id","t1"."tag_id"'
        f' FROM {articles}) "p1" ON FALSE'
        ' FULL JOIN (SELECT row_number() OVER (ORDER BY "t0"."author_no"),"t0"."author_no" FROM "authors" "t0"'
        f' WHERE "t0"."author_no"=ANY(ARRAY(SELECT "t0"."author_id" FROM {articles}))) "p2" ON FALSE'
        " ORDER BY 1,3,7"
    )


def test_a_row_has_a_limited_number_of_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Includes beyond the limit are read by separate statements."""
    united, joined, combined = "include=articles&page[size]=7", "include=author&page[size]=7", "include=articles.author"
    assert read_collection("author", united).plan.united is not None
    assert read_collection("article", joined).plan.node.branches[0].fetch == "join"
    assert compile_read(read_resource("tag", combined).plan).combined is not None
    for module in (planner, fetching, select):
        monkeypatch.setattr(module, "MAX_COLUMNS", 6)
    assert read_collection("author", united).plan.united is None
    assert read_collection("article", joined).plan.node.branches[0].fetch == "keys"
    assert compile_read(read_resource("tag", combined).plan).combined is None
