"""Draws how collections are linked, as SVG. What comes in: names with their URLs, and pairs of them. What goes out:
Markup. Everything in the drawing is also in the list beside it.

Up to CLUSTERED collections each is a box: those with links are in columns by how many steps they are away from the
most linked one. More are drawn as clusters: the names that begin with the same word, or are linked only with these.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Set

from markupsafe import Markup

CLUSTERED = 60
"""From how many collections on clusters are drawn."""

_WIDTH, _HEIGHT, _GAP_X, _GAP_Y = 176, 32, 64, 16
_CHARACTERS = 22

Nodes = Mapping[str, tuple[str, str]]
"""By a key, the title and the URL."""

Edges = Set[tuple[str, str]]


def draw(nodes: Nodes, edges: Edges) -> Markup:
    """Return the drawing."""
    if len(nodes) >= CLUSTERED:
        nodes, edges = _clusters(nodes, edges)
    near: dict[str, set[str]] = {key: set() for key in nodes}
    for name, other in edges:
        near[name].add(other)
        near[other].add(name)
    columns = _columns(near)
    places = {
        key: (column * (_WIDTH + _GAP_X), row * (_HEIGHT + _GAP_Y))
        for column, keys in enumerate(columns)
        for row, key in enumerate(keys)
    }
    width = max(1, len(columns)) * (_WIDTH + _GAP_X) - _GAP_X
    height = max([len(keys) for keys in columns], default=1) * (_HEIGHT + _GAP_Y) - _GAP_Y
    lines = {tuple(sorted(edge)) for edge in edges}
    parts = [_line(places[begin], places[other]) for begin, other in sorted(lines)]
    parts += [_box(*nodes[key], *place) for key, place in places.items()]
    size = 'viewBox="-4 -4 {0} {1}" width="{0}" height="{1}"'
    head = f'<svg {size} role="group" aria-label="How the collections are linked">'
    return Markup(head).format(width + 8, height + 8) + Markup("").join(parts) + Markup("</svg>")


def _columns(near: Mapping[str, Set[str]]) -> list[list[str]]:
    """Return the keys in columns, by their distance from the most linked one of their component. Long columns are
    folded, and each is sorted by the rows of its neighbours, which keeps lines short."""
    columns: list[list[str]] = []
    left = dict.fromkeys(sorted(near, key=lambda key: (-len(near[key]), key)))
    rows: dict[str, float] = {}
    while left:
        begin = next(iter(left))
        level = [begin]
        distance = 0
        while level:
            for key in level:
                left.pop(key, None)
            while len(columns) <= distance:
                columns.append([])
            for key in sorted(level, key=lambda key: _mean([rows[linked] for linked in near[key] if linked in rows])):
                rows[key] = len(columns[distance])
                columns[distance].append(key)
            level = list(dict.fromkeys([linked for key in level for linked in sorted(near[key]) if linked in left]))
            distance += 1
    return _folded(columns)


def _folded(columns: list[list[str]]) -> list[list[str]]:
    most = max(8, round((2 * sum(map(len, columns))) ** 0.5))
    return [column[begin : begin + most] for column in columns for begin in range(0, len(column), most)]


def _mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers) if numbers else 0.0


def _line(one: tuple[int, int], other: tuple[int, int]) -> Markup:
    (x1, y1), (x2, y2) = sorted((one, other))
    y1, y2 = y1 + _HEIGHT // 2, y2 + _HEIGHT // 2
    if x1 == x2:
        bend = x1 - _GAP_X // 2
        return Markup(f'<path class="edge" d="M{x1} {y1}C{bend} {y1} {bend} {y2} {x2} {y2}"/>')
    middle = (x1 + _WIDTH + x2) // 2
    return Markup(f'<path class="edge" d="M{x1 + _WIDTH} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}"/>')


def _box(title: str, url: str, x: int, y: int) -> Markup:
    shown = title if len(title) <= _CHARACTERS else title[: _CHARACTERS - 1] + "…"
    box = f'<rect class="node" x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="4"/>'
    text = Markup('<text x="{}" y="{}">{}</text>').format(x + 12, y + 21, shown)
    linked = Markup('<a href="{}"><title>{}</title>{}{}</a>')
    return linked.format(url, title, Markup(box), text) if url else Markup(box) + text


def _clusters(nodes: Nodes, edges: Edges) -> tuple[Nodes, Edges]:
    """Return the clusters of names that begin with the same word, each with the number of its collections. They lead to
    the list of these."""
    words = {key: title.split(" ")[0].lower() for key, (title, _) in nodes.items()}
    counts = Counter(words.values())
    of = {key: word if counts[word] > 1 else "others" for key, word in words.items()}
    members: dict[str, int] = defaultdict(int)
    for word in of.values():
        members[word] += 1
    clusters = {
        word: (f"{word} ({count})", "" if word == "others" else f"?findText={word}") for word, count in members.items()
    }
    lines = {(of[begin], of[other]) for begin, other in edges if of[begin] != of[other]}
    return clusters, lines
