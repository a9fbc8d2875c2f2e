"""The checks of the catalog: each message, and that all of them are reported together."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from querybuild.declarations.types import opaque
from querybuild.planning.row_plan import ColumnRef
from tests.catalog import AUTHOR, CATALOG, COUNTRY, NODE, PROFILE, RESOURCES, attribute_of
from tests.planning import read_collection
from waterspout import (
    BIGINT,
    BOOL,
    DATE,
    INT,
    INTERVAL,
    JSON,
    JSONB,
    NUMERIC,
    OPAQUE,
    RESOURCE_METHODS,
    TEXT,
    TIME,
    Attribute,
    Catalog,
    CatalogError,
    Function,
    Hooks,
    Id,
    JsonPath,
    Link,
    Operator,
    Resource,
    Template,
    ToMany,
    ToOne,
    array,
    enum,
)


def thing(**changed: Any) -> Resource:
    return Resource(**({"type": "thing", "path": "/things", "table": "things"} | changed))


def with_attribute(*arguments: Any, **changed: Any) -> Resource:
    return thing(attributes=(Attribute(*arguments, **changed),))


def with_relationship(relationship: ToOne | ToMany) -> Resource:
    return thing(relationships=(relationship,))


def faults(*resources: Resource) -> list[str]:
    with pytest.raises(CatalogError) as raised:
        Catalog(resources)
    return str(raised.value).splitlines()


CUSTOM = Operator(
    "near", read=lambda value: value, criterion=lambda attribute, column, bound, name: (column == bound, [])
)
NOT_KEPT = "is not a valid name in PostgreSQL: it must have 1 to 63 bytes"


def values(rows: Any) -> list[str]:
    return ["" for _ in rows]


async def later(rows: Any) -> list[str]:
    return values(rows)


CASES: list[tuple[Resource, str]] = [
    # types of arguments
    (thing(schema=5), "`schema` must be str or None, not int"),
    (thing(description=None), "`description` must be str, not NoneType"),
    (thing(id="id"), "`id` must be Id, not str"),
    (thing(methods=["list"]), "`methods` must be a set of str, not list of str"),
    # a forgotten comma
    (thing(attributes=Attribute("a", TEXT)), "`attributes` must be a tuple of Attribute, not Attribute"),
    (thing(relationships=["a", 1]), "`relationships` must be a tuple of ToOne or ToMany, not list of int, str"),
    (thing(id=Id(type="int")), "id: `type` must be ColumnType, not str"),  # type: ignore[arg-type]
    (with_attribute("a", "text"), "attribute “a”: `type` must be ColumnType, not str"),
    (with_attribute(None, TEXT), "attribute “None”: `name` must be str, not NoneType"),
    (with_attribute("a", TEXT, max_length="5"), "attribute “a”: `max_length` must be int or None, not str"),
    (with_attribute("a", TEXT, min_length=True), "attribute “a”: `min_length` must be int or None, not bool"),
    (with_attribute("a", TEXT, sql="b"), "attribute “a”: `sql` must be a function or None, not str"),
    (
        with_attribute("a", TEXT, operators=[1]),
        "attribute “a”: `operators` must be a tuple of Operator, not list of int",
    ),
    (
        with_attribute("a", TEXT, operators=[Operator("b", read=1, criterion=CUSTOM.criterion)]),  # type: ignore[arg-type]
        "attribute “a”: an operator: `read` must be a function, not int",
    ),
    (with_attribute("a", JSONB, paths=["b"]), "attribute “a”: `paths` must be a tuple of JsonPath, not list of str"),
    (
        with_attribute("a", JSONB, paths=[JsonPath("b", "int")]),
        "attribute “a”: a path: `type` must be ColumnType, not str",
    ),  # type: ignore[arg-type]
    (
        with_relationship(ToOne("a", "thing", methods="read")),  # type: ignore[arg-type]
        "relationship “a”: `methods` must be a set of str, not str",
    ),
    (
        with_relationship(ToMany("a", "thing", through=Link("b", "c", 1))),  # type: ignore[arg-type]
        "relationship “a”: `through`: `target` must be str or a tuple of str, not int",
    ),
    # names
    (thing(type=""), "the type is not a JSON:API member name"),
    (thing(type="a b"), "the type is not a JSON:API member name"),
    (thing(type="-a"), "the type is not a JSON:API member name"),
    (thing(type="a_"), "the type is not a JSON:API member name"),
    (thing(type="a.b"), "the type is not a JSON:API member name"),
    (with_attribute("a/b", TEXT), "“a/b” is not a JSON:API member name"),
    (with_attribute("a\n", TEXT), "“a\n” is not a JSON:API member name"),
    (with_attribute("id", TEXT), "no field may be called “id”"),
    (with_attribute("type", TEXT), "no field may be called “type”"),
    (with_relationship(ToOne("id", "thing", column="x")), "no field may be called “id”"),
    (thing(attributes=(Attribute("a", TEXT), Attribute("a", INT))), "the field “a” is declared twice"),
    (
        thing(attributes=(Attribute("a", TEXT),), relationships=(ToOne("a", "thing"),)),
        "the field “a” is declared twice",
    ),
    # identifiers of the database
    (thing(table=""), f"“” {NOT_KEPT}"),
    (thing(table="a\0b"), f"“a\0b” {NOT_KEPT}"),
    (thing(schema="x" * 64), f"“{'x' * 64}” {NOT_KEPT}"),
    (thing(id=Id(column="")), f"“” {NOT_KEPT}"),
    (with_attribute("a", TEXT, column="ß" * 32), f"“{'ß' * 32}” {NOT_KEPT}"),
    (with_relationship(ToOne("a", "thing", column="\0")), f"“\0” {NOT_KEPT}"),
    (with_relationship(ToMany("a", "thing", foreign_key="\0")), f"“\0” {NOT_KEPT}"),
    (with_relationship(ToMany("a", "thing", through=Link("", source="a", target="b"))), f"“” {NOT_KEPT}"),
    # ids and methods
    (
        thing(id=Id(type=TIME)),
        "an id is bigint, bytea, char, citext, date, enum, int, numeric, smallint, text, timestamp, timestamptz, uuid, "
        "not time",
    ),
    (thing(methods=frozenset({"list", "erase"})), "methods are create, delete, detail, list, update, not erase"),
    # paths
    (thing(path="things"), "the path “things” does not begin with /"),
    (thing(path="/"), "the path “/” has a segment that is not of letters, digits, and . _ ~ -"),
    (thing(path="/a//b"), "the path “/a//b” has a segment that is not of letters, digits, and . _ ~ -"),
    (thing(path="/a/"), "the path “/a/” has a segment that is not of letters, digits, and . _ ~ -"),
    (thing(path="/größen"), "the path “/größen” has a segment that is not of letters, digits, and . _ ~ -"),
    (thing(path="/operations"), "the path “/operations” is reserved"),
    (thing(path="/operations/x"), "the path “/operations/x” is reserved"),
]

WHOLE_NUMBERS = "smallint, int, bigint"
INSIDE = (
    f"There are: text, bool, {WHOLE_NUMBERS}, numeric, numeric as a number, float, uuid, date, timestamp, timestamptz"
)
ATTRIBUTES: list[tuple[Attribute, str]] = [
    (Attribute("a", JSON, paths=(JsonPath("b", INT),)), "`paths` are for jsonb, not json"),
    (Attribute("a", JSONB, paths=(JsonPath("b..c", INT),)), "the path “b..c” holds an empty name"),
    (Attribute("a", JSONB, paths=(JsonPath("b", array(INT)),)), f"the path “b” cannot be int[]. {INSIDE}"),
    (Attribute("a", JSONB, paths=(JsonPath("b", INT), JsonPath("b", TEXT))), "the path “b” is declared twice"),
    (Attribute("a", TEXT, required=True, creatable=False), "it is required on create but cannot be written then"),
    (
        Attribute("a", TEXT, required=True, sql=lambda column: Template("now()")),
        "it is required on create but cannot be written then",
    ),
    (Attribute("a", INT, min_length=1), "lengths are for texts and arrays, not int"),
    (Attribute("a", JSONB, max_length=1), "lengths are for texts and arrays, not jsonb"),
    (Attribute("a", DATE, pattern="x"), "patterns are for texts, not date"),
    (Attribute("a", array(TEXT), pattern="x"), "patterns are for texts, not text[]"),
    (Attribute("a", INTERVAL, minimum="PT1H"), "'PT1H' is not a minimum or maximum of interval"),
    (Attribute("a", BOOL, minimum=1), "1 is not a minimum or maximum of bool"),
    (Attribute("a", array(INT), maximum=1), "1 is not a minimum or maximum of int[]"),
    (Attribute("a", NUMERIC, minimum=0.1), "0.1 is not a minimum or maximum of numeric"),
    (Attribute("a", INT, maximum="1"), "'1' is not a minimum or maximum of int"),
    (Attribute("a", TEXT, minimum=True), "True is not a minimum or maximum of text"),
    (Attribute("a", TEXT, min_length=-1), "a length is not negative"),
    (Attribute("a", TEXT, min_length=3, max_length=2), "min_length 3 is above max_length 2: no value fits"),
    (Attribute("a", INT, minimum=3, maximum=2), "minimum 3 is above maximum 2: no value fits"),
    (
        Attribute("a", JSONB, shape="dict"),
        "`shape` must be a type such as dict[str, list[int]], not 'dict' (Type ''dict'' is not supported)",
    ),
    (Attribute("a", TEXT, of=3), "`of` must be a tuple of str, not 3"),  # type: ignore[arg-type]
    (
        Attribute("a", TEXT, sql=lambda: Template("now()")),  # type: ignore[arg-type, misc]
        "`sql` must be a function of the row's columns, and not async",
    ),
    (Attribute("a", TEXT, operators=(CUSTOM, CUSTOM)), "the operator “near” is declared twice"),
    (
        Attribute("a", TEXT, operators=(Operator("any", read=CUSTOM.read, criterion=CUSTOM.criterion),)),
        "`any`, `has` and `count` are operators of relationships",
    ),
]

NOT_COMPUTED = "`compute` must be a function of a list of tuples, and not async"
COMPUTED: list[tuple[Attribute, str]] = [
    (Attribute("b", TEXT, of=("c",), compute=values), "it depends on “c”, which is not declared."),
    (Attribute("b", TEXT, of=("aa",), compute=values), "it depends on “aa”, which is not declared. Did you mean “a”?"),
    (Attribute("b", TEXT, of=("id",), compute=values), "it depends on “id”, which is not declared."),
    (Attribute("b", TEXT, of=("to",), compute=values), "it depends on “to”, which is not declared."),
    (Attribute("b", TEXT, of=("b",), compute=values), "it depends on “b”, which is computed in Python, too"),
    (Attribute("b", TEXT, of=("other",), compute=values), "it depends on “other”, which is computed in Python, too"),
    (Attribute("b", TEXT, of=("a",)), "`of` is only used with `compute`"),
    (
        Attribute("b", TEXT, of=("a",), compute=values, sql=lambda column: Template("now()")),
        "`sql` and `compute` exclude each other",
    ),
    (
        Attribute("b", TEXT, of=("a",), compute=values, required=True),
        "it is required on create but cannot be written then",
    ),
    (Attribute("b", TEXT, of="a", compute=values), '`of` is a text: write it as a tuple, ("a",)'),  # type: ignore[arg-type]
    (Attribute("b", TEXT, of=("a",), compute=later), NOT_COMPUTED),  # type: ignore[arg-type]
    (Attribute("b", TEXT, of=("a",), compute=lambda: []), NOT_COMPUTED),  # type: ignore[arg-type, misc]
    (Attribute("b", TEXT, of=("a",), compute=lambda a, b: []), NOT_COMPUTED),  # type: ignore[arg-type, misc]
    (Attribute("b", TEXT, of=("a",), compute="a"), NOT_COMPUTED),  # type: ignore[arg-type]
]


async def around(writing: Any, items: Any) -> None:
    pass


async def alone(items: Any) -> None:
    pass


def sync(writing: Any, items: Any) -> None:
    pass


class Called:
    async def __call__(self, writing: Any, items: Any) -> None:
        pass

    async def method(self, writing: Any, items: Any) -> None:
        pass


@functools.wraps(around)
def wrapping(*arguments: Any) -> Any:
    return around(*arguments)


HOOKS: list[tuple[dict[str, Any], str]] = [
    ({"before_create": sync}, "before_create must be an async function of (writing, changes)"),
    ({"before_update": alone}, "before_update must be an async function of (writing, changes)"),
    ({"before_delete": "around"}, "before_delete must be an async function of (writing, changes)"),
    ({"after_create": alone}, "after_create must be an async function of (writing, written)"),
    ({"after_update": lambda writing, items: None}, "after_update must be an async function of (writing, written)"),
    ({"after_delete": sync}, "after_delete must be an async function of (writing, written)"),
    ({"after_commit": around}, "after_commit must be an async function of (written)"),
]

READ = frozenset({"read"})

RELATIONSHIPS: list[tuple[ToOne | ToMany, str]] = [
    (
        ToOne("a", "thing", nullable=False, methods=READ),
        "it is required on create, but its `methods` do not allow writing it: add `replace` to them, remove `create` "
        "from those of the resource, or declare required=False if the database sets the key",
    ),
    (
        ToOne("a", "thing", column="id", nullable=False),
        'its column “id” is the id, which no write changes: declare methods=frozenset({"read"})',
    ),
    (
        ToMany("a", "thing", foreign_key="id"),
        'its key “id” is the id of “thing”, which no write changes: declare methods=frozenset({"read"})',
    ),
    (ToOne("relationships", "thing"), "the name is reserved for relationship routes"),
    (ToOne("a", "thing", methods=frozenset({"list"})), "methods are add, read, remove, replace, not list"),
    (ToOne("a", "thang"), "its target “thang” is not declared. Did you mean “thing”?"),
    (ToMany("a", "x", foreign_key="y"), "its target “x” is not declared."),
    (ToOne("a", "thing", column="x", foreign_key="y"), "`column` and `foreign_key` exclude each other"),
    (
        ToOne("a", "thing", columns=("x", "y")),
        "the id of “thing” is “id”: give `columns` a column for each",
    ),
    (
        ToMany("a", "thing", foreign_key=("x", "y")),
        "the id of “thing” is “id”: give `foreign_key` a column for each",
    ),
    (
        ToMany("a", "thing", through=Link("l", source=("a", "b"), target="c")),
        "the id of “thing” is “id”: give `source` a column for each",
    ),
    (ToOne("a", "thing", columns=("x", "x"), references=("b", "c")), "a column is declared twice in `columns`"),
    (
        ToOne("a", "thing", column="x", references=("b", "c")),
        "`references` is “b”, “c”: give `column` a column for each",
    ),
    (
        ToOne("a", "thing", references=()),
        "its `references` names no column: leave it out if the key refers to the id",
    ),
    (
        ToMany("a", "thing", through=Link("l", source="a", target="b"), references="c"),
        "`references` is for keys, and a link table has the ids of both sides",
    ),
    (ToMany("a", "thing"), "a to-many has either `foreign_key` or `through`"),
    (
        ToMany("a", "thing", foreign_key="x", through=Link("l", source="a", target="b")),
        "a to-many has either `foreign_key` or `through`",
    ),
]


@pytest.mark.parametrize(("resource", "fault"), CASES, ids=[fault[:50] for _, fault in CASES])
def test_resource(resource: Resource, fault: str) -> None:
    told = "".join(f"{line}\n" for line in faults(resource))
    assert told == f"resource “{resource.type}”: {fault}\n"


@pytest.mark.parametrize(("attribute", "fault"), ATTRIBUTES)
def test_attribute(attribute: Attribute, fault: str) -> None:
    assert faults(thing(attributes=(attribute,))) == [f"resource “thing”: attribute “a”: {fault}"]


@pytest.mark.parametrize(("attribute", "fault"), COMPUTED)
def test_attribute_computed_in_python(attribute: Attribute, fault: str) -> None:
    other = Attribute("other", TEXT, of=("a",), compute=values)
    found = faults(thing(attributes=(Attribute("a", TEXT), other, attribute), relationships=(ToOne("to", "thing"),)))
    assert found == [f"resource “thing”: attribute “b”: {fault}"]


def test_valid_attributes_computed_in_python() -> None:
    hidden = Attribute("a", TEXT, readable=False)
    in_sql = Attribute("c", TEXT, sql=lambda column: Template("now()"))
    made = Attribute("b", TEXT, of=("a", "c"), compute=values)
    Catalog([thing(attributes=(hidden, in_sql, made, Attribute("d", TEXT, compute=values)))])
    assert not made.is_writable(on_create=True)
    assert not made.is_writable(on_create=False)
    assert (made.is_stored, made.is_filterable, made.is_sortable) == (False, False, False)


@pytest.mark.parametrize(("hooks", "fault"), HOOKS)
def test_hooks(hooks: dict[str, Any], fault: str) -> None:
    assert faults(thing(hooks=Hooks(**hooks))) == [f"resource “thing”: hooks: {fault}"]


def test_invalid_hooks() -> None:
    hooks: Any = {"before_create": around}
    assert faults(thing(hooks=hooks)) == ["resource “thing”: hooks must be a Hooks(...), not dict"]


@pytest.mark.parametrize("hook", [around, Called(), Called().method, functools.partial(around), wrapping])
def test_valid_hooks(hook: Any) -> None:
    """Functions, methods, objects, and the results of functools."""
    Catalog([thing(hooks=Hooks(before_create=hook, after_update=hook, after_commit=alone))])


def test_an_invalid_pattern() -> None:
    (told,) = faults(with_attribute("a", TEXT, pattern="("))
    assert told.startswith("resource “thing”: attribute “a”: the pattern is not a valid regular expression: ")


@pytest.mark.parametrize(("relationship", "fault"), RELATIONSHIPS)
def test_relationship(relationship: ToOne | ToMany, fault: str) -> None:
    where = f"resource “thing”: relationship “{relationship.name}”: "
    assert faults(with_relationship(relationship)) == [where + fault]


@pytest.mark.parametrize(
    ("relationship", "methods"),
    [
        (ToOne("a", "thing", nullable=False, methods=READ), {"list", "detail", "update", "delete"}),
        (ToOne("a", "thing", nullable=False, required=False, methods=READ), RESOURCE_METHODS),
        (ToOne("a", "thing", column="id", nullable=False, required=False, methods=READ), RESOURCE_METHODS),
        (ToOne("a", "thing", column="id", nullable=False), {"list", "detail", "delete"}),
        (ToMany("a", "thing", foreign_key="id", methods=READ), RESOURCE_METHODS),
        (ToMany("a", "thing", foreign_key="id"), {"list", "detail", "delete"}),
    ],
)
def test_relationships_that_need_not_be_written(relationship: ToOne | ToMany, methods: set[str]) -> None:
    Catalog([thing(relationships=(relationship,), methods=frozenset(methods))])


@pytest.mark.parametrize(
    ("resources", "fault"),
    [
        (thing(), "a Catalog takes a list of Resource, not Resource"),
        (3, "a Catalog takes a list of Resource, not int"),
        ("things", "a Catalog takes a list of Resource, not str"),
    ],
)
def test_a_catalog_of_something_else(resources: Any, fault: str) -> None:
    with pytest.raises(CatalogError) as raised:
        Catalog(resources)
    assert str(raised.value) == fault


def test_arguments_of_wrong_types_are_reported_with_all_other_faults() -> None:
    wrong: Any = with_attribute("a", TEXT, min_length="3")
    told = faults(wrong, thing(type="other", path="x", relationships=(ToOne("b", "thing"),)))
    assert told == [
        "resource “thing”: attribute “a”: `min_length` must be int or None, not str",
        "resource “other”: the path “x” does not begin with /",
    ]


@pytest.mark.parametrize("made", [lambda: enum(), lambda: enum(1), lambda: array(str), lambda: array(array(TEXT))])
def test_invalid_attribute_types(made: Any) -> None:
    with pytest.raises(TypeError, match=r"^(enum takes its texts|array takes the type of its elements), such as "):
        made()


def test_resources_against_each_other() -> None:
    assert faults() == ["the catalog declares no resource"]
    assert faults(thing(), thing(path="/others")) == ["the type “thing” is declared twice"]
    assert faults(thing(), thing(type="other")) == ["the path “/things” is declared twice"]
    assert faults(thing(), thing(type="other", path="/things/x")) == [
        "resource “thing”: its path “/things” is a prefix of “/things/x”"
    ]
    Catalog([thing(), thing(type="other", path="/things-x")])


def test_paths_below_each_other() -> None:
    """Each is reported with each path below it, whatever their order. One that is declared twice has its own fault."""
    paths = ("/a/b/c", "/a/b", "/a", "/ab", "/a/c", "/a/bc")
    found = faults(*[thing(type=f"t{number}", path=path) for number, path in enumerate(paths)])
    assert found == [
        "resource “t1”: its path “/a/b” is a prefix of “/a/b/c”",
        "resource “t2”: its path “/a” is a prefix of “/a/b/c”",
        "resource “t2”: its path “/a” is a prefix of “/a/b”",
        "resource “t2”: its path “/a” is a prefix of “/a/c”",
        "resource “t2”: its path “/a” is a prefix of “/a/bc”",
    ]


def test_a_chain_of_references_that_is_longer_than_the_stack_of_python() -> None:
    count = 1500
    chain = [
        thing(type=f"t{number}", path=f"/t{number}", relationships=(ToOne("next", f"t{number + 1}"),))
        for number in range(count)
    ]
    catalog = Catalog([*chain, thing(type=f"t{count}")])
    assert [catalog.lock_rank(one) for one in catalog] == list(range(count, -1, -1))


def test_a_catalog_with_other_resources_keeps_its_functions() -> None:
    function = Function("ask", "/ask")
    declared = Catalog([with_attribute("a", OPAQUE), function])
    made = declared.with_resources([with_attribute("a", opaque("point"))])
    assert made.functions_by_path == {"/ask": function}
    assert [one.type.name for one in made.by_type["thing"].attributes] == [opaque("point").name]
    assert declared.with_resources(declared.resources) is declared
    assert declared.with_resources(declared.resources, []).functions == ()
    assert declared.functions == (function,)


def test_faults_are_reported_together_and_name_the_declaration() -> None:
    told = faults(
        thing(attributes=(Attribute("a", INT, pattern="("), Attribute("id", TEXT))),
        thing(type="other", path="x", relationships=(ToOne("b", "nothing"), ToMany("c", "thing"))),
    )
    assert [line.rpartition(": ")[0] for line in told] == [
        "resource “thing”",
        "resource “thing”: attribute “a”",
        "resource “thing”: attribute “a”: the pattern is not a valid regular expression",
        "resource “other”: relationship “b”",
        "resource “other”: relationship “c”",
        "resource “other”",
    ]


def test_valid_names() -> None:
    names = ("a", "A1", "größe", "a-b_c", "日本")
    Catalog([thing(attributes=tuple(Attribute(name, TEXT) for name in names))])


def test_lookups() -> None:
    assert tuple(CATALOG) == RESOURCES
    assert CATALOG.by_type["node"] is NODE
    assert CATALOG.by_path["/office/desks"] is CATALOG.by_type["desk"]
    assert CATALOG.id_of(AUTHOR).column_name == "author_no"
    author = PROFILE.relationship("author")
    assert isinstance(author, ToOne)
    assert (CATALOG.key_of(author).column_name, CATALOG.key_of(author).nullable) == ("author_no", False)
    assert author.is_required
    assert COUNTRY.id_type is TEXT.id_type


@pytest.mark.parametrize(
    ("type_name", "relationship", "is_detachable"),
    [
        ("profile", "author", False),
        ("desk", "author", True),
        ("author", "profile", False),
        ("author", "desk", True),
        ("author", "articles", False),
        ("author", "edited", True),
        ("article", "tags", True),
        ("node", "children", True),
    ],
)
def test_whether_a_link_can_be_removed(type_name: str, relationship: str, is_detachable: bool) -> None:
    found = CATALOG.by_type[type_name].relationship(relationship)
    assert found is not None
    assert CATALOG.is_detachable(found) == is_detachable


def test_writable() -> None:
    rule = CATALOG.by_type["rule"]
    names = ("must", "uncreatable", "unupdatable", "unreadable")
    assert [attribute_of(rule, name).is_writable(on_create=True) for name in names] == [True, False, True, True]
    assert [attribute_of(rule, name).is_writable(on_create=False) for name in names] == [True, True, False, True]
    assert not attribute_of(AUTHOR, "full-name").is_writable(on_create=True)
    assert not attribute_of(CATALOG.by_type["sample"], "place").is_writable(on_create=True)


def test_a_declared_attribute_wins_over_the_key_of_its_name() -> None:
    """`<relationship>_id` is the id of the relationship only if no attribute has this name."""
    group_id = Attribute("group_id", TEXT, column="x")
    thing_of_group = thing(attributes=(group_id,), relationships=(ToOne("group", "thing", column="y"),))
    plan = read_collection("thing", "filter[group_id]=a&sort=group_id", catalog=Catalog([thing_of_group])).plan
    assert [condition.left for condition in plan.rows.conditions] == [ColumnRef("t0", group_id)]  # type: ignore[union-attr]
    assert plan.rows.order[0].column == ColumnRef("t0", group_id)


def test_ids() -> None:
    types = (BIGINT, INT, TEXT, enum("7"))
    assert [thing(id=Id(type=one)).id_type.read("7") for one in types] == [7, 7, "7", "7"]


PAIR = ("x", "y")
IDS: list[tuple[Id, tuple[ToOne | ToMany, ...], str]] = [
    (Id(columns=("x",)), (), "an id of one column is declared with `column`, not with `columns`"),
    (Id(columns=PAIR, types=(TEXT,)), (), "its 2 `columns` have 1 `types`"),
    (Id(columns=("x", "x")), (), "a column is declared twice in its id"),
    (
        Id(columns=PAIR),
        (ToMany("a", "thing", foreign_key=("x", "z")),),
        "relationship “a”: its key “x” is part of the id of “thing”, which no write changes: declare "
        'methods=frozenset({"read", "add"}), or only "read"',
    ),
    (
        Id(columns=PAIR),
        (ToOne("a", "thing", column="x", references="code"),),
        "relationship “a”: its key is part of the id, and refers to other columns than an id: declare "
        'methods=frozenset({"read"})',
    ),
]


@pytest.mark.parametrize(("declared", "relationships", "fault"), IDS, ids=[fault[:50] for *_, fault in IDS])
def test_ids_of_several_columns(declared: Id, relationships: tuple[ToOne | ToMany, ...], fault: str) -> None:
    told = faults(Resource("thing", "/things", "things", relationships=relationships, id=declared))
    assert list(told) == [f"resource “thing”: {fault}"]
