"""What PostgreSQL has to build for a regular expression. In: a pattern of the operator `match`. Out: the refusal of one
that would take it long.

PostgreSQL writes a bounded repetition out: `(.{0,100}){0,100}` has 10,000 states and a million transitions. That takes
seconds and hundreds of megabytes before the first row is looked at, and a cancel is not heard meanwhile.

The transitions are counted as those of Glushkov's automaton: a state for each position, a transition for each pair of
neighbours. That is what remains when PostgreSQL has removed its empty ones (src/backend/regex/regc_nfa.c). The syntax
is that of PostgreSQL, "9.7.3. POSIX Regular Expressions". Where a pattern is not valid, PostgreSQL says so.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from querybuild.values import ValueFault

MAX_COST = 5_000
"""The worst of 1,300 patterns below it that were made to be as costly as possible took PostgreSQL 18 21.6 ms; most take
less than one. `(.{0,100}){0,100}z` costs 515,000 and takes 1.3 s."""

MAX_EDGES = 16
"""Each `^`, `$`, `\\y` or lookaround can double what is around it: twenty `\\y` in a row take a second. One that may be
passed over counts twice: sixteen `(\\y)?` in a row take many seconds."""

_MOST_DEPTH = 50

_MOST_COPIES = 256
"""PostgreSQL refuses more than 255."""

_OPTIONS = re.compile(r"\(\?([a-z]+)\)")
_OLD_SYNTAX = frozenset("be")
"""Options that choose a syntax which is not read here."""

_BRACKET = r"\[\^?\]?(?:\\.|\[:[^\]]*:\]|\[=.*?=\]|\[\..*?\.\]|[^\]\\])*\]"
_SPACE = re.compile(rf"(\\.|{_BRACKET})|\s+|#[^\n]*", re.DOTALL)
_TOKEN = re.compile(
    rf"""(?P<comment>\(\?\#[^)]*\))
    | (?P<open>\((?:\?(?::|<?[=!]))?)
    | (?P<close>\))
    | (?P<bar>\|)
    | (?P<bound>\{{(?P<least>[0-9]+)(?P<comma>,?)(?P<most>[0-9]*)\}}\??)
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
    """What a part of a pattern is made into. first: the transitions that lead into it. last: the states that lead out
    of it. inner: the transitions within."""

    first: int
    last: int
    inner: int
    is_nullable: bool
    edges: int = 0
    repeated_edges: int = 0
    optional_edges: int = 0

    @property
    def cost(self) -> int:
        if self.edges + self.optional_edges > MAX_EDGES:
            return MAX_COST + 1
        return self.inner * (1 + self.repeated_edges) ** 3


_COLORED = frozenset({"bracket", "character", "class", "escape"})

_EMPTY = _Part(0, 0, 0, True)


def check_pattern(pattern: str) -> None:
    """Raises ValueFault for a pattern that PostgreSQL would compile for long."""
    if cost(pattern) > MAX_COST:
        raise ValueFault("a regular expression that is shorter when its repetitions are written out")


def cost(pattern: str) -> int:
    """Transitions, and more of them for each edge that is repeated. It is not counted on beyond MAX_COST."""
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
            pattern = _SPACE.sub(lambda found: found[1] or "", pattern)
    try:
        return _Counter(pattern).count()
    except _TooMany:
        return MAX_COST + 1


class _TooMany(Exception):
    """The cost is above MAX_COST, or groups are nested too deeply."""


class _Counter:
    """Reads a pattern once, from its beginning."""

    def __init__(self, pattern: str) -> None:
        tokens = [(found.lastgroup or "", found[0], found) for found in _TOKEN.finditer(pattern)]
        self._tokens = [each for each in tokens if each[0] != "comment"]
        self._place = 0
        self._depth = 0
        self._groups: list[_Part] = []
        # What the pattern tells apart has different colors, and a class leads on by each of its colors. It has about as
        # many as there are other characters and classes.
        colored = {text for kind, text, _ in self._tokens if kind in _COLORED}
        # Classes of the locale overlap in more ways than those that name their characters.
        wide = sum([text.startswith("\\") or "[:" in text for text in colored])
        self._colors = len(colored) * max(1, wide)

    def count(self) -> int:
        total = 0
        while self._place < len(self._tokens):
            total += self._alternatives().cost
            # A parenthesis that closes nothing.
            self._place += 1
        return total

    def _alternatives(self) -> _Part:
        found = self._sequence()
        if self._kind() != "bar":
            return found
        while self._kind() == "bar":
            self._place += 1
            found = _either(found, self._sequence())
        return found._replace(optional_edges=found.edges)

    def _sequence(self) -> _Part:
        found = _EMPTY
        while self._kind() not in ("", "bar", "close"):
            found = _checked(_joined(found, self._repeated()))
        return found

    def _repeated(self) -> _Part:
        found = self._atom()
        while (kind := self._kind()) in ("bound", "repeat"):
            _, text, token = self._tokens[self._place]
            self._place += 1
            if kind == "bound":
                least = int(token["least"])
                most = (int(token["most"]) if token["most"] else None) if token["comma"] else least
            else:
                least, most = int(text[0] == "+"), 1 if text[0] == "?" else None
            found = _repetition(found, least, most)
        return found

    def _atom(self) -> _Part:
        kind, text, _ = self._tokens[self._place]
        self._place += 1
        if kind == "open":
            return self._group(text)
        if kind == "reference":
            # It is compiled as what its group is.
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
        if self._depth > _MOST_DEPTH:
            raise _TooMany
        found = self._alternatives()
        self._depth -= 1
        self._place += 1
        if opening == "(":
            self._groups[number] = found
        elif opening != "(?:":
            return found._replace(is_nullable=True, edges=found.edges + 1)
        return found

    def _kind(self) -> str:
        return self._tokens[self._place][0] if self._place < len(self._tokens) else ""


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


def _repetition(part: _Part, least: int, most: int | None) -> _Part:
    """most: None without end. x{2,} is xx*, and x{1,3} is x(x(x)?)?."""
    found = _EMPTY
    if most != 1:
        part = part._replace(repeated_edges=part.edges)
    if least == 0:
        part = part._replace(optional_edges=part.edges)
    if most is None:
        found = part._replace(inner=part.inner + part.last * part.first, is_nullable=True)
        # The way back is one of the copies: x+ is one x.
        if least:
            found, least = found._replace(is_nullable=part.is_nullable), least - 1
    for _ in range(0 if most is None else min(most, _MOST_COPIES) - least):
        found = _checked(_joined(part, found)._replace(is_nullable=True))
    for _ in range(min(least, _MOST_COPIES)):
        found = _checked(_joined(part, found))
    return _checked(found)


def _checked(part: _Part) -> _Part:
    if part.cost > MAX_COST:
        raise _TooMany
    return part
