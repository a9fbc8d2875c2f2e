"""Finds what the columns of a view show, in the text of the view's rule.

The rule is a tree of nodes in the form of PostgreSQL's outfuncs.c, `({QUERY ... :targetList ({TARGETENTRY ...} ...)})`.
Only the nodes of the outermost query say something about the columns of the view. They are two levels deep.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

import msgspec

# A backslash escapes the next character, so an escaped brace is part of a name.
_BRACES = re.compile(r"\\.|[{}]", re.DOTALL)


class Shown(msgspec.Struct, frozen=True):
    """What the columns of a view show, by number.

    origins: the oid of a table and the number of the column there. grouped: the columns of GROUP BY or DISTINCT, if the
    view shows all of them. No two rows have the same values in these.
    """

    origins: dict[int, tuple[int, int]] = {}
    grouped: tuple[int, ...] = ()


def shown_columns(action: str) -> Shown:
    """Read the text of a rule. A column of UNION shows values of several tables, and has no origin."""
    nodes: defaultdict[str, list[str]] = defaultdict(list)
    for member, text in _nodes(action):
        nodes[member].append(text)
    if "setOperations" in nodes:
        return Shown()
    entries = [text for text in nodes["targetList"] if ":resjunk true" not in text]
    origins = {
        _number("resno", text): (_number("resorigtbl", text), _number("resorigcol", text))
        for text in entries
        if _number("resorigtbl", text)
    }
    clauses = nodes["groupClause"] or nodes["distinctClause"]
    by_reference = {_number("ressortgroupref", text): _number("resno", text) for text in entries}
    references = [_number("tleSortGroupRef", text) for text in clauses]
    if "groupingSets" in nodes or not by_reference.keys() >= set(references):
        return Shown(origins)
    return Shown(origins, tuple(sorted(by_reference[reference] for reference in references)))


def _number(name: str, text: str) -> int:
    match = re.search(rf":{name} (\d+)", text)
    return 0 if match is None else int(match[1])


def _nodes(action: str) -> Iterator[tuple[str, str]]:
    """Yield the member and the text of each node of the outermost query, without the nodes in it."""
    depth, start, member = 0, 0, ""
    parts: list[str] = []
    for match in _BRACES.finditer(action):
        if match[0] not in "{}":
            continue
        text, start = action[start : match.start()], match.end()
        if depth == 1 and (names := re.findall(r":(\w+) ", text)):
            member = names[-1]
        if depth == 2:
            parts.append(text)
        if match[0] == "{":
            depth += 1
            parts = [] if depth == 2 else parts
        else:
            if depth == 2:
                yield member, "".join(parts)
            depth -= 1
