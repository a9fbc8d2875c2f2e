"""How long PostgreSQL takes to compile the most expensive regular expressions that are allowed."""

from __future__ import annotations

import time

import asyncpg
import pytest

from querybuild.declarations.patterns import MAX_COST, cost

COMPILED_SECONDS = 1.0
"""Twenty times what it takes when nothing else runs."""

TRIES = 3
"""Something else may run."""


@pytest.mark.parametrize(
    "pattern",
    [
        "(.*){99}",
        "(a?b?){0,49}",
        "((a?){0,5}){0,19}",
        "((.*)(.*)(.*)){32}\\1",
        "(a*b*c*d*e*f*){16}",
        "(a{1,50}){1,50}",
        "(.{0,10}){0,30}",
        r"(\w?\d?\s?[[:alpha:]]?[[:punct:]]?[[:upper:]]?){2}",
        r"(?i)([abc]?[bcd]?[cde]?){0,19}",
        r"((\y|b*)*(\y|c*)*)*(d?){8}",
        r"\y\y\y\y\y\y(a?){90}",
        r"(\y)*" * 8,
        r"a?" + r"(\y|a)" * 8 + "b?",
        "^[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9.-]{1,255}[.][A-Za-z]{2,63}$",
    ],
)
async def test_what_is_let_through_is_compiled_soon(database_url: str, pattern: str) -> None:
    assert cost(pattern) <= MAX_COST
    for _ in range(TRIES):
        # A new connection has no compiled patterns.
        connection = await asyncpg.connect(database_url)
        try:
            begin = time.monotonic()
            await connection.fetchval("SELECT 'x' ~ $1", pattern)
            seconds = time.monotonic() - begin
        finally:
            await connection.close()
        if seconds < COMPILED_SECONDS:
            return
    raise AssertionError(f"{pattern} took {seconds:.1f} s")
