"""Refuses regular expressions that are expensive for PostgreSQL to compile. In: a pattern of the operator `match`.

PostgreSQL expands bounded repetitions: `(.{0,100}){0,100}` has 10,000 states and a million transitions. This takes
seconds and hundreds of megabytes before the first row is read, and cannot be cancelled.

The transitions are counted as those of a Glushkov automaton: a state for each position, a transition for each pair of
neighbours. This is what remains after PostgreSQL has removed the empty ones (src/backend/regex/regc_nfa.c). The syntax
is that of PostgreSQL, "9.7.3. POSIX Regular Expressions". PostgreSQL itself reports invalid patterns.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from querybuild.declarations.values import ValueFault

MAX_COST = 5_000
"""The limit for the cost. Of 1,300 patterns below it that were built to be as slow as possible, the worst took
PostgreSQL 18 21.6 ms, and most less than one. `(.{0,100}){0,100}z` costs 515,000 and takes 1.3 s."""

MAX_EDGES = 16
"""The limit for `^`, `$`, `\\y` and lookarounds. Each can double the work around it: twenty `\\y` in a row take a
second. An optional one counts twice: sixteen `(\\y)?` in a row take many seconds."""

_MAX_DEPTH = 50

_MAX_COPIES = 256
"""PostgreSQL refuses more than 255."""

_OPTIONS = re.compile(r"\(\?([a-z]+)\)")
_OLD_SYNTAX = frozenset("be")
"""Options for a syntax that is not supported here."""

_BRACKET = r"\[\^?\]?(?:\\.|\[:[^\]]*:\]|\[=.*?=\]|\[\..*?\.\]|[^\]\\])*\]"
_SPACE = re.compile(rf"(\\.|{_BRACKET})|\s+|#[^\n]*", re.DOTALL)
_TOKEN = re.compile(
    rf"""(?P<comment>\(\?\#[^)]*\))
    | (?P<open>\((?:\?(?::|<?[=!]))?)
    | (?P<close>\))
    | (?P<bar>\|)
    | (?P<bound>\{{(?P<min_count>[0-9]+)(?P<comma>,?)(?P<max_count>[0-9]*)\}}\??)
    | (?P<repeat>[*+?]\??)
    | (?P<reference>\\[1-9][0-9]*)
    | (?P<edge>\\[mMyYAZ]|[\^$]|\[\[:[<>]:\]\])
    | (?P<class>\\[dwsDWS])
    | (?P<escape>\\c.|\\.)
    | (?P<bracket>{_BRACKET})
    | (?P<character>.)""",
    re.VERBOSE | re.DOTALL,
)


class _Part(NamedTuple):
    """The automaton of a part of a pattern. first: the number of transitions into it. last: the number of states that
    lead out of it. inner: the number of transitions inside."""

    first: int
    last: int
    inner: int
    is_nullable: bool
    edges: int = 0
    repeated_edges: int = 0
    optional_edges: int = 0

    @property
    def cost(self) -> int:
        """The cost of the part."""
        if self.edges + self.optional_edges > MAX_EDGES:
            return MAX_COST + 1
        return self.inner * (1 + self.repeated_edges) ** 3


_COLORED = frozenset({"bracket", "character", "class", "escape"})

_EMPTY = _Part(0, 0, 0, True)


def check_pattern(pattern: str) -> None:
    """Check that PostgreSQL can compile a pattern quickly. Raises ValueFault."""
    if cost(pattern) > MAX_COST:
        raise ValueFault("a regular expression that is shorter when its repetitions are written out")


def cost(pattern: str) -> int:
    """Return the number of transitions, increased for each repeated edge. The count stops above MAX_COST."""
    if pattern.startswith("***="):
        return len(pattern)
    pattern = pattern.removeprefix("***:")
    options = _OPTIONS.match(pattern)
    if options is not None:
        pattern = pattern[options.end() :]
        if not _OLD_SYNTAX.isdisjoint(options[1]):
            return MAX_COST + 1
        if "q" in options[1]:
            return len(pattern)
        if "x" in options[1]:
            pattern = _SPACE.sub(lambda match: match[1] or "", pattern)
    try:
        return _Counter(pattern).count()
    except _TooMany:
        return MAX_COST + 1


class _TooMany(Exception):
    """The cost is above MAX_COST, or groups are nested too deeply."""


class _Counter:
    """Parses a pattern and counts its cost."""

    def __init__(self, pattern: str) -> None:
        tokens = [(match.lastgroup or "", match[0], match) for match in _TOKEN.finditer(pattern)]
        self._tokens = [each for each in tokens if each[0] != "comment"]
        self._index = 0
        self._depth = 0
        self._groups: list[_Part] = []
        # PostgreSQL gives a color to each set of characters that the pattern distinguishes. A class has a transition
        # for each of its colors, about as many as there are other characters and classes.
        colored = {text for kind, text, _ in self._tokens if kind in _COLORED}
        # Classes of the locale overlap in more ways than explicit ones.
        wide = sum([text.startswith("\\") or "[:" in text for text in colored])
        self._colors = len(colored) * max(1, wide)

    def count(self) -> int:
        """Return the cost of the pattern."""
        total = 0
        while self._index < len(self._tokens):
            total += self._alternatives().cost
            # Skip a closing parenthesis without an opening one.
            self._index += 1
        return total

    def _alternatives(self) -> _Part:
        part = self._sequence()
        if self._kind() != "bar":
            return part
        while self._kind() == "bar":
            self._index += 1
            part = _either(part, self._sequence())
        return part._replace(optional_edges=part.edges)

    def _sequence(self) -> _Part:
        part = _EMPTY
        while self._kind() not in ("", "bar", "close"):
            part = _checked(_joined(part, self._repeated()))
        return part

    def _repeated(self) -> _Part:
        part = self._atom()
        while (kind := self._kind()) in ("bound", "repeat"):
            _, text, token = self._tokens[self._index]
            self._index += 1
            if kind == "bound":
                min_count = int(token["min_count"])
                max_count = (int(token["max_count"]) if token["max_count"] else None) if token["comma"] else min_count
            else:
                min_count, max_count = int(text[0] == "+"), 1 if text[0] == "?" else None
            part = _repetition(part, min_count, max_count)
        return part

    def _atom(self) -> _Part:
        kind, text, _ = self._tokens[self._index]
        self._index += 1
        if kind == "open":
            return self._group(text)
        if kind == "reference":
            # It is compiled like its group.
            number = int(text[1:])
            return self._groups[number - 1] if number <= len(self._groups) else _Part(1, 1, 0, False)
        if kind == "edge":
            return _Part(self._colors, 1, 0, True, 1)
        return _Part(self._colors if kind in ("class", "bracket") else 1, 1, 0, False)

    def _group(self, opening: str) -> _Part:
        number = len(self._groups)
        if opening == "(":
            self._groups.append(_EMPTY)
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _TooMany
        part = self._alternatives()
        self._depth -= 1
        self._index += 1
        if opening == "(":
            self._groups[number] = part
        elif opening != "(?:":
            return part._replace(is_nullable=True, edges=part.edges + 1)
        return part

    def _kind(self) -> str:
        return self._tokens[self._index][0] if self._index < len(self._tokens) else ""


def _joined(one: _Part, other: _Part) -> _Part:
    return _Part(
        one.first + (other.first if one.is_nullable else 0),
        other.last + (one.last if other.is_nullable else 0),
        one.inner + other.inner + one.last * other.first,
        one.is_nullable and other.is_nullable,
        one.edges + other.edges,
        one.repeated_edges + other.repeated_edges,
        one.optional_edges + other.optional_edges,
    )


def _either(one: _Part, other: _Part) -> _Part:
    return _Part(
        one.first + other.first,
        one.last + other.last,
        one.inner + other.inner,
        one.is_nullable or other.is_nullable,
        one.edges + other.edges,
        one.repeated_edges + other.repeated_edges,
        one.optional_edges + other.optional_edges,
    )


def _repetition(part: _Part, min_count: int, max_count: int | None) -> _Part:
    """Return a part that is repeated. max_count: None if there is no limit. x{2,} is xx*, and x{1,3} is x(x(x)?)?."""
    repeated = _EMPTY
    if max_count != 1:
        part = part._replace(repeated_edges=part.edges)
    if min_count == 0:
        part = part._replace(optional_edges=part.edges)
    if max_count is None:
        repeated = part._replace(inner=part.inner + part.last * part.first, is_nullable=True)
        # The loop is one of the copies: x+ has only one x.
        if min_count:
            repeated, min_count = repeated._replace(is_nullable=part.is_nullable), min_count - 1
    for _ in range(0 if max_count is None else min(max_count, _MAX_COPIES) - min_count):
        repeated = _checked(_joined(part, repeated)._replace(is_nullable=True))
    for _ in range(min(min_count, _MAX_COPIES)):
        repeated = _checked(_joined(part, repeated))
    return _checked(repeated)


def _checked(part: _Part) -> _Part:
    if part.cost > MAX_COST:
        raise _TooMany
    return part
