"""Draws rows with many special cases. They are the same for the same seed. What comes in: a seed, a Served. What goes
out: the rows for the model, and the same rows in the tables.

Dates are ISO texts, which are ordered like dates.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import date
from itertools import count
from random import Random
from typing import Any
from uuid import UUID

from tests.property.model import Row, Rows
from tests.property.served import Served

TEXTS = (
    *(
        "a",
        "A",
        "b",
        "ab",
        "aB",
        "Ab%",
        "a_b",
        "a%b",
        "%",
        "_",
        "\\",
        "\\%",
        "a\\b",
        "'",
        '"',
        "a,b",
        "a b",
        " a",
        "a ",
    ),
    *(
        "é",
        "É",
        "ß",
        "ẞ",
        "σς",
        "ΣΣ",
        "日本",
        "🙂",
        "aé🙂",
        "\n",
        "a\nb",
        "null",
        "true",
        "1",
        "01",
        "[]",
        "{}",
        "$1",
        ";--",
    ),
)
ALPHABET = "aAbB%_\\'\", ,éÉßΣσ日🙂\n1"
STATUSES = ("active", "block", "archive")
GENDERS = ("female", "male", "other")
DATES = ("0001-01-02", "1970-01-01", "1999-12-31", "2000-02-29", "2024-05-31", "9999-12-30")
NUMBERS: Sequence[Any] = (0, 1, -1, 2, 10**20, 1.5, 1.0, 1e2, 100, -2.5)
TABLES = {"group": "groups", "user": "users", "computer": "computers", "post": "posts"}
TABLES |= {"user_bio": "user_bios", "photo": "photos"}
HIDDEN = "a-hash-that-nobody-sees"


class _Maker:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def text(self, least: int = 0) -> str:
        if self.random.random() < 0.6:
            pool = [text for text in TEXTS if len(text) >= least]
            return self.random.choice(pool) if pool else "a" * least
        return "".join(self.random.choice(ALPHABET) for _ in range(self.random.randint(least, least + 4)))

    def maybe(self, value: Any, share_of_nulls: float = 0.3) -> Any:
        return None if self.random.random() < share_of_nulls else value

    def any_json(self, depth: int) -> Any:
        kind = self.random.randrange(8 if depth else 5)
        if kind < 5:
            return self.random.choice((None, True, False, self.text(), self.random.choice(NUMBERS)))
        if kind == 5:
            return [self.any_json(depth - 1) for _ in range(self.random.randint(0, 3))]
        return self.object(depth)

    def object(self, depth: int) -> dict[str, Any]:
        names = self.random.sample(("a", "b", "", "é", "a.b", '"', "\\"), self.random.randint(0, 3))
        return {name: self.any_json(depth - 1) for name in names}

    def user(self, id_value: int, groups: list[Row]) -> Row:
        first, last = self.text(1), self.text(1)
        return {
            "id": id_value,
            "first_name": first,
            "last_name": last,
            "display_name": f"{first} {last}",
            "age": self.maybe(self.random.choice((0, 1, 2, 7, 18, 18, 150))),
            "email": self.maybe(self.text(3)),
            "status": self.random.choice(STATUSES),
            "birth_date": self.maybe(self.random.choice(DATES)),
            "gender": self.maybe(self.random.choice(GENDERS)),
            "words": [self.text() for _ in range(self.random.choice((0, 0, 1, 1, 2, 3)))],
            "date_create": self.random.choice(DATES),
            "group_id": self.maybe(self.random.choice(groups)["id"]),
        }

    def ids(self, count: int) -> range:
        """Return ids that overlap between tables and do not begin with 1, so that a confusion of two ids shows."""
        first = self.random.randint(-3, 3)
        return range(first, first + count)


def make_rows(seed: int) -> Rows:
    made = _Maker(seed)
    names = made.random.sample(TEXTS, 5)
    groups: list[Row] = [{"id": number, "name": name} for number, name in zip(made.ids(5), names, strict=True)]
    users = [made.user(number, groups) for number in made.ids(24)]
    owners = made.random.sample(users, 10)
    with_bio = made.random.sample(users, 9)

    def owner() -> int:
        return int(made.random.choice(owners)["id"])

    return {
        "group": groups,
        "user": users,
        "computer": [
            {"id": number, "name": made.text(1), "serial": made.maybe(made.text()), "owner_id": made.maybe(owner())}
            for number in made.ids(24)
        ],
        "post": [
            {"id": number, "title": made.text(1), "body": made.text(), "user_id": owner()} for number in made.ids(18)
        ],
        "user_bio": [
            {
                "id": number,
                "birth_city": made.text(),
                "favourite_movies": made.maybe(made.text()),
                "keys_to_ids_list": made.maybe(
                    {name: [1, 2, 3][: made.random.randint(0, 3)] for name in made.object(1)}
                ),
                "user_id": user["id"],
            }
            for number, user in zip(made.ids(9), with_bio, strict=True)
        ],
        "photo": [
            {"id": number, "name": made.text(), "words": made.maybe(made.object(3), 0.15)} for number in made.ids(20)
        ],
    }


def make_corner_rows(seed: int) -> Rows:
    """Draw rows for the resources of `tests/catalog.py` that have relationships."""
    made = _Maker(seed)
    chance = made.random
    names = [(made.text(), made.text()) for _ in range(8)]
    authors: list[Row] = [
        {
            "id": number,
            "given-name": given,
            "family-name": family,
            "full-name": f"{given} {family}",
            "born": made.maybe(chance.randint(0, 4)),
            "größe": made.maybe(chance.randint(0, 4)),
        }
        for number, (given, family) in zip(made.ids(8), names, strict=True)
    ]
    author_ids = [author["id"] for author in authors]
    tags: list[Row] = [{"id": number, "name": name} for number, name in zip(made.ids(6), TEXTS, strict=False)]
    articles: list[Row] = [
        {
            "id": id_text,
            "title": made.text(),
            "pages": chance.randint(0, 4),
            "author_id": chance.choice(author_ids),
            "editor_id": made.maybe(chance.choice(author_ids)),
        }
        for id_text in chance.sample([text for text in TEXTS if text != "null"], 12)
    ]
    links = [(article["id"], tag["id"]) for article in articles for tag in tags]
    nodes: list[Row] = []
    for _ in range(10):
        parent = made.maybe(chance.choice(nodes)["id"]) if nodes else None
        id_text = str(UUID(int=chance.getrandbits(128)))
        nodes.append({"id": id_text, "title": made.text(), "weight": chance.randint(0, 3), "parent_id": parent})
    return {
        "author": authors,
        "tag": tags,
        "article": articles,
        "article_tags": [{"article_id": one, "tag_id": other} for one, other in chance.sample(links, 18)],
        "node": nodes,
        "profile": [
            {"id": number, "motto": made.text(), "author_id": author_id}
            for number, author_id in zip(made.ids(5), chance.sample(author_ids, 5), strict=True)
        ],
        "desk": [
            {"id": number, "room": made.text(), "author_id": author_id}
            for number, author_id in zip(made.ids(6), [*chance.sample(author_ids, 4), None, None], strict=True)
        ],
    }


CORNER_COLUMNS = {
    "author": ("public.authors", {"id": "author_no", "given-name": "given", "family-name": "family"}),
    "tag": ("public.tags", {}),
    "article": ("corner.articles", {}),
    "article_tags": ("corner.article_tags", {}),
    "node": ("corner.nodes", {"title": "Mixed Case"}),
    "profile": ("corner.profiles", {"author_id": "author_no"}),
    "desk": ("corner.desks", {"author_id": "author_no"}),
}
"""type -> table, and the columns whose names differ from those of the attributes."""

EMPTY_TABLES = ("corner.samples", "corner.countries", "corner.rules", "corner.entries")
"""Those that have only the rows that an example creates."""


def store_corner(server: Served, rows: Rows) -> None:
    """Replace the rows of the tables."""
    inserts: list[tuple[Any, ...]] = []
    for type_name, (table, renamed) in CORNER_COLUMNS.items():
        made = [{renamed.get(name, name): row[name] for name in row if name != "full-name"} for row in rows[type_name]]
        inserts += _insert(table, made)
    _empty(server, [*[table for table, _ in CORNER_COLUMNS.values()], *EMPTY_TABLES])
    server.sql(*inserts)


def store(server: Served, rows: Rows) -> None:
    """Replace the rows of the tables. Every user gets a text in a hidden column."""
    inserts: list[tuple[Any, ...]] = []
    for type_name, table in TABLES.items():
        inserts += _insert(table, [_columns(table, row) for row in rows[type_name]])
    _empty(server, list(TABLES.values()))
    server.sql(*inserts, ("UPDATE users SET password_hash = $1", HIDDEN))


def _columns(table: str, row: Row) -> Row:
    columns = {name: _bound(value) for name, value in row.items() if name != "display_name"}
    if table == "photos":
        columns["meta"] = columns.pop("words")
    return columns


def _empty(server: Served, tables: Sequence[str]) -> None:
    """Remove all rows. tables: each one after those that its keys refer to. TRUNCATE takes ten times as long for a few
    rows."""
    server.execute("; ".join([f"DELETE FROM {table}" for table in reversed(tables)]))


def _insert(table: str, rows: Sequence[Row]) -> Iterator[tuple[Any, ...]]:
    """Yield the statement that inserts all rows, if there are any. One for each row takes ten times as long."""
    if not rows:
        return
    names = ", ".join([f'"{name}"' for name in rows[0]])
    numbers = count(1)
    places = [f"({', '.join([f'${next(numbers)}' for _ in row])})" for row in rows]
    values = [row[name] for row in rows for name in rows[0]]
    yield f"INSERT INTO {table} ({names}) VALUES {', '.join(places)}", *values


def _bound(value: Any) -> Any:
    if isinstance(value, dict):
        return json.dumps(value)
    return date.fromisoformat(value) if value in DATES else value
