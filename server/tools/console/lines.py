"""Breaks long lines for a terminal.

It must not know: what the lines say.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator

_PIECE = re.compile(r"""(?:"(?:[^"]|"")*"|'(?:[^']|'')*'|[^\s,"'])+,?|["',]|\s+""")


def wrapped(line: str, width: int) -> Iterator[str]:
    """Break a line that is longer than the width, at spaces and after commas, but not inside of quotes. The next lines
    are indented by four more.

    >>> list(wrapped('  SELECT "a, b","c"', 12))
    ['  SELECT', '      "a, b",', '      "c"']
    """
    indent = line[: len(line) - len(line.lstrip())] + "    "
    current = ""
    for piece in _PIECE.findall(line):
        if len(current) + len(piece.rstrip()) > width and current.strip():
            yield current.rstrip()
            current = indent + piece.lstrip()
        else:
            current += piece
    if current.strip() or not line:
        yield current.rstrip()


def room() -> int:
    """Return how many characters a line of standard output may have. A file and a pipe take lines of any length."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
