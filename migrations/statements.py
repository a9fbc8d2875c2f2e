"""Splits an SQL text into its statements.

In: the text of a file. Out: each `MigrationStatement` with the line that it begins on. Must not know what a statement
means.
psql's additions to SQL (backslash commands, the data of COPY FROM STDIN) are not supported.

Source: PostgreSQL, "4.1. Lexical Structure"; where a statement ends, `src/fe_utils/psqlscan.l`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

TOKEN = re.compile(
    r"""
    (?P<blank> [ \t\n\r\f\v]+ | --[^\n]* )
    | (?P<comment> /\* )
    | [eE]'(?:[^'\\]|\\.|'')*'
    | '(?:[^']|'')*'
    | "(?:[^"]|"")*"
    | (?P<dollar> \$(?:[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_\x80-\U0010ffff]*)?\$ )
    | (?P<word> [A-Za-z_\x80-\U0010ffff][A-Za-z0-9_$\x80-\U0010ffff]* )
    | \$[0-9]+ | [0-9][A-Za-z0-9_.]*
    | .
    """,
    re.DOTALL | re.VERBOSE,
)
COMMENT_EDGE = re.compile(r"/\*|\*/")
# A body in plain SQL, BEGIN ATOMIC ... END, contains semicolons.
ROUTINE = re.compile(r"CREATE (OR REPLACE )?(FUNCTION|PROCEDURE) ")


@dataclass(frozen=True, slots=True)
class MigrationStatement:
    """One statement. `sql` begins with its first word and has no semicolon; `line` counts from 1. `words` are its names
    and keywords in capitals, in order, without quoted ones."""

    sql: str
    line: int
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Token:
    """A token of the text. `kind` is a group name of TOKEN, or None; `begin` is its offset."""

    kind: str | None
    text: str
    begin: int

    @property
    def end(self) -> int:
        return self.begin + len(self.text)


def split(sql: str) -> tuple[MigrationStatement, ...]:
    """Return the statements of a text in order. Text with only comments is not a statement.

    >>> [statement.sql for statement in split("SELECT 1; -- one\\nSELECT ';' ;")]
    ['SELECT 1', "SELECT ';'"]
    """
    split_statements = []
    held: list[Token] = []
    for token in _tokens(sql):
        if token.text == ";" and not _is_open(held):
            split_statements.append(held)
            held = []
        elif held or token.kind not in ("blank", "comment"):
            held.append(token)
    return tuple(_statement(sql, tokens) for tokens in (*split_statements, held) if tokens)


def is_ended(sql: str) -> bool:
    """Return whether the text ends with a semicolon, so that more text would be another statement."""
    seen = [token.text for token in _tokens(sql) if token.kind not in ("blank", "comment")]
    return seen[-1:] == [";"]


def _tokens(sql: str) -> Iterator[Token]:
    place = 0
    while match := TOKEN.match(sql, place):
        place = _end(sql, match)
        yield Token(match.lastgroup, sql[match.start() : place], match.start())


def _end(sql: str, match: re.Match[str]) -> int:
    """Return the end of a token. An unclosed comment or dollar quote runs to the end of the text."""
    if match.lastgroup == "comment":
        return _comment_end(sql, match.end())
    if match.lastgroup == "dollar":
        end = sql.find(match[0], match.end())
        return len(sql) if end < 0 else end + len(match[0])
    return match.end()


def _comment_end(sql: str, place: int) -> int:
    depth = 1
    while depth and (edge := COMMENT_EDGE.search(sql, place)):
        depth += 1 if edge[0] == "/*" else -1
        place = edge.end()
    return len(sql) if depth else place


def _is_open(tokens: list[Token]) -> bool:
    """Return whether a semicolon after these tokens is inside parentheses or the body of a routine."""
    texts = [token.text for token in tokens]
    if texts.count("(") > texts.count(")"):
        return True
    words = _words(tokens)
    if not ROUTINE.match(" ".join(words[:4]) + " "):
        return False
    depth = 0
    for word in words:
        if word == "BEGIN" or (word == "CASE" and depth):
            depth += 1
        elif word == "END" and depth:
            depth -= 1
    return depth > 0


def _words(tokens: list[Token]) -> tuple[str, ...]:
    return tuple(token.text.upper() for token in tokens if token.kind == "word")


def _statement(sql: str, tokens: list[Token]) -> MigrationStatement:
    begin = tokens[0].begin
    while tokens[-1].kind in ("blank", "comment"):
        tokens = tokens[:-1]
    return MigrationStatement(sql[begin : tokens[-1].end], sql.count("\n", 0, begin) + 1, _words(tokens))
