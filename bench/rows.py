"""Creates the rows of the benchmark, and restores them after writes. It takes a connection to a migrated database, and
loads 20 groups, a number of users and three times as many computers, the same on every machine. It must not know a
server.

PostgreSQL creates them from a hash of the id, so that a million users take seconds. Last names and computers' names are
unique, so that every measured sort has only one order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import asyncpg

from bench.requests import GROUPS

SMALL, LARGE = 10_000, 1_000_000
"""Numbers of users; there are three times as many computers."""

_FIRST = [
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
]
_LAST = [
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
]
_WORDS = ["boats", "maps", "tides", "python", "sql", "chess", "tea", "birds", "radio", "knots"]
_STATUSES = ["active", "active", "active", "block", "archive"]
_GENDERS = ("female", "male", "other", None)

_INSERT_GROUPS = "INSERT INTO public.groups (id, name) SELECT n, 'Group ' || n FROM generate_series(1, $1) n"
_INSERT_USERS = """
INSERT INTO public.users
    (id, first_name, last_name, age, email, status, birth_date, gender, words, date_create, group_id)
SELECT
    n,
    ($2::text[])[1 + pg_temp.drawn(n, 1, 8)],
    ($3::text[])[1 + pg_temp.drawn(n, 2, 10)] || ' ' || n,
    CASE WHEN n % 10 <> 0 THEN 17 + pg_temp.drawn(n, 4, 68) END,
    CASE WHEN n % 7 <> 0 THEN 'user' || n || '@example.com' END,
    ($4::text[])[1 + pg_temp.drawn(n, 3, 5)],
    date '1940-01-01' + pg_temp.drawn(n, 5, 25000),
    ($5::text[])[1 + pg_temp.drawn(n, 6, 4)],
    ($6::text[])[1 + pg_temp.drawn(n, 7, 7) : pg_temp.drawn(n, 7, 7) + pg_temp.drawn(n, 8, 4)],
    date '2022-01-01' + pg_temp.drawn(n, 9, 1000),
    1 + pg_temp.drawn(n, 10, $7)
FROM generate_series(1, $1) n
"""
_INSERT_COMPUTERS = """
INSERT INTO public.computers (id, name, serial, owner_id)
SELECT n, 'computer ' || n, 'SN-' || lpad(pg_temp.drawn(n, 11, 100000000)::text, 8, '0'), 1 + pg_temp.drawn(n, 12, $2)
FROM generate_series(1, $1) n
"""
# Inlined by the planner. The hash is PostgreSQL's own, of the id and the number of the draw.
_DRAWN = """
CREATE FUNCTION pg_temp.drawn(n integer, draw bigint, below integer) RETURNS integer LANGUAGE sql IMMUTABLE
RETURN ((hashint4extended(n, draw) % below + below) % below)::integer
"""
_SECONDARY = """
SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', conrelid::regclass, conname),
    format('ALTER TABLE %s ADD CONSTRAINT %I %s', conrelid::regclass, conname, pg_get_constraintdef(oid))
FROM pg_constraint WHERE contype = 'f' AND conrelid IN ('public.users'::regclass, 'public.computers'::regclass)
UNION ALL
SELECT 'DROP INDEX ' || indexrelid::regclass, pg_get_indexdef(indexrelid)
FROM pg_index WHERE NOT indisprimary AND indrelid IN ('public.users'::regclass, 'public.computers'::regclass)
"""
_USERS_TEXT = """
SELECT md5(string_agg(line, '|' ORDER BY line)) FROM (
    SELECT (CASE WHEN id <= (SELECT max(id) FROM kept.users) THEN to_jsonb(t) ELSE to_jsonb(t) - 'id' END)::text AS line
    FROM public.users t
) lines
"""
_COMPUTERS_TEXT = """
SELECT md5(string_agg(line, '|' ORDER BY line)) FROM (
    SELECT (
        CASE WHEN c.id <= (SELECT max(id) FROM kept.computers) THEN c.id END, c.name, c.serial,
        CASE WHEN u.id <= (SELECT max(id) FROM kept.users) THEN u.id::text ELSE to_jsonb(u)->>'email' END
    )::text AS line
    FROM public.computers c LEFT JOIN public.users u ON u.id = c.owner_id
) lines
"""
_KEPT = {
    "users": [
        *("first_name", "last_name", "age", "email", "status", "birth_date", "gender", "words", "date_create"),
        *("password_hash", "group_id"),
    ],
    "computers": ["name", "serial", "owner_id"],
}
"""The tables that requests write to, with the columns that they may change."""


async def load_rows(connection: asyncpg.Connection[Any], users: int) -> None:
    """Load the rows. Ids start at 1 in each table. Indexes are created after the rows; for a million rows this takes a
    third of the time.
    """
    secondary = await connection.fetch(_SECONDARY)
    for drop, _ in secondary:
        await connection.execute(drop)
    await connection.execute(_DRAWN)
    await connection.execute("SET maintenance_work_mem = '256MB'")
    await connection.execute(_INSERT_GROUPS, GROUPS)
    await connection.execute(_INSERT_USERS, users, _FIRST, _LAST, _STATUSES, list(_GENDERS), _WORDS, GROUPS)
    await connection.execute(_INSERT_COMPUTERS, 3 * users, users)
    for _, create in reversed(secondary):
        await connection.execute(create)
    await connection.execute("RESET maintenance_work_mem")
    await _set_sequences(connection, ("groups", *_KEPT))
    for table in _KEPT:
        # Dead rows are vacuumed between the rounds, and not in the middle of one.
        await connection.execute(f"ALTER TABLE public.{table} SET (autovacuum_enabled = false)")
    await connection.execute("VACUUM ANALYZE")


async def keep_copies(connection: asyncpg.Connection[Any]) -> None:
    """Copy the tables that requests write to, for `restore`."""
    await connection.execute("CREATE SCHEMA kept")
    for table in _KEPT:
        await connection.execute(f"CREATE TABLE kept.{table} AS TABLE public.{table}")


async def restore(connection: asyncpg.Connection[Any]) -> None:
    """Restore the loaded rows and the next ids, and vacuum the tables."""
    for table, columns in reversed(_KEPT.items()):
        await connection.execute(f"DELETE FROM public.{table} WHERE id > (SELECT max(id) FROM kept.{table})")
        kept = ", ".join(f"k.{column}" for column in columns)
        await connection.execute(
            f"UPDATE public.{table} t SET ({', '.join(columns)}) = ({kept}) FROM kept.{table} k"
            " WHERE t.id = k.id AND t IS DISTINCT FROM k"
        )
    await _set_sequences(connection, _KEPT)
    await connection.execute("VACUUM ANALYZE public.users, public.computers")


async def compact(connection: asyncpg.Connection[Any]) -> None:
    """Free the space that writes and `restore` left in tables and indexes, so that they have their first size."""
    await connection.execute("VACUUM FULL public.users, public.computers")
    await connection.execute("VACUUM ANALYZE public.users, public.computers")


async def _set_sequences(connection: asyncpg.Connection[Any], tables: Iterable[str]) -> None:
    for table in tables:
        await connection.execute(
            f"SELECT setval(pg_get_serial_sequence('public.{table}', 'id'), (SELECT max(id) FROM public.{table}))"
        )


async def make_users(connection: asyncpg.Connection[Any], first: int, count: int) -> None:
    """Create users to be deleted, with ids from `first`; nothing refers to them."""
    await connection.execute(
        "INSERT INTO public.users (id, first_name, last_name, group_id)"
        " SELECT n, 'Gone', 'Soon ' || n, 1 FROM generate_series($1::bigint, $1 + $2 - 1) n",
        first,
        count,
    )
    await connection.execute("VACUUM ANALYZE public.users")


async def fingerprint(connection: asyncpg.Connection[Any]) -> str:
    """Return a hash of all rows in the tables that requests write to, without the ids of new rows, because a sequence
    may have gaps.
    """
    return " ".join([await connection.fetchval(text) for text in (_USERS_TEXT, _COMPUTERS_TEXT)])
