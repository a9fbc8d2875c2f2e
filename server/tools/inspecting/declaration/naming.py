"""Makes the names of the API from the names of the database: singular types, plural paths, snake_case fields.

What comes in: names of tables and columns. What goes out: member names of JSON:API, paths, and names of Python
constants. It must not know: tables, files.
"""

from __future__ import annotations

import keyword
import re
import unicodedata
from collections.abc import Iterable
from functools import cache

from pluralizer import Pluralizer

RESERVED_FIELDS = frozenset({"id", "type", "links", "relationships"})
"""Names that JSON:API reserves in a resource object."""
_RESERVED_PATHS = frozenset({"operations"})

_PLAIN = re.compile(r"[a-z0-9](?:[a-z0-9_-]*[a-z0-9])?")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

_IRREGULAR = (
    ("cache", "caches"),
    ("hierarchy", "hierarchies"),
    ("lens", "lenses"),
    ("schema", "schemas"),
    ("basis", "bases"),
    ("axis", "axes"),
    ("specimen", "specimens"),
    ("virus", "viruses"),
    ("focus", "focuses"),
)
_SAME = ("data", "metadata", "sms", "species", "staff", "media", "pos", "dns", "gps", "tls", "sos")
"""Words that pluralizer 2.0 does not know, or treats in another way than most people who name tables."""

_SHORT_NOUN = re.compile(r"(?:^|_)(?:cd|db|id|ip|pc|tv|vm)$")
"""Words of two letters that have a plural. Others, such as `at`, may be any part of a name."""


@cache
def _pluralizer() -> Pluralizer:
    rules = Pluralizer()  # type: ignore[no-untyped-call]
    for single, many in _IRREGULAR:
        rules.add_irregular_rule(single, many)
    for word in _SAME:
        rules.add_uncountable_rule(word)
    return rules


def snake_case(name: str) -> str:
    """Return a member name of JSON:API in snake_case. Empty if the name has no letter and no digit.

    >>> snake_case("OrderID"), snake_case("a.b"), snake_case("Unit Price ($)"), snake_case("order_id")
    ('order_id', 'a_b', 'unit_price', 'order_id')
    """
    if _PLAIN.fullmatch(name):
        return name
    words = [word for part in re.split(r"[^\w-]|_", name) for word in _HUMP.split(part.strip("-"))]
    # Member names have no characters above U+FFFF.
    kept = [
        "".join(letter for letter in word if (letter.isalnum() and letter <= "\uffff") or letter == "-")
        for word in words
    ]
    return "_".join(word.lower() for word in kept if word).strip("_-")


def singular(name: str) -> str:
    """Return the singular of the last word.

    >>> singular("film_categories"), singular("order_status"), singular("people")
    ('film_category', 'order_status', 'person')
    """
    return _with_last(name, _pluralizer().singular)


def plural(name: str) -> str:
    """Return the plural of the last word.

    >>> plural("inventory"), plural("status"), plural("order_detail"), plural("user_ip")
    ('inventories', 'statuses', 'order_details', 'user_ips')
    """
    if _SHORT_NOUN.search(name) is not None:
        return f"{name}s"
    return _with_last(name, _pluralizer().plural)


def _with_last(name: str, change: object) -> str:
    match = re.search(r"[^\W\d_]+$", name)
    if match is None or not match[0].isascii() or len(match[0]) < 3:
        return name
    assert callable(change)
    return name[: match.start()] + str(change(match[0]))


def path_of(name: str) -> str:
    """Return the path of a collection, in ASCII.

    >>> path_of("straßen")
    '/strassen'
    """
    text = ascii_of(name)
    return f"/{text}_" if text in _RESERVED_PATHS else f"/{text}"


def ascii_of(name: str) -> str:
    """Return a name in ASCII letters, digits and `_` or `-`. Other letters become their number."""
    text = unicodedata.normalize("NFKD", name.replace("ß", "ss"))
    letters = (
        letter if letter.isascii() else f"u{ord(letter):x}" for letter in text if not unicodedata.combining(letter)
    )
    return "".join(letters)


def constant_of(name: str, taken: Iterable[str], suffix: str = "_RESOURCE") -> str:
    """Return the name of a Python constant. taken: names that it must not have. suffix: is added to those."""
    text = re.sub(r"\W", "_", name).upper()
    text = text if text.isidentifier() else f"R_{text}"
    while text in taken or keyword.iskeyword(text):
        text += suffix if not text.endswith(suffix) else "_"
    return text


def is_field_name(name: str) -> bool:
    """Return whether a field may have a name."""
    return bool(name) and name not in RESERVED_FIELDS


def first_free(candidates: Iterable[str], taken: Iterable[str]) -> str:
    """Return the first candidate that is not taken; if all are, the last one with a number."""
    used, last = set(taken), ""
    for last in candidates:
        if is_field_name(last) and last not in used:
            return last
    number = 2
    while f"{last}_{number}" in used:
        number += 1
    return f"{last}_{number}"
