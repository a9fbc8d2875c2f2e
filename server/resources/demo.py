"""Creates the demo rows: some hundreds of realistic rows, the same on every machine and in every run.

What comes in: a connection to a database with the built-in schema. What goes out: filled tables, if they were empty. It
must not know: requests, declarations, today's date. Ids begin with 1 in each table, so that documentation can quote
`/users/1`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, timedelta
from itertools import product
from random import Random
from typing import Any, TypeAlias, TypeVar

import asyncpg
import msgspec

from server.resources import demo_texts as texts

Value: TypeAlias = int | str | date | tuple[str, ...] | None
Post: TypeAlias = tuple[str, str, int]
"""Title, body, author."""
Computer: TypeAlias = tuple[str, str | None, int | None]
"""Name, serial, owner."""
Option = TypeVar("Option")

AS_OF = date(2026, 1, 1)
"""The day for which the ages are correct, and the last day on which users were created."""
FIRST_CREATED = date(2022, 3, 1)
OCCASIONS = 3
"""How often each note is written."""
COMPUTERS = 110
STAFF = 44
"""The first users, this many, write notes and are named in them. The others are visitors."""
SERIAL_SHARE = 0.85

# The model of a computer, the code in its serial, the share of this model that has an owner.
MODELS = (("laptop", "LT", 0.95), ("desktop", "DT", 0.85), ("tablet", "TB", 0.9), ("logger", "LG", 0.5))

IS_EMPTY = "SELECT NOT EXISTS (SELECT FROM {})"
SET_SEQUENCE = "SELECT setval(pg_get_serial_sequence($1, 'id'), $2)"


class TableRows(msgspec.Struct, frozen=True):
    """The rows of one table in the order of their ids, each with a value for each column. JSON values are text."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]


async def load_demo(connection: asyncpg.Connection[Any]) -> int:
    """Fill the tables of the built-in catalog with the demo rows, all or none. Return the number of rows.

    If one of the tables has a row, nothing is changed, and the result is 0. If several processes load at the same time,
    only one fills the tables. For this the tables are locked, but only if they look empty, so that a start does not
    wait for a database in use. New rows get ids after these. Raises asyncpg.PostgresError, for example for a missing
    table.
    """
    demo = demo_rows()
    if not await _are_empty(connection, demo):
        return 0
    # The second check must see what was committed while this process waited for the lock.
    async with connection.transaction(isolation="read_committed"):
        tables = ", ".join(f"public.{table}" for table in demo)
        await connection.execute(f"LOCK TABLE {tables} IN SHARE ROW EXCLUSIVE MODE")
        if not await _are_empty(connection, demo):
            return 0
        for table, rows in demo.items():
            await connection.copy_records_to_table(table, schema_name="public", columns=rows.columns, records=rows.rows)
            await connection.execute(SET_SEQUENCE, f"public.{table}", len(rows.rows))
    return sum(len(rows.rows) for rows in demo.values())


async def _are_empty(connection: asyncpg.Connection[Any], tables: Iterable[str]) -> bool:
    for table in tables:
        if not await connection.fetchval(IS_EMPTY.format(f"public.{table}")):
            return False
    return True


def demo_rows() -> dict[str, TableRows]:
    """Return the demo rows by table, in an order that foreign keys allow."""
    posts, computers = _posts(), _computers()
    return {
        "groups": _numbered("name", _one_column(texts.GROUPS)),
        "users": _numbered(
            "first_name last_name email gender birth_date age group_id status words date_create", _users()
        ),
        "posts": _numbered("title body user_id", posts),
        "user_bios": _numbered("user_id birth_city favourite_movies keys_to_ids_list", _bios(posts, computers)),
        "computers": _numbered("name serial owner_id", computers),
        **_families(),
        "persons": _numbered("name", _one_column(texts.PERSONS)),
        "photos": _numbered("name meta", _photos()),
    }


class _Dice:
    """Random choices that are the same in every version of Python. Only `random()` itself is guaranteed not to change,
    so nothing else of the module `random` is used."""

    def __init__(self, seed: str) -> None:
        self.throw = Random(seed).random

    def below(self, number: int) -> int:
        return int(self.throw() * number)

    def low(self, number: int) -> int:
        """Return the lower of two numbers, so that the first users have more posts and computers."""
        return min(self.below(number), self.below(number))

    def one_of(self, options: Sequence[Option]) -> Option:
        return options[self.below(len(options))]

    def shuffled(self, options: Iterable[Option]) -> list[Option]:
        return sorted(options, key=lambda _: self.throw())


def _numbered(columns: str, rows: Iterable[tuple[Value, ...]]) -> TableRows:
    return TableRows(("id", *columns.split()), tuple((number, *row) for number, row in enumerate(rows, 1)))


def _one_column(values: Iterable[str]) -> Iterator[tuple[str]]:
    return ((value,) for value in values)


def _cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]


def _or_null(cell: str) -> str | None:
    return None if cell == "-" else cell


def _list(cell: str) -> tuple[str, ...]:
    return () if cell == "-" else tuple(cell.split(", "))


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


# users with their posts, computers and biographies


def _users() -> Iterator[tuple[Value, ...]]:
    dice = _Dice("users")
    people = _cells(texts.PEOPLE)
    days = (AS_OF - FIRST_CREATED).days // len(people)
    for number, (first, last, email, gender, born, group, status, words) in enumerate(people):
        group_id = None if group == "-" else int(group)
        created = FIRST_CREATED + timedelta(days=number * days + dice.below(days))
        names = (first, last, _or_null(email), _or_null(gender))
        yield (*names, *_birth_date_and_age(born), group_id, status, _list(words), created)


def _birth_date_and_age(born: str) -> tuple[date | None, int | None]:
    if born.startswith("aged "):
        return None, int(born.removeprefix("aged "))
    if born == "-":
        return None, None
    birth = date.fromisoformat(born)
    had_no_birthday = (AS_OF.month, AS_OF.day) < (birth.month, birth.day)
    return birth, AS_OF.year - birth.year - had_no_birthday


def _posts() -> list[Post]:
    dice = _Dice("posts")
    names = [row[0] for row in _cells(texts.PEOPLE)][:STAFF]
    posts = []
    for occasion in range(OCCASIONS):
        for number, (title, body) in dice.shuffled(enumerate(_notes())):
            author = dice.low(STAFF)
            colleague = dice.one_of([name for name in names if name != names[author]])
            words = _words(number * 5 + occasion * 2, colleague, dice.below(19) + 3)
            posts.append((title.format_map(words), body.format_map(words), author + 1))
    return posts


def _notes() -> list[tuple[str, str]]:
    notes = (note.split("\n", 1) for note in texts.NOTES.strip().split("\n\n"))
    return [(title, body.replace("\n", " ")) for title, body in notes]


def _words(turn: int, name: str, number: int) -> dict[str, str]:
    """Return the words for the placeholders of a note. For turns that differ by 2 or 4, every word of the title
    differs."""
    months, birds = texts.MONTHS.split(), texts.BIRDS.split()
    lists: dict[str, Sequence[str]] = {"boat": texts.BOATS, "place": texts.PLACES, "month": months, "bird": birds}
    return {gap: words[turn % len(words)] for gap, words in lists.items()} | {"name": name, "n": str(number)}


def _computers() -> list[Computer]:
    dice = _Dice("computers")
    users = len(_cells(texts.PEOPLE))
    machines = dice.shuffled(product(texts.BIRDS.split(), MODELS))[:COMPUTERS]
    computers = []
    for number, (bird, (model, code, owned_share)) in enumerate(machines):
        serial = f"{code}-{20 + dice.below(6)}-{1000 + 37 * number:05}" if dice.throw() < SERIAL_SHARE else None
        owner = 1 + dice.low(users) if dice.throw() < owned_share else None
        computers.append((f"{bird}-{model}", serial, owner))
    return computers


def _bios(posts: list[Post], computers: list[Computer]) -> Iterator[tuple[Value, ...]]:
    posts_of = _ids_by_user(author for _, _, author in posts)
    computers_of = _ids_by_user(owner for _, _, owner in computers)
    for number, (user, city, movies) in enumerate(_cells(texts.BIOS), 1):
        lists = {"posts": posts_of.get(int(user), [])[:3], "computers": computers_of.get(int(user), [])}
        keys = None if number % 5 == 0 else _json({name: ids for name, ids in lists.items() if ids})
        yield int(user), city, _or_null(movies), keys


def _ids_by_user(users: Iterable[int | None]) -> dict[int | None, list[int]]:
    """Return for each user the ids of the rows that refer to it."""
    ids: dict[int | None, list[int]] = {}
    for number, user in enumerate(users, 1):
        ids.setdefault(user, []).append(number)
    return ids


# families and photos


def _families() -> dict[str, TableRows]:
    parents: list[str] = []
    children: list[str] = []
    associations: list[tuple[Value, ...]] = []
    for surname, couple, names in _cells(texts.FAMILIES):
        own = range(len(children) + 1, len(children) + 1 + len(_list(names)))
        children.extend(f"{name} {surname}" for name in _list(names))
        for parent in _list(couple):
            name, part = parent.split(" ", 1)
            parents.append(f"{name} {surname}")
            associations.extend((_or_null(part), len(parents), child) for child in own)
    return {
        "parents": _numbered("name", _one_column(parents)),
        "children": _numbered("name", _one_column(children)),
        "parent_child_associations": _numbered("extra_data parent_id child_id", associations),
    }


def _photos() -> Iterator[tuple[str, str | None]]:
    """Return a photo of every subject at every moment. One in ten has no words."""
    dice = _Dice("photos")
    subjects = _cells(texts.SUBJECTS)
    for number, ((subject, tags), moment) in enumerate(product(subjects, texts.MOMENTS), 1):
        name = f"{subject.capitalize()} {moment}"
        all_tags = list(dict.fromkeys((*_list(tags), moment.split()[-1])))
        camera, iso = dice.one_of(texts.CAMERAS), 100 * 2 ** dice.below(6)
        words = {"subject": subject, "tags": all_tags, "camera": camera, "iso": iso}
        yield name, None if number % 10 == 0 else _json(words)
