"""Which regular expressions are too expensive for PostgreSQL to compile: `querybuild/declarations/patterns.py`."""

from __future__ import annotations

import pytest

from querybuild.declarations.patterns import MAX_COST, check_pattern, cost
from querybuild.declarations.values import ValueFault


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("", 0),
        ("abc", 2),
        ("^(Jo|Ju)", 4),
        ("a{3}", 2),
        ("a{0,3}", 2),
        ("a{2,}", 2),
        ("a*", 1),
        ("(a?){3}", 3),
        ("a{255}", 254),
        ("(ab|c)d", 3),
        # A reference is compiled like its group.
        (r"(ab)\1", 3),
        (r"(a{10})(\1{10})", 109),
        # Text that only looks like a repetition.
        (r"a\{0,100}", 7),
        ("[{0,100}]", 0),
        ("[]{0,100}]", 0),
        ("[[:alpha:]{0,9}]", 0),
        (r"[\]{9}]", 0),
        ("a{x}", 3),
        ("(?#({0,100}){0,100})a", 0),
        ("***=(.{0,100}){0,100}", 21),
        ("(?q)(.{0,100}){0,100}", 17),
        (r"\c(b{3}", 3),
        # Repeated edges cost more.
        (r"(\ya)+", 24),
    ],
)
def test_the_cost_of_a_pattern(pattern: str, expected: int) -> None:
    assert cost(pattern) == expected


@pytest.mark.parametrize(
    "pattern",
    [
        "(.{0,100}){0,100}(.{0,100}){0,100}z",
        "((a{0,30}){0,30}){0,30}",
        "(?:(?:.{0,100}){0,100})",
        "((a?){0,30}){0,30}",
        "(.*){255}",
        "(a{1,200}){1,200}",
        "(?i)(.{0,100}){0,100}",
        "***:(.{0,100}){0,100}",
        "***:(?i)(.{0,100}){0,100}",
        "(?=(.{0,100}){0,100})a",
        "(?<!(.{0,100}){0,100})a",
        r"(a{0,100})(\1{0,100})",
        r"(\y){1,20}",
        "(^|a){0,100}",
        "[[:<:]]" * 17,
        # An optional edge.
        r"a?" + r"(\y)?" * 16 + "b?",
        r"(\y)*" * 9,
        r"(\y|a)" * 9,
        r"(?:\ya?)?" * 9,
        r"((\y)*(\y)*(\y)*(\y)*(\y)*){2}",
        "(((^|b*)*($|c*)*)*){8}",
        # After syntax that would hide it from a simpler parser.
        "[]](.{0,100}){0,100}",
        "[^]](.{0,100}){0,100}",
        "[[.].]](.{0,100}){0,100}",
        "[a[b](.{0,100}){0,100}",
        r"\\(.{0,100}){0,100}",
        r"\c\(.{0,100}){0,100}",
        "(?#x)(.{0,100}){0,100}",
        "(?x)( . {0,100} ) {0,100} # z",
        "(?x)[#](.{0,100}){0,100}",
        "(?x)# z\n(.{0,100}){0,100}",
        "(.{0,100}?){0,100}?",
        "(.{0,100}){100,}",
        "a)(.{0,100}){0,100}",
        # Other syntaxes are not supported.
        r"(?b)\(.\{0,100\}\)\{0,100\}",
        r"(?e)[\](.{0,100}){0,100}]",
        "(?qe)(.{0,100}){0,100}",
        "(" * 51 + "a" + ")" * 51,
    ],
)
def test_patterns_that_are_refused(pattern: str) -> None:
    assert cost(pattern) > MAX_COST
    with pytest.raises(ValueFault):
        check_pattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        r"^[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9.-]{1,255}\.[A-Za-z]{2,63}$",
        r"^(\w+\s?){1,10}$",
        r"^\+?[0-9]{1,3}([ -]?[0-9]{2,4}){2,5}$",
        r"^([0-9]{1,3}\.){3}[0-9]{1,3}(/[0-9]{1,2})?$",
        r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$",
        r"\m(Jo|Ju)\w*\M",
        r"(^|,) *(a|b|c) *(,|$)",
        r"^(Jo|Ju)$|^Ann?$|\mMr\M",
        ".{1,255}",
        "^(?!.*secret).*$",
        "(?i)^(mr|mrs|ms|dr)[.]? ",
        "((a*)*b)*",
        "",
        "(",
        "a{",
        "*",
        "\\",
        "[",
    ],
)
def test_common_patterns_are_accepted(pattern: str) -> None:
    """PostgreSQL refuses those that are invalid."""
    check_pattern(pattern)
