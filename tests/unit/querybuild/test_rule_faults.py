"""What is wrong with rules and field rights is found at the start, and the message names the rule."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from querybuild.planning.context import View
from querybuild.planning.rules import read_rules
from waterspout import (
    ANYONE,
    DATE,
    INT,
    NOW,
    NUMERIC,
    OPAQUE,
    SIGNED_IN,
    SUBJECT,
    TEXT,
    TIMESTAMPTZ,
    Allow,
    Attribute,
    Catalog,
    CatalogError,
    Claim,
    Link,
    Resource,
    Role,
    Scope,
    ToMany,
    ToOne,
    array,
)

ATTRIBUTES = (
    Attribute("title", TEXT),
    Attribute("age", INT, nullable=True),
    Attribute("price", NUMERIC, nullable=True),
    Attribute("day", DATE, nullable=True),
    Attribute("at", TIMESTAMPTZ, nullable=True),
    Attribute("key", INT, nullable=True, column="user_id"),
    Attribute("tags", array(TEXT), nullable=True),
    Attribute("place", OPAQUE, nullable=True),
    Attribute("hidden", TEXT, nullable=True, readable=False, creatable=False, updatable=False),
    Attribute("length", INT, of=("title",), compute=lambda rows: [len(title) for (title,) in rows]),
)
RELATIONSHIPS = (ToOne("user", "user", filterable=False), ToOne("shelf", "user", foreign_key="post_id"))
USER = Resource("user", "/users", "users", relationships=(ToMany("posts", "post", foreign_key="user_id"),))


def refusal(*access: Any, **post: Any) -> list[str]:
    """Return the lines of the error of the resource `post` with these rules."""
    declared = {"attributes": ATTRIBUTES, "relationships": RELATIONSHIPS, "access": access} | post
    with pytest.raises(CatalogError) as caught:
        read_rules(View(Catalog([Resource("post", "/posts", "posts", **declared), USER])))
    return [line.removeprefix("resource “post”: ") for line in str(caught.value).splitlines()]


def compare(name: str, op: str, val: Any) -> dict[str, Any]:
    return {"name": name, "op": op, "val": val}


KNOWN = "read, create, update, delete, all"
FOR = "ANYONE, SIGNED_IN, Role(...), Scope(...), or a function of the principal that is not async"


async def later(principal: Any) -> bool:
    return True


ONLY_NOW = "a value of its type, and NOW is one of date, timestamp and timestamptz"
WHOLE = "a whole number from -2147483648 to 2147483647"


@pytest.mark.parametrize(
    ("to", "fault"),
    [
        ("editor", f"it must be for {FOR}, not 'editor'"),
        (Role, f"it must be for {FOR}, not Role"),
        (later, f"it must be for {FOR}, not later"),
        (lambda: True, f"it must be for {FOR}, not <lambda>"),
        (None, f"it must be for {FOR}, not None"),
        (Role(""), "a role or a scope is a text, not ''"),
        (Scope(["a"]), "a role or a scope is a text, not ['a']"),  # type: ignore[arg-type]
    ],
)
def test_audiences(to: Any, fault: str) -> None:
    assert refusal(Allow(SIGNED_IN, "read"), Allow(to, "read")) == [f"rule 2: {fault}"]
    attributes = (Attribute("title", TEXT, read_by=to, write_by=(SIGNED_IN, to)),)
    rights = [f"attribute “title”: `{name}`: {fault}" for name in ("read_by", "write_by")]
    assert refusal(attributes=attributes) == rights


@pytest.mark.parametrize(
    ("actions", "given", "fault"),
    [
        ((), {}, f"it allows nothing: name some of {KNOWN}"),
        (("red",), {}, f"'red' is not an action. Did you mean “read”? There are: {KNOWN}"),
        ((1,), {}, f"1 is not an action. There are: {KNOWN}"),
        (
            ("list", "update"),
            {},
            f"'list' is not an action. It is a method of a resource; the action for it is “read”. There are: {KNOWN}",
        ),
        (
            (["read", "update"],),
            {},
            "['read', 'update'] is not an action. Name them one by one, as in Allow(..., \"read\", \"update\"). "
            f"There are: {KNOWN}",
        ),
        (("read",), {"rows": "title"}, "`rows` must be a filter as Python data, not str"),
        (("read",), {"rows": []}, "`rows` is empty: leave it out for all rows"),
        (
            ("read", "delete"),
            {"check": compare("age", "gt", 1)},
            "`check` is for rows that are written, and it allows neither create nor update",
        ),
        (("update",), {"assign": {"age": 1}}, "`assign` is for create, which it does not allow"),
        (("all",), {"assign": [1]}, "`assign` must be a dict of fields and values, not list"),
        (("all",), {"assign": {"aeg": 1}}, "`assign`: there is no field “aeg”. Did you mean “age”?"),
        (("all",), {"assign": {"length": 1}}, "`assign`: “length” is read-only"),
        (("all",), {"assign": {"shelf": "1"}}, "`assign`: “shelf” has its key in other rows"),
        (("all",), {"assign": {"key": 1, "user": "1"}}, "`assign`: “key” and “user” set the same column"),
        (("all",), {"assign": {"age": "x"}}, f"`assign`: “age” must be {WHOLE}"),
        (("all",), {"assign": {"age": NOW}}, f"`assign`: “age” must be {ONLY_NOW}"),
        (("all",), {"assign": {"age": SUBJECT}}, f"`assign`: “age” must be {WHOLE}, and a subject is a text"),
        (("all",), {"assign": {"title": None}}, "`assign`: “title” must be a value, since it cannot be null"),
        (
            ("all",),
            {"assign": {"user": "x"}},
            "`assign`: “user” must be a whole number without plus sign, blanks or leading zeros",
        ),
    ],
)
def test_arguments(actions: Any, given: Any, fault: str) -> None:
    assert refusal(Allow(ANYONE, *actions, **given)) == [f"rule 1 (anyone): {fault}"]


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        (compare("aeg", "eq", 1), "post has no attribute or relationship “aeg”. Did you mean “age”?"),
        (compare("age", "qe", 1), "There is no operator “qe”. “age” has: eq, ne, "),
        (compare("length", "eq", 1), "post has no attribute or relationship “length”."),
        (compare("age", "eq", "x"), f'the value for “age” must be {WHOLE}, not "x".'),
        (compare("age", "eq", NOW), f"the value for “age” must be {ONLY_NOW}, not NOW."),
        (compare("title", "eq", NOW), f"the value for “title” must be {ONLY_NOW}, not NOW."),
        (
            compare("age", "lt", SUBJECT),
            f"the value for “age” must be {WHOLE}, and a subject is a text, not SUBJECT.",
        ),
        (compare("title", "in_", SUBJECT), "the value for “title” must be a list, not SUBJECT."),
        (
            compare("age", "in_", [Claim("a"), "x"]),
            f"the value for “age” must be a list of values, each {WHOLE}, not [Claim(path='a'), 'x'].",
        ),
        (
            compare("age", "between", [Claim("a")]),
            "the value for “age” must be a list of two, the lowest and the highest, not [Claim(path='a')].",
        ),
        ([compare("age", "eq", 1), {"or": {}}], "or: `or` takes a list of filters"),
        ({"name": "age", "op": "eq", "value": 1}, "“value” is not a member of a filter object. Did you mean “val”?"),
        (compare("title", "match", SUBJECT), "the value for “title” must be a constant, because only PostgreSQL"),
        (compare("place", "eq", SUBJECT), "the value for “place” must be a constant, because only PostgreSQL"),
        (compare("user.nam", "eq", 1), "user has no attribute or relationship “nam”."),
    ],
)
def test_filters(rows: Any, fault: str) -> None:
    """They are read by the readers of the query language."""
    for name, actions in (("rows", ("read",)), ("check", ("update",))):
        first, *_ = refusal(Allow(Role("x"), "read"), Allow(ANYONE, *actions, **{name: rows}))
        assert first.startswith(f"rule 2 (anyone): `{name}`: "), first
        assert fault in first


@pytest.mark.parametrize("val", [{1}, object(), float("nan"), "\0", Claim, Claim(1), Claim(""), [b"x"]])  # type: ignore[arg-type]
def test_values_that_no_json_has(val: Any) -> None:
    [fault] = refusal(Allow(ANYONE, "read", rows=compare("title", "eq", val)))
    assert fault.startswith("rule 1 (anyone): `rows` must be JSON"), fault


def test_a_filter_that_contains_itself() -> None:
    rows: dict[str, Any] = compare("title", "eq", 1)
    rows["val"] = rows
    [fault] = refusal(Allow(ANYONE, "read", rows=rows))
    assert fault == "rule 1 (anyone): `rows` must be nested at most 64 deep"


def test_filters_may_use_what_requests_may_not() -> None:
    rows = [
        compare("hidden", "eq", SUBJECT),
        compare("user.id", "eq", SUBJECT),
        compare("day", "le", NOW),
        compare("at", "between", [NOW, Claim("until")]),
        compare("tags", "in_", SUBJECT),
        compare("age", "in_", [Claim("a"), 2]),
        compare("price", "lt", 1.5),
    ]
    post = Resource("post", "/posts", "posts", ATTRIBUTES, RELATIONSHIPS, access=(Allow(ANYONE, "all", rows=rows),))
    read_rules(View(Catalog([post, USER])))


def test_all_faults_are_reported_together() -> None:
    wrong = compare("aeg", "eq", 1)
    found = refusal(Allow(ANYONE, "read", rows=wrong), Allow(SIGNED_IN, "all", rows=wrong, assign={"age": "x"}))
    assert [fault.partition(": ")[0] for fault in found] == [
        "rule 1 (anyone)",
        "rule 2 (signed in)",
        "rule 2 (signed in)",
    ]


REQUIRED = Attribute("title", TEXT, required=True, write_by=Role("editor"))


@pytest.mark.parametrize(
    ("field", "access", "fault"),
    [
        (REQUIRED, (), "it is required, and not everybody who may create may write it"),
        (
            REQUIRED,
            (Allow(Role("editor"), "create"), Allow(SIGNED_IN, "all")),
            "it is required, and not everybody who may create by rule 2 may write it",
        ),
        (
            Attribute("title", TEXT, readable=False, read_by=SIGNED_IN),
            (),
            "`read_by` is for attributes that are readable",
        ),
        (
            Attribute("title", TEXT, creatable=False, updatable=False, write_by=SIGNED_IN),
            (),
            "`write_by` is for attributes that can be written",
        ),
        (Attribute("title", TEXT, read_by=()), (), "`read_by` is for nobody: declare what nobody may do without rules"),
        (
            ToOne("title", "user", nullable=False, read_by=SIGNED_IN),
            (Allow(ANYONE, "create"),),
            "it is required, and not everybody who may create by rule 1 may write it",
        ),
        (
            ToMany("title", "user", foreign_key="post_id", methods=frozenset({"read"}), write_by=SIGNED_IN),
            (),
            "`write_by` is for relationships that can be written",
        ),
    ],
)
def test_rights_of_fields(field: Any, access: Any, fault: str) -> None:
    kind = "attribute" if isinstance(field, Attribute) else "relationship"
    given = {"attributes": (field,), "relationships": ()} if kind == "attribute" else {"relationships": (field,)}
    given = given if kind == "attribute" else {"attributes": (), **given}
    assert refusal(*access, **given) == [f"{kind} “title”: {fault}"]


@pytest.mark.parametrize(
    ("write_by", "access"),
    [
        (ANYONE, ()),
        (SIGNED_IN, (Allow(Role("x"), "create"), Allow(Scope("y"), "all"), Allow(ANYONE, "read", "update"))),
        ((Role("x"), Scope("y")), (Allow(Role("x"), "create"), Allow(Scope("y"), "all"))),
        (later, ()),
    ],
)
def test_a_required_field_that_every_creator_may_write(write_by: Any, access: Any) -> None:
    attributes = (msgspec.structs.replace(REQUIRED, write_by=ANYONE if write_by is later else write_by),)
    read_rules(View(Catalog([Resource("post", "/posts", "posts", attributes, access=access)])))


def test_a_required_field_that_a_rule_assigns() -> None:
    access = (Allow(SIGNED_IN, "create", assign={"title": SUBJECT}),)
    read_rules(View(Catalog([Resource("post", "/posts", "posts", (REQUIRED,), access=access)])))


def test_a_key_to_rows_that_rules_may_hide() -> None:
    """An attribute over its column would show and set it, and of two to-ones over one column only one would be
    hidden."""
    user = Resource("user", "/users", "users", access=(Allow(SIGNED_IN, "read"),))
    group = Resource("group", "/groups", "groups", relationships=(ToMany("posts", "post", foreign_key="group_id"),))
    attributes = (Attribute("user_id", INT), Attribute("group_id", INT), Attribute("id_again", INT, column="id"))
    relationships = (ToOne("user", "user"), ToOne("reader", "user", column="user_id"))
    post = Resource("post", "/posts", "posts", attributes, (*relationships, ToOne("group", "group", column="user_id")))
    with pytest.raises(CatalogError) as caught:
        Catalog([post, user, group])
    assert str(caught.value).splitlines() == [
        "resource “post”: relationship “group”: its column refers to “user” and “group”, and rules of one would not "
        "hold",
        "resource “post”: attribute “user_id”: its column is a key to “user”, whose rows rules may hide: leave the "
        "attribute out, or declare it neither readable nor writable",
    ]


def test_a_key_of_a_link_table_that_is_a_resource_itself() -> None:
    read = (Allow(SIGNED_IN, "read"),)
    reader = ToMany("readers", "user", through=Link("readers", "post_id", "user_id"))
    post = Resource("post", "/posts", "posts", relationships=(reader,), access=read)
    attributes = (
        Attribute("user_id", INT),
        Attribute("post_id", INT, readable=False, creatable=False, updatable=False),
    )
    with pytest.raises(CatalogError, match="attribute “user_id”: its column is a key to “user”"):
        Catalog(
            [post, Resource("user", "/users", "users", access=read), Resource("row", "/rows", "readers", attributes)]
        )
