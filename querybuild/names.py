r"""Splits the dotted names of filters, sorts and groups, and lists of them. A name inside a JSON value may have the
separators in it: `\.` is a dot, `\,` a comma, `\\` a backslash.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_SPLIT = {
    separator: re.compile(rf"(?:^|{re.escape(separator)})((?:[^\\{separator}]|\\.?)*)", re.DOTALL) for separator in ".,"
}
NO_PATH = "holds an empty name, or U+0000"
"""What an error says of a text that is no path."""

_ESCAPED = re.compile(r"\\([\\.,])")


def split_names(text: str, separator: str) -> list[str]:
    r"""Split a text at the separators that are not escaped. The names stay escaped.

    >>> split_names(r"words.a\.b.0", ".")
    ['words', 'a\\.b', '0']
    """
    return _SPLIT[separator].findall(text) if "\\" in text else text.split(separator)


def is_path(text: str) -> bool:
    """Return whether a text is a path of names: none is empty, and none has U+0000, which PostgreSQL does not know."""
    return "\0" not in text and all(split_names(text, "."))


def unescaped(names: Sequence[str]) -> tuple[str, ...]:
    r"""Return names as they are in a JSON value.

    >>> unescaped(["a\\.b", "0"])
    ('a.b', '0')
    """
    return tuple([_ESCAPED.sub(r"\1", name) for name in names])
