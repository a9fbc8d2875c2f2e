"""The contexts that rules make of principals: criteria, values, and how long they are kept."""

from __future__ import annotations

import gc
from datetime import UTC, date, datetime
from weakref import ref

import pytest

from querybuild.planning.context import View
from querybuild.planning.rules import NOTHING, Rules
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
