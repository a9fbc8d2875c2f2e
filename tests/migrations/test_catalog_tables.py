"""The tables of the built-in catalog: which rows they refuse and accept, and which rows a deletion deletes too."""

import asyncpg
import pytest

ROWS = """
INSERT INTO groups (id, name) VALUES (1, 'admins'), (2, 'empty');
INSERT INTO users (id, first_name, last_name, group_id) VALUES (1, 'Ada', 'Byron', 1), (2, 'Alan', 'Turing', NULL);
INSERT INTO posts (id, title, body, user_id) VALUES (1, 'Notes', '', 1), (2, 'On numbers', '', 2);
INSERT INTO user_bios (id, birth_city, user_id) VALUES (1, 'London', 1);
INSERT INTO computers (id, name, owner_id) VALUES (1, 'Engine', 1), (2, 'Bombe', NULL);
INSERT INTO parents (id, name) VALUES (1, 'Anne'), (2, 'George');
INSERT INTO children (id, name) VALUES (1, 'Ada'), (2, 'Allegra');
INSERT INTO parent_child_associations (id, parent_id, child_id) VALUES (1, 1, 1), (2, 2, 1), (3, 2, 2);
"""
# A row that is inserted without an id then gets none of the ids above.
TABLES = ("groups", "users", "posts", "user_bios", "computers", "parents", "children", "parent_child_associations")
MOVE_SEQUENCES = "".join(f"SELECT setval('{table}_id_seq', 1000);" for table in TABLES)

USER = {"first_name": "'Grace'", "last_name": "'Hopper'"}
BIO = {"birth_city": "'Wilmslow'", "user_id": "2"}
POST = {"title": "'t'", "body": "''", "user_id": "1"}


def insert(table, row):
    return f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join(row.values())})"


def text(length):
    return f"repeat('ä', {length})"


BAD_ROWS = [
    # table, row, the constraint that refuses it
    ("users", {**USER, "first_name": "''"}, "users_first_name_check"),
    ("users", {**USER, "first_name": text(256)}, "users_first_name_check"),
    ("users", {**USER, "last_name": "''"}, "users_last_name_check"),
    ("users", {**USER, "last_name": text(256)}, "users_last_name_check"),
    ("users", {**USER, "age": "-1"}, "users_age_check"),
    ("users", {**USER, "age": "151"}, "users_age_check"),
    ("users", {**USER, "email": "'a@'"}, "users_email_check"),
    ("users", {**USER, "email": text(321)}, "users_email_check"),
    ("users", {**USER, "status": "'Active'"}, "users_status_check"),
    ("users", {**USER, "status": "''"}, "users_status_check"),
    ("users", {**USER, "gender": "'unknown'"}, "users_gender_check"),
    ("users", {**USER, "birth_date": "'0001-01-01'"}, "users_birth_date_check"),
    ("users", {**USER, "birth_date": "'9999-12-31'"}, "users_birth_date_check"),
    ("users", {**USER, "birth_date": "'infinity'"}, "users_birth_date_check"),
    ("users", {**USER, "date_create": "'-infinity'"}, "users_date_create_check"),
    ("users", {**USER, "words": "ARRAY['a', NULL]"}, "users_words_check"),
    ("users", {**USER, "words": "ARRAY[['a'], ['b']]"}, "users_words_check"),
    ("users", {**USER, "group_id": "9"}, "users_group_id_fkey"),
    ("users", {**USER, "id": "1"}, "users_pkey"),
    ("groups", {"name": "'admins'"}, "groups_name_key"),
    ("posts", {**POST, "title": "''"}, "posts_title_check"),
    ("posts", {**POST, "title": text(256)}, "posts_title_check"),
    ("posts", {**POST, "user_id": "9"}, "posts_user_id_fkey"),
    ("user_bios", {**BIO, "user_id": "1"}, "user_bios_user_id_key"),
    ("user_bios", {**BIO, "user_id": "9"}, "user_bios_user_id_fkey"),
    *(
        ("user_bios", {**BIO, "keys_to_ids_list": f"'{value}'"}, "user_bios_keys_to_ids_list_check")
        for value in (
            "[]",
            "null",
            "1",
            '{"a": 1}',
            '{"a": null}',
            '{"a": {}}',
            '{"a": ["1"]}',
            '{"a": [[1]]}',
            '{"a": [null]}',
            '{"a": [1], "b": [1.5]}',
            '{"a": [1], "b": 2}',
        )
    ),
    ("parent_child_associations", {"parent_id": "1", "child_id": "1"}, "{table}_parent_id_child_id_key"),
    ("parent_child_associations", {"parent_id": "9", "child_id": "1"}, "{table}_parent_id_fkey"),
    ("parent_child_associations", {"parent_id": "1", "child_id": "9"}, "{table}_child_id_fkey"),
    ("computers", {"name": "''"}, "computers_name_check"),
    ("computers", {"name": text(256)}, "computers_name_check"),
    ("computers", {"name": "'c'", "owner_id": "9"}, "computers_owner_id_fkey"),
    ("photos", {"name": "''", "meta": "'[]'"}, "photos_meta_check"),
    ("photos", {"name": "''", "meta": "'null'"}, "photos_meta_check"),
]


@pytest.mark.parametrize(("table", "row", "constraint"), BAD_ROWS)
async def test_a_bad_row_is_refused_by_name(catalog_url, connect, table, row, constraint):
    conn = await connect(catalog_url)
    await conn.execute("BEGIN")
    await conn.execute(ROWS + MOVE_SEQUENCES)
    with pytest.raises(asyncpg.IntegrityConstraintViolationError) as caught:
        await conn.execute(insert(table, row))
    assert caught.value.constraint_name == constraint.format(table=table)


REQUIRED = {
    "users": {"first_name", "last_name", "status", "words", "date_create"},
    "groups": {"name"},
    "posts": {"title", "body", "user_id"},
    "user_bios": {"birth_city", "user_id"},
    "parents": {"name"},
    "children": {"name"},
    "parent_child_associations": {"parent_id", "child_id"},
    "computers": {"name"},
    "persons": {"name"},
    "photos": {"name"},
}


async def test_these_columns_and_the_ids_are_never_null(catalog_url, connect):
    rows = await (await connect(catalog_url)).fetch(
        "SELECT table_name, array_agg(column_name::text) FROM information_schema.columns "
        "WHERE table_schema = 'public' AND is_nullable = 'NO' AND table_name <> 'waterspout_migrations' GROUP BY 1"
    )
    assert {table: set(columns) - {"id"} for table, columns in rows} == REQUIRED
    assert all("id" in columns for _, columns in rows)


@pytest.mark.parametrize(
    ("table", "row"),
    [
        ("users", {**USER, "first_name": text(255), "last_name": text(255), "email": text(320)}),
        ("users", {**USER, "email": "'a@b'", "age": "0", "birth_date": "'0001-01-02'"}),
        ("users", {**USER, "age": "150", "birth_date": "'9999-12-30'", "status": "'block'", "gender": "'other'"}),
        ("users", {**USER, "words": "ARRAY['a', 'a', '']"}),
        ("users", {**USER, "words": "'{}'", "status": "'archive'", "gender": "'female'"}),
        ("user_bios", {**BIO, "keys_to_ids_list": "'{}'"}),
        ("user_bios", {**BIO, "keys_to_ids_list": """'{"a": [], "b": [1, -2, 12345678901234567890]}'"""}),
        ("posts", {**POST, "title": text(255)}),
        ("photos", {"name": "''", "meta": """'{"a": [{}]}'"""}),
        ("persons", {"id": "9223372036854775807", "name": "''"}),
        *(
            # Ten thousand characters that cannot be compressed: no index may limit the length of a text.
            (table, {**row, column: "(SELECT string_agg(md5(n::text), '') FROM generate_series(1, 400) n)"})
            for table, row, column in [
                ("posts", POST, "body"),
                ("user_bios", BIO, "birth_city"),
                ("user_bios", BIO, "favourite_movies"),
                ("parents", {}, "name"),
                ("children", {}, "name"),
                ("persons", {}, "name"),
                ("photos", {}, "name"),
                ("computers", {"name": "'c'"}, "serial"),
            ]
        ),
    ],
)
async def test_a_row_at_the_bounds_is_taken(catalog_url, connect, table, row):
    conn = await connect(catalog_url)
    await conn.execute("BEGIN")
    await conn.execute(ROWS + MOVE_SEQUENCES)
    assert await conn.execute(insert(table, row)) == "INSERT 0 1"


async def test_the_defaults_of_a_user(catalog_url, connect):
    conn = await connect(catalog_url)
    await conn.execute("SET timezone = 'Pacific/Kiritimati'; BEGIN")
    row = await conn.fetchrow(
        "INSERT INTO users (first_name, last_name) VALUES ('a', 'b') RETURNING status, words, "
        "date_create = (now() AT TIME ZONE 'UTC')::date, age, email, gender, birth_date, password_hash, group_id"
    )
    assert tuple(row) == ("active", [], True, *[None] * 6)


LEFT = {
    # what is deleted: table, number of rows left
    "DELETE FROM users WHERE id = 1": {"users": 1, "posts": 1, "user_bios": 0, "computers": 2, "groups": 2},
    "DELETE FROM groups WHERE id = 2": {"groups": 1, "users": 2},
    "DELETE FROM parents WHERE id = 2": {"parents": 1, "children": 2, "parent_child_associations": 1},
    "DELETE FROM children WHERE id = 1": {"parents": 2, "children": 1, "parent_child_associations": 1},
    "DELETE FROM computers": {"computers": 0, "users": 2},
    "DELETE FROM posts": {"posts": 0, "users": 2},
    "DELETE FROM user_bios": {"user_bios": 0, "users": 2},
    "DELETE FROM parent_child_associations": {"parents": 2, "children": 2},
}


@pytest.mark.parametrize(("delete", "left"), LEFT.items())
async def test_rows_that_are_deleted_with_a_row(catalog_url, connect, delete, left):
    conn = await connect(catalog_url)
    await conn.execute("BEGIN")
    await conn.execute(ROWS)
    await conn.execute(delete)
    assert {table: await conn.fetchval(f"SELECT count(*) FROM {table}") for table in left} == left


async def test_computers_stay_when_their_owner_is_deleted(catalog_url, connect):
    conn = await connect(catalog_url)
    await conn.execute("BEGIN")
    await conn.execute(ROWS)
    await conn.execute("DELETE FROM users WHERE id = 1")
    rows = await conn.fetch("SELECT id, owner_id FROM computers ORDER BY id")
    assert [tuple(row) for row in rows] == [(1, None), (2, None)]


async def test_a_group_with_users_cannot_be_deleted(catalog_url, connect):
    conn = await connect(catalog_url)
    await conn.execute("BEGIN")
    await conn.execute(ROWS)
    with pytest.raises(asyncpg.ForeignKeyViolationError) as caught:
        await conn.execute("DELETE FROM groups WHERE id = 1")
    assert caught.value.constraint_name == "users_group_id_fkey"


async def test_every_foreign_key_has_an_index_that_begins_with_it(catalog_url, connect):
    rows = await (await connect(catalog_url)).fetch(
        "SELECT conname FROM pg_constraint c WHERE contype = 'f' AND NOT EXISTS "
        "(SELECT FROM pg_index i WHERE i.indrelid = c.conrelid AND i.indkey[0] = c.conkey[1])"
    )
    assert rows == []
