"""Strategies for JSON values that are similar to the values of a type, or very different, and their text. What comes
in: an attribute. What goes out: trees of dicts, lists, scalars, `Token` (a text that is sent unchanged) and `Pairs` (an
object that may have duplicate names)."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from querybuild.declarations.resource import Attribute


class Token(msgspec.Struct, frozen=True):
    """A text that is sent as JSON without a change. It may be invalid."""

    text: str


class Pairs(msgspec.Struct, frozen=True):
    items: tuple[tuple[str, Any], ...]


def dump(tree: Any) -> str:
    if isinstance(tree, Token):
        return tree.text
    if isinstance(tree, dict):
        return dump(Pairs(tuple(tree.items())))
    if isinstance(tree, Pairs):
        return "{" + ",".join(f"{json.dumps(name)}:{dump(value)}" for name, value in tree.items) + "}"
    if isinstance(tree, list):
        return "[" + ",".join(dump(item) for item in tree) + "]"
    return json.dumps(tree)


# values

TEXTS = (
    *(
        "",
        " ",
        "a",
        "null",
        "true",
        "0",
        "-0",
        "1",
        "07",
        "+7",
        "1e400",
        "1e131072",
        "1e-16384",
        "NaN",
        "Infinity",
        ".5",
    ),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775809", "9" * 400, "1" * 5000, "١"),
    *(
        "%",
        "_",
        "\\",
        "%\\",
        "%\\\\",
        "a%\\",
        "(",
        "[",
        "*",
        "a{1000}",
        "a{9}{9}",
        "(?i)a",
        "\\1",
        "(a)\\1",
        "***=a",
        "\\y",
    ),
    *(
        "***",
        "[[:alpha:]]",
        "[z-a]",
        "(?",
        "\\",
        "^*",
        "x" * 201,
        "é",
        "🙂",
        "\x00",
        "\ud800",
        "\udfff",
        "\u2028",
        "\x7f",
    ),
    *("2024-05-31", "0001-01-01", "9999-12-31", "2023-02-29", "-0044-03-15", "10000-01-01", "infinity", "now", "epoch"),
    *("23:59:59", "24:00:00", "23:59:60", "23:59:59.9999999", "12:00:00+25:00", "allballs"),
    *("2024-05-31T23:59:59Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2024-05-31T23:59:60Z", "2024-05-31"),
    *(
        "0001-01-02T00:00:00+14:00",
        "9999-12-30T23:59:59-14:00",
        "2024-05-31T23:59:59.999999999Z",
        "2024-05-31T12:00:00",
    ),
    *("P1Y2M3DT4H5M6S", "P999999999Y", "-P1D", "P-1Y", "PT-0.000001S", "P999999999M", "P1W", "PT999999999H", "P", "PT"),
    *("P178956970Y", "P178956971Y", "P999999999W", "PT2562047788H", "PT999999999.999999S", "PT0.5S", "P1Y-1M"),
    *("123e4567-e89b-12d3-a456-426614174000", "123E4567-E89B-12D3-A456-426614174000", "-" * 36, "0" * 36),
    *(
        "{123e4567-e89b-12d3-a456-426614174}",
        "AA==",
        "AA=",
        "A",
        "____",
        "active",
        "happy",
        "red",
        "three",
        "{}",
        "[1]",
    ),
    *("$1", "'; --", '"', "{a}", "%s", "{0}", "group.name", "password_hash", "relationships", "~", "/", "~1~0"),
)
TOKENS = (
    *(
        "NaN",
        "Infinity",
        "-Infinity",
        "1e400",
        "-1e400",
        "1e-400",
        "1e131072",
        "1e200000",
        "1e999999999999",
        "-0",
        "-0.0",
    ),
    *(
        "01",
        "1.",
        ".1",
        "+1",
        "0x1",
        "'a'",
        "tru",
        "undefined",
        "",
        "/**/1",
        '"',
        '"\\u0000"',
        '"\\ud800"',
        '"\\x"',
        "[1,]",
    ),
    *("9" * 100, "9" * 5000, "1." + "1" * 400, "1e10", "100000000000000000000", "1.0", "3.5", "2147483648", "-32769"),
    *("[" * 70 + "]" * 70, '{"a":' * 70 + "1" + "}" * 70, "[" * 3000, "[" * 3000 + "]" * 3000, "\ufeff1", "\t1\n"),
    *(
        '{"a":1,"a":2}',
        "{1:2}",
        "[[[]]]",
        "[null]",
        "[[1],[2,3]]",
        '{"":{"":[]}}',
        "18446744073709551616",
        "[1e400,99999999999999999999]",
    ),
)

texts = st.one_of(st.sampled_from(TEXTS), st.text(max_size=6), st.text("aA%_\\([{^$.|?*+-]})0,'\" é🙂\n", max_size=8))
numbers = st.one_of(
    st.integers(-3, 30),
    st.integers(),
    st.sampled_from((2**15, 2**31, 2**63, -(2**63) - 1, 2**64, 10**30)),
    st.floats(allow_nan=False, allow_infinity=False),
)
scalars = st.one_of(texts, numbers, st.booleans(), st.none(), st.sampled_from(TOKENS).map(Token))
trees = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=2)),
    max_leaves=5,
)

NEAR: dict[str, tuple[Any, ...]] = {
    "bool": (True, False, "true"),
    "number": (
        0,
        1,
        -1,
        2**31 - 1,
        2**31,
        2**63 - 1,
        2**15,
        "1.5",
        Token("1.5"),
        Token("1e308"),
        Token("1e39"),
        "1e131071",
    ),
    "text": TEXTS,
    "uuid": tuple(text for text in TEXTS if len(text) == 36),
    "date": tuple(text for text in TEXTS if "-" in text),
    "time": tuple(text for text in TEXTS if ":" in text),
    "interval": tuple(text for text in TEXTS if "P" in text),
    "inet": ("10.0.0.1", "10.0.0.0/8", "::1", "10.0.0.1.1", "", 1),
    "daterange": (
        "[2024-06-01,2024-06-08)",
        "empty",
        "(,)",
        "[2024-06-08,2024-06-01)",
        "[2024-06-31,)",
        "[",
        "2024-06-01",
    ),
    "point": ("(1,2)", "1,2", "(1e400,0)", "(NaN,Infinity)", "(1", "(2,2),(0,0)"),
    "origin": (
        {"name": "a", "since": "2024-05-31"},
        {},
        {"name": None},
        {"name": 1},
        {"town": "a"},
        {"name": "a\x00"},
        [],
    ),
    "bytea": ("", "AA==", "AAE=", "A" * 400),
    "json": ({}, [], None, {"a": [1]}, "a", 1, Token("1e400"), Token("99999999999999999999"), Token('{"a":1e200000}')),
}


def near(attribute: Attribute) -> SearchStrategy[Any]:
    """Return a strategy for values that the attribute's type might accept."""
    column_type = attribute.type.element or attribute.type
    family = column_type.family.replace("jsonb", "json")
    choices = (*NEAR.get(family, TEXTS), *column_type.choices)
    one = st.sampled_from(choices)
    return st.one_of(st.lists(one, max_size=3), one) if attribute.type.element is not None else one
