"""Formats Python expressions like ruff: on one line if there is room, otherwise one argument a line.

What comes in: a tree of expressions. What goes out: lines. It must not know: declarations, files.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

import msgspec

WIDTH = 88
"""Ruff's default. Each broken expression ends with a comma, so that ruff keeps it with any other width."""
INDENT = "    "


class FunctionCall(msgspec.Struct, frozen=True):
    """A call, a tuple or a list. open, close: such as `Attribute(` and `)`. parts: keyword (or nothing) and value.
    notes: the comments above each part. is_broken: whether it always has one part a line."""

    open: str
    close: str
    parts: tuple[tuple[str, Expression], ...]
    notes: tuple[tuple[str, ...], ...] = ()
    is_broken: bool = False


class Text(msgspec.Struct, frozen=True):
    """A long text, which is broken between words."""

    text: str


Expression = str | FunctionCall | Text


def call(name: str, *parts: tuple[str, Expression]) -> FunctionCall:
    """Return a call. parts: keyword, or an empty text, and value."""
    return FunctionCall(f"{name}(", ")", parts)


def literal(text: str) -> str:
    """Return a string literal, with the quotes that ruff prefers.

    >>> print(literal("it's"), literal('a "b"'))
    "it's" 'a "b"'
    """
    quote = "'" if text.count('"') > text.count("'") else '"'
    escaped = "".join(
        f"\\{letter}" if letter == quote else "'" if letter == "'" else repr(letter)[1:-1] for letter in text
    )
    return f"{quote}{escaped}{quote}"


def flat(expression: Expression) -> str:
    """Return an expression on one line."""
    if isinstance(expression, str):
        return expression
    if isinstance(expression, Text):
        return literal(expression.text)
    parts = ", ".join(f"{keyword}={flat(value)}" if keyword else flat(value) for keyword, value in expression.parts)
    is_one_tuple = expression.open == "(" and len(expression.parts) == 1
    return f"{expression.open}{parts}{',' if is_one_tuple else ''}{expression.close}"


def lines_of(expression: Expression, start: str, end: str, indent: str = "") -> list[str]:
    """Return the lines of an expression. start: the text before it, such as `name=`. end: the text after it."""
    line = f"{indent}{start}{flat(expression)}{end}"
    if isinstance(expression, str) or (not _must_break(expression) and len(line) <= WIDTH):
        return [line]
    inner = indent + INDENT
    if isinstance(expression, Text):
        return _broken_text(expression.text, start, end, indent)
    lines = [f"{indent}{start}{expression.open}"]
    for index, (keyword, value) in enumerate(expression.parts):
        for note in expression.notes[index] if expression.notes else ():
            lines += comment(note, inner)
        lines += lines_of(value, f"{keyword}=" if keyword else "", ",", inner)
    return [*lines, f"{indent}{expression.close}{end}"]


def _must_break(expression: Expression) -> bool:
    if not isinstance(expression, FunctionCall):
        return False
    # Ruff joins a tuple of one, whatever its comma.
    is_broken = expression.is_broken and len(expression.parts) > 1
    return is_broken or any(expression.notes) or any(_must_break(value) for _, value in expression.parts)


def _broken_text(text: str, start: str, end: str, indent: str) -> list[str]:
    inner = indent + INDENT
    parts: list[str] = []
    for word in _words(text):
        if parts and len(inner + literal(parts[-1] + word)) <= WIDTH:
            parts[-1] += word
        else:
            parts.append(word)
    if len(parts) < 2:
        return [f"{indent}{start}{literal(text)}{end}"]
    return [f"{indent}{start}(", *(inner + literal(part) for part in parts), f"{indent}){end}"]


def _words(text: str) -> list[str]:
    """Split a text after each blank."""
    parts = text.split(" ")
    return [*(f"{part} " for part in parts[:-1]), parts[-1]]


_GRANTED = re.compile(r'[^\r\n]* TO "([^"\r\n]|"")+"')


def comment(text: str, indent: str = "") -> list[str]:
    """Return the lines of a comment. A GRANT at its end is a line of its own, to be copied."""
    about, colon, grant = text.rpartition(": GRANT ")
    if colon and _GRANTED.fullmatch(grant):
        return [*comment(f"{about}:", indent), f"{indent}#     GRANT {grant};"]
    return textwrap.wrap(
        " ".join(text.split()),
        WIDTH,
        initial_indent=f"{indent}# ",
        subsequent_indent=f"{indent}# ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def import_lines(module: str, names: Sequence[str]) -> list[str]:
    """Return an import, sorted like ruff: constants, classes, functions."""
    if not names:
        return []
    ordered = sorted(names, key=lambda name: (0 if name.isupper() else 1 if name[0].isupper() else 2, name))
    line = f"from {module} import {', '.join(ordered)}"
    if len(line) <= WIDTH:
        return [line]
    return [f"from {module} import (", *(f"{INDENT}{name}," for name in ordered), ")"]
