"""Removes the literals from SQL, so that it may be logged.

What comes in: SQL, of ours or of custom code. What goes out: the same SQL with `?` in place of each literal.
"""

from __future__ import annotations

import re

SHAPE_CHARACTERS = 4000

_TOKENS = re.compile(
    r"""
      (?P<comment> --[^\n]*
                 | /\*(?:(?!/\*|\*/).)*(?:\*/|/\*.*|\Z) )       # a nested comment hides all that follows
    | (?P<literal> [eE]'(?:[^'\\]|\\.|'')*(?:'|\Z)              # with backslashes
                 | (?:[bBxXnN]|[uU]&)?'(?:[^']|'')*(?:'|\Z)
                 | \$(?P<tag>(?:[^\W\d]\w*)?)\$.*?(?:\$(?P=tag)\$|\Z)
                 | \d[\w.]* | \.\d[\w.]*                        # a number of any base
      )
    | "(?:[^"]|"")*"                                            # a name in quotes
    | \$\d+                                                     # a placeholder
    | [^\W\d][\w$]*                                             # a word, which may contain digits
    """,
    re.VERBOSE | re.DOTALL,
)


def shape_of(sql: str) -> str:
    """Return a statement without its literals and comments, on one line. A very long one is cut.

    >>> shape_of("SELECT id FROM t1 WHERE name = 'O''Hara' AND age > 30 AND id = $1")
    'SELECT id FROM t1 WHERE name = ? AND age > ? AND id = $1'

    Source: PostgreSQL, "4.1. Lexical Structure".
    """
    shape = " ".join(_TOKENS.sub(_replacement, sql).split())
    return shape if len(shape) <= SHAPE_CHARACTERS else shape[:SHAPE_CHARACTERS] + " ..."


def _replacement(token: re.Match[str]) -> str:
    if token["literal"] is not None:
        return "?"
    return " " if token["comment"] is not None else token[0]
