"""The planning of reads: names are resolved, aliases are in order, values have the types of their columns, and each
error names the nearest declared name."""

# ruff: noqa: E501  # the tables of refusals have one row a case, with the whole detail

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from querybuild.declarations.keys import referring
from querybuild.errors import FieldsError, FilterError, IncludeError, SortError
from querybuild.planning import row_plan as plans
from querybuild.planning.page_values import PageValues
from querybuild.planning.row_plan import LIMIT, OFFSET, ColumnRef, Exists, LinkRows, Logic, OrderKey, Rows
from querybuild.planning.rowsets import without_conditions
from tests.catalog import ARTICLE, ARTICLE_TAGS, AUTHOR, CATALOG, NODE, TAG, attribute_of
from tests.planning import Answered, filter_query, limits, read_collection, read_resource, refused


def one(name: str, op: str, val: Any) -> str:
    return filter_query([{"name": name, "op": op, "val": val}])


AUTHOR_FIELDS = "There are: id, given-name, family-name, full-name, born, größe, articles, edited, profile, desk."
INT_OPERATORS = "eq, ne, lt, le, gt, ge, between, in_, notin_, is_, isnot"
TEXT_OPERATORS = f"{INT_OPERATORS}, like, ilike, notlike, notilike, startswith, endswith"
WHOLE = "a whole number from -2147483648 to 2147483647"
RULE_FIELDS = (
    "id, must, may, sized, ranged, since, patterned, chosen, shaped, listed, on_update, uncreatable, unupdatable"
)


@pytest.mark.parametrize(
    ("type_name", "query", "detail"),
    [
        # names
        ("author", one("bron", "eq", 1), f"[0]: author has no attribute or relationship “bron”. Did you mean “born”? {AUTHOR_FIELDS}"),
        ("author", one("given", "eq", 1), f"[0]: author has no attribute or relationship “given”. Did you mean “given-name”? {AUTHOR_FIELDS}"),
        ("author", one("secret", "eq", 1), f"[0]: author has no attribute or relationship “secret”. {AUTHOR_FIELDS}"),
        ("author", one("type", "eq", 1), f"[0]: author has no attribute or relationship “type”. {AUTHOR_FIELDS}"),
        ("author", one("Mixed Case", "eq", 1), f"[0]: author has no attribute or relationship “Mixed Case”. {AUTHOR_FIELDS}"),
        ("author", one("articles", "eq", 1), "[0]: “articles” is to-many: ask with `any`, or name a field of it, articles.id."),
        ("author", one("profil.motto", "eq", 1), "[0]: author has no relationship “profil”. Did you mean “profile”? There are: articles, edited, profile, desk."),
        ("author", one("born.x", "eq", 1), "[0]: author has no relationship “born”. There are: articles, edited, profile, desk."),
        ("author", one("articles.titel", "eq", 1), "[0]: article has no attribute or relationship “titel”. Did you mean “title”? There are: id, title, pages, author, editor, tags."),
        ("author", one("x" * 200, "eq", 1), f"[0]: author has no attribute or relationship “{'x' * 77}...”. {AUTHOR_FIELDS}"),
        ("rule", one("unreadable", "eq", 1), f"[0]: rule has no attribute or relationship “unreadable”. Did you mean “uncreatable”? There are: {RULE_FIELDS}, unsortable, unmatchable."),
        ("rule", one("unfilterable", "eq", 1), f"[0]: rule has no attribute or relationship “unfilterable”. Did you mean “unsortable”? There are: {RULE_FIELDS}, unsortable, unmatchable."),
        ("undetailed", one("node.title", "eq", 1), "[0]: undetailed has no relationship “node”. There are: none."),
        ("undetailed", one("node_id", "is_", None), "[0]: undetailed has no relationship “node”. There are: none."),
        ("author", filter_query([{"name": "born", "op": "eq", "field": "nope"}]), f"[0]: author has no attribute or relationship “nope”. {AUTHOR_FIELDS}"),
        ("author", one("articles", "any", {"name": "nope", "op": "eq", "val": 1}), "[0].val: article has no attribute or relationship “nope”. There are: id, title, pages, author, editor, tags."),
        # operators
        ("author", one("born", "eqq", 1), f"[0]: There is no operator “eqq”. Did you mean “eq”? “born” has: {INT_OPERATORS}."),
        ("author", one("born", "like", "1"), f"[0]: “born” is int and has no operator “like”. “born” has: {INT_OPERATORS}."),
        ("author", one("born", "any", []), f"[0]: “born” is int and has no operator “any”. “born” has: {INT_OPERATORS}."),
        ("article", one("author", "any", []), "[0]: “author” is to-one: its operator is `has`."),
        ("author", one("articles", "has", []), "[0]: “articles” is to-many: its operator is `any`."),
        ("rule", one("unmatchable", "match", "a"), f"[0]: “unmatchable” is text and has no operator “match”. “unmatchable” has: {TEXT_OPERATORS}."),
        ("rule", one("chosen", "match", "a"), f"[0]: “chosen” is enum and has no operator “match”. “chosen” has: {TEXT_OPERATORS}."),
        ("sample", one("flag", "lt", True), "[0]: “flag” is bool and has no operator “lt”. “flag” has: eq, ne, in_, notin_, is_, isnot."),
        ("sample", one("texts", "gt", ["a"]), "[0]: “texts” is text[] and has no operator “gt”. “texts” has: eq, ne, in_, notin_, is_, isnot."),
        ("sample", one("tree", "eq", {}), "[0]: “tree” is jsonb and has no operator “eq”. “tree” has: is_, isnot, jsonb_contains."),
        ("sample", one("plain_json", "jsonb_contains", {}), "[0]: “plain_json” is json and has no operator “jsonb_contains”. “plain_json” has: is_, isnot."),
        ("sample", one("plain_json", "in_", []), "[0]: “plain_json” is json and has no operator “in_”. “plain_json” has: is_, isnot."),
        ("author", one("born", "even", True), f"[0]: There is no operator “even”. “born” has: {INT_OPERATORS}."),
        # values
        ("author", one("born", "eq", None), "[0]: `eq` never matches null: ask with `is_` or `isnot`."),
        ("author", one("born", "between", None), "[0]: `between` never matches null: ask with `is_` or `isnot`."),
        ("author", one("born", "eq", "x"), f'[0]: the value for “born” must be {WHOLE}, not "x".'),
        ("author", one("born", "between", [1]), "[0]: the value for “born” must be a list of two, the lowest and the highest, not [1]."),
        ("author", one("born", "in_", 1), "[0]: the value for “born” must be a list, not 1."),
        ("author", one("born", "in_", [None]), "[0]: the value for “born” must be a list without null, which `is_` and `isnot` find, not [null]."),
        ("author", one("given-name", "like", 1), "[0]: the value for “given-name” must be a string, not 1."),
        ("author", one("given-name", "match", "a" * 201), f'[0]: the value for “given-name” must be a regular expression of at most 200 characters, not "{"a" * 76}....'),
        ("author", one("given-name", "match", "(.{0,99}){0,99}"), '[0]: the value for “given-name” must be a regular expression that is shorter when its repetitions are written out, not "(.{0,99}){0,99}".'),
        ("sample", one("tree", "is_", 1), "[0]: `is_` of jsonb takes only null."),
        ("sample", one("tree", "jsonb_contains", 1), "[0]: the value for “tree” must be a JSON object or array, not 1."),
        ("article", one("pages", "even", 1), "[0]: the value for “pages” must be true or false, not 1."),
        ("node", one("id", "eq", "123E4567-E89B-12D3-A456-426614174000"), '[0]: the value for “id” must be a UUID in lower case, not "123E4567-E89B-12D3-A456-426614174000".'),
        ("article", one("author_id", "eq", "07"), '[0]: the value for “author_id” must be a whole number without plus sign, blanks or leading zeros, not "07".'),
        # the field form
        ("author", filter_query([{"name": "born", "op": "in_", "field": "größe"}]), "[0]: `in_` has no `field` form."),
        ("article", filter_query([{"name": "pages", "op": "even", "field": "pages"}]), "[0]: `even` has no `field` form."),
        ("author", filter_query([{"name": "born", "op": "eq", "field": "given-name"}]), "[0]: “born” and “given-name” do not compare: int with text."),
        ("sample", filter_query([{"name": "tree", "op": "is_", "field": "tree"}]), "[0]: `is_` has no `field` form."),
        ("sample", filter_query([{"name": "days", "op": "eq", "field": "instants"}]), "[0]: “days” and “instants” do not compare: date[] with timestamptz[]."),
    ],
)  # fmt: skip
def test_filter_refused(type_name: str, query: str, detail: str) -> None:
    with refused() as told:
        read_collection(type_name, query)
    assert told == [(FilterError, "filter", detail)]


def test_list_of_too_many_values() -> None:
    read_collection("author", one("born", "in_", [1] * 1000))
    with refused() as told:
        read_collection("author", one("born", "in_", [1] * 1001))
    assert told[0][2].startswith("[0]: the value for “born” must be a list of at most 1000, not [1,1,")
    with refused() as told:
        read_collection("author", "filter[born][in_]=1,2,3", limits=limits(max_list_values=2))
    assert told == [
        (FilterError, "filter[born][in_]", "the value for “born” must be a list of at most 2, not “1,2,3”."),
    ]


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        (
            "filter[id]=07",
            "the value for “id” must be a whole number without plus sign, blanks or leading zeros, not “07”.",
        ),
        ("filter[born]=null", f"the value for “born” must be {WHOLE}, not “null”."),
        ("filter[born][in_]=1,x", f"the value for “born” must be a list of values, each {WHOLE}, not “1,x”."),
        ("filter[articles]=1", "“articles” is to-many: ask with `any`, or name a field of it, articles.id."),
        ("filter[articles][any]=1", None),
        ("filter[articles.pages][even]=yes", None),
    ],
)
def test_simple_filter_refused(query: str, detail: str | None) -> None:
    with refused() as told:
        read_collection("author", query)
    ((error, parameter, said),) = told
    assert (error, parameter) == (FilterError, query.partition("=")[0])
    assert detail is None or said == detail


@pytest.mark.parametrize(
    ("query", "values"),
    [
        ("filter[id]=7", (7,)),
        ("filter[born][is_]=null", ()),
        ("filter[born][isnot]=null", ()),
        ("filter[born][is_]=5", (5,)),
        ("filter[born][in_]=1,2", ([1, 2],)),
        ("filter[born][in_]=", ([],)),
        ("filter[born][between]=1,2", (1, 2)),
        (r"filter[given-name][in_]=a\,b,c", (["a,b", "c"],)),
        ("filter[given-name]=a,b", ("a,b",)),
        ("filter[given-name]=null", ("null",)),
        ("filter[given-name][like]=a,b", ("%a,b%",)),
        ("filter[articles.pages][even]=true", (True,)),
        ("filter[full-name]=A+B", ("A B",)),
        ("filter[gr%C3%B6%C3%9Fe]=7", (7,)),
        ("filter[desk.id]=7", (7,)),
        ("filter[profile]=7", (7,)),
        ("filter[profile_id]=7", (7,)),
        ("filter[born]=1&filter[id]=2&" + one("born", "ne", 3), (1, 2, 3)),
    ],
)
def test_simple_filter_values(query: str, values: tuple[Any, ...]) -> None:
    assert read_collection("author", query + "&page[size]=0").values == values


def test_values_are_in_the_order_of_planning() -> None:
    filters = [
        {"name": "born", "op": "gt", "val": 1},
        {"name": "articles", "op": "any", "val": {"name": "pages", "op": "in_", "val": [2]}},
    ]
    planned = read_collection("author", filter_query(filters) + "&page[size]=3&page[number]=5")
    assert planned.values == (1, [2])
    assert planned.page_values == PageValues(limit=3, offset=12)
    assert (planned.plan.rows.limit, planned.plan.rows.offset) == (LIMIT, OFFSET)


def test_a_plan_has_no_values_and_is_equal_to_every_plan_of_its_shape() -> None:
    plans = [
        read_collection("author", f"filter[born]={number}&page[size]={number}&filter[articles.title]=x{number}").plan
        for number in (1, 2)
    ]
    assert plans[0] == plans[1]
    assert hash(plans[0]) == hash(plans[1])
    other = read_collection("author", "filter[born][gt]=1&page[size]=1&filter[articles.title]=x").plan
    assert other != plans[0]


def test_aliases_are_numbered_in_order() -> None:
    filters = [
        {"or": [{"name": "tags", "op": "any", "val": {"name": "name", "op": "eq", "val": "x"}}]},
        {"name": "author.desk", "op": "has", "val": []},
    ]
    plan = read_collection("article", filter_query(filters) + "&sort=editor.born").plan
    tags, desks = plan.rows.conditions
    assert isinstance(tags, Logic)
    (tagged,) = tags.items
    assert isinstance(tagged, Exists)
    near = ARTICLE.id.key, referring(ARTICLE_TAGS.source_columns, ARTICLE.id.key)
    far = referring(ARTICLE_TAGS.target_columns, TAG.id.key), TAG.id.key
    through = LinkRows(ARTICLE_TAGS, "t1", near, far)
    assert without_conditions(tagged.rows) == Rows(TAG, "t2", "t0", through=through)
    (name_is,) = tagged.rows.conditions
    assert isinstance(name_is, plans.Test)
    assert name_is.left == ColumnRef("t2", attribute_of(TAG, "name"))
    assert isinstance(desks, Exists)
    assert without_conditions(desks.rows) == Rows(
        AUTHOR, "t3", "t0", (referring(("author_id",), AUTHOR.id.key), AUTHOR.id.key)
    )
    (desk,) = desks.rows.conditions
    assert isinstance(desk, Exists)
    assert desk.rows == Rows(CATALOG.by_type["desk"], "t4", "t3", (AUTHOR.id.key, AUTHOR.id.key))
    assert plan.rows.joins == (Rows(AUTHOR, "t5", "t0", (referring(("editor_id",), AUTHOR.id.key), AUTHOR.id.key)),)


def test_sort_ends_in_the_id_in_the_direction_of_the_last_key() -> None:
    order = read_collection("author", "sort=born,-given-name").plan.rows.order
    assert order == (
        OrderKey(ColumnRef("t0", attribute_of(AUTHOR, "born")), False, True),
        OrderKey(ColumnRef("t0", attribute_of(AUTHOR, "given-name")), True, False),
        OrderKey(ColumnRef("t0", CATALOG.id_of(AUTHOR)), True, False),
    )
    assert read_collection("author", "sort=-id").plan.rows.order == (
        OrderKey(ColumnRef("t0", CATALOG.id_of(AUTHOR)), True, False),
    )


@pytest.mark.parametrize(
    ("type_name", "sort", "detail"),
    [
        ("author", "nope", "There is no attribute “nope” in author to sort by. There are: id, given-name, family-name, full-name, born, größe."),
        ("author", "bron", "There is no attribute “bron” in author to sort by. Did you mean “born”? There are: id, given-name, family-name, full-name, born, größe."),
        ("author", "articles", "“articles” is to-many: a sort goes through to-one relationships."),
        ("author", "profile", "“profile” is a relationship: sort by an attribute of it, as profile.id."),
        ("author", "articles.title", "“articles.title”: “articles” is to-many: a sort goes through to-one relationships."),
        ("author", "profile.mott", "“profile.mott”: There is no attribute “mott” in profile to sort by. Did you mean “motto”? There are: id, motto."),
        ("author", "born.x", "“born.x”: “born” is no relationship of author: a path goes through to-one relationships."),
        ("article", "author_id.born", "“author_id.born”: “author_id” is no relationship of article: a path goes through to-one relationships."),
        ("rule", "unsortable", f"There is no attribute “unsortable” in rule to sort by. Did you mean “uncreatable”? There are: {RULE_FIELDS}, unfilterable, unmatchable."),
        ("rule", "unreadable", f"There is no attribute “unreadable” in rule to sort by. Did you mean “uncreatable”? There are: {RULE_FIELDS}, unfilterable, unmatchable."),
        ("sample", "tree", "“tree” holds JSON, which has no order. Sort by a value inside: tree.name."),
        ("sample", "tree.", "“tree.” holds an empty name."),
        ("sample", "-plain_json", "“plain_json” holds JSON, which has no order."),
    ],
)  # fmt: skip
def test_sort_refused(type_name: str, sort: str, detail: str) -> None:
    with refused() as told:
        read_collection(type_name, f"sort={sort}")
    assert told == [(SortError, "sort", detail)]


@pytest.mark.parametrize(
    ("type_name", "include", "detail"),
    [
        ("author", "article", "author has no relationship “article”. Did you mean “articles”? There are: articles, edited, profile, desk."),
        ("author", "born", "author has no relationship “born”. There are: articles, edited, profile, desk."),
        ("author", "articles.tag", "article has no relationship “tag”. Did you mean “tags”? There are: author, editor, tags."),
        ("author", "articles.tags.articles.author", "“articles.tags.articles.author” goes deeper than 3 relationships."),
        ("undetailed", "node", "undetailed has no relationship “node”. There are: none."),
        ("sample", "x", "sample has no relationship “x”. There are: none."),
    ],
)  # fmt: skip
def test_include_refused(type_name: str, include: str, detail: str) -> None:
    with refused() as told:
        read_collection(type_name, f"include={include}")
    assert told == [(IncludeError, "include", f"Include parameter is invalid: {detail}")]


def test_include_depth_by_settings() -> None:
    read_collection("author", "include=articles.tags.articles")
    read_collection("author", "include=articles", limits=limits(max_include_depth=1))
    with refused() as told:
        read_collection("author", "include=articles.tags", limits=limits(max_include_depth=1))
    detail = "Include parameter is invalid: “articles.tags” goes deeper than 1 relationships."
    assert told == [(IncludeError, "include", detail)]


@pytest.mark.parametrize(
    ("include", "most", "leads_over"),
    [
        ("articles,edited,desk", 3, 3),
        ("articles,edited,desk", 2, 3),
        # A common part of several paths counts once, and the relationships on the way count, too.
        ("articles.tags.articles,articles.tags,articles", 3, 3),
        ("articles.tags.articles,articles.author", 3, 4),
        ("articles.author.articles,edited.author.articles", 5, 6),
    ],
)
def test_the_limit_of_includes(include: str, most: int, leads_over: int) -> None:
    query = f"include={include}"
    if leads_over <= most:
        read_collection("author", query, limits=limits(max_includes=most))
        return
    with refused() as told:
        read_collection("author", query, limits=limits(max_includes=most))
    detail = f"it leads over {leads_over} relationships, and at most {most} are allowed: include less."
    assert told == [(IncludeError, "include", f"Include parameter is invalid: {detail}")]


def tree(node: Any) -> dict[str, Any]:
    return {branch.relationship.name: tree(branch.node) for branch in node.branches}


@pytest.mark.parametrize(
    ("include", "branches"),
    [
        ("", {}),
        ("articles", {"articles": {}}),
        ("articles,articles", {"articles": {}}),
        # in declared order, each path once
        ("desk,articles.tags,articles.author,articles", {"articles": {"author": {}, "tags": {}}, "desk": {}}),
        ("articles.author.articles", {"articles": {"author": {"articles": {}}}}),
    ],
)
def test_include_tree(include: str, branches: dict[str, Any]) -> None:
    plan = read_collection("author", f"include={include}").plan
    assert (tree(plan.node), plan.has_included) == (branches, True)


def test_without_include_there_is_no_included() -> None:
    plan = read_collection("author").plan
    assert (plan.node.branches, plan.has_included) == ((), False)


def test_a_fieldset_applies_to_every_node_of_its_type() -> None:
    plan = read_collection(
        "article", "include=author.articles,tags&fields[article]=tags,title&fields[author]=&fields[tag]=name,name"
    ).plan
    assert plan.node.attributes == (attribute_of(ARTICLE, "title"),)
    assert [relationship.name for relationship in plan.node.relationships] == ["tags"]
    assert [key.columns for key in plan.node.keys] == [("author_id",)]
    author, tags = plan.node.branches
    assert (author.node.attributes, author.node.relationships, author.node.keys) == ((), (), ())
    assert author.node.branches[0].node.attributes == plan.node.attributes
    assert tags.node.attributes == (attribute_of(TAG, "name"),)


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("fields[autor]=x", [("fields[autor]", "There is no resource type “autor”. Did you mean “author”?")]),
        (
            "fields[author]=given-nam,born,id",
            [
                ("fields[author]", "author has no field “given-nam”. Did you mean “given-name”?"),
                ("fields[author]", "author has no field “id”."),
            ],
        ),
        ("fields[rule]=unreadable", [("fields[rule]", "rule has no field “unreadable”. Did you mean “uncreatable”?")]),
        ("fields[rule]=must,", [("fields[rule]", "rule has no field “”.")]),
    ],
)
def test_fields_refused(query: str, told: list[tuple[str, str]]) -> None:
    with refused() as errors:
        read_collection("author", query)
    assert errors == [(FieldsError, parameter, detail) for parameter, detail in told]


def test_faults_of_all_parameters_are_reported_together() -> None:
    query = f"sort=nope,bron&include=nope,born&fields[nope]=x&{one('nope', 'eq', 1)}&filter[born]=x"
    with refused() as told:
        read_collection("author", query)
    assert [(error, parameter) for error, parameter, _ in told] == [
        (FilterError, "filter"),
        (FilterError, "filter[born]"),
        (SortError, "sort"),
        (SortError, "sort"),
        (IncludeError, "include"),
        (IncludeError, "include"),
        (FieldsError, "fields[nope]"),
    ]


def test_a_fault_in_every_branch_of_a_filter_is_reported() -> None:
    filters = [
        {"or": [{"name": "x", "op": "eq", "val": 1}, {"not": {"name": "born", "op": "eq", "val": "y"}}]},
        {"name": "articles.z", "op": "eq", "val": 1},
    ]
    with refused() as told:
        read_collection("author", filter_query(filters))
    places: list[Answered] = [(error, parameter, detail.partition(":")[0]) for error, parameter, detail in told]
    assert places == [
        (FilterError, "filter", "[0].or[0]"),
        (FilterError, "filter", "[0].or[1].not"),
        (FilterError, "filter", "[1]"),
    ]


def test_a_resource_shows_the_linkage_that_was_written() -> None:
    plan = read_resource("node", "include=children", written=("parent", "children")).plan
    assert [(branch.relationship.name, branch.is_included) for branch in plan.node.branches] == [
        ("parent", False),
        ("children", True),
    ]
    assert [key.columns for key in plan.node.keys] == [("parent_id",)]
    assert plan.node.resource is NODE


def test_the_key_of_a_to_one() -> None:
    plan = read_collection("article", f"filter[{quote('author_id')}]=7&sort=author_id").plan
    key = CATALOG.key_of(ARTICLE.relationships[0])  # type: ignore[arg-type]
    (test,) = plan.rows.conditions
    assert isinstance(test, plans.Test)
    assert test.left == ColumnRef("t0", key)
    assert plan.rows.order[0] == OrderKey(ColumnRef("t0", key), False, False)


def test_a_total_is_only_counted_for_pages() -> None:
    found = {
        query: read_collection("tag", query).plan.total
        for query in ("", "page[size]=0", "page[total]=none", "page[total]=estimated")
    }
    assert found == {
        "": "exact",
        "page[size]=0": None,
        "page[total]=none": "none",
        "page[total]=estimated": "estimated",
    }
    planned = read_collection("tag", "page[size]=0", limits=limits(unpaginated=5))
    assert (planned.plan.rows.limit, planned.page_values) == (LIMIT, PageValues(limit=6))


def test_a_sort_joins_at_most_so_many_relationships() -> None:
    """However many keys share them."""
    two = limits(max_filter_depth=2)
    assert len(read_collection("article", "sort=author.born,editor.born,author.id", limits=two).plan.rows.joins) == 2
    with refused() as told:
        read_collection("article", "sort=author.born,editor.born,author.desk.id", limits=two)
    assert told == [(SortError, "sort", "“author.desk.id”: a sort goes over at most 2 relationships.")]
