"""Finds the table columns that the columns of a view show, in the text of the view's rule.

The rule is a tree of nodes in the form of PostgreSQL's outfuncs.c: `{QUERY ... :targetList ({TARGETENTRY ...} ...) }`.
Only the entries of the outermost query are columns of the view. They are two levels deep.
"""

from __future__ import annotations

import re

# A backslash escapes the next character, so an escaped brace is part of a name.
_TOKEN = re.compile(r"\\.|\{TARGETENTRY|[{}]|:(?:resno|resorigtbl|resorigcol) (\d+)|:(resjunk) (true|false)", re.DOTALL)


def origins_of(action: str) -> dict[int, tuple[int, int]]:
    """Return the origins of a view's columns: by number, the oid of the table and the number of the column there.

    A column of UNION is none of a table's: it shows values of several.
    """
    if re.search(r":setOperations \{", _outermost(action)):
        return {}
    found: dict[int, tuple[int, int]] = {}
    for entry in _entries(action):
        number, table, column, is_junk = entry
        if table and not is_junk:
            found[number] = (table, column)
    return found


def _outermost(action: str) -> str:
    """Return the text of the outermost query, without the nodes in it."""
    depth, start, parts = 0, 0, []
    for match in re.finditer(r"\\.|[{}]", action, re.DOTALL):
        if match[0] == "{":
            if depth == 1:
                parts.append(action[start : match.end()])
            depth += 1
        elif match[0] == "}":
            depth -= 1
            start = match.end()
    return "".join(parts)


def _entries(action: str) -> list[tuple[int, int, int, bool]]:
    """Return number, table, column and whether it is hidden, of each entry of the outermost target list."""
    entries: list[tuple[int, int, int, bool]] = []
    depth, is_entry = 0, False
    facts: dict[str, str] = {}
    for match in _TOKEN.finditer(action):
        text = match[0]
        if text.startswith("{"):
            depth += 1
            if depth == 2:
                is_entry, facts = text != "{", {}
        elif text == "}":
            if depth == 2 and is_entry and "resno" in facts:
                numbers = [int(facts[name]) for name in ("resno", "resorigtbl", "resorigcol")]
                entries.append((numbers[0], numbers[1], numbers[2], facts.get("resjunk") == "true"))
            depth -= 1
        elif depth == 2 and is_entry and text.startswith(":"):
            name, _, value = text[1:].partition(" ")
            facts[name] = value
    return entries
