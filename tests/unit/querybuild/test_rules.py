"""The contexts that rules make of principals: criteria, values, and how long they are kept."""

from __future__ import annotations

import gc
from datetime import UTC, date, datetime
from weakref import ref

import pytest

from querybuild.planning.context import View
from querybuild.planning.row_plan import Logic
from querybuild.planning.rules import Rules
from querybuild.principal import Principal, claim_of
from waterspout import (
    ANYONE,
    DATE,
    NOW,
    SIGNED_IN,
    SUBJECT,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    Allow,
    Attribute,
    Catalog,
    Claim,
    Resource,
    Role,
)

NOTHING = (Logic("or", ()),)
"""Criteria that no row meets."""

TIMES = (Attribute("day", DATE), Attribute("at", TIMESTAMPTZ), Attribute("moment", TIMESTAMP))
OWN = Allow(SIGNED_IN, "read", rows={"name": "owner", "op": "eq", "val": SUBJECT})


def test_a_context_is_kept_only_as_long_as_its_principal() -> None:
    note = Resource("note", "/notes", "notes", (Attribute("owner", TEXT),), access=(OWN,))
    rules = Rules(View(Catalog([note])))
    principal = Principal(subject="ann")
    context = rules.context_of(principal)
    assert (context.values, context.principal) == (("ann",), principal)
    is_kept = ref(principal)
    del principal, context
    gc.collect()
    assert is_kept() is None


def test_only_the_time_is_new_in_each_context() -> None:
    rows = [{"name": name, "op": "le", "val": NOW} for name in ("day", "at", "moment")]
    allow = Allow(ANYONE, "read", rows=[*rows, {"name": "owner", "op": "eq", "val": SUBJECT}])
    attributes = (*TIMES, Attribute("owner", TEXT))
    rules = Rules(View(Catalog([Resource("note", "/notes", "notes", attributes, access=(allow,))])))
    principal = Principal(subject="ann")
    one, other = [rules.context_of(principal) for _ in range(2)]
    assert one.access is other.access
    assert [type(value) for value in one.values] == [date, datetime, datetime, str]
    assert [value.tzinfo for value in one.values[1:3]] == [UTC, None]
    assert other.values[1] > one.values[1]
    assert (one.values[3], other.values[3]) == ("ann", "ann")


ITEMS = [
    # Rules that add up, in the order of their declaration.
    ((Allow(ANYONE, "read"), OWN), None),
    ((OWN,), "owner=ann"),
    ((OWN, Allow(Role("x"), "read")), "owner=ann"),
    ((Allow(Role("x"), "read"),), "nothing, refused"),
    ((Allow(SIGNED_IN, "read", rows={"name": "owner", "op": "eq", "val": Claim("team")}),), "nothing"),
    ((Allow(SIGNED_IN, "update"),), "nothing, refused"),
]


@pytest.mark.parametrize(("access", "expected"), ITEMS)
def test_the_state_of_each_rule(access: tuple[Allow, ...], expected: str | None) -> None:
    note = Resource("note", "/notes", "notes", (Attribute("owner", TEXT),), access=access)
    found = Rules(View(Catalog([note]))).context_of(Principal(subject="ann")).access
    criteria = found.read.get("note")
    is_refused = ("note", "read") in found.refused
    if expected is None:
        assert (criteria, is_refused) == (None, False)
    elif expected.startswith("nothing"):
        assert (criteria, is_refused) == (NOTHING, expected.endswith("refused"))
    else:
        assert criteria is not None
        assert (len(criteria), is_refused) == (1, False)


OF_TEAM = {"name": "owner", "op": "eq", "val": Claim("team")}


@pytest.mark.parametrize(
    ("rule", "is_refused"),
    [
        (Allow(SIGNED_IN, "create", assign={"owner": Claim("team")}), True),
        (Allow(SIGNED_IN, "create", rows=OF_TEAM), True),
        (Allow(SIGNED_IN, "create", rows=OF_TEAM, check={"name": "owner", "op": "eq", "val": SUBJECT}), False),
        (Allow(SIGNED_IN, "create", rows=OF_TEAM, assign={"owner": SUBJECT}), True),
        (Allow(SIGNED_IN, "create", assign={"owner": SUBJECT}), False),
    ],
)
def test_a_rule_whose_claim_is_missing_allows_no_creation(rule: Allow, is_refused: bool) -> None:
    """So no statement is sent, and no constraint of the table answers first."""
    note = Resource("note", "/notes", "notes", (Attribute("owner", TEXT),), access=(rule,))
    found = Rules(View(Catalog([note]))).context_of(Principal(subject="ann")).access
    assert (("note", "create") in found.refused) == is_refused


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a", {"b": 1, "c.d": 2}),
        ("a.b", 1),
        ("a.c.d", 2),
        ("https://example.org/claims", ["x"]),
        ("https://example.org/claims.x", None),
        ("e.f.g", 3),
        ("e.f", {"g": 3}),
        ("z", None),
        ("", None),
        (".", None),
        ("a.", None),
        (".a", None),
        ("n.x", None),
    ],
)
def test_the_path_of_a_claim(path: str, expected: object) -> None:
    claims = {"a": {"b": 1, "c.d": 2}, "https://example.org/claims": ["x"], "e.f": {"g": 3}, "e": {"f": {"h": 4}}}
    assert claim_of(claims | {"n": None}, path) == expected


def test_a_value_that_cannot_be_set_allows_no_creation() -> None:
    allow = Allow(SIGNED_IN, "all", rows={"name": "owner", "op": "ne", "val": ""}, assign={"owner": Claim("team")})
    rules = Rules(View(Catalog([Resource("note", "/notes", "notes", (Attribute("owner", TEXT),), access=(allow,))])))
    without = rules.context_of(Principal(subject="ann"))
    having = rules.context_of(Principal(subject="ann", claims={"team": "red"}))
    assert (without.access.check_create["note"], without.access.assigned) == (NOTHING, {})
    assert without.access.check_update == having.access.check_update == having.access.update
    [field] = having.access.assigned["note"]
    assert (field.name, having.values[field.index], field.is_fixed) == ("owner", "red", True)


def test_views_differ_only_where_rights_do() -> None:
    attributes = (
        Attribute("grade", TEXT, write_by=Role("hr")),
        Attribute("code", TEXT, required_on_update=True, write_by=Role("boss")),
        Attribute("salary", TEXT, read_by=Role("hr"), write_by=Role("hr")),
    )
    rules = Rules(View(Catalog([Resource("staff", "/staff", "staff", attributes)])))

    def view(*roles: str) -> View | None:
        return rules.context_of(Principal(subject="ann", roles=frozenset(roles))).access.view

    assert view("hr", "boss") is None
    assert view() is view("other")
    boss, hr = view("boss"), view("hr")
    assert boss is not None
    assert hr is not None
    grade, code, salary = boss.catalog.by_type["staff"].attributes
    assert (grade is attributes[0], code is attributes[1], salary.is_hidden) == (True, True, True)
    grade, code, salary = hr.catalog.by_type["staff"].attributes
    assert (grade is attributes[0], code.required_on_update, salary is attributes[2]) == (True, False, True)
