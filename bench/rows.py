"""The rows of the benchmark. In: a connection to a migrated, empty database. Out: 20 groups, 10,000 users and
30,000 computers, the same on every machine. It must not know a request.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from random import Random
from typing import Any

import asyncpg

GROUPS, USERS, COMPUTERS = 20, 10_000, 30_000

_FIRST = (
    "Ada",
    "Björn",
    "Chloé",
    "Dmitri",
    "Elif",
    "Farid",
    "Grace",
    "Hiro",
    "Ines",
    "Jonas",
    "Kofi",
    "Leila",
    "Mateo",
    "Noor",
    "Olena",
    "Priya",
)
_LAST = (
    "Almeida",
    "Brandt",
    "Conti",
    "Diallo",
    "Eriksen",
    "Fonseca",
    "Garnier",
    "Haddad",
    "Ibarra",
    "Kamau",
    "Lindqvist",
    "Nowicki",
    "Osei",
)
_WORDS = ("boats", "maps", "tides", "python", "sql", "chess", "tea", "birds", "radio", "knots")
_STATUSES = ("active", "active", "active", "block", "archive")
_GENDERS = ("female", "male", "other", None)
_USER_COLUMNS = (
    "first_name",
    "last_name",
    "age",
    "email",
    "status",
    "birth_date",
    "gender",
    "words",
    "date_create",
    "group_id",
)


async def load_rows(connection: asyncpg.Connection[Any]) -> None:
    """Ids run from 1 in each table; group, owner and every value are drawn with a fixed seed."""
    random = Random(20)
    await _copy(connection, "groups", ["name"], ((f"Group {number}",) for number in range(1, GROUPS + 1)))
    await _copy(connection, "users", _USER_COLUMNS, _users(random))
    await _copy(connection, "computers", ["name", "serial", "owner_id"], _computers(random))
    await connection.execute("VACUUM ANALYZE")


async def _copy(
    connection: asyncpg.Connection[Any], table: str, columns: Sequence[str], rows: Iterator[tuple[Any, ...]]
) -> None:
    await connection.copy_records_to_table(table, schema_name="public", columns=columns, records=rows)


def _users(random: Random) -> Iterator[tuple[Any, ...]]:
    for number in range(1, USERS + 1):
        first, last = random.choice(_FIRST), random.choice(_LAST)
        born = date(1940, 1, 1) + timedelta(days=random.randrange(25_000))
        age = None if number % 10 == 0 else 2025 - born.year
        email = None if number % 7 == 0 else f"user{number}@example.com"
        words = random.sample(_WORDS, random.randrange(4))
        created = date(2022, 1, 1) + timedelta(days=random.randrange(1000))
        status, gender = random.choice(_STATUSES), random.choice(_GENDERS)
        yield first, last, age, email, status, born, gender, words, created, random.randint(1, GROUPS)


def _computers(random: Random) -> Iterator[tuple[Any, ...]]:
    for number in range(1, COMPUTERS + 1):
        yield f"computer {number}", f"SN-{random.randrange(10**8):08}", random.randint(1, USERS)
